package book_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// noSync is the real file system without waiting for the disk, to make large journals.
type noSync struct{ journal.OS }

type noSyncFile struct{ journal.File }

func (noSyncFile) Sync() error      { return nil }
func (noSync) SyncDir(string) error { return nil }
func (n noSync) OpenFile(name string, flag int, perm os.FileMode) (journal.File, error) {
	f, err := n.OS.OpenFile(name, flag, perm)
	return noSyncFile{f}, err
}

// history writes the intents of n/2 settled runs.
func history(b *testing.B, dir string, n int) {
	b.Helper()
	bk, err := book.Open(ctx, book.Config{Dir: dir, Device: self, Now: wall, FS: noSync{}})
	if err != nil {
		b.Fatal(err)
	}
	defer bk.Close()
	for at := 0; at < n; {
		err := bk.Journal().Update(ctx, func(tx *journal.Tx) error {
			for range 10_000 {
				if at == n {
					return nil
				}
				status := []string{oplog.StatusPending, oplog.StatusCommitted}[at%2]
				payload := fmt.Appendf(nil, `{"agent_id":"agent-%d","attempt":"a%d","epoch":%d,"id":"run-%d","settled":%d,"status":"%s"}`,
					at%50, at/2, at/100+1, at/2, at, status)
				if _, err := tx.Append(journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload}); err != nil {
					return err
				}
				at++
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if _, err := bk.Standing(ctx, agent, "x"); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkExec is what one exec asks of its book, from opening it on: look, pending, outcome, settled.
func BenchmarkExec(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		dir, made := b.TempDir(), false
		b.Run(fmt.Sprintf("%dk", n/1000), func(b *testing.B) {
			if !made {
				history(b, dir, n)
				syscall.Sync() // so that no measurement pays for the making
				made = true
			}
			b.ResetTimer()
			before, loops := cpu(b), 0
			for i := 0; b.Loop(); i++ {
				loops++
				if err := exec(dir, fmt.Sprintf("bench-%d-%d", b.N, i), i%(n/2)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(loops), "cpu-ns/op") // steadier than the disk
		})
	}
}

// cpu is the processor time of this process so far, in nanoseconds.
func cpu(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func exec(dir, run string, earlier int) error {
	ctx := context.Background()
	bk, err := book.Open(ctx, book.Config{Dir: dir, Device: self})
	if err != nil {
		return err
	}
	defer bk.Close()
	if s, err := bk.Standing(ctx, agent, fmt.Sprintf("run-%d", earlier)); err != nil || len(s.Records) != 1 {
		return fmt.Errorf("standing: %d records, %w", len(s.Records), err)
	}
	if err := bk.Pending(ctx, attempt(run, coord.Open)); err != nil {
		return err
	}
	if err := bk.Outcome(ctx, attempt(run, coord.Committed)); err != nil {
		return err
	}
	return bk.Settled(ctx, "a-"+run)
}
