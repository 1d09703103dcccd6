package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Remark says what a change of the clock has to do with an occurrence, or is "" for most of them. An occurrence is
// an instant that Next or Prev gave.
func (s *Schedule) Remark(at time.Time) string {
	if s.spec.every > 0 {
		return ""
	}
	p := periodAt(s.zone, at.Unix())
	own := wall(at.Unix() + p.offset)
	var remarks []string
	if s.spec.fixed() {
		if p.start == at.Unix() {
			remarks = append(remarks, s.absent(p, own, "runs at "+own.clock(own), "run once, at "+own.clock(own)))
		}
	} else {
		remarks = append(remarks, s.absentBefore(at, p, own))
	}
	var earlier, later bool
	for q := range showing(s.zone, own) {
		earlier = earlier || q.start < p.start
		later = later || q.start > p.start
	}
	switch moved := s.spec.fixed() && !s.spec.matches(own); {
	case moved:
	case s.spec.fixed() && later:
		remarks = append(remarks, own.clock(own)+" exists twice: the first")
	case later:
		remarks = append(remarks, own.clock(own)+" exists twice, and runs twice: the first")
	case earlier:
		remarks = append(remarks, own.clock(own)+" exists twice, and runs twice: the second")
	}
	return strings.TrimPrefix(strings.Join(remarks, "; "), "; ")
}

// absentBefore tells of the local times that matched in a gap between the occurrence before and this one.
func (s *Schedule) absentBefore(at time.Time, p period, own wall) string {
	before, ok := s.Prev(at)
	if !ok {
		return ""
	}
	for ; p.start > before.Unix(); p = periodAt(s.zone, p.start-1) {
		if told := s.absent(p, own, "nothing runs for it", "nothing runs for them"); told != "" {
			return told
		}
	}
	return ""
}

// absent tells of the local times that match in the gap at the start of p, and what became of one or of several.
func (s *Schedule) absent(p period, own wall, one, several string) string {
	const most = 3
	var times []string
	n := 0
	for w := range s.missing(p) {
		if n++; n <= most {
			times = append(times, w.clock(own))
		}
	}
	switch {
	case n == 0:
		return ""
	case n == 1:
		return times[0] + " does not exist on this day: " + one
	case n > most:
		times = append(times, fmt.Sprintf("%d more", n-most))
	}
	last := len(times) - 1
	return strings.Join(times[:last], ", ") + " and " + times[last] + " do not exist on this day: " + several
}

// clock writes a local time, with its date if that is not the date of the other one.
func (w wall) clock(beside wall) string {
	form := "15:04"
	if w%60 != 0 {
		form = "15:04:05" // a clock that was put forward by odd seconds
	}
	if floor(int64(w), day) != floor(int64(beside), day) {
		form = "2006-01-02 " + form
	}
	return time.Unix(int64(w), 0).UTC().Format(form)
}

// matches says whether w is a minute of the calendar that the spec means.
func (s Spec) matches(w wall) bool {
	at, ok := s.next(w)
	return ok && at == w
}
