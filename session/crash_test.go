package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// smallPages makes every page hold little.
type smallPages struct{ relay.Relay }

func (s smallPages) Pull(ctx context.Context, device string, want relay.Want) (relay.Page, error) {
	want.MaxBytes = 1000
	return s.Relay.Pull(ctx, device, want)
}

// A witness looks at each push and ack on its way to the relay.
type witness struct {
	relay.Relay
	onPush func([]oplog.Op)
	onAck  func(oplog.Frontier)
}

func (w witness) Push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	if w.onPush != nil {
		w.onPush(ops)
	}
	return w.Relay.Push(ctx, device, ops)
}

func (w witness) Ack(ctx context.Context, device string, folded oplog.Frontier) error {
	if w.onAck != nil {
		w.onAck(folded)
	}
	return w.Relay.Ack(ctx, device, folded)
}

func payloads(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"id":"%d"}`, i)
	}
	return out
}

func TestAnOpIsDurableBeforeItIsTransmitted(t *testing.T) {
	a := newDevice(t, "a")
	pushed := 0
	r := witness{Relay: memory.New(memory.Config{}), onPush: func(ops []oplog.Op) {
		durable := strings.Join(a.disk.durable(), "\n") + "\n"
		for _, op := range ops {
			pushed++
			if !strings.Contains(durable, string(op.AppendLine(nil))+"\n") {
				t.Errorf("op %d was transmitted and would not survive a power cut", op.Seq)
			}
		}
	}}
	for i := range 5 {
		a.write(oplog.Knowledge, payloads(i+1)...)
		if _, err := a.journal().Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Routing, Payload: []byte(`1`)}); err != nil {
			t.Fatal(err)
		}
		a.pump(r)
	}
	if pushed != 20 {
		t.Errorf("%d ops were pushed, expected 20", pushed)
	}
}

func TestASeqIsNeverMintedAgainAfterACrash(t *testing.T) {
	r := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	first := a.write(oplog.Knowledge, `{"id":"kept"}`)[0]
	a.open() // killed between append and pump
	second := a.write(oplog.Knowledge, `{"id":"next"}`)[0]
	if second.Seq != 1 || second.Prev != first.ID {
		t.Errorf("after the crash: seq %d after %s, expected 1 after %s", second.Seq, second.Prev, first.ID)
	}
	a.pump(r)
	a.open()
	if third := a.write(oplog.Knowledge, `{"id":"third"}`)[0]; third.Seq != 2 {
		t.Errorf("after the second crash: seq %d, expected 2", third.Seq)
	}
	a.pump(r)
	b.pump(r)
	converged(t, a, b)
}

func TestTheAckEqualsWhatIsOnDisk(t *testing.T) {
	store := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	a.write(oplog.Knowledge, payloads(7)...)
	a.pump(store)
	acks := 0
	r := witness{Relay: smallPages{store}, onAck: func(folded oplog.Frontier) {
		acks++
		if disk := frontierOf(t, b.disk.durable()); !disk.Equal(folded) {
			t.Errorf("acked %v, on the disk is %v", folded, disk)
		}
	}}
	b.write(oplog.Knowledge, `{"id":"own"}`)
	b.pump(r)
	a.write(oplog.Routing, payloads(5)...)
	a.pump(store)
	b.pump(r)
	if acks != 2 {
		t.Errorf("%d acks, expected 2", acks)
	}
	roster, err := store.Roster(t.Context())
	if err != nil || !roster[1].Acked.Equal(b.FoldedFrontier()) {
		t.Errorf("the relay knows %v of b (%v), b has folded %v", roster, err, b.FoldedFrontier())
	}
}

func TestACrashAtAnyStepOfAPumpIsRepeatable(t *testing.T) {
	only := func(name string, fault relaytest.Fault) func(relaytest.Call) relaytest.Fault {
		return func(c relaytest.Call) relaytest.Fault {
			if c.Name == name {
				return fault
			}
			return relaytest.None
		}
	}
	for name, c := range map[string]struct {
		plan   func(relaytest.Call) relaytest.Fault
		disk   string // the disk operation that fails
		folded bool   // whether what was pulled is folded after the crash
	}{
		"hello without an answer":         {plan: only("hello", relaytest.After)},
		"push that did not arrive":        {plan: only("push", relaytest.Before)},
		"push without an answer":          {plan: only("push", relaytest.After)},
		"pull without an answer":          {plan: only("pull", relaytest.After)},
		"after pull, before the fold":     {disk: "write"},
		"after the fold, failing ack":     {plan: only("ack", relaytest.Before), folded: true},
		"after the fold, ack unconfirmed": {plan: only("ack", relaytest.After), folded: true},
		"nothing failed, lost cursor":     {folded: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := memory.New(memory.Config{})
			a, b := newDevice(t, "a"), newDevice(t, "b")
			a.write(oplog.Knowledge, payloads(5)...)
			a.pump(store)
			own := b.write(oplog.Routing, payloads(3)...)
			f := relaytest.NewFaulty(store)
			f.Plan(c.plan)
			if c.disk != "" {
				b.disk.failing(func(op, name string) error {
					if op == c.disk && strings.HasPrefix(name, "peers") {
						return errDisk
					}
					return nil
				})
			}
			_, err := b.Pump(t.Context(), f)
			if failed := c.plan != nil || c.disk != ""; failed != (err != nil) {
				t.Fatalf("pump: %v", err)
			}
			if err != nil && !errors.Is(err, relaytest.ErrInjected) && !errors.Is(err, errDisk) {
				t.Fatalf("pump failed for another reason: %v", err)
			}
			b.sameAsDisk()
			if got := b.FoldedFrontier().Covers("a", 4); got != c.folded {
				t.Errorf("folded before the crash: %v, expected %v", got, c.folded)
			}
			roster, err := store.Roster(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !c.folded && slices.ContainsFunc(roster, func(m relay.Member) bool { return m.Device == "b" && len(m.Acked) > 0 }) {
				t.Errorf("the relay has an ack for what was not folded: %v", roster)
			}
			b.disk.failing(nil)
			b.open() // memory and every cursor are gone
			b.pump(store)
			if b.FoldedFrontier()["b"] != (oplog.Pos{Seq: 2, ID: own[2].ID}) {
				t.Errorf("own ops after the crash: %v", b.FoldedFrontier()["b"])
			}
			if rep := b.pump(store); rep.Pulled != 0 || rep.Pushed != (relay.Pushed{}) || rep.Acked {
				t.Errorf("a further pump did something: %+v", rep)
			}
			a.pump(store)
			converged(t, a, b)
		})
	}
}

func TestAFailingSecondFoldAppendLeavesMemoryEqualToDisk(t *testing.T) {
	store := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	ops := a.write(oplog.Knowledge, payloads(6)...)
	a.pump(store)
	writes := 0
	b.disk.failing(func(op, name string) error {
		if op != "write" || !strings.HasPrefix(name, "peers") || strings.HasSuffix(name, ".tmp") {
			return nil
		}
		if writes++; writes == 2 {
			return errDisk
		}
		return nil
	})
	rep, err := b.Pump(t.Context(), smallPages{store})
	if !errors.Is(err, errDisk) || !errors.Is(err, journal.ErrNotWritten) {
		t.Fatalf("pump: %+v, %v", rep, err)
	}
	b.sameAsDisk()
	held := b.HeldFrontier()["a"].Seq
	if held >= 5 || rep.Pulled != int(held)+1 || !b.FoldedFrontier().Equal(b.HeldFrontier()) {
		t.Errorf("held up to %d, folded %v, report %+v", held, b.FoldedFrontier(), rep)
	}
	rep = b.pump(smallPages{store}) // the same session goes on
	if rep.Pulled != len(ops)-int(held)-1 {
		t.Errorf("the retry pulled %d of %d", rep.Pulled, len(ops)-int(held)-1)
	}
	a.pump(store)
	b.pump(store)
	converged(t, a, b)
}

func TestAFailedAppendLeavesNoHole(t *testing.T) {
	r := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	first := a.write(oplog.Knowledge, `{"id":"1"}`)[0]
	a.disk.failing(func(op, _ string) error {
		if op == "write" {
			return errDisk
		}
		return nil
	})
	draft := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: []byte(`{"id":"lost"}`)}
	if _, err := a.Append(t.Context(), draft); !errors.Is(err, journal.ErrNotWritten) || !errors.Is(err, errDisk) {
		t.Fatalf("append on a failing disk: %v", err)
	}
	if _, _, err := a.RecordIntent(t.Context(), oplog.Intent{RunID: "run", Agent: "agent", Status: oplog.StatusPending}); !errors.Is(err, errDisk) {
		t.Fatalf("intent on a failing disk: %v", err)
	}
	a.disk.failing(nil)
	a.sameAsDisk()
	second := a.write(oplog.Knowledge, `{"id":"2"}`)[0]
	if second.Seq != 1 || second.Prev != first.ID {
		t.Errorf("seq %d after %s, expected 1 after %s", second.Seq, second.Prev, first.ID)
	}
	a.pump(r)
	b.pump(r)
	a.pump(r)
	converged(t, a, b)
	if strings.Contains(strings.Join(b.lines(), ""), "lost") {
		t.Error("an op whose append failed has travelled")
	}
}

func TestAFailedSyncIsNotTransmittedAndNeedsReopening(t *testing.T) {
	r := memory.New(memory.Config{})
	a := newDevice(t, "a")
	a.write(oplog.Knowledge, `{"id":"1"}`)
	a.disk.failing(func(op, _ string) error {
		if op == "sync" {
			return errDisk
		}
		return nil
	})
	draft := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: []byte(`{"id":"2"}`)}
	if _, err := a.Append(t.Context(), draft); !errors.Is(err, journal.ErrPoisoned) {
		t.Fatalf("append: %v", err)
	}
	a.disk.failing(nil)
	if _, err := a.Pump(t.Context(), r); !errors.Is(err, journal.ErrPoisoned) {
		t.Errorf("pump on a poisoned journal: %v", err)
	}
	if info, err := r.Hello(t.Context(), "a"); err != nil || info.Known {
		t.Errorf("the relay holds %+v, %v", info.Head, err)
	}
	a.open()
	a.pump(r)
	a.sameAsDisk()
}
