// Package node keeps one device going: it pumps the device's log through its relays, settles what earlier
// processes of the device left open, and shows by a lease of its own that the device is being served.
//
// # Guarantees
//
// After a start, every own attempt whose end this device can know is brought into the ledger, by the rules of
// dispatch.Settle; what it cannot know stays in doubt, and each run in doubt is told once. A relay that fails
// never keeps another from being pumped, and one that does not answer delays the others by no more than
// LongestPump. When the context of Run ends, nothing new begins, each relay is pumped once more, the lease is
// released, and Run returns nil.
//
// An op that this process appends is pushed a moment later, unless the last pump of that relay failed or is less than a fifth of PumpEvery
// ago; one of another process waits for the timer.
//
// The log stays bounded: when CheckpointEvery ops are in no checkpoint and enough of them are stable, the node takes the relay's
// newest one or makes one itself, drops what it covers here, and lets the relay collect. One of a fleet is enough, and several do no
// harm. A relay that is full is collected as soon as anything may go. A node with nothing new asks for nothing.
//
// A relay that is another store than before, or lost ops that it had or answered for, is told once, and once when it has them again; each
// device offers it again what it lacks.
//
// Under a recovery gate the device offers what it remembers to the ledger, once, by itself.
//
// The lease named by Agent lists who serves which device, and its note tells other nodes which scheduled agents this one runs, see
// Announce. No safety rests on it, and a node that cannot get it goes on and says so. A node without Config.Leases has none, and is in no list.
//
// # Failure
//
// Whatever fails is tried again for ever, and told when it begins, when it becomes another trouble, and when it
// is over. Run returns an error only where Config.Fatal says that this node cannot go on.
//
// # Concurrency
//
// Run may be called once. It owns all its goroutines and has waited for them when it returns.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	multierror "github.com/hashicorp/go-multierror"
	"golang.org/x/sync/errgroup"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/owner"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

// Defaults of a Config, and bounds.
const (
	DefaultPumpEvery   = 5 * time.Second
	DefaultSettleEvery = 30 * time.Second
	// DefaultCheckpointEvery is some megabytes of ops.
	DefaultCheckpointEvery = 10_000
	// LongestPump bounds one pump, and one settling. What a pump did until then stands, and the next goes on.
	LongestPump = time.Minute
	// LastPump bounds the pumps of all relays when the node goes down, and beside them the release of the lease.
	LastPump = 5 * time.Second
)

// A Pumper is the session of a device, as a node needs it.
type Pumper interface {
	Pump(ctx context.Context, r relay.Relay) (session.Report, error)
	HeldFrontier() oplog.Frontier
	// Appended is closed with the next op that this process appends to the own chain.
	Appended() <-chan struct{}
}

// A Settler brings the ledger up to what the device knows.
type Settler interface {
	Settle(ctx context.Context) (dispatch.Settling, error)
}

// A Lister lists runs of the ledger.
type Lister interface {
	List(ctx context.Context, f coord.Filter) (coord.Page, error)
}

// A Config describes a node. Settler, Runs and Device are required.
type Config struct {
	Device string
	// Session is pumped through the Relays; nil only without any.
	Session Pumper
	Settler Settler
	// Leases grants the lease that shows that this device is served; nil for a device whose name is gone with its process: a lease's epoch is
	// kept for ever.
	Leases coord.LeaseCoordinator
	// Runs tells which runs of the device are in doubt.
	Runs Lister
	// Relays are pumped each at its own pace, by their names in the log.
	Relays map[string]relay.Relay
	// Keeper, if not nil, is the session again: it keeps the log bounded.
	Keeper Keeper
	// Watcher, if not nil, is the session again: which of its chains are quarantined is written to StateFile.
	Watcher Watcher
	// Rescuer, if not nil, is asked every SettleEvery to offer what the device remembers, for a ledger that went back.
	Rescuer Rescuer
	// Observer, if not nil, hears how the loops fare.
	Observer Observer
	// StateFile is where the node keeps what it saw of its relays; empty keeps it in memory only.
	StateFile string
	// Fatal tells whether an error means that another node has to go on instead of this one; nil: none does.
	Fatal func(error) bool

	PumpEvery   time.Duration // 0: DefaultPumpEvery; a tenth of it is jitter
	SettleEvery time.Duration // 0: DefaultSettleEvery
	TTL         time.Duration // of the lease; 0: coord.DefaultTTL
	// CheckpointEvery is how many ops may be in no checkpoint; 0: DefaultCheckpointEvery, below 0: any number.
	CheckpointEvery int
	Logger          *slog.Logger // nil discards
}

// A Node serves one device.
type Node struct {
	cfg  Config
	log  *slog.Logger
	fail context.CancelCauseFunc // set by Run before any loop starts
	note announcement
}

// Agent is the agent whose lease says that a device is being served.
func Agent(device string) string { return owner.Agent(device) }

// New checks the configuration and reports every mistake at once.
func New(cfg Config) (*Node, error) {
	var errs *multierror.Error
	for what, missing := range map[string]bool{
		"device": cfg.Device == "", "session for the relays": cfg.Session == nil && len(cfg.Relays) > 0, "settler": cfg.Settler == nil,
		"runs": cfg.Runs == nil,
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
	cfg.CheckpointEvery = orElse(cfg.CheckpointEvery, DefaultCheckpointEvery)
	if cfg.Fatal == nil {
		cfg.Fatal = func(error) bool { return false }
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Node{cfg: cfg, log: cfg.Logger.With("device", cfg.Device), note: announcement{text: owner.Idle, changed: make(chan struct{})}}, nil
}

func orElse[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Run serves the device until ctx ends, or an error is fatal.
func (n *Node) Run(ctx context.Context) error {
	ctx, n.fail = context.WithCancelCause(ctx)
	defer n.fail(nil)
	n.log.Info("node started", "relays", slices.Sorted(maps.Keys(n.cfg.Relays)))
	var writers, lease errgroup.Group
	known := n.remember()
	if n.cfg.Leases != nil {
		lease.Go(func() error { n.leaseLoop(ctx); return nil })
	}
	writers.Go(func() error { n.settleLoop(ctx); return nil })
	if n.cfg.Rescuer != nil {
		writers.Go(func() error { n.rescueLoop(ctx); return nil })
	}
	for name, r := range n.cfg.Relays {
		writers.Go(func() error { n.pumpLoop(ctx, name, r, known); return nil })
	}
	writers.Wait()
	known.last()
	fatal := context.Cause(ctx)
	if fatal == nil || !n.cfg.Fatal(fatal) {
		fatal = nil
		n.lastPumps(ctx)
	}
	lease.Wait()
	n.log.Info("node stopped")
	if fatal != nil {
		return fmt.Errorf("node of device %s cannot go on: %w", n.cfg.Device, fatal)
	}
	return nil
}

// ended reports whether a loop has to end: the context did, or err is fatal and ends it.
func (n *Node) ended(ctx context.Context, err error) bool {
	if err != nil && n.cfg.Fatal(err) {
		n.fail(err)
	}
	return ctx.Err() != nil
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
