package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/events"
)

// Defaults of a Config.
const (
	DefaultDrain = 60 * time.Second
	// MaxOpen bounds the claims and open attempts at one time.
	MaxOpen = 10_000
)

// A Config describes a Desk. Drain, Events and Logger may be left out.
type Config struct {
	Namespace  string
	Device     string
	Dispatcher *dispatch.Dispatcher
	Holds      Holds
	Ledger     coord.Ledger
	// Drain is how long open attempts may go on when the node goes down, before their clients are told to stop. 0:
	// DefaultDrain.
	Drain  time.Duration
	Events *events.Ring
	Logger *slog.Logger // nil: silent
}

// A Desk is where clients claim runs.
type Desk struct {
	cfg Config

	mu     sync.Mutex // guards all below, and what claims say it does
	closed bool       // no new claims, and no fence
	byRun  map[string]*claim
	byID   map[string]*claim
	// telling are the attempts of which a late end is being recorded; closed when that is over.
	telling map[string]chan struct{}
	stop    context.Context // ends when open attempts have to stop; set by Run
	runs    sync.WaitGroup  // of fences; Add under mu while not closed
}

// New returns a Desk. It takes claims from the beginning of Run on.
func New(cfg Config) (*Desk, error) {
	if cfg.Dispatcher == nil || cfg.Holds == nil || cfg.Ledger == nil {
		return nil, errors.New("claim: a dispatcher, holds and a ledger are required")
	}
	if err := errors.Join(ident.Check("device", cfg.Device), ident.Check("namespace", cfg.Namespace)); err != nil {
		return nil, err
	}
	if cfg.Drain == 0 {
		cfg.Drain = DefaultDrain
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Desk{cfg: cfg, closed: true, byRun: map[string]*claim{}, byID: map[string]*claim{}, telling: map[string]chan struct{}{}}, nil
}

// Run takes claims until ctx ends. Then nothing new begins, what was claimed and not begun is given up, and attempts that
// are open may go on for Config.Drain; after that their clients are told to stop. It returns when all have ended.
func (d *Desk) Run(ctx context.Context) error {
	stop, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	d.mu.Lock()
	d.stop, d.closed = stop, false
	d.mu.Unlock()
	<-ctx.Done()
	d.close()
	patience := time.AfterFunc(d.cfg.Drain, func() { cancel(dispatch.ErrDrain) })
	defer patience.Stop()
	d.runs.Wait()
	return nil
}

func (d *Desk) close() {
	d.mu.Lock()
	d.closed = true
	var unused []*claim
	for _, c := range d.byRun {
		if c.state == reserved {
			unused = append(unused, c)
		}
	}
	d.mu.Unlock()
	for _, c := range unused {
		d.drop(c, ErrDraining)
	}
}

func (d *Desk) run(a Ask) string { return ident.RunID(d.cfg.Namespace, a.Agent, a.Occurrence) }

func (d *Desk) job(a Ask) dispatch.Job {
	return dispatch.Job{Agent: a.Agent, Run: d.run(a), Occurrence: a.Occurrence, Input: a.Input,
		IfFailed: a.IfFailed, OnDoubt: a.OnDoubt, OnLost: a.OnLost}
}

func (a Ask) check() error {
	err := errors.Join(ident.Check("agent", a.Agent), ident.CheckOccurrence(a.Occurrence))
	if a.OnDoubt == dispatch.DoubtProbe {
		err = errors.Join(err, errors.New("a client probes for itself"))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", coord.ErrInvalid, err)
	}
	return nil
}

// Claim reserves the agent for a run that may be begun, as far as ledger and journal know.
func (d *Desk) Claim(ctx context.Context, a Ask) (Claim, error) {
	if err := a.check(); err != nil {
		return Claim{}, err
	}
	for {
		c, same, err := d.reserve(a)
		switch {
		case err != nil:
			return Claim{}, err
		case same == nil:
			return d.first(ctx, c)
		}
		select {
		case <-same.filled:
		case <-ctx.Done():
			return Claim{}, fmt.Errorf("claim: %w: %w", coord.ErrNotSent, context.Cause(ctx))
		}
		if again, ok := d.again(same); ok {
			return again, nil
		} // else it came to nothing, or was used meanwhile
	}
}

// first makes a reservation a claim.
func (d *Desk) first(ctx context.Context, c *claim) (Claim, error) {
	if err := d.fill(ctx, c); err != nil {
		d.forget(c)
		close(c.filled)
		return Claim{}, err
	}
	if ctx.Err() != nil { // nobody is there to hear of it
		d.drop(c, context.Cause(ctx))
		return Claim{}, fmt.Errorf("claim: %w: %w", coord.ErrNotSent, context.Cause(ctx))
	}
	d.cfg.Events.Publish(c.event(events.RunClaimed))
	return d.told(c), nil
}

// again is the answer to a repeat, while the claim stands and was not used.
func (d *Desk) again(c *claim) (Claim, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.state != reserved {
		return Claim{}, false
	}
	d.touchLocked(c)
	return d.told(c), true
}

// reserve keeps others from claiming the same run here: it gives a reservation to be filled, or the one that the very
// same request has already.
func (d *Desk) reserve(a Ask) (mine, same *claim, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	run := d.run(a)
	if c := d.byRun[run]; c != nil {
		if c.state <= reserved && a.Request != "" && c.ask == a {
			return nil, c, nil
		}
		return nil, nil, d.busyLocked(c, run)
	}
	switch {
	case d.closed:
		return nil, nil, fmt.Errorf("%w: %w", ErrDraining, coord.ErrNotSent)
	case len(d.byRun) >= MaxOpen:
		return nil, nil, fmt.Errorf("%w: %d claims are open", coord.ErrNotSent, MaxOpen)
	}
	c := &claim{ask: a, id: coord.NewNonce(), run: run, filled: make(chan struct{}), answered: make(chan struct{}), over: make(chan struct{})}
	d.byRun[run] = c
	return c, nil, nil
}

func (d *Desk) busyLocked(c *claim, asked string) error {
	e := &BusyError{Agent: c.ask.Agent, Run: c.run, Asked: asked, Device: d.cfg.Device, Attempt: c.permit.Attempt}
	if c.hold != nil {
		e.Epoch = c.hold.Lease().Epoch
	}
	return e
}

// fill looks at the run and takes the agent for it.
func (d *Desk) fill(ctx context.Context, c *claim) error {
	_, err := d.cfg.Dispatcher.Look(ctx, d.job(c.ask))
	if err != nil && !(errors.Is(err, coord.ErrInDoubt) && c.ask.OnDoubt == dispatch.DoubtRetry) {
		return err
	}
	hold, err := d.cfg.Holds.Claim(ctx, c.ask.Agent, c.run)
	if busy, ok := errors.AsType[*BusyError](err); ok {
		busy.Asked, busy.Device = c.run, d.cfg.Device
	}
	if err != nil {
		return err
	}
	if !d.fillIn(c, hold) {
		hold.Release()
		return fmt.Errorf("%w: %w", ErrDraining, coord.ErrNotSent)
	}
	return nil
}

// fillIn says false if the Desk was closed meanwhile.
func (d *Desk) fillIn(c *claim, hold Hold) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	c.hold, c.state, c.ttl = hold, reserved, hold.Lease().TTL
	d.byID[c.id] = c
	c.timer = time.AfterFunc(c.ttl, func() { d.silent(c) })
	d.touchLocked(c)
	c.unwatch = context.AfterFunc(hold.Context(), func() { d.drop(c, context.Cause(hold.Context())) })
	close(c.filled)
	return true
}

