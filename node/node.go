// Package node keeps one device going: it pumps the device's log through its relays, settles what earlier
// processes of the device left open, and shows by a lease of its own that the device is being served.
//
// # Guarantees
//
// After a start, every own attempt whose end this device can know is brought into the ledger, by the rules of
// dispatch.Settle; what it cannot know stays in doubt. One relay that fails never keeps another from being
// pumped. When the context of Run ends, nothing new begins, each relay is pumped once more, the lease is
// released, and Run returns nil.
//
// The lease named by Agent is for people: it lists who serves which device. Nothing rests on it, and a node
// that cannot get it goes on and says so.
//
// # Failure
//
// Run returns an error only for a mistake in the Config. Whatever fails later is logged once per change, and
// tried again.
//
// # Concurrency
//
// Run may be called once. It owns all its goroutines and has waited for them when it returns.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	multierror "github.com/hashicorp/go-multierror"
	"golang.org/x/sync/errgroup"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

// Defaults of a Config.
const (
	DefaultPumpEvery   = 5 * time.Second
	DefaultSettleEvery = 30 * time.Second
	// LastPump bounds the pump of each relay when the node goes down.
	LastPump = 5 * time.Second
)

// A Pumper is the session of a device, as a node needs it.
type Pumper interface {
	Pump(ctx context.Context, r relay.Relay) (session.Report, error)
	HeldFrontier() oplog.Frontier
}

// A Settler brings the ledger up to what the device knows.
type Settler interface {
	Settle(ctx context.Context) (dispatch.Settling, error)
}

// A Config describes a node. Session, Settler, Leases and Device are required.
type Config struct {
	Device  string
	Session Pumper
	Settler Settler
	// Leases grants the lease that shows that this device is served.
	Leases coord.LeaseCoordinator
	// Relays are pumped side by side, by their names in the log.
	Relays map[string]relay.Relay

	PumpEvery   time.Duration // 0: DefaultPumpEvery; a tenth of it is jitter
	SettleEvery time.Duration // 0: DefaultSettleEvery
	TTL         time.Duration // of the lease; 0: coord.DefaultTTL
	Logger      *slog.Logger  // nil discards
}

// A Node serves one device.
type Node struct {
	cfg Config
	log *slog.Logger
}

// Agent is the agent whose lease says that a device is being served.
func Agent(device string) string { return "node." + device }

// New checks the configuration and reports every mistake at once.
func New(cfg Config) (*Node, error) {
	var errs *multierror.Error
	for what, missing := range map[string]bool{
		"device": cfg.Device == "", "session": cfg.Session == nil, "settler": cfg.Settler == nil, "leases": cfg.Leases == nil,
	} {
		if missing {
			errs = multierror.Append(errs, fmt.Errorf("no %s", what))
		}
	}
	for what, d := range map[string]time.Duration{"pump every": cfg.PumpEvery, "settle every": cfg.SettleEvery, "ttl": cfg.TTL} {
		if d < 0 {
			errs = multierror.Append(errs, fmt.Errorf("%s %s is negative", what, d))
		}
	}
	if err := errs.ErrorOrNil(); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	cfg.PumpEvery = orElse(cfg.PumpEvery, DefaultPumpEvery)
	cfg.SettleEvery = orElse(cfg.SettleEvery, DefaultSettleEvery)
	cfg.TTL = orElse(cfg.TTL, coord.DefaultTTL)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Node{cfg: cfg, log: cfg.Logger.With("device", cfg.Device)}, nil
}

func orElse(v, def time.Duration) time.Duration {
	if v == 0 {
		return def
	}
	return v
}

