package coordtest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/coord/memory"
)

// wrong is a coordinator that breaks one promise.
type wrong struct {
	coord.Coordinator
	breaks string

	mu   sync.Mutex
	seen *coord.Lease // what a stale read shows
	n    atomic.Int64
}

func (w *wrong) Current(ctx context.Context, agent string) (coord.Lease, bool, error) {
	l, held, err := w.Coordinator.Current(ctx, agent)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.breaks == "stale read" && w.seen != nil {
		return *w.seen, true, nil
	}
	if held {
		w.seen = &l
	}
	return l, held, err
}

func (w *wrong) Acquire(ctx context.Context, req coord.Request) (coord.Lease, error) {
	l, err := w.Coordinator.Acquire(ctx, req)
	if err == nil && w.breaks == "epoch twice" && l.Epoch > 1 {
		l.Epoch--
	}
	if w.breaks == "second holder" && errors.Is(err, coord.ErrHeld) {
		return coord.Lease{Agent: req.Agent, Device: req.Device, Epoch: 1}, nil
	}
	return l, err
}

func (w *wrong) Begin(ctx context.Context, b coord.Begin) (coord.Attempt, error) {
	a, err := w.Coordinator.Begin(ctx, b)
	if w.breaks == "begin beside an open attempt" && (errors.Is(err, coord.ErrInProgress) || errors.Is(err, coord.ErrInDoubt)) ||
		w.breaks == "begin of a committed run" && errors.Is(err, coord.ErrCommitted) ||
		w.breaks == "begin without the lease" && (errors.Is(err, coord.ErrNotHeld) || errors.Is(err, coord.ErrStale)) ||
		w.breaks == "begin over a failure" && errors.Is(err, coord.ErrFailed) ||
		w.breaks == "begin of a closed attempt" && errors.Is(err, coord.ErrClosed) {
		return coord.Attempt{ID: b.Attempt, State: coord.Open}, nil
	}
	return a, err
}

func (w *wrong) Finish(ctx context.Context, o coord.Outcome) error {
	if w.breaks == "outcome forgotten" && w.n.Add(1)%2 == 0 {
		return nil
	}
	return w.Coordinator.Finish(ctx, o)
}

func (w *wrong) Release(ctx context.Context, agent, device string, epoch coord.Epoch) error {
	if w.breaks == "release forgotten" && w.n.Add(1)%2 == 0 {
		return nil
	}
	return w.Coordinator.Release(ctx, agent, device, epoch)
}

func (w *wrong) Renew(ctx context.Context, agent, device string, epoch coord.Epoch, ttl time.Duration) (coord.Lease, error) {
	l, err := w.Coordinator.Renew(ctx, agent, device, epoch, ttl)
	if w.breaks == "renewed though lost" && errors.Is(err, coord.ErrLost) {
		return coord.Lease{Agent: agent, Device: device, Epoch: epoch, TTL: ttl}, nil
	}
	return l, err
}

// The judge of histories can say no: each promise that is broken is found in a history that visits it.
func TestABrokenPromiseIsFoundInItsHistory(t *testing.T) {
	for _, breaks := range []string{"", "stale read", "epoch twice", "second holder", "begin beside an open attempt",
		"begin of a committed run", "begin without the lease", "begin over a failure", "begin of a closed attempt",
		"outcome forgotten", "release forgotten", "renewed though lost"} {
		t.Run("breaks "+breaks, func(t *testing.T) {
			store := memory.New(memory.Config{})
			h := coordtest.NewHistory()
			w := &wrong{breaks: breaks}
			tour(t, h, store, func(c coord.Coordinator) coord.Coordinator { w.Coordinator = c; return w })
			err := h.Check(time.Minute)
			if breaks == "" && err != nil {
				t.Fatalf("nothing is broken: %v", err)
			}
			if breaks != "" && (err == nil || !strings.Contains(err.Error(), "not linearizable")) {
				t.Fatalf("got %v of %d calls", err, h.Len())
			}
		})
	}
}

