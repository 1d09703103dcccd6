package coordtest

import (
	"errors"
	"strings"

	"github.com/syncnode/syncnode/coord"
)

var cancels = []test{
	{"a begin given up is void and the run free", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.ok(c.Cancel(e.ctx, b))
		v := e.shows(c, 1, coord.RunFree, coord.Void)
		if a := v.Entry.Attempts[0]; a.Cause != coord.CauseGivenUp || a.ID != b.Attempt || a.Ended.IsZero() {
			e.Errorf("got %+v", a)
		}
		e.ok(c.Cancel(e.ctx, b))
		e.refused(c, b, coord.ErrClosed)
		e.begin(c, l, 1)
	}},
	{"the straggler of a begin given up cannot land", func(e *env) {
		c, l := e.holder("d1")
		b := question(l, 1)
		e.ok(c.Cancel(e.ctx, b))
		e.refused(c, b, coord.ErrClosed)
		v := e.shows(c, 1, coord.RunFree, coord.Void)
		if a := v.Entry.Attempts[0]; a.ID != b.Attempt || a.Device != "d1" || v.Entry.Occurrence != b.Occurrence {
			e.Errorf("entry %+v", v.Entry)
		}
	}},
	{"a begin is given up also after the lease was lost", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.gone(c)
		other := e.process("d2")
		next := e.acquire(other, "d2")
		e.ok(c.Cancel(e.ctx, b))
		e.shows(other, 1, coord.RunFree, coord.Void)
		e.begin(other, next, 1)
	}},
	{"an attempt of another request is not given up", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		wrong := b
		wrong.Request = coord.NewNonce()
		e.is(c.Cancel(e.ctx, wrong), coord.ErrInDoubt)
		e.shows(c, 1, coord.RunRunning, coord.Open)
		other := question(l, 1)
		e.ok(c.Cancel(e.ctx, other))
		e.shows(c, 1, coord.RunRunning, coord.Open, coord.Void)
		e.ask(c, b)
	}},
	{"giving up changes nothing that was closed", func(e *env) {
		c, l := e.holder("d1")
		done := e.ran(c, l, 1, coord.Committed)
		e.ok(c.Cancel(e.ctx, done))
		e.shows(c, 1, coord.RunCommitted, coord.Committed)
		e.ok(c.Cancel(e.ctx, question(l, 1)))
		e.shows(c, 1, coord.RunCommitted, coord.Committed)
		failed := e.ran(c, l, 2, coord.Failed)
		e.ok(c.Cancel(e.ctx, failed))
		e.shows(c, 2, coord.RunFailed, coord.Failed)
	}},
}

