package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// A Spec is a schedule as it was written, without a zone. Specs that mean the same are equal by == if they were
// written with the same stars: a star says more than the values it stands for. The zero Spec is not valid.
type Spec struct {
	every  time.Duration // of @every; else 0, and the fields count
	fields [5]field
}

// A field is the set of values that one column of a spec allows.
type field struct {
	allowed uint64 // bit n: the value n
	step    uint8  // n of */n, and 1 for *; 0 for anything else
}

func (f field) star() bool        { return f.step > 0 }
func (f field) allows(n int) bool { return f.allowed>>n&1 == 1 }

// from gives the least allowed value of at least n.
func (f field) from(n int) (int, bool) { return bitFrom(f.allowed, n) }

// upTo gives the greatest allowed value of at most n.
func (f field) upTo(n int) (int, bool) { return bitUpTo(f.allowed, n) }

func (f field) least() int    { return bits.TrailingZeros64(f.allowed) }
func (f field) greatest() int { return bits.Len64(f.allowed) - 1 }

func bitFrom(set uint64, n int) (int, bool) {
	set = set >> n << n
	return bits.TrailingZeros64(set), set != 0
}

func bitUpTo(set uint64, n int) (int, bool) {
	if n < 0 {
		return 0, false
	}
	set &= 1<<(n+1) - 1
	return bits.Len64(set) - 1, set != 0
}

// The columns of a spec.
const (
	minute = iota
	hour
	dayOfMonth
	month
	dayOfWeek
)

// A column is what may stand in one place of a spec.
type column struct {
	name     string
	min, max int
	top      int      // the greatest number that may be written; above max it is another name of min
	names    []string // of min, min+1, …
	starred  bool     // a star says more than the values it stands for
	days     bool     // ? is another spelling of *
}

var columns = [5]column{
	{name: "minute", max: 59, top: 59},
	{name: "hour", max: 23, top: 23, starred: true},
	{name: "day of month", min: 1, max: 31, top: 31, starred: true, days: true},
	{name: "month", min: 1, max: 12, top: 12, names: strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
	{name: "day of week", max: 6, top: 7, names: strings.Fields("SUN MON TUE WED THU FRI SAT"), starred: true, days: true},
}

// every gives all values of the column from its least one in steps of n.
func (c column) every(n int) field {
	f := field{step: uint8(n)}
	for v := c.min; v <= c.max; v += n {
		f.allowed |= 1 << v
	}
	return f
}

// fixed says whether the hours are named: then each local time that matches runs once, whatever the clock
// does. With * or */n in the hour the hours of the clock run as they come.
func (s Spec) fixed() bool { return !s.fields[hour].star() }

// either says whether a day of the month or a weekday is enough, as cron has it when both are named.
func (s Spec) either() bool { return !s.fields[dayOfMonth].star() && !s.fields[dayOfWeek].star() }

// fires says whether there is a day that matches.
func (s Spec) fires() bool {
	if !s.fields[dayOfWeek].star() {
		return true // a weekday comes in each month; if the day of the month counts as well it is */n, which has the first
	}
	for m := 1; m <= 12; m++ {
		if s.fields[month].allows(m) && s.fields[dayOfMonth].least() <= longest(m) {
			return true
		}
	}
	return false
}

// longest is the number of days that the month has at most.
func longest(month int) int {
	return time.Date(2000, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// String gives the spec in its canonical form, which Parse reads back as the same Spec.
func (s Spec) String() string {
	if s.every > 0 {
		return "@every " + s.every.String()
	}
	words := make([]string, len(s.fields))
	for i, f := range s.fields {
		words[i] = f.String()
	}
	return strings.Join(words, " ")
}

func (f field) String() string {
	switch f.step {
	case 0:
	case 1:
		return "*"
	default:
		return fmt.Sprintf("*/%d", f.step)
	}
	var list []string
	for n, ok := f.from(0); ok; n, ok = f.from(n + 1) {
		last := n
		for f.allows(last + 1) {
			last++
		}
		if last-n < 2 {
			list = append(list, strconv.Itoa(n))
			continue
		}
		list = append(list, fmt.Sprintf("%d-%d", n, last))
		n = last
	}
	return strings.Join(list, ",")
}

// Note is a sentence on what of the spec is often read in another way, or "".
func (s Spec) Note() string {
	dom, dow := s.fields[dayOfMonth], s.fields[dayOfWeek]
	switch {
	case s.every > 0:
		return ""
	case s.either():
		return "a day of the month or a weekday is enough: on days that are both it runs as on any other"
	case dom.step > 1 && dow.step != 1:
		return fmt.Sprintf("*/%d in the day of month restricts the weekdays: only days that are both", dom.step)
	case dow.step > 1 && dom.step != 1:
		return fmt.Sprintf("*/%d in the day of week restricts the days of the month: only days that are both", dow.step)
	}
	return ""
}
