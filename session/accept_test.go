package session_test

import (
	"errors"
	"testing"
	"time"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/session"
)

// accept decides about the chain of another device as `log accept` does.
func (d *device) accept(op oplog.Op, link bool) {
	d.t.Helper()
	a := journal.Acceptance{Of: op.Device, Seq: op.Seq, ID: op.ID, Link: link, By: "test", Reason: "looked at it", WallMS: 1}
	for range 2 { // repeating it changes nothing
		if err := d.journal().Accept(d.t.Context(), a); err != nil {
			d.t.Fatal(err)
		}
	}
	if list, err := d.journal().Accepted(); err != nil || len(list) != 1 || list[0] != a {
		d.t.Fatalf("accepted %+v, %v", list, err)
	}
}

// parting gives b, which holds one branch of a's chain, and the device that wrote on the other, which the relay has. op is where b stopped.
func parting(t *testing.T) (b, other *device, op oplog.Op) {
	t.Helper()
	lost := collecting()
	fleet := newFleet(t, "a", "b")
	a, b := fleet[0], fleet[1]
	a.write(oplog.Knowledge, payloads(2)...)
	other = copyOf(t, a)
	other.wall.add(time.Hour)
	b.wall.add(time.Hour)
	a.write(oplog.Knowledge, `{"id":"only here 1"}`, `{"id":"only here 2"}`)
	pumpAll(lost, a, b)
	ops := other.write(oplog.Knowledge, `{"id":"there 1"}`, `{"id":"there 2"}`, `{"id":"there 3"}`, `{"id":"there 4"}`)
	return b, other, ops[2]
}

func TestAChainThatWasAcceptedAcrossABreakGoesOnAndACheckpointMakesItWhole(t *testing.T) {
	r := collecting()
	b, other, op := parting(t)
	other.pump(r)
	b.write(oplog.Knowledge, `{"id":"b"}`)
	if _, err := b.Pump(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if q := b.Status().Quarantined; len(q) != 1 || !q[0].Permanent || q[0].Seq != 4 {
		t.Fatalf("quarantined %+v, want a from op 4 on", q)
	}
	b.accept(op, true)
	check := func(when string) {
		t.Helper()
		if q, held := b.Status().Quarantined, b.FoldedFrontier()["a"]; len(q) != 0 || held.Seq < 5 {
			t.Errorf("%s: quarantined %+v, folded up to %d", when, q, held.Seq)
		}
		b.verify()
	}
	b.pump(r)
	check("accepted")
	b.open()
	check("opened again")
	other.write(oplog.Knowledge, `{"id":"there 5"}`)
	pumpAll(r, other, b)
	check("more came")
	if _, err := b.Publish(t.Context(), r); !errors.Is(err, session.ErrAccepted) {
		t.Errorf("b made a checkpoint of what only it holds: %v", err)
	}
	pumpAll(r, other, b, other)
	if !other.publish(r).New {
		t.Fatal("no checkpoint")
	}
	if adopted, ok, err := b.Rebase(t.Context(), r); err != nil || !ok || adopted.Proved {
		t.Fatalf("took %+v, %v, %v", adopted, ok, err)
	}
	other.write(oplog.Knowledge, `{"id":"there 6"}`)
	pumpAll(r, other, b, other)
	check("after the checkpoint")
	same(t, other, b)
	b.open()
	check("opened again")
	same(t, other, b)
	if !b.publish(r).New {
		t.Error("b makes no checkpoint though the break is covered")
	}
}

func TestOpsThatWereAcceptedAreFoldedBeforeTheirTimeAndMoveNoClock(t *testing.T) {
	r := collecting()
	fleet := newFleet(t, "a", "b", "c")
	a, b, c := fleet[0], fleet[1], fleet[2]
	a.wall.add(10 * 365 * 24 * time.Hour)
	ops := a.write(oplog.Knowledge, `{"id":"far"}`, `{"id":"farther"}`)
	pumpAll(r, a, b, c)
	if p := b.Status().Parked; len(p) != 1 || p[0].Ops != 2 {
		t.Fatalf("parked %+v", p)
	}
	for _, d := range []*device{b, c} {
		d.accept(ops[1], false)
		d.pump(r)
		if p := d.Status().Parked; len(p) != 0 || d.FoldedFrontier()["a"].Seq != 1 {
			t.Errorf("%s: parked %+v after it was accepted", d.name, p)
		}
	}
	ahead := a.write(oplog.Knowledge, `{"id":"not accepted"}`)
	pumpAll(r, a, b, c, a)
	if p := b.Status().Parked; len(p) != 1 || p[0].From != ahead[0].Seq {
		t.Errorf("what came later is parked as %+v", p)
	}
	if !b.publish(r).New {
		t.Fatal("no checkpoint of what all have folded")
	}
	for range 2 {
		if mine := b.write(oplog.Knowledge, `{"id":"now"}`); mine[0].HLC.WallMS > start.Add(time.Hour).UnixMilli() {
			t.Errorf("b writes at %s", time.UnixMilli(mine[0].HLC.WallMS))
		}
		b.open()
	}
	b.verify()
}
