package index_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

const self = "host-1"

var ctx = context.Background()

func wall() time.Time { return time.UnixMilli(1_700_000_000_000) }

func openJournal(t rapid.TB, dir string) *journal.Journal {
	j, err := journal.Open(ctx, journal.Config{Dir: filepath.Join(dir, "journal"), Device: self, Now: wall, FS: noSync{}})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return j
}

// noSync is the real file system without waiting for the disk.
type noSync struct{ journal.OS }

type noSyncFile struct{ journal.File }

func (noSyncFile) Sync() error      { return nil }
func (noSync) SyncDir(string) error { return nil }
func (n noSync) OpenFile(name string, flag int, perm os.FileMode) (journal.File, error) {
	f, err := n.OS.OpenFile(name, flag, perm)
	return noSyncFile{f}, err
}

func newIndex(dir string) *index.Index {
	return index.New(index.Config{Path: filepath.Join(dir, "index.bolt"), Now: wall})
}

// answers is everything an index says, as text.
func answers(t rapid.TB, j *journal.Journal, x *index.Index, k index.Known) string {
	var out string
	err := j.Update(ctx, func(tx *journal.Tx) error {
		v, err := x.Sync(tx)
		if err != nil {
			return err
		}
		defer v.Close()
		for i := range 4 {
			epoch, err := v.Epoch(fmt.Sprint("agent", i))
			if err != nil {
				return err
			}
			records, err := v.Records(fmt.Sprint("run", i))
			if err != nil {
				return err
			}
			out += fmt.Sprintln(epoch, records)
		}
		open, err := v.Unsettled(k, 1000)
		if err != nil {
			return err
		}
		for _, o := range open {
			out += fmt.Sprintln(o.Seq, o.WallMS, o.Detail.RunID, o.Detail.Attempt, o.Detail.Status)
		}
		out += fmt.Sprintln(v.Settled(k), v.Witnesses(k), v.Frontier(), v.Clock())
		return nil
	})
	if err != nil {
		t.Fatalf("answers: %v", err)
	}
	return out
}

func payload(t rapid.TB, d index.Detail) []byte {
	b, err := oplog.Canonical(d)
	if err != nil {
		t.Fatalf("payload: %v", err)
	}
	return b
}

func drawDetail(t *rapid.T, next uint64) index.Detail {
	d := index.Detail{Intent: oplog.Intent{
		RunID: fmt.Sprint("run", rapid.IntRange(0, 3).Draw(t, "run")), Agent: fmt.Sprint("agent", rapid.IntRange(0, 3).Draw(t, "agent")),
		Epoch: rapid.Uint64Range(0, 9).Draw(t, "epoch"), Attempt: fmt.Sprint("a", rapid.IntRange(0, 5).Draw(t, "attempt")),
		Status: rapid.SampledFrom([]string{oplog.StatusPending, oplog.StatusCommitted, oplog.StatusFailed}).Draw(t, "status"),
	}}
	if d.Status == oplog.StatusFailed && rapid.Bool().Draw(t, "void") {
		d.Cause = oplog.CauseVoid
	}
	d.Abandoned = d.Status == oplog.StatusPending && rapid.Bool().Draw(t, "abandoned")
	if rapid.Bool().Draw(t, "settles") {
		n := rapid.Uint64Range(0, next).Draw(t, "settled")
		d.Settled = &n
	}
	return d
}

// An index that was brought forward step by step, by several processes in turn, one that is always made anew, and one that
// reads all at once answer alike.
func TestTheIndexIsAFunctionOfTheJournal(t *testing.T) {
	base := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		dir := filepath.Join(base, fmt.Sprint(round))
		defer os.RemoveAll(dir)
		j := openJournal(t, dir)
		defer j.Close()
		other := openJournal(t, dir)
		defer other.Close()
		a, b := newIndex(dir), newIndex(dir)
		peers := map[string]*oplog.Head{}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			err := j.Update(ctx, func(tx *journal.Tx) error {
				for range rapid.IntRange(1, 4).Draw(t, "ops") {
					if rapid.Bool().Draw(t, "peer") {
						if err := tx.AppendPeers(peerOp(t, peers)); err != nil {
							return err
						}
						continue
					}
					next := uint64(0)
					if head, ok := tx.Head(); ok {
						next = head.Seq + 1
					}
					d := journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload(t, drawDetail(t, next))}
					if _, err := tx.Append(d); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "many") { // enough that the next one that loads writes the file
				bulk(t, j, 130)
			}
			k := index.Known{Next: rapid.Uint64Range(0, 3).Draw(t, "known"), Attempts: map[string]bool{"a1": true}}
			first := answers(t, j, a, k)
			if second := answers(t, other, b, k); second != first {
				t.Fatalf("another process:\n%s\nwant\n%s", second, first)
			}
			if fresh := answers(t, j, newIndex(t.Name()+"/nowhere"), k); fresh != first {
				t.Fatalf("made anew:\n%s\nwant\n%s", fresh, first)
			}
			if loaded := answers(t, j, newIndex(dir), k); loaded != first {
				t.Fatalf("from the file:\n%s\nwant\n%s", loaded, first)
			}
		}
	})
}

