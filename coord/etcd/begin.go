package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// Start implements coord.Coordinator: the compares of the grant and of the begin joined in one transaction.
func (c *Coordinator) Start(ctx context.Context, req coord.Request, b coord.Begin) (coord.Lease, coord.Attempt, error) {
	b.Lease = coord.Lease{Agent: req.Agent, Device: req.Device}
	if err := joined("start", []error{req.Check(), b.Check()}); err != nil {
		return coord.Lease{}, coord.Attempt{}, err
	}
	return c.take(ctx, ask{Request: req, begin: &b}, func(f rules.Facts) (coord.Attempt, bool, error) {
		return rules.Start(f, b)
	})
}

// Begin implements coord.Ledger. A holder that knows nothing of the run needs no read before it: what is wrong is
// in the answer.
func (c *Coordinator) Begin(ctx context.Context, b coord.Begin) (coord.Attempt, error) {
	if err := b.Check(); err != nil {
		return coord.Attempt{}, err
	}
	c.mu.Lock()
	before, stray := c.begins[b.Attempt]
	c.mu.Unlock()
	leave, err := c.enter(ctx, b.Lease.Agent)
	if err != nil {
		return coord.Attempt{}, straying(stray, err)
	}
	defer leave()
	if err := c.settleLeft(ctx, b.Lease.Agent); err != nil {
		return coord.Attempt{}, straying(stray, err)
	}
	return c.begin(ctx, b, before, stray)
}

// begin sends begins until one is answered by a verdict. before and stray tell of an earlier call with the same nonces.
func (c *Coordinator) begin(ctx context.Context, b coord.Begin, before state, stray bool) (coord.Attempt, error) {
	st, ok := c.assumed(b)
	ok = ok && !stray
	for {
		var err error
		if !ok {
			if st, err = c.look(ctx, "begin", b.Lease.Agent, b.Run); err != nil {
				return coord.Attempt{}, c.unbegun(b, before, stray, err)
			}
		}
		f, err := c.facts(st, b.Lease.Agent, b.Run)
		if err != nil {
			return coord.Attempt{}, c.unbegun(b, before, stray, err)
		}
		a, again, verdict := rules.Begin(f, b)
		switch {
		case again:
			c.opened(b, st)
			return a, nil
		case verdict != nil:
			return coord.Attempt{}, c.refuse(ctx, b, before, st, stray, verdict)
		}
		before, ok = st, false
		var done bool
		if a, done, stray, err = c.open(ctx, b, f, st, stray); err != nil || done {
			return a, err
		}
	}
}

// beginning is the content of a begin.
func (c *Coordinator) beginning(b coord.Begin, f rules.Facts, st state) (p proposal, a coord.Attempt, raw string) {
	a = rules.Attempt(b, f.Holder, c.liveness(f.Holder.Liveness), time.Now())
	run, holder := c.keys.run(b.Lease.Agent, b.Run), c.keys.holder(b.Lease.Agent)
	raw = encode(entryValue(rules.Open(f, b, a)))
	cmps := append(st.unchanged(holder), c.beginGuards(st, f, b)...)
	return proposal{what: "begin", agent: b.Lease.Agent,
		cmps:   append(cmps, c.sameMeta()),
		puts:   []clientv3.Op{clientv3.OpPut(run, raw)},
		gets:   unique(append(c.runKeys(b.Lease.Agent, b.Run, 0), holder, c.keys.meta())),
		shared: true,
		ours: func(st state) bool {
			e, _, err := get[runValue](st, run)
			got, ok := coord.Entry{Attempts: e.Attempts}.Find(b.Attempt)
			return err == nil && ok && got.State == coord.Open && got.Request == b.Request && c.mine(got.Liveness)
		},
	}, a, raw
}

// open sends one begin. Without done and without an error it was refused by a compare.
func (c *Coordinator) open(ctx context.Context, b coord.Begin, f rules.Facts, st state, stray bool) (a coord.Attempt, done, astray bool, err error) {
	p, a, raw := c.beginning(b, f, st)
	p.stray = stray
	run := c.keys.run(b.Lease.Agent, b.Run)
	ans, err := c.propose(ctx, p)
	if err != nil {
		return coord.Attempt{}, false, stray, c.unbegun(b, st, stray || errors.Is(err, coord.ErrIndeterminate), err)
	}
	if !ans.done {
		// The next look judges. What this copy compared tells then whether a copy may still be under way.
		return coord.Attempt{}, false, ans.stray, nil
	}
	if ans.st.has(run) { // an earlier copy did it, maybe of an earlier call
		if e, _, err := get[runValue](ans.st, run); err == nil {
			a, _ = coord.Entry{Attempts: e.Attempts}.Find(b.Attempt)
		}
	} else {
		ans.st.kvs[run] = &mvccpb.KeyValue{Key: []byte(run), Value: []byte(raw), ModRevision: ans.st.rev}
	}
	c.opened(b, ans.st)
	return a, true, false, nil
}

