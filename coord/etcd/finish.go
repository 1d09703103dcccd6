package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// A rule makes the entry that shall be from the one that is; see package rules.
type rule func(rules.Facts) (e coord.Entry, changed bool, err error)

// entryValue spells an entry.
func entryValue(e coord.Entry) runValue {
	return runValue{V: valueVersion, Occurrence: e.Occurrence, Input: e.Input, Attempts: e.Attempts}
}

// Finish implements coord.Ledger. It is not fenced, and several may overlap.
func (c *Coordinator) Finish(ctx context.Context, o coord.Outcome) error {
	if err := o.Check(); err != nil {
		return err
	}
	if c.base.Err() != nil {
		return fmt.Errorf("finish %s: %w: the coordinator is closed", o.Agent, coord.ErrNotSent)
	}
	_, err := c.change(ctx, "finish", o.Agent, o.Run, c.entry(o), joinOf(o), nil)
	if err == nil {
		c.finished(o)
	}
	return err
}

func joinOf(o coord.Outcome) rule {
	return func(f rules.Facts) (coord.Entry, bool, error) {
		e, changed := rules.Join(f, o)
		return e, changed, nil
	}
}

// entry is what this process knows of the entry since its begin; it may be nothing.
func (c *Coordinator) entry(o coord.Outcome) state {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.entries[o.Attempt.ID]
	if !st.has(c.keys.run(o.Agent, o.Run)) {
		return state{}
	}
	return st
}

func (c *Coordinator) finished(o coord.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Attempt.State != coord.Open {
		delete(c.entries, o.Attempt.ID)
	}
}

// change writes what the rule makes of a run's entry under the compare of what it was made from, again and again
// until nothing has to be written. known may be what the entry is thought to hold: nothing is answered on its word
// alone. guard adds compares of what else the rule judged.
func (c *Coordinator) change(ctx context.Context, what, agent, run string, known state, make rule, guard func(rules.Facts) []clientv3.Cmp) (rules.Facts, error) {
	key := c.keys.run(agent, run)
	st, before, guess, stray := known, state{}, known.kvs != nil, false
	for {
		if st.kvs == nil {
			var err error
			if st, err = c.look(ctx, what, agent, run); err != nil {
				return rules.Facts{}, straying(stray, err)
			}
		}
		f, err := c.facts(st, agent, run)
		if err != nil {
			return f, straying(stray, err)
		}
		e, changed, err := make(f)
		if (err != nil || !changed) && guess {
			st, guess = state{}, false
			continue
		}
		if err != nil || !changed {
			f.Entry = e
			// An entry that moved is what no earlier copy compares.
			return f, straying(stray && st.mod(key) == before.mod(key), err)
		}
		p := c.rewrite(what, e, st)
		if guard != nil {
			p.cmps = append(p.cmps, guard(f)...)
		}
		f.Entry, f.Found = e, true
		ans, err := c.propose(ctx, p)
		if err != nil {
			return f, straying(stray, err)
		}
		if ans.done {
			return f, nil
		}
		before, st, guess, stray = st, state{}, false, stray || ans.stray
	}
}

// straying is err, which settles nothing if copies are still under way.
func straying(stray bool, err error) error {
	if err == nil || !stray {
		return err
	}
	return unsettled(err)
}

// rewrite is the transaction that writes an entry over what was read.
func (c *Coordinator) rewrite(what string, e coord.Entry, st state) proposal {
	key := c.keys.run(e.Agent, e.Run)
	p := proposal{what: what, agent: e.Agent, cmps: append(st.unchanged(key), c.sameMeta()), gets: []string{key}}
	if !st.has(key) {
		leaf, _, _ := c.leaf(st, e.Agent, e.Run)
		p.cmps = append(p.cmps, st.unchanged(leaf)...)
	}
	raw := encode(entryValue(e))
	p.puts = []clientv3.Op{clientv3.OpPut(key, raw)}
	p.ours = func(now state) bool { return now.has(key) && string(now.kvs[key].Value) == raw }
	return p
}

// Complete implements coord.Coordinator. Both parts go in one transaction, each with compares of its own; a part that
// was refused, or both after an error, goes the plain way.
func (c *Coordinator) Complete(ctx context.Context, o coord.Outcome, l coord.Lease) (finished, released error) {
	claim := rules.Claim{Agent: l.Agent, Device: l.Device, Epoch: l.Epoch}
	if err := joined("complete", []error{o.Check(), coord.CheckClaim(l.Agent, l.Device, l.Epoch, 0)}); err != nil {
		return err, err
	}
	leave, err := c.enter(ctx, l.Agent)
	if err != nil {
		return err, err
	}
	defer leave()
	if err := c.settleLeft(ctx, l.Agent); err != nil {
		return c.Finish(ctx, o), err
	}
	g := c.granted(l.Agent)
	if g == nil || !g.is(claim) || g.lease.Handle != l.Handle {
		return c.Finish(ctx, o), nil // this process does not hold it
	}
	wrote, gave, failed := c.both(ctx, o, g)
	if !wrote {
		finished = afterBoth(failed, c.Finish(ctx, o))
	}
	if !gave {
		if released = c.release(ctx, claim); errors.Is(released, coord.ErrLost) {
			released = nil
		}
		released = afterBoth(failed, released)
	}
	return finished, released
}

