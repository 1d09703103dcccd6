// Package memory is the relay within one process: the reference of the contract, for tests and for devices that
// share a process.
//
// # Guarantees
//
// Those of package relay, as long as the process lives. Nothing is kept on a disk. Pushes are refused
// when op lines and the checkpoint take Config.MaxBytes; a checkpoint, which makes room, may pass that by its own size.
//
// # Failure
//
// No call fails but by an answer of the contract or because its context has ended, and then nothing happened.
//
// # Concurrency
//
// A Relay may be used by several goroutines at once; each call is one step.
package memory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A Config describes a relay. Zero fields take their defaults.
type Config struct {
	MaxBytes int64            // bytes of op lines and the checkpoint; 64 MiB
	Now      func() time.Time // time.Now; for the times in the roster, eviction and grace

	EvictAfter time.Duration // relay.EvictAfter; less than 0: never
	Grace      time.Duration // relay.Grace; less than 0: none
}

// A Relay holds chains in memory. Make it with New.
type Relay struct {
	maxBytes int64
	now      func() time.Time
	evict    time.Duration
	grace    time.Duration

	mu         sync.Mutex
	instance   string
	generation uint64
	used       int64
	chains     map[string]*chain
	heads      oplog.Frontier
	members    map[string]*relay.Member
	moved      chan struct{} // closed and replaced when a head moves

	newest   *relay.Checkpoint
	closed   oplog.Frontier // all that were ever closed
	marked   bool           // ops are marked and not deleted yet
	markedAt time.Time
}

type chain struct {
	ops   []oplog.Op // from seq first
	first uint64
	head  oplog.Head
	floor *oplog.Head // nil if nothing was collected
}

var (
	_ relay.Relay     = (*Relay)(nil)
	_ relay.Hinter    = (*Relay)(nil)
	_ relay.Looker    = (*Relay)(nil)
	_ relay.Collector = (*Relay)(nil)
)

// New returns an empty relay with an instance of its own.
func New(cfg Config) *Relay {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 64 << 20
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Grace == 0 {
		cfg.Grace = relay.Grace
	}
	return &Relay{
		maxBytes: cfg.MaxBytes,
		now:      cfg.Now,
		evict:    cfg.EvictAfter,
		grace:    cfg.Grace,
		closed:   oplog.Frontier{},
		instance: nonce(),
		chains:   map[string]*chain{},
		heads:    oplog.Frontier{},
		members:  map[string]*relay.Member{},
		moved:    make(chan struct{}),
	}
}

func nonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func begin(ctx context.Context, device string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", relay.ErrNotSent, context.Cause(ctx))
	}
	return relay.CheckDevice(device)
}

