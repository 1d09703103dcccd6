package schedule_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/schedule"
)

func must(t testing.TB, spec, zone string) *schedule.Schedule {
	t.Helper()
	s, err := schedule.New(spec, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func utc(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// local writes instants as the zone's clock shows them.
func local(s *schedule.Schedule, all []time.Time) []string {
	var out []string
	for _, at := range all {
		out = append(out, at.In(s.Zone()).Format("2006-01-02 15:04 MST"))
	}
	return out
}

func take(s *schedule.Schedule, after time.Time, n int) []time.Time {
	var all []time.Time
	for at := range s.After(after) {
		if all = append(all, at); len(all) == n {
			break
		}
	}
	return all
}

// The reports and measurements behind this: other cron libraries lose a day, run it twice, hang or panic in them.
var changes = []struct {
	spec, zone, after string
	want              []string
	remark            string // of the first one
}{
	{"30 2 * * *", "America/New_York", "2026-03-08T00:00:00-05:00",
		[]string{"2026-03-08 03:00 EDT", "2026-03-09 02:30 EDT"}, "02:30 does not exist on this day: runs at 03:00"},
	{"0 2 * * *", "America/Los_Angeles", "2025-03-08T12:00:00-08:00",
		[]string{"2025-03-09 03:00 PDT", "2025-03-10 02:00 PDT"}, "02:00 does not exist on this day: runs at 03:00"},
	{"*/20 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00",
		[]string{"2026-03-29 03:00 CEST", "2026-03-30 02:00 CEST"}, "02:00, 02:20 and 02:40 do not exist on this day: run once, at 03:00"},
	{"* 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00",
		[]string{"2026-03-29 03:00 CEST", "2026-03-30 02:00 CEST"}, "02:00, 02:01, 02:02 and 57 more do not exist on this day: run once, at 03:00"},
	{"0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", // two local times, one instant: one occurrence
		[]string{"2026-03-29 03:00 CEST", "2026-03-30 02:00 CEST", "2026-03-30 03:00 CEST"}, "02:00 does not exist on this day: runs at 03:00"},
	{"30 1 * * *", "America/New_York", "2026-11-01T00:00:00-04:00",
		[]string{"2026-11-01 01:30 EDT", "2026-11-02 01:30 EST"}, "01:30 exists twice: the first"},
	{"0 2 * * *", "Europe/Berlin", "2023-10-29T00:00:00+02:00",
		[]string{"2023-10-29 02:00 CEST", "2023-10-30 02:00 CET"}, "02:00 exists twice: the first"},
	{"0 0-23 * * *", "Europe/Berlin", "2023-10-29T01:30:00+02:00", // named hours, though all of them
		[]string{"2023-10-29 02:00 CEST", "2023-10-29 03:00 CET"}, "02:00 exists twice: the first"},
	{"0 * * * *", "Europe/Berlin", "2023-10-29T01:30:00+02:00",
		[]string{"2023-10-29 02:00 CEST", "2023-10-29 02:00 CET", "2023-10-29 03:00 CET"}, "02:00 exists twice, and runs twice: the first"},
	{"0 */2 * * *", "Europe/Berlin", "2023-10-29T02:00:00+02:00",
		[]string{"2023-10-29 02:00 CET", "2023-10-29 04:00 CET"}, "02:00 exists twice, and runs twice: the second"},
	{"30 * * * *", "Europe/Berlin", "2026-03-29T01:30:00+01:00",
		[]string{"2026-03-29 03:30 CEST", "2026-03-29 04:30 CEST"}, "02:30 does not exist on this day: nothing runs for it"},
	{"0 */2 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00",
		[]string{"2026-03-29 04:00 CEST", "2026-03-29 06:00 CEST"}, "02:00 does not exist on this day: nothing runs for it"},
	{"@daily", "America/Sao_Paulo", "2017-10-14T12:00:00-03:00", // the gap is at midnight
		[]string{"2017-10-15 01:00 -02", "2017-10-16 00:00 -02"}, "00:00 does not exist on this day: runs at 01:00"},
	{"30 0 * * *", "Africa/Cairo", "2010-09-08T12:00:00+02:00",
		[]string{"2010-09-09 00:30 EET", "2010-09-10 01:00 EEST", "2010-09-11 00:30 EEST"}, ""},
	{"0 0 * * *", "America/Havana", "2012-03-31T12:00:00-05:00",
		[]string{"2012-04-01 01:00 CDT", "2012-04-02 00:00 CDT"}, "00:00 does not exist on this day: runs at 01:00"},
	{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", // half an hour
		[]string{"2026-10-04 02:30 +11", "2026-10-05 02:15 +11"}, "02:15 does not exist on this day: runs at 02:30"},
	{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00",
		[]string{"2026-04-05 01:45 +11", "2026-04-06 01:45 +1030"}, "01:45 exists twice: the first"},
	{"45 * * * *", "Australia/Lord_Howe", "2026-04-05T01:00:00+11:00",
		[]string{"2026-04-05 01:45 +11", "2026-04-05 01:45 +1030"}, "01:45 exists twice, and runs twice: the first"},
	{"0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00-10:00", // there was no 30 December
		[]string{"2011-12-31 00:00 +14", "2011-12-31 12:00 +14"}, "2011-12-30 12:00 does not exist on this day: runs at 00:00"},
	{"0 0 30 12 *", "Pacific/Apia", "2011-01-01T00:00:00-11:00",
		[]string{"2011-12-31 00:00 +14", "2012-12-30 00:00 +14"}, "2011-12-30 00:00 does not exist on this day: runs at 00:00"},
	{"0 */6 30 12 *", "Pacific/Apia", "2011-01-01T00:00:00-11:00",
		[]string{"2012-12-30 00:00 +14"}, "2011-12-30 00:00, 2011-12-30 06:00, 2011-12-30 12:00 and 1 more do not exist on this day: nothing runs for them"},
	{"0 12 * * *", "Pacific/Kwajalein", "1993-08-20T12:00:00-12:00",
		[]string{"1993-08-22 00:00 +12", "1993-08-22 12:00 +12"}, "1993-08-21 12:00 does not exist on this day: runs at 00:00"},
	{"0 2 * * 6", "America/Chicago", "2026-10-31T02:00:00-05:00",
		[]string{"2026-11-07 02:00 CST"}, ""},
	{"0 0 13 * 5", "UTC", "2026-02-01T00:00:00Z", // a Friday or a 13th
		[]string{"2026-02-06 00:00 UTC", "2026-02-13 00:00 UTC", "2026-02-20 00:00 UTC", "2026-02-27 00:00 UTC", "2026-03-06 00:00 UTC", "2026-03-13 00:00 UTC"}, ""},
	{"0 0 */10 * 1", "UTC", "2026-01-01T00:00:00Z", // a Monday that is a 1st, 11th, 21st or 31st
		[]string{"2026-05-11 00:00 UTC", "2026-06-01 00:00 UTC"}, ""},
	{"0 0 1-7 * */7", "UTC", "2026-01-01T00:00:00Z", nil, ""}, // a step too wide: refused
	{"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29 00:00 UTC", "2108-02-29 00:00 UTC"}, ""},
	{"0 0 * * 5-7", "UTC", "2026-11-29T12:00:00Z",
		[]string{"2026-12-04 00:00 UTC", "2026-12-05 00:00 UTC", "2026-12-06 00:00 UTC", "2026-12-11 00:00 UTC"}, ""},
	{"0 0 * * 7", "UTC", "2026-11-29T12:00:00Z", []string{"2026-12-06 00:00 UTC"}, ""},
	{"@every 90m", "America/New_York", "2026-03-08T00:00:00Z", []string{"2026-03-07 20:30 EST", "2026-03-07 22:00 EST"}, ""},
}

func TestChangesOfTheClockAreKeptAsTheRuleSays(t *testing.T) {
	for _, c := range changes {
		s, err := schedule.New(c.spec, c.zone)
		if c.want == nil {
			if !errors.Is(err, schedule.ErrInvalid) {
				t.Errorf("%q: %v, want it to be refused", c.spec, err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		all := take(s, utc(t, c.after), len(c.want))
		if got := local(s, all); !slices.Equal(got, c.want) {
			t.Errorf("%s after %s\n got %q\nwant %q", s, c.after, got, c.want)
			continue
		}
		if got := s.Remark(all[0]); got != c.remark {
			t.Errorf("%s: remark on %s\n got %q\nwant %q", s, all[0], got, c.remark)
		}
		for _, plain := range all[len(all)-1:] {
			if got := s.Remark(plain); got != "" && len(all) > 2 {
				t.Errorf("%s: remark on %s: %q, want none", s, plain, got)
			}
		}
	}
}

func TestADayOfTheRepeatHourHasTwentyFiveHours(t *testing.T) {
	for zone, day := range map[string]string{"America/New_York": "2026-11-01T00:00:00-04:00", "Europe/Berlin": "2026-10-25T00:00:00+02:00"} {
		s := must(t, "0 * * * *", zone)
		n := 0
		for at := range s.After(utc(t, day).Add(-1)) {
			if at.In(s.Zone()).Day() != utc(t, day).Day() {
				break
			}
			n++
		}
		if n != 25 {
			t.Errorf("%s: %d hours, want 25", zone, n)
		}
	}
}

// Offsets of whole minutes are young: a clock that was put forward by odd seconds has a first instant too.
func TestGapsOfOddSecondsEndAtTheirOwnInstant(t *testing.T) {
	s := must(t, "15 0 * * *", "Africa/Monrovia") // 1972-01-07: -00:44:30 to UTC
	all := take(s, utc(t, "1972-01-06T12:00:00Z"), 2)
	if got := local(s, all); !slices.Equal(got, []string{"1972-01-07 00:44 GMT", "1972-01-08 00:15 GMT"}) || all[0].Second() != 30 {
		t.Errorf("got %q, %s", got, all[0])
	}
	if got := s.Remark(all[0]); got != "00:15 does not exist on this day: runs at 00:44:30" {
		t.Errorf("remark %q", got)
	}
}

// A timer that fires 160 ms early and one on time mean one occurrence, on any host.
func TestATimerThatIsEarlyAndOneOnTimeNameOneOccurrence(t *testing.T) {
	for _, c := range []struct{ spec, zone, at, want string }{
		{"*/5 * * * *", "UTC", "2017-07-11T14:39:59.844Z", "at:2017-07-11T14:40:00Z"},
		{"*/5 * * * *", "UTC", "2017-07-11T14:40:00.001Z", "at:2017-07-11T14:40:00Z"},
		{"*/5 * * * *", "Europe/Berlin", "2017-07-11T16:39:30+02:00", "at:2017-07-11T14:40:00Z"},
		{"*/5 * * * *", "Europe/Berlin", "2017-07-11T16:40:30+02:00", "at:2017-07-11T14:40:00Z"},
		{"@every 5m", "Europe/Berlin", "2017-07-11T14:39:59.844Z", "at:2017-07-11T14:40:00Z"},
		{"30 2 * * *", "America/New_York", "2026-03-08T06:59:59.9Z", "at:2026-03-08T07:00:00Z"}, // in the gap
		{"* * * * *", "UTC", "2026-01-01T00:00:30Z", "at:2026-01-01T00:01:00Z"},                 // half-way
		{"@every 10s", "UTC", "2026-01-01T00:00:04.999Z", "at:2026-01-01T00:00:00Z"},
		{"@every 10s", "UTC", "2026-01-01T00:00:05Z", "at:2026-01-01T00:00:10Z"},
	} {
		at, err := must(t, c.spec, c.zone).Nearest(utc(t, c.at), 0)
		if got := ident.AtOccurrence(at); err != nil || got != c.want {
			t.Errorf("%q at %s: %s, %v, want %s", c.spec, c.at, got, err, c.want)
		}
	}
}

func TestATriggerFarFromEachOccurrenceNamesNoneUnlessItMayBeLate(t *testing.T) {
	for _, c := range []struct {
		at   string
		late time.Duration
		want string // empty: refused
	}{
		{"2026-01-01T10:00:30Z", 0, "2026-01-01T10:00:00Z"},
		{"2026-01-01T10:00:30.000000001Z", 0, ""},
		{"2026-01-01T10:59:29.999Z", 0, ""},
		{"2026-01-01T10:59:30Z", 0, "2026-01-01T11:00:00Z"},
		{"2026-01-01T10:17:00Z", 17 * time.Minute, "2026-01-01T10:00:00Z"},
		{"2026-01-01T10:17:00.5Z", 17 * time.Minute, ""},
		{"2026-01-01T10:59:29Z", 24 * time.Hour, "2026-01-01T10:00:00Z"}, // never an early one that is far
		{"2026-01-01T10:59:31Z", 24 * time.Hour, "2026-01-01T11:00:00Z"},
	} {
		s := must(t, "0 * * * *", "UTC")
		at, err := s.Nearest(utc(t, c.at), c.late)
		if c.want != "" {
			if err != nil || !at.Equal(utc(t, c.want)) {
				t.Errorf("%s, late %s: %s, %v, want %s", c.at, c.late, at, err, c.want)
			}
			continue
		}
		far, ok := errors.AsType[*schedule.FarError](err)
		if !ok || !errors.Is(err, schedule.ErrFar) || !far.Last.Equal(utc(t, "2026-01-01T10:00:00Z")) || !far.Due.Equal(utc(t, "2026-01-01T11:00:00Z")) {
			t.Errorf("%s, late %s: %s, %v, want a FarError between 10:00 and 11:00", c.at, c.late, at, err)
		} else if !strings.Contains(err.Error(), "was due at 2026-01-01T10:00:00Z") || !strings.Contains(err.Error(), "is due at 2026-01-01T11:00:00Z") {
			t.Errorf("the message does not say what lies around: %v", err)
		}
	}
}

// One rhythm, two spellings: hosts with exec --every and nodes with @every name the same runs.
func TestEveryMeansTheMultiplesOfItsSpanSince1970(t *testing.T) {
	r := rand.New(rand.NewPCG(1970, 1))
	for range 2000 {
		d := time.Duration(1+r.IntN(59)) * time.Second
		if r.IntN(2) == 0 {
			d *= time.Duration(1 + r.IntN(5000))
		}
		at := time.Unix(r.Int64N(8e9)-4e9, r.Int64N(1e9))
		s := must(t, "@every "+d.String(), "Europe/Berlin")
		multiple := schedule.Multiple(at, d)
		if multiple.Unix()%int64(d/time.Second) != 0 || multiple.Sub(at).Abs() > d/2 {
			t.Fatalf("the multiple of %s nearest to %s is not %s", d, at, multiple)
		}
		got, err := s.Nearest(at, 0)
		if far := multiple.Sub(at).Abs() > schedule.Tolerance; far != (err != nil) || !far && !got.Equal(multiple) {
			t.Fatalf("@every %s at %s: %s, %v; the multiple is %s", d, at, got, err, multiple)
		}
		next, ok := s.Next(at)
		last, before := s.Prev(next)
		if !ok || !before || next.Sub(last) != d || next.Unix()%int64(d/time.Second) != 0 || last.After(at) || !next.After(at) {
			t.Fatalf("@every %s at %s: %s, %s", d, at, last, next)
		}
	}
}

func TestInstantsEndWhereTheirNamesDo(t *testing.T) {
	last, first := utc(t, "9999-12-31T23:59:59Z"), utc(t, "0001-01-01T00:00:00Z")
	far := []time.Time{time.Unix(1<<40, 0), time.Unix(-1<<40, 0), time.Unix(1<<60, 0), time.Unix(-1<<60, 0), {}, last, first}
	for _, spec := range []string{"* * * * *", "59 23 31 12 *", "0 0 29 2 *", "@every 1s", "@every 1000000h", "0 0 */28 2 1"} {
		for _, zone := range []string{"UTC", "Pacific/Kiritimati", "America/Adak"} {
			s := must(t, spec, zone)
			for _, at := range far {
				if got, ok := s.Next(at); ok && (got.Before(first) || got.After(last) || !got.After(at)) {
					t.Errorf("%s: %s after %s", s, got, at)
				}
				if got, ok := s.Prev(at); ok && (got.Before(first) || got.After(last) || !got.Before(at)) {
					t.Errorf("%s: %s before %s", s, got, at)
				}
			}
			if got, ok := s.Next(last); ok {
				t.Errorf("%s: %s after the last instant", s, got)
			}
			if got, ok := s.Prev(first); ok {
				t.Errorf("%s: %s before the first instant", s, got)
			}
		}
	}
}

func TestZonesThatHostsMeanDifferentlyAreRefused(t *testing.T) {
	for name, want := range map[string]string{
		"":                         "is empty",
		"Local":                    "hosts differ",
		"localtime":                "hosts differ",
		"posixrules":               "hosts differ",
		"right/UTC":                "leave out right/",
		"posix/UTC":                "leave out posix/",
		"+02:00":                   "is an offset",
		"UTC+2":                    "is an offset",
		"GMT-5":                    "is an offset",
		"Europe/Berln":             "is not known",
		"europe/berlin":            "Europe/Berlin is meant?",
		"america/new york":         "America/New_York is meant?",
		"utc":                      "UTC is meant?",
		"america/st_johns":         "America/St_Johns is meant?",
		"../etc/passwd":            "is not known",
		"/etc/localtime":           "is not known",
		"Europe/Berlin\x00":        "is not known",
		strings.Repeat("x/", 4000): "is not known",
	} {
		zone, err := schedule.LoadZone(name)
		if zone != nil || !errors.Is(err, schedule.ErrZone) || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("LoadZone(%.40q) = %v, %v; want %q", name, zone, err, want)
		}
	}
	for _, name := range []string{"UTC", "Europe/Berlin", "Etc/GMT-2", "GMT", "America/Argentina/Buenos_Aires", "EST5EDT"} {
		if zone, err := schedule.LoadZone(name); err != nil || zone.String() != name {
			t.Errorf("LoadZone(%q) = %v, %v", name, zone, err)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, spec, zone string }{
		{"minutely", "* * * * *", "Europe/Berlin"},
		{"daily", "30 2 * * *", "Europe/Berlin"},
		{"29 February", "0 0 29 2 *", "Europe/Berlin"},
		{"a Monday on 1 February", "0 0 */28 2 1", "America/New_York"},
		{"every", "@every 10s", "UTC"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := must(b, c.spec, c.zone)
			start := utc(b, "2096-03-01T00:00:00Z")
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.Next(start); !ok {
					b.Fatal("none")
				}
			}
		})
	}
}