func bulk(t rapid.TB, j *journal.Journal, n int) {
	var drafts []journal.Draft
	for i := range n {
		drafts = append(drafts, journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: fmt.Appendf(nil, `{"id":"k%d"}`, i)})
	}
	if _, err := j.Append(ctx, drafts...); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func peerOp(t *rapid.T, heads map[string]*oplog.Head) oplog.Op {
	device := fmt.Sprint("peer-", rapid.IntRange(0, 1).Draw(t, "device"))
	head, seq, prev := heads[device], uint64(0), oplog.OpID("")
	stamp := oplog.HLC{WallMS: wall().UnixMilli(), Device: device}
	if head != nil {
		seq, prev, stamp.Counter = head.Seq+1, head.ID, head.HLC.Counter+1
	}
	op, err := oplog.New(device, seq, prev, stamp, oplog.Personal, oplog.Intents, payload(t, drawDetail(t, seq)))
	if err != nil {
		t.Fatal(err)
	}
	heads[device] = &oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
	return op
}

func TestAStampFromTheFutureMovesTheClockOnlyInItsTime(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	defer j.Close()
	future := wall().Add(time.Hour)
	op, err := oplog.New("host-2", 0, "", oplog.HLC{WallMS: future.UnixMilli(), Device: "host-2"}, oplog.Personal, oplog.Skill, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Update(ctx, func(tx *journal.Tx) error { return tx.AppendPeers(op) }); err != nil {
		t.Fatal(err)
	}
	now := wall()
	x := index.New(index.Config{Path: filepath.Join(dir, "index.bolt"), Now: func() time.Time { return now }})
	clock := func() (h oplog.HLC) {
		if err := j.Update(ctx, func(tx *journal.Tx) error {
			v, err := x.Sync(tx)
			if err == nil {
				h = v.Clock()
				v.Close()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := clock(); h.WallMS != 0 {
		t.Errorf("clock %v", h)
	}
	now = future.Add(-4 * time.Minute)
	if h := clock(); h != op.HLC {
		t.Errorf("clock %v, want %v", h, op.HLC)
	}
}

func TestAnIndexThatCannotBeWrittenCostsOnlyTime(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	defer j.Close()
	bulk(t, j, 500)
	x := index.New(index.Config{Path: filepath.Join(dir, "no", "such", "folder", "index.bolt"), Now: wall})
	want := answers(t, j, newIndex(dir), index.Known{})
	for range 3 {
		if got := answers(t, j, x, index.Known{}); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestAnIndexOfAnotherJournalIsNotBelieved(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	a, b := openJournal(t, one), openJournal(t, two)
	defer a.Close()
	defer b.Close()
	bulk(t, a, 300)
	bulk(t, b, 301) // the same op ids up to 299 would be the same chain
	answers(t, a, newIndex(one), index.Known{})
	bulk(t, a, 10)
	answers(t, a, newIndex(one), index.Known{})
	if _, err := b.Append(ctx, journal.Draft{Scope: oplog.Personal, Surface: oplog.Skill, Payload: []byte(`{"id":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	bulk(t, a, 300)
	answers(t, a, newIndex(one), index.Known{})
	data, err := os.ReadFile(filepath.Join(one, "index.bolt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(two, "index.bolt"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	err = b.Update(ctx, func(tx *journal.Tx) error {
		_, err := newIndex(two).Sync(tx)
		return err
	})
	if !errors.Is(err, journal.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}