// tour visits all that a history can hold, one call after another, through a coordinator that may be wrong.
func tour(t *testing.T, h *coordtest.History, store *memory.Store, spoil func(coord.Coordinator) coord.Coordinator) {
	ctx := t.Context()
	inner := store.Process(coord.Process{})
	c := h.Record("one", spoil(inner))
	other := h.Record("two", store.Process(coord.Process{}))
	req := coord.Request{Agent: "a", Device: "d1", TTL: time.Minute}
	for round := range 4 {
		l, err := c.Acquire(ctx, req)
		if err != nil {
			l, _, _ = inner.Current(ctx, "a")
		}
		_, _ = c.Acquire(ctx, req)
		_, _, _ = c.Current(ctx, "a")
		run := string(rune('q' + round))
		asks := func() coord.Begin {
			return coord.Begin{Lease: l, Run: run, Attempt: coord.NewNonce(), Request: coord.NewNonce()}
		}
		ends := func(b coord.Begin, s coord.State) {
			_ = c.Finish(ctx, coord.Outcome{Agent: "a", Run: run, Attempt: coord.Attempt{ID: b.Attempt, Device: "d1", Epoch: l.Epoch, State: s}})
			_, _ = c.Look(ctx, coord.Question{Agent: "a", Run: run})
		}
		first := asks()
		_, _ = c.Begin(ctx, first)
		_, _ = c.Begin(ctx, asks())
		_ = c.Cancel(ctx, first)
		_, _ = c.Begin(ctx, first)
		second := asks()
		_, _ = c.Begin(ctx, second)
		ends(second, coord.Failed)
		_, _ = c.Begin(ctx, asks())
		third := asks()
		third.RetryFailed = true
		_, _ = c.Begin(ctx, third)
		ends(third, coord.Committed)
		_, _ = c.Begin(ctx, asks())
		for _, liveness := range inner.Livenesses() {
			store.Expire(liveness)
		}
		_, _ = c.Renew(ctx, "a", "d1", l.Epoch, time.Minute)
		_ = c.Release(ctx, "a", "d1", l.Epoch)
		_, _, _ = c.Current(ctx, "a")
		if next, err := other.Acquire(ctx, coord.Request{Agent: "a", Device: "d2", TTL: time.Minute}); err == nil {
			_, _, _ = c.Current(ctx, "a")
			fresh := asks()
			fresh.Run = "fresh"
			_, _ = c.Begin(ctx, fresh)
			_, _ = c.Renew(ctx, "a", "d1", l.Epoch, time.Minute)
			_, _, _ = c.Current(ctx, "a")
			_ = other.Release(ctx, "a", "d2", next.Epoch)
		}
	}
}

func TestAHistoryTooLargeToJudgeIsNoSuccess(t *testing.T) {
	h := coordtest.NewHistory()
	c := h.Record("one", memory.New(memory.Config{}).Process(coord.Process{}))
	for n := range 20 {
		_, _ = c.Look(t.Context(), coord.Question{Agent: "a", Run: string(rune('a' + n))})
	}
	if err := h.Check(time.Minute); err == nil {
		t.Error("20 runs were judged by a model of 7")
	}
}

// A call without an answer may have been carried out or not, until something shows which.
func TestACallWithoutAnswerMayHaveHappenedOrNot(t *testing.T) {
	for _, fault := range []coordtest.Fault{coordtest.After, coordtest.Late} {
		store := memory.New(memory.Config{})
		h := coordtest.NewHistory()
		flaky := coordtest.Faulty(store.Process(coord.Process{}), func(op string) coordtest.Fault {
			if op == "Acquire" {
				return fault
			}
			return coordtest.Fine
		})
		c := h.Record("one", flaky)
		l, err := c.Acquire(t.Context(), coord.Request{Agent: "a", Device: "d1", TTL: time.Minute})
		if !errors.Is(err, coord.ErrIndeterminate) || l.Epoch != 0 {
			t.Fatalf("got %+v, %v", l, err)
		}
		if _, held, _ := c.Current(t.Context(), "a"); held != (fault == coordtest.After) {
			t.Errorf("%v: held %v", fault, held)
		}
		flaky.Deliver()
		if _, held, _ := c.Current(t.Context(), "a"); !held {
			t.Errorf("%v: not held", fault)
		}
		if err := h.Check(time.Minute); err != nil || h.Unknown() != 1 {
			t.Errorf("%v: %v, %d unknown", fault, err, h.Unknown())
		}
	}
}

