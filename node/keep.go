package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

// A Keeper is a session that keeps its log bounded by checkpoints.
type Keeper interface {
	Uncovered(roster []relay.Member, heads oplog.Frontier) (all, stable uint64)
	Rebase(ctx context.Context, r relay.Relay) (session.Adopted, bool, error)
	Publish(ctx context.Context, r relay.Relay, retired ...string) (session.Published, error)
}

const (
	// LongestPublish bounds the making of a checkpoint, during which nothing is pumped.
	LongestPublish = 5 * time.Minute
	// longestLook is the longest pause between two looks at whether enough is stable.
	longestLook = 10 * time.Minute
	// aidEvery is the pause between two looks for a replica that does not get on.
	aidEvery = time.Hour
)

// A keeping is what a pump loop knows of the checkpoints of its relay. It costs a count of chains per pump until enough ops are in no
// checkpoint; only then it asks the relay.
type keeping struct {
	n     *Node
	log   *slog.Logger
	relay relay.Relay
	store relay.Collector // nil: the relay keeps every op, and there is nothing to do
	told  change
	swept change

	look  time.Time // the relay is not asked before
	pause time.Duration
	due   time.Time // when to publish; zero if it was not ready yet
	sweep time.Time // when to collect again; zero if nothing is marked
	aid   time.Time // when to look whether a replica is stranded
	// lacking are the replicas that lacked what was collected at the last look
	lacking []string
}

func (n *Node) keeping(log *slog.Logger, r relay.Relay) *keeping {
	k := &keeping{n: n, log: log, relay: r, told: change{log: log, what: "checkpoint"}, swept: change{log: log, what: "collection"}, aid: nextAid(aidEvery)}
	if n.cfg.Keeper != nil && n.cfg.CheckpointEvery > 0 {
		k.store, _ = r.(relay.Collector)
	}
	return k
}

// turn does after a pump what is due. A relay that is full is collected as soon as anything at all may go.
func (k *keeping) turn(ctx context.Context, report session.Report, full bool) error {
	if k.store == nil {
		return nil
	}
	if err := k.sweepIfDue(ctx); err != nil {
		return err
	}
	stranded := k.stranded(ctx, report.Floor)
	if !k.ready(full) && !stranded {
		return nil
	}
	err := k.wait(k.act(ctx, report, full || stranded))
	if ctx.Err() == nil {
		k.told.note(err, keepTrouble(err))
	}
	return err
}

func (k *keeping) sweepIfDue(ctx context.Context) error {
	if k.sweep.IsZero() || time.Now().Before(k.sweep) {
		return nil
	}
	err := k.collect(ctx)
	if ctx.Err() == nil {
		k.swept.note(err, keepTrouble(err))
	}
	return err
}

// ready reports whether enough ops are in no checkpoint, and it is time to ask the relay about them.
func (k *keeping) ready(full bool) bool {
	all, _ := k.n.cfg.Keeper.Uncovered(nil, nil)
	if all == 0 || all < uint64(k.n.cfg.CheckpointEvery) && !full {
		k.due, k.pause = time.Time{}, 0
		return false
	}
	now := time.Now()
	if now.Before(k.look) {
		return false
	}
	if k.due.IsZero() {
		// Somebody else may be about to make the same one: the first to do it spares the others the work.
		k.due = now.Add(rand.N(3 * k.n.cfg.PumpEvery))
	}
	return !now.Before(k.due)
}

func nextAid(pause time.Duration) time.Time { return time.Now().Add(jitter(pause)) }

// stranded reports now and then whether a replica does not get on: it lacks what was collected, and did so ten minutes ago. Mostly it takes
// the relay's checkpoint with its next pump. It cannot if that one does not cover its own, as may be after the relay was lost: then one
// that covers both has to be made, however little there is for it.
func (k *keeping) stranded(ctx context.Context, floor oplog.Frontier) bool {
	if all, _ := k.n.cfg.Keeper.Uncovered(nil, nil); all == 0 || time.Now().Before(k.aid) {
		return false
	}
	roster, err := k.relay.Roster(ctx)
	if err != nil {
		k.aid = nextAid(aidEvery)
		return false
	}
	var lacking []string
	for _, m := range roster {
		if m.Role == relay.Replica && !m.Evicted && m.Device != k.n.cfg.Device && !m.Acked.Dominates(floor) {
			lacking = append(lacking, m.Device)
		}
	}
	still := slices.ContainsFunc(lacking, func(device string) bool { return slices.Contains(k.lacking, device) })
	k.lacking, k.aid = lacking, nextAid(aidEvery)
	if len(lacking) > 0 && !still {
		k.aid = nextAid(longestLook)
	}
	return still
}

