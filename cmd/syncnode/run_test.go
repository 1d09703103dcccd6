package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
)

func TestRunsAreListedTheNewestFirst(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	want := []runRow{
		{Run: "r1-5", Agent: "z", at: at.Add(time.Hour)}, {Agent: "z", State: stateMissed, Occurrence: "at:1", at: at.Add(time.Minute)},
		{Run: "r1-1", Agent: "a", at: at}, {Run: "r1-2", Agent: "a", at: at}, {Run: "r1-0", Agent: "b", at: at}, {Run: "r1-9", Agent: "a"},
	}
	got := slices.Clone(want)
	rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	newestFirst(got)
	for i := range want {
		if got[i].Run != want[i].Run || !got[i].at.Equal(want[i].at) {
			t.Fatalf("row %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestSinceIsATimeThatHasGoneByOrAnInstant(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "24h": now.Add(-24 * time.Hour), "2026-02-28T01:00:00+01:00": time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC),
		"2026-02-28": time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), "2026-02-28 03:04": time.Date(2026, 2, 28, 3, 4, 0, 0, time.UTC),
	} {
		if got, err := sinceOf(text, now); err != nil || !got.Equal(want) {
			t.Errorf("--since %q is %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"0s", "-1h", "yesterday", "5", "12:00"} {
		if code, _ := said(t, "run", "list", "--since", text); code != exitUsage {
			t.Errorf("--since %q gives %d, want %d", text, code, exitUsage)
		}
	}
}

func TestTwoCommitsAreShownAsADouble(t *testing.T) {
	t.Parallel()
	v := coord.View{Found: true, State: coord.RunCommitted, Entry: coord.Entry{Agent: "a", Run: "r", Attempts: []coord.Attempt{
		{ID: "x", State: coord.Committed}, {ID: "y", State: coord.Failed}, {ID: "z", State: coord.Committed}}}}
	once := v
	once.Entry.Attempts = v.Entry.Attempts[:2]
	for _, c := range []struct {
		view       coord.View
		text, json string
		not        string
	}{
		{v, "state       committed, 2 times\n", `"state":"committed","commits":2,`, "it is done"},
		{once, "state       committed\n", `"state":"committed","attempts"`, "times"},
	} {
		for format, want := range map[string]string{"text": c.text, "json": c.json} {
			var out bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetOut(&out)
			must(t, printRun(cmd, outputFlag{format}, runRowOf(c.view)))
			if !strings.Contains(out.String(), want) || strings.Contains(out.String(), c.not) {
				t.Errorf("shown as\n%s\nwant %q in it, and not %q", &out, want, c.not)
			}
		}
	}
}

func TestARunShowsWhoBeganItAndWhetherThatProcessIsThere(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]coord.Attempt{
		"the process that began it is alive\n":                                                    {},
		"the process that began it is alive, and did not see its end; look for what it started\n": {Abandoned: true},
		"the process that began it is gone; look for what it started\n":                           {Liveness: "gone"},
	} {
		a.ID, a.State = "x", coord.Open
		if a.Liveness == "" {
			a.Liveness = "node"
		}
		v := coord.View{Found: true, Entry: coord.Entry{Agent: "a", Run: "r", Attempts: []coord.Attempt{a}}, Alive: map[string]bool{"node": true}}
		v.State = coord.StateOf(v.Entry.Attempts, func(l string) bool { return v.Alive[l] })
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		must(t, printRun(cmd, outputFlag{"text"}, runRowOf(v)))
		if !strings.Contains(out.String(), want) {
			t.Errorf("%+v is shown as\n%s\nwant %q", a, &out, want)
		}
	}
}
