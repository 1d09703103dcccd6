package coordtest

import (
	"errors"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/coord"
)

var begins = []test{
	{"look at a run that nobody began shows it free, with its holder", func(e *env) {
		c, l := e.holder("d1")
		v := e.shows(c, 1, coord.RunFree)
		if v.Found || !v.Held || v.Holder.Epoch != 1 || v.Holder.Handle != l.Handle || v.Paused != nil || v.Recovery != nil {
			e.Errorf("got %+v", v)
		}
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		if v := e.look(c, 1); v.Held {
			e.Errorf("got %+v", v)
		}
	}},
	{"a begin opens the attempt, which runs while its liveness is there", func(e *env) {
		c, l := e.holder("d1")
		b := question(l, 1)
		b.Input = strings.Repeat("0a", 32)
		b.At = coord.Position{Next: 7, Head: "op-6"}
		a := e.ask(c, b)
		if a.Device != "d1" || a.Epoch != 1 || a.Request != b.Request || a.Liveness != l.Liveness || a.At != b.At || a.Begun.IsZero() || !a.Ended.IsZero() {
			e.Errorf("got %+v", a)
		}
		v := e.shows(e.process("d2"), 1, coord.RunRunning, coord.Open)
		if got := v.Entry; !v.Found || got.Occurrence != b.Occurrence || got.Input != b.Input || !same(got.Attempts[0], a) {
			e.Errorf("entry %+v, want attempt %+v", got, a)
		}
		if !v.Alive[a.Liveness] {
			e.Error("its liveness does not count as there")
		}
		e.gone(c)
		if v := e.shows(c, 1, coord.RunInDoubt, coord.Open); v.Alive[a.Liveness] {
			e.Error("its liveness still counts as there")
		}
		_, err := c.Renew(e.ctx, agent, "d1", 1, e.TTL)
		e.ok(err)
		e.shows(c, 1, coord.RunRunning, coord.Open)
	}},
	{"the same question again gets the same yes and opens nothing more", func(e *env) {
		c, l := e.holder("d1")
		b, a := e.begin(c, l, 1)
		for range 3 {
			if again := e.ask(c, b); !same(again, a) {
				e.Errorf("got %+v, want %+v", again, a)
			}
		}
		e.shows(c, 1, coord.RunRunning, coord.Open)
	}},
	{"the same yes is repeated even after the lease was lost, for it was given", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		e.acquire(e.process("d2"), "d2")
		e.ask(c, b)
		e.shows(c, 1, coord.RunRunning, coord.Open)
	}},
	{"another request for the same attempt is in doubt", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		b.Request = coord.NewNonce()
		e.refused(c, b, coord.ErrInDoubt)
	}},
	{"a closed attempt never opens again", func(e *env) {
		c, l := e.holder("d1")
		for n, s := range []coord.State{coord.Void, coord.Failed} {
			b := e.ran(c, l, n, s)
			b.RetryFailed = true
			e.refused(c, b, coord.ErrClosed)
		}
	}},
	{"another input is refused, none is a digest of its own", func(e *env) {
		c, l := e.holder("d1")
		one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
		for n, pair := range [][2]string{{one, two}, {one, ""}, {"", one}} {
			b := question(l, n)
			b.Input = pair[0]
			e.ask(c, b)
			e.finish(c, b, coord.Committed)
			other := question(l, n)
			other.Input = pair[1]
			_, err := c.Begin(e.ctx, other)
			in, ok := errors.AsType[*coord.InputError](err)
			if !ok || !errors.Is(err, coord.ErrInput) || in.Recorded != pair[0] || in.Given != pair[1] {
				e.Errorf("%d: got %v", n, err)
			}
		}
	}},
	{"a committed run is never begun again, by anybody, with whatever permission", func(e *env) {
		c, l := e.holder("d1")
		first := e.ran(c, l, 1, coord.Committed)
		again := question(l, 1)
		again.RetryFailed, again.Retry = true, first.Attempt
		for range 2 {
			_, err := c.Begin(e.ctx, again)
			v, ok := errors.AsType[*coord.VerdictError](err)
			if !ok || !errors.Is(err, coord.ErrCommitted) || v.Attempt.ID != first.Attempt || v.Run != again.Run {
				e.Fatalf("got %v", err)
			}
			e.refused(c, first, coord.ErrCommitted)
			e.ok(c.Release(e.ctx, agent, "d1", l.Epoch))
			l = e.acquire(c, "d1")
			again.Lease = l
		}
		e.shows(c, 1, coord.RunCommitted, coord.Committed)
	}},
	{"no attempt is begun beside one that runs, nor beside one in doubt", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.refused(c, question(l, 1), coord.ErrInProgress)
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		other, next := e.holder("d2")
		again := question(next, 1)
		again.RetryFailed = true
		_, err := other.Begin(e.ctx, again)
		if v, ok := errors.AsType[*coord.VerdictError](err); !ok || !errors.Is(err, coord.ErrInProgress) || v.Attempt.ID != b.Attempt {
			e.Fatalf("got %v", err)
		}
		e.gone(c)
		e.refused(other, again, coord.ErrInDoubt)
		e.shows(other, 1, coord.RunInDoubt, coord.Open)
	}},
	{"a run that failed is not begun without permission", func(e *env) {
		c, l := e.holder("d1")
		b := e.ran(c, l, 1, coord.Failed)
		again := question(l, 1)
		_, err := c.Begin(e.ctx, again)
		if v, ok := errors.AsType[*coord.VerdictError](err); !ok || !errors.Is(err, coord.ErrFailed) || v.Attempt.ID != b.Attempt {
			e.Fatalf("got %v", err)
		}
		again.RetryFailed = true
		e.ask(c, again)
		e.shows(c, 1, coord.RunRunning, coord.Failed, coord.Open)
		e.finish(c, again, coord.Failed)
		e.refused(c, question(l, 1), coord.ErrFailed)
	}},
	{"a failure stays in the way whatever number of attempts was given up after it", func(e *env) {
		c, l := e.holder("d1")
		e.ran(c, l, 1, coord.Failed)
		for range 10 {
			b := question(l, 1)
			b.RetryFailed = true
			e.ask(c, b)
			e.ok(c.Cancel(e.ctx, b))
		}
		e.refused(c, question(l, 1), coord.ErrFailed)
		if v := e.look(c, 1); v.State != coord.RunFailed || len(v.Entry.Attempts) > 9 {
			e.Errorf("%s after %d attempts", v.State, len(v.Entry.Attempts))
		}
	}},
	{"a void attempt leaves the run free", func(e *env) {
		c, l := e.holder("d1")
		e.ran(c, l, 1, coord.Void)
		e.shows(c, 1, coord.RunFree, coord.Void)
		e.begin(c, l, 1)
	}},
	{"only the holder begins", func(e *env) {
		c := e.process("d1")
		claim := coord.Lease{Agent: agent, Device: "d1", Epoch: 1, Handle: coord.NewNonce()}
		_, err := c.Begin(e.ctx, question(claim, 1))
		if h, ok := errors.AsType[*coord.HolderError](err); !ok || !errors.Is(err, coord.ErrNotHeld) || h.Holder.Device != "" || h.Claimed != 1 {
			e.Fatalf("nobody holds it: got %v", err)
		}
		other, _ := e.holder("d2")
		_, err = c.Begin(e.ctx, question(claim, 1))
		if h, ok := errors.AsType[*coord.HolderError](err); !ok || !errors.Is(err, coord.ErrNotHeld) || h.Holder.Device != "d2" {
			e.Fatalf("d2 holds it: got %v", err)
		}
		e.ok(other.Release(e.ctx, agent, "d2", 1))
		l := e.acquire(c, "d1")
		for _, wrong := range []func(*coord.Lease){
			func(l *coord.Lease) { l.Epoch = 1 },
			func(l *coord.Lease) { l.Epoch = 3 },
			func(l *coord.Lease) { l.Handle = coord.NewNonce() },
			func(l *coord.Lease) { l.Handle = "" },
		} {
			claim := l
			wrong(&claim)
			e.refused(c, question(claim, 1), coord.ErrStale)
		}
		e.shows(c, 1, coord.RunFree)
	}},
	{"a straggler of an earlier grant cannot begin under a later one of the same process", func(e *env) {
		c, l := e.holder("d1")
		late := question(l, 1)
		e.ok(c.Release(e.ctx, agent, "d1", 1))
		e.refused(c, late, coord.ErrNotHeld)
		e.acquire(c, "d1")
		e.refused(c, late, coord.ErrStale)
	}},
	{"begin needs no liveness: until somebody took the lease it may", func(e *env) {
		c, l := e.holder("d1")
		e.gone(c)
		e.begin(c, l, 1)
		e.shows(e.process("d2"), 1, coord.RunInDoubt, coord.Open)
	}},
	{"under ttl 0 an attempt is in doubt for others and its request is still answered", func(e *env) {
		c := e.process("d1")
		l, err := c.Acquire(e.ctx, coord.Request{Agent: agent, Device: "d1"})
		e.ok(err)
		b, _ := e.begin(c, l, 1)
		e.ask(c, b)
		e.shows(c, 1, coord.RunInDoubt, coord.Open)
		e.refused(e.process("d1"), b, coord.ErrInDoubt)
	}},
	{"a doubt is retried in one step", func(e *env) {
		c, l := e.holder("d1")
		doubt, _ := e.begin(c, l, 1)
		retry := question(l, 1)
		retry.Retry = doubt.Attempt
		e.refused(c, retry, coord.ErrInProgress)
		e.Crash(e.T, c)
		e.gone(c)
		other, next := e.holder("d2")
		retry.Lease = next
		retry.Retry = coord.NewNonce()
		e.refused(other, retry, coord.ErrInDoubt)
		retry.Retry = doubt.Attempt
		e.ask(other, retry)
		v := e.shows(other, 1, coord.RunRunning, coord.Failed, coord.Open)
		if a := v.Entry.Attempts[0]; a.Cause != coord.CauseRetried || a.ID != doubt.Attempt {
			e.Errorf("the old attempt is %+v", a)
		}
		e.ask(other, retry)
		e.refused(other, doubt, coord.ErrClosed)
	}},
	{"a doubt about a retry can be retried too", func(e *env) {
		device, prior := "d1", ""
		for range 3 {
			c, l := e.holder(device)
			b := question(l, 1)
			b.Retry = prior
			e.ask(c, b)
			prior = b.Attempt
			e.Crash(e.T, c)
			e.gone(c)
		}
		e.shows(e.process("d2"), 1, coord.RunInDoubt, coord.Failed, coord.Failed, coord.Open)
	}},
	{"a retry of an attempt that the ledger does not know is refused with what it knows", func(e *env) {
		c, l := e.holder("d1")
		b := question(l, 1)
		b.Retry = coord.NewNonce()
		e.refused(c, b, coord.ErrMoved)
		e.shows(c, 1, coord.RunFree)
	}},
	{"verdicts come in the contract's order", verdicts},
	{"hostile requests are refused at the edge", hostile},
	{"a witness is a run with a closed attempt", func(e *env) {
		c, l := e.holder("d1")
		e.ran(c, l, 1, coord.Committed)
		e.ran(c, l, 2, coord.Void)
		e.begin(c, l, 3)
		v, err := c.Look(e.ctx, coord.Question{Agent: agent, Run: runID(9),
			Witnesses: []coord.RunRef{{Agent: agent, Run: runID(1)}, {Agent: agent, Run: runID(2)}, {Agent: agent, Run: runID(3)}, {Agent: "b", Run: runID(4)}}})
		e.ok(err)
		for n, want := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
			if got, asked := v.Witness[runID(n)]; got != want || !asked {
				e.Errorf("witness %d: %v, %v, want %v", n, got, asked, want)
			}
		}
	}},
}

