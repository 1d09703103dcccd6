package dir_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// A keeper is a device that pushes, publishes and collects, round after round. Each step may be repeated.
type keeper struct {
	a       *relaytest.Author
	now     time.Time
	pushed  int // ops that a push answered for
	covered int // ops in a checkpoint whose put was answered for
}

const (
	rounds = 2
	each   = 4
)

func newKeeper(t *testing.T) *keeper {
	k := &keeper{a: relaytest.NewAuthor("a"), now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	k.a.Write(t, rounds*each, 60)
	return k
}

func (k *keeper) open(t *testing.T, fs dir.FS) *dir.Relay {
	return open(t, dir.Config{FS: fs, SegmentBytes: 900, Now: func() time.Time { return k.now }})
}

// run goes on until the first error.
func (k *keeper) run(t *testing.T, r *dir.Relay) error {
	ctx := t.Context()
	for i := range rounds {
		for j := range each / 2 {
			ops := k.a.Ops[i*each+2*j : i*each+2*j+2]
			if int(ops[1].Seq) < k.covered {
				continue // a session pushes from the relay's head on
			}
			if _, err := r.Push(ctx, "a", ops); err != nil && !errors.Is(err, relay.ErrFrontierTruncated) {
				return fmt.Errorf("push %d: %w", ops[0].Seq, err)
			}
			k.pushed = max(k.pushed, int(ops[1].Seq)+1)
		}
		n := (i + 1) * each
		if n < k.covered {
			continue
		}
		if err := r.Register(ctx, "a", relay.Replica); err != nil {
			return err
		}
		if err := r.Ack(ctx, "a", k.at(n)); err != nil {
			return err
		}
		c := checkpointOf("a", n-1, k.a)
		if i == 1 { // by a seed it is the same file
			if err := r.Seed(ctx, "a", c, headsAt(n-1, k.a)); err != nil && !errors.Is(err, relay.ErrBehind) {
				return err
			}
		} else if err := r.PutCheckpoint(ctx, "a", c); err != nil && !errors.Is(err, relay.ErrBehind) {
			return err
		}
		k.covered = max(k.covered, n-1)
		for range 3 {
			if _, err := r.Collect(ctx); err != nil {
				return err
			}
			k.now = k.now.Add(relay.Grace)
		}
	}
	return nil
}

func (k *keeper) at(n int) oplog.Frontier {
	return oplog.Frontier{"a": {Seq: uint64(n - 1), ID: k.a.Ops[n-1].ID}}
}

// check holds what was answered against what a new handle finds: a checkpoint at least as far, and every op above it.
func (k *keeper) check(t *testing.T, root string) {
	t.Helper()
	r := k.open(t, newSwift(t, root))
	c, ok, err := r.Checkpoint(t.Context())
	if err != nil && (k.covered > 0 || !errors.Is(err, relay.ErrCorrupt)) || k.covered > 0 && !ok {
		t.Fatalf("checkpoint %v, %v; %d ops were covered", ok, err, k.covered)
	}
	if ok && int(c.Frontier["a"].Seq)+1 < k.covered {
		t.Fatalf("the newest checkpoint covers up to seq %d, %d ops were covered", c.Frontier["a"].Seq, k.covered)
	}
	held := c.Frontier.Clone()
	page, err := r.Pull(t.Context(), "z", relay.Want{Held: held})
	if err != nil {
		t.Fatalf("pull from the checkpoint at %v: %v", held, err)
	}
	next := held.Next("a")
	for _, op := range page.Ops {
		if op.Seq != next || op.ID != k.a.Ops[op.Seq].ID {
			t.Fatalf("op %d after %d", op.Seq, next)
		}
		next++
	}
	if int(next) < k.pushed {
		t.Fatalf("ops up to %d, pushes of %d were answered for", next, k.pushed)
	}
}

func TestACrashAtAnyCallOfACollectionLosesNothingThatIsNotInTheCheckpoint(t *testing.T) {
	t.Parallel()
	for call := 1; ; call += thorough.Of(1, 3) {
		hard := call%2 == 0 // a power loss: a write is torn, and what was not synced is gone
		root, k := t.TempDir(), newKeeper(t)
		d := newDisk(t, root)
		d.failAt, d.crash, d.torn = call, true, hard
		err := k.run(t, k.open(t, d))
		if d.calls < call {
			if err != nil || call < 40 {
				t.Fatalf("%d calls change something; %v", call, err)
			}
			k.check(t, root)
			break
		}
		if err != nil && !errors.Is(err, relay.ErrNotSent) && !errors.Is(err, relay.ErrIndeterminate) {
			t.Fatalf("call %d: %v says neither that nothing happened nor that it may have", call, err)
		}
		if hard {
			d.lose(t)
		}
		k.check(t, root)
		if err := k.run(t, k.open(t, newSwift(t, root))); err != nil {
			t.Fatalf("call %d: after the crash: %v", call, err)
		}
		k.check(t, root)
		done, err := k.open(t, newSwift(t, root)).Collect(t.Context())
		if err != nil || done.Floor["a"].Seq != rounds*each-2 {
			t.Fatalf("call %d: in the end the floor is %v, %v", call, done.Floor, err)
		}
	}
}

func TestAnyCallOfACollectionMayFailOnce(t *testing.T) {
	t.Parallel()
	for call := 1; ; call += thorough.Of(1, 3) {
		root, k := t.TempDir(), newKeeper(t)
		d := newDisk(t, root)
		d.failAt = call
		r := k.open(t, d)
		_ = k.run(t, r)
		if d.calls < call {
			break
		}
		if err := k.run(t, r); err != nil {
			t.Fatalf("call %d: the second try of the same handle: %v", call, err)
		}
		d.lose(t)
		k.check(t, root)
	}
}