// unbegun is the error of a begin that got no verdict. If copies of it may be under way, what they compare is kept.
func (c *Coordinator) unbegun(b coord.Begin, compared state, stray bool, err error) error {
	if stray {
		c.mu.Lock()
		c.begins[b.Attempt] = compared
		c.mu.Unlock()
	}
	return straying(stray, err)
}

// beginGuards are the compares of a begin beside its holder: the entry and the bucket as they were read, no gate, and
// nobody alive behind the attempt that is closed by it.
func (c *Coordinator) beginGuards(st state, f rules.Facts, b coord.Begin) []clientv3.Cmp {
	agent := b.Lease.Agent
	cmps := st.unchanged(c.keys.run(agent, b.Run))
	leaf, _, _ := c.leaf(st, agent, b.Run)
	cmps = append(cmps, st.unchanged(leaf)...)
	cmps = append(cmps, gone(c.keys.paused(agent)), gone(c.keys.recovery()))
	if old, ok := f.Entry.Find(b.Retry); ok && b.Retry != "" && old.State == coord.Open && !old.Abandoned && old.Liveness != "" {
		cmps = append(cmps, gone(c.keys.live(old.Device, old.Liveness)))
	}
	return cmps
}

// assumed is what a holder may take for granted before its begin: its own grant, a run that nobody knows, no
// gate, no bucket. False if it knows better.
func (c *Coordinator) assumed(b coord.Begin) (state, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.grants[b.Lease.Agent]
	if g == nil || g.lease.Handle != b.Lease.Handle || b.Retry != "" || c.hints[b.Lease.Agent].full {
		return state{}, false
	}
	st := g.state(c.keys.holder(b.Lease.Agent))
	for _, key := range c.runKeys(b.Lease.Agent, b.Run, 0) {
		st.kvs[key] = nil
	}
	return st, true
}

// opened notes what the begin left in the ledger, so that its finish needs no read.
func (c *Coordinator) opened(b coord.Begin, st state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.begins, b.Attempt)
	c.entries[b.Attempt] = st
}

// refuse gives the verdict no. A begin that was sent before and not answered may yet be carried out if nothing that
// never comes back moved since: then it is voided first, because a no has to stay one.
func (c *Coordinator) refuse(ctx context.Context, b coord.Begin, before, now state, stray bool, verdict error) error {
	if stray && !c.movedOn(b, before, now) {
		if err := c.void(ctx, b); err != nil {
			return fmt.Errorf("begin of run %s: %w (%v)", b.Run, unsettled(err), verdict)
		}
	}
	c.mu.Lock()
	delete(c.begins, b.Attempt)
	c.mu.Unlock()
	return verdict
}

// movedOn reports whether a begin that compared before can never be carried out any more.
func (c *Coordinator) movedOn(b coord.Begin, before, now state) bool {
	leaf, _, err := c.leaf(before, b.Lease.Agent, b.Run)
	if err != nil {
		return false
	}
	for _, key := range []string{c.keys.holder(b.Lease.Agent), c.keys.run(b.Lease.Agent, b.Run), leaf} {
		if now.knows(key) && now.mod(key) != before.mod(key) {
			return true
		}
	}
	return false
}

// Cancel implements coord.Ledger. It needs to know nothing of the begin: an entry that is written, under the compare of
// what it held, cannot be what any copy of the begin compares.
func (c *Coordinator) Cancel(ctx context.Context, b coord.Begin) error {
	if err := b.Check(); err != nil {
		return err
	}
	leave, err := c.enter(ctx, b.Lease.Agent)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.settleLeft(ctx, b.Lease.Agent); err != nil {
		return err
	}
	if err := c.void(ctx, b); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.begins, b.Attempt)
	delete(c.entries, b.Attempt)
	c.mu.Unlock()
	return nil
}

func (c *Coordinator) void(ctx context.Context, b coord.Begin) error {
	now := time.Now()
	_, err := c.change(ctx, "cancel a begin of", b.Lease.Agent, b.Run, state{}, func(f rules.Facts) (coord.Entry, bool, error) {
		return rules.Cancel(f, b, now)
	}, nil)
	return err
}
