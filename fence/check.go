package fence

import (
	"context"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// Check asks for an effect that is under way whether it may still act: l is the lease as its keeper knows it now. Nil
// means that, at one moment during the call, the ledger showed this very grant as the holder, the attempt open, no
// other attempt committed, no gate closed, and that trust in the lease is not over yet. It says nothing about
// the moment after.
func (f *Fence) Check(ctx context.Context, l coord.Lease, run, attempt string) error {
	if err := trusted(l); err != nil {
		return err
	}
	if f.cfg.Guard != nil {
		if err := f.cfg.Guard(ctx, l); err != nil {
			return fmt.Errorf("guard of run %s: %w", run, err)
		}
	}
	v, err := f.cfg.Attempts.Look(ctx, coord.Question{Agent: l.Agent, Run: run})
	if err != nil {
		return fmt.Errorf("check run %s: %w", run, err)
	}
	for _, no := range []error{holds(v, l), stillOpen(v, run, attempt), gates(l.Agent, v)} {
		if no != nil {
			return no
		}
	}
	return trusted(l) // the answer may have taken longer than the trust lasted
}

// trusted compares instants of this process alone.
func trusted(l coord.Lease) error {
	if end := l.Sent.Add(l.TTL); l.Sent.IsZero() || !time.Now().Before(end) {
		return fmt.Errorf("lease of agent %s at epoch %d: %w", l.Agent, l.Epoch, coord.ErrUnverifiable)
	}
	return nil
}

func holds(v coord.View, l coord.Lease) error {
	switch h := v.Holder; {
	case !v.Held:
		return &coord.HolderError{Kind: coord.ErrNotHeld, Agent: l.Agent, Claimed: l.Epoch}
	case h.Device != l.Device:
		return &coord.HolderError{Kind: coord.ErrNotHeld, Agent: l.Agent, Claimed: l.Epoch, Holder: h}
	case h.Epoch != l.Epoch || h.Handle != l.Handle:
		return &coord.HolderError{Kind: coord.ErrStale, Agent: l.Agent, Claimed: l.Epoch, Holder: h}
	case h.Expired:
		return fmt.Errorf("lease of agent %s at epoch %d expired: %w", l.Agent, l.Epoch, coord.ErrUnverifiable)
	}
	return nil
}

func stillOpen(v coord.View, run, attempt string) error {
	if v.Entry.Packed {
		return &coord.VerdictError{Kind: coord.ErrCommitted, Run: run, Packed: true}
	}
	var own *coord.Attempt
	for i, a := range v.Entry.Attempts {
		if a.State == coord.Committed {
			return &coord.VerdictError{Kind: coord.ErrCommitted, Run: run, Attempt: a}
		}
		if a.ID == attempt {
			own = &v.Entry.Attempts[i]
		}
	}
	switch {
	case own == nil:
		return fmt.Errorf("attempt %s of run %s: %w", attempt, run, coord.ErrNotFound)
	case own.State != coord.Open || own.Abandoned:
		return &coord.VerdictError{Kind: coord.ErrClosed, Run: run, Attempt: *own}
	}
	return nil
}

// gates gives the recovery gate first, as Begin does.
func gates(agent string, v coord.View) error {
	switch {
	case v.Recovery != nil:
		return &coord.GateError{Kind: coord.ErrRecovery, Gate: *v.Recovery}
	case v.Paused != nil:
		return &coord.GateError{Kind: coord.ErrPaused, Agent: agent, Gate: *v.Paused}
	}
	return nil
}