var finishes = []test{
	{"an outcome is recorded with all that belongs to it", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		o := ended(b, coord.Failed)
		o.Attempt.Cause, o.Attempt.Exit, o.Attempt.Result = coord.CauseSignal, 137, strings.Repeat("r", coord.MaxResult)
		e.ok(c.Finish(e.ctx, o))
		v := e.shows(c, 1, coord.RunFailed, coord.Failed)
		a := v.Entry.Attempts[0]
		if a.Cause != coord.CauseSignal || a.Exit != 137 || a.Result != o.Attempt.Result || !a.Ended.Equal(o.Attempt.Ended) || a.Epoch != 1 || a.Request != b.Request {
			e.Errorf("got %+v", a)
		}
	}},
	{"finish may be repeated and changes nothing more", func(e *env) {
		c, l := e.holder("d1")
		for n, s := range []coord.State{coord.Committed, coord.Failed, coord.Void} {
			b := e.ran(c, l, n, s)
			before := e.look(c, n).Entry
			o := ended(b, s)
			o.Attempt.Exit = 9
			e.ok(c.Finish(e.ctx, o))
			if after := e.look(c, n).Entry; len(after.Attempts) != 1 || !same(after.Attempts[0], before.Attempts[0]) {
				e.Errorf("%s: got %+v, was %+v", s, after, before)
			}
		}
	}},
	{"finish is not fenced: a zombie's outcome stands after a higher epoch", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.gone(c)
		other := e.process("d2")
		next := e.acquire(other, "d2")
		e.ran(other, next, 2, coord.Committed)
		e.refused(other, question(next, 1), coord.ErrInDoubt)
		e.finish(c, b, coord.Committed)
		e.shows(other, 1, coord.RunCommitted, coord.Committed)
		e.refused(other, question(next, 1), coord.ErrCommitted)
		e.heldBy(c, next, false)
	}},
	{"another process records an outcome too", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.Crash(e.T, c)
		e.finish(e.process("d1"), b, coord.Failed)
		e.shows(e.process("d2"), 1, coord.RunFailed, coord.Failed)
	}},
	{"committed wins over void and failed, and nothing over committed", func(e *env) {
		c, l := e.holder("d1")
		for n, s := range []coord.State{coord.Void, coord.Failed} {
			b := e.ran(c, l, n, s)
			e.finish(c, b, coord.Committed)
			e.shows(c, n, coord.RunCommitted, coord.Committed)
			e.finish(c, b, s)
			given := ended(b, coord.Open)
			given.Attempt.Abandoned = true
			e.ok(c.Finish(e.ctx, given))
			e.shows(c, n, coord.RunCommitted, coord.Committed)
		}
	}},
	{"the first result of an attempt stands, and a commit by decision gets that of its device", func(e *env) {
		c, l := e.holder("d1")
		for n, decided := range []bool{false, true} {
			b, _ := e.begin(c, l, n)
			o := ended(b, coord.Committed)
			want := "first"
			if decided {
				r := resolution(b, coord.Committed)
				r.Force, want = true, "second"
				e.resolve(c, r, coord.RunCommitted)
			} else {
				o.Attempt.Result = "first"
				e.ok(c.Finish(e.ctx, o))
			}
			for _, o.Attempt.Result = range []string{"", "second", "third"} {
				e.ok(c.Finish(e.ctx, o))
			}
			a := e.shows(c, n, coord.RunCommitted, coord.Committed).Entry.Attempts[0]
			if a.Result != want || (a.By != "") != decided {
				e.Errorf("decided %v: got %+v, want the result %q", decided, a, want)
			}
		}
	}},
	{"failed and void close only their own attempt, and only an open one", func(e *env) {
		c, l := e.holder("d1")
		failed := e.ran(c, l, 1, coord.Failed)
		open := question(l, 1)
		open.RetryFailed = true
		e.ask(c, open)
		e.finish(c, failed, coord.Void)
		e.finish(c, question(l, 1), coord.Failed)
		e.finish(c, question(l, 2), coord.Void)
		v := e.shows(c, 1, coord.RunRunning, coord.Failed, coord.Open)
		if v.Entry.Attempts[1].ID != open.Attempt {
			e.Errorf("got %+v", v.Entry)
		}
		e.shows(c, 2, coord.RunFree)
	}},
	{"a commit that the ledger does not know makes the entry anew", func(e *env) {
		c := e.process("d1")
		b := question(coord.Lease{Agent: agent, Device: "d1", Epoch: 4}, 1)
		b.Input = strings.Repeat("3", 64)
		e.finish(c, b, coord.Committed)
		v := e.shows(c, 1, coord.RunCommitted, coord.Committed)
		if v.Entry.Occurrence != b.Occurrence || v.Entry.Input != b.Input || v.Entry.Attempts[0].Epoch != 4 {
			e.Errorf("entry %+v", v.Entry)
		}
	}},
	{"two commits of one run are both kept", func(e *env) {
		c, l := e.holder("d1")
		one, _ := e.begin(c, l, 1)
		e.gone(c)
		other := e.process("d2")
		two := question(e.acquire(other, "d2"), 1)
		two.Retry = one.Attempt
		e.ask(other, two)
		e.finish(other, two, coord.Committed)
		e.finish(c, one, coord.Committed)
		e.finish(c, one, coord.Committed)
		if v := e.shows(c, 1, coord.RunCommitted, coord.Committed, coord.Committed); v.Entry.Double() != 2 {
			e.Errorf("it is no double: %+v", v.Entry)
		}
	}},
	{"a commit leaves another open attempt as evidence", func(e *env) {
		c, l := e.holder("d1")
		open, _ := e.begin(c, l, 1)
		e.finish(c, question(l, 1), coord.Committed)
		v := e.shows(c, 1, coord.RunCommitted, coord.Open, coord.Committed)
		if v.Entry.Attempts[0].ID != open.Attempt {
			e.Errorf("got %+v", v.Entry)
		}
	}},
	{"an attempt that its device gave up is in doubt whatever the liveness says", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		o := ended(b, coord.Open)
		o.Attempt.Abandoned = true
		e.ok(c.Finish(e.ctx, o))
		e.ok(c.Finish(e.ctx, o))
		e.shows(c, 1, coord.RunInDoubt, coord.Open)
		e.refused(c, question(l, 1), coord.ErrInDoubt)
		e.refused(c, b, coord.ErrInDoubt)
		retry := question(l, 1)
		retry.Retry = b.Attempt
		e.ask(c, retry)
	}},
	{"committed and open attempts are never dropped, of the others the last eight stay", func(e *env) {
		c, l := e.holder("d1")
		e.finish(c, question(l, 2), coord.Committed)
		doubt, _ := e.begin(c, l, 1)
		for range 12 {
			e.ok(c.Cancel(e.ctx, question(l, 1)))
		}
		v := e.look(c, 1)
		if _, ok := v.Entry.Find(doubt.Attempt); !ok || len(v.Entry.Attempts) != 9 || v.State != coord.RunRunning {
			e.Errorf("%d attempts, run %s: %+v", len(v.Entry.Attempts), v.State, v.Entry)
		}
		e.finish(c, doubt, coord.Committed)
		for range 12 {
			e.finish(c, question(l, 1), coord.Committed)
		}
		if v := e.look(c, 1); len(v.Entry.Attempts) != 8+13 || v.State != coord.RunCommitted {
			e.Errorf("%d attempts, run %s", len(v.Entry.Attempts), v.State)
		}
	}},
}

