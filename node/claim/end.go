package claim

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/events"
)

func (e End) check() error {
	errs := []error{ident.CheckRunID(e.Run)}
	if e.Agent != "" {
		errs = append(errs, ident.Check("agent", e.Agent))
	}
	if len(e.Result) > coord.MaxResult || !utf8.ValidString(e.Result) {
		errs = append(errs, fmt.Errorf("the result is %d bytes long; at most %d bytes of UTF-8 are kept", len(e.Result), coord.MaxResult))
	}
	switch e.State {
	case coord.Committed, coord.Failed, coord.Void, coord.Open:
	default:
		errs = append(errs, fmt.Errorf("an attempt cannot end as %q", e.State))
	}
	switch e.Cause {
	case "", coord.CauseExit, coord.CauseSignal, coord.CauseTimeout, coord.CauseLost, coord.CauseDrain:
	default:
		errs = append(errs, fmt.Errorf("cause %q: want exit, signal, timeout, lost or drain", e.Cause))
	}
	if e.Signal < 0 || e.Signal > 64 || e.Exit < -1 || e.Exit > 255 {
		errs = append(errs, fmt.Errorf("exit code %d, signal %d: there are no such", e.Exit, e.Signal))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", coord.ErrInvalid, err)
	}
	return nil
}

// End records what the client tells about its attempt. It returns when that stands somewhere.
func (d *Desk) End(ctx context.Context, e End) (Ended, error) {
	if err := e.check(); err != nil {
		return Ended{}, err
	}
	d.mu.Lock()
	c := d.byRun[e.Run]
	if c != nil && (c.state != open || c.permit.Attempt != e.Attempt) {
		c = nil
	}
	d.mu.Unlock()
	if c == nil {
		return d.late(ctx, e)
	}
	c.eff.end(e.ended())
	select {
	case <-c.over:
	case <-ctx.Done():
		if !c.isOver() {
			return Ended{}, fmt.Errorf("end: %w: it is being recorded: %w", coord.ErrIndeterminate, context.Cause(ctx))
		}
	}
	return c.outcome(e)
}

func (c *claim) isOver() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// ended is the end as an effect tells it.
func (e End) ended() dispatch.Ended {
	how := dispatch.Ended{ExitCode: e.Exit, Signal: e.Signal, Result: e.Result}
	switch e.State {
	case coord.Committed:
		how.ExitCode, how.Signal = 0, 0
	case coord.Void:
		how.Unstarted = errors.New("the client says that it did not start")
	case coord.Open:
		how.ExitCode, how.Err = -1, errors.New("the client says that its end cannot be learned")
	case coord.Failed:
		if how.ExitCode == 0 && how.Signal == 0 {
			how.ExitCode = 1
		}
		how.Stopped = e.stopped()
	}
	return how
}

// differs says whether an end that is recorded in the state that is told now was told with another result or exit code. The cause is not
// compared: this node may have had its own reason to stop the client.
func (e End) differs(a coord.Attempt) bool {
	switch e.State {
	case coord.Committed:
		return e.Result != a.Result
	case coord.Failed:
		return e.Result != a.Result || (e.Exit != 0 || e.Signal != 0) && e.ended().Code() != a.Exit
	}
	return false // nothing is kept of it but the state
}

// stopped is the reason that the client gives for its stop; nil: it ended by itself.
func (e End) stopped() error {
	switch e.Cause {
	case coord.CauseSignal:
		return &dispatch.Interrupt{Signal: max(e.Signal, 1)}
	case coord.CauseTimeout:
		return dispatch.ErrTimeout
	case coord.CauseLost:
		return dispatch.ErrLost
	case coord.CauseDrain:
		return dispatch.ErrDrain
	}
	return nil
}

