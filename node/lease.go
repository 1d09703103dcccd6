package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/syncnode/syncnode/coord"
)

// An announcement is what the lease of this node says of it.
type announcement struct {
	mu      sync.Mutex // guards the rest
	text    string
	changed chan struct{} // closed when the text becomes another
}

func (a *announcement) now() (string, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text, a.changed
}

// Announce makes the lease of this node say something else: a note of package owner. It may be called at any time, also before Run.
// A lease is taken anew for it.
func (n *Node) Announce(note string) {
	a := &n.note
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.text != note {
		a.text = note
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// leaseLoop holds the lease of Agent for as long as ctx lasts.
func (n *Node) leaseLoop(ctx context.Context) {
	told := change{log: n.log, what: "lease of this node"}
	for {
		note, changed := n.note.now()
		l, err := n.takeLease(ctx, note)
		if ctx.Err() != nil && err != nil {
			return
		}
		told.note(err, leaseTrouble(err))
		if err == nil && n.keepLease(ctx, l, note, changed) {
			continue
		}
		if !sleep(ctx, jitter(n.cfg.TTL/3)) {
			return
		}
	}
}

// takeLease acquires the lease, or picks it up from an earlier process of this device that is proved dead.
func (n *Node) takeLease(ctx context.Context, note string) (coord.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.TTL)
	defer cancel()
	l, err := n.cfg.Leases.Acquire(ctx, coord.Request{Agent: Agent(n.cfg.Device), Device: n.cfg.Device, TTL: n.cfg.TTL, Note: note})
	var held *coord.HeldError
	if errors.As(err, &held) && held.Holder.Device == n.cfg.Device {
		if again, e := n.cfg.Leases.Renew(ctx, held.Holder.Agent, n.cfg.Device, held.Holder.Epoch, n.cfg.TTL); e == nil {
			return again, nil
		}
	}
	return l, err
}

// keepLease keeps the lease until ctx ends, it is lost, or it has to say something else: true.
func (n *Node) keepLease(ctx context.Context, l coord.Lease, note string, changed <-chan struct{}) (anew bool) {
	// The keeper outlives ctx until the lease is released in good order.
	keeper := coord.Keep(context.WithoutCancel(ctx), n.cfg.Leases, l, coord.KeepOptions{})
	n.cfg.Observer.Lease(true)
	defer n.cfg.Observer.Lease(false)
	if l.Note != note { // an earlier process said it
		said := make(chan struct{})
		close(said)
		changed = said
	}
	select {
	case <-ctx.Done():
		n.giveBack(ctx, keeper)
	case <-changed:
		return n.giveBack(ctx, keeper) && ctx.Err() == nil
	case <-keeper.Context().Done():
		n.log.Warn("lease of this node lost; the node goes on", "err", context.Cause(keeper.Context()))
		keeper.Stop()
	}
	return false
}

func (n *Node) giveBack(ctx context.Context, keeper *coord.Keeper) bool {
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), LastPump)
	defer cancel()
	err := keeper.Release(release)
	if err != nil && !errors.Is(err, coord.ErrLost) {
		n.log.Warn("lease of this node is not given back yet, or left to run out", "err", err)
		return false
	}
	return true
}

func leaseTrouble(err error) trouble {
	if errors.Is(err, coord.ErrHeld) {
		return trouble{"somebody else holds it", slog.LevelWarn}
	}
	return trouble{"it cannot be had yet", slog.LevelWarn}
}
