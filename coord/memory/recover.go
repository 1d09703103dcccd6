package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

var _ coord.Recoverer = (*Coordinator)(nil)

// RestartRecovery closes the gate of all agents anew.
func (c *Coordinator) RestartRecovery(ctx context.Context, g coord.Gate) (set coord.Gate, err error) {
	err = c.step(ctx, g.Check(), func() error {
		g.ID = coord.NewNonce()
		c.store.recovery = c.stampLocked(g)
		set = *c.store.recovery
		return nil
	})
	return set, err
}

// Recreate records an attempt that the ledger lost.
func (c *Coordinator) Recreate(ctx context.Context, o coord.Outcome) (written bool, err error) {
	err = c.change(ctx, o.Check(), o.Agent, o.Run, func(f rules.Facts) (e coord.Entry, changed bool, err error) {
		e, written = rules.Recreate(f, o)
		return e, written, nil
	})
	return written, err
}

// Raise moves the epoch of an agent to one that was granted.
func (c *Coordinator) Raise(ctx context.Context, g coord.Grant) (written bool, err error) {
	err = c.step(ctx, g.Check(), func() error {
		epoch, evict, changed, err := rules.Raise(c.store.factsLocked(c, g.Agent, ""), g)
		if err != nil || !changed {
			return err
		}
		a := c.store.agentLocked(g.Agent)
		a.epoch, written = epoch, true
		if evict {
			a.holder = nil
		}
		return nil
	})
	return written, err
}

// Offer notes what a device told.
func (c *Coordinator) Offer(ctx context.Context, o coord.Offer) error {
	return c.step(ctx, o.Check(), func() error {
		var before *coord.Offer
		if b, ok := c.store.offers[o.Device]; ok {
			before = &b
		}
		write, err := rules.Note(c.store.recovery, before, o)
		if err == nil && write {
			o.At, o.Peers = o.At.Round(0).UTC(), slices.Clone(o.Peers)
			c.store.offers[o.Device] = o
		}
		return err
	})
}

// Offers are the notes of all devices.
func (c *Coordinator) Offers(ctx context.Context) (all []coord.Offer, err error) {
	err = c.step(ctx, nil, func() error {
		all = slices.SortedFunc(maps.Values(c.store.offers), func(a, b coord.Offer) int { return cmp.Compare(a.Device, b.Device) })
		return nil
	})
	return all, err
}
