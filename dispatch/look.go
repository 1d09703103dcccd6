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
// in the journal first, in the ledger then. The caller knows that the attempt is this device's and that nobody is busy with
// it. stored is nil if the ledger holds it.
func (d *Dispatcher) Report(ctx context.Context, o coord.Outcome) (journaled bool, stored error) {
	if d.busyWith(o.Attempt.ID) {
		return false, fmt.Errorf("%w: attempt %s is supervised here", coord.ErrInProgress, o.Attempt.ID)
	}
	r := d.newRun(Job{Agent: o.Agent, Run: o.Run, Occurrence: o.Occurrence, Input: o.Input})
	rec := r.record(ctx, nil, o, false)
	return rec.journaled, rec.stored
}
