package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// Renew implements coord.LeaseCoordinator. For a lease of this process in the same TTL class it proposes nothing: one
// keepalive, shared with all that renew at the same time, and one read that shows the liveness key and the grant's
// own nonce.
func (c *Coordinator) Renew(ctx context.Context, agent, device string, epoch coord.Epoch, ttl time.Duration) (coord.Lease, error) {
	if err := coord.CheckClaim(agent, device, epoch, ttl); err != nil {
		return coord.Lease{}, err
	}
	if epoch == 0 {
		return coord.Lease{}, fmt.Errorf("%w: no grant has epoch 0", coord.ErrInvalid)
	}
	class, err := coord.Granted(ttl)
	if err != nil {
		return coord.Lease{}, err
	}
	claim := rules.Claim{Agent: agent, Device: device, Epoch: epoch}
	if g := c.granted(agent); g != nil && g.is(claim) && g.lease.TTL == class {
		return c.extend(ctx, g, claim)
	}
	return c.move(ctx, claim, class)
}

func (g *grant) is(claim rules.Claim) bool {
	return g.lease.Device == claim.Device && g.lease.Epoch == claim.Epoch
}

// extend renews a grant of this process.
func (c *Coordinator) extend(ctx context.Context, g *grant, claim rules.Claim) (coord.Lease, error) {
	l := c.lifeOf(g.lease.Device, g.lease.TTL)
	for {
		sent := time.Now()
		var own []string
		if l != nil {
			if err := l.touch(ctx); err != nil {
				return coord.Lease{}, fmt.Errorf("renew %s: %w", claim.Agent, err)
			}
			own = append(own, l.key)
		}
		st, err := c.verify(ctx, claim.Agent, own)
		if err != nil {
			return coord.Lease{}, err
		}
		f, err := c.facts(st, claim.Agent, "")
		if err != nil {
			return coord.Lease{}, err
		}
		if !f.Held || f.Holder.Handle != g.lease.Handle {
			c.dropped(claim.Agent, g)
			return coord.Lease{}, rules.Lost(f, claim)
		}
		if l == nil {
			return c.renewed(g, sent), nil
		}
		kept, _ := l.warm()
		if err := l.saw(st.on(l.key)); err != nil {
			return coord.Lease{}, err
		}
		if p, ok := l.warm(); ok {
			if p.lease == kept.lease {
				return c.renewed(g, p.sent), nil
			}
			continue // the key stands on another of our etcd leases: keep that one alive
		}
		if err := l.revive(ctx); err != nil {
			return coord.Lease{}, fmt.Errorf("renew %s: %w", claim.Agent, err)
		}
	}
}

// verify reads what a renewal has to see. It does not look at runs or gates.
func (c *Coordinator) verify(ctx context.Context, agent string, own []string) (state, error) {
	keys := append([]string{c.keys.epoch(agent), c.keys.holder(agent), c.keys.meta()}, own...)
	st, err := c.read(ctx, "renew", agent, keys)
	if err != nil {
		return state{}, err
	}
	return st, c.checkMeta(st)
}

// renewed notes the time from which the grant is trusted.
func (c *Coordinator) renewed(g *grant, sent time.Time) coord.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.After(g.lease.Sent) {
		g.lease.Sent = sent
	}
	return g.lease
}

// move binds a lease anew: to another TTL class of this process, or to this process if its holder is an earlier
// one of the device that is proved dead. The epoch stays.
func (c *Coordinator) move(ctx context.Context, claim rules.Claim, class time.Duration) (coord.Lease, error) {
	a := ask{Request: coord.Request{Agent: claim.Agent, Device: claim.Device, TTL: class}, rebind: &grant{}}
	l, _, err := c.take(ctx, a, func(f rules.Facts) (coord.Attempt, bool, error) {
		_, err := rules.Keep(f, claim, c.proved)
		*a.rebind = grant{lease: f.Holder}
		// A Renew that was settled in the background may have brought it here already.
		return coord.Attempt{}, err == nil && f.Ours && f.Holder.TTL == class, err
	})
	if err != nil {
		return coord.Lease{}, err
	}
	return l, nil
}

// proved reports whether the process that holds the lease is proved dead. This process never is.
func (c *Coordinator) proved(l coord.Lease) bool {
	return c.dead != nil && l.Liveness != "" && !c.mine(l.Liveness) && c.dead(l.Liveness, l.Process)
}
