package book_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

// named is an outcome that a ledger can hold.
func named(run string, state coord.State) coord.Outcome {
	o := attempt(run, state)
	o.Attempt.ID = strings.Repeat("0", 32-len(run)) + strings.Map(func(r rune) rune {
		if r == 'r' {
			return 'a'
		}
		return r
	}, run)
	return o
}

func noFacts(string) (index.Facts, error) { return index.Facts{}, errors.New("no checkpoint here") }

func remember(t testing.TB, dir string, facts func(string) (index.Facts, error)) book.Memory {
	t.Helper()
	m, err := book.Remember(ctx, dir, self, facts)
	must(t, err)
	return m
}

func TestADeviceRemembersTheLastWordOfEveryAttemptAndEveryGrant(t *testing.T) {
	dir := t.TempDir()
	if m := remember(t, dir, noFacts); m.Device != self || len(m.Deeds)+len(m.Epochs) != 0 {
		t.Errorf("without a journal: %+v", m)
	}
	b := open(t, dir)
	must(t, b.Pending(ctx, named("r1", coord.Open)))
	must(t, b.Outcome(ctx, named("r1", coord.Committed)))
	must(t, b.Pending(ctx, named("r2", coord.Open)))
	must(t, b.Pending(ctx, named("r3", coord.Open)))
	must(t, b.Outcome(ctx, named("r3", coord.Failed)))
	must(t, b.Granted(ctx, agent, 9))     // and nothing ran under it
	must(t, b.Granted(ctx, "another", 4)) // an agent without a record
	m := remember(t, dir, noFacts)
	var got []coord.State
	for _, d := range m.Deeds {
		got = append(got, d.Attempt.State)
		if d.Author != self || d.Attempt.Device != self || d.Occurrence == "" || d.Input == "" {
			t.Errorf("remembered %+v", d)
		}
	}
	if want := []coord.State{coord.Committed, coord.Open, coord.Failed}; !slices.Equal(got, want) {
		t.Errorf("remembered %v, want %v", got, want)
	}
	if m.Epochs[agent].Epoch != 9 || m.Epochs["another"].Epoch != 4 || m.Epochs[agent].Device != self {
		t.Errorf("epochs %+v", m.Epochs)
	}
	must(t, os.WriteFile(filepath.Join(dir, self, "grants", "another"), []byte("4"), 0o600))
	if _, err := book.Remember(ctx, dir, self, noFacts); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("a grant that was cut off: %v", err)
	}
}

func TestAJournalThatBeginsAtACheckpointRemembersWhatThatHolds(t *testing.T) {
	dir := t.TempDir()
	b := openSmall(t, dir)
	for _, run := range []string{"r1", "r2", "r3"} {
		must(t, b.Pending(ctx, named(run, coord.Open)))
		must(t, b.Outcome(ctx, named(run, coord.Committed)))
	}
	var intents []oplog.Op
	for e, err := range b.Journal().Kept("", journal.Own) {
		must(t, err)
		intents = append(intents, e.Op)
	}
	cut(t, b)
	must(t, b.Pending(ctx, named("r4", coord.Open)))
	if _, err := book.Remember(ctx, dir, self, noFacts); err == nil {
		t.Error("half of a memory was given for the whole")
	}
	m := remember(t, dir, func(string) (index.Facts, error) { return index.Facts{Intents: slices.Values(intents)}, nil })
	if len(m.Deeds) != 4 || m.Deeds[0].Attempt.State != coord.Committed || m.Epochs[agent].Epoch != 3 {
		t.Errorf("remembered %+v", m)
	}
}
