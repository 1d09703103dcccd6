package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// outcome is the attempt as it ended, or as it is pending.
func (r *run) outcome(state coord.State, cause string, exit int) coord.Outcome {
	a := r.attempt
	a.State, a.Cause, a.Exit = state, cause, exit
	if state != coord.Open {
		a.Ended = time.Now().Round(0).UTC()
	}
	return coord.Outcome{Agent: r.job.Agent, Run: r.job.Run, Occurrence: r.job.Occurrence, Input: r.job.Input, Attempt: a}
}

// A recorded says where an outcome stands.
type recorded struct {
	journaled bool
	stored    error // nil: in the ledger
}

// record brings an outcome into the journal, and then into the ledger. The lease is kept meanwhile, so that the attempt
// is seen as running and not as in doubt.
func (r *run) record(ctx context.Context, k keeper, o coord.Outcome, release bool) recorded {
	ctx = context.WithoutCancel(ctx)
	var rec recorded
	book := r.d.cfg.Book
	if o.Attempt.State == coord.Open {
		book = r.d.memory // a journal has no record of a doubt
	}
	err := book.Outcome(ctx, o)
	if err != nil {
		r.d.cfg.Logger.Error("outcome not journaled", "agent", o.Agent, "run", o.Run, "attempt", o.Attempt.ID, "err", err)
	}
	rec.journaled = err == nil && r.d.journal && o.Attempt.State != coord.Open
	within, cancel := context.WithTimeout(ctx, r.d.cfg.RecordTimeout)
	defer cancel()
	rec.stored = r.store(within, k, o, release)
	if rec.stored == nil {
		r.d.taken(ctx, o)
	}
	return rec
}

// store writes an outcome into the ledger and gives the lease back if it is the run's own, each until it is done or asking again cannot help.
func (r *run) store(ctx context.Context, k keeper, o coord.Outcome, release bool) error {
	c := r.d.cfg.Coordinator
	if !release || r.job.Held != nil {
		return insist(ctx, func() error { return c.Finish(ctx, o) })
	}
	var finished, released error
	_ = insist(ctx, func() error {
		finished, released = c.Complete(ctx, o, k.Lease())
		return finished
	})
	if released != nil && !isVerdict(released) { // the effect has ended: the next run need not wait for its record
		l := k.Lease()
		released = insist(ctx, func() error { return c.Release(ctx, l.Agent, l.Device, l.Epoch) })
	}
	if released != nil && !isVerdict(released) {
		r.d.owe(o.Agent, k.Lease().Epoch)
		r.d.cfg.Logger.Warn("lease not released", "agent", o.Agent, "epoch", uint64(o.Attempt.Epoch), "err", released)
	}
	return finished
}

// ended records how the effect ended.
func (r *run) ended(ctx context.Context, k keeper, s *supervision) Result {
	e := s.ended
	if e.Unstarted != nil {
		return r.notStarted(ctx, k, e.Unstarted)
	}
	if s.unseen() {
		return r.unseen(ctx, k, e)
	}
	state, cause := ending(e, s.why)
	o := r.outcome(state, cause, e.Code())
	o.Attempt.Result = clip(e.Result, coord.MaxResult)
	res := Result{
		Code: e.Code(), Ran: Yes, State: coord.RunCommitted, Attempt: r.attempt.ID, Epoch: r.attempt.Epoch,
		Cause: cause, ExitCode: e.ExitCode, Signal: e.Signal,
	}
	said := "committed"
	if state == coord.Failed {
		res.State = coord.RunFailed
		said = "failed (" + causeOf(cause, e.Code()) + ")"
		res.Code, res.Err = failedCode(cause, e, s.why), s.why
	}
	res.Message = say(r.job, "was run: %s at epoch %d", said, r.attempt.Epoch)
	byItself := state == coord.Committed || s.why == nil && e.Stopped == nil
	return r.unsettled(res, byItself, r.record(ctx, k, o, true))
}

// ending judges the end of an effect that was told to stop because of why, or not told. Success that was reached before
// the stop is success; one that was stopped has failed, whatever code it chose to end with.
func ending(e Ended, why error) (coord.State, string) {
	others := why == nil // whoever started it may have had a reason of its own to stop it
	if others || e.Stopped == nil && e.OK() {
		why = e.Stopped
	}
	switch {
	case why != nil:
		cause := CauseOf(why)
		if others && cause == coord.CauseDrain && e.Signal != 0 {
			cause = coord.CauseSignal
		}
		return coord.Failed, cause
	case e.OK():
		return coord.Committed, ""
	case e.Signal != 0:
		return coord.Failed, coord.CauseSignal
	}
	return coord.Failed, coord.CauseExit
}

// CauseOf is the cause that a failed attempt is recorded with when it was stopped because of why.
func CauseOf(why error) string {
	_, interrupted := errors.AsType[*Interrupt](why)
	switch {
	case errors.Is(why, ErrLost):
		return coord.CauseLost
	case errors.Is(why, ErrTimeout):
		return coord.CauseTimeout
	case interrupted:
		return coord.CauseSignal
	}
	return coord.CauseDrain
}

// failedCode is never 0: the effect may have ended with 0 after it was stopped.
func failedCode(cause string, e Ended, why error) int {
	switch {
	case cause == coord.CauseLost:
		return ExitLost
	case cause == coord.CauseTimeout:
		return ExitTimeout
	case e.Code() != 0:
		return e.Code()
	}
	const term = 15
	if sig, ok := errors.AsType[*Interrupt](why); ok {
		return ExitSignal + sig.Signal
	}
	return ExitSignal + term
}

// unsettled says what follows if the ledger does not hold the outcome. Where this program chose the code itself (lost,
// timeout, signal, drain) it stays; the effect's own code gives way, since nobody else can see what it stands for.
func (r *run) unsettled(res Result, byItself bool, rec recorded) Result {
	if rec.stored == nil {
		return res
	}
	res.Err = errors.Join(res.Err, rec.stored)
	if !rec.journaled {
		res.Code, res.State = ExitInDoubt, coord.RunInDoubt
		res.Message += fmt.Sprintf("; the outcome could be recorded nowhere (%s), so the run is in doubt: syncnode run resolve %s --as committed|failed --reason TEXT",
			oneLine(rec.stored.Error()), r.job.Run)
		return res
	}
	res.Unsettled = true
	if byItself {
		res.Code = ExitUnsettled
	}
	res.Message += fmt.Sprintf("; the outcome is in the journal and not in the ledger yet (%s); the next run on this device writes it",
		oneLine(rec.stored.Error()))
	return res
}

// unseen leaves the attempt open, as in doubt: it ran, and nobody saw its end. While a part of it is still there the
// lease is not given back: it ends with this process, or a person takes it.
func (r *run) unseen(ctx context.Context, k keeper, e Ended) Result {
	o := r.outcome(coord.Open, "", 0)
	o.Attempt.Abandoned = true
	err := e.Err
	if err == nil {
		err = errors.New("a part of it is still there after KILL")
	}
	rec := r.record(ctx, k, o, !e.Left)
	res := Result{
		Code: ExitInDoubt, Ran: Yes, State: coord.RunInDoubt, Attempt: r.attempt.ID, Epoch: r.attempt.Epoch,
		ExitCode: -1, Err: errors.Join(err, rec.stored), Left: e.Left,
	}
	res.Message = say(r.job, "was run, and its end could not be seen: %v; it is in doubt; look, then decide: "+
		"syncnode run resolve %s --as committed|failed --reason TEXT", err, r.job.Run)
	return res
}

// clip cuts s to at most n bytes of valid UTF-8.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") // a rune cut in two goes
	}
	return s
}
