package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
)

// unsettled is err as the answer to a request of which copies may still be under way, whatever err says of
// the last thing that was tried.
func unsettled(err error) error {
	if errors.Is(err, coord.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("%w: %v", coord.ErrIndeterminate, err)
}

// enter makes the caller the one writer of an agent in this process.
func (c *Coordinator) enter(ctx context.Context, agent string) (leave func(), err error) {
	if c.base.Err() != nil {
		return nil, fmt.Errorf("agent %s: %w: the coordinator is closed", agent, coord.ErrNotSent)
	}
	return c.writers.enter(ctx, agent)
}

// resume returns what the process asked for and did not settle, if a asks for the very same thing again. Anything
// else is given up first.
func (c *Coordinator) resume(ctx context.Context, a ask) (*bid, error) {
	if b := c.leftOf(a); b != nil {
		return b, nil
	}
	return nil, c.settleLeft(ctx, a.Agent)
}

// leftOf is what the very same Start left unsettled; nil if nothing.
func (c *Coordinator) leftOf(a ask) *bid {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.left[a.Agent]
	if b != nil && b.begin != nil && a.begin != nil && b.begin.Attempt == a.begin.Attempt && b.begin.Request == a.begin.Request {
		return b
	}
	return nil
}

// settleLeft gives up what the process asked for the agent and did not settle. The caller is its writer.
func (c *Coordinator) settleLeft(ctx context.Context, agent string) error {
	c.mu.Lock()
	b := c.left[agent]
	c.mu.Unlock()
	if b == nil {
		return nil
	}
	if err := c.giveUp(ctx, b); err != nil {
		return fmt.Errorf("agent %s: an earlier %s is not settled: %w", agent, b.prop.what, err)
	}
	return nil
}

// keep remembers a bid whose answer is unknown. A Start waits for its caller; anything else is given up in the
// background, which then is the agent's writer in the caller's place.
func (c *Coordinator) keep(b *bid, err error, leave *func()) bool {
	b.close()
	if !errors.Is(err, coord.ErrIndeterminate) {
		return false
	}
	b.prop.stray = true
	c.mu.Lock()
	c.left[b.lease.Agent] = b
	c.mu.Unlock()
	if b.begin != nil {
		return true
	}
	end := *leave
	if c.spawn(func() { defer end(); c.giveUpAlone(b) }) {
		*leave = func() {}
	}
	return true
}

func (c *Coordinator) giveUpAlone(b *bid) {
	ctx, cancel := context.WithTimeout(c.base, c.budget)
	defer cancel()
	if err := c.giveUp(ctx, b); err != nil {
		c.log.Warn("a request that was given up is not settled", "op", b.prop.what, "agent", b.lease.Agent, "err", err)
	}
}

// giveUp makes sure that nothing of b happens any more, and undoes what happened: a lease is released, an attempt
// that was opened with it voided. A re-bind that was carried out stays: it is ours, and a repeated Renew finds it.
func (c *Coordinator) giveUp(ctx context.Context, b *bid) error {
	granted, err := c.poison(ctx, b)
	if err != nil {
		return err
	}
	switch {
	case granted && b.rebind:
		c.won(b)
	case granted:
		if b.begin != nil {
			if err := c.void(ctx, *b.begin); err != nil {
				return unsettled(err)
			}
		}
		if err := c.drop(ctx, b); err != nil {
			return unsettled(err)
		}
	}
	c.forget(b)
	return nil
}

// forget drops a bid that is settled.
func (c *Coordinator) forget(b *bid) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left[b.lease.Agent] == b {
		delete(c.left, b.lease.Agent)
	}
}

// drop deletes the holder key that b wrote, if it is still there.
func (c *Coordinator) drop(ctx context.Context, b *bid) error {
	key := c.keys.holder(b.lease.Agent)
	_, err := c.propose(ctx, proposal{
		what: "release", agent: b.lease.Agent, cmps: b.st.unchanged(key), puts: []clientv3.Op{clientv3.OpDelete(key)},
		gets: []string{key}, ours: func(st state) bool { return st.mod(key) != b.st.mod(key) },
	})
	return err
}
