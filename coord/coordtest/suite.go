// Package coordtest is the conformance suite of package coord, and tools to test what is built on it.
//
// # Guarantees
//
// [Run] holds a named test for each sentence of the contract; an implementation that passes it may stand
// behind the rest of syncnode. [Faulty] makes a coordinator fail in every way that a network can.
// A [History] records calls and judges them against the contract by linearizability.
//
// The suite looks at no clock: nothing in it depends on how fast a backend is, except that a call has to
// return within Options.Timeout and that what a test holds does not expire within Options.TTL.
//
// # Concurrency
//
// The tests of one Run go one after another, each on a backend of its own.
package coordtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

// A Backend is an empty ledger and what a test may do to its processes.
type Backend struct {
	// Process starts a process of the device. The backend ends it with the test.
	Process func(t testing.TB, device string) coord.Coordinator
	// Crash ends the process without a word; the test does not use it again. What it holds lives on until
	// it runs out.
	Crash func(t testing.TB, c coord.Coordinator)
	// Expire returns once every liveness of the process is gone, also of one that crashed. A living process
	// brings its own back with its next Acquire, Renew, Start or Steal, and not before.
	Expire func(t testing.TB, c coord.Coordinator)
	// Prove makes the process count as proved dead for later processes of its device. Nil: no such proof.
	Prove func(t testing.TB, c coord.Coordinator)
	// Advance lets d pass on the backend's clock. Nil: its clock is the real one.
	Advance func(t testing.TB, d time.Duration)

	Options
}

// Options is what differs between implementations. Zero fields take their defaults.
type Options struct {
	TTL        time.Duration // what the tests ask for; default coord.MaxTTL, so that nothing expires by itself
	Timeout    time.Duration // for each test; default 60 s
	Contenders int           // processes that contend; default 8
	Rounds     int           // grants for each of them; default 50
	Steps      int           // operations of each client of a recorded history; default 60
	// Unmet names tests, as in "leases/steal …", with the reason why this implementation does not run them.
	Unmet map[string]string
}

func (o Options) filled() Options {
	if o.TTL == 0 {
		o.TTL = coord.MaxTTL
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Contenders == 0 {
		o.Contenders = 8
	}
	if o.Rounds == 0 {
		o.Rounds = 50
	}
	if o.Steps == 0 {
		o.Steps = 60
	}
	return o
}

// Run runs the suite. open gives each test a backend of its own.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	run(t, open, []group{
		{"leases", leases}, {"people", people}, {"processes", processes}, {"begin", begins}, {"cancel", cancels},
		{"finish", finishes}, {"resolve", resolves}, {"together", together}, {"lists", lists}, {"faults", faults},
		{"histories", histories},
	})
}

// RunRecovery runs the part of the suite for processes that are coord.Recoverers too.
func RunRecovery(t *testing.T, open func(t *testing.T) Backend) {
	run(t, open, []group{{"recovery", recoveries}})
}

type group struct {
	name  string
	tests []test
}

func run(t *testing.T, open func(t *testing.T) Backend, groups []group) {
	for _, g := range groups {
		for _, one := range g.tests {
			name := g.name + "/" + one.name
			t.Run(name, func(t *testing.T) {
				b := open(t)
				if why := b.Unmet[name]; why != "" {
					t.Skip(why)
				}
				b.Options = b.filled()
				ctx, cancel := context.WithTimeout(t.Context(), b.Timeout)
				defer cancel()
				one.do(&env{T: t, Backend: b, ctx: ctx})
			})
		}
	}
}

type test struct {
	name string
	do   func(*env)
}

// env is one test's view of its backend. The lower-case helpers fail the test on every error.
type env struct {
	*testing.T
	Backend
	ctx context.Context
}

const agent = "a"

func (e *env) process(device string) coord.Coordinator {
	e.Helper()
	return e.Process(e.T, device)
}

func (e *env) request(device string) coord.Request {
	return coord.Request{Agent: agent, Device: device, TTL: e.TTL}
}

func (e *env) acquire(c coord.Coordinator, device string) coord.Lease {
	e.Helper()
	l, err := c.Acquire(e.ctx, e.request(device))
	e.ok(err)
	return l
}

// holder is a fresh process of the device that holds the agent.
func (e *env) holder(device string) (coord.Coordinator, coord.Lease) {
	e.Helper()
	c := e.process(device)
	return c, e.acquire(c, device)
}

// gone lets the livenesses of the processes end.
func (e *env) gone(cs ...coord.Coordinator) {
	e.Helper()
	for _, c := range cs {
		e.Expire(e.T, c)
	}
}

func runID(n int) string {
	return ident.RunID("suite", agent, occurrence(n))
}

func occurrence(n int) string { return fmt.Sprintf("key:%d", n) }

// question is a Begin of run n under l that was never asked before.
func question(l coord.Lease, n int) coord.Begin {
	return coord.Begin{Lease: l, Run: runID(n), Occurrence: occurrence(n), Attempt: coord.NewNonce(), Request: coord.NewNonce()}
}

