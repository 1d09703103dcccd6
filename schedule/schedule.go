// Package schedule says when work is due: the instants of a cron spec in a time zone, each the name of one
// occurrence.
//
// # Guarantees
//
// The instants of a schedule are a pure function of the spec, the zone and the zone's data: no clock is asked, so
// every host names the same occurrences. Next and Prev walk the same instants, each once, strictly forward or
// strictly back, and cost a few steps however rare they are.
//
// With named hours each local time that matches runs once: one that does not exist, since the clock was put
// forward over it, at the first instant after the gap; one that exists twice at the first of the two. With * or
// */n in the hour the clock's real hours run: nothing in a gap, both in a repeat. Local times that fall on one
// instant are one occurrence. This holds whatever the change is: half an hour, at midnight, a whole day.
//
// @every D means the multiples of D since the Unix epoch, in every zone. A spec that never fires is refused.
//
// Nearest gives a trigger the occurrence that it means, although its timer is a little early or late.
//
// # Not promised
//
// Two hosts whose time-zone data differ may name other instants after a change of the law.
//
// # Failure
//
// Errors match [ErrInvalid] (a spec), [ErrZone] (a zone) or [ErrFar] (no occurrence is near), and say what to write
// instead. Instants lie in the years 1 to 9999; Next and Prev say so when there are no more.
//
// # Concurrency
//
// All types are values that do not change.
package schedule

import (
	"errors"
	"fmt"
	"iter"
	"time"
)

// Instants outside these have no RFC 3339 form.
var (
	firstInstant = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	lastInstant  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

// Tolerance is how far a trigger may be from the occurrence it means, to either side.
const Tolerance = 30 * time.Second

// A Schedule is a spec in a zone.
type Schedule struct {
	spec Spec
	zone *time.Location
}

// New reads a spec and loads its zone.
func New(spec, zone string) (*Schedule, error) {
	s, err := Parse(spec)
	if err != nil {
		return nil, err
	}
	z, err := LoadZone(zone)
	if err != nil {
		return nil, err
	}
	return In(s, z), nil
}

// In gives the schedule of a spec that Parse gave, in a zone that LoadZone gave.
func In(spec Spec, zone *time.Location) *Schedule { return &Schedule{spec, zone} }

// Spec gives the spec.
func (s *Schedule) Spec() Spec { return s.spec }

// Zone gives the zone.
func (s *Schedule) Zone() *time.Location { return s.zone }

// String names spec and zone.
func (s *Schedule) String() string { return fmt.Sprintf("%q in %s", s.spec, s.zone) }

// Next gives the first occurrence after t, in UTC; false after the last one of the year 9999.
func (s *Schedule) Next(t time.Time) (time.Time, bool) {
	return instant(s.next(max(t.Unix()+1, firstInstant)))
}

// Prev gives the last occurrence before t, in UTC; false before the first one of the year 1.
func (s *Schedule) Prev(t time.Time) (time.Time, bool) {
	to := t.Unix()
	if t.Nanosecond() == 0 {
		to--
	}
	return instant(s.prev(min(to, lastInstant)))
}

func instant(t int64, ok bool) (time.Time, bool) {
	if !ok || t < firstInstant || t > lastInstant {
		return time.Time{}, false
	}
	return time.Unix(t, 0).UTC(), true
}

// After yields the occurrences after t, in order.
func (s *Schedule) After(t time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for at, ok := s.Next(t); ok; at, ok = s.Next(at) {
			if !yield(at) {
				return
			}
		}
	}
}

// next gives the first occurrence at or after from.
func (s *Schedule) next(from int64) (int64, bool) {
	if step := s.step(); step > 0 {
		return -floor(-from, step), true
	}
	for from <= lastInstant {
		// No local time before this one matches, so nothing happens until it can be shown somewhere.
		w, ok := s.spec.next(wall(from - maxOffset))
		if !ok {
			return 0, false
		}
		from = max(from, int64(w)-maxOffset)
		p := periodAt(s.zone, from)
		if from == p.start && s.movedTo(p) {
			return from, true
		}
		if t, ok := s.nextIn(p, from); ok {
			return t, true
		}
		from = p.end
	}
	return 0, false
}

// prev gives the last occurrence at or before to.
func (s *Schedule) prev(to int64) (int64, bool) {
	if step := s.step(); step > 0 {
		return floor(to, step), true
	}
	for to >= firstInstant {
		w, ok := s.spec.prev(wall(to + maxOffset))
		if !ok {
			return 0, false
		}
		to = min(to, int64(w)+maxOffset)
		p := periodAt(s.zone, to)
		if t, ok := s.prevIn(p, to); ok {
			return t, true
		}
		if s.movedTo(p) {
			return p.start, true
		}
		to = p.start - 1
	}
	return 0, false
}

