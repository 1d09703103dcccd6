package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// A badOp turns the op "bad/2" of a page into what a relay must not get through with.
var badOps = map[string]struct {
	make      func(op, before oplog.Op) oplog.Op
	is        func(error) bool
	permanent bool
}{
	"id": {func(op, before oplog.Op) oplog.Op { op.ID = before.ID; return op },
		as[*oplog.IDError], true},
	"payload changed under its id": {func(op, _ oplog.Op) oplog.Op { op.Payload = json.RawMessage(`{"id":"x"}`); return op },
		as[*oplog.IDError], true},
	"gap": {func(op, _ oplog.Op) oplog.Op { op.Seq += 7; op.ID = op.ComputeID(); return op },
		as[*oplog.GapError], false},
	"fork": {func(op, _ oplog.Op) oplog.Op { op.Prev = op.ID; op.ID = op.ComputeID(); return op },
		as[*oplog.ForkError], true},
	"foreign": {func(op, _ oplog.Op) oplog.Op { op.HLC.Device = "other"; op.ID = op.ComputeID(); return op },
		as[*oplog.ForeignError], true},
	"clock": {func(op, before oplog.Op) oplog.Op { op.HLC = before.HLC; op.ID = op.ComputeID(); return op },
		as[*oplog.ClockError], true},
	"size": {func(op, _ oplog.Op) oplog.Op {
		op.Payload = fmt.Appendf(nil, "%0*d", oplog.MaxPayload+1, 1)
		op.ID = op.ComputeID()
		return op
	}, as[*oplog.SizeError], true},
	"canon": {func(op, _ oplog.Op) oplog.Op {
		op.Payload = json.RawMessage(`{"b":1, "a":2}`)
		op.ID = op.ComputeID()
		return op
	}, as[*oplog.CanonError], true},
	"surface": {func(op, _ oplog.Op) oplog.Op { op.Surface = "of a newer release"; op.ID = op.ComputeID(); return op },
		as[*oplog.FieldError], false},
}

