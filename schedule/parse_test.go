package schedule_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/schedule"
)

func TestSpecsAreReadAndPrintedInOneForm(t *testing.T) {
	for spec, want := range map[string]string{
		"* * * * *":                       "* * * * *",
		"  0\t2   *  *  *  ":              "0 2 * * *",
		"*/1 */1 ? */1 ?":                 "* * * * *",
		"05 09 01 01 01":                  "5 9 1 1 1",
		"0,1,2,3,5 0 * * *":               "0-3,5 0 * * *",
		"5,3,3 0 * * *":                   "3,5 0 * * *",
		"0-59/15 0-23/2 1-31/10 1-12/6 *": "0,15,30,45 0,2,4,6,8,10,12,14,16,18,20,22 1,11,21,31 1,7 *",
		"*/15,7 0 * */4,2 *":              "0,7,15,30,45 0 * 1,2,5,9 *",
		"0 0 * jan-MAR,Dec Mon-fri":       "0 0 * 1-3,12 1-5",
		"0 0 * * 7":                       "0 0 * * 0",
		"0 0 * * 5-7":                     "0 0 * * 0,5,6",
		"0 0 * * FRI-SUN":                 "0 0 * * 0,5,6",
		"0 0 * * sun-TUE":                 "0 0 * * 0-2",
		"0 0 * * 0-7":                     "0 0 * * 0-6",
		"0 0 29 2 *":                      "0 0 29 2 *",
		"0 0 31 2,12 *":                   "0 0 31 2,12 *",
		"0 0 31 2 1":                      "0 0 31 2 1",
		"0 0 */30 2 *":                    "0 0 */30 2 *",
		"@hourly":                         "0 * * * *",
		"@Daily":                          "0 0 * * *",
		"@midnight":                       "0 0 * * *",
		"@weekly":                         "0 0 * * 0",
		"@monthly":                        "0 0 1 * *",
		"@yearly":                         "0 0 1 1 *",
		" @annually ":                     "0 0 1 1 *",
		"@every 90s":                      "@every 1m30s",
		"@EVERY  24h":                     "@every 24h0m0s",
	} {
		s, err := schedule.Parse(spec)
		if err != nil || s.String() != want {
			t.Errorf("Parse(%q) = %q, %v; want %q", spec, s, err, want)
			continue
		}
		if again, err := schedule.Parse(s.String()); err != nil || again != s {
			t.Errorf("Parse(%q) of what %q was printed as: %v, %v", s, spec, again, err)
		}
	}
}

// A star says more than its values: over a change of the clock, and beside a weekday.
func TestAStarIsNotTheListOfItsValues(t *testing.T) {
	for _, pair := range [][2]string{{"0 * * * *", "0 0-23 * * *"}, {"0 0 * * 1", "0 0 1-31 * 1"}, {"0 0 1 * *", "0 0 1 * 0-6"}, {"0 */6 * * *", "0 0,6,12,18 * * *"}} {
		a, err := schedule.Parse(pair[0])
		b, err2 := schedule.Parse(pair[1])
		if err != nil || err2 != nil || a == b || a.String() == b.String() {
			t.Errorf("%q and %q: %v, %v, %v, %v", pair[0], pair[1], a, b, err, err2)
		}
	}
}

