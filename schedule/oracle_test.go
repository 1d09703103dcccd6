package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/schedule"
)

// zones are the thirty zones of the walk, each with the decade that is walked, and within it the year of the short
// walk. They hold gaps and repeats of 20, 30, 60, 120 minutes and a day, at midnight and elsewhere, on both
// hemispheres, and a summer time that is negative.
var zones = []struct {
	name             string
	decade, shortest int
}{
	{"UTC", 2020, 2024},
	{"America/New_York", 2020, 2026},
	{"America/Los_Angeles", 2000, 2007},
	{"America/Chicago", 2025, 2026},
	{"America/Sao_Paulo", 2010, 2017},
	{"America/St_Johns", 2000, 2006},  // changes at 00:01
	{"America/Havana", 2010, 2012},    // midnight
	{"America/Asuncion", 2015, 2024},  // midnight
	{"America/Santiago", 2015, 2019},  // 24:00
	{"America/Caracas", 2007, 2016},   // half an hour for ever, and back
	{"America/Nuuk", 2018, 2024},      // on the evening before
	{"Atlantic/Azores", 1990, 1992},   // from and to another zone
	{"Europe/Berlin", 2020, 2026},     //
	{"Europe/London", 1966, 1971},     // the end of a standard time that was summer time
	{"Europe/Dublin", 2020, 2025},     // negative in winter
	{"Europe/Moscow", 2007, 2011},     // for ever
	{"Europe/Istanbul", 2010, 2016},   //
	{"Africa/Cairo", 2007, 2010},      // four changes a year
	{"Africa/Casablanca", 2020, 2023}, // around Ramadan
	{"Africa/Juba", 2015, 2021},       //
	{"Asia/Tehran", 2015, 2021},       // midnight, half an hour east
	{"Asia/Kolkata", 2020, 2022},      //
	{"Asia/Kathmandu", 1980, 1986},    // a quarter of an hour
	{"Asia/Pyongyang", 2012, 2018},    // half an hour, at 23:30
	{"Asia/Gaza", 2015, 2024},         // at 00:00, 01:00, 02:00
	{"Australia/Lord_Howe", 2020, 2026},
	{"Pacific/Apia", 2005, 2011},      // no 30 December
	{"Pacific/Kwajalein", 1988, 1993}, // no 21 August
	{"Pacific/Chatham", 2020, 2022},   // at 02:45
	{"Antarctica/Troll", 2020, 2026},  // two hours
}

// A walk is every minute of some years in a zone, and what the zone's clock shows in it.
type walk struct {
	zone  *time.Location
	base  int64         // Unix minute of index 0
	wall  []int32       // by index: the wall's minute, counted from base
	first map[int32]int // the first index at which the wall shows a minute that it shows twice
	twice int
}

func walkOf(t *testing.T, name string, from, to int) *walk {
	t.Helper()
	zone, err := schedule.LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC).Unix() / 60
	end := time.Date(to, 1, 1, 0, 0, 0, 0, time.UTC).Unix() / 60
	w := &walk{zone: zone, base: start, wall: make([]int32, end-start), first: map[int32]int{}}
	top := int32(-1 << 30) // the greatest minute shown so far
	for i := range w.wall {
		_, offset := time.Unix((start+int64(i))*60, 0).In(zone).Zone()
		if offset%60 != 0 {
			t.Fatalf("%s was off by seconds in %d: a walk by minute does not see its minutes", name, from)
		}
		w.wall[i] = int32(i) + int32(offset/60)
		if w.wall[i] <= top {
			w.twice++
			if _, ok := w.first[w.wall[i]]; !ok {
				w.first[w.wall[i]] = slices.Index(w.wall[:i], w.wall[i])
			}
		}
		top = max(top, w.wall[i])
	}
	return w
}

// A drawn spec is its text and, beside it, what it means: nothing of the package is used to know that.
type drawn struct {
	text        string
	set         [5][]bool
	star        [5]bool
	realHours   bool
	eitherIsDay bool
}

