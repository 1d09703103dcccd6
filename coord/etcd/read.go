package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

const (
	scanPage  = 256 // keys that one read of a prefix asks for
	readBatch = 100 // keys of one read-only transaction; etcd allows 128
)

// Look implements coord.Ledger: one read-only transaction, and a second one only if it showed liveness keys that have
// to be judged and were not read.
func (c *Coordinator) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	if err := q.Check(); err != nil {
		return coord.View{}, err
	}
	var extra []string
	for _, w := range q.Witnesses {
		extra = append(extra, c.keys.run(w.Agent, w.Run), c.keys.bucket(w.Agent, w.Run, 0))
	}
	for {
		st, err := c.look(ctx, "look at", q.Agent, q.Run, extra...)
		if err != nil {
			return coord.View{}, err
		}
		f, err := c.facts(st, q.Agent, q.Run)
		if err != nil {
			return coord.View{}, err
		}
		v := f.View()
		v.Witness = make(map[string]bool, len(q.Witnesses))
		var deeper []string
		for _, w := range q.Witnesses {
			leaf, _, err := c.leaf(st, w.Agent, w.Run)
			if err != nil {
				return coord.View{}, fmt.Errorf("look at %s: %w: %w", w.Agent, coord.ErrNotSent, err)
			}
			if !st.knows(leaf) {
				deeper = append(deeper, leaf)
			}
			wf := rules.Facts{Entry: coord.Entry{Agent: w.Agent, Run: w.Run}}
			if err := c.runFacts(st, &wf); err != nil {
				return coord.View{}, fmt.Errorf("look at %s: %w: %w", w.Agent, coord.ErrNotSent, err)
			}
			v.Witness[w.Run] = rules.Witness(wf.Entry)
		}
		if len(deeper) == 0 {
			return v, nil
		}
		extra = append(extra, deeper...)
	}
}

// prefix reads some keys of a range.
func (c *Coordinator) prefix(ctx context.Context, what, from, end string, opts ...clientv3.OpOption) (st state, keys []string, next string, err error) {
	t := c.tries(what, "")
	for {
		if ctx.Err() != nil {
			return state{}, nil, "", t.ended(ctx, false)
		}
		var resp *clientv3.GetResponse
		err := t.once(ctx, func(ctx context.Context) (err error) {
			resp, err = c.client.Get(ctx, from, append([]clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(scanPage)}, opts...)...)
			return err
		})
		switch {
		case err == nil:
			st = state{rev: resp.Header.Revision, kvs: map[string]*mvccpb.KeyValue{}}
			for _, kv := range resp.Kvs {
				st.kvs[string(kv.Key)] = kv
				keys = append(keys, string(kv.Key))
			}
			if resp.More {
				next = keys[len(keys)-1] + "\x00"
			}
			return st, keys, next, nil
		case permanent(err):
			return state{}, nil, "", fmt.Errorf("%s: %w: %w", what, coord.ErrNotSent, err)
		}
		t.pause(ctx)
	}
}

// readAt adds keys to st as they were at its revision. It gives rpctypes.ErrCompacted if that is gone.
func (c *Coordinator) readAt(ctx context.Context, what string, st state, keys []string) error {
	keys = slices.DeleteFunc(unique(keys), st.knows)
	for batch := range slices.Chunk(keys, readBatch) {
		ops := make([]clientv3.Op, len(batch))
		for i, key := range batch {
			ops[i] = clientv3.OpGet(key, clientv3.WithRev(st.rev))
		}
		t := c.tries(what, "")
		for {
			if ctx.Err() != nil {
				return t.ended(ctx, false)
			}
			resp, err := t.commit(ctx, proposal{puts: ops})
			if errors.Is(err, rpctypes.ErrCompacted) {
				return err
			}
			if permanent(err) {
				return fmt.Errorf("%s: %w: %w", what, coord.ErrNotSent, err)
			}
			if err == nil {
				for key, kv := range readState(batch, st.rev, resp.Responses, 0, true).kvs {
					st.kvs[key] = kv
				}
				break
			}
			t.pause(ctx)
		}
	}
	return nil
}

// readHolders adds the liveness keys of every holder in st. One that cannot be read keeps back no other: the error is told at the end.
func (c *Coordinator) readHolders(ctx context.Context, what string, st state) error {
	var lives []string
	var unread error
	for key := range st.kvs {
		if _, kind, ok := c.keys.parseLease(key); ok && kind == "holder" {
			h, held, err := get[holderValue](st, key)
			if err != nil {
				unread = fmt.Errorf("%s: %w: %w", what, coord.ErrNotSent, err)
			}
			if held {
				lives = append(lives, c.keys.live(h.Device, h.Liveness))
			}
		}
	}
	if err := c.readAt(ctx, what, st, lives); err != nil {
		return err
	}
	return unread
}

// Leases implements coord.Steward.
func (c *Coordinator) Leases(ctx context.Context) ([]coord.Lease, error) { return c.LeasesOf(ctx, "") }

// LeasesOf lists the leases of the agents whose names begin with prefix, as Leases does. It reads no others.
func (c *Coordinator) LeasesOf(ctx context.Context, prefix string) ([]coord.Lease, error) {
	from := c.keys.leases() + prefix
	end := clientv3.GetPrefixRangeEnd(from)
	var all []coord.Lease
	for from != "" {
		st, keys, next, err := c.prefix(ctx, "list leases", from, end)
		if err == nil {
			err = c.readHolders(ctx, "list leases", st)
		}
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			agent, kind, ok := c.keys.parseLease(key)
			if !ok || kind != "holder" {
				continue
			}
			f, err := c.facts(st, agent, "")
			if err != nil {
				return nil, err
			}
			all = append(all, f.Holder)
		}
		from = next
	}
	slices.SortFunc(all, func(a, b coord.Lease) int { return strings.Compare(a.Agent, b.Agent) })
	return all, nil
}
