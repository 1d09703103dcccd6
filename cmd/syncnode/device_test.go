package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/seal"
)

func note(t *testing.T, j *journal.Journal, word string) {
	t.Helper()
	_, err := j.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: []byte(`{"id":"` + word + `"}`)})
	must(t, err)
}

// What is still running when an id is replaced records its end under the old one; whoever opens or settles the device next takes it over.
func TestWhatEndsUnderAnEarlierIDIsTakenOverOnce(t *testing.T) {
	dir := t.TempDir()
	var notices []string
	open := func() *device {
		t.Helper()
		blank := device{dataDir: dir, dir: filepath.Join(dir, "ns-1"), seal: func() (*seal.Sealer, error) { return nil, nil }}
		d, err := openDevice(t.Context(), blank, "", func(n string) { notices = append(notices, n) })
		must(t, err)
		t.Cleanup(func() { d.book.Close() })
		return d
	}
	first := open()
	note(t, first.book.Journal(), "pushed")
	note(t, first.book.Journal(), "not pushed")
	head, _ := first.book.Journal().Head()
	must(t, first.book.Journal().Freeze(t.Context(), journal.Frozen{First: 1, Fork: true, Own: head.Pos(), Relay: oplog.Pos{Seq: 5, ID: head.ID}}))

	next := open()
	if next.name == first.name || next.again != 1 || len(notices) != 1 || !strings.Contains(notices[0], first.name) {
		t.Fatalf("device %s after %s, %d ops written again, notices %q", next.name, first.name, next.again, notices)
	}
	if open().again != 0 || len(notices) != 1 {
		t.Errorf("opened once more: it is done and told again: %q", notices)
	}
	old, err := journal.Open(t.Context(), journal.Config{Dir: book.JournalDir(next.dir, first.name), Device: first.name})
	must(t, err)
	t.Cleanup(func() { old.Close() })
	note(t, old, "the end of what ran")
	for i, want := range []int{1, 0} {
		if n, err := next.reissue(t.Context(), false); err != nil || n != want {
			t.Errorf("look %d: %d ops, %v; want %d", i, n, err, want)
		}
	}
	if n, err := next.reissue(t.Context(), true); err != nil || n != 0 {
		t.Errorf("looked through once more: %d ops, %v", n, err)
	}
}

func TestEachWayAnIDCanBeFrozenHasANoticeOfItsOwn(t *testing.T) {
	own, there := oplog.Pos{Seq: 4, ID: "own"}, oplog.Pos{Seq: 6, ID: "there"}
	for want, f := range map[string]journal.Frozen{
		"older than what the relay holds: restored": {First: 5, Own: own, Relay: there},
		"was written to since":                      {First: 3, Fork: true, Earlier: true, Own: own, Relay: there},
		"two copies of this device":                 {First: 3, Fork: true, Own: own, Relay: there},
		"the journal was lost":                      {Relay: there},
		"closed the chain of this id as retired":    {First: 7, Own: own, Relay: there},
	} {
		if got := reasonOf(f); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q in it", f, got, want)
		}
	}
}
