package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/relay"
)

const (
	chunkBytes  = 512 << 10
	chunksRead  = 4         // in one read
	maxNewest   = 512 << 10 // bytes of the value of the newest checkpoint
	maxClosings = 60        // chains that one checkpoint may close beyond the one before: two operations each
)

// PutCheckpoint implements relay.Collector. It costs a proposal for each 512 KiB, and two.
func (r *Relay) PutCheckpoint(ctx context.Context, device string, c relay.Checkpoint) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckCheckpoint(device, &c); err != nil {
		return err
	}
	for {
		again, err := r.putOnce(ctx, c)
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

// putOnce judges c by the store as it is and puts it. Again means that the store moved meanwhile.
func (r *Relay) putOnce(ctx context.Context, c relay.Checkpoint) (again bool, err error) {
	s, err := r.snapshot(ctx)
	if err != nil {
		return false, err
	}
	var closing []string
	if mends := s.odd == nil && s.newest.Hash == c.Hash; mends {
		if whole, err := r.whole(ctx, s); whole || err != nil {
			return false, err
		}
		c.Author, c.Frontier, c.Closed = s.newest.Author, s.newest.Frontier, s.closed
	} else {
		h := r.holding(ctx, s, false)
		if closing, err = h.Judge(c); err != nil {
			return false, err
		}
	}
	value := encode(newestValue{V: version, Hash: c.Hash, Author: c.Author, Size: len(c.Body), Frontier: c.Frontier})
	if err := r.fits(s, c, value, closing); err != nil {
		return false, err
	}
	rev, err := r.upload(ctx, s, c)
	if err != nil || rev == 0 {
		return rev == 0, err
	}
	done, err := r.point(ctx, s, c, value, closing, rev)
	return !done, err
}

func (r *Relay) fits(s *snapshot, c relay.Checkpoint, value string, closing []string) error {
	if len(value) > maxNewest {
		return &relay.SizeError{What: "chains", Size: len(c.Frontier), Max: len(c.Frontier) * maxNewest / len(value)}
	}
	if len(closing) > maxClosings {
		return &relay.SizeError{What: "closings", Size: len(closing), Max: maxClosings}
	}
	need := int64(len(c.Body))
	if need > r.maxBytes {
		return &relay.FullError{Used: s.heads.used(), Need: need, Max: r.maxBytes}
	}
	var coming int64
	for hash, u := range s.uploads {
		if hash != c.Hash {
			coming += int64(u.Size)
		}
	}
	if coming+need > 2*relay.MaxCheckpoint {
		return &relay.FullError{Used: coming, Need: need, Max: 2 * relay.MaxCheckpoint}
	}
	return nil
}

// upload puts the chunks of c and returns since when its upload is noted; 0 means that it was removed meanwhile. Who finds it noted already
// joins: chunks of one hash are the same whoever puts them.
func (r *Relay) upload(ctx context.Context, s *snapshot, c relay.Checkpoint) (int64, error) {
	key := r.keys.upload(c.Hash)
	rev := s.uploads[c.Hash].rev
	if rev == 0 {
		note := encode(uploadValue{V: version, Size: len(c.Body), BeganMS: r.now().UnixMilli()})
		resp, err := r.client.Txn(ctx).If(s.same, unchanged(key, "")).Then(clientv3.OpPut(key, note)).Commit()
		if err != nil {
			return 0, r.unknown(ctx, "begin a checkpoint", err)
		}
		if !resp.Succeeded {
			return 0, nil
		}
		rev = resp.Header.Revision
	}
	for n := 0; n*chunkBytes < len(c.Body); n++ {
		chunk := c.Body[n*chunkBytes : min((n+1)*chunkBytes, len(c.Body))]
		resp, err := r.client.Txn(ctx).If(s.same, noted(key, rev)).Then(clientv3.OpPut(r.keys.chunk(c.Hash, n), string(chunk))).Commit()
		if err != nil {
			return 0, r.unknown(ctx, "put a checkpoint", err)
		}
		if !resp.Succeeded {
			return 0, nil
		}
	}
	return rev, nil
}

func noted(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}

// point makes c the newest and removes the one before, if the store is as c was judged by.
func (r *Relay) point(ctx context.Context, s *snapshot, c relay.Checkpoint, value string, closing []string, rev int64) (bool, error) {
	guards := []clientv3.Cmp{s.same, unchanged(r.keys.newest(), s.pointer), noted(r.keys.upload(c.Hash), rev)}
	then := []clientv3.Op{clientv3.OpPut(r.keys.newest(), value), clientv3.OpDelete(r.keys.upload(c.Hash))}
	if s.newest.Hash != "" && s.newest.Hash != c.Hash {
		then = append(then, clientv3.OpDelete(r.keys.body(s.newest.Hash), clientv3.WithPrefix()))
	}
	if len(closing) > 0 {
		guards = append(guards, unchanged(r.keys.closings(), s.counted))
		then = append(then, clientv3.OpPut(r.keys.closings(), encode(closingsValue{V: version, Count: s.count.Count + len(closing)})))
	}
	for _, d := range closing {
		h := s.heads[d]
		h.Closed = true
		guards = append(guards, unchanged(r.keys.head(d), s.stored[d]))
		then = append(then, clientv3.OpPut(r.keys.head(d), h.text()),
			clientv3.OpPut(r.keys.closed(d), encode(closedValue{V: version, At: c.Closed[d]})))
	}
	resp, err := r.client.Txn(ctx).If(guards...).Then(then...).Commit()
	if err != nil {
		return false, r.unknown(ctx, "put a checkpoint", err)
	}
	return resp.Succeeded, nil
}

// Checkpoint implements relay.Collector. It is a read for each 2 MiB, all at one revision, and one.
func (r *Relay) Checkpoint(ctx context.Context) (relay.Checkpoint, bool, error) {
	if err := alive(ctx); err != nil {
		return relay.Checkpoint{}, false, err
	}
	for {
		resp, err := r.client.Txn(ctx).Then(
			clientv3.OpGet(r.keys.newest()),
			clientv3.OpGet(r.keys.ended(), clientv3.WithPrefix()),
		).Commit()
		if err != nil {
			return relay.Checkpoint{}, false, r.unsent(ctx, "read the checkpoint", err)
		}
		pointer := resp.Responses[0].GetResponseRange().Kvs
		if len(pointer) == 0 {
			return relay.Checkpoint{}, false, nil
		}
		newest, err := decode[newestValue](r.keys.newest(), pointer[0].Value)
		if err != nil {
			return relay.Checkpoint{}, false, err
		}
		c := relay.Checkpoint{Hash: newest.Hash, Author: newest.Author, Frontier: newest.Frontier.Clone()}
		if c.Closed, err = r.decodeClosed(resp.Responses[1].GetResponseRange().Kvs); err != nil {
			return relay.Checkpoint{}, false, err
		}
		c.Body, err = r.body(ctx, newest.Hash, newest.Size, resp.Header.Revision)
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			continue // the revision is gone, so look at what is there now
		case err != nil:
			return relay.Checkpoint{}, false, err
		case !c.Whole():
			return relay.Checkpoint{}, false, fmt.Errorf("%w: checkpoint %.12s does not give its hash", relay.ErrCorrupt, c.Hash)
		}
		return c, true, nil
	}
}

