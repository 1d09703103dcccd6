package coordtest

import (
	"context"
	"errors"
	"slices"

	"github.com/syncnode/syncnode/coord"
)

// once is a plan with one fault at the first call of op.
func once(op string, fault Fault) func(string) Fault {
	done := false
	return func(asked string) Fault {
		if done || asked != op {
			return Fine
		}
		done = true
		return fault
	}
}

// call is one operation under a fault.
type call struct {
	op string
	// ready makes the state that it starts from, through a coordinator without faults, and gives the call,
	// which says whether its answer is a permission, and a check that it was carried out exactly once.
	ready func(e *env, c coord.Coordinator) (send func(coord.Coordinator) (bool, error), check func())
}

// faults holds for each operation what each fault does to it.
var faults = slices.Concat(faulty(), givenUp, readsFail)

func faulty() (tests []test) {
	for _, one := range calls {
		for fault, text := range map[Fault]string{Before: "lost on its way", After: "whose answer is lost", Twice: "that arrives twice", Late: "that arrives late"} {
			tests = append(tests, test{one.op + " " + text + " is no permission, and the same request settles it", func(e *env) { one.run(e, fault, false) }})
		}
		tests = append(tests, test{one.op + " whose straggler arrives after it was settled changes nothing more", func(e *env) { one.run(e, Late, true) }})
	}
	slices.SortFunc(tests, func(a, b test) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return tests
}

func (one call) run(e *env, fault Fault, settleFirst bool) {
	c := e.process("d1")
	send, check := one.ready(e, c)
	f := Faulty(c, once(one.op, fault))
	yes, err := send(f)
	want := map[Fault]error{Before: coord.ErrNotSent, After: coord.ErrIndeterminate, Late: coord.ErrIndeterminate}[fault]
	if want == nil {
		e.ok(err)
	} else if e.is(err, want); yes {
		e.Fatal("an error came with a permission")
	}
	if !settleFirst {
		f.Deliver()
	}
	yes, err = send(f)
	if fault != Twice && errors.Is(err, coord.ErrLost) && one.op == "Release" {
		err, yes = nil, true // it is settled: not ours any more
	}
	if fault != Twice { // the request of a call that was answered is a new one
		e.ok(err)
		if !yes {
			e.Error("settled without the answer")
		}
	}
	check()
	f.Deliver()
	check()
}

var calls = []call{
	{"Acquire", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		var got coord.Lease
		return func(c coord.Coordinator) (bool, error) {
				l, err := c.Acquire(e.ctx, e.request("d1"))
				if err == nil {
					got = l
				}
				return l.Epoch > 0, err
			}, func() {
				e.heldBy(c, got, false)
				if got.Epoch != 1 {
					e.Errorf("epoch %d, want 1", got.Epoch)
				}
			}
	}},
	{"Renew", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		l := e.acquire(c, "d1")
		return func(c coord.Coordinator) (bool, error) {
			r, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
			return r.Epoch > 0, err
		}, func() { e.heldBy(c, l, false) }
	}},
	{"Release", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		e.acquire(c, "d1")
		return func(c coord.Coordinator) (bool, error) {
				err := c.Release(e.ctx, agent, "d1", 1)
				return err == nil, err
			}, func() {
				other := e.process("d2")
				next, held := e.current(other)
				if !held {
					next = e.acquire(other, "d2")
				}
				if next.Epoch != 2 || next.Device != "d2" {
					e.Errorf("next holder %+v", next)
				}
			}
	}},
	{"Steal", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		e.acquire(e.process("d2"), "d2")
		theft := e.theft("d1", 1)
		theft.Force = true
		var got coord.Lease
		return func(c coord.Coordinator) (bool, error) {
				l, err := c.Steal(e.ctx, theft)
				if err == nil {
					got = l
				}
				return l.Epoch > 0, err
			}, func() {
				e.heldBy(c, got, false)
				if got.Epoch != 2 {
					e.Errorf("epoch %d, want 2", got.Epoch)
				}
			}
	}},
	{"Begin", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		b := question(e.acquire(c, "d1"), 1)
		return func(c coord.Coordinator) (bool, error) {
			a, err := c.Begin(e.ctx, b)
			return a.State == coord.Open, err
		}, func() { e.shows(c, 1, coord.RunRunning, coord.Open) }
	}},
	{"Cancel", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		b, _ := e.begin(c, e.acquire(c, "d1"), 1)
		return func(c coord.Coordinator) (bool, error) {
			err := c.Cancel(e.ctx, b)
			return err == nil, err
		}, func() { e.shows(c, 1, coord.RunFree, coord.Void) }
	}},
	{"Finish", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		b, _ := e.begin(c, e.acquire(c, "d1"), 1)
		return func(c coord.Coordinator) (bool, error) {
			err := c.Finish(e.ctx, ended(b, coord.Failed))
			return err == nil, err
		}, func() { e.shows(c, 1, coord.RunFailed, coord.Failed) }
	}},
	{"Resolve", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		b, _ := e.begin(c, e.acquire(c, "d1"), 1)
		e.gone(c)
		return func(c coord.Coordinator) (bool, error) {
			v, err := c.Resolve(e.ctx, resolution(b, coord.Void))
			return v.State == coord.RunFree, err
		}, func() { e.shows(c, 1, coord.RunFree, coord.Void) }
	}},
	{"Permit", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		b := e.ran(c, e.acquire(c, "d1"), 1, coord.Failed)
		return func(c coord.Coordinator) (bool, error) {
			v, err := c.Permit(e.ctx, resolution(b, ""))
			return v.State == coord.RunFree, err
		}, func() { e.shows(c, 1, coord.RunFree, coord.Failed) }
	}},
	{"Start", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		b := question(coord.Lease{}, 1)
		var got coord.Lease
		return func(c coord.Coordinator) (bool, error) {
				l, a, err := c.Start(e.ctx, e.request("d1"), b)
				if err == nil {
					got = l
				}
				return l.Epoch > 0 || a.State == coord.Open, err
			}, func() {
				e.heldBy(c, got, false)
				e.shows(c, 1, coord.RunRunning, coord.Open)
				if got.Epoch != 1 {
					e.Errorf("epoch %d, want 1", got.Epoch)
				}
			}
	}},
	{"Complete", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		b, l := e.start(c, "d1", 1)
		return func(c coord.Coordinator) (bool, error) {
				finished, released := c.Complete(e.ctx, ended(b, coord.Committed), l)
				return finished == nil || released == nil, errors.Join(finished, released)
			}, func() {
				e.shows(c, 1, coord.RunCommitted, coord.Committed)
				if _, held := e.current(c); held {
					e.Error("still held")
				}
			}
	}},
	{"Evict", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		evicted, l := e.holder("d2")
		theft := e.theft("d1", 1)
		theft.Force = true
		return func(c coord.Coordinator) (bool, error) {
				err := c.Evict(e.ctx, theft)
				return err == nil, err
			}, func() {
				e.refused(evicted, question(l, 1), coord.ErrNotHeld)
				next, held := e.current(c)
				if !held {
					next = e.acquire(c, "d1")
				}
				if next.Epoch != 2 || next.Device != "d1" {
					e.Errorf("next holder %+v", next)
				}
			}
	}},
	{"Pause", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		l := e.acquire(c, "d1")
		return func(c coord.Coordinator) (bool, error) {
			err := c.Pause(e.ctx, agent, coord.Gate{By: "ana", Reason: "x"})
			return err == nil, err
		}, func() { e.refused(c, question(l, 1), coord.ErrPaused) }
	}},
	{"Resume", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		l := e.acquire(c, "d1")
		e.ok(c.Pause(e.ctx, agent, coord.Gate{By: "ana", Reason: "x"}))
		n := 0
		return func(c coord.Coordinator) (bool, error) {
			err := c.Resume(e.ctx, agent)
			return err == nil, err
		}, func() { n++; e.begin(c, l, n) }
	}},
	{"SetRecovery", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		l := e.acquire(c, "d1")
		return func(c coord.Coordinator) (bool, error) {
			err := c.SetRecovery(e.ctx, coord.Gate{By: "ana", Reason: "x"})
			return err == nil, err
		}, func() { e.refused(c, question(l, 1), coord.ErrRecovery) }
	}},
	{"LiftRecovery", func(e *env, c coord.Coordinator) (func(coord.Coordinator) (bool, error), func()) {
		l := e.acquire(c, "d1")
		e.ok(c.SetRecovery(e.ctx, coord.Gate{By: "ana", Reason: "x"}))
		g, _, err := c.Recovery(e.ctx)
		e.ok(err)
		lifted := false
		return func(c coord.Coordinator) (bool, error) {
				err := c.LiftRecovery(e.ctx, g)
				return err == nil, err
			}, func() {
				if !lifted { // and then a later gate is set, which nothing lifts
					e.begin(c, l, 1)
					e.ok(c.SetRecovery(e.ctx, coord.Gate{By: "ben", Reason: "y"}))
				}
				lifted = true
				e.refused(c, question(l, 2), coord.ErrRecovery)
			}
	}},
}