// act takes the relay's checkpoint, or makes one if enough is stable: a quarter of the threshold is worth it.
func (k *keeping) act(ctx context.Context, report session.Report, full bool) error {
	if report.Newer {
		took, err := k.rebase(ctx)
		if _, each := k.store.(relay.OwnCollector); each && took && err == nil {
			return k.collect(ctx) // whoever published it could not collect this device's chain
		}
		if err != nil || took {
			return err
		}
	}
	roster, err := k.relay.Roster(ctx)
	if err != nil {
		return err
	}
	_, stable := k.n.cfg.Keeper.Uncovered(roster, report.Heads)
	if stable == 0 || 4*stable < uint64(k.n.cfg.CheckpointEvery) && !full {
		return nil
	}
	return k.publish(ctx)
}

// wait puts the next look off, longer each time as long as it changes nothing.
func (k *keeping) wait(err error) error {
	k.due = time.Time{}
	k.pause = min(max(2*k.pause, 4*k.n.cfg.PumpEvery), longestLook)
	k.look = time.Now().Add(jitter(k.pause))
	return err
}

// rebase takes the checkpoint that another device made. One that covers less is left to publish, which offers a better one.
func (k *keeping) rebase(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, LongestPublish, fmt.Errorf("not done within %s", LongestPublish))
	defer cancel()
	_, took, err := k.n.cfg.Keeper.Rebase(ctx, k.relay)
	if _, behind := errors.AsType[*checkpoint.BehindError](err); behind {
		return false, nil
	}
	if took {
		k.pause = 0 // the session tells it
	}
	return took, err
}

func (k *keeping) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, LongestPublish, fmt.Errorf("not done within %s", LongestPublish))
	defer cancel()
	done, err := k.n.cfg.Keeper.Publish(ctx, k.relay)
	if done.New {
		k.pause = 0
		k.log.Info("checkpoint published", "checkpoint", short(string(done.Checkpoint)), "segments", done.Dropped.Segments, "bytes", done.Dropped.Bytes)
	}
	if err != nil && !errors.Is(err, relay.ErrFull) {
		return err
	}
	return errors.Join(err, k.collect(ctx)) // what an earlier checkpoint covers may make room for this one
}

// collect lets the relay drop what may go, and comes back for what it marked.
func (k *keeping) collect(ctx context.Context) error {
	k.sweep = time.Now().Add(jitter(relay.Grace + relay.Grace/4))
	done, err := k.store.Collect(ctx)
	if err != nil {
		return err
	}
	if n := total(done.Dropped); n > 0 {
		k.log.Info("relay collected", "ops", n)
	}
	if total(done.Marked) == 0 {
		k.sweep = time.Time{}
	}
	return nil
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func short(hash string) string { return hash[:min(len(hash), 12)] }

func keepTrouble(err error) trouble {
	_, disputed := errors.AsType[*checkpoint.DisputedError](err)
	switch {
	case disputed:
		return trouble{"this device folds another state than the one that made the relay's checkpoint: a person has to look", slog.LevelError}
	case errors.Is(err, relay.ErrCorrupt):
		return trouble{"the relay's store is damaged, or of a newer release: a person has to look", slog.LevelError}
	case errors.Is(err, seal.ErrNoKey), errors.Is(err, seal.ErrVersion), errors.Is(err, seal.ErrTampered), errors.Is(err, seal.ErrClear):
		return sealTrouble(err)
	case errors.Is(err, session.ErrAccepted):
		return trouble{"a chain was accepted across a break; another device has to make it", slog.LevelWarn}
	case errors.Is(err, relay.ErrFull):
		return trouble{"the relay has no room for it", slog.LevelError}
	case errors.Is(err, session.ErrFrozen):
		return trouble{"the id is frozen", slog.LevelWarn}
	case errors.Is(err, relay.ErrNotSent), errors.Is(err, relay.ErrIndeterminate), errors.Is(err, context.DeadlineExceeded):
		return trouble{"the relay cannot be reached", slog.LevelWarn}
	default:
		return trouble{"it could not be made", slog.LevelWarn}
	}
}
