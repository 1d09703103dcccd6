package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// Steal implements coord.Steward.
func (c *Coordinator) Steal(ctx context.Context, t coord.Theft) (coord.Lease, error) {
	if err := t.Check(); err != nil {
		return coord.Lease{}, err
	}
	l, _, err := c.take(ctx, ask{Request: t.Request, theft: &t}, func(f rules.Facts) (coord.Attempt, bool, error) {
		return coord.Attempt{}, false, rules.Theft(f, t)
	})
	return l, err
}

// Evict implements coord.Steward.
func (c *Coordinator) Evict(ctx context.Context, t coord.Theft) error {
	if err := t.Check(); err != nil {
		return err
	}
	leave, err := c.enter(ctx, t.Agent)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.settleLeft(ctx, t.Agent); err != nil {
		return err
	}
	key := c.keys.holder(t.Agent)
	var before state
	stray := false
	for {
		st, err := c.look(ctx, "evict", t.Agent, "")
		if err != nil {
			return straying(stray, err)
		}
		if stray && st.mod(key) != before.mod(key) {
			return nil // the lease that was judged is gone, by us or by anybody
		}
		f, err := c.facts(st, t.Agent, "")
		if err == nil {
			err = rules.Theft(f, t)
		}
		if err != nil || !f.Held {
			return straying(stray, err)
		}
		p := proposal{what: "evict", agent: t.Agent, cmps: st.unchanged(key), puts: []clientv3.Op{clientv3.OpDelete(key)}, gets: []string{key}}
		if live := c.keys.live(f.Holder.Device, f.Holder.Liveness); live != "" && !t.Force {
			p.cmps = append(p.cmps, gone(live))
		}
		p.stray = stray
		ans, err := c.propose(ctx, p)
		if err != nil || ans.done {
			return err
		}
		before, stray = st, ans.stray
	}
}

// Pause implements coord.Steward. A gate that stands is replaced. A copy that got no answer may close the gate once more
// after it was opened, with the same words: gates are the one thing whose keys come back.
func (c *Coordinator) Pause(ctx context.Context, agent string, g coord.Gate) error {
	if err := joined("pause", []error{coord.CheckAgent(agent), g.Check()}); err != nil {
		return err
	}
	gate := stamped(g)
	_, _, err := c.setGate(ctx, "pause", agent, c.keys.paused(agent), func(coord.Gate, bool, bool) (*coord.Gate, error) { return gate, nil })
	return err
}

// Resume implements coord.Steward.
func (c *Coordinator) Resume(ctx context.Context, agent string) error {
	if err := coord.CheckAgent(agent); err != nil {
		return err
	}
	_, _, err := c.setGate(ctx, "resume", agent, c.keys.paused(agent), func(coord.Gate, bool, bool) (*coord.Gate, error) { return nil, nil })
	return err
}

// SetRecovery implements coord.Steward. The first one who closed the gate stays shown.
func (c *Coordinator) SetRecovery(ctx context.Context, g coord.Gate) error {
	if err := g.Check(); err != nil {
		return err
	}
	g.ID = coord.NewNonce()
	gate := stamped(g)
	_, _, err := c.setGate(ctx, "set the recovery gate", "", c.keys.recovery(), func(now coord.Gate, set, _ bool) (*coord.Gate, error) {
		if set {
			return &now, nil
		}
		return gate, nil
	})
	return err
}

// LiftRecovery implements coord.Steward.
func (c *Coordinator) LiftRecovery(ctx context.Context, g coord.Gate) error {
	if err := g.Check(); err != nil {
		return err
	}
	_, _, err := c.setGate(ctx, "lift the recovery gate", "", c.keys.recovery(), func(now coord.Gate, set, stray bool) (*coord.Gate, error) {
		err := rules.Lift(now, g)
		if !set || err != nil && stray { // the gate that was to be lifted is gone
			return keep(now, set), nil
		}
		return nil, err
	})
	return err
}

// Recovery implements coord.Steward.
func (c *Coordinator) Recovery(ctx context.Context) (coord.Gate, bool, error) {
	return c.setGate(ctx, "read the recovery gate", "", c.keys.recovery(), func(now coord.Gate, set, _ bool) (*coord.Gate, error) { return keep(now, set), nil })
}

// keep leaves a gate as it is.
func keep(now coord.Gate, set bool) *coord.Gate {
	if !set {
		return nil
	}
	return &now
}

func stamped(g coord.Gate) *coord.Gate {
	if g.At.IsZero() {
		g.At = time.Now()
	}
	g.At = g.At.Round(0).UTC()
	return &g
}

// setGate makes a gate what want says of what it is: nil is open. It returns what it was, and proposes nothing if
// that is the same. want hears too whether an earlier copy got no answer.
func (c *Coordinator) setGate(ctx context.Context, what, agent, key string, want func(now coord.Gate, set, stray bool) (*coord.Gate, error)) (coord.Gate, bool, error) {
	if c.base.Err() != nil {
		return coord.Gate{}, false, fmt.Errorf("%s %s: %w: the coordinator is closed", what, agent, coord.ErrNotSent)
	}
	stray := false
	for {
		st, err := c.read(ctx, what, agent, []string{key, c.keys.meta()})
		if err == nil {
			err = c.checkMeta(st)
		}
		if err != nil {
			return coord.Gate{}, false, straying(stray, err)
		}
		now, set, err := get[gateValue](st, key)
		if err != nil {
			return coord.Gate{}, false, fmt.Errorf("%s: %w: %w", what, coord.ErrNotSent, err)
		}
		g, err := want(now.Gate, set, stray)
		if err != nil {
			return now.Gate, set, fmt.Errorf("%s: %w", what, err)
		}
		if g == nil && !set || g != nil && set && *g == now.Gate {
			return now.Gate, set, nil
		}
		p := proposal{what: what, agent: agent, cmps: append(st.unchanged(key), c.sameMeta()), gets: []string{key}, stray: stray}
		if g == nil {
			p.puts = []clientv3.Op{clientv3.OpDelete(key)}
		} else {
			p.puts = []clientv3.Op{clientv3.OpPut(key, encode(gateValue{V: valueVersion, Gate: *g}))}
		}
		ans, err := c.propose(ctx, p)
		if err != nil || ans.done {
			return now.Gate, set, err
		}
		stray = ans.stray
	}
}
