package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// A grant is a lease that this process knows it holds, or held: its own nonce was seen in the holder key.
type grant struct {
	lease  coord.Lease
	holder *mvccpb.KeyValue // the holder key as this process wrote it
}

// state is the holder key as a begin or a release compares it.
func (g *grant) state(key string) state {
	return state{rev: g.holder.ModRevision, kvs: map[string]*mvccpb.KeyValue{key: g.holder}}
}

// A bid is an Acquire, Steal, Start or re-bind as it is sent: the same content each time.
type bid struct {
	prop   proposal
	st     state // what it compares
	lease  coord.Lease
	raw    string // of the holder key
	pulse  pulse  // zero for TTL 0
	rebind bool

	// For Start alone.
	begin   *coord.Begin
	attempt coord.Attempt
	entry   string // of the run key
}

// An ask is what the caller of a grant wants.
type ask struct {
	coord.Request
	theft  *coord.Theft
	begin  *coord.Begin
	rebind *grant // the lease whose epoch is kept; for a re-bind
}

func (a ask) what() string {
	switch {
	case a.theft != nil:
		return "steal"
	case a.begin != nil:
		return "start"
	case a.rebind != nil:
		return "re-bind"
	}
	return "acquire"
}

func (a ask) run() string {
	if a.begin == nil {
		return ""
	}
	return a.begin.Run
}

// Acquire implements coord.LeaseCoordinator. A loser reads and proposes nothing.
func (c *Coordinator) Acquire(ctx context.Context, req coord.Request) (coord.Lease, error) {
	if err := req.Check(); err != nil {
		return coord.Lease{}, err
	}
	l, _, err := c.take(ctx, ask{Request: req}, func(f rules.Facts) (coord.Attempt, bool, error) {
		return coord.Attempt{}, false, rules.Grantable(f)
	})
	return l, err
}

// take grants a lease once allow agrees to what a read shows. It settles what this process left unsettled first.
func (c *Coordinator) take(ctx context.Context, a ask, allow func(rules.Facts) (coord.Attempt, bool, error)) (coord.Lease, coord.Attempt, error) {
	leave, err := c.enter(ctx, a.Agent)
	if err != nil {
		return coord.Lease{}, coord.Attempt{}, straying(c.leftOf(a) != nil, err)
	}
	defer func() { leave() }()
	b, err := c.resume(ctx, a)
	if err != nil {
		return coord.Lease{}, coord.Attempt{}, err
	}
	for {
		if b == nil {
			f, st, err := c.judge(ctx, a)
			if err != nil {
				return coord.Lease{}, coord.Attempt{}, err
			}
			open, again, err := allow(f)
			if err != nil {
				return coord.Lease{}, coord.Attempt{}, err
			}
			if again {
				return c.repeated(f, a, open)
			}
			if b, err = c.bid(ctx, a, f, st); err != nil {
				return coord.Lease{}, coord.Attempt{}, err
			}
		}
		done, err := c.send(ctx, b)
		if done {
			l := c.won(b)
			return l, b.attempt, nil
		}
		if err != nil {
			if c.keep(b, err, &leave) {
				err = fmt.Errorf("%w (repeat it, or release epoch 0)", err)
			}
			return coord.Lease{}, coord.Attempt{}, err
		}
		c.forget(b)
		b = nil // it did not and will not happen: judge anew
	}
}

// judge reads what a is about. The process's own liveness key is read too, so that a dead one is noticed before
// anything is proposed on it.
func (c *Coordinator) judge(ctx context.Context, a ask) (rules.Facts, state, error) {
	class, err := coord.Granted(a.TTL)
	if err != nil {
		return rules.Facts{}, state{}, err
	}
	l := c.lifeOf(a.Device, class)
	var own []string
	if l != nil {
		own = append(own, l.key)
	}
	st, err := c.look(ctx, a.what(), a.Agent, a.run(), own...)
	if err != nil {
		return rules.Facts{}, state{}, err
	}
	if l != nil {
		if err := l.saw(st); err != nil {
			return rules.Facts{}, state{}, err
		}
	}
	f, err := c.facts(st, a.Agent, a.run())
	return f, st, err
}

// repeated answers a Start whose attempt was opened by the very same request before, or a re-bind that was made.
func (c *Coordinator) repeated(f rules.Facts, a ask, open coord.Attempt) (coord.Lease, coord.Attempt, error) {
	if a.begin != nil && (!f.Ours || f.Holder.Epoch != open.Epoch) {
		return coord.Lease{}, coord.Attempt{}, rules.Lost(f, rules.Claim{Agent: a.Agent, Device: a.Device, Epoch: open.Epoch})
	}
	return f.Holder, open, nil
}