func (e *env) begin(c coord.Coordinator, l coord.Lease, n int) (coord.Begin, coord.Attempt) {
	e.Helper()
	b := question(l, n)
	return b, e.ask(c, b)
}

func (e *env) ask(c coord.Coordinator, b coord.Begin) coord.Attempt {
	e.Helper()
	a, err := c.Begin(e.ctx, b)
	e.ok(err)
	if a.ID != b.Attempt || a.State != coord.Open {
		e.Fatalf("Begin gave attempt %+v, want %s open", a, b.Attempt)
	}
	return a
}

func (e *env) refused(c coord.Coordinator, b coord.Begin, want error) {
	e.Helper()
	a, err := c.Begin(e.ctx, b)
	e.is(err, want)
	if a.State == coord.Open {
		e.Errorf("a refused Begin gave an open attempt: %+v", a)
	}
}

// ended is the outcome of b's attempt.
func ended(b coord.Begin, s coord.State) coord.Outcome {
	cause := coord.CauseExit
	if s == coord.Void {
		cause = coord.CauseStart
	}
	return coord.Outcome{Agent: b.Lease.Agent, Run: b.Run, Occurrence: b.Occurrence, Input: b.Input,
		Attempt: coord.Attempt{ID: b.Attempt, Device: b.Lease.Device, Epoch: b.Lease.Epoch, State: s, Cause: cause,
			Begun: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC()}}
}

func (e *env) finish(c coord.Coordinator, b coord.Begin, s coord.State) {
	e.Helper()
	e.ok(c.Finish(e.ctx, ended(b, s)))
}

// ran begins and finishes run n.
func (e *env) ran(c coord.Coordinator, l coord.Lease, n int, s coord.State) coord.Begin {
	e.Helper()
	b, _ := e.begin(c, l, n)
	e.finish(c, b, s)
	return b
}

func (e *env) look(c coord.Coordinator, n int) coord.View {
	e.Helper()
	v, err := c.Look(e.ctx, coord.Question{Agent: agent, Run: runID(n)})
	e.ok(err)
	if v.Entry.Agent != agent || v.Entry.Run != runID(n) {
		e.Fatalf("Look gave the entry of %s/%s", v.Entry.Agent, v.Entry.Run)
	}
	return v
}

// shows checks the state of run n and the states of its attempts.
func (e *env) shows(c coord.Coordinator, n int, want coord.RunState, attempts ...coord.State) coord.View {
	e.Helper()
	v := e.look(c, n)
	if v.State != want {
		e.Errorf("run is %q, want %q; attempts %+v", v.State, want, v.Entry.Attempts)
	}
	if len(v.Entry.Attempts) != len(attempts) {
		e.Fatalf("entry has %d attempts, want %v: %+v", len(v.Entry.Attempts), attempts, v.Entry.Attempts)
	}
	for i, s := range attempts {
		if got := v.Entry.Attempts[i].State; got != s {
			e.Errorf("attempt %d is %s, want %s", i, got, s)
		}
	}
	return v
}

func (e *env) current(c coord.Coordinator) (coord.Lease, bool) {
	e.Helper()
	l, held, err := c.Current(e.ctx, agent)
	e.ok(err)
	return l, held
}

// heldBy checks who holds the agent, and whether that lease expired.
func (e *env) heldBy(c coord.Coordinator, want coord.Lease, expired bool) {
	e.Helper()
	l, held := e.current(c)
	if !held || l.Device != want.Device || l.Epoch != want.Epoch || l.Handle != want.Handle || l.Expired != expired {
		e.Errorf("Current gave %+v, %v, want %s at epoch %d, expired %v", l, held, want.Device, want.Epoch, expired)
	}
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("got %v, want %v", err, want)
	}
}

// lost checks that err is a *LostError with these numbers.
func (e *env) lost(err error, claimed, current coord.Epoch) {
	e.Helper()
	l, ok := errors.AsType[*coord.LostError](err)
	if !ok || !errors.Is(err, coord.ErrLost) {
		e.Fatalf("got %v, want a *LostError", err)
	}
	if l.Agent != agent || l.Claimed != claimed || l.Current != current {
		e.Errorf("got %+v, want agent %s, claimed %d, current %d", l, agent, claimed, current)
	}
}

// held checks that err is a *HeldError that names the holder.
func (e *env) held(err error, by coord.Lease) {
	e.Helper()
	h, ok := errors.AsType[*coord.HeldError](err)
	if !ok || !errors.Is(err, coord.ErrHeld) {
		e.Fatalf("got %v, want a *HeldError", err)
	}
	if h.Holder.Agent != by.Agent || h.Holder.Device != by.Device || h.Holder.Epoch != by.Epoch || h.Holder.Expired {
		e.Errorf("got holder %+v, want %+v", h.Holder, by)
	}
}