var givenUp = []test{
	{"a grant given up is held by nobody, whenever it arrives", func(e *env) {
		for _, fault := range []Fault{Before, After, Late} {
			c := e.process("d1")
			f := Faulty(c, once("Acquire", fault))
			_, err := f.Acquire(e.ctx, e.request("d1"))
			if err == nil {
				e.Fatal("no fault")
			}
			e.ok(f.Release(e.ctx, agent, "d1", 0))
			f.Deliver()
			if l, held := e.current(c); held {
				e.Errorf("held: %+v", l)
			}
		}
	}},
	{"a begin given up is void, whenever it arrives", func(e *env) {
		c, l := e.holder("d1")
		for n, fault := range []Fault{Before, After, Late} {
			f := Faulty(c, once("Begin", fault))
			b := question(l, n)
			if _, err := f.Begin(e.ctx, b); err == nil {
				e.Fatal("no fault")
			}
			e.ok(f.Cancel(e.ctx, b))
			f.Deliver()
			e.shows(c, n, coord.RunFree, coord.Void)
			e.refused(c, b, coord.ErrClosed)
		}
	}},
	{"a start given up leaves neither lease nor attempt, whenever it arrives", func(e *env) {
		for n, fault := range []Fault{Before, After, Late} {
			c := e.process("d1")
			f := Faulty(c, once("Start", fault))
			b := question(coord.Lease{Agent: agent, Device: "d1"}, n)
			if _, _, err := f.Start(e.ctx, e.request("d1"), b); err == nil {
				e.Fatal("no fault")
			}
			e.ok(f.Cancel(e.ctx, b))
			e.ok(f.Release(e.ctx, agent, "d1", 0))
			f.Deliver()
			e.shows(c, n, coord.RunFree, coord.Void)
			if l, held := e.current(c); held {
				e.Errorf("held: %+v", l)
			}
		}
	}},
	{"an eviction given up takes nothing from the next holder, whenever it arrives", func(e *env) {
		for n, fault := range []Fault{Before, After, Late} {
			c, l := e.holder("d1")
			theft := e.theft("d2", l.Epoch)
			theft.Force = true
			f := Faulty(e.process("d2"), once("Evict", fault))
			if f.Evict(e.ctx, theft) == nil {
				e.Fatal("no fault")
			}
			if fault != After {
				e.ok(c.Release(e.ctx, agent, "d1", l.Epoch))
			}
			next := e.acquire(c, "d1")
			f.Deliver()
			e.heldBy(c, next, false)
			e.begin(c, next, n)
			e.ok(c.Release(e.ctx, agent, "d1", next.Epoch))
		}
	}},
	{"a call whose context ended before it does nothing later", func(e *env) {
		c, l := e.holder("d1")
		e.ok(c.Pause(e.ctx, agent, coord.Gate{By: "ana", Reason: "x"}))
		e.ok(c.SetRecovery(e.ctx, coord.Gate{By: "ana", Reason: "x"}))
		theft := e.theft("d1", l.Epoch)
		theft.Force = true
		over, cancel := context.WithCancel(e.ctx)
		cancel()
		e.is(c.Resume(over, agent), coord.ErrNotSent)
		e.is(c.LiftRecovery(over, coord.Gate{By: "ana", Reason: "x"}), coord.ErrNotSent)
		e.is(c.Evict(over, theft), coord.ErrNotSent)
		e.heldBy(c, l, false)
		e.refused(c, question(l, 1), coord.ErrRecovery)
		e.ok(c.LiftRecovery(e.ctx, coord.Gate{By: "ana", Reason: "x"}))
		e.refused(c, question(l, 1), coord.ErrPaused)
	}},
	{"giving up what was never asked for touches nothing", func(e *env) {
		c, l := e.holder("d1")
		e.ok(e.process("d1").Release(e.ctx, agent, "d1", 0))
		e.ok(c.Release(e.ctx, agent, "d1", 0))
		e.heldBy(c, l, false)
	}},
	{"every straggler of an earlier grant is harmless under a later one", func(e *env) {
		c, l := e.holder("d1")
		late := Faulty(c, func(string) Fault { return Late })
		b := question(l, 1)
		_, _ = late.Begin(e.ctx, b)
		_, _ = late.Renew(e.ctx, agent, "d1", 1, e.TTL)
		_ = late.Release(e.ctx, agent, "d1", 1)
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		next := e.acquire(c, "d1")
		late.Deliver()
		e.heldBy(c, next, false)
		e.shows(c, 1, coord.RunFree)
		e.begin(c, next, 1)
	}},
}

var readsFail = []test{
	{"a read without an answer shows nothing", func(e *env) {
		c, l := e.holder("d1")
		e.ran(c, l, 1, coord.Committed)
		e.ok(c.SetRecovery(e.ctx, coord.Gate{By: "ana", Reason: "x"}))
		for _, fault := range []Fault{Before, After, Late} {
			f := Faulty(c, func(string) Fault { return fault })
			cur, held, err := f.Current(e.ctx, agent)
			e.is(err, coord.ErrNotSent)
			v, err := f.Look(e.ctx, coord.Question{Agent: agent, Run: runID(1)})
			e.is(err, coord.ErrNotSent)
			p, err := f.List(e.ctx, coord.Filter{})
			e.is(err, coord.ErrNotSent)
			all, err := f.Leases(e.ctx)
			e.is(err, coord.ErrNotSent)
			_, set, err := f.Recovery(e.ctx)
			e.is(err, coord.ErrNotSent)
			if held || cur.Epoch != 0 || v.State != "" || len(p.Views) != 0 || len(all) != 0 || set {
				e.Errorf("got %+v, %v, %+v, %+v, %+v, %v", cur, held, v, p, all, set)
			}
		}
	}},
}
