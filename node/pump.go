package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

func (n *Node) pumpLoop(ctx context.Context, name string, r relay.Relay, known *memory) {
	told := change{log: n.log.With("relay", name), what: "pump"}
	keep := n.keeping(told.log, r)
	for {
		began, appended := time.Now(), n.cfg.Session.Appended()
		report, err := n.pump(ctx, r, LongestPump)
		if n.ended(ctx, err) {
			return
		}
		told.note(err, pumpTrouble(err))
		n.cfg.Observer.Pumped(name, report, err)
		known.saw(told.log, name, report)
		if report.Pulled > 0 || report.Pushed.Accepted > 0 {
			told.log.Debug("pumped", "pushed", report.Pushed.Accepted, "pulled", report.Pulled)
		}
		if err == nil && report.More && report.Pulled > 0 {
			continue
		}
		if full := errors.Is(err, relay.ErrFull); err == nil || full {
			if n.ended(ctx, keep.turn(ctx, report, full)) {
				return
			}
		}
		if !n.awaitNews(ctx, r, began, appended, err != nil) {
			return
		}
	}
}

func (n *Node) pump(ctx context.Context, r relay.Relay, longest time.Duration) (session.Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not done within %s", longest))
	defer cancel()
	return n.cfg.Session.Pump(ctx, r)
}

// lastPumps offers every relay what it lacks. A session pumps one at a time, so each has its share of the time.
func (n *Node) lastPumps(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LastPump)
	defer cancel()
	deadline, _ := ctx.Deadline()
	names := slices.Sorted(maps.Keys(n.cfg.Relays))
	for i, name := range names {
		share := time.Until(deadline) / time.Duration(len(names)-i)
		if _, err := n.pump(ctx, n.cfg.Relays[name], share); err != nil {
			n.log.Warn("last pump failed; the rest is pushed after the next start", "relay", name, "err", err)
		}
	}
}

// gather is how long the first own op waits for others to go with it: what a run that takes no time writes is one push.
const gather = 100 * time.Millisecond

// awaitNews waits for the next turn: the timer, or an own op or a hint of the relay. These may bring it forward to a fifth of the pause,
// so that a stream of small ops costs little, and so does a hint that is always wrong. After a failure the timer alone counts.
func (n *Node) awaitNews(ctx context.Context, r relay.Relay, began time.Time, appended <-chan struct{}, failed bool) bool {
	pause := jitter(n.cfg.PumpEvery)
	if failed {
		return sleep(ctx, pause)
	}
	if !sleep(ctx, n.cfg.PumpEvery/5) {
		return false
	}
	wait, cancel := context.WithDeadline(ctx, began.Add(pause))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	hinted := make(chan struct{})
	if hinter, ok := r.(relay.Hinter); ok {
		asking.Go(func() {
			if hinter.Hint(wait, n.cfg.Session.HeldFrontier()) == nil { // one that fails is as good as none
				close(hinted)
			}
		})
	}
	select {
	case <-appended:
		sleep(wait, gather)
	case <-hinted:
	case <-wait.Done():
	}
	return ctx.Err() == nil
}

// sealTrouble is that of a checkpoint that is sealed, or should be.
func sealTrouble(err error) trouble {
	switch {
	case errors.Is(err, seal.ErrNoKey):
		return trouble{"a seal key is missing: bring the fleet's key file here, it is read without a restart", slog.LevelError}
	case errors.Is(err, seal.ErrVersion):
		return trouble{"the relay's checkpoint was sealed by a newer release: upgrade this node", slog.LevelError}
	case errors.Is(err, seal.ErrClear):
		return trouble{"the relay's checkpoint is not sealed: find out who made it, or allow it with --seal-accept-clear", slog.LevelError}
	}
	return trouble{"the seal of the relay's checkpoint is broken: somebody changed it", slog.LevelError}
}

// pumpTrouble tells the kinds of trouble apart by what has to be done about them. The worst of several counts.
func pumpTrouble(err error) trouble {
	var frozen *session.FrozenError
	switch {
	case errors.As(err, &frozen):
		return trouble{"the relay has another history of this device: a person has to look", slog.LevelError}
	case errors.Is(err, relay.ErrCorrupt):
		return trouble{"the relay's store is damaged, or of a newer release: a person has to look", slog.LevelError}
	case errors.Is(err, seal.ErrNoKey), errors.Is(err, seal.ErrVersion), errors.Is(err, seal.ErrTampered), errors.Is(err, seal.ErrClear):
		return sealTrouble(err)
	case errors.Is(err, session.ErrRelayBehind):
		return trouble{"the relay lacks own ops that are only in a checkpoint: put back a later copy of it", slog.LevelError}
	case errors.Is(err, relay.ErrFull):
		return trouble{"the relay is full: nothing is lost, and nothing is pushed until it has more space", slog.LevelError}
	case errors.Is(err, relay.ErrNotSent), errors.Is(err, relay.ErrIndeterminate), errors.Is(err, context.DeadlineExceeded):
		return trouble{"the relay cannot be reached", slog.LevelWarn}
	default:
		return trouble{"the pump failed", slog.LevelWarn}
	}
}