func TestABadSpecIsToldWhereWhatAndWhatInstead(t *testing.T) {
	for _, c := range []struct {
		spec   string
		offset int
		column string
		says   string
	}{
		{"", 0, "", "is empty; write five columns"},
		{" \t ", 0, "", "is empty"},
		{"*", 1, "", "1 of 5 columns: the hour is missing"},
		{"0 2 * *", 7, "", "4 of 5 columns: the day of week is missing"},
		{"0 30 2 * * *", 11, "", "none for seconds or years"},
		{"*/10 * * * * *", 13, "", "@every 10s for less than a minute"},
		{"0 0 12 * * ? 2026", 11, "", "has 7 columns"},
		{"0 2 * * * root", 10, "", "the user stands in /etc/crontab only; leave it out"},
		{"60 * * * *", 0, "minute", "60 is above 59; write 0 to 59"},
		{"0,60 * * * *", 2, "minute", "60 is above 59"},
		{"0 24 * * *", 2, "hour", "24 is above 23; write 0 for midnight"},
		{"0 0 0 * *", 4, "day of month", "0 is below 1; write 1 to 31"},
		{"0 0 32 * *", 4, "day of month", "32 is above 31"},
		{"0 0 * 0 *", 6, "month", "0 is below 1"},
		{"0 0 * 13 *", 6, "month", "13 is above 12"},
		{"0 0 * * 8", 8, "day of week", "8 is above 7; write 0 to 7"},
		{"99999999999999999999 * * * *", 0, "minute", "is above 59"},
		{"0 0 * * MONDAY", 8, "day of week", `"MONDAY" is not known; write MON`},
		{"0 0 * JANUARY *", 6, "month", "write JAN"},
		{"0 0 * * MOO", 8, "day of week", "write 0 to 7, or SUN to SAT"},
		{"0 0 * FOO *", 6, "month", "write 1 to 12, or JAN to DEC"},
		{"JAN 0 * * *", 0, "minute", `"JAN" is no number; write 0 to 59`},
		{"-5 * * * *", 0, "minute", `"-5" lacks a value`},
		{"5- * * * *", 2, "minute", `"5-" lacks a value`},
		{"+5 * * * *", 0, "minute", `"+5" is no number`},
		{"1,,2 * * * *", 2, "minute", "a place in the list is empty"},
		{"1, * * * *", 2, "minute", "a place in the list is empty"},
		{"1-2-3 * * * *", 2, "minute", `"2-3" is no number`},
		{"5/15 * * * *", 0, "minute", "5/15 has no end; write 5-59/15"},
		{"0 22-2 * * *", 2, "hour", "22-2 runs backwards; write 22-23,0-2"},
		{"0 0 * * 6-1", 8, "day of week", "write 6-7,1"},
		{"0 0 * * FRI-MON", 8, "day of week", "write 5-7,1"},
		{"0 0 * * 5-0", 8, "day of week", "5-0 runs backwards; write 5-7"},
		{"*/0 * * * *", 2, "minute", `"0" is no step`},
		{"*/ * * * *", 2, "minute", `"" is no step`},
		{"*/-5 * * * *", 2, "minute", `"-5" is no step`},
		{"*/60 * * * *", 2, "minute", "reaches nothing but 0; write 0"},
		{"0 */24 * * *", 4, "hour", "write 0"},
		{"0-5/9 * * * *", 4, "minute", "a step of 9 from 0 to 5 reaches nothing but 0"},
		{"0 0 * * */7", 10, "day of week", "write 0"},
		{"0 *,5 * * *", 2, "hour", "* in a list leaves nothing to the others"},
		{"0 5,*/6 * * *", 4, "hour", "a star here says more than the values it stands for; write 0,6,12,18 for */6"},
		{"? * * * *", 0, "minute", "? cannot stand here; write *"},
		{"0 0 ?/2 * *", 4, "day of month", "write *"},
		{"0 0 L * *", 4, "day of month", "L (the last day) is not offered; run on 1"},
		{"0 0 L-3 * *", 4, "day of month", "L (the last day)"},
		{"0 0 * * 5L", 8, "day of week", "L (the last day)"},
		{"0 0 15W * *", 4, "day of month", "W (the nearest weekday) is not offered; write the weekdays"},
		{"0 0 LW * *", 4, "day of month", "is not offered"},
		{"0 0 * * 5#2", 8, "day of week", "# (the nth weekday of a month) is not offered"},
		{"0 0 * * MON#1", 8, "day of week", "write the days"},
		{"H * * * *", 0, "minute", "H (a value drawn from a name) is not offered"},
		{"H(0-29) * * * *", 0, "minute", `H (a value drawn`},
		{"@reboot", 0, "", "no instant that every host names alike; use exec --occurrence"},
		{"@fortnightly", 0, "", `"@fortnightly" is not known; there are @hourly`},
		{"@", 0, "", "there are @hourly"},
		{"@daily 5", 7, "", `"5" is left over; write @daily alone`},
		{"@every", 6, "", "@every what?"},
		{"@every 1d", 7, "", `"1d" is no duration; write whole seconds`},
		{"@every 10", 7, "", `"10" is no duration`},
		{"@every 0s", 7, "", "0s cannot be kept"},
		{"@every -1h", 7, "", "-1h cannot be kept"},
		{"@every 1500ms", 7, "", "1500ms cannot be kept"},
		{"@every 1h 30m", 10, "", `"30m" is left over`},
		{"TZ=", 0, "", "does not belong into a schedule; give the zone beside"},
		{"TZ=UTC", 0, "", "give the zone beside"},
		{" CRON_TZ=Europe/Berlin 0 2 * * *", 1, "", "--tz"},
		{"0 0 30 2 *", 4, "day of month", "never fires: day 30 comes in no month of 2"},
		{"0 0 31 2,APR,6,9,11 *", 4, "day of month", "never fires: day 31 comes in no month of 2,APR,6,9,11"},
		{"0 0 30-31 2 ?", 4, "day of month", "never fires"},
		{"0 0 * * ÷", 8, "", "write it in plain ASCII"},
		{"0 0 *\x00* *", 5, "", "plain ASCII"},
		{"0 0 * *\n*", 7, "", "plain ASCII"},
		{strings.Repeat("1,", 300) + "1 * * * *", 512, "", "longer than 512 bytes"},
	} {
		s, err := schedule.Parse(c.spec)
		typed, ok := errors.AsType[*schedule.ParseError](err)
		switch {
		case !ok || !errors.Is(err, schedule.ErrInvalid):
			t.Errorf("Parse(%q) = %q, %v; want a ParseError that says %q", c.spec, s, err, c.says)
		case typed.Offset != c.offset || typed.Column != c.column || !strings.Contains(err.Error(), c.says):
			t.Errorf("Parse(%q): at %d, %q: %v\nwant at %d, %q: %q", c.spec, typed.Offset, typed.Column, err, c.offset, c.column, c.says)
		case len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\x00\n\x1b"):
			t.Errorf("Parse(%q): an unfit message: %q", c.spec, err)
		}
	}
}

