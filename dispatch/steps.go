package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/fence"
)

// races is how often a run that lost against another process looks again before it says so.
const races = 3

// run goes through the steps of a run. Each either ends it with a Result or leads to the next; nothing goes
// back past an effect.
//
//  1. standing: what the own journal says; once, outcomes that the ledger lacks are settled
//  2. look, repair, verdict
//  3. policies: end, wait, probe or proceed
//  4. acquire and begin; refused: look again
//  5. note the epoch, write the pending intent
//  6. trust, start the effect
//  7. supervise, join
//  8. outcome into the journal, finish and release
func (r *run) run(ctx context.Context) Result {
	w := newWaiter(r.d.cfg, r.job)
	for lost := 0; ; {
		res, next := r.round(ctx)
		if next == end && w.bridges(res.Err) {
			next = wait
		}
		switch {
		case next == end:
			return res
		case ctx.Err() != nil:
			return r.interrupted(ctx)
		case next == again:
			if lost++; lost > races {
				return res
			}
		default:
			if !w.wait(ctx) {
				if ctx.Err() != nil {
					return r.interrupted(ctx)
				}
				return res
			}
		}
	}
}

// round is one pass through the steps: it ends the run, or says to wait or to look again.
func (r *run) round(ctx context.Context) (Result, move) {
	budget, cancel := context.WithTimeout(ctx, r.d.cfg.BackendTimeout)
	defer cancel()
	dec := r.look(budget)
	switch dec.move {
	case gate:
		return r.setGate(budget, dec.result), end
	case probe:
		cancel() // a probe may take its time
		return r.probe(ctx, dec)
	case proceed:
		if err := r.start(budget, dec.doubt); err != nil {
			return r.refused(err)
		}
		return r.begun(ctx), end
	}
	if err := dec.result.Err; dec.move == end && ctx.Err() != nil && err != nil && !isVerdict(err) {
		return r.interrupted(ctx), end
	}
	return dec.result, dec.move
}

func (r *run) look(ctx context.Context) decision {
	st, err := r.d.cfg.Book.Standing(ctx, r.job.Agent, r.job.Run)
	if err != nil {
		return decision{result: r.notRun(fmt.Errorf("read the journal: %w", err))}
	}
	if !r.settled {
		r.settled = true
		r.d.settleBriefly(ctx, r.d.untold(st))
	}
	r.standing = st
	r.view, err = r.d.fence.Verdict(ctx, r.ask(false))
	return decide(r.job, r.view, err)
}

func (r *run) ask(readOnly bool) fence.Ask {
	return fence.Ask{
		Agent: r.job.Agent, Run: r.job.Run, Occurrence: r.job.Occurrence, Input: r.job.Input,
		Records: r.standing.Records, Witnesses: r.standing.Witnesses,
		RetryFailed: r.job.IfFailed == FailedRetry, ReadOnly: readOnly,
	}
}

// refused is what comes after a start that did not happen: most often another process was faster.
func (r *run) refused(err error) (Result, move) {
	dec := decide(r.job, r.view, err)
	if dec.move == proceed || dec.move == probe || dec.move == gate { // what was looked at has moved
		dec = decision{move: again, result: r.notRun(err)}
	}
	if r.job.Held != nil && lostHold(err) {
		return dec.result, end
	}
	if dec.move == end && isVerdict(err) && !errors.Is(err, coord.ErrIndeterminate) {
		dec.move = again // the next look knows the facts
	}
	return dec.result, dec.move
}

// setGate refuses every begin under the namespace: this device saw more than the ledger knows.
func (r *run) setGate(ctx context.Context, res Result) Result {
	g := coord.Gate{By: r.d.cfg.Device, Reason: res.Err.Error(), At: time.Now()}
	if err := r.d.cfg.Coordinator.SetRecovery(ctx, g); err != nil {
		res.Err = errors.Join(res.Err, err)
		res.Message += "; the gate could not be set: " + oneLine(err.Error())
	}
	return res
}

// probe asks the job's probe about the attempt in doubt, writes its answer into the ledger, and has the run looked at
// again.
func (r *run) probe(ctx context.Context, dec decision) (Result, move) {
	happened, known, err := r.job.Probe(ctx, r.permitInDoubt(dec.doubt))
	if ctx.Err() != nil {
		return r.interrupted(ctx), end
	}
	res := dec.result
	if err != nil || !known {
		res.Message += "; the probe could not tell"
		if err != nil {
			res.Message = oneLine(res.Message + ": " + err.Error())
			res.Err = errors.Join(res.Err, err)
		}
		return res, end
	}
	as, says := coord.Void, "it did not happen"
	if happened {
		as, says = coord.Committed, "it happened"
	}
	budget, cancel := context.WithTimeout(ctx, r.d.cfg.BackendTimeout)
	defer cancel()
	_, err = r.d.cfg.Coordinator.Resolve(budget, coord.Resolution{
		Agent: r.job.Agent, Run: r.job.Run, Attempt: dec.doubt.ID, From: coord.Open, As: as,
		By: "probe", Reason: fmt.Sprintf("the probe on %s says that %s", r.d.cfg.Device, says),
	})
	if err == nil || isVerdict(err) || errors.Is(err, coord.ErrIndeterminate) {
		return res, again // the same answer may be given again
	}
	res.Err = errors.Join(res.Err, err)
	res.Message += fmt.Sprintf("; the probe says that %s, and that could not be recorded: %s", says, oneLine(err.Error()))
	return res, end
}

func (r *run) permitInDoubt(a coord.Attempt) Permit {
	no := &coord.VerdictError{Kind: coord.ErrInDoubt, Run: r.job.Run, Attempt: a}
	return Permit{
		Run: r.job.Run, Agent: r.job.Agent, Occurrence: r.job.Occurrence, Epoch: a.Epoch, Attempt: a.ID,
		Trusted: func() error { return no },
		Fence:   func(context.Context) error { return no },
	}
}

// dry goes as far as a run goes without writing.
func (r *run) dry(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, r.d.cfg.BackendTimeout)
	defer cancel()
	var err error
	if r.standing, err = r.d.cfg.Book.Standing(ctx, r.job.Agent, r.job.Run); err != nil {
		return r.notRun(fmt.Errorf("read the journal: %w", err))
	}
	r.view, err = r.d.fence.Verdict(ctx, r.ask(true))
	dec := decide(r.job, r.view, err)
	switch dec.move {
	case proceed:
		return Result{Code: ExitOK, Ran: No, State: r.view.State, Message: say(r.job, "was not run: this is a dry run, and it would run now")}
	case probe:
		dec.result.Message += "; the probe would be asked"
	case wait:
		dec.result.Message = say(r.job, "was not run: this is a dry run, and it would wait now")
	case gate:
		dec.result.Message = say(r.job, "was not run: %v; this is a dry run, and the recovery gate was not set", err)
	}
	return dec.result
}

func (r *run) notRun(err error) Result { return resultNotRun(r.job, r.view, err) }
