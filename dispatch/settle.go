package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/fence"
)

// settleShare is the part of the time before a start that old outcomes may take.
const settleShare = 4

// A Settling says what Settle did.
type Settling struct {
	Finished int // outcomes of the journal that were written into the ledger
	Voided   int // attempts that were proved never to have started
	Open     int // own attempts that are left open: running still, or a policy, a probe or a person decides
	Owed     int // outcomes of the journal, and doubts of this process, that the ledger did not take yet
}

// Settle brings the ledger up to what this device knows about its own attempts, after a restart and whenever the
// coordinator is back: an outcome that the journal holds is finished; an attempt whose liveness
// is gone, whose process is proved dead, and of which an intact journal holds no pending, is void, in the journal first. Others stay as they are.
// Leases that could not be given back are given back. The error tells what could not be settled; calling again goes on.
// With coord.ErrUnreadable all was settled but what cannot be read.
//
// Without a Book only what this Dispatcher owes is settled: nothing is known of earlier processes, and the ledger is not searched for them.
func (d *Dispatcher) Settle(ctx context.Context) (Settling, error) {
	var done Settling
	// Any legal names do: what is unsettled is known per device.
	st, err := d.cfg.Book.Standing(ctx, d.cfg.Device, d.cfg.Device)
	if err != nil {
		return done, fmt.Errorf("settle: read the journal: %w", err)
	}
	all := d.untold(st)
	done.Owed = len(all)
	unpaid := d.repay(ctx)
	done.Finished, err = d.settleOutcomes(ctx, all)
	done.Owed -= done.Finished
	if err = errors.Join(unpaid, err); err != nil {
		return done, fmt.Errorf("settle: %w", err)
	}
	if !d.journal {
		return done, nil
	}
	f := coord.Filter{Device: d.cfg.Device, States: []coord.RunState{coord.RunRunning, coord.RunInDoubt}}
	var unread coord.UnreadableError
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
		unread.Add(page.Unreadable)
		if f.After = page.Next; f.After == "" {
			if err := unread.Err(); err != nil {
				return done, fmt.Errorf("settle: of the runs in the ledger %w", err)
			}
			return done, nil
		}
	}
}

// settleView has one run judged, which repairs what can be proved, and sees what became of its own open attempts.
func (d *Dispatcher) settleView(ctx context.Context, listed coord.View, done *Settling) error {
	e := listed.Entry
	var own []string
	for _, a := range e.Attempts {
		if a.State == coord.Open && a.Device == d.cfg.Device && !d.busyWith(a.ID) {
			own = append(own, a.ID)
		}
	}
	if len(own) == 0 {
		return nil
	}
	st, err := d.cfg.Book.Standing(ctx, e.Agent, e.Run)
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	v, err := d.fence.Verdict(ctx, fence.Ask{Agent: e.Agent, Run: e.Run, Occurrence: e.Occurrence, Input: e.Input,
		Records: st.Records, Witnesses: st.Witnesses})
	if err != nil && !isVerdict(err) {
		return err
	}
	return d.tally(ctx, v, own, done)
}

func (d *Dispatcher) tally(ctx context.Context, v coord.View, own []string, done *Settling) error {
	var closed []string
	for _, id := range own {
		a, ok := v.Entry.Find(id)
		switch {
		case !ok && !v.Entry.Packed:
		case ok && a.State == coord.Open:
			done.Open++
			continue
		case ok && a.State == coord.Void && a.Cause == coord.CauseNever:
			done.Voided++
		default:
			done.Finished++
		}
		closed = append(closed, id)
	}
	if len(closed) == 0 {
		return nil
	}
	return d.cfg.Book.Settled(ctx, closed...)
}

// settleBriefly is for a run that is about to look: what cannot be settled now does not stop it.
func (d *Dispatcher) settleBriefly(ctx context.Context, all []coord.Outcome) {
	if len(all) == 0 && len(d.debts()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.BackendTimeout/settleShare)
	defer cancel()
	_, err := d.settleOutcomes(ctx, all)
	if err = errors.Join(err, d.repay(ctx)); err != nil {
		d.cfg.Logger.Warn("earlier runs not settled", "err", err)
	}
}

// settleOutcomes writes outcomes into the ledger. One that the ledger refuses does not keep back the next; a ledger
// that cannot be reached does. It may be that run alone which cannot be, for ever: the next call begins behind it.
func (d *Dispatcher) settleOutcomes(ctx context.Context, all []coord.Outcome) (int, error) {
	var settled []coord.Outcome
	var refused []error
	for _, o := range d.inTurn(all) {
		err := d.cfg.Coordinator.Finish(ctx, o)
		if err == nil {
			settled = append(settled, o)
			continue
		}
		refused = append(refused, fmt.Errorf("finish run %s: %w", o.Run, err))
		if !errors.Is(err, coord.ErrInvalid) && !isVerdict(err) {
			d.mu.Lock()
			d.brokeAt = o.Attempt.ID
			d.mu.Unlock()
			break
		}
	}
	if len(settled) > 0 {
		d.taken(context.WithoutCancel(ctx), settled...)
	}
	return len(settled), errors.Join(refused...)
}

// inTurn begins behind the outcome at which the last call broke off, and anywhere where none did: a process may settle once only.
func (d *Dispatcher) inTurn(all []coord.Outcome) []coord.Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := 1 + slices.IndexFunc(all, func(o coord.Outcome) bool { return o.Attempt.ID == d.brokeAt })
	if d.brokeAt == "" && len(all) > 0 {
		next = rand.IntN(len(all))
	}
	return slices.Concat(all[next:], all[:next])
}

// untold is what the ledger is not known to hold: what the journal has, and the doubts of this process.
func (d *Dispatcher) untold(st Standing) []coord.Outcome {
	if !d.journal {
		return st.Unsettled
	}
	return slices.Concat(st.Unsettled, d.memory.first())
}

// taken notes that the ledger holds these outcomes. Of a doubt the journal is told nothing: its attempt may get an end yet.
func (d *Dispatcher) taken(ctx context.Context, all ...coord.Outcome) {
	d.memory.taken(all)
	var attempts []string
	for _, o := range all {
		if o.Attempt.State != coord.Open {
			attempts = append(attempts, o.Attempt.ID)
		}
	}
	if len(attempts) == 0 {
		return
	}
	if err := d.cfg.Book.Settled(ctx, attempts...); err != nil {
		d.cfg.Logger.Debug("settled attempts not noted", "attempts", attempts, "err", err)
	}
}
