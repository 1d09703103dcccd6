package coordtest

import (
	"errors"
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
)

func (e *env) theft(device string, epoch coord.Epoch) coord.Theft {
	return coord.Theft{Request: e.request(device), By: "ana", Reason: "host is gone", Epoch: epoch}
}

var people = []test{
	{"steal is refused while the holder lives, unless forced", func(e *env) {
		c, l := e.holder("d1")
		other := e.process("d2")
		theft := e.theft("d2", 1)
		_, err := other.Steal(e.ctx, theft)
		e.held(err, l)
		e.heldBy(other, l, false)
		theft.Force = true
		s, err := other.Steal(e.ctx, theft)
		e.ok(err)
		if s.Epoch != 2 || s.By != "ana" || s.Reason != "host is gone" || s.Handle == l.Handle {
			e.Errorf("stole %+v", s)
		}
		e.heldBy(other, s, false)
		if seen, _ := e.current(c); seen.By != "ana" || seen.Reason != "host is gone" {
			e.Errorf("Current shows %+v", seen)
		}
		_, err = c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.lost(err, 1, 2)
	}},
	{"steal takes an expired lease without force", func(e *env) {
		c, _ := e.holder("d1")
		e.gone(c)
		other := e.process("d2")
		s, err := other.Steal(e.ctx, e.theft("d2", 1))
		e.ok(err)
		if _, err := other.Renew(e.ctx, agent, "d2", s.Epoch, e.TTL); err != nil {
			e.Errorf("renew: %v", err)
		}
	}},
	{"steal judges the epoch that the person looked at", func(e *env) {
		c, _ := e.holder("d1")
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		l := e.acquire(c, "d1")
		theft := e.theft("d2", 1)
		theft.Force = true
		_, err := e.process("d2").Steal(e.ctx, theft)
		e.lost(err, 1, 2)
		e.heldBy(c, l, false)
	}},
	{"steal and evict need who and why", func(e *env) {
		c, l := e.holder("d1")
		for _, theft := range []coord.Theft{
			{Request: e.request("d2"), Reason: "x", Epoch: 1, Force: true},
			{Request: e.request("d2"), By: "x", Epoch: 1, Force: true},
		} {
			_, err := c.Steal(e.ctx, theft)
			e.is(err, coord.ErrInvalid)
			e.is(c.Evict(e.ctx, theft), coord.ErrInvalid)
		}
		e.heldBy(c, l, false)
	}},
	{"a robbed holder cannot begin", func(e *env) {
		c, l := e.holder("d1")
		theft := e.theft("d2", 1)
		theft.Force = true
		_, err := e.process("d2").Steal(e.ctx, theft)
		e.ok(err)
		e.refused(c, question(l, 1), coord.ErrNotHeld)
	}},
	{"evict takes the lease away and keeps the counter", func(e *env) {
		c, l := e.holder("d1")
		other := e.process("d2")
		theft := e.theft("d2", 1)
		e.held(other.Evict(e.ctx, theft), l)
		theft.Epoch, theft.Force = 2, true
		e.lost(other.Evict(e.ctx, theft), 2, 1)
		theft.Epoch = 1
		e.ok(other.Evict(e.ctx, theft))
		if seen, held := e.current(other); held || seen.Epoch != 1 {
			e.Errorf("Current gave %+v, %v", seen, held)
		}
		e.refused(c, question(l, 1), coord.ErrNotHeld)
		_, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.lost(err, 1, 1)
		if next := e.acquire(other, "d2"); next.Epoch != 2 {
			e.Errorf("epoch %d, want 2", next.Epoch)
		}
	}},
	{"evict of an expired holder needs no force", func(e *env) {
		c, _ := e.holder("d1")
		e.gone(c)
		e.ok(e.process("d2").Evict(e.ctx, e.theft("d2", 1)))
		if _, held := e.current(c); held {
			e.Error("still held")
		}
	}},
	{"a paused agent begins nothing until it is resumed", func(e *env) {
		c, l := e.holder("d1")
		at := time.Date(2026, 3, 1, 2, 3, 4, 0, time.UTC)
		e.ok(e.process("d2").Pause(e.ctx, agent, coord.Gate{By: "ana", Reason: "month end", At: at}))
		a, err := c.Begin(e.ctx, question(l, 1))
		g, ok := errors.AsType[*coord.GateError](err)
		if !ok || !errors.Is(err, coord.ErrPaused) || g.Gate.By != "ana" || g.Gate.Reason != "month end" || !g.Gate.At.Equal(at) || a.State == coord.Open {
			e.Fatalf("got %+v, %v", a, err)
		}
		v := e.shows(c, 1, coord.RunFree)
		if v.Paused == nil || v.Paused.Reason != "month end" || v.Recovery != nil {
			e.Errorf("Look shows gates %v, %v", v.Paused, v.Recovery)
		}
		if _, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL); err != nil {
			e.Errorf("a pause touches no lease: %v", err)
		}
		e.ok(c.Resume(e.ctx, agent))
		e.begin(c, l, 1)
	}},
	{"a pause stops no other agent", func(e *env) {
		c := e.process("d1")
		e.ok(c.Pause(e.ctx, "b", coord.Gate{By: "ana", Reason: "x"}))
		e.begin(c, e.acquire(c, "d1"), 1)
		e.ok(c.Resume(e.ctx, "never-paused"))
	}},
	{"under the recovery gate nothing begins anywhere", func(e *env) {
		c, l := e.holder("d1")
		gate := coord.Gate{By: "d9", Reason: "witness gone"}
		if _, set, err := c.Recovery(e.ctx); set || err != nil {
			e.Fatalf("recovery %v, %v", set, err)
		}
		e.ok(e.process("d9").SetRecovery(e.ctx, gate))
		e.ok(e.process("d8").SetRecovery(e.ctx, coord.Gate{By: "d8", Reason: "later"}))
		if g, set, err := c.Recovery(e.ctx); !set || err != nil || g.By != "d9" || g.Reason != "witness gone" {
			e.Errorf("recovery %+v, %v, %v, want the first one", g, set, err)
		}
		e.refused(c, question(l, 1), coord.ErrRecovery)
		if v := e.look(c, 1); v.Recovery == nil || v.Recovery.By != "d9" {
			e.Errorf("Look shows %v", v.Recovery)
		}
		_, _, err := e.process("d2").Start(e.ctx, coord.Request{Agent: "b", Device: "d2", TTL: e.TTL}, question(coord.Lease{}, 1))
		e.is(err, coord.ErrRecovery)
		e.ok(c.LiftRecovery(e.ctx, gate))
		e.begin(c, l, 1)
	}},
	{"what ended under a gate is recorded", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.ok(c.Pause(e.ctx, agent, coord.Gate{By: "ana", Reason: "x"}))
		e.ok(c.SetRecovery(e.ctx, coord.Gate{By: "ana", Reason: "x"}))
		e.finish(c, b, coord.Committed)
		e.shows(c, 1, coord.RunCommitted, coord.Committed)
	}},
	{"leases are listed in the order of their agents", func(e *env) {
		c := e.process("d1")
		ids := []string{"b", "a.b", "a", "a-b", "Z", "a0"}
		for _, id := range ids {
			_, err := c.Acquire(e.ctx, coord.Request{Agent: id, Device: "d1", TTL: e.TTL})
			e.ok(err)
		}
		e.ok(c.Release(e.ctx, "a0", "d1", 1))
		_, err := c.Acquire(e.ctx, coord.Request{Agent: "zero", Device: "d1"})
		e.ok(err)
		all, err := e.process("d2").Leases(e.ctx)
		e.ok(err)
		var got []string
		for _, l := range all {
			got = append(got, l.Agent)
			if l.Device != "d1" || l.Epoch != 1 || l.Expired != (l.Agent == "zero") {
				e.Errorf("listed %+v", l)
			}
		}
		if want := []string{"Z", "a", "a-b", "a.b", "b", "zero"}; !slices.Equal(got, want) {
			e.Errorf("listed %v, want %v", got, want)
		}
	}},
}
