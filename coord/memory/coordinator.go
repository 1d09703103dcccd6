package memory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

var _ coord.Coordinator = (*Coordinator)(nil)

// A Coordinator is one process at a store.
type Coordinator struct {
	store   *Store
	id      string
	process coord.Process
	gone    error // guarded by Store.mu: why the process makes no more calls
}

var (
	errCrashed = fmt.Errorf("%w: the process crashed", coord.ErrNotSent)
	errClosed  = fmt.Errorf("%w: the process closed its coordinator", coord.ErrNotSent)
)

// Crash ends the process without a word: what it holds runs out by itself, and no later call of it arrives.
func (c *Coordinator) Crash() {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	c.gone = errCrashed
}

// Livenesses returns the names that the livenesses of this process have, one for each TTL class.
func (c *Coordinator) Livenesses() []string {
	var names []string
	for _, ttl := range coord.Classes() {
		names = append(names, c.liveness(ttl))
	}
	return names
}

// Generation identifies the store.
func (c *Coordinator) Generation() string { return c.store.generation }

// Close gives up the livenesses of this process; it makes no more calls.
func (c *Coordinator) Close(ctx context.Context) error {
	return c.step(ctx, nil, func() error {
		for _, l := range c.Livenesses() {
			delete(c.store.lives, l)
		}
		c.gone = errClosed
		return nil
	})
}

// liveness names the liveness of the class. That of class 0 is a name that never lives.
func (c *Coordinator) liveness(ttl time.Duration) string {
	return fmt.Sprintf("%s.%d", c.id, int(ttl/time.Second))
}

func (c *Coordinator) owns(liveness string) bool { return strings.HasPrefix(liveness, c.id+".") }

// step runs do as one step of the store unless the request is wrong or cannot be sent.
func (c *Coordinator) step(ctx context.Context, invalid error, do func() error) error {
	if invalid != nil {
		return invalid
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", coord.ErrNotSent, context.Cause(ctx))
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.gone != nil {
		return c.gone
	}
	return do()
}

// Acquire grants the lease iff nobody holds it or it expired.
func (c *Coordinator) Acquire(ctx context.Context, req coord.Request) (l coord.Lease, err error) {
	err = c.step(ctx, req.Check(), func() error {
		if err := rules.Grantable(c.store.factsLocked(c, req.Agent, "")); err != nil {
			return err
		}
		l, err = c.grantLocked(req)
		return err
	})
	return l, err
}

func (c *Coordinator) grantLocked(req coord.Request) (coord.Lease, error) {
	s := c.store
	var held, stored coord.Epoch
	if a := s.agents[req.Agent]; a != nil {
		if stored = a.epoch; a.holder != nil {
			held = a.holder.Epoch
		}
	}
	next, jump, err := rules.NextEpoch(req.Agent, stored, held, req.Floor)
	if err != nil {
		return coord.Lease{}, err
	}
	a := s.agentLocked(req.Agent)
	a.epoch = next
	l := &coord.Lease{Agent: req.Agent, Device: req.Device, Epoch: next, Since: s.now().Round(0).UTC(), Jump: jump, Note: req.Note}
	return c.bindLocked(a, l, req.TTL), nil
}

// bindLocked binds l to this process with a fresh handle and makes it the holder.
func (c *Coordinator) bindLocked(a *agent, l *coord.Lease, ttl time.Duration) coord.Lease {
	l.Handle, l.Process = coord.NewNonce(), c.process
	a.holder, a.owner = l, c.id
	return c.extendLocked(l, ttl)
}

// extendLocked starts the TTL of l anew, in its class.
func (c *Coordinator) extendLocked(l *coord.Lease, ttl time.Duration) coord.Lease {
	l.TTL, _ = coord.Granted(ttl)
	l.Sent, l.Liveness = c.store.now(), ""
	if l.TTL > 0 {
		l.Liveness = c.liveness(l.TTL)
		c.store.lives[l.Liveness] = life{l.Sent.Add(l.TTL), l.TTL}
	}
	shown := *l
	shown.Expired = l.TTL == 0
	return shown
}

// Renew extends a lease of this process, also after it expired.
func (c *Coordinator) Renew(ctx context.Context, id, device string, epoch coord.Epoch, ttl time.Duration) (l coord.Lease, err error) {
	err = c.step(ctx, checkRenew(id, device, epoch, ttl), func() error {
		f := c.store.factsLocked(c, id, "")
		rebind, err := rules.Keep(f, rules.Claim{Agent: id, Device: device, Epoch: epoch}, c.store.dead)
		if err != nil {
			return err
		}
		a := c.store.agents[id]
		if rebind {
			held := *a.holder
			l = c.bindLocked(a, &held, ttl)
			return nil
		}
		l = c.extendLocked(a.holder, ttl)
		return nil
	})
	return l, err
}

func checkRenew(id, device string, epoch coord.Epoch, ttl time.Duration) error {
	if err := coord.CheckClaim(id, device, epoch, ttl); err != nil {
		return err
	}
	if epoch == 0 {
		return fmt.Errorf("%w: no grant has epoch 0", coord.ErrInvalid)
	}
	return nil
}

// Release gives the lease back; epoch 0 has nothing to give up here.
func (c *Coordinator) Release(ctx context.Context, id, device string, epoch coord.Epoch) error {
	return c.step(ctx, coord.CheckClaim(id, device, epoch, 0), func() error {
		if epoch == 0 {
			return nil
		}
		_, err := rules.Keep(c.store.factsLocked(c, id, ""), rules.Claim{Agent: id, Device: device, Epoch: epoch}, c.store.dead)
		if err == nil {
			c.store.agents[id].holder = nil
		}
		return err
	})
}

// Current shows the holder, also an expired one.
func (c *Coordinator) Current(ctx context.Context, id string) (l coord.Lease, held bool, err error) {
	err = c.step(ctx, coord.CheckAgent(id), func() error {
		l, held = c.store.leaseLocked(id, c.id)
		return nil
	})
	return l, held, err
}

// Start is Acquire and Begin in one step.
func (c *Coordinator) Start(ctx context.Context, req coord.Request, b coord.Begin) (l coord.Lease, a coord.Attempt, err error) {
	b.Lease = coord.Lease{Agent: req.Agent, Device: req.Device}
	err = c.step(ctx, errors.Join(req.Check(), b.Check()), func() error {
		f := c.store.factsLocked(c, req.Agent, b.Run)
		open, again, err := rules.Start(f, b)
		if err != nil {
			return err
		}
		if again {
			if !f.Ours || f.Holder.Epoch != open.Epoch {
				return rules.Lost(f, rules.Claim{Agent: req.Agent, Device: req.Device, Epoch: open.Epoch})
			}
			l, a = f.Holder, open
			return nil
		}
		if l, err = c.grantLocked(req); err != nil {
			return err
		}
		a = rules.Attempt(b, l, c.liveness(l.TTL), c.store.now())
		c.store.storeLocked(rules.Open(f, b, a))
		return nil
	})
	return l, a, err
}

// Complete is Finish and Release, each with its own verdict.
func (c *Coordinator) Complete(ctx context.Context, o coord.Outcome, l coord.Lease) (finished, released error) {
	finished = c.Finish(ctx, o)
	released = c.step(ctx, coord.CheckClaim(l.Agent, l.Device, l.Epoch, 0), func() error {
		f := c.store.factsLocked(c, l.Agent, "")
		if f.Ours && f.Holder.Handle == l.Handle {
			c.store.agents[l.Agent].holder = nil
		}
		return nil
	})
	return finished, released
}
