// Package etcd is the relay in an etcd, for fleets whose logs are small beside their coordination.
//
// # Guarantees
//
// Those of package relay. The head of a chain moves by compare-and-set in the very transaction that puts its
// ops, so a chain is never half there and never has two branches, whoever pushes and however often. Every write
// is one guarded transaction of at most 128 operations and about 1 MiB. Op lines of all chains and the newest checkpoint
// together take at most Config.MaxBytes, plus one transaction for each device that pushes at the same moment; then pushes get
// relay.ErrFull, and etcd's own space alarm is never reached by them. A checkpoint, which makes room, may pass the limit by its own
// size (one that is larger than the limit by itself gets relay.ErrFull), and checkpoints on their way take at most twice relay.MaxCheckpoint. Reads are linearizable and propose
// nothing: an exchange without news is one read and no proposal.
//
// Pushes of a handle are Config.Coalesce apart, unless they fill half of what one call may bring: what is appended meanwhile goes with the
// next, so that endless small appends cost five proposals a second and not one each.
//
// A checkpoint's chunks are there before anything refers to them. What an upload that was given up left behind is removed by a
// later collection, and so are chunks that nothing refers to.
//
// Not counted in MaxBytes: heads, acks and the roster, three keys for each device, and one small key for each closed chain, written
// only when they change. The history that etcd keeps of them until it compacts is the operator's.
//
// # Failure
//
// A read that fails matches relay.ErrNotSent. A transaction whose answer did not come matches
// relay.ErrIndeterminate; pushing the same ops again settles it, since the head says whether they are there.
// An etcd that is out of space gives relay.ErrFull to writes; hello and pull go on. A value that this release cannot read matches
// relay.ErrCorrupt; a damaged op stops its own chain only.
//
// # Concurrency
//
// A Relay may be used by several goroutines, and any number of processes may use one store.
//
// The layout is described in docs/formats/relay.md.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// Defaults of a Config.
const (
	DefaultMaxBytes = 64 << 20
	DefaultCoalesce = 200 * time.Millisecond
)

// A Config describes a relay in an etcd.
type Config struct {
	Client    *clientv3.Client // stays the caller's
	Namespace string
	MaxBytes  int64            // bytes of op lines over all chains and the checkpoint; DefaultMaxBytes
	Now       func() time.Time // time.Now; for the times in the roster, eviction and grace

	EvictAfter time.Duration // relay.EvictAfter; less than 0: never
	Grace      time.Duration // relay.Grace; less than 0: none
	// Coalesce is the least time between two small pushes of this handle; DefaultCoalesce; less than 0: none.
	Coalesce time.Duration
}

// A Relay is a handle to the store. Make it with Open.
type Relay struct {
	client   *clientv3.Client
	keys     keys
	maxBytes int64
	now      func() time.Time
	evict    time.Duration
	grace    time.Duration
	coalesce time.Duration

	mu       sync.Mutex
	meta     string         // the stored bytes of the store's identity, as last seen; every write compares them
	closed   oplog.Frontier // all closed chains, as of the revision closings of their count; never changed in place
	closings int64
	pushed   time.Time // when ops were last put; by the monotonic clock
}

var (
	_ relay.Relay     = (*Relay)(nil)
	_ relay.Hinter    = (*Relay)(nil)
	_ relay.Looker    = (*Relay)(nil)
	_ relay.Collector = (*Relay)(nil)
)

// Exists reports whether the namespace has a relay. It makes none.
func Exists(ctx context.Context, client *clientv3.Client, namespace string) (bool, error) {
	if err := ident.Check("namespace", namespace); err != nil {
		return false, &relay.InvalidError{Err: err}
	}
	resp, err := client.Get(ctx, newKeys(namespace).meta(), clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("look for a relay: %w: %w", relay.ErrNotSent, err)
	}
	return resp.Count > 0, nil
}

