package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Permit is the right to act, given to an effect.
type Permit struct {
	Run, Agent, Occurrence, Device string
	// Attempt names this try. Epoch is the fencing token: hand it to the resource.
	Attempt string
	Epoch   uint64

	mu       sync.Mutex
	result   string
	deadline time.Time
}

// SetResult says what whoever asks for this run again is told, at most 1 KiB.
func (p *Permit) SetResult(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result = text
}

// Deadline is when the effect has to be gone, unless the node says more meanwhile. Its context ends some time before.
func (p *Permit) Deadline() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deadline
}

// A StopError is the cause of an effect's context that ended before its caller's did.
type StopError struct {
	Cause string // lost, timeout, drain or signal
	Err   error  // why, if it is lost
}

func (e *StopError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("stop: %s: %v", e.Cause, e.Err)
	}
	return "stop: " + e.Cause
}
func (e *StopError) Unwrap() error { return e.Err }

// A Done is how a run stands after Run.
type Done struct {
	Run, Attempt string
	Epoch        uint64
	// Replayed: it was committed before, and do was not called.
	Replayed bool
	State    string // committed, failed, free or in doubt
	Result   string
}

// Run runs do for an occurrence of an agent, unless that was done. See Client.RunAsk.
func (c *Client) Run(ctx context.Context, agent, occurrence string, do func(ctx context.Context, p *Permit) error) (Done, error) {
	return c.RunAsk(ctx, Ask{Agent: agent, Occurrence: occurrence}, do)
}

// RunAsk runs do once for a run: claim, fence, do with heartbeats beside it, and the end. The error is nil if the run is
// committed, now or before. What do returned is wrapped in the *Error of a run that failed. A request that was not answered
// is sent again until ctx ends, and the end as Config.Tell says; when the fence's answer never comes, do is not called, and the attempt is told as one that never
// ran once the node answers within Config.Tell.
func (c *Client) RunAsk(ctx context.Context, ask Ask, do func(ctx context.Context, p *Permit) error) (Done, error) {
	var claim Claim
	request := random()
	err := again(ctx, func(ctx context.Context) (err error) {
		claim, err = c.Claim(ctx, ask, request)
		return err
	})
	if err != nil {
		return Done{}, err
	}
	done := Done{Run: claim.Run, Attempt: claim.Attempt, Epoch: claim.Epoch, Replayed: claim.Replayed, State: claim.State, Result: claim.Result}
	if claim.Replayed {
		return done, nil
	}
	st, err := c.begin(ctx, claim)
	if err != nil {
		return done, err
	}
	done.Attempt, done.Epoch = st.Attempt, st.Epoch
	p := &Permit{Run: claim.Run, Agent: claim.Agent, Occurrence: claim.Occurrence, Device: claim.Device, Attempt: st.Attempt, Epoch: st.Epoch, deadline: st.Deadline}
	end := c.work(ctx, p, st, do)
	state, err := c.tellEnd(ctx, end.End, st)
	if err != nil {
		return done, notTold(end, err)
	}
	done.State, done.Result = state, end.Result
	if state == "committed" {
		return done, nil
	}
	return done, &Error{Executed: end.executed(), Run: p.Run, Agent: p.Agent, Attempt: p.Attempt, Epoch: p.Epoch, State: state, Cause: end.Cause, Err: end.err}
}

// ended is an end and what the effect returned.
type ended struct {
	End
	err error
}

// notTold says what is known of a run whose end the node has not heard.
func notTold(end ended, err error) error {
	e, _ := errors.AsType[*Error](err)
	out := &Error{Executed: end.executed(), Run: end.Run, Agent: end.Agent, Attempt: end.Attempt, Err: fmt.Errorf("the effect ended, and the node could not be told: %w", errors.Join(end.err, err))}
	if e != nil {
		out.Name, out.Status, out.RetryAfter = e.Name, e.Status, e.RetryAfter
	}
	return out
}

// begin asks the fence. An attempt that was begun though its answer never came is told as one that never ran.
func (c *Client) begin(ctx context.Context, claim Claim) (st Standing, err error) {
	request := random()
	fence := func(ctx context.Context) (err error) {
		st, err = c.Fence(ctx, claim, request)
		return err
	}
	if err = again(ctx, fence); err == nil && time.Now().Before(st.StopAt) && !st.Stop && ctx.Err() == nil {
		return st, nil
	}
	if err != nil && !unanswered(err) {
		give, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = c.post(give, runPath(claim.Run, "unclaim"), No, map[string]any{"claim": claim.ID}, &struct{}{}) // else the agent waits for its end
		return st, err
	}
	if err == nil {
		err = &Error{Executed: No, Run: claim.Run, Agent: claim.Agent, Err: errors.Join(errors.New("the fence's answer came too late to act on it"), context.Cause(ctx))}
	}
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.tell)
	defer cancel()
	if st.Attempt == "" && again(settle, fence) != nil {
		return Standing{}, err
	}
	never := End{Run: claim.Run, Agent: claim.Agent, Attempt: st.Attempt, Ran: No}
	if _, failed := c.tellEnd(ctx, never, st); failed == nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Executed = No
		}
	}
	return Standing{}, err
}