// outcome is what the run came to, for one that told its end.
func (c *claim) outcome(e End) (Ended, error) {
	r := c.result
	got := Ended{Agent: c.ask.Agent, Run: c.run, Attempt: c.permit.Attempt, Epoch: c.permit.Epoch, State: r.State, Cause: r.Cause, Settled: !r.Unsettled}
	recorded := coord.Attempt{ID: c.permit.Attempt, Device: c.hold.Lease().Device, Epoch: c.permit.Epoch, Cause: r.Cause,
		State: map[coord.RunState]coord.State{coord.RunCommitted: coord.Committed, coord.RunFailed: coord.Failed, coord.RunFree: coord.Void}[r.State]}
	recorded.Exit, recorded.Result = c.eff.Ended().Code(), c.eff.Ended().Result
	want := map[coord.State]coord.RunState{coord.Committed: coord.RunCommitted, coord.Failed: coord.RunFailed, coord.Void: coord.RunFree, coord.Open: coord.RunInDoubt}[e.State]
	switch {
	case r.State == want && e.differs(recorded):
		return got, &ClosedError{Run: c.run, Attempt: recorded, Told: e.State}
	case r.State == want:
		return got, nil
	case r.State == coord.RunInDoubt:
		return got, fmt.Errorf("%w: %w: %s", coord.ErrIndeterminate, &RefusedError{r}, "tell the end again")
	}
	return got, &ClosedError{Run: c.run, Attempt: recorded, Told: e.State}
}

// late records an end of which no run here waits: it was told before, the client had been given up, or an earlier process
// began it. While another process of the device may be at it, it is coord.ErrInProgress, and coord.ErrInDoubt
// where only proof could free the run; see dispatch.Dispatcher.Report. Of two that are told at once the second is judged by what was
// recorded of the first.
func (d *Desk) late(ctx context.Context, e End) (Ended, error) {
	done, err := d.alone(ctx, e.Attempt)
	if err != nil {
		return Ended{}, err
	}
	defer done()
	v, err := d.find(ctx, e.Agent, e.Run)
	if err != nil {
		return Ended{}, err
	}
	a, ok := v.Entry.Find(e.Attempt)
	switch {
	case v.Entry.Packed:
		return Ended{Agent: v.Entry.Agent, Run: e.Run, Attempt: e.Attempt, State: coord.RunCommitted, Settled: true}, closedUnless(e.State == coord.Committed, e.Run, a)
	case !ok:
		return Ended{}, fmt.Errorf("%w: run %s has no attempt %s", coord.ErrNotFound, e.Run, e.Attempt)
	case a.Device != d.cfg.Device:
		return Ended{}, fmt.Errorf("%w: attempt %s is that of device %s", ErrForeign, a.ID, a.Device)
	}
	got := Ended{Agent: v.Entry.Agent, Run: e.Run, Attempt: a.ID, Epoch: a.Epoch, State: v.State, Cause: a.Cause, Settled: true}
	if a.State == coord.Open { // the journal may know its end, and the ledger not yet
		kept, ok, err := d.cfg.Dispatcher.Kept(ctx, v.Entry.Agent, e.Run, a.ID)
		if err != nil {
			return Ended{}, err
		}
		if ok && (kept.State != e.State || e.differs(kept)) {
			return got, &ClosedError{Run: e.Run, Attempt: kept, Told: e.State}
		}
	}
	switch {
	case a.State != e.State && !overrides(a, e.State):
		return got, &ClosedError{Run: e.Run, Attempt: a, Told: e.State}
	case a.State != e.State, a.State == coord.Open && v.State == coord.RunRunning:
	case a.By != "" && a.Result == "" && e.State == coord.Committed && e.Result != "": // somebody decided what the client now tells
	case e.differs(a):
		return got, &ClosedError{Run: e.Run, Attempt: a, Told: e.State}
	default:
		return got, nil // as it was told before; or in doubt, as it is
	}
	return d.record(ctx, v, a, e)
}

// alone waits until no other late end of the attempt is being recorded here; none is until done is called.
func (d *Desk) alone(ctx context.Context, attempt string) (done func(), err error) {
	for {
		d.mu.Lock()
		other := d.telling[attempt]
		if other == nil {
			mine := make(chan struct{})
			d.telling[attempt] = mine
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				delete(d.telling, attempt)
				d.mu.Unlock()
				close(mine)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("end: %w: another end of attempt %s is being recorded: %w", coord.ErrIndeterminate, attempt, context.Cause(ctx))
		}
	}
}

func closedUnless(same bool, run string, a coord.Attempt) error {
	if same {
		return nil
	}
	a.State = coord.Committed
	return &ClosedError{Run: run, Attempt: a}
}

