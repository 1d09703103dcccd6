package coordtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/syncnode/syncnode/coord"
)

var leases = []test{
	{"the first grant is epoch 1 and shows what was granted", func(e *env) {
		c := e.process("d1")
		if l, held := e.current(c); held || l.Epoch != 0 || l.Agent != agent {
			e.Errorf("before any grant Current gave %+v, %v", l, held)
		}
		req := e.request("d1")
		req.Note = "run 7"
		before := time.Now()
		l, err := c.Acquire(e.ctx, req)
		e.ok(err)
		if l.Agent != agent || l.Device != "d1" || l.Epoch != 1 || l.TTL != e.TTL || l.Handle == "" || l.Liveness == "" || l.Expired || l.Jump != 0 || l.Note != "run 7" {
			e.Errorf("got %+v", l)
		}
		if l.Sent.IsZero() || e.Advance == nil && l.Sent.Before(before) {
			e.Errorf("sent at %v", l.Sent)
		}
		e.heldBy(c, l, false)
		seen, _ := e.current(e.process("d2"))
		if !seen.Sent.IsZero() || seen.Since.IsZero() || seen.Note != "run 7" || seen.Liveness != l.Liveness || seen.TTL != l.TTL {
			e.Errorf("another process sees %+v", seen)
		}
	}},
	{"a held lease is refused to everybody, its own holder too", func(e *env) {
		c, l := e.holder("d1")
		for _, other := range []struct {
			c      coord.Coordinator
			device string
		}{{c, "d1"}, {c, "d2"}, {e.process("d1"), "d1"}, {e.process("d2"), "d2"}} {
			got, err := other.c.Acquire(e.ctx, e.request(other.device))
			e.held(err, l)
			if got.Epoch != 0 {
				e.Errorf("refused, yet given %+v", got)
			}
		}
		e.heldBy(c, l, false)
	}},
	{"epochs are dense under contention and there is never a second holder", contend},
	{"a refused acquire spends no epoch", func(e *env) {
		c, l := e.holder("d1")
		other := e.process("d2")
		for range 3 {
			_, err := other.Acquire(e.ctx, e.request("d2"))
			e.held(err, l)
		}
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		if l := e.acquire(other, "d2"); l.Epoch != 2 {
			e.Errorf("epoch %d, want 2", l.Epoch)
		}
	}},
	{"renew keeps epoch and handle and moves the time of sending", func(e *env) {
		c, l := e.holder("d1")
		r, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.ok(err)
		if r.Epoch != 1 || r.Handle != l.Handle || r.Liveness != l.Liveness || r.TTL != e.TTL || r.Sent.Before(l.Sent) || r.Expired {
			e.Errorf("got %+v after %+v", r, l)
		}
	}},
	{"renew after expiry holds until somebody took it", func(e *env) {
		c, l := e.holder("d1")
		e.gone(c)
		e.heldBy(e.process("d2"), l, true)
		r, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.ok(err)
		if r.Epoch != 1 || r.Expired {
			e.Errorf("got %+v", r)
		}
		e.heldBy(c, l, false)
		_, err = e.process("d2").Acquire(e.ctx, e.request("d2"))
		e.held(err, l)

		e.gone(c)
		e.acquire(e.process("d3"), "d3")
		_, err = c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.lost(err, 1, 2)
		if lost, _ := errors.AsType[*coord.LostError](err); lost.Holder != "d3" {
			e.Errorf("lost to %q, want d3", lost.Holder)
		}
	}},
	{"an early end of the liveness costs no epoch of any agent that nobody stole", func(e *env) {
		c := e.process("d1")
		ids := []string{"a", "b", "c"}
		for _, id := range ids {
			_, err := c.Acquire(e.ctx, coord.Request{Agent: id, Device: "d1", TTL: e.TTL})
			e.ok(err)
		}
		e.gone(c)
		other := e.process("d2")
		if l, err := other.Acquire(e.ctx, coord.Request{Agent: "b", Device: "d2", TTL: e.TTL}); err != nil || l.Epoch != 2 {
			e.Fatalf("got %+v, %v", l, err)
		}
		for _, id := range ids {
			l, err := c.Renew(e.ctx, id, "d1", 1, e.TTL)
			if id == "b" {
				e.is(err, coord.ErrLost)
			} else if err != nil || l.Epoch != 1 {
				e.Errorf("agent %s: got %+v, %v", id, l, err)
			}
		}
		_, err := other.Acquire(e.ctx, coord.Request{Agent: "c", Device: "d2", TTL: e.TTL})
		e.is(err, coord.ErrHeld)
	}},
	{"an expired lease goes to who asks, and its old holder is lost", func(e *env) {
		c, l := e.holder("d1")
		e.gone(c)
		other := e.process("d2")
		next := e.acquire(other, "d2")
		if next.Epoch != 2 || next.Handle == l.Handle {
			e.Errorf("got %+v after %+v", next, l)
		}
		_, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.lost(err, 1, 2)
		e.lost(c.Release(e.ctx, agent, "d1", 1), 1, 2)
		e.heldBy(c, next, false)
	}},
	{"an expired holder may acquire anew, with the next epoch", func(e *env) {
		c, l := e.holder("d1")
		e.gone(c)
		if next := e.acquire(c, "d1"); next.Epoch != 2 || next.Handle == l.Handle {
			e.Errorf("got %+v", next)
		}
		_, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.lost(err, 1, 2)
	}},
	{"an expired holder is shown until it is replaced", func(e *env) {
		c, l := e.holder("d1")
		e.Crash(e.T, c)
		e.gone(c)
		other := e.process("d2")
		e.heldBy(other, l, true)
		e.heldBy(other, e.acquire(other, "d2"), false)
	}},
	{"a crashed holder keeps the lease until its liveness ran out", func(e *env) {
		c, l := e.holder("d1")
		e.Crash(e.T, c)
		other := e.process("d2")
		_, err := other.Acquire(e.ctx, e.request("d2"))
		e.held(err, l)
		e.gone(c)
		e.acquire(other, "d2")
	}},
	{"the lease runs out after its ttl and not before", func(e *env) {
		if e.Advance == nil {
			e.runsOut(2 * time.Second)
			return
		}
		c, l := e.holder("d1")
		other := e.process("d2")
		e.Advance(e.T, e.TTL/2)
		r, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.ok(err)
		if !r.Sent.After(l.Sent) {
			e.Errorf("renewed at %v after %v", r.Sent, l.Sent)
		}
		e.Advance(e.T, e.TTL-time.Second)
		_, err = other.Acquire(e.ctx, e.request("d2"))
		e.held(err, l)
		e.Advance(e.T, time.Second)
		e.acquire(other, "d2")
	}},
	{"release hands over at once and keeps the counter", func(e *env) {
		c, _ := e.holder("d1")
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		if l, held := e.current(c); held || l.Epoch != 1 || l.Device != "" {
			e.Errorf("after the release Current gave %+v, %v", l, held)
		}
		other, next := e.holder("d2")
		if next.Epoch != 2 {
			e.Errorf("epoch %d, want 2", next.Epoch)
		}
		e.ok(other.Release(e.ctx, agent, "d2", 2))
		if l := e.acquire(c, "d1"); l.Epoch != 3 {
			e.Errorf("epoch %d, want 3", l.Epoch)
		}
	}},
	{"release after expiry works until somebody took it", func(e *env) {
		c, _ := e.holder("d1")
		e.gone(c)
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		if _, held := e.current(c); held {
			e.Error("still held")
		}
	}},
	{"a second release never touches the next holder, nor the next grant of the same process", func(e *env) {
		c, _ := e.holder("d1")
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		next := e.acquire(c, "d1")
		e.lost(c.Release(e.ctx, agent, "d1", 1), 1, 2)
		e.heldBy(c, next, false)
	}},
	{"a claim that never was right is lost and says what is current", func(e *env) {
		c := e.process("d1")
		_, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.lost(err, 1, 0)
		e.lost(c.Release(e.ctx, agent, "d1", 7), 7, 0)
		l := e.acquire(c, "d1")
		_, err = c.Renew(e.ctx, agent, "d1", 2, e.TTL)
		e.lost(err, 2, 1)
		_, err = c.Renew(e.ctx, agent, "d2", 1, e.TTL)
		e.lost(err, 1, 1)
		e.lost(c.Release(e.ctx, agent, "d2", 1), 1, 1)
		e.heldBy(c, l, false)
	}},
	{"ttl 0 is granted and can be stolen at once", func(e *env) {
		c := e.process("d1")
		l, err := c.Acquire(e.ctx, coord.Request{Agent: agent, Device: "d1"})
		e.ok(err)
		if l.Epoch != 1 || l.TTL != 0 || l.Liveness != "" || l.Handle == "" {
			e.Errorf("got %+v", l)
		}
		e.heldBy(c, l, true)
		if r, err := c.Renew(e.ctx, agent, "d1", 1, 0); err != nil || r.Epoch != 1 || r.TTL != 0 {
			e.Errorf("renewed %+v, %v", r, err)
		}
		if next := e.acquire(e.process("d2"), "d2"); next.Epoch != 2 {
			e.Errorf("epoch %d, want 2", next.Epoch)
		}
		_, err = c.Renew(e.ctx, agent, "d1", 1, 0)
		e.lost(err, 1, 2)
	}},
	{"renew may move the lease to another ttl", func(e *env) {
		c, l := e.holder("d1")
		class := 30 * time.Second
		r, err := c.Renew(e.ctx, agent, "d1", 1, class)
		e.ok(err)
		if r.TTL != class || r.Epoch != 1 || r.Liveness == l.Liveness {
			e.Errorf("got %+v after %+v", r, l)
		}
		if seen, _ := e.current(e.process("d2")); seen.TTL != class || seen.Liveness != r.Liveness || seen.Expired {
			e.Errorf("Current shows %+v", seen)
		}
	}},
	{"a ttl is rounded up to its class and refused above the greatest", func(e *env) {
		c := e.process("d1")
		l, err := c.Acquire(e.ctx, coord.Request{Agent: agent, Device: "d1", TTL: e.TTL - time.Millisecond})
		e.ok(err)
		if l.TTL != e.TTL {
			e.Errorf("granted %s, want %s", l.TTL, e.TTL)
		}
		_, err = c.Acquire(e.ctx, coord.Request{Agent: "b", Device: "d1", TTL: coord.MaxTTL + 1})
		e.is(err, coord.ErrInvalid)
		_, err = c.Renew(e.ctx, agent, "d1", 1, -1)
		e.is(err, coord.ErrInvalid)
	}},
	{"a floor lifts the epoch, and the lease shows the jump", func(e *env) {
		c := e.process("d1")
		req := e.request("d1")
		req.Floor = 41
		l, err := c.Acquire(e.ctx, req)
		e.ok(err)
		if l.Epoch != 42 || l.Jump != 41 {
			e.Errorf("got epoch %d, jump %d", l.Epoch, l.Jump)
		}
		e.ok(c.Release(e.ctx, agent, "d1", 42))
		req.Floor = 7
		if l, err = c.Acquire(e.ctx, req); err != nil || l.Epoch != 43 || l.Jump != 0 {
			e.Errorf("got %+v, %v", l, err)
		}
	}},
	{"a floor too far up is refused and spends nothing", func(e *env) {
		c := e.process("d1")
		for _, floor := range []coord.Epoch{coord.MaxFloorJump + 1, coord.MaxFloor + 1, coord.MaxEpoch} {
			req := e.request("d1")
			req.Floor = floor
			_, err := c.Acquire(e.ctx, req)
			f, ok := errors.AsType[*coord.FloorError](err)
			if !ok || !errors.Is(err, coord.ErrFloor) || f.Floor != floor || f.Stored != 0 {
				e.Fatalf("floor %d: got %v", floor, err)
			}
		}
		req := e.request("d1")
		req.Floor = coord.MaxFloorJump
		if l, err := c.Acquire(e.ctx, req); err != nil || l.Epoch != coord.MaxFloorJump+1 {
			e.Errorf("got %+v, %v", l, err)
		}
	}},
	{"the longest ids work, and no two agents share a lease", func(e *env) {
		c := e.process("d1")
		device := strings.Repeat("d", 128)
		for _, id := range []string{strings.Repeat("x", 128), strings.Repeat("x", 127), "x", "x.y", "x-y", "X", "holder", "epoch"} {
			l, err := c.Acquire(e.ctx, coord.Request{Agent: id, Device: device, TTL: e.TTL})
			if err != nil || l.Epoch != 1 {
				e.Fatalf("agent %.20s: %+v, %v", id, l, err)
			}
		}
	}},
	{"close gives up what the process holds", func(e *env) {
		c, l := e.holder("d1")
		e.ok(c.Close(e.ctx))
		other := e.process("d2")
		e.heldBy(other, l, true)
		if next := e.acquire(other, "d2"); next.Epoch != 2 {
			e.Errorf("epoch %d, want 2", next.Epoch)
		}
	}},
	{"a call whose context has ended gives an error and no grant", func(e *env) {
		c := e.process("d1")
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		l, err := c.Acquire(ctx, e.request("d1"))
		if err == nil || l.Epoch != 0 {
			e.Errorf("got %+v, %v", l, err)
		}
		if !errors.Is(err, coord.ErrNotSent) && !errors.Is(err, coord.ErrIndeterminate) {
			e.Errorf("got %v, which does not say whether it happened", err)
		}
		e.ok(c.Release(e.ctx, agent, "d1", 0))
	}},
	{"all processes see one generation", func(e *env) {
		c := e.process("d1")
		g := c.Generation()
		if len(g) != 32 || strings.Trim(g, "0123456789abcdef") != "" {
			e.Errorf("generation %q is not 32 hex digits", g)
		}
		if other := e.process("d2").Generation(); other != g {
			e.Errorf("another process sees %q, not %q", other, g)
		}
	}},
}

