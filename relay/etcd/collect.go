package etcd

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// sweepOps is the most ops that one transaction deletes; they are read first, for their size.
const sweepOps = 128

// Collect implements relay.Collector. Several may run at once: what one has done the others find done.
//
//  1. What uploads left behind that were given up is removed.
//  2. If ops were marked long enough ago, they are deleted, a transaction for each 128, and then the mark.
//  3. Rows of closed chains of which nothing is left are removed.
//  4. If there is no mark, one is made, and then the floor of each chain that may go is raised under it.
func (r *Relay) Collect(ctx context.Context) (relay.Collection, error) {
	done := relay.Collection{Dropped: map[string]int{}, Marked: map[string]int{}}
	if err := alive(ctx); err != nil {
		return done, err
	}
	s, err := r.snapshot(ctx)
	if err != nil {
		return done, err
	}
	whole, err := r.whole(ctx, s)
	if err != nil {
		return done, err
	}
	if err := r.tidy(ctx, s); err != nil {
		return done, err
	}
	if s.marked != "" && whole && r.now().Sub(time.UnixMilli(s.mark.MarkedMS)) >= r.grace {
		if s, err = r.sweep(ctx, s, done.Dropped); err != nil {
			return done, err
		}
	}
	h := r.holding(ctx, s, s.pointer != "" && !whole)
	rise, reasons, err := h.Cut()
	if err != nil {
		return done, err
	}
	if s.marked != "" {
		for d := range rise {
			reasons[d] = relay.Reason{Cause: relay.Waiting}
		}
	} else if len(rise) > 0 {
		if err := r.raise(ctx, s, rise); err != nil {
			return done, err
		}
		if s, err = r.snapshot(ctx); err != nil {
			return done, err
		}
	}
	for d, h := range s.heads {
		if n := h.marked(); n > 0 {
			done.Marked[d] = n
		}
	}
	done.Floor, done.Reasons = s.heads.floor(), reasons
	return done, nil
}