func resolution(b coord.Begin, as coord.State) coord.Resolution {
	return coord.Resolution{Agent: agent, Run: b.Run, Attempt: b.Attempt, As: as, By: "ana", Reason: "looked at the bank"}
}

func (e *env) resolve(c coord.Coordinator, r coord.Resolution, want coord.RunState) coord.View {
	e.Helper()
	v, err := c.Resolve(e.ctx, r)
	e.ok(err)
	if v.State != want {
		e.Errorf("resolved run is %s, want %s", v.State, want)
	}
	return v
}

// moved checks that err carries the run as it is.
func (e *env) moved(err error, want coord.RunState) {
	e.Helper()
	m, ok := errors.AsType[*coord.MovedError](err)
	if !ok || !errors.Is(err, coord.ErrMoved) || m.View.State != want {
		e.Fatalf("got %v, want a *MovedError with a run that is %s", err, want)
	}
}

var resolves = []test{
	{"a doubt is closed as a person decides", func(e *env) {
		c, l := e.holder("d1")
		yes, _ := e.begin(c, l, 1)
		no, _ := e.begin(c, l, 2)
		e.Crash(e.T, c)
		e.gone(c)
		other, next := e.holder("d2")
		v := e.resolve(other, resolution(yes, coord.Committed), coord.RunCommitted)
		if a := v.Entry.Attempts[0]; a.By != "ana" || a.Reason != "looked at the bank" || a.Cause != coord.CauseResolved || a.Ended.IsZero() {
			e.Errorf("got %+v", a)
		}
		e.refused(other, question(next, 1), coord.ErrCommitted)
		e.resolve(other, resolution(no, coord.Void), coord.RunFree)
		e.begin(other, next, 2)
	}},
	{"the same decision may be repeated", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.gone(c)
		e.resolve(c, resolution(b, coord.Void), coord.RunFree)
		e.resolve(c, resolution(b, coord.Void), coord.RunFree)
		e.shows(c, 1, coord.RunFree, coord.Void)
	}},
	{"a running attempt is not resolved, unless forced", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		r := resolution(b, coord.Void)
		_, err := e.process("d2").Resolve(e.ctx, r)
		e.is(err, coord.ErrInProgress)
		e.shows(c, 1, coord.RunRunning, coord.Open)
		r.Force = true
		e.resolve(c, r, coord.RunFree)
	}},
	{"a decision about what the entry does not hold any more shows what it holds", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.gone(c)
		e.finish(c, b, coord.Failed)
		_, err := c.Resolve(e.ctx, resolution(b, coord.Void))
		e.moved(err, coord.RunFailed)
		e.shows(c, 1, coord.RunFailed, coord.Failed)
		_, err = c.Resolve(e.ctx, resolution(question(l, 1), coord.Void))
		e.moved(err, coord.RunFailed)
		e.finish(c, b, coord.Committed)
		_, err = c.Resolve(e.ctx, resolution(b, coord.Void))
		e.moved(err, coord.RunCommitted)
		_, err = c.Resolve(e.ctx, resolution(question(l, 7), coord.Void))
		e.is(err, coord.ErrNotFound)
	}},
	{"a decision about one attempt never closes another that acts meanwhile", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.Crash(e.T, c)
		e.gone(c)
		other, next := e.holder("d2")
		retry := question(next, 1)
		retry.Retry = b.Attempt
		e.ask(other, retry)
		_, err := other.Resolve(e.ctx, resolution(b, coord.Void))
		e.moved(err, coord.RunRunning)
		e.shows(other, 1, coord.RunRunning, coord.Failed, coord.Open)
	}},
	{"a failed run is freed by a person", func(e *env) {
		c, l := e.holder("d1")
		b := e.ran(c, l, 1, coord.Failed)
		r := resolution(b, coord.Void)
		r.From = coord.Failed
		e.resolve(c, r, coord.RunFree)
		e.begin(c, l, 1)
	}},
	{"a late commit overrides a person's no", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.gone(c)
		other := e.process("d2")
		next := e.acquire(other, "d2")
		e.resolve(other, resolution(b, coord.Void), coord.RunFree)
		e.finish(c, b, coord.Committed)
		v := e.shows(other, 1, coord.RunCommitted, coord.Committed)
		if a := v.Entry.Attempts[0]; a.By != "" || a.Cause != coord.CauseExit {
			e.Errorf("got %+v", a)
		}
		e.refused(other, question(next, 1), coord.ErrCommitted)
	}},
	{"a decision needs who, why and what", func(e *env) {
		c, l := e.holder("d1")
		b, _ := e.begin(c, l, 1)
		e.gone(c)
		for _, spoil := range []func(*coord.Resolution){
			func(r *coord.Resolution) { r.By = "" },
			func(r *coord.Resolution) { r.Reason = "" },
			func(r *coord.Resolution) { r.As = coord.Failed },
			func(r *coord.Resolution) { r.As = "" },
			func(r *coord.Resolution) { r.From = coord.Committed },
			func(r *coord.Resolution) { r.Attempt = "x" },
		} {
			r := resolution(b, coord.Void)
			spoil(&r)
			_, err := c.Resolve(e.ctx, r)
			e.is(err, coord.ErrInvalid)
		}
		e.shows(c, 1, coord.RunInDoubt, coord.Open)
	}},
	{"one more attempt of a failed run is permitted once", func(e *env) {
		c, l := e.holder("d1")
		b := e.ran(c, l, 1, coord.Failed)
		permit := resolution(b, "")
		for range 2 {
			v, err := c.Permit(e.ctx, permit)
			e.ok(err)
			if a := v.Entry.Attempts[0]; v.State != coord.RunFree || a.State != coord.Failed || !a.Permitted || a.By != "ana" {
				e.Errorf("run %s, attempt %+v", v.State, a)
			}
		}
		given, _ := e.begin(c, l, 1)
		e.ok(c.Cancel(e.ctx, given))
		e.ran(c, l, 1, coord.Failed)
		e.refused(c, question(l, 1), coord.ErrFailed)
		_, err := c.Permit(e.ctx, permit)
		e.moved(err, coord.RunFailed)
	}},
	{"nothing is permitted about a run that did not fail", func(e *env) {
		c, l := e.holder("d1")
		for n, s := range []coord.State{coord.Committed, coord.Void} {
			want := map[coord.State]coord.RunState{coord.Committed: coord.RunCommitted, coord.Void: coord.RunFree}[s]
			_, err := c.Permit(e.ctx, resolution(e.ran(c, l, n, s), ""))
			e.moved(err, want)
		}
		b, _ := e.begin(c, l, 7)
		_, err := c.Permit(e.ctx, resolution(b, ""))
		e.moved(err, coord.RunRunning)
		_, err = c.Permit(e.ctx, resolution(question(l, 8), ""))
		e.is(err, coord.ErrNotFound)
	}},
}
