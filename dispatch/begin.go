package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// resend is the pause before an unsettled request is sent again.
const resend = 250 * time.Millisecond

// An openError means that a begin was given up and could not be closed: the attempt may be recorded as open, though
// nothing was run. It matches coord.ErrIndeterminate.
type openError struct{ err error }

func (e *openError) Error() string {
	return fmt.Sprintf("its begin could not be settled, and its attempt may be recorded as open, in doubt: %v", e.err)
}
func (e *openError) Unwrap() []error { return []error{coord.ErrIndeterminate, e.err} }

// start acquires and begins in one step, or begins under the lease that is held. Nil means that the lease is ours and
// the attempt open. An error means that nothing of it happened or will, or it is an *openError.
func (r *run) start(ctx context.Context, doubt coord.Attempt) error {
	c, j := r.d.cfg.Coordinator, r.job
	r.begin = coord.Begin{
		Lease: coord.Lease{Agent: j.Agent, Device: r.d.cfg.Device},
		Run:   j.Run, Occurrence: j.Occurrence, Input: j.Input,
		Attempt: coord.NewNonce(), Request: coord.NewNonce(), At: r.standing.At,
		RetryFailed: j.IfFailed == FailedRetry, Retry: doubt.ID,
	}
	req := coord.Request{Agent: j.Agent, Device: r.d.cfg.Device, TTL: j.TTL, Floor: r.standing.Floor, Note: j.Run}
	ask := func() (coord.Lease, coord.Attempt, error) { return c.Start(ctx, req, r.begin) }
	if j.Held != nil {
		if err := trusted(kept{j.Held}); err != nil {
			return fmt.Errorf("start: %w: %w", coord.ErrNotSent, err)
		}
		r.begin.Lease = j.Held.Lease()
		ask = func() (coord.Lease, coord.Attempt, error) {
			a, err := c.Begin(ctx, r.begin)
			return r.begin.Lease, a, err
		}
	}
	r.d.claim(r.begin.Attempt, true)
	at := time.Now() // before asking first
	for sure := true; ; {
		l, a, err := ask()
		if err == nil {
			l.Sent = orElse(l.Sent, at)
			r.lease, r.attempt = l, a
			r.d.began(a)
			return nil
		}
		sure = sure && isDefinite(err)
		if !sure && !isVerdict(err) && ctx.Err() == nil {
			sleep(ctx, resend)
			continue // the very same request: it settles the first
		}
		defer r.d.claim(r.begin.Attempt, false)
		if sure {
			return fmt.Errorf("start: %w", err)
		}
		return r.cancel(ctx, err)
	}
}

// cancel gives up a start whose outcome is not known.
func (r *run) cancel(ctx context.Context, why error) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), r.d.cfg.RecordTimeout)
	defer done()
	c, begin := r.d.cfg.Coordinator, r.begin
	if err := insist(ctx, func() error { return c.Cancel(ctx, begin) }); err != nil {
		if r.job.Held == nil {
			r.d.owe(r.job.Agent, 0)
		}
		return &openError{err: errors.Join(why, err)}
	}
	if r.job.Held == nil {
		r.giveBack(ctx)
	}
	if isVerdict(why) {
		return fmt.Errorf("start: %w", why)
	}
	return &givenUpError{err: why}
}

// giveBack releases whatever a start that is given up asked for and may have been granted: epoch 0.
func (r *run) giveBack(ctx context.Context) {
	err := insist(ctx, func() error { return r.d.cfg.Coordinator.Release(ctx, r.job.Agent, r.d.cfg.Device, 0) })
	if err != nil && !isVerdict(err) {
		r.d.owe(r.job.Agent, 0)
		r.d.cfg.Logger.Warn("lease of a start given up not released", "agent", r.job.Agent, "run", r.job.Run, "err", err)
	}
}

// A givenUpError means that a start was not answered and was closed for good. It matches coord.ErrNotSent: nothing happened
// and nothing will; what it came from is text only, so that nobody takes it for open.
type givenUpError struct{ err error }

func (e *givenUpError) Error() string {
	return fmt.Sprintf("start: no answer in time, given up for good: %v", e.err)
}
func (e *givenUpError) Is(target error) bool { return target == coord.ErrNotSent }

// insist repeats a request until it is answered or ctx ends.
func insist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || isVerdict(err) || ctx.Err() != nil {
			return err
		}
		if matches(err, []error{coord.ErrInvalid, coord.ErrFull, coord.ErrGeneration}) {
			return err // asking again cannot help
		}
		sleep(ctx, resend)
	}
}