// raise marks: it puts the mark and then the floors, each only while the mark is there.
func (r *Relay) raise(ctx context.Context, s *snapshot, rise oplog.Frontier) error {
	mark := encode(markValue{V: version, MarkedMS: r.now().UnixMilli(), Nonce: nonce()})
	resp, err := r.client.Txn(ctx).
		If(s.same, unchanged(r.keys.mark(), "")).
		Then(clientv3.OpPut(r.keys.mark(), mark)).
		Commit()
	if err != nil {
		return r.unknown(ctx, "mark ops", err)
	}
	if !resp.Succeeded {
		return r.stillThere(ctx) // another marks
	}
	for _, d := range rise.Devices() {
		p := rise[d]
		if _, err := r.change(ctx, s.same, mark, d, func(h *headValue) (bool, []clientv3.Op) {
			if h.Floor != nil && h.Floor.Seq >= p.Seq {
				return false, nil
			}
			h.Floor = &p
			return true, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// change writes a head anew as long as the mark is there, together with what else edit says. It reports whether the mark was there and the
// head was changed.
func (r *Relay) change(ctx context.Context, same clientv3.Cmp, mark, device string, edit func(*headValue) (bool, []clientv3.Op)) (bool, error) {
	key := r.keys.head(device)
	for {
		resp, err := r.client.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(r.keys.mark())).Commit()
		if err != nil {
			return false, r.unsent(ctx, "collect", err)
		}
		head, marks := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
		if len(head) == 0 || len(marks) == 0 || string(marks[0].Value) != mark {
			return false, nil
		}
		h, err := decode[headValue](key, head[0].Value)
		if err != nil {
			return false, err
		}
		ok, also := edit(&h)
		if !ok {
			return false, nil
		}
		done, err := r.client.Txn(ctx).
			If(same, unchanged(r.keys.mark(), mark), unchanged(key, string(head[0].Value))).
			Then(append(also, clientv3.OpPut(key, h.text()))...).
			Commit()
		if err != nil {
			return false, r.unknown(ctx, "collect", err)
		}
		if done.Succeeded {
			return true, nil
		}
		if err := r.stillThere(ctx); err != nil {
			return false, err
		}
	}
}

// sweep deletes what is marked, then the mark, and then what closed chains have left. It returns the store after that.
func (r *Relay) sweep(ctx context.Context, s *snapshot, dropped map[string]int) (*snapshot, error) {
	for _, d := range slices.Sorted(maps.Keys(s.heads)) {
		for h := s.heads[d]; h.marked() > 0; {
			next, n, bytes, err := r.reap(ctx, d, h)
			if err != nil {
				return nil, err
			}
			from := h.Kept
			ok, err := r.change(ctx, s.same, s.marked, d, func(now *headValue) (bool, []clientv3.Op) {
				if now.Kept != from {
					return false, nil
				}
				now.Kept, now.Bytes = next, max(now.Bytes-bytes, 0)
				return true, []clientv3.Op{clientv3.OpDelete(r.keys.op(d, from), clientv3.WithRange(r.keys.op(d, next)))}
			})
			if err != nil {
				return nil, err
			}
			if !ok {
				return r.snapshot(ctx) // another sweeps
			}
			if n > 0 {
				dropped[d] += n
			}
			h.Kept = next
		}
	}
	resp, err := r.client.Txn(ctx).If(s.same, unchanged(r.keys.mark(), s.marked)).Then(clientv3.OpDelete(r.keys.mark())).Commit()
	if err != nil {
		return nil, r.unknown(ctx, "collect", err)
	}
	if !resp.Succeeded {
		if err := r.stillThere(ctx); err != nil {
			return nil, err
		}
	}
	if s, err = r.snapshot(ctx); err != nil {
		return nil, err
	}
	if err := r.bury(ctx, s); err != nil {
		return nil, err
	}
	return r.snapshot(ctx)
}

// reap finds the next marked ops to delete: up to which seq, how many, and what they count.
func (r *Relay) reap(ctx context.Context, device string, h headValue) (next uint64, n int, bytes int64, err error) {
	end := h.Floor.Seq + 1
	resp, err := r.client.Get(ctx, r.keys.op(device, h.Kept), clientv3.WithRange(r.keys.op(device, end)), clientv3.WithLimit(sweepOps))
	if err != nil {
		return 0, 0, 0, r.unsent(ctx, "collect", err)
	}
	for _, kv := range resp.Kvs {
		if op, err := oplog.ParseLine(kv.Value); err == nil {
			bytes += int64(relay.LineLen(op))
		} else {
			bytes += int64(len(kv.Value)) // damaged; what it counted is not known
		}
	}
	if !resp.More {
		return end, len(resp.Kvs), bytes, nil
	}
	last := string(resp.Kvs[len(resp.Kvs)-1].Key)
	seq, err := strconv.ParseUint(last[strings.LastIndexByte(last, '/')+1:], 16, 64)
	if err != nil || seq < h.Kept || seq >= end {
		return end, len(resp.Kvs), bytes, nil // a foreign key; it goes with the range
	}
	return seq + 1, len(resp.Kvs), bytes, nil
}

// bury removes the rows of closed chains of which nothing is left, and what others said of them.
func (r *Relay) bury(ctx context.Context, s *snapshot) error {
	gone := func(d string) bool {
		_, closed := s.closed[d]
		h, rows := s.heads[d]
		return closed && (!rows || h.Kept > h.Seq)
	}
	for _, d := range s.closed.Devices() {
		if !gone(d) {
			continue
		}
		_, rows := s.heads[d]
		enrolled := slices.ContainsFunc(s.roster, func(m relay.Member) bool { return m.Device == d })
		if !rows && !enrolled {
			continue
		}
		_, err := r.client.Txn(ctx).If(s.same, unchanged(r.keys.head(d), s.stored[d])).
			Then(clientv3.OpDelete(r.keys.head(d)), clientv3.OpDelete(r.keys.member(d)), clientv3.OpDelete(r.keys.ack(d))).
			Commit() // if it moved, the next collection buries it
		if err != nil {
			return r.unknown(ctx, "collect", err)
		}
	}
	for _, kv := range s.acks {
		f, err := acked(string(kv.Key), []keyValue{kv})
		if err != nil {
			return err
		}
		before := len(f)
		maps.DeleteFunc(f, func(d string, _ oplog.Pos) bool { return gone(d) })
		if len(f) == before || gone(strings.TrimPrefix(string(kv.Key), r.keys.acks())) {
			continue
		}
		if _, err := r.put(ctx, "collect", s.same, string(kv.Key), []keyValue{kv}, encode(ackValue{V: version, Folded: f})); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes uploads that began long ago, and chunks of which nothing is noted.
func (r *Relay) tidy(ctx context.Context, s *snapshot) error {
	resp, err := r.client.Get(ctx, r.keys.chunks(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return r.unsent(ctx, "collect", err)
	}
	old := map[string]int64{} // by hash: since when the upload is noted, 0 if it is not
	for _, kv := range resp.Kvs {
		hash, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), r.keys.chunks()), "/")
		if _, coming := s.uploads[hash]; !coming {
			old[hash] = 0
		}
	}
	for hash, u := range s.uploads {
		if r.now().Sub(time.UnixMilli(u.BeganMS)) >= relay.Grace {
			old[hash] = u.rev
		}
	}
	if s.odd != nil {
		return nil // which chunks are needed is not known
	}
	for _, hash := range slices.Sorted(maps.Keys(old)) {
		then := []clientv3.Op{clientv3.OpDelete(r.keys.upload(hash))}
		if hash != s.newest.Hash {
			then = append(then, clientv3.OpDelete(r.keys.body(hash), clientv3.WithPrefix()))
		} else if old[hash] == 0 {
			continue
		}
		_, err := r.client.Txn(ctx).
			If(s.same, unchanged(r.keys.newest(), s.pointer), noted(r.keys.upload(hash), old[hash])).
			Then(then...).
			Commit() // if it moved, somebody needs it
		if err != nil {
			return r.unknown(ctx, "collect", err)
		}
	}
	return nil
}
