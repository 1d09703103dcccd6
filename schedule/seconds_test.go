package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/syncnode/syncnode/schedule"
)

// Before offsets were whole minutes clocks changed by odd seconds, and the date line moved over people who then had
// a day twice. Here the walk is by second.
func TestEverySecondAroundOddChangesGivesTheSameOccurrences(t *testing.T) {
	const span = 5 * 24 * 60 * 60 // on both sides of the change
	for _, c := range []struct{ zone, change string }{
		{"Africa/Monrovia", "1972-01-07T00:44:30Z"},
		{"America/Juneau", "1867-10-19T00:31:13Z"}, // a day twice
		{"Asia/Manila", "1844-12-31T15:56:08Z"},    // a day never
		{"Europe/Amsterdam", "1937-06-30T23:40:28Z"},
		{"Asia/Kolkata", "1906-01-01T00:00:00Z"},
		{"Pacific/Apia", "1892-07-04T12:00:00Z"}, // the Fourth of July twice
	} {
		zone, err := schedule.LoadZone(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		begin := utc(t, c.change).Unix() - span
		first := map[int64]int64{} // by minute of the wall: the first second at which it is shown
		walls := make([]int64, 2*span)
		changes := 0
		for i := range walls {
			at := begin + int64(i)
			_, offset := time.Unix(at, 0).In(zone).Zone()
			walls[i] = at + int64(offset)
			if i > 0 && walls[i] != walls[i-1]+1 {
				changes++
			}
			if walls[i]%60 != 0 {
				continue
			}
			if _, ok := first[walls[i]]; !ok {
				first[walls[i]] = at
			}
		}
		if changes == 0 {
			t.Errorf("%s: the clock does not change at %s", c.zone, c.change)
		}
		for n := range 40 {
			d := draw(rand.New(rand.NewPCG(1867, uint64(n))))
			s, err := schedule.New(d.text, c.zone)
			if err != nil {
				continue // never fires; the walk by minute holds that
			}
			matches := func(w int64) bool {
				l := time.Unix(w, 0).UTC()
				dom, dow := d.set[2][l.Day()], d.set[4][int(l.Weekday())]
				return d.set[0][l.Minute()] && d.set[1][l.Hour()] && d.set[3][int(l.Month())] && (dom && dow || d.eitherIsDay && (dom || dow))
			}
			var want []time.Time
			from, to := begin+span/2, begin+3*span/2
			for at := from + 1; at < to; at++ {
				w, before := walls[at-begin], walls[at-begin-1]
				fire := w%60 == 0 && (d.realHours || first[w] == at) && matches(w)
				for gone := before + 60 - (before%60+60)%60; !d.realHours && gone < w; gone += 60 {
					_, ever := first[gone]
					fire = fire || !ever && matches(gone)
				}
				if fire {
					want = append(want, time.Unix(at, 0).UTC())
				}
			}
			var got, back []time.Time
			for at := range s.After(time.Unix(from, 0)) {
				if at.Unix() >= to {
					break
				}
				got = append(got, at)
			}
			for at, ok := s.Prev(time.Unix(to, 0)); ok && at.Unix() > from; at, ok = s.Prev(at) {
				back = append(back, at)
			}
			slices.Reverse(back)
			if !slices.Equal(got, want) || !slices.Equal(back, want) {
				t.Fatalf("%s: %d forward, %d back, want %d\n got %q\nwant %q", s, len(got), len(back), len(want), local(s, got), local(s, want))
			}
		}
	}
}