// body reads the chunks of a checkpoint at a revision; 0: as they are now.
func (r *Relay) body(ctx context.Context, hash string, size int, rev int64) ([]byte, error) {
	if size < 0 || size > relay.MaxCheckpoint {
		return nil, fmt.Errorf("%w: checkpoint %.12s is said to have %d bytes", relay.ErrCorrupt, hash, size)
	}
	body := make([]byte, 0, size)
	for n := 0; n*chunkBytes < size; {
		resp, err := r.client.Get(ctx, r.keys.chunk(hash, n), clientv3.WithRange(clientv3.GetPrefixRangeEnd(r.keys.body(hash))),
			clientv3.WithLimit(chunksRead), clientv3.WithRev(rev))
		if err != nil {
			return nil, r.unsent(ctx, "read the checkpoint", err)
		}
		for _, kv := range resp.Kvs {
			if string(kv.Key) != r.keys.chunk(hash, n) || len(body)+len(kv.Value) > size {
				return nil, fmt.Errorf("%w: checkpoint %.12s: key %s is odd", relay.ErrCorrupt, hash, kv.Key)
			}
			body, n = append(body, kv.Value...), n+1
		}
		if len(resp.Kvs) == 0 {
			return nil, fmt.Errorf("%w: checkpoint %.12s lacks chunk %d", relay.ErrCorrupt, hash, n)
		}
	}
	return body, nil
}
