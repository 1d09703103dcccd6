package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

func TestACrashAtAnyStepOfASealedPublishIsRepeatable(t *testing.T) {
	everyCrash(t, func(t *testing.T) (*memory.Relay, *device, []*device) {
		r := collecting()
		keys := keyFile(t)
		a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
		a.hush(20)
		b.hush(20)
		pumpAll(r, a, b)
		return r, a, []*device{b}
	}, func(d *device, r relay.Relay) error {
		_, err := d.Publish(d.t.Context(), r)
		return err
	})
}

func TestACrashAtAnyStepOfASealedRebaseIsRepeatable(t *testing.T) {
	everyCrash(t, func(t *testing.T) (*memory.Relay, *device, []*device) {
		r := collecting()
		keys := keyFile(t)
		a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
		a.hush(30)
		pumpAll(r, a, b)
		a.publish(r)
		collect(t, r)
		c := newSmall(t, "c").under(keys, sealAll)
		c.hush(20)
		return r, c, []*device{a}
	}, func(d *device, r relay.Relay) error {
		_, _, err := d.Rebase(d.t.Context(), r)
		return err
	})
}

// A write that fails while its op is being sealed leaves nothing, and the same place is sealed for the next.
func TestAFailedAppendOfASealedOpLeavesNoHole(t *testing.T) {
	d := newDevice(t, "a").under(keyFile(t), sealAll)
	d.write(oplog.Knowledge, payloads(2)...)
	for _, call := range []string{"write", "sync"} {
		d.disk.failing(func(op, _ string) error {
			if op == call {
				return errDisk
			}
			return nil
		})
		draft := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: []byte(`{"id":"lost"}`)}
		if ops, err := d.Append(t.Context(), draft); err == nil || ops != nil {
			t.Errorf("failing %s: %v", call, err)
		}
		d.disk.failing(nil)
		d.open()
		at := d.HeldFrontier()["a"].Seq
		op := d.write(oplog.Knowledge, `{"id":"next"}`)[0]
		if op.Seq != at+1 || !seal.LooksSealed(op.Payload) || d.FoldedFrontier()["a"].Seq != op.Seq {
			t.Errorf("failing %s: the next is op %d after %d, folded %v", call, op.Seq, at, d.FoldedFrontier())
		}
		d.sameAsDisk()
	}
}

// What a stopped chain leaves in memory does not grow with it: its ops are read again from the journal.
func TestAStoppedChainKeepsNoOpsInMemory(t *testing.T) {
	r := memory.New(memory.Config{})
	keys := keyFile(t)
	late := filepath.Join(t.TempDir(), "late.keys")
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(late, sealAll)
	var drafts []journal.Draft
	text := make([]byte, 50_000)
	for i := range text {
		text[i] = 'x'
	}
	for range 20 {
		drafts = append(drafts, journal.Draft{Scope: oplog.Personal, Surface: oplog.Conversation, Payload: []byte(`"` + string(text) + `"`)})
	}
	grown := func(what func()) int64 {
		before := heap()
		what()
		return int64(heap()) - int64(before)
	}
	for range 5 {
		if _, err := a.Append(t.Context(), drafts...); err != nil {
			t.Fatal(err)
		}
		a.pump(r)
	}
	stopped := grown(func() {
		b.pump(r)
		for b.HeldFrontier()["a"].Seq < 99 {
			b.pump(r)
		}
	})
	if p := b.Status().Parked; len(p) != 1 || p[0].Ops != 100 {
		t.Fatalf("parked %+v", p)
	}
	give(t, keys, late)
	open := grown(func() { b.pump(r) })
	if stopped > 1<<20 || open < 4<<20 {
		t.Errorf("a stopped chain of 5 MB takes %d bytes, and %d more when it is folded", stopped, open)
	}
	same(t, a, b)
	runtime.KeepAlive(r)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestALostCheckpointOfSealedOpsIsMadeOrFetchedAgainWithTheKey(t *testing.T) {
	r := collecting()
	keys := keyFile(t)
	file := filepath.Join(t.TempDir(), "seal.keys")
	give(t, keys, file)
	a, b := newSmall(t, "a").under(file, sealAll), newSmall(t, "b").under(keys, sealAll)
	lose := func() {
		t.Helper()
		if err := os.RemoveAll(a.dir + ".checkpoints"); err != nil {
			t.Fatal(err)
		}
	}
	hide := func() {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	a.hush(2) // in the one segment that always stays
	pumpAll(r, a, b)
	a.publish(r)
	lose()
	hide()
	_, err := session.Open(t.Context(), a.config())
	if !errors.Is(err, session.ErrCheckpoint) || !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("made again without the key: %v", err)
	}
	give(t, keys, file)
	a.open()
	same(t, a, b)
	if c, err := a.store().Newest(nil); err != nil || !c.Meta.Sealed {
		t.Errorf("made again as %+v, %v: it has to be known that it came sealed", c.Meta, err)
	}

	a.hush(30)
	pumpAll(r, a, b)
	a.publish(r)
	lose()
	hide()
	if err := session.Restore(t.Context(), a.config(), r); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("fetched without the key: %v", err)
	}
	give(t, keys, file)
	if err := session.Restore(t.Context(), a.config(), r); err != nil {
		t.Fatal(err)
	}
	a.open()
	same(t, a, b)
}