// same compares attempts; times may lose what a backend does not store, but not their second.
func same(a, b coord.Attempt) bool {
	close := a.Begun.Unix() == b.Begun.Unix() && a.Ended.Unix() == b.Ended.Unix()
	a.Begun, a.Ended = b.Begun, b.Ended
	return close && a == b
}

// verdicts makes two neighbouring reasons for a no hold at once and wants the earlier one.
func verdicts(e *env) {
	c, l := e.holder("d1")
	other := strings.Repeat("f", 64)
	gates := func(set bool) {
		gate := coord.Gate{By: "ana", Reason: "x"}
		if set {
			e.ok(c.Pause(e.ctx, agent, gate))
			e.ok(c.SetRecovery(e.ctx, gate))
			return
		}
		e.ok(c.Resume(e.ctx, agent))
		e.ok(c.LiftRecovery(e.ctx, gate))
	}

	// 1 before 2: input, committed.
	done := e.ran(c, l, 1, coord.Committed)
	b := question(l, 1)
	b.Input = other
	e.refused(c, b, coord.ErrInput)
	// 2 before 3: committed, own attempt open.
	open, _ := e.begin(c, l, 2)
	e.finish(c, question(l, 2), coord.Committed)
	e.refused(c, open, coord.ErrCommitted)
	// 2 before 4: committed, own attempt closed.
	e.refused(c, done, coord.ErrCommitted)

	running, _ := e.begin(c, l, 3)
	foreign := running
	foreign.Request = coord.NewNonce()
	closed := e.ran(c, l, 4, coord.Failed)
	failed := e.ran(c, l, 5, coord.Failed)
	over := question(l, 5)
	over.RetryFailed = true
	e.ask(c, over) // run 5: a failed attempt and an open one
	e.ran(c, l, 6, coord.Failed)
	gates(true)
	e.ok(c.Release(e.ctx, agent, "d1", 1))

	// 3, 4 before 5: own attempt open, closed; not the holder.
	e.refused(c, foreign, coord.ErrInDoubt)
	e.refused(c, closed, coord.ErrClosed)
	e.refused(c, failed, coord.ErrClosed)
	// 5 before 6: not the holder, recovery.
	e.refused(c, question(l, 9), coord.ErrNotHeld)
	l2 := e.acquire(c, "d1")
	e.refused(c, question(l, 9), coord.ErrStale)
	// 3, 4 before 6.
	e.refused(c, foreign, coord.ErrInDoubt)
	e.refused(c, closed, coord.ErrClosed)
	// 6 before 7: recovery, paused.
	e.refused(c, question(l2, 9), coord.ErrRecovery)
	e.ok(c.LiftRecovery(e.ctx, coord.Gate{By: "ana", Reason: "x"}))
	// 7 before 8 and 9: paused, other attempt open, failed.
	e.refused(c, question(l2, 3), coord.ErrPaused)
	e.refused(c, question(l2, 6), coord.ErrPaused)
	gates(false)
	// 8 before 9: other attempt open, failed.
	e.refused(c, question(l2, 5), coord.ErrInProgress)
	e.gone(c)
	e.refused(c, question(l2, 5), coord.ErrInDoubt)
	// 9, and 10.
	e.refused(c, question(l2, 6), coord.ErrFailed)
	e.begin(c, l2, 9)
}