// bid makes the content of a grant from what was read.
func (c *Coordinator) bid(ctx context.Context, a ask, f rules.Facts, st state) (*bid, error) {
	class, err := coord.Granted(a.TTL)
	if err != nil {
		return nil, err
	}
	next, jump := coord.Epoch(0), coord.Epoch(0)
	if a.rebind == nil {
		if next, jump, err = rules.NextEpoch(a.Agent, f.Epoch, f.Holder.Epoch, a.Floor); err != nil {
			return nil, err
		}
	}
	b := &bid{st: st, begin: a.begin, rebind: a.rebind != nil}
	if l := c.lifeOf(a.Device, class); l != nil {
		if b.pulse, err = l.pulse(ctx); err != nil {
			return nil, fmt.Errorf("%s %s: %w", a.what(), a.Agent, err)
		}
	}
	b.lease = coord.Lease{Agent: a.Agent, Device: a.Device, Epoch: next, TTL: class, Handle: coord.NewNonce(),
		Since: time.Now().Round(0).UTC(), Jump: jump, Note: a.Note, Process: c.process}
	if a.theft != nil {
		b.lease.By, b.lease.Reason = a.theft.By, a.theft.Reason
	}
	if a.rebind != nil {
		old := a.rebind.lease
		b.lease.Epoch, b.lease.Since, b.lease.Jump, b.lease.Note = old.Epoch, old.Since, old.Jump, old.Note
		b.lease.By, b.lease.Reason = old.By, old.Reason
	}
	if b.pulse.l != nil {
		b.lease.Liveness = b.pulse.l.id
	}
	b.raw = encode(holderValue{V: valueVersion, Epoch: b.lease.Epoch, Device: a.Device, Liveness: b.lease.Liveness,
		Nonce: b.lease.Handle, TTL: class.Milliseconds(), Since: b.lease.Since, Jump: b.lease.Jump, Note: b.lease.Note,
		By: b.lease.By, Reason: b.lease.Reason, Process: c.process})
	c.spell(a, f, b)
	return b, nil
}

// spell spells the bid as a transaction.
func (c *Coordinator) spell(a ask, f rules.Facts, b *bid) {
	epoch, holder := c.keys.epoch(a.Agent), c.keys.holder(a.Agent)
	p := proposal{what: a.what(), agent: a.Agent, gets: make([]string, 0, len(b.st.kvs)+1)}
	p.cmps = append(p.cmps, b.st.unchanged(epoch)...)
	p.cmps = append(p.cmps, b.st.unchanged(holder)...)
	p.cmps = append(p.cmps, c.sameMeta())
	forced := a.theft != nil && a.theft.Force || a.rebind != nil // proof of death stands in for gone
	if live := c.keys.live(f.Holder.Device, f.Holder.Liveness); f.Held && live != "" && !forced {
		p.cmps = append(p.cmps, gone(live))
	}
	if a.rebind == nil {
		p.puts = append(p.puts, clientv3.OpPut(epoch, encode(epochValue{V: valueVersion, Epoch: b.lease.Epoch, Jump: b.lease.Jump, Nonce: b.lease.Handle})))
	}
	p.puts = append(p.puts, clientv3.OpPut(holder, b.raw))
	if l := b.pulse.l; l != nil {
		p.gets = append(p.gets, l.key)
		if b.pulse.cold {
			p.cmps = append(p.cmps, gone(l.key))
			p.puts = append(p.puts, clientv3.OpPut(l.key, l.raw, clientv3.WithLease(b.pulse.lease)))
		} else {
			p.cmps = append(p.cmps, on(l.key, b.pulse.lease))
		}
	}
	if a.begin != nil {
		b.attempt = rules.Attempt(*a.begin, b.lease, c.liveness(b.lease.Liveness), time.Now())
		b.entry = encode(entryValue(rules.Open(f, *a.begin, b.attempt)))
		p.cmps = append(p.cmps, c.beginGuards(b.st, f, *a.begin)...)
		p.puts = append(p.puts, clientv3.OpPut(c.keys.run(a.Agent, a.begin.Run), b.entry))
	}
	for key := range b.st.kvs {
		p.gets = append(p.gets, key)
	}
	p.gets = unique(p.gets)
	nonce := b.lease.Handle
	p.ours = func(st state) bool {
		h, ok, err := get[holderValue](st, holder)
		return err == nil && ok && h.Nonce == nonce
	}
	b.prop = p
}