func (d *Desk) told(c *claim) Claim {
	return Claim{ID: c.id, Run: c.run, Agent: c.ask.Agent, Occurrence: c.ask.Occurrence, Device: d.cfg.Device,
		Epoch: c.hold.Lease().Epoch, TTL: c.ttl}
}

// Unclaim gives a claim up that was not begun. It is repeatable: what is not there is given up.
func (d *Desk) Unclaim(run, id string) {
	d.mu.Lock()
	c := d.byID[id]
	d.mu.Unlock()
	if c != nil && c.run == run {
		d.drop(c, nil)
	}
}

// AgentOf is the agent of a run that is claimed or open here.
func (d *Desk) AgentOf(run string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.byRun[run]; c != nil {
		return c.ask.Agent, true
	}
	return "", false
}

// Note publishes an event beside those of the Desk.
func (d *Desk) Note(e events.Event) { d.cfg.Events.Publish(e) }

// drop gives up a claim of which nothing was begun. One that is at the fence or past it is left alone.
func (d *Desk) drop(c *claim, why error) {
	d.mu.Lock()
	mine := c.state == reserved
	if mine {
		d.forgetLocked(c)
	}
	d.mu.Unlock()
	if !mine {
		return
	}
	c.release(0)
	d.cfg.Logger.Debug("claim given up", "agent", c.ask.Agent, "run", c.run, "err", why)
	d.cfg.Events.Publish(c.event(events.RunUnclaimed))
}

func (d *Desk) forget(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(c)
}

func (d *Desk) forgetLocked(c *claim) {
	c.state = gone
	delete(d.byRun, c.run)
	delete(d.byID, c.id)
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.unwatch != nil {
		c.unwatch()
	}
}

// silent is called when the client may not have been heard of for the TTL.
func (d *Desk) silent(c *claim) {
	d.mu.Lock()
	left := time.Until(c.heard.Add(c.ttl))
	state, eff := c.state, c.eff
	if left > 0 && state != gone {
		c.timer.Reset(left)
	}
	d.mu.Unlock()
	switch {
	case left > 0:
	case state == reserved:
		d.drop(c, ErrSilent)
	case state == open:
		eff.end(dispatch.Ended{ExitCode: -1, Err: ErrSilent})
	}
}

// touchLocked notes that the client was heard of.
func (d *Desk) touchLocked(c *claim) {
	c.heard = time.Now()
	c.timer.Reset(c.ttl)
}