// A race is a contest for the lease of one agent: what the contenders share.
type race struct {
	mu     sync.Mutex
	epochs []coord.Epoch
	freed  chan struct{} // closed when the holder released
	inside atomic.Int32
}

func (r *race) next() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freed
}

func (r *race) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.freed)
	r.freed = make(chan struct{})
}

// turn takes the lease once and gives it back. A loser waits until it is free and then asks with all others.
func (r *race) turn(e *env, c coord.Coordinator, device string) error {
	for {
		freed := r.next() // before asking
		l, err := c.Acquire(e.ctx, e.request(device))
		if errors.Is(err, coord.ErrHeld) {
			select {
			case <-freed:
				continue
			case <-e.ctx.Done():
				return e.ctx.Err()
			}
		}
		if err != nil {
			return err
		}
		if in := r.inside.Add(1); in != 1 {
			e.Errorf("%d holders at epoch %d", in, l.Epoch)
		}
		r.mu.Lock()
		r.epochs = append(r.epochs, l.Epoch)
		r.mu.Unlock()
		r.inside.Add(-1)
		err = c.Release(e.ctx, agent, device, l.Epoch)
		r.free()
		return err
	}
}

// contend lets the processes take the lease in turn. A counter that only the holder touches shows a second one.
func contend(e *env) {
	r := &race{freed: make(chan struct{})}
	var wg sync.WaitGroup
	for n := range e.Contenders {
		device := fmt.Sprintf("d%d", n)
		c := e.process(device)
		wg.Go(func() {
			for range e.Rounds {
				if err := r.turn(e, c, device); err != nil {
					e.Errorf("%s: %v", device, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if want := e.Contenders * e.Rounds; len(r.epochs) != want {
		e.Fatalf("%d grants, want %d", len(r.epochs), want)
	}
	for i, epoch := range r.epochs {
		if epoch != coord.Epoch(i+1) {
			e.Fatalf("grant %d has epoch %d", i+1, epoch)
		}
	}
}

// runsOut is for a backend whose clock is the real one: a lease that nobody renews is another's in the end, and not before its time.
func (e *env) runsOut(ttl time.Duration) {
	e.Helper()
	first, next := e.request("d1"), e.request("d2")
	first.TTL, next.TTL = ttl, ttl
	l, err := e.process("d1").Acquire(e.ctx, first)
	e.ok(err)
	other := e.process("d2")
	for {
		_, err := other.Acquire(e.ctx, next)
		if err == nil {
			break
		}
		e.held(err, l)
		select {
		case <-e.ctx.Done():
			e.Fatalf("never ran out: %v", context.Cause(e.ctx))
		case <-time.After(20 * time.Millisecond): // between two looks
		}
	}
	if after := time.Since(l.Sent); after < ttl {
		e.Errorf("it ran out after %s of %s", after, ttl)
	}
}