// afterBoth is the error of a part that went the plain way after both failed. What was sent and not answered may be carried
// out yet, whatever became of the plain way; what etcd said it had no space for was, unless the plain way saw that it was not.
func afterBoth(failed, err error) error {
	if failed == nil || err == nil {
		return err
	}
	if errors.Is(failed, coord.ErrIndeterminate) || errors.Is(failed, coord.ErrFull) && !errors.Is(err, coord.ErrFull) {
		err = unsettled(err)
	}
	return fmt.Errorf("%w (before it %v)", err, failed)
}

// both tries finish and release in one transaction, once, and says what was done. failed is why it got no answer.
func (c *Coordinator) both(ctx context.Context, o coord.Outcome, g *grant) (wrote, gave bool, failed error) {
	holder := c.keys.holder(g.lease.Agent)
	st := c.entry(o)
	if st.kvs == nil {
		var err error
		if st, err = c.look(ctx, "complete", o.Agent, o.Run); err != nil {
			return false, false, err
		}
	}
	f, err := c.facts(st, o.Agent, o.Run)
	if err != nil {
		return false, false, err
	}
	e, changed := rules.Join(f, o)
	if !changed {
		return c.entry(o).kvs == nil, false, nil // only what was read just now says that nothing has to be written
	}
	p := c.rewrite("complete", e, st)
	parts := proposal{what: "complete", agent: o.Agent, puts: []clientv3.Op{
		clientv3.OpTxn(p.cmps, p.puts, nil),
		clientv3.OpTxn(g.state(holder).unchanged(holder), []clientv3.Op{clientv3.OpDelete(holder)}, nil),
	}}
	t := c.tries("complete", o.Agent)
	resp, err := t.commit(ctx, parts)
	switch classify(err) {
	case answered:
	case refused, noLease:
		return false, false, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrNotSent, err)
	case noSpace:
		return false, false, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrFull, err)
	default:
		return false, false, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrIndeterminate, err)
	}
	if wrote = part(resp.Responses, 0); wrote {
		c.finished(o)
	}
	if gave = part(resp.Responses, 1); gave {
		c.dropped(g.lease.Agent, g)
	}
	return wrote, gave, nil
}

// part reports whether the compares of a nested transaction held.
func part(resps []*etcdserverpb.ResponseOp, i int) bool {
	if i >= len(resps) {
		return false
	}
	r := resps[i].GetResponseTxn()
	return r != nil && r.Succeeded
}

// Resolve implements coord.Ledger.
func (c *Coordinator) Resolve(ctx context.Context, r coord.Resolution) (coord.View, error) {
	if err := r.Check(); err != nil {
		return coord.View{}, err
	}
	now := time.Now()
	return c.decide(ctx, "resolve", r, func(f rules.Facts) (coord.Entry, bool, error) { return rules.Resolve(f, r, now) }, func(f rules.Facts) []clientv3.Cmp {
		a, ok := f.Entry.Find(r.Attempt)
		if !ok || r.Force || a.State != coord.Open || a.Abandoned || a.Liveness == "" {
			return nil
		}
		return []clientv3.Cmp{gone(c.keys.live(a.Device, a.Liveness))} // it was judged dead
	})
}

// Permit implements coord.Ledger.
func (c *Coordinator) Permit(ctx context.Context, r coord.Resolution) (coord.View, error) {
	if err := r.CheckPermit(); err != nil {
		return coord.View{}, err
	}
	return c.decide(ctx, "permit", r, func(f rules.Facts) (coord.Entry, bool, error) { return rules.Permit(f, r) }, nil)
}

func (c *Coordinator) decide(ctx context.Context, what string, r coord.Resolution, make rule, guard func(rules.Facts) []clientv3.Cmp) (coord.View, error) {
	if c.base.Err() != nil {
		return coord.View{}, fmt.Errorf("%s %s: %w: the coordinator is closed", what, r.Agent, coord.ErrNotSent)
	}
	f, err := c.change(ctx, what, r.Agent, r.Run, state{}, make, guard)
	if err != nil && f.Entry.Run == "" {
		return coord.View{}, err
	}
	return f.View(), err
}
