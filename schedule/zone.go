package schedule

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
)

// ErrZone means that a name is none of a time zone, or one that does not mean the same on every host.
var ErrZone = errors.New("schedule: no such time zone")

// A ZoneError says which name and what may be meant. It matches [ErrZone].
type ZoneError struct {
	Name   string
	Reason string
}

func (e *ZoneError) Error() string        { return fmt.Sprintf("time zone %.64q: %s", e.Name, e.Reason) }
func (e *ZoneError) Is(target error) bool { return target == ErrZone }

// LoadZone gives the zone of an IANA name, such as Europe/Berlin or UTC. Names that stand for whatever the host
// is set to are refused: two hosts would name other occurrences. The data are the host's, or those in the
// program if the host has none.
func LoadZone(name string) (*time.Location, error) {
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return nil, &ZoneError{name, "is empty; give an IANA name such as Europe/Berlin, or UTC"}
	case lower == "local" || lower == "localtime" || lower == "posixrules":
		return nil, &ZoneError{name, "is the zone of a host, and hosts differ; give an IANA name such as Europe/Berlin, or UTC"}
	case strings.HasPrefix(lower, "right/") || strings.HasPrefix(lower, "posix/"):
		return nil, &ZoneError{name, "is not on every host; leave out " + name[:6]}
	case strings.ContainsAny(name[:1], "+-0123456789") || offsetAfter(lower, "utc") || offsetAfter(lower, "gmt"):
		return nil, &ZoneError{name, "is an offset, which knows no summer time; give an IANA name such as Europe/Berlin. Etc/GMT-2 is two hours east of UTC for ever"}
	}
	if zone, err := time.LoadLocation(name); err == nil {
		return zone, nil
	}
	for _, meant := range []string{strings.ToUpper(name), capitals(name)} {
		if _, err := time.LoadLocation(meant); err == nil && meant != name {
			return nil, &ZoneError{name, "is not known; " + meant + " is meant?"}
		}
	}
	return nil, &ZoneError{name, "is not known; give an IANA name such as Europe/Berlin, or UTC"}
}

// offsetAfter says whether the name is the word with an offset: UTC+2.
func offsetAfter(name, word string) bool {
	rest, ok := strings.CutPrefix(name, word)
	return ok && len(rest) > 1 && strings.ContainsAny(rest[:1], "+-")
}

// capitals writes a name as the IANA does: america/new york is America/New_York.
func capitals(name string) string {
	var b strings.Builder
	begins := true
	for _, r := range strings.ToLower(name) {
		if r == ' ' {
			r = '_'
		}
		if begins {
			b.WriteString(strings.ToUpper(string(r)))
		} else {
			b.WriteRune(r)
		}
		begins = r == '/' || r == '_' || r == '-'
	}
	return b.String()
}

// maxOffset is more than the clock of any zone was ever ahead of or behind UTC, in seconds.
const maxOffset = 25 * 60 * 60

// unending bounds a period that has no end: far from every instant, and safe to add an offset to.
const unending = 1 << 60

// A period is a time in which a zone's clock runs on without a change: instants from start, before end.
type period struct {
	start, end int64
	offset     int64 // wall - instant
}

func (p period) wallStart() wall      { return wall(p.start + p.offset) }
func (p period) wallEnd() wall        { return wall(p.end + p.offset) }
func (p period) shows(w wall) bool    { return p.wallStart() <= w && w < p.wallEnd() }
func (p period) instant(w wall) int64 { return int64(w) - p.offset }

func periodAt(zone *time.Location, t int64) period {
	at := time.Unix(t, 0).In(zone)
	_, offset := at.Zone()
	start, end := at.ZoneBounds()
	p := period{-unending, unending, int64(offset)}
	if !start.IsZero() {
		p.start = start.Unix()
	}
	if !end.IsZero() {
		p.end = end.Unix()
	}
	return p
}

// showing yields the periods in which the zone's clock shows w, the earliest first: none in a gap, two when the
// clock went back over w.
func showing(zone *time.Location, w wall) iter.Seq[period] {
	return func(yield func(period) bool) {
		p := periodAt(zone, int64(w)-maxOffset)
		for ; ; p = periodAt(zone, p.end) {
			if p.shows(w) && !yield(p) {
				return
			}
			if p.end > int64(w)+maxOffset {
				return
			}
		}
	}
}

// firstShowing gives the earliest period in which the zone's clock shows w.
func firstShowing(zone *time.Location, w wall) (period, bool) {
	for p := range showing(zone, w) {
		return p, true
	}
	return period{}, false
}

// missing yields the minutes of the calendar that match and that the zone's clock left out when p began.
func (s *Schedule) missing(p period) iter.Seq[wall] {
	return func(yield func(wall) bool) {
		if p.start == -unending {
			return
		}
		before := periodAt(s.zone, p.start-1)
		for w := before.wallEnd(); ; {
			var ok bool
			if w, ok = s.spec.next(w); !ok || w >= p.wallStart() {
				return
			}
			if shown, ok := firstShowing(s.zone, w); ok {
				w = shown.wallEnd() // another change of the clock nearby: not left out after all
				continue
			}
			if !yield(w) {
				return
			}
			w++
		}
	}
}

// Shown gives the first instant at which the zone's clock shows the date and time of local, whose own zone does not
// count; the end of the gap if it never does.
func Shown(local time.Time, zone *time.Location) time.Time {
	_, offset := local.Zone()
	w := wall(local.Unix() + int64(offset))
	if p, ok := firstShowing(zone, w); ok {
		return time.Unix(p.instant(w), 0).UTC()
	}
	p := periodAt(zone, int64(w)-maxOffset)
	for p.wallStart() <= w {
		p = periodAt(zone, p.end)
	}
	return time.Unix(p.start, 0).UTC()
}