// hostile asks every operation with what must not reach a backend.
func hostile(e *env) {
	c, l := e.holder("d1")
	ids := []string{"", ".", "..", "../x", "a/b", "a b", "-a", "a\x00", "ä", strings.Repeat("x", 129), "a\n", "\xff"}
	bad := func(what string, err error) {
		e.Helper()
		if !errors.Is(err, coord.ErrInvalid) {
			e.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
	for _, id := range ids {
		asked(e, c, id, bad)
	}
	good := question(l, 1)
	for name, spoil := range map[string]func(*coord.Begin){
		"attempt":    func(b *coord.Begin) { b.Attempt = "x" },
		"no attempt": func(b *coord.Begin) { b.Attempt = "" },
		"request":    func(b *coord.Begin) { b.Request = strings.Repeat("G", 32) },
		"occurrence": func(b *coord.Begin) { b.Occurrence = "yesterday" },
		"input":      func(b *coord.Begin) { b.Input = strings.Repeat("A", 64) },
		"retry":      func(b *coord.Begin) { b.Retry = "/" },
		"retry self": func(b *coord.Begin) { b.Retry = b.Attempt },
		"position":   func(b *coord.Begin) { b.At.Next = 1 },
		"epoch":      func(b *coord.Begin) { b.Lease.Epoch = coord.MaxEpoch + 1 },
	} {
		b := good
		spoil(&b)
		_, err := c.Begin(e.ctx, b)
		bad("begin "+name, err)
		_, _, err = c.Start(e.ctx, e.request("d1"), b)
		if name != "epoch" { // Start ignores the lease
			bad("start "+name, err)
		}
	}
	for name, spoil := range map[string]func(*coord.Outcome){
		"open":   func(o *coord.Outcome) { o.Attempt.State = coord.Open },
		"state":  func(o *coord.Outcome) { o.Attempt.State = "done" },
		"result": func(o *coord.Outcome) { o.Attempt.Result = strings.Repeat("x", coord.MaxResult+1) },
		"reason": func(o *coord.Outcome) { o.Attempt.Reason = "\xff" },
	} {
		o := ended(good, coord.Committed)
		spoil(&o)
		bad("finish "+name, c.Finish(e.ctx, o))
		finished, _ := c.Complete(e.ctx, o, l)
		bad("complete "+name, finished)
		l = e.reacquired(c)
	}
	if all, err := c.Leases(e.ctx); err != nil || len(all) != 1 {
		e.Errorf("leases %+v, %v, want one", all, err)
	}
	if p, err := c.List(e.ctx, coord.Filter{}); err != nil || len(p.Views) != 0 {
		e.Errorf("list %+v, %v, want none", p, err)
	}
}

// reacquired is the lease of the agent held by c of d1, whether or not it was given back.
func (e *env) reacquired(c coord.Coordinator) coord.Lease {
	e.Helper()
	if l, held := e.current(c); held {
		return l
	}
	return e.acquire(c, "d1")
}

func asked(e *env, c coord.Coordinator, id string, bad func(string, error)) {
	e.Helper()
	for _, req := range []coord.Request{{Agent: id, Device: "d1", TTL: e.TTL}, {Agent: "b", Device: id, TTL: e.TTL}} {
		_, err := c.Acquire(e.ctx, req)
		bad("acquire", err)
		_, err = c.Renew(e.ctx, req.Agent, req.Device, 1, e.TTL)
		bad("renew", err)
		bad("release", c.Release(e.ctx, req.Agent, req.Device, 1))
		_, err = c.Steal(e.ctx, coord.Theft{Request: req, By: "x", Reason: "x", Force: true})
		bad("steal", err)
		bad("evict", c.Evict(e.ctx, coord.Theft{Request: req, By: "x", Reason: "x", Force: true}))
		_, _, err = c.Start(e.ctx, req, question(coord.Lease{}, 1))
		bad("start", err)
		b := question(coord.Lease{Agent: req.Agent, Device: req.Device, Epoch: 1}, 1)
		_, err = c.Begin(e.ctx, b)
		bad("begin", err)
		bad("cancel", c.Cancel(e.ctx, b))
		bad("finish", c.Finish(e.ctx, ended(b, coord.Committed)))
	}
	_, _, err := c.Current(e.ctx, id)
	bad("current", err)
	bad("pause", c.Pause(e.ctx, id, coord.Gate{By: "x", Reason: "x"}))
	bad("resume", c.Resume(e.ctx, id))
	for _, ref := range []coord.RunRef{{Agent: id, Run: runID(1)}, {Agent: agent, Run: id}} {
		_, err = c.Look(e.ctx, coord.Question{Agent: ref.Agent, Run: ref.Run})
		bad("look", err)
		_, err = c.Look(e.ctx, coord.Question{Agent: agent, Run: runID(1), Witnesses: []coord.RunRef{ref}})
		bad("look at a witness", err)
		r := coord.Resolution{Agent: ref.Agent, Run: ref.Run, Attempt: coord.NewNonce(), As: coord.Void, By: "x", Reason: "x"}
		_, err = c.Resolve(e.ctx, r)
		bad("resolve", err)
		_, err = c.Permit(e.ctx, r)
		bad("permit", err)
	}
	if !slices.Contains([]string{""}, id) {
		_, err = c.List(e.ctx, coord.Filter{Agent: id})
		bad("list", err)
	}
}
