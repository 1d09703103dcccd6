package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/fence"
)

// Look says what stands in the way of a job now, before anybody acquires for it: nil if nothing does but, perhaps, who
// holds the agent; else the verdict, with the attempt that it rests on. What the journal knows and the ledger lacks is
// settled first, as Run does it. It begins nothing.
func (d *Dispatcher) Look(ctx context.Context, j Job) (coord.View, error) {
	j, err := j.withDefaults()
	if err != nil {
		return coord.View{}, fmt.Errorf("%w: %w", coord.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.BackendTimeout)
	defer cancel()
	r := d.newRun(j)
	if r.standing, err = d.cfg.Book.Standing(ctx, j.Agent, j.Run); err != nil {
		return coord.View{}, fmt.Errorf("%w: read the journal: %w", coord.ErrNotSent, err)
	}
	d.settleBriefly(ctx, d.untold(r.standing))
	v, err := d.fence.Verdict(ctx, r.ask(false))
	if errors.Is(err, fence.ErrWitness) {
		res := r.setGate(ctx, resultWitness(j, err))
		return v, fmt.Errorf("%w: %w", coord.ErrRecovery, res.Err)
	}
	return v, err
}

// Kept is the end of an attempt of this device that stands in the journal, and not in the ledger as far as is known. Without a journal
// there is none.
func (d *Dispatcher) Kept(ctx context.Context, agent, run, attempt string) (a coord.Attempt, ok bool, err error) {
	if !d.journal {
		return a, false, nil
	}
	st, err := d.cfg.Book.Standing(ctx, agent, run)
	if err != nil {
		return a, false, fmt.Errorf("read the journal: %w: %w", coord.ErrNotSent, err)
	}
	for _, o := range st.Unsettled {
		if o.Attempt.ID == attempt {
			return o.Attempt, true, nil
		}
	}
	return a, false, nil
}

// Report records an end that was learned after its Run had given the attempt up, or by a later process of the device:
// in the journal first, in the ledger then. The caller knows that the attempt is this device's; v is what the ledger showed of its run.
// stored is nil if the ledger took the outcome, be it that another end of the attempt stood there and still does.
//
// An attempt that somebody may be busy with gives coord.ErrInProgress, and nothing is recorded: one that this Dispatcher runs, and one
// whose liveness is there, unless this process began it or proves that the one who did is dead. Without a journal nothing of
// earlier processes is proved: then the end is taken, but not that the attempt never started, which would free its run. With one
// that needs the proof also once the liveness is gone, as it is for a process that was cut off and goes on; without it the attempt
// is left in doubt, coord.ErrInDoubt. What the journal says already needs no proof.
func (d *Dispatcher) Report(ctx context.Context, v coord.View, o coord.Outcome) (journaled bool, stored error) {
	if d.busyWith(o.Attempt.ID) {
		return false, fmt.Errorf("%w: attempt %s is supervised here", coord.ErrInProgress, o.Attempt.ID)
	}
	if a, ok := v.Entry.Find(o.Attempt.ID); ok {
		if err := d.othersMayRun(v, a, o.Attempt.State); err != nil {
			kept, ok, unread := d.Kept(ctx, o.Agent, o.Run, a.ID)
			if unread != nil || !ok || kept.State != o.Attempt.State {
				return false, errors.Join(err, unread)
			}
		}
	}
	r := d.newRun(Job{Agent: o.Agent, Run: o.Run, Occurrence: o.Occurrence, Input: o.Input})
	rec := r.record(ctx, nil, o, false)
	return rec.journaled, rec.stored
}

// othersMayRun says why an open attempt cannot be ended as that here: another process may be busy with it, that is not proved dead.
func (d *Dispatcher) othersMayRun(v coord.View, a coord.Attempt, as coord.State) error {
	running, frees := a.Running(func(l string) bool { return v.Alive[l] }), as == coord.Void
	if a.State != coord.Open || d.journal && !running && !frees || !d.journal && !(running && frees) {
		return nil
	}
	d.mu.Lock()
	own := d.lives[a.Liveness]
	d.mu.Unlock()
	h := v.Holder // once the lease is somebody else's, or bound anew, nothing says any more what that process was
	switch {
	case own, d.cfg.Dead != nil && h.Liveness == a.Liveness && d.cfg.Dead(a.Liveness, h.Process):
		return nil
	case running:
		return fmt.Errorf("%w: attempt %s is another process's of this device, and that may be alive", coord.ErrInProgress, a.ID)
	}
	return fmt.Errorf("%w: attempt %s is another process's of this device, and nothing proves that this is dead", coord.ErrInDoubt, a.ID)
}
