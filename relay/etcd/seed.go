package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// Seed implements relay.Collector. It costs what PutCheckpoint does, and a proposal for each chain that is raised or closed.
//
//  1. The checkpoint becomes the newest, as in PutCheckpoint.
//  2. Each chain that it closes is closed, with its rows if it ends below.
//  3. Each chain that lags is raised, if it does so still.
//
// Between the steps the newest checkpoint covers more than the chains hold: that drops nothing, and whoever seeds next goes on.
func (r *Relay) Seed(ctx context.Context, device string, c relay.Checkpoint, heads oplog.Heads) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckSeed(device, &c, heads); err != nil {
		return err
	}
	for {
		again, err := r.seedOnce(ctx, c, heads)
		if err != nil {
			return err
		}
		if !again {
			return r.enter(ctx, device, "")
		}
		if err := r.stillThere(ctx); err != nil {
			return err
		}
	}
}

// seedOnce judges c by the store as it is. Again means that it moved meanwhile.
func (r *Relay) seedOnce(ctx context.Context, c relay.Checkpoint, heads oplog.Heads) (again bool, err error) {
	s, err := r.snapshot(ctx)
	if err != nil {
		return false, err
	}
	h := r.holding(ctx, s, false)
	rise, closing, err := h.JudgeSeed(c)
	if err != nil {
		return false, err
	}
	value := encode(newestValue{V: version, Hash: c.Hash, Author: c.Author, Size: len(c.Body), Frontier: c.Frontier})
	pointer, err := r.seedNewest(ctx, s, c, value)
	if err != nil || pointer == "" {
		return pointer == "", err
	}
	for _, d := range closing {
		if ok, err := r.seedClose(ctx, s.same, pointer, d, c.Closed[d]); err != nil || !ok {
			return !ok, err
		}
		delete(rise, d)
	}
	for _, d := range rise.Devices() {
		if ok, err := r.raiseTo(ctx, s.same, pointer, d, heads[d]); err != nil || !ok {
			return !ok, err
		}
	}
	return false, nil
}

// seedNewest makes c the newest, unless it is. It returns the bytes of the pointer, "" if the store moved meanwhile.
func (r *Relay) seedNewest(ctx context.Context, s *snapshot, c relay.Checkpoint, value string) (string, error) {
	if s.odd == nil && s.newest.Hash == c.Hash {
		if whole, err := r.whole(ctx, s); whole || err != nil {
			return s.pointer, err
		}
	}
	if err := r.fits(s, c, value, nil); err != nil {
		return "", err
	}
	rev, err := r.upload(ctx, s, c)
	if err != nil || rev == 0 {
		return "", err
	}
	if ok, err := r.point(ctx, s, c, value, nil, rev); err != nil || !ok {
		return "", err
	}
	return value, nil
}

// raiseTo lets the chain of d begin behind at, if it ends below, as long as the seed's checkpoint is the newest. False means that it is
// not. What the chain held below goes in the same transaction: it could not be read on from there.
func (r *Relay) raiseTo(ctx context.Context, same clientv3.Cmp, pointer, d string, at oplog.Head) (bool, error) {
	floor := at.Pos()
	value := headValue{Seq: at.Seq, ID: at.ID, WallMS: at.HLC.WallMS, Counter: at.HLC.Counter, Floor: &floor, Kept: at.Seq + 1}
	for {
		resp, err := r.client.Txn(ctx).Then(clientv3.OpGet(r.keys.head(d)), clientv3.OpGet(r.keys.newest())).Commit()
		if err != nil {
			return false, r.unsent(ctx, "seed", err)
		}
		head, newest := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
		if text(newest) != pointer {
			return false, nil
		}
		then := []clientv3.Op{clientv3.OpPut(r.keys.head(d), value.text())}
		if len(head) > 0 {
			h, err := decode[headValue](r.keys.head(d), head[0].Value)
			if err != nil {
				return false, err
			}
			if h.Seq >= at.Seq {
				return false, nil // its owner offered more meanwhile: judged again
			}
			then = append(then, r.dropRange(d, h.Kept, h.Seq+1)...)
		}
		done, err := r.client.Txn(ctx).
			If(same, unchanged(r.keys.newest(), pointer), unchanged(r.keys.head(d), text(head))).
			Then(then...).Commit()
		if err != nil {
			return false, r.unknown(ctx, "seed", err)
		}
		if done.Succeeded {
			return true, nil
		}
		if err := r.stillThere(ctx); err != nil {
			return false, err
		}
	}
}

// seedClose closes the chain of d at an op. If it ends below, its rows go: what they hold is covered.
func (r *Relay) seedClose(ctx context.Context, same clientv3.Cmp, pointer, d string, at oplog.Pos) (bool, error) {
	for {
		resp, err := r.client.Txn(ctx).Then(
			clientv3.OpGet(r.keys.head(d)), clientv3.OpGet(r.keys.newest()),
			clientv3.OpGet(r.keys.closings()), clientv3.OpGet(r.keys.closed(d)),
		).Commit()
		if err != nil {
			return false, r.unsent(ctx, "seed", err)
		}
		kvs := func(i int) []keyValue { return resp.Responses[i].GetResponseRange().Kvs }
		if len(kvs(1)) == 0 || string(kvs(1)[0].Value) != pointer {
			return false, nil
		}
		if len(kvs(3)) > 0 {
			return true, nil // closed meanwhile; the next judgement would say if elsewhere
		}
		var count closingsValue
		counted := text(kvs(2))
		if counted != "" {
			if count, err = decode[closingsValue](r.keys.closings(), kvs(2)[0].Value); err != nil {
				return false, err
			}
		}
		then := []clientv3.Op{
			clientv3.OpPut(r.keys.closings(), encode(closingsValue{V: version, Count: count.Count + 1})),
			clientv3.OpPut(r.keys.closed(d), encode(closedValue{V: version, At: at})),
		}
		if stored := text(kvs(0)); stored != "" {
			h, err := decode[headValue](r.keys.head(d), kvs(0)[0].Value)
			switch {
			case err != nil:
				return false, err
			case h.Seq > at.Seq || h.Seq == at.Seq && h.ID != at.ID:
				return false, nil // it went on meanwhile: judged again
			case h.Seq == at.Seq:
				h.Closed = true
				then = append(then, clientv3.OpPut(r.keys.head(d), h.text()))
			default:
				then = append(append(then, r.dropRange(d, h.Kept, h.Seq+1)...), clientv3.OpDelete(r.keys.head(d)))
			}
		}
		done, err := r.client.Txn(ctx).
			If(same, unchanged(r.keys.newest(), pointer), unchanged(r.keys.head(d), text(kvs(0))), unchanged(r.keys.closings(), counted)).
			Then(then...).Commit()
		if err != nil {
			return false, r.unknown(ctx, "seed", err)
		}
		if done.Succeeded {
			return true, nil
		}
		if err := r.stillThere(ctx); err != nil {
			return false, err
		}
	}
}

func text(kvs []keyValue) string {
	if len(kvs) == 0 {
		return ""
	}
	return string(kvs[0].Value)
}

// dropRange deletes the ops of d from a seq to before another. The floor that goes with it, or the closing, tells a pull under way.
func (r *Relay) dropRange(d string, from, end uint64) []clientv3.Op {
	if from >= end {
		return nil
	}
	return []clientv3.Op{clientv3.OpDelete(r.keys.op(d, from), clientv3.WithRange(r.keys.op(d, end)))}
}
