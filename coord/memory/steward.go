package memory

import (
	"context"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// Steal grants the lease by decision of a person.
func (c *Coordinator) Steal(ctx context.Context, t coord.Theft) (l coord.Lease, err error) {
	err = c.step(ctx, t.Check(), func() error {
		if err := rules.Theft(c.store.factsLocked(c, t.Agent, ""), t); err != nil {
			return err
		}
		if l, err = c.grantLocked(t.Request); err != nil {
			return err
		}
		held := c.store.agents[t.Agent].holder
		held.By, held.Reason = t.By, t.Reason
		l.By, l.Reason = t.By, t.Reason
		return nil
	})
	return l, err
}

// Evict takes the lease from its holder by decision of a person.
func (c *Coordinator) Evict(ctx context.Context, t coord.Theft) error {
	return c.step(ctx, t.Check(), func() error {
		if err := rules.Theft(c.store.factsLocked(c, t.Agent, ""), t); err != nil {
			return err
		}
		if a := c.store.agents[t.Agent]; a != nil {
			a.holder = nil
		}
		return nil
	})
}

// Leases lists the leases that somebody holds, expired ones too.
func (c *Coordinator) Leases(ctx context.Context) ([]coord.Lease, error) { return c.LeasesOf(ctx, "") }

// LeasesOf lists the leases of the agents whose names begin with prefix.
func (c *Coordinator) LeasesOf(ctx context.Context, prefix string) (all []coord.Lease, err error) {
	err = c.step(ctx, nil, func() error {
		for id := range c.store.agents {
			if l, held := c.store.leaseLocked(id, c.id); held && strings.HasPrefix(id, prefix) {
				all = append(all, l)
			}
		}
		slices.SortFunc(all, func(a, b coord.Lease) int { return strings.Compare(a.Agent, b.Agent) })
		return nil
	})
	return all, err
}

// Pause closes the gate of an agent.
func (c *Coordinator) Pause(ctx context.Context, id string, g coord.Gate) error {
	return c.step(ctx, checkGate(id, g), func() error {
		c.store.agentLocked(id).paused = c.stampLocked(g)
		return nil
	})
}

// Resume opens it.
func (c *Coordinator) Resume(ctx context.Context, id string) error {
	return c.step(ctx, coord.CheckAgent(id), func() error {
		c.store.agentLocked(id).paused = nil
		return nil
	})
}

// SetRecovery closes the gate of all agents. The first one who closed it stays shown.
func (c *Coordinator) SetRecovery(ctx context.Context, g coord.Gate) error {
	return c.step(ctx, g.Check(), func() error {
		if c.store.recovery == nil {
			g.ID = coord.NewNonce()
			c.store.recovery = c.stampLocked(g)
		}
		return nil
	})
}

// LiftRecovery opens it.
func (c *Coordinator) LiftRecovery(ctx context.Context, g coord.Gate) error {
	return c.step(ctx, g.Check(), func() error {
		if now := c.store.recovery; now != nil {
			if err := rules.Lift(*now, g); err != nil {
				return err
			}
		}
		c.store.recovery = nil
		return nil
	})
}

// Recovery reads that gate.
func (c *Coordinator) Recovery(ctx context.Context) (g coord.Gate, set bool, err error) {
	err = c.step(ctx, nil, func() error {
		if c.store.recovery != nil {
			g, set = *c.store.recovery, true
		}
		return nil
	})
	return g, set, err
}

func (c *Coordinator) stampLocked(g coord.Gate) *coord.Gate {
	if g.At.IsZero() {
		g.At = c.store.now()
	}
	g.At = g.At.Round(0).UTC()
	return &g
}

func checkGate(id string, g coord.Gate) error {
	if err := coord.CheckAgent(id); err != nil {
		return err
	}
	return g.Check()
}
