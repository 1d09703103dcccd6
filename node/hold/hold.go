// Package hold keeps the leases of the agents that one node holds.
//
// # Guarantees
//
// An agent is given to one run of the node at a time, and only under a lease that was granted to this process, or
// that an earlier process of the device had which is proved dead: then with its epoch. Whatever is held is renewed, also
// while no run is open and after an outage, as long as nobody else took it. A lease that is not wanted any more is given
// back, however often that has to be asked for: the process lives on, and others would wait for it for ever.
//
// A lease that was taken is never taken back by itself. What a [Hold] says of its lease is never older than what
// is known: the supervision of package dispatch rests on it.
//
// Not promised: that an epoch was noted on this disk. Package dispatch notes it before an effect begins.
//
// # Failure
//
// A claim that fails holds nothing. Its error is a *[BusyError], [ErrLeaving], or that of package coord: a
// *coord.HeldError says who holds the agent, coord.ErrNotSent that the coordinator could not be asked.
//
// # Concurrency
//
// A Table may be used by several goroutines at once. It owns all goroutines that keep leases; Run has waited for them
// when it returns.
package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
)

const (
	// Linger is how long an agent that is not owned is kept after its last run.
	Linger = 2 * time.Second
	// LastRelease bounds how long Run waits for leases to be given back. What is not given back runs out.
	LastRelease = 5 * time.Second
	// atOnce is how many leases are given back at once: a node that leaves has many.
	atOnce = 32
	// pause is between two tries to reach the coordinator.
	pause = time.Second
)

// ErrLeaving means that the node goes down and begins nothing any more.
var ErrLeaving = errors.New("hold: the node is leaving, nothing is begun any more")

// A BusyError says which run has the agent already.
type BusyError struct{ Agent, Run string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("agent %s is busy on this node with run %s", e.Agent, e.Run)
}

// A Config says what a Table works with. Leases and Device are required.
type Config struct {
	Leases coord.LeaseCoordinator
	Device string
	// Floor is the highest epoch of the agent that the device knows of; nil: it knows of none.
	Floor func(ctx context.Context, agent string) (coord.Epoch, error)
	// TTL is that of an agent's lease, asked for when it is acquired; nil, and 0: coord.DefaultTTL.
	TTL func(agent string) time.Duration
	// Lost, if not nil, is told of each agent whose lease somebody took. It must not wait.
	Lost   func(agent string)
	Logger *slog.Logger // nil discards
}

// A Table holds agents for one node.
type Table struct {
	cfg  Config
	log  *slog.Logger
	ctx  context.Context // of all that keeps leases: it ends when Run gives up waiting
	stop context.CancelFunc
	all  sync.WaitGroup // what keeps leases
	back chan struct{}  // has atOnce places, for those who give leases back

	mu      sync.Mutex // guards the rest, and what entries say of it
	entries map[string]*entry
	leaving bool
	changed chan struct{} // closed and made anew when an entry goes or its run ends
}

