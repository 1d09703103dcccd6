package rules

import (
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// Kept is how many closed attempts an entry keeps beside the committed ones.
const Kept = 8

// Trim drops the oldest closed attempts beyond Kept. All committed and all open attempts stay, and so does
// the last failure that nothing permits to repeat: the state of the run never changes. spare names attempts that
// were closed just now, however early they began: what asks about them again has to find them.
func Trim(e coord.Entry, spare ...string) coord.Entry {
	blocker, blocked := e.Last(blocking)
	var kept []coord.Attempt
	others := 0
	for i := len(e.Attempts) - 1; i >= 0; i-- {
		a := e.Attempts[i]
		if a.State != coord.Committed && a.State != coord.Open {
			if others++; others > Kept && !(blocked && a.ID == blocker.ID) && !slices.Contains(spare, a.ID) {
				continue
			}
		}
		kept = append(kept, a)
	}
	for i, j := 0, len(kept)-1; i < j; i, j = i+1, j-1 {
		kept[i], kept[j] = kept[j], kept[i]
	}
	e.Attempts = kept
	return e
}

// Join is the entry after Finish. changed is false if nothing has to be written: the outcome stands there,
// or something that it may not overwrite.
func Join(f Facts, o coord.Outcome) (e coord.Entry, changed bool) {
	if f.Entry.Packed {
		return f.Entry, false
	}
	e = Clone(f.Entry)
	for i, a := range e.Attempts {
		if a.ID != o.Attempt.ID {
			continue
		}
		if e.Attempts[i], changed = join(a, o.Attempt); !changed {
			return f.Entry, false
		}
		return Trim(e, a.ID), true
	}
	if o.Attempt.State != coord.Committed {
		return f.Entry, false // a void or failed attempt that is not there closes nothing
	}
	if !f.Found {
		e.Occurrence, e.Input = o.Occurrence, o.Input
	}
	a := o.Attempt
	a.Begun, a.Ended, a.Abandoned, a.Permitted = stamp(a.Begun), stamp(a.Ended), false, false
	e.Attempts = append(e.Attempts, a)
	return Trim(e), true
}

func join(a, o coord.Attempt) (coord.Attempt, bool) {
	switch {
	case a.State == coord.Committed:
		// Who decided that it happened had no result to tell.
		if o.State != coord.Committed || o.By != "" || o.Result == "" || a.By == "" || a.Result != "" {
			return a, false
		}
		a.Result = o.Result
		return a, true
	case o.State == coord.Open: // given up by its device
		if a.State != coord.Open || a.Abandoned {
			return a, false
		}
		a.Abandoned = true
		return a, true
	case o.State != coord.Committed && a.State != coord.Open:
		return a, false
	}
	a.State, a.Cause, a.Exit, a.Ended, a.Result = o.State, o.Cause, o.Exit, stamp(o.Ended), o.Result
	a.By, a.Reason, a.Abandoned, a.Permitted = o.By, o.Reason, false, false
	return a, true
}

// Resolve is the entry after the decision of a person. changed is false if the very same decision stands there.
func Resolve(f Facts, r coord.Resolution, now time.Time) (e coord.Entry, changed bool, err error) {
	if !f.Found {
		return f.Entry, false, coord.ErrNotFound
	}
	from := r.From
	if from == "" {
		from = coord.Open
	}
	e = Clone(f.Entry)
	for i, a := range e.Attempts {
		switch {
		case a.ID != r.Attempt:
			continue
		case a.State == r.As && a.Cause == coord.CauseResolved && a.By == r.By && a.Reason == r.Reason:
			return f.Entry, false, nil
		case a.State != from:
			return f.Entry, false, &coord.MovedError{View: f.View()}
		case a.Running(f.Alive) && !r.Force:
			return f.Entry, false, verdict(coord.ErrInProgress, r.Run, a)
		}
		a = closed(a, r.As, coord.CauseResolved, now)
		a.By, a.Reason, a.Permitted = r.By, r.Reason, false
		e.Attempts[i] = a
		return Trim(e, a.ID), true, nil
	}
	return f.Entry, false, &coord.MovedError{View: f.View()}
}

// Permit is the entry after a person permitted one more attempt. changed is false if it is permitted already.
func Permit(f Facts, r coord.Resolution) (e coord.Entry, changed bool, err error) {
	if !f.Found {
		return f.Entry, false, coord.ErrNotFound
	}
	last, ok := f.Entry.Last(func(a coord.Attempt) bool { return a.State == coord.Failed })
	state := f.state()
	if !ok || last.ID != r.Attempt || state != coord.RunFailed && state != coord.RunFree {
		return f.Entry, false, &coord.MovedError{View: f.View()}
	}
	e = Clone(f.Entry)
	for i, a := range e.Attempts {
		if blocking(a) {
			e.Attempts[i].Permitted, e.Attempts[i].By, e.Attempts[i].Reason = true, r.By, r.Reason
			changed = true
		}
	}
	return e, changed, nil
}
