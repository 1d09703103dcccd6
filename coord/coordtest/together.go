package coordtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
)

func (e *env) start(c coord.Coordinator, device string, n int) (coord.Begin, coord.Lease) {
	e.Helper()
	b := question(coord.Lease{}, n)
	l, a, err := c.Start(e.ctx, e.request(device), b)
	e.ok(err)
	if a.ID != b.Attempt || a.State != coord.Open || a.Epoch != l.Epoch || l.Device != device || a.Device != device {
		e.Fatalf("started %+v under %+v", a, l)
	}
	b.Lease = l
	return b, l
}

var together = []test{
	{"start grants and begins in one step", func(e *env) {
		c := e.process("d1")
		b, l := e.start(c, "d1", 1)
		e.heldBy(c, l, false)
		v := e.shows(c, 1, coord.RunRunning, coord.Open)
		if a := v.Entry.Attempts[0]; a.Liveness != l.Liveness || a.Request != b.Request {
			e.Errorf("got %+v", a)
		}
		e.begin(c, l, 2)
		if r, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL); err != nil || r.Handle != l.Handle {
			e.Errorf("renewed %+v, %v", r, err)
		}
	}},
	{"start under a held lease does neither", func(e *env) {
		_, l := e.holder("d1")
		other := e.process("d2")
		_, _, err := other.Start(e.ctx, e.request("d2"), question(coord.Lease{}, 1))
		e.held(err, l)
		e.shows(other, 1, coord.RunFree)
	}},
	{"start of a run that may not begin does neither", func(e *env) {
		c, l := e.holder("d1")
		e.ran(c, l, 1, coord.Committed)
		e.ran(c, l, 2, coord.Failed)
		e.begin(c, l, 3)
		e.gone(c)
		other := e.process("d2")
		for n, want := range map[int]error{1: coord.ErrCommitted, 2: coord.ErrFailed, 3: coord.ErrInDoubt} {
			_, _, err := other.Start(e.ctx, e.request("d2"), question(coord.Lease{}, n))
			e.is(err, want)
		}
		e.heldBy(other, l, true)
	}},
	{"start tells about a run that is done though the lease is held", func(e *env) {
		c, l := e.holder("d1")
		e.ran(c, l, 1, coord.Committed)
		e.begin(c, l, 2)
		other := e.process("d2")
		for n, want := range map[int]error{1: coord.ErrCommitted, 2: coord.ErrInProgress} {
			_, _, err := other.Start(e.ctx, e.request("d2"), question(coord.Lease{}, n))
			e.is(err, want)
		}
	}},
	{"start refuses a floor too far up and does neither", func(e *env) {
		c := e.process("d1")
		req := e.request("d1")
		req.Floor = coord.MaxFloorJump + 1
		_, _, err := c.Start(e.ctx, req, question(coord.Lease{}, 1))
		e.is(err, coord.ErrFloor)
		e.shows(c, 1, coord.RunFree)
		if l, held := e.current(c); held || l.Epoch != 0 {
			e.Errorf("got %+v, %v", l, held)
		}
	}},
	{"start repeated gives the grant and the attempt of the first time", func(e *env) {
		c := e.process("d1")
		b, l := e.start(c, "d1", 1)
		again, a, err := c.Start(e.ctx, e.request("d1"), b)
		e.ok(err)
		if again.Epoch != 1 || again.Handle != l.Handle || a.ID != b.Attempt {
			e.Errorf("got %+v, %+v", again, a)
		}
		_, _, err = e.process("d1").Start(e.ctx, e.request("d1"), b)
		e.is(err, coord.ErrInDoubt)
		e.shows(c, 1, coord.RunRunning, coord.Open)
	}},
	{"start repeated after the lease was lost is no permission", func(e *env) {
		c := e.process("d1")
		b, _ := e.start(c, "d1", 1)
		e.gone(c)
		e.acquire(e.process("d2"), "d2")
		_, _, err := c.Start(e.ctx, e.request("d1"), b)
		e.is(err, coord.ErrLost)
	}},
	{"a start given up leaves no attempt", func(e *env) {
		c := e.process("d1")
		b, l := e.start(c, "d1", 1)
		e.ok(c.Cancel(e.ctx, b))
		e.shows(c, 1, coord.RunFree, coord.Void)
		e.heldBy(c, l, false)
		never := question(coord.Lease{Agent: agent, Device: "d1"}, 2)
		e.ok(c.Cancel(e.ctx, never))
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		_, _, err := c.Start(e.ctx, e.request("d1"), never)
		e.is(err, coord.ErrClosed)
		if _, held := e.current(c); held {
			e.Error("held after a refused start")
		}
	}},
	{"start retries a doubt", func(e *env) {
		c := e.process("d1")
		doubt, _ := e.start(c, "d1", 1)
		e.Crash(e.T, c)
		e.gone(c)
		retry := question(coord.Lease{}, 1)
		retry.Retry = doubt.Attempt
		l, _, err := e.process("d2").Start(e.ctx, e.request("d2"), retry)
		e.ok(err)
		if l.Epoch != 2 {
			e.Errorf("epoch %d, want 2", l.Epoch)
		}
		e.shows(e.process("d3"), 1, coord.RunRunning, coord.Failed, coord.Open)
	}},
	{"complete records and hands over", func(e *env) {
		c := e.process("d1")
		b, l := e.start(c, "d1", 1)
		for range 2 {
			finished, released := c.Complete(e.ctx, ended(b, coord.Committed), l)
			e.ok(finished)
			e.ok(released)
			e.shows(c, 1, coord.RunCommitted, coord.Committed)
			if _, held := e.current(c); held {
				e.Error("still held")
			}
		}
		if _, next := e.holder("d2"); next.Epoch != 2 {
			e.Errorf("epoch %d, want 2", next.Epoch)
		}
	}},
	{"complete records also when the lease was lost, and leaves the next holder", func(e *env) {
		c := e.process("d1")
		b, l := e.start(c, "d1", 1)
		e.gone(c)
		next := e.acquire(e.process("d2"), "d2")
		finished, released := c.Complete(e.ctx, ended(b, coord.Committed), l)
		e.ok(finished)
		e.ok(released)
		e.shows(c, 1, coord.RunCommitted, coord.Committed)
		e.heldBy(c, next, false)
	}},
	{"complete leaves a later grant of the same process", func(e *env) {
		c := e.process("d1")
		b, l := e.start(c, "d1", 1)
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		next := e.acquire(c, "d1")
		finished, released := c.Complete(e.ctx, ended(b, coord.Failed), l)
		e.ok(finished)
		e.ok(released)
		e.heldBy(c, next, false)
	}},
}