func TestWhatIsOftenReadInAnotherWayIsNoted(t *testing.T) {
	for spec, want := range map[string]string{
		"0 0 13 * 5":  "either is",
		"0 0 */2 * 1": "only days that are both",
		"0 0 1 * */2": "only days that are both",
		"0 0 * * 1":   "",
		"0 0 1 * *":   "",
		"0 0 */2 * *": "",
		"0 0 * * */2": "",
		"@every 1h":   "",
	} {
		s, err := schedule.Parse(spec)
		want = strings.Replace(want, "either is", "a day of the month or a weekday is enough", 1)
		if got := s.Note(); err != nil || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: note %q, %v; want %q", spec, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"*/15 0-5,7 1 JAN MON-FRI", "@every 90s", "@daily", "0 0 29 2 *", "0 0 31 2 *", "5/15 * * * *", "0 0 * * 5#2", "TZ=", "0 0 */10 2 1", "? ? ? ? ?", "0 22-2 * * 6-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schedule.Parse(text)
		if err != nil {
			typed, ok := errors.AsType[*schedule.ParseError](err)
			if !ok || typed.Offset < 0 || typed.Offset > len(text) || typed.Reason == "" || s != (schedule.Spec{}) {
				t.Fatalf("Parse(%q) = %v, %#v", text, s, err)
			}
			return
		}
		again, err := schedule.Parse(s.String())
		if err != nil || again != s || again.String() != s.String() {
			t.Fatalf("%q was printed as %q, which is read as %q, %v", text, s, again, err)
		}
		if at, ok := schedule.In(s, time.UTC).Next(time.Unix(0, 0)); !ok && !strings.HasPrefix(s.String(), "@every") {
			t.Fatalf("%q never fires: %s", text, at)
		}
	})
}

// FuzzNextAndPrev holds them against each other: what comes after an occurrence has it before itself, nothing lies
// between, and what Nearest names is an occurrence.
func FuzzNextAndPrev(f *testing.F) {
	all := []string{"Africa/Monrovia", "America/Juneau", "Asia/Manila", "Europe/Amsterdam", "Africa/El_Aaiun", "Antarctica/Casey"} // odd seconds, days twice, changes close together
	for _, z := range zones {
		all = append(all, z.name)
	}
	f.Add("30 2 * * *", uint8(7), int64(1772956800), int64(0))
	f.Add("*/7 */3 * * 1", uint8(31), int64(1775300000), int64(1))
	f.Add("0 12 * * *", uint8(32), int64(1325200000), int64(999_999_999))
	f.Add("15 0 * * *", uint8(0), int64(63593000), int64(0))
	f.Add("0 0 29 2 *", uint8(1), int64(-3225223728), int64(5))
	f.Add("* 0-23 */2 1-6 1-5", uint8(2), int64(-3944621033), int64(5))
	f.Add("@every 7s", uint8(6), int64(-5), int64(5))
	f.Fuzz(func(t *testing.T, text string, zone uint8, sec, nsec int64) {
		s, err := schedule.New(text, all[int(zone)%len(all)])
		if err != nil || sec > 1<<36 || sec < -1<<36 {
			return
		}
		at := time.Unix(sec, nsec)
		due, ok := s.Next(at)
		last, before := s.Prev(at.Add(1))
		if !ok || !before {
			return
		}
		if !due.After(at) || last.After(at) {
			t.Fatalf("%s at %s: %s and %s", s, at, last, due)
		}
		if next, ok := s.Next(last); !ok || !next.Equal(due) {
			t.Fatalf("%s: after %s comes %s, and after %s %s", s, last, next, at, due)
		}
		if prev, ok := s.Prev(due); !ok || !prev.Equal(last) {
			t.Fatalf("%s: before %s comes %s, and before %s %s", s, due, prev, at, last)
		}
		if near, err := s.Nearest(at, 0); err == nil && !near.Equal(last) && !near.Equal(due) {
			t.Fatalf("%s: nearest to %s is %s, of %s and %s", s, at, near, last, due)
		}
		if remark := s.Remark(due); strings.ContainsAny(remark, "\n\x00") {
			t.Fatalf("%s: remark %q", s, remark)
		}
	})
}
