package index_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

var hashes = []string{strings.Repeat("1a", 32), strings.Repeat("2b", 32)}

// openSmall opens a journal whose segments hold few ops each.
func openSmall(t testing.TB, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(ctx, journal.Config{Dir: filepath.Join(dir, "journal"), Device: self, Now: wall, FS: noSync{}, SegmentBytes: 600})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func intent(run, attempt, status string, epoch uint64) oplog.Intent {
	return oplog.Intent{RunID: run, Agent: "agent1", Attempt: attempt, Status: status, Epoch: epoch}
}

// told is a journal with own outcomes and those of a peer, and all ops of it.
func told(t testing.TB, j *journal.Journal) []oplog.Op {
	t.Helper()
	var all []oplog.Op
	for i := range 12 {
		in := intent(fmt.Sprint("run", i%4), fmt.Sprint("a", i), oplog.StatusCommitted, uint64(i))
		ops, err := j.Append(ctx, journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload(t, index.Detail{Intent: in})})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ops...)
	}
	var prev oplog.OpID
	for i := range 12 {
		in := intent(fmt.Sprint("run", i%4), fmt.Sprint("p", i), oplog.StatusFailed, uint64(20+i))
		stamp := oplog.HLC{WallMS: wall().UnixMilli(), Counter: uint32(i), Device: "peer"}
		op, err := oplog.New("peer", uint64(i), prev, stamp, oplog.Personal, oplog.Intents, payload(t, index.Detail{Intent: in}))
		if err != nil {
			t.Fatal(err)
		}
		prev = op.ID
		if err := j.Update(ctx, func(tx *journal.Tx) error { return tx.AppendPeers(op) }); err != nil {
			t.Fatal(err)
		}
		all = append(all, op)
	}
	return all
}

func factsOf(hash string, all []oplog.Op, intents bool) index.Facts {
	f := index.Facts{Checkpoint: hash, Heads: oplog.Heads{}}
	for _, op := range all {
		f.Heads[op.Device] = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
	}
	if intents {
		var list []oplog.Op
		for _, op := range all {
			op.Seq, op.Prev = 0, ""
			list = append(list, op)
		}
		slices.Reverse(list)
		f.Intents = slices.Values(list)
	}
	return f
}