func as[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func TestEveryBadOpHasItsTypedErrorAndStopsItsOwnChainOnly(t *testing.T) {
	for name, c := range badOps {
		t.Run(name, func(t *testing.T) {
			store := memory.New(memory.Config{})
			good, bad, b := newDevice(t, "good"), newDevice(t, "bad"), newDevice(t, "b")
			good.write(oplog.Knowledge, payloads(5)...)
			ops := bad.write(oplog.Routing, payloads(5)...)
			good.pump(store)
			bad.pump(store)
			liar := relaytest.NewFaulty(store)
			liar.Edit(func(page []oplog.Op) []oplog.Op {
				for i, op := range page {
					if op.Device == "bad" && op.Seq == 2 {
						page[i] = c.make(op, ops[1])
					}
				}
				return page
			})
			rep := b.pump(liar)
			if got := b.HeldFrontier(); got["bad"].Seq != 1 || got["good"].Seq != 4 {
				t.Errorf("held %v, expected the bad chain up to seq 1 and the good one whole", got)
			}
			if rep.Pulled != 7 || rep.Refused != 3 {
				t.Errorf("report %+v, expected 7 pulled and 3 refused", rep)
			}
			b.sameAsDisk()
			st := b.Status()
			if len(st.Quarantined) != 1 {
				t.Fatalf("status %+v, expected one quarantined chain", st)
			}
			q := st.Quarantined[0]
			if q.Device != "bad" || !c.is(q.Reason) || q.Permanent != c.permanent || q.Instance == "" {
				t.Errorf("quarantined %+v: %v", q, q.Reason)
			}
			good.write(oplog.Knowledge, `{"id":"later"}`)
			good.pump(store)
			if b.pump(liar); b.HeldFrontier()["good"].Seq != 5 {
				t.Error("the good chain does not go on")
			}
			if len(b.Status().Quarantined) != 1 {
				t.Error("the quarantine was forgotten")
			}
			liar.Edit(nil) // the relay was at fault: once it tells the truth, all goes on
			b.wall.add(11 * time.Minute)
			b.pump(liar)
			if st := b.Status(); len(st.Quarantined) != 0 {
				t.Errorf("still quarantined: %+v", st.Quarantined)
			}
			for _, d := range []*device{good, bad} {
				d.pump(store)
			}
			converged(t, good, bad, b)
		})
	}
}

func TestAQuarantinedChainCostsNothingUntilItIsTriedAgain(t *testing.T) {
	store := memory.New(memory.Config{})
	bad, b := newDevice(t, "bad"), newDevice(t, "b")
	bad.write(oplog.Routing, payloads(5)...)
	bad.pump(store)
	liar := relaytest.NewFaulty(store)
	liar.Edit(func(page []oplog.Op) []oplog.Op {
		for i := range page {
			page[i].Payload = json.RawMessage(`"lie"`)
		}
		return page
	})
	b.pump(liar)
	pulls := liar.Calls()["pull"]
	b.pump(liar)
	if got := liar.Calls()["pull"]; got != pulls {
		t.Errorf("a chain in quarantine was asked for again at once: %d pulls", got-pulls)
	}
	other := memory.New(memory.Config{}) // another relay may have a good copy
	bad.pump(other)
	if b.pump(other); b.HeldFrontier()["bad"].Seq != 4 {
		t.Error("the chain is not taken from another relay")
	}
	b.pump(liar)
}

func TestAChainThatTheRelayCannotReadIsShownAndComesBack(t *testing.T) {
	store := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	a.write(oplog.Knowledge, payloads(3)...)
	a.pump(store)
	r := &broken{Relay: store, chain: "a"}
	b.pump(r)
	if q := b.Status().Quarantined; len(q) != 1 || q[0].Permanent || !errors.Is(q[0].Reason, relay.ErrCorrupt) {
		t.Errorf("status %+v", q)
	}
	r.chain = ""
	b.pump(r)
	a.pump(r)
	converged(t, a, b)
	if q := b.Status().Quarantined; len(q) != 0 {
		t.Errorf("still shown: %+v", q)
	}
}

// broken is a relay that cannot read one chain.
type broken struct {
	relay.Relay
	chain string
}

func (r *broken) Pull(ctx context.Context, device string, want relay.Want) (relay.Page, error) {
	if r.chain == "" {
		return r.Relay.Pull(ctx, device, want)
	}
	want.Skip = append(slices.Clone(want.Skip), r.chain)
	page, err := r.Relay.Pull(ctx, device, want)
	page.Broken = map[string]error{r.chain: fmt.Errorf("%w: a key", relay.ErrCorrupt)}
	return page, err
}

func TestOpsFromTheFutureWaitForTheirTime(t *testing.T) {
	r := memory.New(memory.Config{})
	fast, b := newDevice(t, "fast"), newDevice(t, "b")
	fast.write(oplog.Knowledge, `{"id":"now"}`)
	fast.wall.add(time.Hour)
	fast.write(oplog.Knowledge, `{"id":"in an hour"}`)
	intent(t, fast, "run", 1, oplog.StatusCommitted)
	fast.pump(r)
	b.pump(r)
	if held, folded := b.HeldFrontier()["fast"].Seq, b.FoldedFrontier()["fast"].Seq; held != 2 || folded != 0 {
		t.Errorf("held up to %d and folded up to %d, expected 2 and 0", held, folded)
	}
	if rec, ok := b.CommittedRun("agent", "run"); !ok || !rec.Parked {
		t.Error("a commit that waits does not veto")
	}
	if _, ok := intent(t, b, "run", 2, oplog.StatusPending); ok {
		t.Error("a pending was recorded for a run whose commit waits")
	}
	roster, err := r.Roster(t.Context())
	if err != nil || roster[0].Device != "b" || roster[0].Acked["fast"].Seq != 0 {
		t.Errorf("acked %v (%v), expected only what is folded", roster, err)
	}
	if op := b.write(oplog.Knowledge, `{"id":"own"}`)[0]; op.HLC.WallMS > b.wall.Now().UnixMilli() {
		t.Errorf("the clock was dragged along: stamp %v", op.HLC)
	}
	check := func(after string) {
		t.Helper()
		p := b.Status().Parked
		if len(p) != 1 || p[0].Device != "fast" || p[0].From != 1 || p[0].Ops != 2 || !p[0].Until.After(b.wall.Now()) {
			t.Errorf("%s: parked %+v", after, p)
		}
	}
	check("after the pull")
	b.pump(r)
	check("after another pump")
	b.open()
	check("after a restart")
	if _, ok := b.CommittedRun("agent", "run"); !ok {
		t.Error("after a restart a commit that waits does not veto")
	}
	b.wall.add(time.Hour)
	if rep := b.pump(r); rep.Unparked != 2 || !rep.Acked {
		t.Errorf("when its time has come: %+v", rep)
	}
	fast.pump(r)
	converged(t, fast, b)
	if p := b.Status().Parked; len(p) != 0 {
		t.Errorf("parked still: %+v", p)
	}
	if rec, ok := b.CommittedRun("agent", "run"); !ok || rec.Parked {
		t.Error("the commit is not folded")
	}
}

func TestOwnOpsBehindOneThatWaitsWaitToo(t *testing.T) {
	a := newDevice(t, "a")
	a.wall.add(time.Hour)
	a.write(oplog.Knowledge, `{"id":"by a clock that was wrong"}`)
	a.wall.add(-time.Hour)
	a.open()
	if n := a.Status().Parked; len(n) != 1 || n[0].Device != "a" || len(a.FoldedFrontier()) != 0 {
		t.Errorf("parked %+v, folded %v", n, a.FoldedFrontier())
	}
	a.wall.add(2 * time.Hour)
	a.write(oplog.Knowledge, `{"id":"after"}`) // its time has come, that of the one before was not looked at yet
	a.sameAsDisk()
	if err := a.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f := a.FoldedFrontier()["a"].Seq; f != 1 || len(a.Status().Parked) != 0 {
		t.Errorf("folded up to %d, parked %+v", f, a.Status().Parked)
	}
}

func TestAWriteMadeAfterFoldingAnothersIsTheLaterOne(t *testing.T) {
	r := memory.New(memory.Config{})
	fast, b := newDevice(t, "fast"), newDevice(t, "b")
	fast.wall.add(4 * time.Minute)
	fast.write(oplog.DeclAgent, `{"id":"x","by":"fast"}`)
	fast.pump(r)
	b.pump(r)
	b.write(oplog.DeclAgent, `{"id":"x","by":"b"}`)
	b.View(func(s *fold.State) {
		if rec, ok := s.Get(oplog.DeclAgent, "id:x"); !ok || rec.HLC.Device != "b" {
			t.Errorf("the register has %s", rec.Payload)
		}
	})
}

func TestABadChainInTheOwnJournalStopsItselfOnly(t *testing.T) {
	a := newDevice(t, "a")
	good, bad := relaytest.NewAuthor("good"), relaytest.NewAuthor("bad")
	good.Write(t, 3, 40)
	bad.Write(t, 3, 40)
	err := a.journal().Update(t.Context(), func(tx *journal.Tx) error {
		return tx.AppendPeers(good.Ops[0], bad.Ops[0], bad.Ops[2], good.Ops[1], good.Ops[2])
	})
	if err != nil {
		t.Fatal(err)
	}
	a.open()
	if f := a.FoldedFrontier(); f["good"].Seq != 2 || f["bad"].Seq != 0 {
		t.Errorf("folded %v", f)
	}
	if q := a.Status().Quarantined; len(q) != 1 || q[0].Device != "bad" || q[0].Instance != "" || !as[*oplog.GapError](q[0].Reason) {
		t.Errorf("status %+v", q)
	}
	r := memory.New(memory.Config{})
	pushAll(t, r, bad, 0)
	if a.pump(r); a.FoldedFrontier()["bad"].Seq != 2 {
		t.Errorf("what is missing did not come from the relay: %v", a.FoldedFrontier())
	}
	a.open()
	if a.FoldedFrontier()["bad"].Seq != 2 || len(a.Status().Quarantined) != 0 {
		t.Errorf("after a restart: %v", a.FoldedFrontier())
	}
}

// copyOf is the device's directory as it is now, copied to another place: a restored backup, or a cloned machine.
func copyOf(t *testing.T, d *device) *device {
	t.Helper()
	c := &device{t: t, name: d.name, dir: filepath.Join(t.TempDir(), d.name), wall: newWall(), disk: newDisk()}
	if err := os.CopyFS(c.dir, os.DirFS(d.dir)); err != nil {
		t.Fatal(err)
	}
	c.open()
	return c
}

func TestARestoredBackupFreezesTheIDAndLosesNothing(t *testing.T) {
	for name, keep := range map[string]int{"an older copy": 2, "an empty directory": 0} {
		t.Run(name, func(t *testing.T) {
			r := memory.New(memory.Config{})
			a, b := newDevice(t, "a"), newDevice(t, "b")
			a.write(oplog.Knowledge, payloads(keep)...)
			backup := copyOf(t, a)
			a.write(oplog.Knowledge, `{"id":"x"}`, `{"id":"y"}`)
			a.pump(r)
			b.write(oplog.Knowledge, `{"id":"b"}`)
			b.pump(r)

			rep, err := backup.Pump(t.Context(), r)
			frozen, ok := errors.AsType[*session.FrozenError](err)
			if !ok || frozen.Fork || frozen.Relay.Seq != uint64(keep+1) {
				t.Fatalf("pump of a restored backup: %+v, %v", rep, err)
			}
			if rep.Pushed != (relay.Pushed{}) || backup.HeldFrontier()["b"].Seq != 0 || rep.Pulled != 1 {
				t.Errorf("report %+v; it must push nothing and still pull from others", rep)
			}
			own := backup.write(oplog.Knowledge, `{"id":"written after the restore"}`)
			if _, err := backup.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
				t.Errorf("the next pump: %v", err)
			}
			if backup.Status().Frozen == nil || backup.HeldFrontier()["a"].ID != own[0].ID {
				t.Errorf("status %+v; the op written after must be kept", backup.Status())
			}
			backup.open() // the evidence is found again
			if _, err := backup.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
				t.Errorf("after a restart: %v", err)
			}
			b.pump(r)
			a.pump(r)
			converged(t, a, b)
		})
	}
}

