package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/events"
)

// state is how far a claim has come: filling → reserved → fencing → open → gone; each may be gone at once.
type state int

const (
	filling  state = iota // it is being looked whether it may be claimed
	reserved              // the agent is held for it
	fencing               // the begin is under way
	open                  // the client may act
	gone                  // the Desk has forgotten it
)

// A claim is one run of a client.
type claim struct {
	ask    Ask
	id     string
	run    string
	filled chan struct{} // closed when it is reserved or gone

	// set once it is reserved
	hold    Hold
	ttl     time.Duration
	timer   *time.Timer // fires when the client may be gone
	unwatch func() bool

	// guarded by Desk.mu
	state   state
	heard   time.Time
	request string // that is at the fence, or passed it
	waiting int    // requests that wait for the fence's answer
	permit  dispatch.Permit
	eff     *effect // from open on

	answered chan struct{} // closed when the fence has answered
	refused  error         // before answered is closed; nil: permitted

	over   chan struct{}   // closed when the run is over
	result dispatch.Result // before over is closed
}

// handOverTime is how long the answer to an end waits for the lease to be given back.
const handOverTime = 2 * time.Second

// release ends the run's right to the agent.
func (c *claim) release(wait time.Duration) {
	if !c.ask.HandOver {
		c.hold.Release()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	c.hold.HandOver(ctx)
}

func (c *claim) event(kind string) events.Event {
	e := events.Event{Kind: kind, Agent: c.ask.Agent, Run: c.run, Occurrence: c.ask.Occurrence}
	if c.hold != nil {
		e.Epoch = c.hold.Lease().Epoch
	}
	return e
}

// Fence begins the run for the claim. request is a nonce of the client: a repeat with it hears the same.
func (d *Desk) Fence(ctx context.Context, run, id, request string) (Standing, error) {
	c, err := d.enter(run, id, request)
	if err != nil {
		return Standing{}, err
	}
	defer d.leaveFence(c)
	select {
	case <-c.answered:
	case <-ctx.Done():
		return Standing{}, fmt.Errorf("fence: %w: %w", coord.ErrIndeterminate, context.Cause(ctx))
	}
	if c.refused != nil {
		return Standing{}, c.refused
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.state != open || c.eff.isOver() {
		return Standing{}, &coord.VerdictError{Kind: coord.ErrClosed, Run: c.run, Attempt: coord.Attempt{ID: c.permit.Attempt, Device: d.cfg.Device, Epoch: c.permit.Epoch}}
	}
	d.touchLocked(c)
	return d.standingLocked(c), nil
}

// enter lets a request wait for the fence's answer; the first of a claim starts the run.
func (d *Desk) enter(run, id, request string) (*claim, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.byID[id]
	switch {
	case c == nil || c.run != run:
		return nil, fmt.Errorf("%w: run %s", ErrUnknown, run)
	case c.state != reserved && c.request != request:
		return nil, fmt.Errorf("%w: run %s", ErrFenced, run)
	case c.state != reserved:
	case d.closed:
		return nil, fmt.Errorf("%w: %w", ErrDraining, coord.ErrNotSent)
	default:
		c.state, c.request = fencing, request
		stop := d.stop
		d.runs.Go(func() { d.begin(stop, c) })
	}
	c.waiting++
	return c, nil
}

func (d *Desk) leaveFence(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.waiting--
}

// begin is the one path of the run, with the client as its effect.
func (d *Desk) begin(ctx context.Context, c *claim) {
	j := d.job(c.ask)
	j.Held = c.hold
	j.Effect = dispatch.StartFunc(func(_ context.Context, p dispatch.Permit) (dispatch.Effect, error) { return d.start(c, p) })
	c.result = d.cfg.Dispatcher.Run(ctx, j)
	c.release(handOverTime) // before anybody hears of the end: the next run may be claimed at once
	d.mu.Lock()
	began := c.eff != nil
	d.forgetLocked(c)
	d.mu.Unlock()
	if !began {
		c.refused = &RefusedError{c.result}
		close(c.answered)
	}
	close(c.over)
	kind := events.RunEnded
	if !began {
		kind = events.RunUnclaimed
	}
	e := c.event(kind)
	e.Attempt, e.State, e.Cause = c.result.Attempt, string(c.result.State), c.result.Cause
	d.cfg.Events.Publish(e)
}

// start makes the client the effect, if it is still there to hear of it.
func (d *Desk) start(c *claim, p dispatch.Permit) (dispatch.Effect, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.waiting == 0 {
		return nil, ErrGone
	}
	if err := p.Trusted(); err != nil {
		return nil, err
	}
	c.eff = &effect{done: make(chan struct{})}
	c.state, c.permit = open, p
	d.touchLocked(c)
	close(c.answered)
	e := c.event(events.RunBegun)
	e.Attempt, e.Epoch, e.State = p.Attempt, p.Epoch, string(coord.RunRunning)
	d.cfg.Events.Publish(e)
	return c.eff, nil
}

// Heartbeat says that the client is there, and hears how long it may go on. It names its attempt, or before the fence its
// claim.
func (d *Desk) Heartbeat(run, attempt, id string) (Standing, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.byRun[run]
	named := c != nil && (id != "" && c.id == id || attempt != "" && c.permit.Attempt == attempt)
	if !named || c.hold == nil || c.eff != nil && c.eff.isOver() {
		return Standing{}, fmt.Errorf("%w: run %s", ErrUnknown, run)
	}
	d.touchLocked(c)
	return d.standingLocked(c), nil
}

// Check asks the ledger right now whether the attempt may still act: for a client that acts more than once. Nil means yes.
func (d *Desk) Check(ctx context.Context, run, attempt string) error {
	d.mu.Lock()
	c := d.byRun[run]
	if c == nil || c.state != open || c.permit.Attempt != attempt || c.eff.isOver() {
		d.mu.Unlock()
		return fmt.Errorf("%w: run %s", ErrUnknown, run)
	}
	d.touchLocked(c)
	_, stop := c.eff.told()
	ask := c.permit.Fence
	d.mu.Unlock()
	if stop != nil {
		return fmt.Errorf("%w: the client is told to stop: %w", coord.ErrUnverifiable, stop)
	}
	return ask(ctx)
}

func (d *Desk) standingLocked(c *claim) Standing {
	l := c.hold.Lease()
	s := Standing{Run: c.run, Agent: c.ask.Agent, Attempt: c.permit.Attempt, Epoch: l.Epoch, TTL: l.TTL, At: time.Now(),
		StopBy: dispatch.StopAt(l), Deadline: dispatch.KillAt(l)}
	if c.eff != nil {
		var at time.Time
		if at, s.Stop = c.eff.told(); s.Stop != nil {
			s.StopBy = s.At
			if by := at.Add(dispatch.DefaultGrace); by.Before(s.Deadline) {
				s.Deadline = by
			}
		}
	}
	return s
}