var ranges = [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}

var names = [5][]string{3: strings.Fields("- jan Feb MAR apr May JUN jul Aug SEP oct Nov DEC"), 4: strings.Fields("SUN mon Tue WED thu Fri SAT")}

func draw(r *rand.Rand) drawn {
	var d drawn
	words := make([]string, 5)
	for i := range words {
		words[i], d.set[i], d.star[i] = drawColumn(r, i)
	}
	d.text = strings.Join(words, " ")
	d.realHours, d.eitherIsDay = d.star[1], !d.star[2] && !d.star[4]
	return d
}

func drawColumn(r *rand.Rand, i int) (text string, set []bool, star bool) {
	lo, hi := ranges[i][0], ranges[i][1]
	set = make([]bool, 61)
	every := func(from, to, n int) {
		for v := from; v <= to; v += n {
			set[v%max(hi+1, 8-lo)] = true
		}
	}
	pick := func() int {
		if i == 1 && r.IntN(2) == 0 {
			return r.IntN(5) // where clocks change
		}
		return lo + r.IntN(hi-lo+1)
	}
	say := func(v int) string {
		if names[i] != nil && r.IntN(2) == 0 {
			return names[i][v]
		}
		if i == 4 && v == 0 && r.IntN(2) == 0 {
			return "7"
		}
		return fmt.Sprint(v)
	}
	kind := r.IntN(10)
	if i == 0 && kind < 4 && r.IntN(8) > 0 {
		kind = 6 // fewer specs that fire each minute
	}
	switch kind {
	case 0, 1, 2:
		every(lo, hi, 1)
		return "*", set, true
	case 3:
		n := 1 + r.IntN(hi-lo)
		every(lo, hi, n)
		return fmt.Sprintf("*/%d", n), set, true
	case 4, 5:
		a, b := pick(), pick()
		a, b = min(a, b), max(a, b)
		every(a, b, 1)
		return fmt.Sprintf("%d-%d", a, b), set, false
	case 6:
		var list []string
		for range 1 + r.IntN(4) {
			v := pick()
			set[v] = true
			list = append(list, say(v))
		}
		return strings.Join(list, ","), set, false
	case 7:
		a := lo + r.IntN((hi-lo)/2)
		b := hi - r.IntN((hi-lo)/2)
		n := 1 + r.IntN(b-a)
		every(a, b, n)
		return fmt.Sprintf("%d-%d/%d", a, b, n), set, false
	default:
		v := pick()
		set[v] = true
		return say(v), set, false
	}
}

// calendar tells of each minute of the wall what it is, from base on.
type calendar struct {
	base           int64
	month, mday, w []int8 // by day
}

// margin is how many days the calendar begins before base and ends after.
const margin = 4

func calendarOf(w *walk) calendar {
	c := calendar{base: w.base}
	for day := range len(w.wall)/(24*60) + 2*margin {
		t := time.Unix(w.base*60, 0).UTC().AddDate(0, 0, day-margin)
		c.month, c.mday, c.w = append(c.month, int8(t.Month())), append(c.mday, int8(t.Day())), append(c.w, int8(t.Weekday()))
	}
	return c
}

// days says of each day whether d may fire on it.
func (c calendar) days(d drawn) []bool {
	ok := make([]bool, len(c.month))
	for i := range ok {
		dom, dow := d.set[2][c.mday[i]], d.set[4][c.w[i]]
		ok[i] = d.set[3][c.month[i]] && (dom && dow || d.eitherIsDay && (dom || dow))
	}
	return ok
}