// New returns a Table. Its Run has to be called: it gives back what is held.
func New(cfg Config) (*Table, error) {
	if cfg.Leases == nil || cfg.Device == "" {
		return nil, errors.New("hold: a coordinator of leases and a device are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Table{cfg: cfg, log: cfg.Logger, entries: map[string]*entry{}, changed: make(chan struct{}), back: make(chan struct{}, atOnce)}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t, nil
}

// Claim takes the agent for one run of this node, until the Hold is released.
func (t *Table) Claim(ctx context.Context, agent, run string) (*Hold, error) {
	e, err := t.reserve(agent, run)
	if err != nil {
		return nil, err
	}
	defer t.exit(e)
	k, err := t.ensure(ctx, e)
	if err == nil && t.isLeaving() {
		err = ErrLeaving
	}
	if err != nil {
		t.ended(e, false)
		return nil, fmt.Errorf("claim agent %s: %w", agent, err)
	}
	return &Hold{t: t, e: e, ctx: k.Context(), keeper: k, grant: k.Lease()}, nil
}

// Own keeps the agent's lease also without a run, until Disown. It asks nobody if the lease is held and trusted, so it
// may be repeated often: that is how an owner takes up a lease that was lost. On an error nothing new is held; a lease
// that could only not be renewed is kept on trying for.
func (t *Table) Own(ctx context.Context, agent string) error {
	t.mu.Lock()
	if t.leaving {
		t.mu.Unlock()
		return ErrLeaving
	}
	e := t.enterLocked(agent)
	e.owned, e.hand = true, false
	t.mu.Unlock()
	defer t.exit(e)
	_, err := t.ensure(ctx, e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.leaving {
		err = ErrLeaving
	}
	e.owned = e.keeper != nil && !t.leaving // an earlier grant may have been dropped on the way
	e.pokeLocked()
	if err != nil {
		return fmt.Errorf("own agent %s: %w", agent, err)
	}
	return nil
}

// Disown hands the agent over: at once if no run is open, and then it returns when the lease is given back; else when
// the run ends. The error says that ctx ended first; the lease is given back all the same.
func (t *Table) Disown(ctx context.Context, agent string) error {
	t.mu.Lock()
	e := t.entries[agent]
	if e == nil {
		t.mu.Unlock()
		return nil
	}
	e.owned, e.hand = false, true
	e.pokeLocked()
	t.mu.Unlock()
	for {
		t.mu.Lock()
		done := t.entries[agent] != e || e.keeper == nil || e.run != "" || e.owned || e.left
		changed := t.changed
		t.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("disown agent %s: its lease is not given back yet: %w", agent, context.Cause(ctx))
		}
	}
}

// An Info is what a list shows of an agent that is held.
type Info struct {
	Agent   string
	Epoch   coord.Epoch
	Since   time.Time // of the grant, by the coordinator's clock
	Run     string    // the open run; empty if there is none
	Owned   bool
	Trusted bool // the lease was renewed in time
}

// Held lists what this node holds, by agent.
func (t *Table) Held() []Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Info
	for _, e := range t.entries {
		if e.keeper == nil {
			continue
		}
		l := e.keeper.Lease()
		all = append(all, Info{Agent: e.agent, Epoch: l.Epoch, Since: l.Since, Run: e.run, Owned: e.owned, Trusted: e.keeper.Trusted() == nil})
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Agent, b.Agent) })
	return all
}

// Left reports whether a part of an effect is still there after it was killed: then the liveness of this process must
// not be given up in good order.
func (t *Table) Left() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if e.left {
			return true
		}
	}
	return false
}

// Run returns when ctx has ended and everything was given back. From ctx's end on nothing new is claimed; leases are
// renewed until their last Hold is released, however long that takes, and then given back, within LastRelease.
func (t *Table) Run(ctx context.Context) error {
	<-ctx.Done()
	t.leave()
	t.await(context.Background(), func() bool { return !t.anyLocked(func(e *entry) bool { return e.run != "" && !e.left }) })
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), LastRelease)
	defer cancel()
	if !t.await(last, func() bool { return !t.anyLocked(func(e *entry) bool { return !e.left }) }) {
		t.log.Warn("leases are left to run out: they could not be given back in time")
	}
	t.stop()
	t.all.Wait()
	return nil
}

func (t *Table) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaving = true
	for _, e := range t.entries {
		e.owned, e.hand = false, true
		e.pokeLocked()
	}
}

func (t *Table) isLeaving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leaving
}

func (t *Table) anyLocked(is func(*entry) bool) bool {
	for _, e := range t.entries {
		if is(e) {
			return true
		}
	}
	return false
}

// await returns true when so holds, false when ctx ends. so is called under the lock.
func (t *Table) await(ctx context.Context, so func() bool) bool {
	for {
		t.mu.Lock()
		ok, changed := so(), t.changed
		t.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (t *Table) changedLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}
