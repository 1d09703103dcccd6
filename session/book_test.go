package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/session"
)

// What a device learned from a checkpoint alone vetoes its runs too: the book over the same journal knows it.
func TestARunThatOnlyACheckpointKnowsIsKnownToTheBook(t *testing.T) {
	r := collecting()
	a, _ := collected(t, r)
	dir := t.TempDir()
	store := &checkpoint.Store{Dir: filepath.Join(dir, "c", "checkpoints")}
	facts := func(f session.Facts) index.Facts {
		return index.Facts{Checkpoint: f.Checkpoint, Heads: f.Heads, Intents: f.Intents}
	}
	open := func() (*book.Book, *session.Session) {
		b, err := book.Open(t.Context(), book.Config{Dir: dir, Device: "c", Now: a.wall.Now, SegmentBytes: 1500,
			Facts: func(name string) (index.Facts, error) {
				f, err := session.ReadFacts(store, name)
				return facts(f), err
			}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := session.Open(t.Context(), session.Config{
			Device: "c", Journal: b.Journal(), Now: a.wall.Now, Checkpoints: store,
			BeforeCut: func(tx *journal.Tx, f session.Facts) error { return b.Keep(tx, facts(f)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return b, s
	}
	knows := func(b *book.Book) {
		t.Helper()
		s, err := b.Standing(t.Context(), "x", "r1")
		if err != nil || len(s.Records) != 1 || s.Records[0].State != coord.Committed || s.Floor != 3 {
			t.Errorf("standing %+v, %v", s, err)
		}
	}
	b, s := open()
	if rep, err := s.Pump(t.Context(), r); err != nil || rep.Adopted == nil {
		t.Fatalf("%+v, %v", rep, err)
	}
	knows(b)
	for range 3 {
		a.some(20)
		a.pump(r)
		if _, err := s.Pump(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		knows(b)
	}
	b, _ = open()
	knows(b)
	for _, name := range []string{"index.bolt", "index.bolt.cut"} {
		if err := os.Remove(filepath.Join(dir, "c", name)); err != nil {
			t.Fatal(err)
		}
		b, _ = open()
		knows(b)
	}
	if err := os.Remove(filepath.Join(dir, "c", "index.bolt")); err != nil {
		t.Fatal(err)
	}
	b, _ = open() // both are lost
	knows(b)
}
