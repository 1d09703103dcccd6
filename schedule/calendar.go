package schedule

import "time"

// A wall is what a clock on the wall shows, in seconds since 1970 as if its zone were UTC. It names a local time,
// which the zone may show never, once or twice; an instant is an int64 of Unix seconds.
type wall int64

const day = 24 * 60 * 60

// date gives the day of w, and its minutes since midnight, rounded down.
func (w wall) date() (y, m, d, minutes int) {
	t := time.Unix(int64(w), 0).UTC()
	year, mon, mday := t.Date()
	return year, int(mon), mday, t.Hour()*60 + t.Minute()
}

func wallOf(y, m, d, minutes int) wall {
	return wall(time.Date(y, time.Month(m), d, 0, minutes, 0, 0, time.UTC).Unix())
}

// Years beyond these are not looked at; instants end one year earlier on both sides.
const firstYear, lastYear = 0, 10000

// next gives the first minute of the calendar at or after w that matches.
func (s Spec) next(w wall) (wall, bool) {
	if w%60 != 0 {
		w += 60 - (w%60+60)%60
	}
	y, m, d, minutes := w.date()
	if !s.on(y, m, d) {
		minutes = 0
	} else if at, ok := s.timeFrom(minutes); ok {
		return wallOf(y, m, d, at), true
	} else {
		minutes, d = 0, d+1
	}
	y, m, d, ok := s.dateFrom(y, m, d)
	if !ok {
		return 0, false
	}
	at, _ := s.timeFrom(minutes)
	return wallOf(y, m, d, at), true
}

// prev gives the last minute of the calendar at or before w that matches.
func (s Spec) prev(w wall) (wall, bool) {
	const midnight = 24*60 - 1
	y, m, d, minutes := w.date()
	if !s.on(y, m, d) {
		minutes = midnight
	} else if at, ok := s.timeUpTo(minutes); ok {
		return wallOf(y, m, d, at), true
	} else {
		minutes, d = midnight, d-1
	}
	y, m, d, ok := s.dateUpTo(y, m, d)
	if !ok {
		return 0, false
	}
	at, _ := s.timeUpTo(minutes)
	return wallOf(y, m, d, at), true
}

// timeFrom gives the first time of day that matches, from minutes since midnight on.
func (s Spec) timeFrom(minutes int) (int, bool) {
	h := minutes / 60
	if s.fields[hour].allows(h) {
		if m, ok := s.fields[minute].from(minutes % 60); ok {
			return h*60 + m, true
		}
	}
	h, ok := s.fields[hour].from(h + 1)
	return h*60 + s.fields[minute].least(), ok
}

// timeUpTo gives the last time of day that matches, up to minutes since midnight.
func (s Spec) timeUpTo(minutes int) (int, bool) {
	h := minutes / 60
	if s.fields[hour].allows(h) {
		if m, ok := s.fields[minute].upTo(minutes % 60); ok {
			return h*60 + m, true
		}
	}
	h, ok := s.fields[hour].upTo(h - 1)
	return h*60 + s.fields[minute].greatest(), ok
}

// dateFrom gives the first day that matches, from one on that may lie just behind its month.
func (s Spec) dateFrom(y, m, d int) (int, int, int, bool) {
	for y <= lastYear {
		next, ok := s.fields[month].from(m)
		switch {
		case !ok:
			y, m, d = y+1, 1, 1
			continue
		case next != m:
			m, d = next, 1
		}
		if at, ok := bitFrom(s.days(y, m), d); ok {
			return y, m, at, true
		}
		m, d = m+1, 1
	}
	return 0, 0, 0, false
}

// dateUpTo gives the last day that matches, up to one that may lie just before its month.
func (s Spec) dateUpTo(y, m, d int) (int, int, int, bool) {
	for y >= firstYear {
		last, ok := s.fields[month].upTo(m)
		switch {
		case !ok:
			y, m, d = y-1, 12, 31
			continue
		case last != m:
			m, d = last, 31
		}
		if at, ok := bitUpTo(s.days(y, m), d); ok {
			return y, m, at, true
		}
		m, d = m-1, 31
	}
	return 0, 0, 0, false
}

func (s Spec) on(y, m, d int) bool { return s.fields[month].allows(m) && s.days(y, m)>>d&1 == 1 }

// days gives the days of the month that match, whether or not the month does. A column that begins with a star
// restricts what the other one names; where both name days, either is enough.
func (s Spec) days(y, m int) uint64 {
	const weekly = 1<<1 | 1<<8 | 1<<15 | 1<<22 | 1<<29
	first := time.Date(y, time.Month(m), 1, 0, 0, 0, 0, time.UTC)
	length := first.AddDate(0, 1, -1).Day()
	var weekdays uint64
	for i := range 7 {
		if s.fields[dayOfWeek].allows((int(first.Weekday()) + i) % 7) {
			weekdays |= weekly << i
		}
	}
	days := s.fields[dayOfMonth].allowed & weekdays
	if s.either() {
		days = s.fields[dayOfMonth].allowed | weekdays
	}
	return days & (1<<(length+1) - 2)
}
