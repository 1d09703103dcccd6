package coordtest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
)

var ana = coord.Gate{By: "ana", Reason: "restored"}

func (e *env) recoverer(device string) coord.Recoverer {
	e.Helper()
	r, ok := e.process(device).(coord.Recoverer)
	if !ok {
		e.Fatal("the process is no coord.Recoverer")
	}
	return r
}

// lost is the outcome of an attempt that the ledger does not know.
func lost(n int, device string, epoch coord.Epoch, s coord.State) coord.Outcome {
	b := question(coord.Lease{Agent: agent, Device: device, Epoch: epoch}, n)
	o := ended(b, s)
	o.Attempt.Abandoned = s == coord.Open
	return o
}

func (e *env) recreate(r coord.Recoverer, o coord.Outcome, want bool) {
	e.Helper()
	if written, err := r.Recreate(e.ctx, o); written != want || err != nil {
		e.Fatalf("Recreate of a %s attempt gave %v, %v, want %v", o.Attempt.State, written, err, want)
	}
}

func (e *env) raise(r coord.Recoverer, device string, epoch coord.Epoch, want bool) {
	e.Helper()
	if written, err := r.Raise(e.ctx, coord.Grant{Agent: agent, Device: device, Epoch: epoch}); written != want || err != nil {
		e.Fatalf("Raise to %d of %s gave %v, %v, want %v", epoch, device, written, err, want)
	}
}

