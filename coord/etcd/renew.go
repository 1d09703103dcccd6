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
	if l == nil {
		return c.extendNothing(ctx, g, claim)
	}
	for {
		r, err := l.touch(ctx, claim.Agent)
		if err != nil {
			return coord.Lease{}, fmt.Errorf("renew %s: %w", claim.Agent, err)
		}
		st := r.read[claim.Agent]
		if err := c.stillOurs(st, g, claim); err != nil {
			return coord.Lease{}, err
		}
		if r.lease != 0 && st.on(l.key) == r.lease {
			return c.renewed(g, r.sent), nil
		}
		// The key is gone, or stands on an etcd lease that this round did not renew.
		if err := l.saw(st); err != nil {
			return coord.Lease{}, err
		}
		if err := l.revive(ctx); err != nil {
			return coord.Lease{}, fmt.Errorf("renew %s: %w", claim.Agent, err)
		}
	}
}

// extendNothing is extend for TTL 0: there is only the holder to look at.
func (c *Coordinator) extendNothing(ctx context.Context, g *grant, claim rules.Claim) (coord.Lease, error) {
	sent := time.Now()
	st, err := c.read(ctx, "renew", claim.Agent, []string{c.keys.epoch(claim.Agent), c.keys.holder(claim.Agent), c.keys.meta()})
	if err != nil {
		return coord.Lease{}, err
	}
	if err := c.stillOurs(st, g, claim); err != nil {
		return coord.Lease{}, err
	}
	return c.renewed(g, sent), nil
}

// stillOurs is nil if what was read shows the grant's own nonce.
func (c *Coordinator) stillOurs(st state, g *grant, claim rules.Claim) error {
	if err := c.checkMeta(st); err != nil {
		return err
	}
	f, err := c.facts(st, claim.Agent, "")
	if err != nil {
		return err
	}
	if !f.Held || f.Holder.Handle != g.lease.Handle {
		c.dropped(claim.Agent, g)
		return rules.Lost(f, claim)
	}
	return nil
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
