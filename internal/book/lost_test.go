package book_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/journal"
)

// The index of a short journal is not on disk; the note of what is settled is.
func TestAJournalThatLostWhatWasNotedAsSettledIsRefused(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, dir string){
		"an end cut between groups": func(t *testing.T, dir string) {
			file := filepath.Join(dir, "own-0000000000000000.jsonl")
			data, err := os.ReadFile(file)
			must(t, err)
			end := bytes.LastIndexByte(data[:len(data)-1], '\n')
			end = bytes.LastIndexByte(data[:end], '\n') // a group of one op is two lines: its op and its end
			must(t, os.Truncate(file, int64(end+1)))
		},
		"no journal at all": func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := open(t, dir)
			for _, run := range []string{"one", "two"} {
				must(t, b.Pending(ctx, attempt(run, coord.Open)))
				must(t, b.Outcome(ctx, attempt(run, coord.Committed)))
				must(t, b.Settled(ctx, "a-"+run))
			}
			must(t, b.Close())
			harm(t, book.JournalDir(dir, self))
			again := open(t, dir)
			if err := standingErr(again); !errors.Is(err, journal.ErrLost) {
				t.Errorf("standing: %v, want ErrLost", err)
			}
			if err := again.Pending(ctx, attempt("three", coord.Open)); !errors.Is(err, journal.ErrLost) {
				t.Errorf("pending: %v, want ErrLost", err)
			}
		})
	}
}
