package node

import (
	"context"
	"errors"
	"log/slog"

	"github.com/syncnode/syncnode/coord"
)

// leaseLoop holds the lease of Agent for as long as ctx lasts.
func (n *Node) leaseLoop(ctx context.Context) {
	told := change{log: n.log, what: "lease of this node"}
	for {
		l, err := n.takeLease(ctx)
		if ctx.Err() != nil && err != nil {
			return
		}
		told.note(err, leaseTrouble(err))
		if err == nil {
			n.keepLease(ctx, l)
		}
		if !sleep(ctx, jitter(n.cfg.TTL/3)) {
			return
		}
	}
}

// takeLease acquires the lease, or picks it up from an earlier process of this device that is proved dead.
func (n *Node) takeLease(ctx context.Context) (coord.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.TTL)
	defer cancel()
	l, err := n.cfg.Leases.Acquire(ctx, coord.Request{Agent: Agent(n.cfg.Device), Device: n.cfg.Device, TTL: n.cfg.TTL, Note: "serve"})
	var held *coord.HeldError
	if errors.As(err, &held) && held.Holder.Device == n.cfg.Device {
		if again, e := n.cfg.Leases.Renew(ctx, held.Holder.Agent, n.cfg.Device, held.Holder.Epoch, n.cfg.TTL); e == nil {
			return again, nil
		}
	}
	return l, err
}

func (n *Node) keepLease(ctx context.Context, l coord.Lease) {
	// The keeper outlives ctx until the lease is released in good order.
	keeper := coord.Keep(context.WithoutCancel(ctx), n.cfg.Leases, l, coord.KeepOptions{})
	select {
	case <-ctx.Done():
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), LastPump)
		defer cancel()
		if err := keeper.Release(release); err != nil && !errors.Is(err, coord.ErrLost) {
			n.log.Warn("lease of this node is left to run out", "err", err)
		}
	case <-keeper.Context().Done():
		n.log.Warn("lease of this node lost; the node goes on", "err", context.Cause(keeper.Context()))
		keeper.Stop()
	}
}

func leaseTrouble(err error) trouble {
	if errors.Is(err, coord.ErrHeld) {
		return trouble{"somebody else holds it", slog.LevelWarn}
	}
	return trouble{"it cannot be had yet", slog.LevelWarn}
}
