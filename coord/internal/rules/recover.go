package rules

import (
	"fmt"

	"github.com/syncnode/syncnode/coord"
)

// Recreate is the entry after an attempt that the ledger may have lost was told again. changed is false if nothing has to be
// written. It makes no run free that is not, and nothing that is kept is changed but by Join.
func Recreate(f Facts, o coord.Outcome) (e coord.Entry, changed bool) {
	a := o.Attempt
	_, held := f.Entry.Find(a.ID)
	switch {
	case f.Entry.Packed:
		return f.Entry, false
	case held && a.State == coord.Open:
		return f.Entry, false // it may run
	case held || a.State == coord.Committed:
		return Join(f, o)
	case a.State == coord.Void:
		return f.Entry, false
	case a.State == coord.Failed && mayHaveDropped(f.Entry):
		return f.Entry, false
	}
	if _, done := f.Entry.Last(committed); done {
		return f.Entry, false
	}
	e = Clone(f.Entry)
	if !f.Found {
		e.Occurrence, e.Input = o.Occurrence, o.Input
	}
	a.Begun, a.Ended, a.Permitted, a.Liveness = stamp(a.Begun), stamp(a.Ended), false, ""
	if a.State == coord.Open {
		a.Abandoned, a.Cause, a.Exit = true, "", 0
	}
	e.Attempts = append(e.Attempts, a)
	return Trim(e, a.ID), true
}

// mayHaveDropped reports whether Trim can have dropped an attempt: it never does before so many closed ones are there.
func mayHaveDropped(e coord.Entry) bool {
	n := 0
	for _, a := range e.Attempts {
		if a.State == coord.Void || a.State == coord.Failed {
			n++
		}
	}
	return n >= Kept
}

// Raise is the stored epoch after g was told, and whether the holder is none any more. changed is false if nothing has to be
// written. An epoch that is too far above gives a *coord.FloorError.
func Raise(f Facts, g coord.Grant) (epoch coord.Epoch, evict, changed bool, err error) {
	last := f.Epoch
	if f.Held {
		last = max(last, f.Holder.Epoch)
	}
	if _, _, err := NextEpoch(g.Agent, last, 0, g.Epoch); err != nil {
		return 0, false, false, err
	}
	evict = f.Held && (f.Holder.Epoch < g.Epoch || f.Holder.Epoch == g.Epoch && f.Holder.Device != g.Device)
	return max(last, g.Epoch), evict, evict || g.Epoch > f.Epoch, nil
}

// Lift is nil if the gate that stands may be lifted as g says.
func Lift(now, g coord.Gate) error {
	if g.ID != "" && g.ID != now.ID {
		return fmt.Errorf("%w: another recovery was begun by %s: %q", coord.ErrMoved, now.By, now.Reason)
	}
	return nil
}

// Note is nil if an offer may be noted under the gate that stands in the place of the one that was noted before; write is
// false if nothing has to be written.
func Note(gate *coord.Gate, before *coord.Offer, o coord.Offer) (write bool, err error) {
	switch {
	case !o.Done:
		return before == nil, nil
	case gate == nil:
		return false, fmt.Errorf("%w: the recovery gate that device %s offered under is lifted", coord.ErrMoved, o.Device)
	case gate.ID != o.Gate:
		return false, fmt.Errorf("%w: another recovery was begun by %s: %q", coord.ErrMoved, gate.By, gate.Reason)
	}
	return true, nil
}
