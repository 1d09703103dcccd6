package node_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

// A countingSession counts the pumps of each relay.
type countingSession struct {
	mu    sync.Mutex
	pumps map[relay.Relay]int
	fail  map[relay.Relay]error
}

func newCounting() *countingSession {
	return &countingSession{pumps: map[relay.Relay]int{}, fail: map[relay.Relay]error{}}
}

func (s *countingSession) Pump(ctx context.Context, r relay.Relay) (session.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return session.Report{}, ctx.Err()
	}
	s.pumps[r]++
	return session.Report{}, s.fail[r]
}
func (s *countingSession) HeldFrontier() oplog.Frontier { return nil }
func (s *countingSession) Appended() <-chan struct{}    { return nil }
func (s *countingSession) count(r relay.Relay) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pumps[r]
}

type settler struct {
	mu     sync.Mutex
	asked  int
	answer dispatch.Settling
	err    error
}

func (s *settler) Settle(context.Context) (dispatch.Settling, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.answer, s.err
}

func (s *settler) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// plain is a relay that gives no hints; hinting gives one whenever news is sent to.
type plain struct{ relay.Relay }
type hinting struct {
	relay.Relay
	news chan struct{}
}

func (h *hinting) Hint(ctx context.Context, _ oplog.Frontier) error {
	select {
	case <-h.news:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A world is one node in a bubble.
type world struct {
	sess  *countingSession
	set   *settler
	store *memory.Store
	log   bytes.Buffer
	cfg   node.Config
}

func newWorld(relays map[string]relay.Relay) *world {
	w := &world{
		sess: newCounting(), set: &settler{},
		store: memory.New(memory.Config{}),
	}
	w.cfg = node.Config{Device: "d1", Session: w.sess, Settler: w.set, Leases: w.store.Process(coord.Process{}),
		Runs: w.store.Process(coord.Process{}), Relays: relays, Logger: slog.New(slog.NewTextHandler(&w.log, nil))}
	return w
}

// run starts the node and returns how to stop it in good order.
func (w *world) run(t *testing.T) (stop func()) {
	t.Helper()
	n, err := node.New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestAFailingRelayKeepsNoOtherFromBeingPumped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := &plain{}, &plain{}
		w := newWorld(map[string]relay.Relay{"good": good, "bad": bad})
		w.sess.fail[bad] = errors.New("unreachable")
		stop := w.run(t)
		bubble.Pass(60 * time.Second)
		stop()
		if got := w.sess.count(good); got < 11 || got > 16 {
			t.Errorf("good relay pumped %d times in 60 s, want 11 to 16", got)
		}
		if got := w.sess.count(bad); got < 11 {
			t.Errorf("bad relay tried %d times, want at least 11", got)
		}
		if got := strings.Count(w.log.String(), `msg="pump failed`); got != 1 {
			t.Errorf("one lasting trouble was told %d times, want once", got)
		}
	})
}

func TestAHintBringsThePumpForwardAndNoStormOfHintsDoesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &hinting{news: make(chan struct{})}
		close(r.news) // always: a relay that cries wolf
		w := newWorld(map[string]relay.Relay{"etcd": r})
		stop := w.run(t)
		bubble.Pass(60 * time.Second)
		if got := w.sess.count(r); got < 55 || got > 65 {
			t.Errorf("pumped %d times in 60 s, want one a second", got)
		}
		stop()
	})
}

func TestTheNodeSettlesAtItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		stop := w.run(t)
		synctest.Wait()
		if got := w.set.times(); got != 1 {
			t.Errorf("settled %d times at the start, want once", got)
		}
		stop()
	})
}

func TestTheLeaseOfANodeIsRenewedAndReleasedInGoodOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		asker := w.store.Process(coord.Process{})
		stop := w.run(t)
		bubble.Pass(10 * time.Minute)
		l, held, err := asker.Current(t.Context(), node.Agent("d1"))
		if err != nil || !held || l.Expired || l.Epoch != 1 {
			t.Errorf("after ten minutes: %+v held %v err %v; want epoch 1, held and not expired", l, held, err)
		}
		stop()
		if _, held, err := asker.Current(t.Context(), node.Agent("d1")); err != nil || held {
			t.Errorf("after the stop: held %v, err %v; want released", held, err)
		}
	})
}

func TestAStolenLeaseStopsNothingAndIsTakenBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &plain{}
		w := newWorld(map[string]relay.Relay{"r": r})
		stop := w.run(t)
		synctest.Wait()
		thief := w.store.Process(coord.Process{})
		if _, err := thief.Steal(t.Context(), coord.Theft{
			Request: coord.Request{Agent: node.Agent("d1"), Device: "d2", TTL: 15 * time.Second}, By: "test", Reason: "test", Force: true, Epoch: 1,
		}); err != nil {
			t.Fatal(err)
		}
		before := w.sess.count(r)
		bubble.Pass(2 * time.Minute)
		if w.sess.count(r) <= before {
			t.Error("the pump stopped with the lease")
		}
		l, held, err := thief.Current(t.Context(), node.Agent("d1"))
		if err != nil || !held || l.Device != "d1" || l.Epoch != 3 {
			t.Errorf("after the thief's lease ran out: %+v held %v err %v; want d1 at epoch 3", l, held, err)
		}
		stop()
	})
}

func TestAGoodStopPumpsEachRelayOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &plain{}
		w := newWorld(map[string]relay.Relay{"r": r})
		stop := w.run(t)
		synctest.Wait()
		before := w.sess.count(r)
		stop()
		if got := w.sess.count(r) - before; got != 1 {
			t.Errorf("%d pumps after the stop, want 1", got)
		}
	})
}

func TestANodeWithoutASessionOrLeasesSettlesAndIsInNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		w.cfg.Session, w.cfg.Leases = nil, nil
		stop := w.run(t)
		bubble.Pass(2 * time.Minute)
		stop()
		if w.set.times() < 3 {
			t.Errorf("settled %d times in two minutes", w.set.times())
		}
		if l, held, err := w.store.Process(coord.Process{}).Current(t.Context(), node.Agent("d1")); err != nil || held || l.Epoch != 0 {
			t.Errorf("it left a lease: %+v, %v", l, err)
		}
	})
}

func TestEveryMistakeOfAConfigIsReportedAtOnce(t *testing.T) {
	_, err := node.New(node.Config{PumpEvery: -1, Relays: map[string]relay.Relay{"r": &plain{}}})
	for _, want := range []string{"no device", "no session for the relays", "no settler", "no runs", "pump every"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
