package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/coord"
)

// settleShare is the part of the time before a start that old outcomes may take.
const settleShare = 4

// A Settling says what Settle did.
type Settling struct {
	Finished int // outcomes of the journal that were written into the ledger
	Voided   int // attempts that were proved never to have started
	InDoubt  int // own attempts that are left open: a policy, a probe or a person decides
}

// Settle brings the ledger up to what this device knows about its own attempts, after a restart and whenever the
// coordinator is back: an outcome that the journal holds is finished; an attempt whose process is proved dead,
// and of which an intact journal holds no pending, is void, in the journal first. Others stay as they are.
// The error tells what could not be settled; calling again goes on.
func (d *Dispatcher) Settle(ctx context.Context) (Settling, error) {
	var done Settling
	// Any legal names do: what is unsettled is known per device.
	st, err := d.cfg.Book.Standing(ctx, d.cfg.Device, d.cfg.Device)
	if err != nil {
		return done, fmt.Errorf("settle: read the journal: %w", err)
	}
	done.Finished, err = d.settleOutcomes(ctx, st.Unsettled)
	if err != nil {
		return done, fmt.Errorf("settle: %w", err)
	}
	f := coord.Filter{Device: d.cfg.Device, States: []coord.RunState{coord.RunRunning, coord.RunInDoubt}}
	for {
		page, err := d.cfg.Coordinator.List(ctx, f)
		if err != nil {
			return done, fmt.Errorf("settle: list own attempts: %w", err)
		}
		for _, v := range page.Views {
			if err := d.settleView(ctx, v, &done); err != nil {
				return done, fmt.Errorf("settle run %s of agent %s: %w", v.Entry.Run, v.Entry.Agent, err)
			}
		}
		if f.After = page.Next; f.After == "" {
			return done, nil
		}
	}
}

func (d *Dispatcher) settleView(ctx context.Context, v coord.View, done *Settling) error {
	var st *Standing
	for _, a := range v.Entry.Attempts {
		if a.State != coord.Open || a.Device != d.cfg.Device || d.busyWith(a.ID) {
			continue
		}
		if st == nil {
			got, err := d.cfg.Book.Standing(ctx, v.Entry.Agent, v.Entry.Run)
			if err != nil {
				return err
			}
			st = &got
		}
		if err := d.settleAttempt(ctx, v, a, st.Records, done); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dispatcher) settleAttempt(ctx context.Context, v coord.View, a coord.Attempt, records []coord.Record, done *Settling) error {
	if ended, ok := ownEnd(d.cfg.Device, a, records); ok {
		done.Finished++
		return d.finishOne(ctx, outcomeOf(v.Entry, ended))
	}
	void, err := d.neverStarted(ctx, v, a)
	if err != nil {
		return err
	}
	if !void {
		done.InDoubt++
		return nil
	}
	a.State, a.Cause = coord.Void, coord.CauseNever
	done.Voided++
	return d.finishOne(ctx, outcomeOf(v.Entry, a))
}

// neverStarted asks for proof: the process is dead, and its journal holds the attempt's position and no pending of it.
func (d *Dispatcher) neverStarted(ctx context.Context, v coord.View, a coord.Attempt) (bool, error) {
	var p coord.Process
	if v.Holder.Liveness == a.Liveness {
		p = v.Holder.Process
	}
	if d.cfg.Dead == nil || a.Liveness == "" || !d.cfg.Dead(a.Liveness, p) {
		return false, nil
	}
	return d.cfg.Book.Void(ctx, v.Entry.Agent, v.Entry.Run, a)
}

// ownEnd is what this device's own log says about the end of its attempt; committed counts more than failed and void.
func ownEnd(device string, a coord.Attempt, records []coord.Record) (coord.Attempt, bool) {
	found := false
	for _, r := range records {
		if r.Attempt != a.ID || r.Author != device || r.Device != device || r.State == coord.Open || found && r.State != coord.Committed {
			continue
		}
		found = true
		a.State, a.Cause, a.Exit, a.Abandoned = r.State, r.Cause, r.Exit, false
	}
	return a, found
}

func outcomeOf(e coord.Entry, a coord.Attempt) coord.Outcome {
	return coord.Outcome{Agent: e.Agent, Run: e.Run, Occurrence: e.Occurrence, Input: e.Input, Attempt: a}
}

// settleBriefly is for a run that is about to look: what cannot be settled now does not stop it.
func (d *Dispatcher) settleBriefly(ctx context.Context, all []coord.Outcome) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.BackendTimeout/settleShare)
	defer cancel()
	if _, err := d.settleOutcomes(ctx, all); err != nil {
		d.cfg.Logger.Warn("outcomes of earlier runs not settled", "err", err)
	}
}

// settleOutcomes writes outcomes into the ledger. One that the ledger refuses does not keep back the next; a ledger
// that cannot be reached does.
func (d *Dispatcher) settleOutcomes(ctx context.Context, all []coord.Outcome) (int, error) {
	var settled []string
	var refused []error
	for _, o := range all {
		if d.busyWith(o.Attempt.ID) {
			continue // its own run is about to store it
		}
		err := d.cfg.Coordinator.Finish(ctx, o)
		if err == nil {
			settled = append(settled, o.Attempt.ID)
			continue
		}
		refused = append(refused, fmt.Errorf("finish run %s: %w", o.Run, err))
		if !errors.Is(err, coord.ErrInvalid) && !isVerdict(err) {
			break
		}
	}
	if len(settled) > 0 {
		if err := d.cfg.Book.Settled(context.WithoutCancel(ctx), settled...); err != nil {
			d.cfg.Logger.Debug("settled attempts not noted", "err", err)
		}
	}
	return len(settled), errors.Join(refused...)
}

func (d *Dispatcher) finishOne(ctx context.Context, o coord.Outcome) error {
	if err := d.cfg.Coordinator.Finish(ctx, o); err != nil {
		return err
	}
	return d.cfg.Book.Settled(ctx, o.Attempt.ID)
}