// Open returns a handle to the relay of a namespace and makes the store if there is none.
func Open(ctx context.Context, cfg Config) (*Relay, error) {
	if err := ident.Check("namespace", cfg.Namespace); err != nil {
		return nil, &relay.InvalidError{Err: err}
	}
	if cfg.Client == nil {
		return nil, &relay.InvalidError{Err: errors.New("no client")}
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Grace == 0 {
		cfg.Grace = relay.Grace
	}
	if cfg.Coalesce == 0 {
		cfg.Coalesce = DefaultCoalesce
	}
	r := &Relay{client: cfg.Client, keys: newKeys(cfg.Namespace), maxBytes: cfg.MaxBytes, now: cfg.Now, evict: cfg.EvictAfter, grace: cfg.Grace, coalesce: cfg.Coalesce}
	if _, err := r.identity(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// identity reads who the store is, and makes it if there is none.
func (r *Relay) identity(ctx context.Context) (metaValue, error) {
	for {
		resp, err := r.client.Get(ctx, r.keys.meta())
		if err != nil {
			return metaValue{}, r.unsent(ctx, "read the relay's identity", err)
		}
		if len(resp.Kvs) > 0 {
			return r.remember(resp.Kvs[0].Value)
		}
		value := encode(metaValue{V: version, Instance: nonce()})
		_, err = r.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(r.keys.meta()), "=", 0)).
			Then(clientv3.OpPut(r.keys.meta(), value)).
			Commit()
		if err != nil {
			return metaValue{}, r.unknown(ctx, "make the relay", err)
		}
	}
}

func (r *Relay) remember(stored []byte) (metaValue, error) {
	m, err := decode[metaValue](r.keys.meta(), stored)
	if err != nil {
		return metaValue{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meta = string(stored)
	return m, nil
}

// same is the compare that binds a write to the store that was last seen.
func (r *Relay) same() clientv3.Cmp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return clientv3.Compare(clientv3.Value(r.keys.meta()), "=", r.meta)
}

// Hello implements relay.Relay. It is one read; the first contact of a device and one contact a day also write
// its row.
func (r *Relay) Hello(ctx context.Context, device string) (relay.Info, error) {
	if err := begin(ctx, device); err != nil {
		return relay.Info{}, err
	}
	for {
		resp, err := r.client.Txn(ctx).Then(
			clientv3.OpGet(r.keys.meta()),
			clientv3.OpGet(r.keys.heads(), clientv3.WithPrefix()),
			clientv3.OpGet(r.keys.ack(device)),
			clientv3.OpGet(r.keys.member(device)),
			clientv3.OpGet(r.keys.newest()),
		).Commit()
		if err != nil {
			return relay.Info{}, r.unsent(ctx, "hello", err)
		}
		stored := resp.Responses[0].GetResponseRange().Kvs
		if len(stored) == 0 {
			if _, err := r.identity(ctx); err != nil {
				return relay.Info{}, err
			}
			continue
		}
		info, heads, err := r.info(stored[0], resp.Responses[1].GetResponseRange().Kvs, resp.Responses[4].GetResponseRange().Kvs)
		if err != nil {
			return relay.Info{}, err
		}
		if h, ok := heads[device]; ok {
			info.Head, info.Known = h.head(device), true
		}
		if info.Acked, err = acked(r.keys.ack(device), resp.Responses[2].GetResponseRange().Kvs); err != nil {
			return relay.Info{}, err
		}
		row, err := r.contact(ctx, device, "", resp.Responses[3].GetResponseRange().Kvs)
		if errors.Is(err, relay.ErrFull) {
			err = nil // the row is for the roster; without it everything can still be read
		}
		info.Role = row.Role
		return info, err
	}
}

// info is what is the same for every device.
func (r *Relay) info(stored keyValue, held, checkpoint []keyValue) (relay.Info, chains, error) {
	meta, err := r.remember(stored.Value)
	if err != nil {
		return relay.Info{}, nil, err
	}
	info := relay.Info{Instance: meta.Instance, Generation: meta.Generation}
	found, err := r.decodeHeads(held)
	if err != nil {
		return relay.Info{}, nil, err
	}
	info.Heads, info.Floor = found.frontier(), found.floor()
	if len(checkpoint) > 0 {
		newest, _ := decode[newestValue](r.keys.newest(), checkpoint[0].Value) // whoever fetches it is told
		info.Checkpoint = newest.Hash
	}
	return info, found, nil
}

// Look implements relay.Looker. It is one read.
func (r *Relay) Look(ctx context.Context) (relay.Info, error) {
	if err := alive(ctx); err != nil {
		return relay.Info{}, err
	}
	resp, err := r.client.Txn(ctx).Then(
		clientv3.OpGet(r.keys.meta()),
		clientv3.OpGet(r.keys.heads(), clientv3.WithPrefix()),
		clientv3.OpGet(r.keys.newest()),
	).Commit()
	if err != nil {
		return relay.Info{}, r.unsent(ctx, "look", err)
	}
	stored := resp.Responses[0].GetResponseRange().Kvs
	if len(stored) == 0 {
		return relay.Info{}, nil
	}
	info, _, err := r.info(stored[0], resp.Responses[1].GetResponseRange().Kvs, resp.Responses[2].GetResponseRange().Kvs)
	return info, err
}

// Hint implements relay.Hinter by a watch on the heads. The watch is a hint and nothing more: an answer that
// the watched history is gone means to look again.
func (r *Relay) Hint(ctx context.Context, known oplog.Frontier) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := r.client.Get(ctx, r.keys.heads(), clientv3.WithPrefix())
	if err != nil {
		return r.unsent(ctx, "watch the heads", err)
	}
	heads, err := r.decodeHeads(resp.Kvs)
	if err != nil {
		return err
	}
	if !heads.frontier().Equal(known) {
		return nil
	}
	watch := r.client.Watch(clientv3.WithRequireLeader(ctx), r.keys.heads(),
		clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	for w := range watch {
		switch {
		case w.CompactRevision != 0, len(w.Events) > 0:
			return nil
		case w.Err() != nil:
			return r.unsent(ctx, "watch the heads", w.Err())
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.unsent(ctx, "watch the heads", errors.New("the watch ended"))
}

func begin(ctx context.Context, device string) error {
	if err := alive(ctx); err != nil {
		return err
	}
	return relay.CheckDevice(device)
}

func alive(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", relay.ErrNotSent, cause(ctx, ctx.Err()))
	}
	return nil
}

// cause puts the context's own error beside its cause, which may say more.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(err, c) {
		return fmt.Errorf("%w: %w", err, c)
	}
	return err
}

// unsent wraps the failure of a read.
func (r *Relay) unsent(ctx context.Context, what string, err error) error {
	return fmt.Errorf("%s at %s: %w: %w", what, r.where(), relay.ErrNotSent, cause(ctx, err))
}

// unknown wraps the failure of a transaction that writes: no code proves that it did not happen.
func (r *Relay) unknown(ctx context.Context, what string, err error) error {
	if outOfSpace(err) {
		return fmt.Errorf("%s at %s: %w: %w: %w", what, r.where(), relay.ErrFull, relay.ErrIndeterminate, err)
	}
	return fmt.Errorf("%s at %s: %w: %w", what, r.where(), relay.ErrIndeterminate, cause(ctx, err))
}

func (r *Relay) where() string { return strings.Join(r.client.Endpoints(), ",") }