func TestAForkFreezesTheIDAndIsToldFromABackup(t *testing.T) {
	for name, c := range map[string]struct{ first, second int }{
		"as long":  {2, 2},
		"shorter":  {3, 1},
		"longer":   {1, 3},
		"one each": {1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := memory.New(memory.Config{})
			a, b := newDevice(t, "a"), newDevice(t, "b")
			a.write(oplog.Knowledge, payloads(3)...)
			a.pump(r)
			twin := copyOf(t, a)
			twin.wall.add(time.Second)
			a.write(oplog.Routing, payloads(c.first)...)
			twin.write(oplog.DeclAgent, payloads(c.second)...)
			a.pump(r)
			rep, err := twin.Pump(t.Context(), r)
			frozen, ok := errors.AsType[*session.FrozenError](err)
			if !ok || !frozen.Fork || rep.Pushed != (relay.Pushed{}) {
				t.Fatalf("pump of the second copy: %+v, %v", rep, err)
			}
			if got := len(twin.lines()); got != 3+c.second {
				t.Errorf("%d ops on its disk, expected %d", got, 3+c.second)
			}
			roster, err := r.Roster(t.Context())
			if err != nil || roster[0].Acked["a"] != a.HeldFrontier()["a"] {
				t.Errorf("the relay takes the other chain as acked: %+v, %v", roster, err)
			}
			b.pump(r)
			a.pump(r)
			converged(t, a, b)
		})
	}
}

