package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

const self = "host-1"

// wall is a clock that never moves: stamps rise by their counter.
func wall() time.Time { return time.UnixMilli(1_700_000_000_000) }

func config(dir string) journal.Config {
	return journal.Config{Dir: dir, Device: self, Now: wall}
}

func open(t testing.TB, cfg journal.Config) *journal.Journal {
	t.Helper()
	j, err := journal.Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func draft(i int) journal.Draft {
	return journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: fmt.Appendf(nil, `{"id":"k%d","n":%d}`, i, i)}
}

func drafts(from, n int) []journal.Draft {
	var out []journal.Draft
	for i := range n {
		out = append(out, draft(from+i))
	}
	return out
}

func appendOps(t testing.TB, j *journal.Journal, from, n int) []oplog.Op {
	t.Helper()
	ops, err := j.Append(context.Background(), drafts(from, n)...)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	return ops
}

func readOwn(j *journal.Journal, from uint64) (ops []oplog.Op, err error) {
	for op, err := range j.Own(from) {
		if err != nil {
			return ops, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func mustOwn(t testing.TB, j *journal.Journal) []oplog.Op {
	t.Helper()
	ops, err := readOwn(j, 0)
	if err != nil {
		t.Fatalf("read own: %v", err)
	}
	return ops
}

// peerOps is a chain of another device.
func peerOps(t testing.TB, device string, n int) []oplog.Op {
	t.Helper()
	clock := oplog.NewClock(device)
	var out []oplog.Op
	var prev oplog.OpID
	for i := range n {
		op, err := oplog.New(device, uint64(i), prev, clock.Tick(wall().UnixMilli()), oplog.Personal, oplog.Skill, fmt.Appendf(nil, `{"id":"p%d"}`, i))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, op)
		prev = op.ID
	}
	return out
}

func sameOps(t testing.TB, got, want []oplog.Op) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d ops, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].ID != want[i].ID {
			t.Fatalf("op %d is %s, want %s", i, got[i].ID, want[i].ID)
		}
	}
}

func segment(dir string, base int) string {
	return filepath.Join(dir, fmt.Sprintf("own-%016d.jsonl", base))
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// listing is every file of a directory with its content.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out[e.Name()] = string(readFile(t, filepath.Join(dir, e.Name())))
	}
	return out
}

func corrupt(t testing.TB, err error) *journal.CorruptError {
	t.Helper()
	e, ok := errors.AsType[*journal.CorruptError](err)
	if !ok {
		t.Fatalf("got %v, want a *CorruptError", err)
	}
	return e
}