// cutAt cuts the journal at all of the facts, with or without keeping the index, and drops what is below.
func cutAt(t testing.TB, j *journal.Journal, x *index.Index, f index.Facts) {
	t.Helper()
	err := j.Update(ctx, func(tx *journal.Tx) error {
		if x != nil {
			if err := x.Keep(tx, f); err != nil {
				return err
			}
		}
		return tx.Cut(journal.Cut{Checkpoint: f.Checkpoint, Heads: f.Heads})
	})
	if err == nil {
		_, err = j.Compact(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnIndexLostAfterACutIsMadeAnewFromItsCopy(t *testing.T) {
	dir := t.TempDir()
	j := openSmall(t, dir)
	all := told(t, j)
	k := index.Known{}
	want := answers(t, j, newIndex(dir), k)
	cutAt(t, j, newIndex(dir), factsOf(hashes[0], all, false))
	if got := answers(t, j, newIndex(dir), k); got != want {
		t.Fatalf("after the cut:\n%s\nwant\n%s", got, want)
	}
	bulk(t, j, 3)
	in := intent("run0", "late", oplog.StatusCommitted, 99)
	if _, err := j.Append(ctx, journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload(t, index.Detail{Intent: in})}); err != nil {
		t.Fatal(err)
	}
	want = answers(t, j, newIndex(dir), k)
	file := filepath.Join(dir, "index.bolt")
	for what, harm := range map[string]func(){
		"lost":    func() { remove(t, file) },
		"damaged": func() { must(t, os.WriteFile(file, []byte("damage"), 0o600)) },
		"cut":     func() { must(t, os.Truncate(file, 5000)) },
	} {
		harm()
		if got := answers(t, j, newIndex(dir), k); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnIndexThatLostItsCopyTooTakesTheFactsOfTheCheckpoint(t *testing.T) {
	dir := t.TempDir()
	j := openSmall(t, dir)
	all := told(t, j)
	cutAt(t, j, newIndex(dir), factsOf(hashes[0], all, false))
	remove(t, filepath.Join(dir, "index.bolt"), filepath.Join(dir, "index.bolt.cut"))
	err := j.Update(ctx, func(tx *journal.Tx) error {
		_, err := newIndex(dir).Sync(tx)
		return err
	})
	if e, ok := errors.AsType[*journal.AnchorError](err); !ok || e.Checkpoint != hashes[0] {
		t.Fatalf("without facts: %v", err)
	}
	asked := 0
	again := func() *index.Index {
		return index.New(index.Config{Path: filepath.Join(dir, "index.bolt"), Now: wall, Facts: func(hash string) (index.Facts, error) {
			asked++
			return factsOf(hash, all, true), nil
		}})
	}
	for range 2 {
		err = j.Update(ctx, func(tx *journal.Tx) error {
			v, err := again().Sync(tx)
			if err != nil {
				return err
			}
			defer v.Close()
			epoch, err := v.Epoch("agent1")
			if err != nil || epoch != 31 {
				t.Errorf("epoch %d, %v", epoch, err)
			}
			records, err := v.Records("run1")
			if err != nil || len(records) != 6 {
				t.Errorf("%d records, %v, want 3 of each device", len(records), err)
			}
			open, err := v.Unsettled(index.Known{}, 100)
			if err != nil || len(open) != 12 || open[11].Seq != 11 || open[0].Detail.Attempt != "a0" {
				t.Errorf("unsettled %v, %v: an outcome would not be told again", open, err)
			}
			if v.Clock() != all[23].HLC {
				t.Errorf("clock %v", v.Clock())
			}
			return nil
		})
		must(t, err)
	}
	if asked != 1 {
		t.Errorf("the checkpoint was asked for %d times", asked)
	}
}

func TestWhatOnlyACheckpointKnowsOfAPeerIsKnown(t *testing.T) {
	dir := t.TempDir()
	j := openSmall(t, dir)
	source := openSmall(t, t.TempDir())
	var peers []oplog.Op
	for _, op := range told(t, source) {
		if op.Device == "peer" {
			peers = append(peers, op)
		}
	}
	cutAt(t, j, newIndex(dir), factsOf(hashes[0], peers, true))
	for _, x := range []*index.Index{newIndex(dir), newIndex(dir)} {
		must(t, j.Update(ctx, func(tx *journal.Tx) error {
			v, err := x.Sync(tx)
			if err != nil {
				return err
			}
			defer v.Close()
			epoch, err := v.Epoch("agent1")
			if err != nil || epoch != 31 {
				t.Errorf("epoch %d, %v", epoch, err)
			}
			records, err := v.Records("run1")
			if err != nil || len(records) != 3 {
				t.Errorf("records %v, %v", records, err)
			}
			if v.Frontier()["peer"].Seq != 11 {
				t.Errorf("frontier %v", v.Frontier())
			}
			return nil
		}))
		bulk(t, j, 2)
	}
}

func TestACutWithoutTheIndexIsNoticed(t *testing.T) {
	dir := t.TempDir()
	j := openSmall(t, dir)
	all := told(t, j)
	want := answers(t, j, newIndex(dir), index.Known{})
	cutAt(t, j, newIndex(dir), factsOf(hashes[0], all[:1], false))
	bulk(t, j, 200)
	answers(t, j, newIndex(dir), index.Known{})
	cutAt(t, j, nil, factsOf(hashes[1], all, false))
	err := j.Update(ctx, func(tx *journal.Tx) error {
		_, err := newIndex(dir).Sync(tx)
		return err
	})
	if !errors.Is(err, journal.ErrAnchored) {
		t.Errorf("got %v, had %s", err, want)
	}
}

func TestKeepFailsIfItCannotWrite(t *testing.T) {
	dir := t.TempDir()
	j := openSmall(t, dir)
	all := told(t, j)
	x := index.New(index.Config{Path: filepath.Join(dir, "no", "index.bolt"), Now: wall})
	if err := j.Update(ctx, func(tx *journal.Tx) error { return x.Keep(tx, factsOf(hashes[0], all, false)) }); err == nil {
		t.Error("kept nowhere")
	}
	must(t, os.Mkdir(filepath.Join(dir, "index.bolt.cut"), 0o700))
	if err := j.Update(ctx, func(tx *journal.Tx) error { return newIndex(dir).Keep(tx, factsOf(hashes[0], all, false)) }); err == nil {
		t.Error("kept without a copy")
	}
}
