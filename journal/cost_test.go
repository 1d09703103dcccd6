package journal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/journal"
)

// fill appends n ops in large groups.
func fill(t testing.TB, cfg journal.Config, n int) {
	t.Helper()
	j := open(t, cfg)
	for at := 0; at < n; {
		k := min(1000, n-at)
		if err := j.Update(context.Background(), func(tx *journal.Tx) error {
			_, err := tx.Append(drafts(at, k)...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		at += k
	}
	for i := range 4 { // an exec appends one by one
		appendOps(t, j, n+i, 1)
	}
}

func TestOpeningAndAppendingCostTheSameAfterAHundredTimesAsManyOps(t *testing.T) {
	cost := func(n int) (calls, read int) {
		m := newMemory()
		cfg := memoryConfig(m)
		cfg.SegmentBytes = 1 << 20
		fill(t, cfg, n)
		m.calls, m.read = 0, 0
		j := open(t, cfg)
		appendOps(t, j, n+10, 1)
		if got, ok, err := j.OpAt(uint64(n / 2)); err != nil || !ok || got.Seq != uint64(n/2) {
			t.Fatalf("OpAt: %v %v %v", got, ok, err)
		}
		return m.calls, m.read
	}
	smallCalls, smallRead := cost(1000)
	calls, read := cost(100_000)
	t.Logf("1,000 ops: %d calls, %d bytes read; 100,000 ops: %d calls, %d bytes read", smallCalls, smallRead, calls, read)
	if calls > 2*smallCalls || read > 2*smallRead {
		t.Errorf("the cost grew")
	}
}

func TestALookAtAnUnchangedJournalReadsNothing(t *testing.T) {
	m := newMemory()
	cfg := memoryConfig(m)
	fill(t, cfg, 1000)
	j := open(t, cfg)
	m.read = 0
	for range 5 {
		if err := j.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if m.read != 0 {
		t.Errorf("%d bytes read", m.read)
	}
}

// noSync is the real file system without waiting for the disk, to make large journals.
type noSync struct{ journal.OS }

type noSyncFile struct{ journal.File }

func (noSyncFile) Sync() error      { return nil }
func (noSync) SyncDir(string) error { return nil }
func (n noSync) OpenFile(name string, flag int, perm os.FileMode) (journal.File, error) {
	f, err := n.OS.OpenFile(name, flag, perm)
	return noSyncFile{f}, err
}

func sizes(b *testing.B, run func(b *testing.B, dir string, n int)) {
	for _, n := range []int{1000, 1_000_000} {
		dir := filepath.Join(b.TempDir(), "j")
		cfg := config(dir)
		cfg.FS = noSync{}
		made := false
		b.Run(fmt.Sprintf("%dk", n/1000), func(b *testing.B) {
			if !made {
				fill(b, cfg, n)
				syscall.Sync() // so that no measurement pays for the making
				made = true
			}
			b.ResetTimer()
			run(b, dir, n)
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	sizes(b, func(b *testing.B, dir string, _ int) {
		for b.Loop() {
			open(b, config(dir))
		}
	})
}

func BenchmarkLookUp(b *testing.B) {
	sizes(b, func(b *testing.B, dir string, n int) {
		j := open(b, config(dir))
		for i := 0; b.Loop(); i++ {
			if _, ok, err := j.OpAt(uint64(i*7919) % uint64(n)); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	sizes(b, func(b *testing.B, dir string, n int) {
		j := open(b, config(dir))
		for i := 0; b.Loop(); i++ {
			appendOps(b, j, n+100+i, 1)
		}
	})
}
