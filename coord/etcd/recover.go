package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

var _ coord.Recoverer = (*Coordinator)(nil)

// RestartRecovery implements coord.Recoverer.
func (c *Coordinator) RestartRecovery(ctx context.Context, g coord.Gate) (coord.Gate, error) {
	if err := g.Check(); err != nil {
		return coord.Gate{}, err
	}
	g.ID = coord.NewNonce()
	gate := stamped(g)
	_, _, err := c.setGate(ctx, "begin a recovery", "", c.keys.recovery(), func(coord.Gate, bool, bool) (*coord.Gate, error) { return gate, nil })
	return *gate, err
}

// Recreate implements coord.Recoverer.
func (c *Coordinator) Recreate(ctx context.Context, o coord.Outcome) (written bool, err error) {
	if err := o.Check(); err != nil {
		return false, err
	}
	if c.base.Err() != nil {
		return false, fmt.Errorf("recreate %s: %w: the coordinator is closed", o.Agent, coord.ErrNotSent)
	}
	_, err = c.change(ctx, "recreate an attempt of", o.Agent, o.Run, state{}, func(f rules.Facts) (coord.Entry, bool, error) {
		e, changed := rules.Recreate(f, o)
		written = written || changed
		return e, changed, nil
	}, nil)
	return written && err == nil, err
}

// Raise implements coord.Recoverer. It writes the epoch even if it stands there and only the holder goes, so that no copy of
// an earlier grant can be carried out any more.
func (c *Coordinator) Raise(ctx context.Context, g coord.Grant) (written bool, err error) {
	if err := g.Check(); err != nil {
		return false, err
	}
	leave, err := c.enter(ctx, g.Agent)
	if err != nil {
		return false, err
	}
	defer leave()
	if err := c.settleLeft(ctx, g.Agent); err != nil {
		return false, err
	}
	stray := false
	for {
		st, err := c.look(ctx, "raise the epoch of", g.Agent, "")
		if err != nil {
			return false, straying(stray, err)
		}
		f, err := c.facts(st, g.Agent, "")
		if err != nil {
			return false, straying(stray, err)
		}
		next, evict, changed, err := rules.Raise(f, g)
		if err != nil || !changed {
			return stray, straying(stray && err != nil, err) // what moved the epoch is what no earlier copy compares
		}
		p := c.raising(g.Agent, f, next, evict, st)
		p.stray = stray
		ans, err := c.propose(ctx, p)
		if err != nil {
			return false, straying(stray, err)
		}
		if ans.done {
			if evict {
				c.dropped(g.Agent, c.granted(g.Agent))
			}
			return true, nil
		}
		stray = ans.stray
	}
}

// raising is the transaction that writes an epoch, and takes the lease from a holder below it.
func (c *Coordinator) raising(agent string, f rules.Facts, next coord.Epoch, evict bool, st state) proposal {
	epoch, holder := c.keys.epoch(agent), c.keys.holder(agent)
	raw := encode(epochValue{V: valueVersion, Epoch: next, Jump: next - f.Epoch, Nonce: coord.NewNonce()})
	p := proposal{what: "raise the epoch of", agent: agent, puts: []clientv3.Op{clientv3.OpPut(epoch, raw)}, gets: []string{epoch}}
	p.cmps = append(append(st.unchanged(epoch), st.unchanged(holder)...), c.sameMeta())
	p.ours = func(now state) bool { return now.has(epoch) && string(now.kvs[epoch].Value) == raw }
	if evict {
		p.puts = append(p.puts, clientv3.OpDelete(holder))
	}
	return p
}

// Offer implements coord.Recoverer.
func (c *Coordinator) Offer(ctx context.Context, o coord.Offer) error {
	if err := o.Check(); err != nil {
		return err
	}
	if c.base.Err() != nil {
		return fmt.Errorf("offer of %s: %w: the coordinator is closed", o.Device, coord.ErrNotSent)
	}
	o.At = o.At.Round(0).UTC()
	key, gateKey := c.keys.offer(o.Device), c.keys.recovery()
	stray := false
	for {
		st, err := c.read(ctx, "note the offer of", o.Device, []string{key, gateKey, c.keys.meta()})
		if err == nil {
			err = c.checkMeta(st)
		}
		if err != nil {
			return straying(stray, err)
		}
		if st.has(key) && string(st.kvs[key].Value) == offerText(o) {
			return nil
		}
		gate, set, err := get[gateValue](st, gateKey)
		if err != nil {
			return fmt.Errorf("note the offer of %s: %w: %w", o.Device, coord.ErrNotSent, err)
		}
		before, was, err := get[offerValue](st, key)
		if err != nil {
			return fmt.Errorf("note the offer of %s: %w: %w", o.Device, coord.ErrNotSent, err)
		}
		write, err := rules.Note(present(gate.Gate, set), present(before.Offer, was), o)
		if err != nil || !write {
			return straying(stray && err != nil, err)
		}
		p := c.noting(o, st)
		p.stray = stray
		ans, err := c.propose(ctx, p)
		if err != nil || ans.done {
			return err
		}
		stray = ans.stray
	}
}

// noting is the transaction that writes a note; one that counts compares the gate too.
func (c *Coordinator) noting(o coord.Offer, st state) proposal {
	key, raw := c.keys.offer(o.Device), offerText(o)
	p := proposal{what: "note the offer of", agent: o.Device, cmps: append(st.unchanged(key), c.sameMeta()),
		puts: []clientv3.Op{clientv3.OpPut(key, raw)}, gets: []string{key}}
	p.ours = func(now state) bool { return now.has(key) && string(now.kvs[key].Value) == raw }
	if o.Done {
		p.cmps = append(p.cmps, st.unchanged(c.keys.recovery())...)
	}
	return p
}

func offerText(o coord.Offer) string { return encode(offerValue{V: valueVersion, Offer: o}) }

func present[T any](v T, there bool) *T {
	if !there {
		return nil
	}
	return &v
}

// Offers implements coord.Recoverer.
func (c *Coordinator) Offers(ctx context.Context) ([]coord.Offer, error) {
	var all []coord.Offer
	for from, end := c.keys.offers(), clientv3.GetPrefixRangeEnd(c.keys.offers()); from != ""; {
		st, keys, next, err := c.prefix(ctx, "list offers", from, end)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			v, _, err := get[offerValue](st, key)
			if err != nil {
				return nil, fmt.Errorf("list offers: %w: %w", coord.ErrNotSent, err)
			}
			all = append(all, v.Offer)
		}
		from = next
	}
	return all, nil
}