// expect walks minute by minute and says at which indices d fires.
func (w *walk) expect(c calendar, d drawn) []int {
	days := c.days(d)
	matches := func(at int32) bool {
		m := int(at) + margin*24*60
		return days[m/(24*60)] && d.set[1][m/60%24] && d.set[0][m%60]
	}
	seen := func(at int32, from int) bool {
		return slices.Contains(w.wall[max(0, from-3000):min(len(w.wall), from+3000)], at)
	}
	var fires []int
	for i, at := range w.wall {
		fire := matches(at)
		if !d.realHours {
			if first, ok := w.first[at]; ok && first != i {
				fire = false
			}
			if i > 0 {
				for gone := w.wall[i-1] + 1; gone < at; gone++ {
					fire = fire || matches(gone) && !seen(gone, i)
				}
			}
		}
		if fire {
			fires = append(fires, i)
		}
	}
	return fires
}

// full says whether the walk is over ten years and many specs, as `make decade` and `make full` have it.
func full() bool { return os.Getenv("SYNCNODE_DECADE") != "" }

func TestEveryMinuteOfThirtyZonesGivesTheSameOccurrences(t *testing.T) {
	specs := thorough.Of(12, 4)
	if full() {
		specs = 40
	}
	if len(zones) != 30 {
		t.Fatalf("%d zones, want 30", len(zones))
	}
	for i, z := range zones {
		t.Run(strings.ReplaceAll(z.name, "/", "_"), func(t *testing.T) {
			t.Parallel()
			from, to := z.shortest, z.shortest+1
			if full() {
				from, to = z.decade, z.decade+10
			}
			w := walkOf(t, z.name, from, to)
			c := calendarOf(w)
			fired, changes := 0, 0
			for k := 1; k < len(w.wall); k++ {
				if w.wall[k] != w.wall[k-1]+1 {
					changes++
				}
			}
			for n := range specs {
				seed := uint64(i*1000 + n)
				d := draw(rand.New(rand.NewPCG(20261129, seed)))
				want := w.expect(c, d)
				fired += len(want)
				compare(t, w, d, want)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Logf("%d to %d: %d changes of the clock, %d minutes shown twice, %d occurrences of %d specs", from, to, changes, w.twice, fired, specs)
			if fired == 0 {
				t.Error("no spec fired")
			}
		})
	}
}

// compare checks that Next and Prev walk exactly the wanted indices, except within two days of the ends of the
// walk, where the walk does not know what was shown before or will be.
func compare(t *testing.T, w *walk, d drawn, want []int) {
	t.Helper()
	const edge = 2 * 24 * 60
	want = slices.DeleteFunc(want, func(i int) bool { return i <= edge || i >= len(w.wall)-edge })
	at := func(i int) time.Time { return time.Unix((w.base+int64(i))*60, 0).UTC() }
	s, err := schedule.New(d.text, w.zone.String())
	if err != nil {
		if len(want) > 0 || !strings.Contains(err.Error(), "never fires") {
			t.Errorf("%q fires %d times and is refused: %v", d.text, len(want), err)
		}
		return
	}
	start, end := at(edge), at(len(w.wall)-edge)
	for k, last := 0, start; ; k++ {
		got, ok := s.Next(last)
		if !ok || !got.Before(end) {
			if k != len(want) {
				t.Errorf("%q in %s: after %s comes %s, want %s", d.text, w.zone, last.In(w.zone), got.In(w.zone), at(want[k]).In(w.zone))
			}
			break
		}
		if k == len(want) || !got.Equal(at(want[k])) {
			t.Errorf("%q in %s: after %s comes %s (%d of %d)", d.text, w.zone, last.In(w.zone), got.In(w.zone), k, len(want))
			return
		}
		last = got
	}
	for k, last := len(want)-1, end; ; k-- {
		got, ok := s.Prev(last)
		if !ok || !got.After(start) {
			if k >= 0 {
				t.Errorf("%q in %s: before %s comes %s, want %s", d.text, w.zone, last.In(w.zone), got.In(w.zone), at(want[k]).In(w.zone))
			}
			break
		}
		if k < 0 || !got.Equal(at(want[k])) {
			t.Errorf("%q in %s: before %s comes %s (%d of %d)", d.text, w.zone, last.In(w.zone), got.In(w.zone), k, len(want))
			return
		}
		last = got
	}
}