var lists = []test{
	{"entries are listed in pages, each once, in order", func(e *env) {
		c, l := e.holder("d1")
		var want []string
		for n := range 7 {
			e.ran(c, l, n, coord.Committed)
			want = append(want, agent+"/"+runID(n))
		}
		lb, err := c.Acquire(e.ctx, coord.Request{Agent: "a-b", Device: "d2", TTL: e.TTL})
		e.ok(err)
		b := question(lb, 1)
		e.ask(c, b)
		want = append(want, "a-b/"+b.Run)
		slices.Sort(want[:7])
		for _, limit := range []int{1, 3, 8, 9, 0, coord.MaxPage} {
			if got := e.pages(c, coord.Filter{Limit: limit}); !slices.Equal(got, want) {
				e.Errorf("limit %d: got %v, want %v", limit, got, want)
			}
		}
	}},
	{"the filter selects by agent, device, state and time", func(e *env) {
		c, l := e.holder("d1")
		e.ran(c, l, 1, coord.Committed)
		e.ran(c, l, 2, coord.Failed)
		e.begin(c, l, 3)
		lb, err := c.Acquire(e.ctx, coord.Request{Agent: "b", Device: "d2", TTL: e.TTL})
		e.ok(err)
		e.ask(c, question(lb, 4))
		name := func(agent string, n int) string { return agent + "/" + runID(n) }
		for _, one := range []struct {
			f    coord.Filter
			want []string
		}{
			{coord.Filter{Agent: "b"}, []string{name("b", 4)}},
			{coord.Filter{Device: "d2"}, []string{name("b", 4)}},
			{coord.Filter{Agent: "a", Device: "d2"}, nil},
			{coord.Filter{Agent: "none"}, nil},
			{coord.Filter{States: []coord.RunState{coord.RunFailed}}, []string{name("a", 2)}},
			{coord.Filter{States: []coord.RunState{coord.RunRunning}, Limit: 1}, []string{name("a", 3), name("b", 4)}},
			{coord.Filter{States: []coord.RunState{coord.RunInDoubt}}, nil},
			{coord.Filter{Since: time.Unix(2, 0), Limit: 1}, []string{name("a", 2), name("a", 1), name("a", 3), name("b", 4)}}, // what ended did so then
			{coord.Filter{Since: time.Unix(3, 0), Limit: 1}, []string{name("a", 3), name("b", 4)}},
			{coord.Filter{Since: time.Unix(3, 0), Agent: "a"}, []string{name("a", 3)}},
			{coord.Filter{Since: time.Now().AddDate(1, 0, 0)}, nil},
		} {
			if got := e.pages(c, one.f); !slices.Equal(got, one.want) {
				e.Errorf("%+v: got %v, want %v", one.f, got, one.want)
			}
		}
		e.gone(c)
		if got := e.pages(c, coord.Filter{States: []coord.RunState{coord.RunInDoubt}}); len(got) != 2 {
			e.Errorf("in doubt: %v", got)
		}
	}},
	{"a page shows what look shows", func(e *env) {
		c, l := e.holder("d1")
		e.begin(c, l, 1)
		p, err := c.List(e.ctx, coord.Filter{})
		e.ok(err)
		if len(p.Views) != 1 || p.Next != "" {
			e.Fatalf("got %+v", p)
		}
		v := e.look(c, 1)
		got := p.Views[0]
		if got.State != v.State || !got.Found || got.Entry.Occurrence != v.Entry.Occurrence || !same(got.Entry.Attempts[0], v.Entry.Attempts[0]) {
			e.Errorf("got %+v, want %+v", got, v)
		}
	}},
	{"a page has at most a thousand entries", func(e *env) {
		c := e.process("d1")
		for _, f := range []coord.Filter{{Limit: -1}, {Limit: coord.MaxPage + 1}, {After: "x"}, {After: "../x"}} {
			_, err := c.List(e.ctx, f)
			e.is(err, coord.ErrInvalid)
		}
		if p, err := c.List(e.ctx, coord.Filter{}); err != nil || len(p.Views) != 0 || p.Next != "" {
			e.Errorf("got %+v, %v", p, err)
		}
	}},
}

// pages lists all pages of the filter.
func (e *env) pages(c coord.Coordinator, f coord.Filter) (got []string) {
	e.Helper()
	for range 100 {
		p, err := c.List(e.ctx, f)
		e.ok(err)
		if f.Limit > 0 && len(p.Views) > f.Limit {
			e.Fatalf("%d entries on a page of %d", len(p.Views), f.Limit)
		}
		for _, v := range p.Views {
			got = append(got, fmt.Sprintf("%s/%s", v.Entry.Agent, v.Entry.Run))
		}
		if p.Next == "" {
			return got
		}
		f.After = p.Next
	}
	e.Fatal("the list has no end")
	return nil
}
