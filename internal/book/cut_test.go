package book_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

func openSmall(t testing.TB, dir string) *book.Book {
	t.Helper()
	b, err := book.Open(ctx, book.Config{Dir: dir, Device: self, Now: wall, SegmentBytes: 1000})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// cut begins the journal at its end, and drops the rest.
func cut(t testing.TB, b *book.Book) {
	t.Helper()
	j := b.Journal()
	must(t, j.Update(ctx, func(tx *journal.Tx) error {
		head, _ := tx.Head()
		f := index.Facts{Checkpoint: strings.Repeat("1a", 32), Heads: oplog.Heads{self: head}}
		if err := b.Keep(tx, f); err != nil {
			return err
		}
		return tx.Cut(journal.Cut{Checkpoint: f.Checkpoint, Heads: f.Heads})
	}))
	done, err := j.Compact(ctx)
	if err != nil || done.Segments == 0 {
		t.Fatalf("compacted %+v, %v", done, err)
	}
}

// A device whose journal begins at a checkpoint remembers its runs without loading one, also if its index is lost.
func TestABookWhoseJournalWasCutKnowsWhatItKnew(t *testing.T) {
	dir := t.TempDir()
	b := openSmall(t, dir)
	early := standing(t, b, "r0").At
	var middle coord.Position
	for i := range 8 {
		run := fmt.Sprint("r", i)
		must(t, b.Pending(ctx, attempt(run, coord.Open)))
		if i != 5 {
			must(t, b.Outcome(ctx, attempt(run, coord.Committed)))
		}
		if i == 1 {
			middle = standing(t, b, run).At
		}
	}
	must(t, b.Settled(ctx, "a-r0", "a-r1"))
	must(t, b.Pending(ctx, attempt("r8", coord.Open)))
	want := map[string]any{}
	for _, run := range []string{"r0", "r5", "r8"} {
		want[run] = standing(t, b, run)
	}
	cut(t, b)
	check := func(when string, b *book.Book) {
		t.Helper()
		for run, s := range want {
			if got := standing(t, b, run); !reflect.DeepEqual(got, s) {
				t.Errorf("%s: %s\n%+v, want\n%+v", when, run, got, s)
			}
		}
	}
	check("cut", b)
	check("opened again", openSmall(t, dir))
	must(t, os.Remove(filepath.Join(dir, self, "index.bolt")))
	check("index lost", openSmall(t, dir))
	b = openSmall(t, dir)
	must(t, b.Outcome(ctx, attempt("r5", coord.Failed)))
	if s := standing(t, b, "r5"); len(s.Records) != 1 || s.Records[0].State != coord.Failed {
		t.Errorf("after the cut a run ends as %+v", s.Records)
	}
	for name, at := range map[string]coord.Position{"beginning": early, "below the cut": middle} {
		proved, err := b.Void(ctx, agent, "never-"+name[:3], coord.Attempt{ID: "v-" + name[:3], Device: self, Epoch: 3, At: at})
		if err != nil || proved != (at == early) {
			t.Errorf("void of an attempt begun at the %s: %v, %v", name, proved, err)
		}
	}
}
