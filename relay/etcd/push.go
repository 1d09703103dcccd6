package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// Limits of one transaction, within etcd's own of 128 operations and 1.5 MiB.
const (
	txnOps   = 126 // ops; the head is one more operation
	txnBytes = 1<<20 - 64<<10
)

// Push implements relay.Relay. It costs one read and a proposal for each 126 ops.
func (r *Relay) Push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	if err := begin(ctx, device); err != nil {
		return relay.Pushed{}, err
	}
	if err := relay.CheckPush(device, ops); err != nil {
		return relay.Pushed{}, err
	}
	if err := r.await(ctx, ops); err != nil {
		return relay.Pushed{}, err
	}
	var done relay.Pushed
	for {
		added, again, err := r.pushOnce(ctx, device, ops, &done)
		if err != nil && done.Accepted > 0 && errors.Is(err, relay.ErrNotSent) {
			return done, fmt.Errorf("%w, after %d ops: %w", relay.ErrIndeterminate, done.Accepted, err)
		}
		if err != nil || !again {
			return done, err
		}
		ops = ops[added:]
	}
}

// await waits until a small push may follow the last one. Nothing is sent meanwhile.
func (r *Relay) await(ctx context.Context, ops []oplog.Op) error {
	if r.coalesce < 0 || len(ops) >= relay.MaxOps/2 || size(ops) >= relay.MaxBytes/2 {
		return nil
	}
	r.mu.Lock()
	last := r.pushed
	r.mu.Unlock()
	wait := r.coalesce - time.Since(last)
	if wait <= 0 || last.IsZero() {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return alive(ctx)
	}
}