// begun goes on with the attempt open and the lease ours. Whatever it returns, the attempt is closed as far as it
// can be.
func (r *run) begun(ctx context.Context) Result {
	defer r.d.claim(r.attempt.ID, false)
	k := r.keep(ctx)
	defer k.Stop()
	if err := r.note(ctx); err != nil {
		return r.giveUp(ctx, k, err)
	}
	if err := r.trust(ctx, k); err != nil {
		return r.giveUp(ctx, k, err)
	}
	p := r.permit(k)
	eff, err := r.job.Effect.Start(ctx, p)
	if err != nil {
		return r.notStarted(ctx, k, err)
	}
	r.d.cfg.Logger.Info("run started", "agent", p.Agent, "run", p.Run, "attempt", p.Attempt, "epoch", uint64(p.Epoch))
	s, at := newSupervision(r.job, k, eff, p.Deadline), time.Now()
	s.watch(ctx)
	r.ran = max(time.Since(at), 1)
	return r.ended(ctx, k, s)
}

// note makes the begin durable before anything acts on it. A caller that goes away meanwhile does not leave it half done.
func (r *run) note(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := r.d.cfg.Book.Granted(ctx, r.job.Agent, r.lease.Epoch); err != nil {
		return fmt.Errorf("note epoch %d in the journal: %w", r.lease.Epoch, err)
	}
	o := r.outcome(coord.Open, "", 0)
	if err := r.d.cfg.Book.Pending(ctx, o); err != nil {
		return fmt.Errorf("write the pending intent: %w", err)
	}
	return nil
}

// trust is the last question before the effect.
func (r *run) trust(ctx context.Context, k keeper) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return trusted(k)
}

// trusted is whether an effect may be started now.
func trusted(k keeper) error {
	if !time.Now().Before(stopAt(k)) {
		return fmt.Errorf("the lease was not renewed since %s: %w", clock(k.Lease().Sent), coord.ErrUnverifiable)
	}
	if err := k.Trusted(); err != nil {
		return fmt.Errorf("the lease is gone: %w", err)
	}
	return nil
}

func (r *run) permit(k keeper) Permit {
	run, attempt := r.job.Run, r.attempt.ID
	p := Permit{
		Run: run, Agent: r.job.Agent, Occurrence: r.job.Occurrence, Epoch: r.lease.Epoch, Attempt: attempt,
		Trusted: func() error { return trusted(k) },
		Fence: func(ctx context.Context) error {
			if err := k.Trusted(); err != nil {
				return fmt.Errorf("fence: %w", err)
			}
			return r.d.fence.Check(ctx, k.Lease(), run, attempt)
		},
	}
	if r.job.Timeout > 0 {
		p.Deadline = time.Now().Add(r.job.Timeout)
	}
	return p
}

// giveUp closes an attempt whose effect will not be started.
func (r *run) giveUp(ctx context.Context, k keeper, why error) Result {
	res := r.notRun(why)
	if sig, ok := errors.AsType[*Interrupt](why); ok {
		res.Code = ExitSignal + sig.Signal
	}
	return r.void(ctx, k, coord.CauseGivenUp, res)
}

// notStarted closes an attempt whose effect could not be started.
func (r *run) notStarted(ctx context.Context, k keeper, why error) Result {
	res := r.notRun(why)
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](why); ok && oneOf(coded.ExitCode(), ExitNotRun, ExitNotExecutable, ExitNotFound) {
		res.Code = coded.ExitCode()
	}
	return r.void(ctx, k, coord.CauseStart, res)
}

func (r *run) void(ctx context.Context, k keeper, cause string, res Result) Result {
	rec := r.record(ctx, k, r.outcome(coord.Void, cause, 0), true)
	res.State, res.Attempt, res.Epoch, res.Cause = coord.RunFree, r.attempt.ID, r.attempt.Epoch, cause
	switch {
	case rec.stored == nil:
	case rec.journaled:
		res.Unsettled = true
		res.Message += "; its attempt is recorded as open until the journal's word reaches the ledger, which will be retried"
	default:
		res.State = coord.RunInDoubt
		res.Message += "; its attempt may be recorded as open, in doubt: syncnode run resolve " + r.job.Run + " --as failed --reason TEXT"
	}
	if rec.stored != nil {
		res.Err = errors.Join(res.Err, rec.stored)
	}
	return res
}
