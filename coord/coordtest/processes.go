package coordtest

import (
	"sync"
	"sync/atomic"

	"github.com/syncnode/syncnode/coord"
)

// Two processes may carry one device id: a restart beside a living predecessor, or a clone.
var processes = []test{
	{"a restart beside a living predecessor gets nothing", func(e *env) {
		c, l := e.holder("d1")
		twin := e.process("d1")
		_, err := twin.Acquire(e.ctx, e.request("d1"))
		e.held(err, l)
		_, err = twin.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.held(err, l)
		e.held(twin.Release(e.ctx, agent, "d1", 1), l)
		e.heldBy(c, l, false)
		e.begin(c, l, 1)
	}},
	{"a restart after expiry, without proof, goes on with a new epoch only", func(e *env) {
		c, l := e.holder("d1")
		e.gone(c)
		twin := e.process("d1")
		_, err := twin.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.lost(err, 1, 1)
		e.lost(twin.Release(e.ctx, agent, "d1", 1), 1, 1)
		e.heldBy(twin, l, true)
		if next := e.acquire(twin, "d1"); next.Epoch != 2 {
			e.Errorf("epoch %d, want 2", next.Epoch)
		}
		_, err = c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.lost(err, 1, 2)
		e.refused(c, question(l, 1), coord.ErrStale)
	}},
	{"a restart keeps the epoch with proof that its predecessor is dead", func(e *env) {
		if e.Prove == nil {
			e.Skip("this backend knows no proof of death")
		}
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.Crash(e.T, c)
		e.Prove(e.T, c)
		twin := e.process("d1")
		r, err := twin.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.ok(err)
		if r.Epoch != 1 || r.Handle == l.Handle || r.Liveness == l.Liveness {
			e.Errorf("got %+v after %+v", r, l)
		}
		e.heldBy(twin, r, false)
		e.refused(twin, question(l, 2), coord.ErrStale)
		e.begin(twin, r, 2)
		e.gone(c)
		e.heldBy(twin, r, false)
		e.refused(twin, question(r, 1), coord.ErrInDoubt)
		b.Lease = r
		e.refused(twin, b, coord.ErrInDoubt)
	}},
	{"a restart releases with proof that its predecessor is dead", func(e *env) {
		if e.Prove == nil {
			e.Skip("this backend knows no proof of death")
		}
		c, _ := e.holder("d1")
		e.Crash(e.T, c)
		e.Prove(e.T, c)
		twin := e.process("d1")
		e.ok(twin.Release(e.ctx, agent, "d1", 1))
		if _, held := e.current(twin); held {
			e.Error("still held")
		}
	}},
	{"a clone cannot begin with its twin's lease, though Current shows it", func(e *env) {
		c, l := e.holder("d1")
		twin := e.process("d1")
		seen, _ := e.current(twin)
		if seen.Handle != l.Handle {
			e.Fatalf("Current shows handle %q, want %q", seen.Handle, l.Handle)
		}
		e.refused(twin, question(seen, 1), coord.ErrStale)
		e.shows(c, 1, coord.RunFree)
		e.begin(c, l, 1)
	}},
	{"a clone never gets yes to its twin's own question", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		twin := e.process("d1")
		e.refused(twin, b, coord.ErrInDoubt)
		e.shows(c, 1, coord.RunRunning, coord.Open)
		e.gone(c)
		e.refused(twin, b, coord.ErrInDoubt)
		b.Lease = e.acquire(twin, "d1")
		e.refused(twin, b, coord.ErrInDoubt)
		e.shows(c, 1, coord.RunInDoubt, coord.Open)
	}},
	{"processes of one device share no liveness", func(e *env) {
		c, l := e.holder("d1")
		twin := e.process("d1")
		other, err := twin.Acquire(e.ctx, coord.Request{Agent: "b", Device: "d1", TTL: e.TTL})
		e.ok(err)
		if other.Liveness == l.Liveness {
			e.Fatalf("both have %q", l.Liveness)
		}
		e.Crash(e.T, c)
		e.gone(c)
		e.heldBy(twin, l, true)
		if seen, _, err := twin.Current(e.ctx, "b"); err != nil || seen.Expired {
			e.Errorf("the twin's lease: %+v, %v", seen, err)
		}
		_, err = twin.Renew(e.ctx, "b", "d1", 1, e.TTL)
		e.ok(err)
		e.heldBy(twin, l, true)
	}},
	{"one process revived and one that took its lease: only the latter can begin", func(e *env) {
		c, l := e.holder("d1")
		_, err := c.Acquire(e.ctx, coord.Request{Agent: "b", Device: "d1", TTL: e.TTL})
		e.ok(err)
		e.gone(c)
		twin := e.process("d1")
		next := e.acquire(twin, "d1")
		_, err = c.Renew(e.ctx, "b", "d1", 1, e.TTL)
		e.ok(err)
		e.refused(c, question(l, 1), coord.ErrStale)
		e.begin(twin, next, 1)
	}},
	{"of many that begin one run at once exactly one may", func(e *env) {
		c, l := e.holder("d1")
		var yes atomic.Int32
		var wg sync.WaitGroup
		for range e.Contenders {
			wg.Go(func() {
				if a, err := c.Begin(e.ctx, question(l, 1)); err == nil && a.State == coord.Open {
					yes.Add(1)
				}
			})
		}
		wg.Wait()
		if yes.Load() != 1 {
			e.Errorf("%d were allowed", yes.Load())
		}
		e.shows(c, 1, coord.RunRunning, coord.Open)
	}},
	{"of many that start one run at once exactly one may", func(e *env) {
		var yes atomic.Int32
		var wg sync.WaitGroup
		for range e.Contenders {
			c := e.process("d1")
			wg.Go(func() {
				if _, a, err := c.Start(e.ctx, e.request("d1"), question(coord.Lease{}, 1)); err == nil && a.State == coord.Open {
					yes.Add(1)
				}
			})
		}
		wg.Wait()
		if yes.Load() != 1 {
			e.Errorf("%d were allowed", yes.Load())
		}
	}},
}
