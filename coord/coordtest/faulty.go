package coordtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// A Fault is what happens to one call on its way.
type Fault int

const (
	// Fine: it arrives, and so does its answer.
	Fine Fault = iota
	// Before: it never leaves; the caller gets coord.ErrNotSent.
	Before
	// After: it is carried out and its answer lost; the caller gets coord.ErrIndeterminate. A read gets
	// coord.ErrNotSent, since it does nothing.
	After
	// Twice: it is carried out two times; the caller gets the first answer.
	Twice
	// Late: the caller gets coord.ErrIndeterminate, and it is carried out at the next Deliver.
	Late
)

var errFault = errors.New("planted by a test")

// A Flaky is a coordinator behind a bad network; see Faulty.
type Flaky struct {
	coord.Coordinator // what the faults do not touch: Generation, Close

	plan func(op string) Fault

	mu   sync.Mutex
	late []lateCall
	// grants are those whose answer was lost, by request: like every coordinator a Flaky remembers what it
	// asked for until it is settled.
	grants map[string]coord.Lease
}

type lateCall struct {
	grant string // the request, if it asks for a lease
	agent string
	begin bool // it asks for an attempt
	do    func()
}

// Faulty makes the calls of c suffer what plan says; plan gets the name of the method and is asked once a
// call, from whatever goroutine makes it. A request that is repeated after coord.ErrIndeterminate settles.
func Faulty(c coord.Coordinator, plan func(op string) Fault) *Flaky {
	return &Flaky{Coordinator: c, plan: plan, grants: map[string]coord.Lease{}}
}

// Deliver carries out what is late, in the order in which it was asked.
func (f *Flaky) Deliver() {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, l := range late {
		l.do()
	}
}

// send makes one call that changes something.
func (f *Flaky) send(op string, do func() error) error {
	return f.sendFor(op, lateCall{}, do)
}

func (f *Flaky) sendFor(op string, late lateCall, do func() error) error {
	switch f.plan(op) {
	case Before:
		return lostBefore(op)
	case After:
		_ = do()
		return lostAfter(op)
	case Twice:
		err := do()
		_ = do()
		return err
	case Late:
		late.do = func() { _ = do() }
		f.mu.Lock()
		f.late = append(f.late, late)
		f.mu.Unlock()
		return lostAfter(op)
	}
	return do()
}

func lostBefore(op string) error { return fmt.Errorf("%s: %w: %w", op, coord.ErrNotSent, errFault) }
func lostAfter(op string) error {
	return fmt.Errorf("%s: %w: %w", op, coord.ErrIndeterminate, errFault)
}

// change makes one call that changes something and has a result; a copy's result is dropped.
func change[T any](f *Flaky, op string, late lateCall, do func() (T, error)) (got T, err error) {
	var first T
	var refused error
	answered := false
	if err := f.sendFor(op, late, func() error {
		if refused != nil {
			// A copy of a grant or a begin that was refused is the same guarded request: it can never be granted any more.
			// Asked anew it would be another request, whose grant nobody knows of.
			return refused
		}
		t, err := do()
		if !answered {
			first, answered = t, true
			if late.grant != "" || late.begin {
				refused = err
			}
		}
		return err
	}); err != nil {
		return got, err
	}
	return first, nil
}

// ask makes one call that changes nothing.
func ask[T any](f *Flaky, op string, do func() (T, error)) (got T, err error) {
	switch f.plan(op) {
	case Before, After, Late:
		return got, lostBefore(op)
	case Twice:
		_, _ = do()
	}
	return do()
}

// grant asks for a lease. The same request again gives what an earlier copy of it was granted.
func (f *Flaky) grant(ctx context.Context, op, key, agent string, ask func(context.Context) (coord.Lease, error)) (coord.Lease, error) {
	key = op + key
	var granted coord.Lease // to a first copy: another can be granted nothing else, even when that was lost meanwhile
	l, err := change(f, op, lateCall{grant: key, agent: agent}, func() (coord.Lease, error) {
		if granted.Epoch > 0 {
			return granted, nil
		}
		ctx := context.WithoutCancel(ctx) // a late copy outlives its caller
		if l, ok, err := f.earlier(ctx, key, agent); ok || err != nil {
			return l, err
		}
		l, err := ask(ctx)
		if err == nil {
			f.remember(key, l)
			granted = l
		}
		return l, err
	})
	if err == nil {
		f.settled(agent)
	}
	return l, err
}