func TestABackupThatWasWrittenToIsToldFromTwoCopiesThatWriteAtOneTime(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration // the copy writes so long after the branch of the relay began
		earlier bool
	}{
		"restored, then written to": {time.Hour, true},
		"two at one time":           {-time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := memory.New(memory.Config{})
			a := newDevice(t, "a")
			a.write(oplog.Knowledge, payloads(3)...)
			a.pump(r)
			twin := copyOf(t, a)
			a.wall.add(time.Minute)
			a.write(oplog.Routing, payloads(2)...)
			a.pump(r)
			twin.wall.add(time.Minute + c.after)
			twin.write(oplog.DeclAgent, payloads(1)...)
			if _, err := twin.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
				t.Fatalf("pump: %v", err)
			}
			note, _, err := twin.journal().Frozen()
			if told := twin.Status().Frozen; err != nil || !note.Fork || note.Earlier != c.earlier || told.Earlier != c.earlier {
				t.Errorf("noted %+v, told %+v, %v; want earlier: %v", note, told, err, c.earlier)
			}
			_, err = twin.Pump(t.Context(), r)
			if says := fmt.Sprint(err); strings.Contains(says, "an older copy, restored or rolled back") != c.earlier || strings.Contains(says, "another copy of the device writes") == c.earlier {
				t.Errorf("it says: %s", says)
			}
		})
	}
}

