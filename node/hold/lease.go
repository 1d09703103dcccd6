package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// resend is the pause before an unsettled request is sent again.
const resend = 250 * time.Millisecond

// ensure gives the keeper of a lease that is held now.
func (t *Table) ensure(ctx context.Context, e *entry) (*coord.Keeper, error) {
	if k := t.keeperOf(e); k != nil && k.Trusted() == nil {
		return k, nil
	}
	if err := e.enter(ctx); err != nil {
		return nil, fmt.Errorf("%w: another call about its lease is not answered: %w", coord.ErrNotSent, err)
	}
	settled := true
	defer func() {
		if settled {
			e.leave()
		}
	}()
	if k := t.keeperOf(e); k != nil {
		if k.Context().Err() == nil {
			return k, nil // if it is not trusted, a renewal is on its way
		}
		if k, err := t.again(ctx, e, k); !isLost(err) {
			return k, err
		}
		// Whoever keeps it is told by the entry that it is lost; then it may be acquired.
	}
	l, err := t.acquire(ctx, e)
	if errors.Is(err, coord.ErrIndeterminate) {
		settled = false
		t.giveUp(e)
	}
	if err != nil {
		return nil, err
	}
	t.log.Info("lease held", "agent", l.Agent, "epoch", uint64(l.Epoch))
	return t.install(e, l), nil
}

// again renews a lease that ran out. The caller is inside of the gate. An error that isLost says that it is gone.
func (t *Table) again(ctx context.Context, e *entry, was *coord.Keeper) (*coord.Keeper, error) {
	was.Stop()
	l := was.Lease()
	err := context.Cause(was.Context())
	if !isLost(err) {
		at := time.Now() // before asking
		try, cancel := context.WithTimeout(ctx, max(l.TTL/3, pause))
		defer cancel()
		var got coord.Lease
		if got, err = t.cfg.Leases.Renew(try, l.Agent, l.Device, l.Epoch, l.TTL); err == nil {
			if got.Sent.IsZero() {
				got.Sent = at
			}
			return t.install(e, got), nil
		}
	}
	if isLost(err) {
		t.log.Warn("lease lost", "agent", l.Agent, "epoch", uint64(l.Epoch), "err", err)
		t.drop(e)
		if t.cfg.Lost != nil {
			t.cfg.Lost(l.Agent)
		}
		return nil, err
	}
	return nil, fmt.Errorf("%w: its lease could not be renewed: %w", coord.ErrNotSent, err)
}

// acquire asks for the lease until there is an answer or ctx ends. An error that matches coord.ErrIndeterminate has to be given up.
func (t *Table) acquire(ctx context.Context, e *entry) (coord.Lease, error) {
	req := coord.Request{Agent: e.agent, Device: t.cfg.Device, TTL: t.ttl(e.agent)}
	if t.cfg.Floor != nil {
		var err error
		if req.Floor, err = t.cfg.Floor(ctx, e.agent); err != nil {
			return coord.Lease{}, fmt.Errorf("%w: read the highest epoch from the journal: %w", coord.ErrNotSent, err)
		}
	}
	for sure := true; ; {
		at := time.Now() // before asking
		l, err := t.once(ctx, req)
		switch {
		case err == nil:
			if l.Sent.IsZero() {
				l.Sent = at
			}
			return l, nil
		case sure && !errors.Is(err, coord.ErrIndeterminate), isLost(err):
			return coord.Lease{}, err
		}
		sure = false
		if ctx.Err() != nil {
			return coord.Lease{}, errors.Join(coord.ErrIndeterminate, err)
		}
		sleep(ctx, resend)
	}
}

// once acquires the lease, or picks it up from an earlier process of the device that is proved dead.
func (t *Table) once(ctx context.Context, req coord.Request) (coord.Lease, error) {
	l, err := t.cfg.Leases.Acquire(ctx, req)
	held, ok := errors.AsType[*coord.HeldError](err)
	if !ok || held.Holder.Device != req.Device {
		return l, err
	}
	again, e := t.cfg.Leases.Renew(ctx, req.Agent, req.Device, held.Holder.Epoch, req.TTL)
	if e == nil || !isLost(e) {
		return again, e
	}
	return l, err // without proof: it runs out
}

// giveUp gives back what may have been granted by a call that was not answered. Until that is settled nobody else asks.
func (t *Table) giveUp(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.users++
	t.all.Go(func() {
		defer t.exit(e)
		defer e.leave()
		for t.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(t.ctx, coord.DefaultTTL)
			err := t.cfg.Leases.Release(ctx, e.agent, t.cfg.Device, 0)
			cancel()
			if err == nil || isLost(err) {
				return
			}
			sleep(t.ctx, pause)
		}
	})
}

func (t *Table) ttl(agent string) time.Duration {
	if t.cfg.TTL != nil {
		if ttl := t.cfg.TTL(agent); ttl > 0 {
			return ttl
		}
	}
	return coord.DefaultTTL
}