// earlier is what an earlier copy of the request was granted, if that still is the lease. Copies that are
// under way can never be carried out once this one was.
func (f *Flaky) earlier(ctx context.Context, key, agent string) (coord.Lease, bool, error) {
	f.mu.Lock()
	l, ok := f.grants[key]
	f.late = without(f.late, func(l lateCall) bool { return l.grant == key })
	f.mu.Unlock()
	if !ok {
		return coord.Lease{}, false, nil
	}
	now, held, err := f.Coordinator.Current(ctx, agent)
	return l, err == nil && held && now.Handle == l.Handle, err
}

func (f *Flaky) remember(key string, l coord.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grants[key] = l
}

// settled notes that a request for the agent's lease was granted and answered. With it whatever was asked for before is settled, of
// another kind too: a copy that is under way finds another epoch than the one it was sent for, and can never be carried out.
func (f *Flaky) settled(agent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = without(f.late, func(l lateCall) bool { return l.grant != "" && l.agent == agent })
	maps.DeleteFunc(f.grants, func(_ string, l coord.Lease) bool { return l.Agent == agent })
}

func without(late []lateCall, drop func(lateCall) bool) (kept []lateCall) {
	for _, l := range late {
		if !drop(l) {
			kept = append(kept, l)
		}
	}
	return kept
}

// Acquire is coord.LeaseCoordinator.Acquire.
func (f *Flaky) Acquire(ctx context.Context, req coord.Request) (coord.Lease, error) {
	return f.grant(ctx, "Acquire", fmt.Sprintf("%+v", req), req.Agent, func(ctx context.Context) (coord.Lease, error) {
		return f.Coordinator.Acquire(ctx, req)
	})
}

// Steal is coord.Steward.Steal.
func (f *Flaky) Steal(ctx context.Context, t coord.Theft) (coord.Lease, error) {
	return f.grant(ctx, "Steal", fmt.Sprintf("%+v", t), t.Agent, func(ctx context.Context) (coord.Lease, error) {
		return f.Coordinator.Steal(ctx, t)
	})
}

// Start is coord.Coordinator.Start.
func (f *Flaky) Start(ctx context.Context, req coord.Request, b coord.Begin) (coord.Lease, coord.Attempt, error) {
	type started struct {
		l coord.Lease
		a coord.Attempt
	}
	key := "Start" + b.Attempt
	got, err := change(f, "Start", lateCall{grant: key, agent: req.Agent}, func() (s started, err error) {
		if s.l, s.a, err = f.Coordinator.Start(context.WithoutCancel(ctx), req, b); err == nil {
			f.remember(key, s.l)
		}
		return s, err
	})
	if err == nil {
		f.settled(req.Agent)
	}
	return got.l, got.a, err
}

// Release is coord.LeaseCoordinator.Release. Epoch 0 gives up the grants whose answers were lost.
func (f *Flaky) Release(ctx context.Context, agent, device string, epoch coord.Epoch) error {
	return f.send("Release", func() error {
		ctx := context.WithoutCancel(ctx)
		if epoch > 0 {
			return f.Coordinator.Release(ctx, agent, device, epoch)
		}
		f.mu.Lock()
		f.late = without(f.late, func(l lateCall) bool { return l.grant != "" && l.agent == agent })
		var unsettled []coord.Lease
		for key, l := range f.grants {
			if l.Agent == agent {
				unsettled = append(unsettled, l)
				delete(f.grants, key)
			}
		}
		f.mu.Unlock()
		for _, l := range unsettled {
			if err := f.Coordinator.Release(ctx, agent, l.Device, l.Epoch); err != nil && !errors.Is(err, coord.ErrLost) {
				return err
			}
		}
		return f.Coordinator.Release(ctx, agent, device, 0)
	})
}

// Renew is coord.LeaseCoordinator.Renew.
func (f *Flaky) Renew(ctx context.Context, agent, device string, epoch coord.Epoch, ttl time.Duration) (coord.Lease, error) {
	return change(f, "Renew", lateCall{}, func() (coord.Lease, error) {
		return f.Coordinator.Renew(context.WithoutCancel(ctx), agent, device, epoch, ttl)
	})
}

// Evict is coord.Steward.Evict.
func (f *Flaky) Evict(ctx context.Context, t coord.Theft) error {
	return f.send("Evict", func() error { return f.Coordinator.Evict(context.WithoutCancel(ctx), t) })
}