func TestTwoCopiesThatPushAtOnceLeaveOneChain(t *testing.T) {
	store := memory.New(memory.Config{})
	a := newDevice(t, "a")
	a.write(oplog.Knowledge, payloads(3)...)
	twin := copyOf(t, a)
	twin.wall.add(time.Second)
	twin.write(oplog.Routing, `1`)
	a.write(oplog.Routing, `2`)
	// the twin pushes after a has compared the heads
	r := witness{Relay: store, onPush: func([]oplog.Op) { _, _ = twin.Pump(t.Context(), store) }}
	if _, err := a.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
		t.Errorf("the loser of the race: %v", err)
	}
	if _, err := twin.Pump(t.Context(), store); err != nil {
		t.Errorf("the winner: %v", err)
	}
}

func TestARelayThatLostOpsIsOfferedThemAgain(t *testing.T) {
	r := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	a.write(oplog.Knowledge, payloads(6)...)
	a.pump(r)
	b.pump(r)
	r.Forget("a", 2)
	if rep := b.pump(r); !slices.Equal(rep.Behind, []string{"a"}) {
		t.Errorf("b does not notice that the relay lost ops of a: %+v", rep)
	}
	if rep := a.pump(r); rep.Pushed.Accepted != 4 {
		t.Errorf("offered again: %+v", rep)
	}
	if rep := b.pump(r); len(rep.Behind) != 0 {
		t.Errorf("noticed still: %+v", rep)
	}
	empty := memory.New(memory.Config{})
	if rep := a.pump(empty); rep.Pushed.Accepted != 6 {
		t.Errorf("offered to a new relay: %+v", rep)
	}
	b.pump(empty)
	converged(t, a, b)
}

func TestAFullRelayIsStillPulledFrom(t *testing.T) {
	r := memory.New(memory.Config{MaxBytes: 3000})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	a.write(oplog.Knowledge, payloads(4)...)
	a.pump(r)
	b.write(oplog.Knowledge, payloads(20)...)
	rep, err := b.Pump(t.Context(), r)
	if !errors.Is(err, relay.ErrFull) || rep.Pulled != 4 || !rep.Acked {
		t.Errorf("pump with a full relay: %+v, %v", rep, err)
	}
	b.sameAsDisk()
}