var recoveries = []test{
	{"a recovery that is begun anew has another gate", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		first, err := r.RestartRecovery(e.ctx, ana)
		e.ok(err)
		e.ok(r.SetRecovery(e.ctx, coord.Gate{By: "d2", Reason: "witness gone"}))
		second, err := r.RestartRecovery(e.ctx, coord.Gate{By: "bo", Reason: "once more"})
		e.ok(err)
		now, set, err := r.Recovery(e.ctx)
		if err != nil || !set || now.By != "bo" || now.ID != second.ID || first.ID == second.ID || first.ID == "" || first.By != "ana" {
			e.Errorf("begun as %+v, then %+v; it is %+v, %v, %v", first, second, now, set, err)
		}
		e.refused(c, question(l, 1), coord.ErrRecovery)
	}},
	{"a gate that devices set tells itself from every other", func(e *env) {
		r := e.recoverer("d1")
		var ids []string
		for range 2 {
			e.ok(r.SetRecovery(e.ctx, ana))
			g, _, err := r.Recovery(e.ctx)
			e.ok(err)
			ids = append(ids, g.ID)
			e.ok(r.LiftRecovery(e.ctx, g))
		}
		if ids[0] == "" || ids[0] == ids[1] {
			e.Errorf("gates %q", ids)
		}
	}},
	{"only the gate that was judged is lifted", func(e *env) {
		r := e.recoverer("d1")
		first, err := r.RestartRecovery(e.ctx, ana)
		e.ok(err)
		second, err := r.RestartRecovery(e.ctx, ana)
		e.ok(err)
		e.is(r.LiftRecovery(e.ctx, first), coord.ErrMoved)
		if g, set, err := r.Recovery(e.ctx); !set || err != nil || g.ID != second.ID {
			e.Errorf("the gate is %+v, %v, %v", g, set, err)
		}
		e.ok(r.LiftRecovery(e.ctx, second))
		e.ok(r.LiftRecovery(e.ctx, second)) // repeated
		if _, set, err := r.Recovery(e.ctx); set || err != nil {
			e.Errorf("still set: %v", err)
		}
	}},
	{"an offer counts under its own gate alone", func(e *env) {
		r := e.recoverer("d1")
		g, err := r.RestartRecovery(e.ctx, ana)
		e.ok(err)
		at := time.Date(2026, 3, 1, 2, 3, 4, 0, time.UTC)
		o := coord.Offer{Device: "d1", Gate: g.ID, Done: true, At: at, Attempts: 7, Written: 3, Doubts: 2, Raised: 1, Peers: []string{"d2", "d3"}}
		e.ok(r.Offer(e.ctx, o))
		e.ok(r.Offer(e.ctx, o)) // repeated
		all, err := r.Offers(e.ctx)
		e.ok(err)
		if len(all) != 1 || all[0].Gate != g.ID || !all[0].Done || all[0].Attempts != 7 || !all[0].At.Equal(at) || !slices.Equal(all[0].Peers, o.Peers) {
			e.Errorf("noted %+v", all)
		}
		_, err = r.RestartRecovery(e.ctx, ana)
		e.ok(err)
		o.Device = "d2"
		e.is(r.Offer(e.ctx, o), coord.ErrMoved)
		e.ok(r.LiftRecovery(e.ctx, ana))
		e.is(r.Offer(e.ctx, o), coord.ErrMoved)
		if all, err := r.Offers(e.ctx); err != nil || len(all) != 1 || all[0].Device != "d1" {
			e.Errorf("noted %+v, %v", all, err)
		}
	}},
	{"that a device is there takes no other note's place", func(e *env) {
		r := e.recoverer("d1")
		g, err := r.RestartRecovery(e.ctx, ana)
		e.ok(err)
		e.ok(r.Offer(e.ctx, coord.Offer{Device: "b"}))
		e.ok(r.Offer(e.ctx, coord.Offer{Device: "a", Gate: g.ID, Done: true}))
		e.ok(r.Offer(e.ctx, coord.Offer{Device: "a"}))
		all, err := r.Offers(e.ctx)
		e.ok(err)
		if len(all) != 2 || all[0].Device != "a" || !all[0].Done || all[1].Device != "b" || all[1].Done {
			e.Errorf("noted %+v", all)
		}
		e.is(r.Offer(e.ctx, coord.Offer{Device: "a", Done: true}), coord.ErrInvalid)
		e.is(r.Offer(e.ctx, coord.Offer{Device: "a/b"}), coord.ErrInvalid)
	}},
	{"a commit that the ledger lost is never begun again", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		o := lost(1, "d9", 4, coord.Committed)
		o.Input = strings.Repeat("a", 64)
		e.recreate(r, o, true)
		e.recreate(r, o, false)
		v := e.shows(c, 1, coord.RunCommitted, coord.Committed)
		if v.Entry.Occurrence != occurrence(1) || v.Entry.Input != o.Input || v.Entry.Attempts[0].Device != "d9" || v.Entry.Attempts[0].Epoch != 4 {
			e.Errorf("recreated as %+v", v.Entry)
		}
		b := question(l, 1)
		b.Input, b.RetryFailed = o.Input, true
		e.refused(c, b, coord.ErrCommitted)
	}},
	{"a failure that the ledger lost keeps bystanders from the run", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		e.recreate(r, lost(1, "d9", 4, coord.Failed), true)
		e.shows(c, 1, coord.RunFailed, coord.Failed)
		e.refused(c, question(l, 1), coord.ErrFailed)
		v, err := c.Look(e.ctx, coord.Question{Agent: agent, Run: runID(2), Witnesses: []coord.RunRef{{Agent: agent, Run: runID(1)}}})
		e.ok(err)
		if !v.Witness[runID(1)] {
			e.Error("it is no witness")
		}
	}},
	{"an attempt that nobody can tell the end of is in doubt until its device or a person says", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		for n, say := range map[int]coord.State{1: coord.Committed, 2: coord.Failed, 3: coord.Void} {
			o := lost(n, "d9", 4, coord.Open)
			e.recreate(r, o, true)
			e.recreate(r, o, false)
			e.shows(c, n, coord.RunInDoubt, coord.Open)
			e.refused(c, question(l, n), coord.ErrInDoubt)
			o.Attempt.State, o.Attempt.Abandoned = say, false
			e.recreate(r, o, true)
			e.shows(c, n, map[coord.State]coord.RunState{coord.Committed: coord.RunCommitted, coord.Failed: coord.RunFailed, coord.Void: coord.RunFree}[say], say)
		}
		o := lost(4, "d9", 4, coord.Open)
		e.recreate(r, o, true)
		_, err := c.Resolve(e.ctx, coord.Resolution{Agent: agent, Run: runID(4), Attempt: o.Attempt.ID, As: coord.Void, By: "ana", Reason: "looked"})
		e.ok(err)
		e.begin(c, l, 4)
	}},
	{"nothing that is told again touches an attempt that runs, or frees a run", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		b, _ := e.begin(c, l, 1)
		o := ended(b, coord.Open)
		o.Attempt.Abandoned = true
		e.recreate(r, o, false)
		e.shows(c, 1, coord.RunRunning, coord.Open)
		e.recreate(r, lost(1, "d9", 4, coord.Void), false)
		e.shows(c, 1, coord.RunRunning, coord.Open)
		e.recreate(r, lost(2, "d9", 4, coord.Void), false)
		if v := e.look(c, 2); v.Found {
			e.Errorf("an attempt that never started was noted: %+v", v.Entry)
		}
	}},
	{"beside a commit only another commit is noted", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		e.ran(c, l, 1, coord.Committed)
		e.recreate(r, lost(1, "d9", 4, coord.Open), false)
		e.recreate(r, lost(1, "d9", 4, coord.Failed), false)
		e.recreate(r, lost(1, "d9", 4, coord.Committed), true)
		e.shows(c, 1, coord.RunCommitted, coord.Committed, coord.Committed)
	}},
	{"a failure that the entry may have dropped for later ones is not noted anew", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		var first coord.Outcome
		for i := range 10 {
			b := question(l, 1)
			b.RetryFailed = true
			e.ask(c, b)
			if i == 0 {
				first = ended(b, coord.Failed)
			}
			e.finish(c, b, coord.Failed)
		}
		if _, kept := e.look(c, 1).Entry.Find(first.Attempt.ID); kept {
			e.Fatal("nothing was dropped: the test shows nothing")
		}
		e.recreate(r, first, false)
		e.recreate(r, lost(1, "d9", 4, coord.Open), true) // open ones are never dropped
	}},
	{"an epoch that was granted is not granted again", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		e.raise(r, "d9", 5, true)
		e.raise(r, "d9", 5, false)
		e.raise(r, "d9", 4, false)
		e.refused(c, question(l, 1), coord.ErrNotHeld)
		_, err := c.Renew(e.ctx, agent, "d2", l.Epoch, e.TTL)
		e.lost(err, 1, 5)
		if seen, held := e.current(c); held || seen.Epoch != 5 {
			e.Errorf("Current gave %+v, %v", seen, held)
		}
		if next := e.acquire(c, "d2"); next.Epoch != 6 {
			e.Errorf("epoch %d, want 6", next.Epoch)
		}
	}},
	{"an agent that the ledger never saw gets the epoch too", func(e *env) {
		r := e.recoverer("d1")
		e.raise(r, "d9", 3, true)
		if l := e.acquire(r.(coord.Coordinator), "d1"); l.Epoch != 4 {
			e.Errorf("epoch %d, want 4", l.Epoch)
		}
	}},
	{"of two who were granted one epoch the holder is none any more", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		e.raise(r, "d2", 1, false)
		e.heldBy(c, l, false)
		e.raise(r, "d9", 1, true)
		e.refused(c, question(l, 1), coord.ErrNotHeld)
		if next := e.acquire(c, "d2"); next.Epoch != 2 {
			e.Errorf("epoch %d, want 2", next.Epoch)
		}
	}},
	{"a later holder stays", func(e *env) {
		r := e.recoverer("d1")
		c := e.process("d2")
		for range 3 {
			l := e.acquire(c, "d2")
			e.ok(c.Release(e.ctx, agent, "d2", l.Epoch))
		}
		l := e.acquire(c, "d2")
		e.raise(r, "d9", 3, false)
		e.heldBy(c, l, false)
		e.begin(c, l, 1)
	}},
	{"an epoch too far above is for a person", func(e *env) {
		r := e.recoverer("d1")
		c, l := e.holder("d2")
		_, err := r.Raise(e.ctx, coord.Grant{Agent: agent, Device: "d9", Epoch: coord.MaxFloorJump + 2})
		f, ok := errors.AsType[*coord.FloorError](err)
		if !ok || f.Stored != 1 {
			e.Fatalf("got %v", err)
		}
		e.heldBy(c, l, false)
	}},
}
