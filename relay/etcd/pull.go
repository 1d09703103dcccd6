package etcd

import (
	"context"
	"fmt"

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
	resp, err := r.client.Get(ctx, r.keys.heads(), clientv3.WithPrefix())
	if err != nil {
		return relay.Page{}, r.unsent(ctx, "pull", err)
	}
	heads, err := r.decodeHeads(resp.Kvs)
	if err != nil {
		return relay.Page{}, err
	}
	wanted, err := relay.Needs(device, want, heads.frontier(), nil)
	if err != nil {
		return relay.Page{}, err
	}
	return relay.Fill(wanted, want.MaxBytes, func(d string, from uint64, room int) ([]oplog.Op, error) {
		return r.read(ctx, d, from, heads[d].Seq, min(int64(room/smallest+1), rangeOps))
	})
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