// Found by a random history: an acquire without an answer, a steal that was granted, and then the acquire landed, which the same request took for its own.
func TestAGrantThatIsAnsweredSettlesWhatWasAskedForBefore(t *testing.T) {
	for _, op := range []string{"Steal", "Start"} {
		store := memory.New(memory.Config{})
		h := coordtest.NewHistory()
		calls := 0
		flaky := coordtest.Faulty(store.Process(coord.Process{}), func(op string) coordtest.Fault {
			if calls++; calls == 1 {
				return coordtest.Late
			}
			return coordtest.Fine
		})
		c, ctx := h.Record("one", flaky), t.Context()
		req := coord.Request{Agent: "a", Device: "d1", TTL: time.Minute}
		if _, err := c.Acquire(ctx, req); !errors.Is(err, coord.ErrIndeterminate) {
			t.Fatal(err)
		}
		var l coord.Lease
		var err error
		if op == "Steal" {
			l, err = c.Steal(ctx, coord.Theft{Request: req, By: "ada", Reason: "test", Force: true})
		} else {
			l, _, err = c.Start(ctx, req, coord.Begin{Run: "r", Attempt: coord.NewNonce(), Request: coord.NewNonce()})
		}
		if err != nil {
			t.Fatal(op, err)
		}
		if err := c.Release(ctx, "a", "d1", l.Epoch); err != nil {
			t.Fatal(op, err)
		}
		flaky.Deliver()
		_, _, _ = c.Current(ctx, "a")
		if got, err := c.Acquire(ctx, req); err != nil || got.Epoch != l.Epoch+1 {
			t.Errorf("%s: got %+v, %v, want epoch %d", op, got, err, l.Epoch+1)
		}
		if err := h.Check(time.Minute); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// meddled lets something happen right after the first grant.
type meddled struct {
	coord.Coordinator
	meddle func()
}

func (m *meddled) Acquire(ctx context.Context, req coord.Request) (coord.Lease, error) {
	l, err := m.Coordinator.Acquire(ctx, req)
	if m.meddle != nil {
		m.meddle()
		m.meddle = nil
	}
	return l, err
}

func TestTheSecondCopyOfAGrantThatWasLostMeanwhileIsNotGrantedAnew(t *testing.T) {
	store := memory.New(memory.Config{})
	h := coordtest.NewHistory()
	thief, ctx := h.Record("thief", store.Process(coord.Process{})), t.Context()
	c := h.Record("one", coordtest.Faulty(&meddled{store.Process(coord.Process{}), func() {
		l, err := thief.Steal(ctx, coord.Theft{Request: coord.Request{Agent: "a", Device: "d2", TTL: time.Minute}, By: "ada", Reason: "test", Force: true, Epoch: 1})
		if err == nil {
			err = thief.Release(ctx, "a", "d2", l.Epoch)
		}
		if err != nil {
			t.Error(err)
		}
	}}, func(string) coordtest.Fault { return coordtest.Twice }))
	if l, err := c.Acquire(ctx, coord.Request{Agent: "a", Device: "d1", TTL: time.Minute}); err != nil || l.Epoch != 1 {
		t.Fatalf("got %+v, %v", l, err)
	}
	if l, held, err := c.Current(ctx, "a"); err != nil || held || l.Epoch != 2 {
		t.Errorf("held %v at epoch %d, %v; want not held, at the thief's", held, l.Epoch, err)
	}
	if err := h.Check(time.Minute); err != nil {
		t.Error(err)
	}
}

// A stepBetween does something after the first begin that it passes on.
type stepBetween struct {
	coord.Coordinator
	then func()
}

func (s *stepBetween) Begin(ctx context.Context, b coord.Begin) (coord.Attempt, error) {
	a, err := s.Coordinator.Begin(ctx, b)
	if then := s.then; then != nil {
		s.then = nil
		then()
	}
	return a, err
}

// Found by a random history: a begin was refused since another was open, that one was cancelled, and the copy of the first opened an attempt.
func TestACopyOfARefusedBeginIsNotCarriedOut(t *testing.T) {
	ctx, store := t.Context(), memory.New(memory.Config{})
	c := store.Process(coord.Process{})
	l, err := c.Acquire(ctx, coord.Request{Agent: "a", Device: "d1", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(attempt string) coord.Begin {
		return coord.Begin{Lease: l, Run: "r", Occurrence: "key:k", Attempt: attempt, Request: coord.NewNonce()}
	}
	open := begin(coord.NewNonce())
	if _, err := c.Begin(ctx, open); err != nil {
		t.Fatal(err)
	}
	inner := &stepBetween{Coordinator: c, then: func() {
		if err := c.Cancel(ctx, open); err != nil {
			t.Error(err)
		}
	}}
	flaky := coordtest.Faulty(inner, func(string) coordtest.Fault { return coordtest.Twice })
	if _, err := flaky.Begin(ctx, begin(coord.NewNonce())); !errors.Is(err, coord.ErrInProgress) {
		t.Fatalf("begin beside an open attempt: %v", err)
	}
	if v, err := c.Look(ctx, coord.Question{Agent: "a", Run: "r"}); err != nil || v.State != coord.RunFree {
		t.Errorf("the run is %q (%v) after its begin was refused and the other cancelled", v.State, err)
	}
}