// Run serves the device until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	n.log.Info("node started", "relays", len(n.cfg.Relays))
	var loops errgroup.Group
	loops.Go(func() error { n.settleLoop(ctx); return nil })
	loops.Go(func() error { n.leaseLoop(ctx); return nil })
	for name, r := range n.cfg.Relays {
		loops.Go(func() error { n.pumpLoop(ctx, name, r); return nil })
	}
	loops.Wait()
	if err := n.lastPump(ctx); err != nil {
		n.log.Warn("last pump failed; the rest is pushed after the next start", "err", err)
	}
	n.log.Info("node stopped")
	return nil
}

// lastPump offers every relay what it lacks, all at once, each within LastPump.
func (n *Node) lastPump(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LastPump)
	defer cancel()
	var pumps multierror.Group
	for name, r := range n.cfg.Relays {
		pumps.Go(func() error {
			_, err := n.cfg.Session.Pump(ctx, r)
			if err != nil {
				return fmt.Errorf("relay %s: %w", name, err)
			}
			return nil
		})
	}
	return pumps.Wait().ErrorOrNil()
}

func (n *Node) settleLoop(ctx context.Context) {
	told := change{log: n.log, what: "settling"}
	last := -1
	for {
		s, err := n.cfg.Settler.Settle(ctx)
		if ctx.Err() != nil {
			return
		}
		told.note(err)
		if s.Finished+s.Voided > 0 {
			n.log.Info("settled", "finished", s.Finished, "voided", s.Voided)
		}
		if err == nil && s.Open != last {
			if last = s.Open; last > 0 {
				n.log.Error("own runs are open: still running, or in doubt", "runs", last)
			}
		}
		if !sleep(ctx, jitter(n.cfg.SettleEvery)) {
			return
		}
	}
}

func (n *Node) pumpLoop(ctx context.Context, name string, r relay.Relay) {
	told := change{log: n.log.With("relay", name), what: "pump"}
	for {
		began := time.Now()
		report, err := n.cfg.Session.Pump(ctx, r)
		if ctx.Err() != nil {
			return
		}
		told.note(err)
		if report.Pulled > 0 || report.Pushed.Accepted > 0 {
			told.log.Debug("pumped", "pushed", report.Pushed.Accepted, "pulled", report.Pulled)
		}
		if err == nil && report.More {
			continue
		}
		if !n.awaitNews(ctx, r, began, err != nil) {
			return
		}
	}
}

// awaitNews waits for the next turn: the timer, or a hint of the relay, which may bring it forward to a fifth
// of the pause, so that a hint that is always wrong costs little.
func (n *Node) awaitNews(ctx context.Context, r relay.Relay, began time.Time, failed bool) bool {
	pause := jitter(n.cfg.PumpEvery)
	hinter, ok := r.(relay.Hinter)
	if !ok || failed {
		return sleep(ctx, pause)
	}
	if !sleep(ctx, n.cfg.PumpEvery/5) {
		return false
	}
	wait, cancel := context.WithDeadline(ctx, began.Add(pause))
	defer cancel()
	if err := hinter.Hint(wait, n.cfg.Session.HeldFrontier()); err != nil {
		<-wait.Done() // a hint that fails is as good as none
	}
	return ctx.Err() == nil
}

// leaseLoop holds the lease of Agent for as long as ctx lasts.
func (n *Node) leaseLoop(ctx context.Context) {
	told := change{log: n.log, what: "lease of this node"}
	for {
		l, err := n.takeLease(ctx)
		if ctx.Err() != nil && err != nil {
			return
		}
		told.note(err)
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
		n.log.Warn("lease of this node lost", "err", context.Cause(keeper.Context()))
		keeper.Stop()
	}
}

// A change logs when something begins to fail, and when it works again.
type change struct {
	log     *slog.Logger
	what    string
	failing string
}

func (c *change) note(err error) {
	switch {
	case err != nil && err.Error() != c.failing:
		c.failing = err.Error()
		c.log.Warn(c.what+" failed; it is tried again", "err", err)
	case err == nil && c.failing != "":
		c.failing = ""
		c.log.Info(c.what + " works again")
	}
}

// sleep says false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jitter is d, give or take a tenth.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}