// pushOnce judges ops against the head as it is and adds what is new. Again means that the head moved
// meanwhile, and how many of the ops are settled.
func (r *Relay) pushOnce(ctx context.Context, device string, ops []oplog.Op, done *relay.Pushed) (settled int, again bool, err error) {
	same := r.same() // before the read: the head must be of the store that this compares
	resp, err := r.client.Txn(ctx).Then(
		clientv3.OpGet(r.keys.heads(), clientv3.WithPrefix()),
		clientv3.OpGet(r.keys.closed(device)),
		clientv3.OpGet(r.keys.newest()),
	).Commit()
	if err != nil {
		return 0, false, r.unsent(ctx, "push", err)
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	heads, err := r.decodeHeads(kvs)
	if err != nil {
		return 0, false, err
	}
	if err := r.open(device, resp.Responses[1].GetResponseRange().Kvs); err != nil {
		return 0, false, err
	}
	h, known := heads[device]
	b := relay.Verify(device, h.head(device), known, ops)
	switch err := r.match(ctx, device, h, b.Below, done); {
	case errors.Is(err, errMoved):
		return 0, true, r.stillThere(ctx)
	case err != nil:
		return 0, false, err
	}
	used := heads.used()
	if kvs := resp.Responses[2].GetResponseRange().Kvs; len(kvs) > 0 {
		newest, _ := decode[newestValue](r.keys.newest(), kvs[0].Value) // one that cannot be read counts as nothing
		used += int64(newest.Size)
	}
	if need := size(b.New); need > 0 && used+need > r.maxBytes {
		done.Duplicate += len(b.Below)
		return 0, false, &relay.FullError{Used: used, Need: need, Max: r.maxBytes}
	}
	stored := ""
	if known {
		i := slices.IndexFunc(kvs, func(kv keyValue) bool { return string(kv.Key) == r.keys.head(device) })
		stored = string(kvs[i].Value)
	}
	added, err := r.add(ctx, device, same, stored, h, b.New)
	done.Accepted += added
	if errors.Is(err, errMoved) {
		done.Duplicate += len(b.Below)
		return len(b.Below) + added, true, r.stillThere(ctx)
	}
	done.Duplicate += len(b.Below) + b.Repeated
	if err != nil {
		return 0, false, err
	}
	return 0, false, b.Refused
}

// open fails with a *relay.ClosedError if the chain of device was closed.
func (r *Relay) open(device string, kvs []keyValue) error {
	if len(kvs) == 0 {
		return nil
	}
	c, err := decode[closedValue](r.keys.closed(device), kvs[0].Value)
	if err != nil {
		return err
	}
	return &relay.ClosedError{Device: device, Last: c.At}
}

// match compares ops at or below the head with those that are stored or, if they were collected, with the floor. errMoved: some were
// collected meanwhile.
func (r *Relay) match(ctx context.Context, device string, h headValue, ops []oplog.Op, done *relay.Pushed) error {
	if h.Floor != nil {
		same, above, err := relay.MatchCollected(device, ops, *h.Floor)
		if err != nil {
			done.Duplicate += same
			return err
		}
		ops = above
	}
	err := r.matchHeld(ctx, device, ops)
	if errors.Is(err, relay.ErrCorrupt) {
		if err = r.collected(ctx, device, ops[0].Seq, err); errors.Is(err, relay.ErrFrontierTruncated) {
			return errMoved
		}
	}
	return err
}

func (r *Relay) matchHeld(ctx context.Context, device string, ops []oplog.Op) error {
	for len(ops) > 0 {
		n := 1
		for n < len(ops) && ops[n].Seq == ops[n-1].Seq+1 {
			n++
		}
		for run := ops[:n]; len(run) > 0; {
			held, err := r.read(ctx, device, run[0].Seq, run[len(run)-1].Seq, rangeOps)
			if err != nil {
				return err
			}
			for i, op := range held {
				if err := relay.Match(run[i], op.ID); err != nil {
					return err
				}
			}
			run = run[len(held):]
		}
		ops = ops[n:]
	}
	return nil
}

// errMoved means that a guard did not hold: nothing was written.
var errMoved = errors.New("the head moved")

// add puts ops, all new and verified, behind the head h whose stored bytes are given, in as few transactions as
// the limits allow. It returns how many are there for certain.
func (r *Relay) add(ctx context.Context, device string, same clientv3.Cmp, stored string, h headValue, ops []oplog.Op) (int, error) {
	added := 0
	for added < len(ops) {
		n := chunk(ops[added:])
		puts := make([]clientv3.Op, 0, n+1)
		for _, op := range ops[added : added+n] {
			puts = append(puts, clientv3.OpPut(r.keys.op(device, op.Seq), string(op.AppendLine(nil))))
			h.Bytes += int64(relay.LineLen(op))
		}
		last := ops[added+n-1]
		h.Seq, h.ID, h.WallMS, h.Counter = last.Seq, last.ID, last.HLC.WallMS, last.HLC.Counter
		next := h.text()
		puts = append(puts, clientv3.OpPut(r.keys.head(device), next))
		resp, err := r.client.Txn(ctx).If(same, unchanged(r.keys.head(device), stored)).Then(puts...).Commit()
		if err != nil {
			return added, r.unknown(ctx, "push", err)
		}
		if !resp.Succeeded {
			return added, errMoved
		}
		added, stored = added+n, next
	}
	if added > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pushed = time.Now()
	}
	return added, nil
}

// unchanged compares a key with the bytes that were read; "" means that it was absent.
func unchanged(key, stored string) clientv3.Cmp {
	if stored == "" {
		return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	}
	return clientv3.Compare(clientv3.Value(key), "=", stored)
}

// stillThere fails if the store is not the one that this handle last saw.
func (r *Relay) stillThere(ctx context.Context) error {
	r.mu.Lock()
	before := r.meta
	r.mu.Unlock()
	resp, err := r.client.Get(ctx, r.keys.meta())
	if err != nil {
		return r.unsent(ctx, "read the relay's identity", err)
	}
	if len(resp.Kvs) == 0 || string(resp.Kvs[0].Value) != before {
		return fmt.Errorf("%w: the relay at %s became another one: say hello again", relay.ErrNotSent, r.where())
	}
	return nil
}

// chunk is how many of the ops fit into one transaction.
func chunk(ops []oplog.Op) int {
	n, bytes := 0, 0
	for n < len(ops) && n < txnOps {
		bytes += relay.LineLen(ops[n])
		if n > 0 && bytes > txnBytes {
			break
		}
		n++
	}
	return n
}

func size(ops []oplog.Op) int64 {
	var sum int64
	for _, op := range ops {
		sum += int64(relay.LineLen(op))
	}
	return sum
}