// send settles the bid as far as ctx allows. Without done and without an error it did not and will not happen.
func (c *Coordinator) send(ctx context.Context, b *bid) (done bool, err error) {
	ans, err := c.propose(ctx, b.prop)
	if err != nil || ans.done {
		if ans.done {
			b.learn(c, ans.st)
		}
		return ans.done, err
	}
	if ans.stray && !c.spent(b, ans) {
		if done, err = c.poison(ctx, b); done || err != nil {
			return done, err
		}
	}
	defer b.close()
	switch l := b.pulse.l; {
	case l == nil:
		return false, nil
	case ans.leaseGone:
		l.died(b.pulse.lease)
		return false, nil
	default:
		return false, l.saw(ans.st)
	}
}

// spent reports whether no copy of b can ever be carried out, given that one was refused by a compare:
// the epoch moved, or a holder that was there did. The rest may become true again.
func (c *Coordinator) spent(b *bid, ans answer) bool {
	if ans.leaseGone {
		return false
	}
	epoch, holder := c.keys.epoch(b.lease.Agent), c.keys.holder(b.lease.Agent)
	return ans.st.mod(epoch) != b.st.mod(epoch) || b.st.has(holder) && ans.st.mod(holder) != b.st.mod(holder)
}

// poison makes sure that no copy of b is carried out any more, by writing the epoch again under the compare
// that every copy has. done says that one had been carried out: then the lease is ours.
func (c *Coordinator) poison(ctx context.Context, b *bid) (done bool, err error) {
	epoch, holder := c.keys.epoch(b.lease.Agent), c.keys.holder(b.lease.Agent)
	same := encode(epochValue{V: valueVersion, Nonce: coord.NewNonce()})
	if kv := b.st.kvs[epoch]; kv != nil {
		same = string(kv.Value)
	}
	ans, err := c.propose(ctx, proposal{
		what: "give up " + b.prop.what, agent: b.lease.Agent,
		cmps: b.st.unchanged(epoch), puts: []clientv3.Op{clientv3.OpPut(epoch, same)},
		gets: []string{epoch, holder}, both: true,
		// Once the epoch moved, by this poison or by anything else, the holder key tells.
		ours: func(st state) bool { return st.mod(epoch) != b.st.mod(epoch) },
	})
	if err != nil {
		return false, unsettled(err)
	}
	if !ans.done && ans.st.mod(epoch) == b.st.mod(epoch) {
		return false, fmt.Errorf("give up %s %s: %w: epoch key has its revision and another value", b.prop.what, b.lease.Agent, coord.ErrIndeterminate)
	}
	if b.prop.ours(ans.st) {
		b.learn(c, ans.st)
		return true, nil
	}
	return false, nil
}

// learn notes the revision of the holder key that b wrote: from the answer if it was read, else that of the step itself.
func (b *bid) learn(c *Coordinator, st state) {
	key := c.keys.holder(b.lease.Agent)
	kv := st.kvs[key]
	if kv == nil {
		kv = &mvccpb.KeyValue{Key: []byte(key), Value: []byte(b.raw), ModRevision: st.rev}
	}
	b.st = state{rev: st.rev, kvs: map[string]*mvccpb.KeyValue{key: kv}}
	if b.begin != nil {
		run := c.keys.run(b.lease.Agent, b.begin.Run)
		b.st.kvs[run] = &mvccpb.KeyValue{Key: []byte(run), Value: []byte(b.entry), ModRevision: kv.ModRevision}
	}
}

// won makes a bid that was carried out a grant of this process.
func (c *Coordinator) won(b *bid) coord.Lease {
	key := c.keys.holder(b.lease.Agent)
	b.lease.Sent = time.Now()
	if l := b.pulse.l; l != nil {
		if b.lease.Sent = b.pulse.sent; b.pulse.cold {
			l.wasPut(b.pulse.lease, b.st.rev)
		}
	}
	b.close()
	b.lease.Expired = b.lease.TTL == 0
	c.mu.Lock()
	c.grants[b.lease.Agent] = &grant{lease: b.lease, holder: b.st.kvs[key]}
	delete(c.left, b.lease.Agent)
	if b.begin != nil {
		c.entries[b.attempt.ID] = b.st
	}
	c.mu.Unlock()
	return b.lease
}

func (b *bid) close() {
	if b.pulse.end != nil {
		b.pulse.end()
		b.pulse.end = nil
	}
}

func (c *Coordinator) granted(agent string) *grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grants[agent]
}

// sentOf is when the last good renewal of a grant of this process was sent. A renewal may be under way.
func (c *Coordinator) sentOf(agent, handle string) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.grants[agent]
	if g == nil || g.lease.Handle != handle {
		return time.Time{}, false
	}
	return g.lease.Sent, true
}

// dropped forgets a grant, unless another took its place.
func (c *Coordinator) dropped(agent string, g *grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grants[agent] == g {
		delete(c.grants, agent)
	}
}