// overrides says whether the client's word may still be added: while the attempt is open; and a commit also where somebody
// else closed it.
func overrides(a coord.Attempt, as coord.State) bool {
	others := a.By != "" || a.Cause == coord.CauseRetried
	return a.State == coord.Open || as == coord.Committed && a.State != coord.Committed && others
}

// record has an end recorded, and says whether it is the one that stands.
func (d *Desk) record(ctx context.Context, v coord.View, a coord.Attempt, e End) (Ended, error) {
	entry, how, open := v.Entry, e.ended(), a
	a.State, a.Result, a.Ended, a.Abandoned, a.By, a.Reason = e.State, e.Result, time.Now().Round(0).UTC(), false, "", ""
	a.Cause, a.Exit = "", 0
	switch e.State {
	case coord.Failed:
		a.Exit, a.Cause = how.Code(), e.Cause
		if a.Cause == "" && how.Signal != 0 {
			a.Cause = coord.CauseSignal
		} else if a.Cause == "" {
			a.Cause = coord.CauseExit
		}
	case coord.Void:
		a.Cause = coord.CauseStart
	case coord.Open:
		a.Abandoned, a.Result, a.Ended = true, "", time.Time{}
	}
	journaled, stored := d.cfg.Dispatcher.Report(ctx, v, coord.Outcome{Agent: entry.Agent, Run: entry.Run, Occurrence: entry.Occurrence, Input: entry.Input, Attempt: a})
	switch {
	case !journaled && errors.Is(stored, coord.ErrInProgress):
		return Ended{}, &coord.VerdictError{Kind: coord.ErrInProgress, Run: entry.Run, Attempt: open}
	case !journaled && errors.Is(stored, coord.ErrInDoubt):
		return Ended{}, &coord.VerdictError{Kind: coord.ErrInDoubt, Run: entry.Run, Attempt: open}
	case stored != nil && !journaled:
		return Ended{}, fmt.Errorf("record the end of attempt %s: %w", a.ID, stored)
	}
	state := map[coord.State]coord.RunState{coord.Committed: coord.RunCommitted, coord.Failed: coord.RunFailed, coord.Void: coord.RunFree, coord.Open: coord.RunInDoubt}[e.State]
	got := Ended{Agent: entry.Agent, Run: entry.Run, Attempt: a.ID, Epoch: a.Epoch, State: state, Cause: a.Cause, Settled: stored == nil}
	ended := events.Event{Kind: events.RunEnded, Agent: got.Agent, Run: got.Run, Occurrence: entry.Occurrence, Attempt: a.ID,
		Epoch: a.Epoch, State: string(state), Cause: a.Cause}
	if stored == nil { // the ledger keeps an end that came before this one, and says so to nobody
		now, err := d.cfg.Ledger.Look(ctx, coord.Question{Agent: entry.Agent, Run: entry.Run})
		is, ok := now.Entry.Find(a.ID)
		switch {
		case err != nil:
			d.cfg.Events.Publish(ended) // it is in the ledger, as far as is known, and who tells it again changes nothing
			return Ended{}, fmt.Errorf("look what was recorded of attempt %s: %w: %w: tell the end again", a.ID, coord.ErrIndeterminate, err)
		case ok && (is.State != e.State || e.differs(is)):
			got.State, got.Cause = now.State, is.Cause
			return got, &ClosedError{Run: e.Run, Attempt: is, Told: e.State}
		case ok && !is.Ended.Equal(a.Ended):
			got.Cause = is.Cause
			return got, nil // somebody told the same before
		}
	}
	d.cfg.Events.Publish(ended)
	return got, nil
}

// find looks the run up; without an agent, among the runs of this device.
func (d *Desk) find(ctx context.Context, agent, run string) (coord.View, error) {
	if agent == "" {
		return coord.Find(ctx, d.cfg.Ledger, coord.Filter{Device: d.cfg.Device}, run)
	}
	v, err := d.cfg.Ledger.Look(ctx, coord.Question{Agent: agent, Run: run})
	if err == nil && !v.Found {
		err = fmt.Errorf("%w: run %s of agent %s", coord.ErrNotFound, run, agent)
	}
	return v, err
}
