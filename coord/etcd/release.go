package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// Release implements coord.LeaseCoordinator. It needs no space, so that it works when etcd is full.
func (c *Coordinator) Release(ctx context.Context, agent, device string, epoch coord.Epoch) error {
	if err := coord.CheckClaim(agent, device, epoch, 0); err != nil {
		return err
	}
	leave, err := c.enter(ctx, agent)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.settleLeft(ctx, agent); err != nil || epoch == 0 {
		return err
	}
	return c.release(ctx, rules.Claim{Agent: agent, Device: device, Epoch: epoch})
}

// release deletes the holder key as this process wrote it, or as an earlier process of the device did that is proved
// dead.
func (c *Coordinator) release(ctx context.Context, claim rules.Claim) error {
	key := c.keys.holder(claim.Agent)
	g := c.granted(claim.Agent)
	var st state
	if g != nil && g.is(claim) {
		st = g.state(key)
	} else {
		var err error
		if st, err = c.releasable(ctx, claim); err != nil {
			return err
		}
	}
	ans, err := c.propose(ctx, proposal{
		what: "release", agent: claim.Agent, cmps: st.unchanged(key), puts: []clientv3.Op{clientv3.OpDelete(key)},
		gets: []string{key, c.keys.epoch(claim.Agent)},
		// Whatever moved it, the key as it was compared never comes back: no copy is carried out any more.
		ours: func(now state) bool { return now.mod(key) != st.mod(key) },
	})
	if err != nil {
		return err
	}
	if g != nil {
		c.dropped(claim.Agent, g)
	}
	return c.released(ctx, ans, claim, st.mod(key))
}

// released says what became of a release that was answered and had compared the holder key as written at m. If an
// earlier copy got no answer, the key's own history tells what came first: that it was deleted, or that another took
// it. If that is compacted, it is not ours any more in any case, but the error matches coord.ErrIndeterminate too.
func (c *Coordinator) released(ctx context.Context, ans answer, claim rules.Claim, m int64) error {
	if len(ans.st.kvs) == 0 { // carried out by the copy that was answered
		return nil
	}
	f, err := c.facts(ans.st, claim.Agent, "")
	if err != nil {
		return straying(ans.stray, err)
	}
	lost := rules.Lost(f, claim)
	if !ans.stray {
		return lost
	}
	deleted, known := !f.Held && f.Epoch == claim.Epoch, !f.Held && f.Epoch == claim.Epoch
	if !known {
		deleted, known = c.nextChange(ctx, c.keys.holder(claim.Agent), m)
	}
	switch {
	case !known:
		return fmt.Errorf("release %s: %w, it is not held any more: %w", claim.Agent, coord.ErrIndeterminate, lost)
	case deleted:
		return nil
	}
	return lost
}

// nextChange tells what became of a key after the revision m, as far as etcd still knows.
func (c *Coordinator) nextChange(ctx context.Context, key string, m int64) (deleted, known bool) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), 2*c.attempt)
	defer cancel()
	for resp := range c.client.Watch(ctx, key, clientv3.WithRev(m+1)) {
		if resp.Err() != nil {
			return false, false
		}
		for _, event := range resp.Events {
			return event.Type == clientv3.EventTypeDelete, true
		}
	}
	return false, false
}

// releasable reads a lease that this process does not know as its own.
func (c *Coordinator) releasable(ctx context.Context, claim rules.Claim) (state, error) {
	st, err := c.look(ctx, "release", claim.Agent, "")
	if err != nil {
		return state{}, err
	}
	f, err := c.facts(st, claim.Agent, "")
	if err != nil {
		return state{}, err
	}
	if _, err := rules.Keep(f, claim, c.proved); err != nil {
		return state{}, err
	}
	return st, nil
}

// Current implements coord.LeaseCoordinator.
func (c *Coordinator) Current(ctx context.Context, agent string) (coord.Lease, bool, error) {
	if err := coord.CheckAgent(agent); err != nil {
		return coord.Lease{}, false, err
	}
	st, err := c.look(ctx, "look at", agent, "")
	if err != nil {
		return coord.Lease{}, false, err
	}
	f, err := c.facts(st, agent, "")
	if err != nil {
		return coord.Lease{}, false, fmt.Errorf("look at %s: %w", agent, err)
	}
	if !f.Held {
		return coord.Lease{Agent: agent, Epoch: f.Epoch}, false, nil
	}
	return f.Holder, true, nil
}
