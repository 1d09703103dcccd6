package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// PutCheckpoint implements relay.Collector.
func (r *Relay) PutCheckpoint(ctx context.Context, device string, c relay.Checkpoint) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckCheckpoint(device, &c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contactLocked(device)
	if r.newest != nil && r.newest.Hash == c.Hash {
		copy(r.newest.Body, c.Body) // of the same length, unless it was damaged beyond that
		return nil
	}
	h := r.holdingLocked()
	closing, err := h.Judge(c)
	if err != nil {
		return err
	}
	if need := int64(len(c.Body)); need > r.maxBytes {
		return &relay.FullError{Used: r.used, Need: need, Max: r.maxBytes}
	}
	if r.newest != nil {
		r.used -= int64(len(r.newest.Body))
	}
	r.used += int64(len(c.Body))
	c = clone(c)
	r.newest = &c
	for _, d := range closing {
		r.closed[d] = c.Closed[d]
	}
	return nil
}

// Seed implements relay.Collector.
func (r *Relay) Seed(ctx context.Context, device string, c relay.Checkpoint, heads oplog.Heads) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckSeed(device, &c, heads); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contactLocked(device)
	h := r.holdingLocked()
	rise, closing, err := h.JudgeSeed(c)
	if err != nil {
		return err
	}
	if need := int64(len(c.Body)); need > r.maxBytes {
		return &relay.FullError{Used: r.used, Need: need, Max: r.maxBytes}
	}
	for d := range rise {
		r.riseLocked(d, heads[d])
	}
	for _, d := range closing {
		r.closed[d] = c.Closed[d]
		if _, gone := rise[d]; gone {
			delete(r.chains, d)
			delete(r.heads, d)
		}
	}
	if r.newest != nil {
		r.used -= int64(len(r.newest.Body))
	}
	r.used += int64(len(c.Body))
	c = clone(c)
	r.newest = &c
	return nil
}

// riseLocked lets the chain of d begin behind head.
func (r *Relay) riseLocked(d string, head oplog.Head) {
	if c := r.chains[d]; c != nil {
		for _, op := range c.ops {
			r.used -= int64(relay.LineLen(op))
		}
	}
	r.chains[d] = &chain{first: head.Seq + 1, head: head, floor: &head}
	r.heads[d] = head.Pos()
	r.wakeLocked()
}

func clone(c relay.Checkpoint) relay.Checkpoint {
	c.Frontier, c.Closed, c.Body = c.Frontier.Clone(), c.Closed.Clone(), slices.Clone(c.Body)
	return c
}

// Checkpoint implements relay.Collector.
func (r *Relay) Checkpoint(ctx context.Context) (relay.Checkpoint, bool, error) {
	if ctx.Err() != nil {
		return relay.Checkpoint{}, false, fmt.Errorf("%w: %w", relay.ErrNotSent, context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.newest == nil:
		return relay.Checkpoint{}, false, nil
	case !r.newest.Whole():
		return relay.Checkpoint{}, false, fmt.Errorf("%w: checkpoint %.12s does not give its hash", relay.ErrCorrupt, r.newest.Hash)
	}
	return clone(*r.newest), true, nil
}

// DamageCheckpoint changes a byte of the newest checkpoint, as a store does that rots.
func (r *Relay) DamageCheckpoint() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest.Body[len(r.newest.Body)/2] ^= 1
}

func (r *Relay) floorLocked() oplog.Frontier {
	floor := oplog.Frontier{}
	for d, c := range r.chains {
		if c.floor != nil {
			floor[d] = c.floor.Pos()
		}
	}
	return floor
}

func (r *Relay) holdingLocked() relay.Holding {
	return relay.Holding{
		Heads:   r.heads,
		Floor:   r.floorLocked(),
		Closed:  r.closed,
		Newest:  r.newest,
		Damaged: r.newest != nil && !r.newest.Whole(),
		Roster:  r.rosterLocked(),
		Held: func(d string, seq uint64) (oplog.OpID, error) {
			c := r.chains[d]
			return c.ops[seq-c.first].ID, nil
		},
	}
}

// Collect implements relay.Collector.
func (r *Relay) Collect(ctx context.Context) (relay.Collection, error) {
	if ctx.Err() != nil {
		return relay.Collection{}, fmt.Errorf("%w: %w", relay.ErrNotSent, context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h, now := r.holdingLocked(), r.now()
	done := relay.Collection{Dropped: map[string]int{}, Marked: map[string]int{}}
	if r.marked && !h.Damaged && h.Newest != nil && now.Sub(r.markedAt) >= r.grace {
		r.sweepLocked(done.Dropped)
		h = r.holdingLocked()
	}
	rise, reasons, err := h.Cut()
	if err != nil {
		return relay.Collection{}, err
	}
	if r.marked {
		for d := range rise {
			reasons[d] = relay.Reason{Cause: relay.Waiting}
		}
		rise = nil
	}
	for d, p := range rise {
		c := r.chains[d]
		op := c.ops[p.Seq-c.first]
		c.floor = &oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
		r.marked, r.markedAt = true, now
	}
	for d, c := range r.chains {
		if c.floor != nil && c.floor.Seq >= c.first {
			done.Marked[d] = int(c.floor.Seq - c.first + 1)
		}
	}
	done.Floor, done.Reasons = r.floorLocked(), reasons
	return done, nil
}

// sweepLocked deletes what is below the floor, and the rows of closed chains of which nothing is left.
func (r *Relay) sweepLocked(dropped map[string]int) {
	r.marked = false
	for d, c := range r.chains {
		if c.floor == nil || c.floor.Seq < c.first {
			continue
		}
		n := int(c.floor.Seq - c.first + 1)
		for _, op := range c.ops[:n] {
			r.used -= int64(relay.LineLen(op))
		}
		c.ops, c.first = slices.Clone(c.ops[n:]), c.floor.Seq+1
		dropped[d] = n
		if _, closed := r.closed[d]; closed && len(c.ops) == 0 {
			delete(r.chains, d)
			delete(r.heads, d)
			r.wakeLocked()
		}
	}
	for d := range r.closed {
		if r.chains[d] != nil {
			continue
		}
		delete(r.members, d)
		for _, m := range r.members {
			delete(m.Acked, d)
		}
	}
}
