package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// A keeper renews a lease and knows how long it can be trusted.
type keeper interface {
	Held
	// Stop ends the renewals. The lease is not given back.
	Stop()
}

var (
	_ keeper = (*coord.Keeper)(nil)
	_ keeper = (*tenant)(nil)
	_ keeper = kept{}
)

// kept is a lease that the caller of the run keeps.
type kept struct{ Held }

// Stop leaves it to its owner.
func (kept) Stop() {}

// keep renews the lease from the grant on, whatever becomes of the caller: an effect that is told to stop keeps its
// lease until it has ended and was recorded.
func (r *run) keep(ctx context.Context) keeper {
	ctx = context.WithoutCancel(ctx)
	if r.job.Held != nil {
		return kept{r.job.Held}
	}
	if r.job.OnLost == LostKeep {
		return newTenant(ctx, r.d.cfg.Coordinator, r.lease)
	}
	return coord.Keep(ctx, r.d.cfg.Coordinator, r.lease, coord.KeepOptions{})
}

// comeback is the pause between two tries to renew a lease that ran out.
const comeback = time.Second

// A tenant keeps a lease for an effect that goes on when it cannot be trusted: after an outage it renews again, as long as
// nobody took the lease, so that the agent's next run does not begin beside the effect without need.
type tenant struct {
	c      coord.LeaseCoordinator
	ctx    context.Context // ends when somebody took the lease, or with Stop
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu  sync.Mutex
	now *coord.Keeper // the one that renews, or the last that did
}

func newTenant(ctx context.Context, c coord.LeaseCoordinator, l coord.Lease) *tenant {
	t := &tenant{c: c, done: make(chan struct{}), now: coord.Keep(ctx, c, l, coord.KeepOptions{})}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	go t.run()
	return t
}

func (t *tenant) Context() context.Context { return t.ctx }
func (t *tenant) Lease() coord.Lease       { return t.keeper().Lease() }
func (t *tenant) Trusted() error           { return t.keeper().Trusted() }

func (t *tenant) Stop() {
	t.cancel(coord.ErrReleased)
	<-t.done
}

func (t *tenant) keeper() *coord.Keeper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

func (t *tenant) run() {
	defer close(t.done)
	for {
		k := t.keeper()
		select {
		case <-t.ctx.Done():
		case <-k.Context().Done():
		}
		why := context.Cause(k.Context())
		k.Stop()
		if t.ctx.Err() != nil {
			return
		}
		if errors.Is(why, coord.ErrUnverifiable) {
			why = t.comeBack(k.Lease())
		}
		if why != nil {
			t.cancel(why)
			return
		}
	}
}

// comeBack renews until it succeeds: nil; or until somebody took the lease, or Stop: the cause.
func (t *tenant) comeBack(l coord.Lease) error {
	for {
		at := time.Now() // before asking
		try, cancel := context.WithTimeout(t.ctx, l.TTL/3)
		got, err := t.c.Renew(try, l.Agent, l.Device, l.Epoch, l.TTL)
		cancel()
		switch {
		case err == nil:
			if got.Sent.IsZero() {
				got.Sent = at
			}
			t.mu.Lock()
			t.now = coord.Keep(context.WithoutCancel(t.ctx), t.c, got, coord.KeepOptions{})
			t.mu.Unlock()
			return nil
		case errors.Is(err, coord.ErrLost), errors.Is(err, coord.ErrHeld):
			return err
		case t.ctx.Err() != nil:
			return context.Cause(t.ctx)
		}
		sleep(t.ctx, comeback)
	}
}