// Pause is coord.Steward.Pause.
func (f *Flaky) Pause(ctx context.Context, agent string, g coord.Gate) error {
	return f.send("Pause", func() error { return f.Coordinator.Pause(context.WithoutCancel(ctx), agent, g) })
}

// Resume is coord.Steward.Resume.
func (f *Flaky) Resume(ctx context.Context, agent string) error {
	return f.send("Resume", func() error { return f.Coordinator.Resume(context.WithoutCancel(ctx), agent) })
}

// SetRecovery is coord.Steward.SetRecovery.
func (f *Flaky) SetRecovery(ctx context.Context, g coord.Gate) error {
	return f.send("SetRecovery", func() error { return f.Coordinator.SetRecovery(context.WithoutCancel(ctx), g) })
}

// LiftRecovery is coord.Steward.LiftRecovery.
func (f *Flaky) LiftRecovery(ctx context.Context, g coord.Gate) error {
	return f.send("LiftRecovery", func() error { return f.Coordinator.LiftRecovery(context.WithoutCancel(ctx), g) })
}

// Begin is coord.Ledger.Begin.
func (f *Flaky) Begin(ctx context.Context, b coord.Begin) (coord.Attempt, error) {
	return change(f, "Begin", lateCall{begin: true}, func() (coord.Attempt, error) { return f.Coordinator.Begin(context.WithoutCancel(ctx), b) })
}

// Cancel is coord.Ledger.Cancel.
func (f *Flaky) Cancel(ctx context.Context, b coord.Begin) error {
	return f.send("Cancel", func() error { return f.Coordinator.Cancel(context.WithoutCancel(ctx), b) })
}

// Finish is coord.Ledger.Finish.
func (f *Flaky) Finish(ctx context.Context, o coord.Outcome) error {
	return f.send("Finish", func() error { return f.Coordinator.Finish(context.WithoutCancel(ctx), o) })
}

// Complete is coord.Coordinator.Complete.
func (f *Flaky) Complete(ctx context.Context, o coord.Outcome, l coord.Lease) (finished, released error) {
	got, err := change(f, "Complete", lateCall{}, func() (both [2]error, err error) {
		both[0], both[1] = f.Coordinator.Complete(context.WithoutCancel(ctx), o, l)
		return both, nil
	})
	if err != nil {
		return err, err
	}
	return got[0], got[1]
}

// Resolve is coord.Ledger.Resolve.
func (f *Flaky) Resolve(ctx context.Context, r coord.Resolution) (coord.View, error) {
	return change(f, "Resolve", lateCall{}, func() (coord.View, error) { return f.Coordinator.Resolve(context.WithoutCancel(ctx), r) })
}

// Permit is coord.Ledger.Permit.
func (f *Flaky) Permit(ctx context.Context, r coord.Resolution) (coord.View, error) {
	return change(f, "Permit", lateCall{}, func() (coord.View, error) { return f.Coordinator.Permit(context.WithoutCancel(ctx), r) })
}

// Look is coord.Ledger.Look.
func (f *Flaky) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	return ask(f, "Look", func() (coord.View, error) { return f.Coordinator.Look(ctx, q) })
}

// List is coord.Ledger.List.
func (f *Flaky) List(ctx context.Context, filter coord.Filter) (coord.Page, error) {
	return ask(f, "List", func() (coord.Page, error) { return f.Coordinator.List(ctx, filter) })
}

// Leases is coord.Steward.Leases.
func (f *Flaky) Leases(ctx context.Context) ([]coord.Lease, error) {
	return ask(f, "Leases", func() ([]coord.Lease, error) { return f.Coordinator.Leases(ctx) })
}

// Current is coord.LeaseCoordinator.Current.
func (f *Flaky) Current(ctx context.Context, agent string) (l coord.Lease, held bool, err error) {
	l, err = ask(f, "Current", func() (l coord.Lease, err error) {
		l, held, err = f.Coordinator.Current(ctx, agent)
		return l, err
	})
	return l, held, err
}

// Recovery is coord.Steward.Recovery.
func (f *Flaky) Recovery(ctx context.Context) (g coord.Gate, set bool, err error) {
	g, err = ask(f, "Recovery", func() (g coord.Gate, err error) {
		g, set, err = f.Coordinator.Recovery(ctx)
		return g, err
	})
	return g, set, err
}
