package rules

import (
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// Begin is the verdict of Begin, in the contract's order. Without an error, again says that the attempt is
// the open one that this very request opened before; else it may be opened.
func Begin(f Facts, b coord.Begin) (a coord.Attempt, again bool, err error) {
	if a, again, err = known(f, b); again || err != nil {
		return a, again, err
	}
	if err := holds(f, b.Lease); err != nil {
		return coord.Attempt{}, false, err
	}
	return coord.Attempt{}, false, allowed(f, b)
}

// Start is the verdict of Start: that of Begin without the holder, then that of the grant. again is as in Begin.
func Start(f Facts, b coord.Begin) (a coord.Attempt, again bool, err error) {
	if a, again, err = known(f, b); again || err != nil {
		return a, again, err
	}
	if err := allowed(f, b); err != nil {
		return coord.Attempt{}, false, err
	}
	return coord.Attempt{}, false, Grantable(f)
}

// known holds the verdicts 1 to 4: input, committed, own attempt open, own attempt closed.
func known(f Facts, b coord.Begin) (coord.Attempt, bool, error) {
	if f.Entry.Packed {
		return coord.Attempt{}, false, &coord.VerdictError{Kind: coord.ErrCommitted, Run: b.Run, Packed: true}
	}
	if f.Found && f.Entry.Input != b.Input {
		return coord.Attempt{}, false, &coord.InputError{Run: b.Run, Recorded: f.Entry.Input, Given: b.Input}
	}
	if a, ok := f.Entry.Last(committed); ok {
		return coord.Attempt{}, false, verdict(coord.ErrCommitted, b.Run, a)
	}
	a, ok := f.Entry.Find(b.Attempt)
	switch {
	case !ok:
		return coord.Attempt{}, false, nil
	case a.State != coord.Open:
		return coord.Attempt{}, false, verdict(coord.ErrClosed, b.Run, a)
	case a.Abandoned || a.Request != b.Request || f.Self == nil || !f.Self(a.Liveness):
		return coord.Attempt{}, false, verdict(coord.ErrInDoubt, b.Run, a)
	}
	return a, true, nil
}

// holds is verdict 5.
func holds(f Facts, l coord.Lease) error {
	claim := &coord.HolderError{Kind: coord.ErrNotHeld, Agent: l.Agent, Claimed: l.Epoch}
	if !f.Held {
		return claim
	}
	claim.Holder = f.Holder
	if f.Holder.Device != l.Device {
		return claim
	}
	if f.Holder.Epoch != l.Epoch || f.Holder.Handle != l.Handle || !f.Ours {
		claim.Kind = coord.ErrStale
		return claim
	}
	return nil
}

// allowed holds the verdicts 6 to 9: gates, other attempts, an earlier failure.
func allowed(f Facts, b coord.Begin) error {
	if f.Recovery != nil {
		return &coord.GateError{Kind: coord.ErrRecovery, Gate: *f.Recovery}
	}
	if f.Paused != nil {
		return &coord.GateError{Kind: coord.ErrPaused, Agent: f.Entry.Agent, Gate: *f.Paused}
	}
	if err := others(f, b); err != nil {
		return err
	}
	if _, ok := f.Entry.Find(b.Retry); b.Retry != "" && !ok {
		return &coord.MovedError{View: f.View()}
	}
	return failed(f, b)
}

// failed is verdict 9. What failed before the attempt in doubt that b.Retry names does not count: that one
// was begun over it with permission.
func failed(f Facts, b coord.Begin) error {
	if b.RetryFailed {
		return nil
	}
	for i := len(f.Entry.Attempts) - 1; i >= 0; i-- {
		a := f.Entry.Attempts[i]
		if a.State == coord.Open && a.ID == b.Retry {
			return nil
		}
		if blocking(a) {
			return verdict(coord.ErrFailed, b.Run, a)
		}
	}
	return nil
}

// others is verdict 8: one that runs beats one in doubt.
func others(f Facts, b coord.Begin) error {
	var doubt error
	for _, a := range f.Entry.Attempts {
		switch {
		case a.State != coord.Open:
		case a.Running(f.Alive):
			return verdict(coord.ErrInProgress, b.Run, a)
		case a.ID != b.Retry:
			doubt = verdict(coord.ErrInDoubt, b.Run, a)
		}
	}
	return doubt
}

// Open is the entry after a Begin that was allowed: the attempt that b.Retry names closed, a appended.
func Open(f Facts, b coord.Begin, a coord.Attempt) coord.Entry {
	e := Clone(f.Entry)
	if !f.Found {
		e.Occurrence, e.Input = b.Occurrence, b.Input
	}
	for i, old := range e.Attempts {
		if old.ID == b.Retry && old.State == coord.Open {
			e.Attempts[i] = closed(old, coord.Failed, coord.CauseRetried, a.Begun)
		}
	}
	e.Attempts = append(e.Attempts, a)
	return Trim(e, b.Retry)
}

// Attempt is the attempt that b opens under l: liveness is that of the process, also for a lease without one.
func Attempt(b coord.Begin, l coord.Lease, liveness string, now time.Time) coord.Attempt {
	return coord.Attempt{ID: b.Attempt, Request: b.Request, Device: l.Device, Liveness: liveness, Epoch: l.Epoch,
		State: coord.Open, Begun: stamp(now), At: b.At}
}

// Cancel is the entry after b was given up. Without an error, changed says whether it has to be written; if
// not, the ledger can never take the attempt any more.
func Cancel(f Facts, b coord.Begin, now time.Time) (e coord.Entry, changed bool, err error) {
	if f.Entry.Packed || f.Found && f.Entry.Input != b.Input {
		return f.Entry, false, nil
	}
	e = Clone(f.Entry)
	for i, a := range e.Attempts {
		switch {
		case a.ID != b.Attempt:
		case a.State != coord.Open:
			return f.Entry, false, nil
		case a.Request != b.Request || a.Device != b.Lease.Device:
			return f.Entry, false, fmt.Errorf("cancel: %w", verdict(coord.ErrInDoubt, b.Run, a))
		default:
			e.Attempts[i] = closed(a, coord.Void, coord.CauseGivenUp, now)
			return Trim(e, a.ID), true, nil
		}
	}
	if _, ok := e.Last(committed); ok {
		return f.Entry, false, nil
	}
	if !f.Found {
		e.Occurrence, e.Input = b.Occurrence, b.Input
	}
	a := Attempt(b, b.Lease, "", now)
	e.Attempts = append(e.Attempts, closed(a, coord.Void, coord.CauseGivenUp, now))
	return Trim(e), true, nil
}

func closed(a coord.Attempt, s coord.State, cause string, now time.Time) coord.Attempt {
	a.State, a.Cause, a.Ended, a.Abandoned = s, cause, stamp(now), false
	return a
}

// stamp is a time as it is stored: wall clock, UTC.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Round(0).UTC()
}

func verdict(kind error, run string, a coord.Attempt) *coord.VerdictError {
	return &coord.VerdictError{Kind: kind, Run: run, Attempt: a}
}

func committed(a coord.Attempt) bool { return a.State == coord.Committed }
func blocking(a coord.Attempt) bool  { return a.State == coord.Failed && !a.Permitted }
