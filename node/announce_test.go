package node_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/node/owner"
)

func TestALeaseOfANodeSaysWhatItAnnouncesAlsoAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		w.store = memory.New(memory.Config{Dead: func(coord.Lease) bool { return true }})
		life := w.store.Process(coord.Process{})
		w.cfg.Leases, w.cfg.Runs = life, life
		first, second := owner.Note([]string{"x"}), owner.Note([]string{"x", "y"})
		says := func(want string) {
			t.Helper()
			l, held, err := w.store.Process(coord.Process{}).Current(t.Context(), node.Agent("d1"))
			if err != nil || !held || l.Expired || l.Note != want {
				t.Errorf("the lease says %q (held %v, expired %v, %v), want %q", l.Note, held, l.Expired, err, want)
			}
		}
		start := func(note string) (*node.Node, func()) {
			n, err := node.New(w.cfg)
			if err != nil {
				t.Fatal(err)
			}
			n.Announce(note)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = n.Run(ctx) }()
			synctest.Wait()
			return n, func() { cancel(); <-done }
		}
		n, stop := start(first)
		says(first)
		n.Announce(second)
		synctest.Wait()
		says(second)
		n.Announce(owner.Idle)
		n.Announce(first)
		bubble.Pass(time.Minute)
		says(first)
		life.Crash()
		stop()
		life = w.store.Process(coord.Process{})
		w.cfg.Leases, w.cfg.Runs = life, life
		_, stop = start(second)
		says(second)
		stop()
	})
}