// Hello implements relay.Relay.
func (r *Relay) Hello(ctx context.Context, device string) (relay.Info, error) {
	if err := begin(ctx, device); err != nil {
		return relay.Info{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.contactLocked(device)
	info := r.infoLocked()
	info.Role, info.Acked = m.Role, m.Acked.Clone()
	if c := r.chains[device]; c != nil {
		info.Head, info.Known = c.head, true
	}
	return info, nil
}

func (r *Relay) infoLocked() relay.Info {
	info := relay.Info{Instance: r.instance, Generation: r.generation, Heads: r.heads.Clone(), Floor: r.floorLocked()}
	if r.newest != nil {
		info.Checkpoint = r.newest.Hash
	}
	return info
}

// Look implements relay.Looker.
func (r *Relay) Look(ctx context.Context) (relay.Info, error) {
	if ctx.Err() != nil {
		return relay.Info{}, fmt.Errorf("%w: %w", relay.ErrNotSent, context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.infoLocked(), nil
}

// Push implements relay.Relay.
func (r *Relay) Push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	if err := begin(ctx, device); err != nil {
		return relay.Pushed{}, err
	}
	if err := relay.CheckPush(device, ops); err != nil {
		return relay.Pushed{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contactLocked(device)
	if last, ended := r.closed[device]; ended {
		return relay.Pushed{}, &relay.ClosedError{Device: device, Last: last}
	}
	c := r.chains[device]
	known := c != nil
	if !known {
		c = &chain{}
	}
	b := relay.Verify(device, c.head, known, ops)
	done := relay.Pushed{Duplicate: b.Repeated}
	if c.floor != nil {
		same, above, err := relay.MatchCollected(device, b.Below, c.floor.Pos())
		done.Duplicate += same
		if err != nil {
			return done, err
		}
		b.Below = above
	}
	for _, op := range b.Below {
		if err := relay.Match(op, c.ops[op.Seq-c.first].ID); err != nil {
			return done, err
		}
		done.Duplicate++
	}
	if err := r.addLocked(device, c, b); err != nil {
		return done, err
	}
	done.Accepted = len(b.New)
	return done, b.Refused
}

func (r *Relay) addLocked(device string, c *chain, b relay.Batch) error {
	if len(b.New) == 0 {
		return nil
	}
	var need int64
	for _, op := range b.New {
		need += int64(relay.LineLen(op))
	}
	if r.used+need > r.maxBytes {
		return &relay.FullError{Used: r.used, Need: need, Max: r.maxBytes}
	}
	r.used += need
	c.ops, c.head = append(c.ops, b.New...), b.Head
	r.chains[device], r.heads[device] = c, b.Head.Pos()
	r.wakeLocked()
	return nil
}

func (r *Relay) wakeLocked() {
	close(r.moved)
	r.moved = make(chan struct{})
}

// Pull implements relay.Relay.
func (r *Relay) Pull(ctx context.Context, device string, want relay.Want) (relay.Page, error) {
	if err := begin(ctx, device); err != nil {
		return relay.Page{}, err
	}
	if err := relay.CheckFrontier(want.Held); err != nil {
		return relay.Page{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := relay.CheckClosed(want, r.heads, r.closed); err != nil {
		return relay.Page{}, err
	}
	wanted, err := relay.Needs(device, want, r.heads, r.floorLocked())
	if err != nil {
		return relay.Page{}, err
	}
	return relay.Fill(wanted, want.MaxBytes, func(d string, from uint64, _ int) ([]oplog.Op, error) {
		c := r.chains[d]
		return c.ops[from-c.first:], nil
	})
}

// Ack implements relay.Relay.
func (r *Relay) Ack(ctx context.Context, device string, folded oplog.Frontier) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckFrontier(folded); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	relay.Join(r.contactLocked(device).Acked, folded)
	return nil
}

// Register implements relay.Relay.
func (r *Relay) Register(ctx context.Context, device string, role relay.Role) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckRole(role); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contactLocked(device).Role = role
	return nil
}

// Roster implements relay.Relay.
func (r *Relay) Roster(ctx context.Context) ([]relay.Member, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", relay.ErrNotSent, context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rosterLocked(), nil
}

func (r *Relay) rosterLocked() []relay.Member {
	now := r.now()
	roster := make([]relay.Member, 0, len(r.members))
	for _, m := range r.members {
		row := *m
		row.Acked = m.Acked.Clone()
		row.Evicted = relay.IsEvicted(m.Role, m.Seen, now, r.evict)
		roster = append(roster, row)
	}
	slices.SortFunc(roster, func(a, b relay.Member) int { return strings.Compare(a.Device, b.Device) })
	return roster
}

// Hint implements relay.Hinter.
func (r *Relay) Hint(ctx context.Context, known oplog.Frontier) error {
	for {
		r.mu.Lock()
		same, moved := r.heads.Equal(known), r.moved
		r.mu.Unlock()
		if !same {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Forget drops the ops of device from seq on, as a relay does that was put back from an older copy without
// saying so. What was collected stays collected.
func (r *Relay) Forget(device string, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chains[device]
	if c == nil {
		return
	}
	if c.floor != nil {
		seq = max(seq, c.floor.Seq+1)
	}
	if seq > c.head.Seq {
		return
	}
	keep := seq - c.first
	for _, op := range c.ops[keep:] {
		r.used -= int64(relay.LineLen(op))
	}
	c.ops = slices.Clone(c.ops[:keep])
	switch {
	case keep > 0:
		last := c.ops[keep-1]
		c.head = oplog.Head{Seq: last.Seq, ID: last.ID, HLC: last.HLC}
		r.heads[device] = c.head.Pos()
	case c.floor != nil:
		c.head = *c.floor
		r.heads[device] = c.head.Pos()
	default:
		delete(r.chains, device)
		delete(r.heads, device)
	}
	r.wakeLocked()
}

// Copy is another relay that holds what this one holds now, under the same instance: what a backup of its store would put back.
func (r *Relay) Copy() *Relay {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := New(Config{MaxBytes: r.maxBytes, Now: r.now, EvictAfter: r.evict, Grace: r.grace})
	c.instance, c.generation, c.used = r.instance, r.generation, r.used
	c.heads, c.closed, c.marked, c.markedAt = r.heads.Clone(), r.closed.Clone(), r.marked, r.markedAt
	for d, from := range r.chains {
		to := *from
		to.ops = slices.Clone(from.ops)
		c.chains[d] = &to
	}
	for d, from := range r.members {
		to := *from
		to.Acked = from.Acked.Clone()
		c.members[d] = &to
	}
	if r.newest != nil {
		newest := clone(*r.newest)
		c.newest = &newest
	}
	return c
}

// SetGeneration says that an older copy was put back on purpose.
func (r *Relay) SetGeneration(generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation = generation
}

// contactLocked is the row of device, made when it is the first contact.
func (r *Relay) contactLocked(device string) *relay.Member {
	now := r.now()
	m := r.members[device]
	if m == nil {
		m = &relay.Member{Device: device, Role: relay.Seen, Added: now, Acked: oplog.Frontier{}}
		r.members[device] = m
	}
	m.Seen = now
	return m
}