// step gives the seconds of @every, or 0.
func (s *Schedule) step() int64 { return int64(s.spec.every / time.Second) }

// floor gives the greatest multiple of step that is at most n.
func floor(n, step int64) int64 {
	rest := n % step
	if rest < 0 {
		rest += step
	}
	return n - rest
}

// nextIn gives the first occurrence of p at or after from that its clock shows.
func (s *Schedule) nextIn(p period, from int64) (int64, bool) {
	for w := wall(from + p.offset); ; {
		var ok bool
		if w, ok = s.spec.next(w); !ok || w >= p.wallEnd() {
			return 0, false
		}
		earlier, again := s.again(p, w)
		if !again {
			return p.instant(w), true
		}
		w = earlier.wallEnd()
	}
}

// prevIn gives the last occurrence of p at or before to that its clock shows.
func (s *Schedule) prevIn(p period, to int64) (int64, bool) {
	for w := wall(to + p.offset); ; {
		var ok bool
		if w, ok = s.spec.prev(w); !ok || w < p.wallStart() {
			return 0, false
		}
		earlier, again := s.again(p, w)
		if !again {
			return p.instant(w), true
		}
		w = earlier.wallStart() - 1
	}
}

// again says whether w, which p shows, has run before p when the clock showed it first.
func (s *Schedule) again(p period, w wall) (earlier period, again bool) {
	if !s.spec.fixed() {
		return period{}, false
	}
	earlier, _ = firstShowing(s.zone, w)
	return earlier, earlier.start < p.start
}

// movedTo says whether local times that do not exist run at the start of p.
func (s *Schedule) movedTo(p period) bool {
	if s.spec.fixed() {
		for range s.missing(p) {
			return true
		}
	}
	return false
}

// ErrFar means that no occurrence is near the instant asked for. Nothing can be named by it.
var ErrFar = errors.New("schedule: no occurrence is near")

// A FarError says what lies around the instant that was asked for. It matches [ErrFar].
type FarError struct {
	Schedule  *Schedule
	Asked     time.Time
	Last, Due time.Time // the last occurrence up to Asked and the next one; zero if there is none
}

func (e *FarError) Error() string {
	const form = "2006-01-02T15:04:05.999Z"
	s := fmt.Sprintf("%s is not near an occurrence of %s", e.Asked.UTC().Format(form), e.Schedule)
	if !e.Last.IsZero() {
		s += fmt.Sprintf(": the last was due at %s, %s earlier", e.Last.Format(time.RFC3339), span(e.Asked.Sub(e.Last)))
	}
	if !e.Due.IsZero() {
		s += fmt.Sprintf(", the next is due at %s, %s later", e.Due.Format(time.RFC3339), span(e.Due.Sub(e.Asked)))
	}
	return s
}

// span rounds a duration for a reader.
func span(d time.Duration) time.Duration {
	if d > time.Hour {
		return d.Round(time.Minute)
	}
	return d.Round(time.Millisecond)
}

// Is reports whether target is ErrFar.
func (e *FarError) Is(target error) bool { return target == ErrFar }

// Nearest gives the occurrence that a trigger at t means: the nearest one, half-way the later one, if it is within
// [Tolerance]. A trigger that is up to late after an occurrence means that one, if it is not near another. Else
// the error is a [*FarError].
func (s *Schedule) Nearest(t time.Time, late time.Duration) (time.Time, error) {
	last, before := s.Prev(t.Add(1))
	due, after := s.Next(t)
	switch {
	case after && due.Sub(t) <= Tolerance && (!before || due.Sub(t) <= t.Sub(last)):
		return due, nil
	case before && t.Sub(last) <= max(Tolerance, late):
		return last, nil
	}
	return time.Time{}, &FarError{Schedule: s, Asked: t, Last: last, Due: due}
}

// Multiple gives the multiple of d since the Unix epoch that is nearest to t, half-way the later one: the
// occurrence of @every d that a trigger at t means, however far it is. d is whole seconds, at least one.
func Multiple(t time.Time, d time.Duration) time.Time {
	step := int64(d / time.Second)
	last := time.Unix(floor(t.Unix(), step), 0).UTC()
	if due := last.Add(d); due.Sub(t) <= t.Sub(last) {
		return due
	}
	return last
}
