package etcd

import (
	"context"
	"errors"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A snapshot is everything of the store but ops and chunks, at one revision.
type snapshot struct {
	same   clientv3.Cmp
	heads  chains
	stored map[string]string // of the heads, their bytes
	closed oplog.Frontier
	roster []relay.Member
	acks   []keyValue

	newest  newestValue // meaningful if there is one that can be read
	pointer string      // the bytes of newest, "" if there are none
	odd     error       // why newest cannot be read
	count   closingsValue
	counted string // the bytes of count
	uploads map[string]upload
	mark    markValue
	marked  string // the bytes of mark, "" if there are none
}

type upload struct {
	uploadValue
	rev int64 // since when it is there
}

func (r *Relay) snapshot(ctx context.Context) (*snapshot, error) {
	same := r.same() // before the read: what is read must be of the store that this compares
	all := clientv3.WithPrefix()
	resp, err := r.client.Txn(ctx).Then(
		clientv3.OpGet(r.keys.heads(), all),
		clientv3.OpGet(r.keys.ended(), all),
		clientv3.OpGet(r.keys.members(), all),
		clientv3.OpGet(r.keys.acks(), all),
		clientv3.OpGet(r.keys.uploads(), all),
		clientv3.OpGet(r.keys.newest()),
		clientv3.OpGet(r.keys.closings()),
		clientv3.OpGet(r.keys.mark()),
	).Commit()
	if err != nil {
		return nil, r.unsent(ctx, "read the store", err)
	}
	kvs := func(i int) []keyValue { return resp.Responses[i].GetResponseRange().Kvs }
	s := &snapshot{same: same, stored: map[string]string{}, uploads: map[string]upload{}, acks: kvs(3)}
	if s.heads, err = r.decodeHeads(kvs(0)); err != nil {
		return nil, err
	}
	for _, kv := range kvs(0) {
		s.stored[strings.TrimPrefix(string(kv.Key), r.keys.heads())] = string(kv.Value)
	}
	if s.closed, err = r.decodeClosed(kvs(1)); err != nil {
		return nil, err
	}
	if s.roster, err = r.decodeRoster(kvs(2), kvs(3)); err != nil {
		return nil, err
	}
	for _, kv := range kvs(4) {
		u, _ := decode[uploadValue](string(kv.Key), kv.Value) // one that cannot be read is old
		s.uploads[strings.TrimPrefix(string(kv.Key), r.keys.uploads())] = upload{u, kv.CreateRevision}
	}
	if kvs := kvs(5); len(kvs) > 0 {
		s.pointer = string(kvs[0].Value)
		s.newest, s.odd = decode[newestValue](r.keys.newest(), kvs[0].Value)
	}
	if kvs := kvs(6); len(kvs) > 0 {
		s.counted = string(kvs[0].Value)
		if s.count, err = decode[closingsValue](r.keys.closings(), kvs[0].Value); err != nil {
			return nil, err
		}
	}
	if kvs := kvs(7); len(kvs) > 0 {
		s.marked = string(kvs[0].Value)
		if s.mark, err = decode[markValue](r.keys.mark(), kvs[0].Value); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// whole says whether the newest checkpoint can be used. An error is a failure to find out.
func (r *Relay) whole(ctx context.Context, s *snapshot) (bool, error) {
	if s.pointer == "" || s.odd != nil {
		return false, nil
	}
	body, err := r.body(ctx, s.newest.Hash, s.newest.Size, 0)
	if errors.Is(err, relay.ErrCorrupt) {
		return false, nil
	}
	return err == nil && relay.Checkpoint{Hash: s.newest.Hash, Body: body}.Whole(), err
}

// holding is what checkpoints and collections are judged by.
func (r *Relay) holding(ctx context.Context, s *snapshot, damaged bool) relay.Holding {
	h := relay.Holding{
		Heads: s.heads.frontier(), Floor: s.heads.floor(), Closed: s.closed, Damaged: damaged, Roster: s.roster,
		Held: func(d string, seq uint64) (oplog.OpID, error) {
			ops, err := r.read(ctx, d, seq, s.heads[d].Seq, 1)
			if errors.Is(err, relay.ErrCorrupt) {
				err = r.collected(ctx, d, seq, err)
			}
			if err != nil {
				return "", err
			}
			return ops[0].ID, nil
		},
	}
	if s.pointer != "" && s.odd == nil {
		c := relay.Checkpoint{Hash: s.newest.Hash, Author: s.newest.Author, Frontier: s.newest.Frontier, Closed: s.closed}
		h.Newest = &c
	}
	return h
}
