package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

type keyValue = *mvccpb.KeyValue

// rangeOps is the most ops in one read, so that a read is bounded even if every op is of the greatest size.
const rangeOps = 64

// smallest is less than any op counts.
const smallest = 320

// Pull implements relay.Relay. It reads the heads, and then a range for each chain that has something new.
func (r *Relay) Pull(ctx context.Context, device string, want relay.Want) (relay.Page, error) {
	if err := begin(ctx, device); err != nil {
		return relay.Page{}, err
	}
	if err := relay.CheckFrontier(want.Held); err != nil {
		return relay.Page{}, err
	}
	resp, err := r.client.Txn(ctx).Then(
		clientv3.OpGet(r.keys.heads(), clientv3.WithPrefix()),
		clientv3.OpGet(r.keys.closings()),
	).Commit()
	if err != nil {
		return relay.Page{}, r.unsent(ctx, "pull", err)
	}
	heads, err := r.decodeHeads(resp.Responses[0].GetResponseRange().Kvs)
	if err != nil {
		return relay.Page{}, err
	}
	closed, err := r.ended(ctx, resp.Responses[1].GetResponseRange().Kvs)
	if err != nil {
		return relay.Page{}, err
	}
	if err := relay.CheckClosed(want, heads.frontier(), closed); err != nil {
		return relay.Page{}, err
	}
	wanted, err := relay.Needs(device, want, heads.frontier(), heads.floor())
	if err != nil {
		return relay.Page{}, err
	}
	return relay.Fill(wanted, want.MaxBytes, func(d string, from uint64, room int) ([]oplog.Op, error) {
		ops, err := r.read(ctx, d, from, heads[d].Seq, min(int64(room/smallest+1), rangeOps))
		if errors.Is(err, relay.ErrCorrupt) {
			return nil, r.collected(ctx, d, from, err)
		}
		return ops, err
	})
}

// ended are all closed chains, given their count as it was read. They are read again only when the count was written since.
func (r *Relay) ended(ctx context.Context, count []keyValue) (oplog.Frontier, error) {
	if len(count) == 0 {
		return nil, nil
	}
	r.mu.Lock()
	closed, at := r.closed, r.closings
	r.mu.Unlock()
	if at == count[0].ModRevision {
		return closed, nil
	}
	resp, err := r.client.Get(ctx, r.keys.ended(), clientv3.WithPrefix()) // perhaps newer than the count: more are closed, none fewer
	if err != nil {
		return nil, r.unsent(ctx, "read the closed chains", err)
	}
	if closed, err = r.decodeClosed(resp.Kvs); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.closings = closed, count[0].ModRevision
	return closed, nil
}

func (r *Relay) decodeClosed(kvs []keyValue) (oplog.Frontier, error) {
	closed := make(oplog.Frontier, len(kvs))
	for _, kv := range kvs {
		c, err := decode[closedValue](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		closed[strings.TrimPrefix(string(kv.Key), r.keys.ended())] = c.At
	}
	return closed, nil
}

// collected says whether an op that could not be read was collected meanwhile: then it is a *relay.FrontierTruncatedError, else err.
func (r *Relay) collected(ctx context.Context, device string, seq uint64, err error) error {
	resp, failed := r.client.Txn(ctx).Then(clientv3.OpGet(r.keys.head(device)), clientv3.OpGet(r.keys.closed(device))).Commit()
	if failed != nil {
		return r.unsent(ctx, "read ops of "+device, failed)
	}
	floor := oplog.Frontier{}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		h, failed := decode[headValue](r.keys.head(device), kvs[0].Value)
		if failed != nil {
			return failed
		}
		if h.Floor != nil {
			floor[device] = *h.Floor
		}
	} else if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		c, failed := decode[closedValue](r.keys.closed(device), kvs[0].Value)
		if failed != nil {
			return failed
		}
		floor[device] = c.At
	}
	if floor.Covers(device, seq) {
		return &relay.FrontierTruncatedError{Device: device, Held: seq, Floor: floor}
	}
	return err
}

// read gives at most limit ops of a chain from a seq up to another, at least one: the head says that it is there.
func (r *Relay) read(ctx context.Context, device string, from, last uint64, limit int64) ([]oplog.Op, error) {
	resp, err := r.client.Get(ctx, r.keys.op(device, from),
		clientv3.WithRange(r.keys.op(device, last+1)), clientv3.WithLimit(limit))
	if err != nil {
		return nil, r.unsent(ctx, "read ops of "+device, err)
	}
	ops := make([]oplog.Op, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		op, err := oplog.ParseLine(kv.Value)
		switch {
		case err == nil && op.Device == device && op.Seq == from+uint64(len(ops)):
			ops = append(ops, op)
			continue
		case len(ops) > 0:
			return ops, nil // what is good first; the next read meets the damage
		case err != nil:
			return nil, fmt.Errorf("%w: key %s: %w", relay.ErrCorrupt, kv.Key, err)
		}
		return nil, fmt.Errorf("%w: key %s holds op %s/%d, expected %s/%d", relay.ErrCorrupt, kv.Key, op.Device, op.Seq, device, from)
	}
	if len(ops) == 0 {
		return nil, fmt.Errorf("%w: op %s/%d is missing below the head %d", relay.ErrCorrupt, device, from, last)
	}
	return ops, nil
}