// unanswered reports whether it is not known if a request was carried out: the same request settles it.
func unanswered(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (errors.Is(e.Err, ErrNoAnswer) || e.Name == "indeterminate" || e.Name == "not-recorded" || e.Name == "internal")
}

// Pauses between two copies of a request.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 2 * time.Second
)

// again sends a request until it is answered or ctx ends. What is not sent at all is not sent again, unless it was before.
func again(ctx context.Context, send func(context.Context) error) error {
	sent := false
	return repeat(ctx, send, func(err error) bool {
		sent = sent || unanswered(err)
		return unanswered(err) || sent && errors.Is(err, ErrNotSent)
	})
}

// untold reports whether an end that is told again may be taken: nobody answered, or it is only not now.
func untold(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return unanswered(err) || errors.Is(err, ErrNotSent) || ok && (e.Name == "unavailable" || e.Name == "too-many-requests")
}

// repeat sends a request until it is answered with what is not to be sent again, or ctx ends.
func repeat(ctx context.Context, send func(context.Context) error, more func(error) bool) error {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := send(ctx)
		if err == nil || !more(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// tellEnd tells an end until it is answered, also after ctx ended: for Config.Tell where the node is silent, starts or has no place. A node that
// answers that a former process of its device may be busy with the attempt is told again until the lease of the attempt
// has ended: then nothing stands in the way.
func (c *Client) tellEnd(ctx context.Context, e End, st Standing) (state string, err error) {
	ctx = context.WithoutCancel(ctx)
	until := time.Now().Add(max(c.tell, st.ttl()+mostPause))
	for {
		told, cancel := context.WithTimeout(ctx, c.tell)
		err = repeat(told, func(ctx context.Context) (err error) {
			state, err = c.End(ctx, e)
			return err
		}, untold)
		cancel()
		busy, ok := errors.AsType[*Error](err)
		if !ok || busy.Name != "run-in-progress" || !time.Now().Before(until) {
			return state, err
		}
		time.Sleep(max(min(busy.RetryAfter, time.Until(until)), firstPause))
	}
}

// work calls do with heartbeats beside it.
func (c *Client) work(ctx context.Context, p *Permit, st Standing, do func(context.Context, *Permit) error) (end ended) {
	working, stop := context.WithCancelCause(ctx)
	end = ended{End: End{Run: p.Run, Agent: p.Agent, Attempt: p.Attempt, Ran: Maybe}, err: ErrEndUnknown}
	var beats sync.WaitGroup
	beats.Go(func() { c.beat(working, p, st, stop) })
	returned := false
	defer func() {
		stop(nil)
		beats.Wait()
		if returned {
			return
		}
		told, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.tell) // it panics: nobody knows what happened
		defer cancel()
		_, _ = c.End(told, end.End)
	}()
	err := do(working, p)
	returned = true
	end.err = err
	switch {
	case err == nil:
		end.Committed, end.Ran = true, Yes
		p.mu.Lock()
		end.Result = p.result
		p.mu.Unlock()
	case errors.Is(err, ErrNothingHappened):
		end.Ran = No
	case errors.Is(err, ErrEndUnknown):
		end.Ran = Maybe
	default:
		end.Ran, end.Cause, end.ExitCode = Yes, "exit", 1
		if told, ok := errors.AsType[*StopError](context.Cause(working)); ok && told.Cause != "" {
			end.Cause, end.ExitCode = told.Cause, 0
		}
	}
	return end
}

// beat says that the effect is at work until ctx ends, and ends it by stop when it has to.
func (c *Client) beat(ctx context.Context, p *Permit, st Standing, stop context.CancelCauseFunc) {
	every := max(time.Duration(st.BeatMS)*time.Millisecond, 100*time.Millisecond)
	until := time.NewTimer(time.Until(st.StopAt))
	defer until.Stop()
	next := time.NewTimer(every)
	defer next.Stop()
	var last error
	for {
		select {
		case <-ctx.Done():
			return
		case <-until.C:
			stop(&StopError{Cause: "lost", Err: errors.Join(errors.New("the node was not heard of in time"), last)})
			return
		case <-next.C:
		}
		attempt, cancel := context.WithDeadline(ctx, st.StopAt)
		now, err := c.Heartbeat(attempt, p.Run, p.Attempt)
		cancel()
		e, _ := errors.AsType[*Error](err)
		switch {
		case err == nil && now.Stop:
			stop(&StopError{Cause: now.Cause})
			return
		case err == nil:
			st, last = now, nil
			until.Reset(time.Until(st.StopAt))
			p.mu.Lock()
			p.deadline = st.Deadline
			p.mu.Unlock()
		case e != nil && e.Status == 412:
			stop(&StopError{Cause: "lost", Err: err})
			return
		default:
			last = err
		}
		next.Reset(every)
		if last != nil {
			next.Reset(min(every, time.Second))
		}
	}
}
