package dispatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
)

// hold takes the agent's lease for h and keeps it. What it asks is not counted among the calls of runs.
func hold(t *testing.T, h *host) *coord.Keeper {
	t.Helper()
	l, err := h.c.Acquire(t.Context(), coord.Request{Agent: agent, Device: h.cfg.Device, TTL: coord.DefaultTTL})
	if err != nil {
		t.Fatal(err)
	}
	k := coord.Keep(t.Context(), h.c, l, coord.KeepOptions{})
	t.Cleanup(k.Stop)
	return k
}

func under(k dispatch.Held, occ string) func(*dispatch.Job) {
	return func(j *dispatch.Job) { j.Held, j.Occurrence, j.Run = k, occ, runID(occ) }
}

func (f *faulty) asked(op string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.calls, op)
}

func TestRunsUnderAHeldLeaseShareItsEpochAndLeaveItHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{takes: time.Minute}
		k := hold(t, h)
		defer k.Stop()
		for _, occ := range []string{"key:1", "key:2", "key:3"} {
			r := h.run(w, under(k, occ))
			wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
			if r.Epoch != 1 {
				t.Errorf("%s ran at epoch %d", occ, r.Epoch)
			}
		}
		wantCode(t, h.run(&work{exit: 3}, under(k, "key:4")), 3, dispatch.Yes, coord.RunFailed)
		wantCode(t, h.run(&work{refuse: coord.ErrNotSent}, under(k, "key:5")), 125, dispatch.No, coord.RunFree)
		for _, op := range []string{"start", "complete", "release"} {
			if h.c.asked(op) {
				t.Errorf("a run under a held lease asked for %s", op)
			}
		}
		if l, held, _ := h.memory().Current(t.Context(), agent); !held || l.Expired || l.Epoch != 1 {
			t.Errorf("the lease was not left alone: %+v", l)
		}
	})
}

func TestARunUnderALeaseThatWasTakenIsNotRun(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		for name, when := range map[string]string{"before the look": "look", "before the begin": "begin"} {
			h, w := newHost(t, memory.New(memory.Config{}), "a"), &work{}
			k := hold(t, h)
			h.c.fail(func(op string) error {
				if op == when {
					h.c.fail(nil, nil)
					steal(t, h)
				}
				return nil
			}, nil)
			r := h.run(w, under(k, occurrence))
			wantCode(t, r, dispatch.ExitBusy, dispatch.No, coord.RunFree)
			if w.count() != 0 || len(h.view(occurrence).Entry.Attempts) != 0 {
				t.Errorf("%s: it was begun %d times", name, w.count())
			}
			if l, _, _ := h.memory().Current(t.Context(), agent); l.Device != "thief" {
				t.Errorf("%s: the thief's lease was touched: %+v", name, l)
			}
			k.Stop()
		}
	})
}

func TestNothingIsProposedUnderALeaseThatCannotBeTrusted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		k := hold(t, h)
		k.Stop()
		r := h.run(w, under(k, occurrence))
		wantCode(t, r, dispatch.ExitNotRun, dispatch.No, coord.RunFree)
		if w.count() != 0 || h.c.asked("begin") {
			t.Errorf("begun %d times, asked: %v", w.count(), h.c.calls)
		}
	})
}

func TestAnEffectUnderAHeldLeaseIsGoneBeforeTheLeaseCanEnd(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h, w := newHost(t, s, "a"), &work{takes: time.Hour, stubborn: stubborn}
			k := hold(t, h)
			defer k.Stop()
			bubble.Pass(time.Minute) // it was renewed many times
			var sent time.Time
			var thaw func()
			w.inside = func(h *host, p dispatch.Permit) { sent, thaw = k.Lease().Sent, h.c.freeze() }
			r := h.run(w, under(k, occurrence), func(j *dispatch.Job) { j.Grace = time.Hour })
			thaw()
			wantCode(t, r, dispatch.ExitLost, dispatch.Yes, coord.RunFailed)
			if got := w.stopped.Sub(sent); got != coord.DefaultTTL*2/3 {
				t.Errorf("told to stop after %s", got)
			}
			if got := w.over.Sub(sent); got >= coord.DefaultTTL {
				t.Errorf("gone after %s", got)
			}
		})
	}
}

func TestABeginUnderAHeldLeaseThatIsNotAnsweredIsSettledOrClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		k := hold(t, h)
		defer k.Stop()
		lost := 0
		h.c.fail(nil, func(op string) error {
			if op == "begin" && lost < 2 {
				lost++
				return coord.ErrIndeterminate
			}
			return nil
		})
		wantCode(t, h.run(w, under(k, "key:1")), 0, dispatch.Yes, coord.RunCommitted)
		h.c.fail(nil, failing(coord.ErrIndeterminate, "begin"))
		wantCode(t, h.run(w, under(k, "key:2")), dispatch.ExitNotRun, dispatch.No, coord.RunFree)
		h.wantLedger("key:2", coord.RunFree, coord.CauseGivenUp)
		if w.count() != 1 || h.c.asked("release") {
			t.Errorf("begun %d times, asked: %v", w.count(), h.c.calls)
		}
	})
}

func TestAnEffectOfWhichAPartIsLeftIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{takes: time.Hour, stubborn: true, leaves: true}
		k := hold(t, h)
		defer k.Stop()
		r := h.run(w, under(k, occurrence), func(j *dispatch.Job) { j.Timeout = time.Second })
		wantCode(t, r, dispatch.ExitInDoubt, dispatch.Yes, coord.RunInDoubt)
		if !r.Left {
			t.Error("the caller is not told that the lease has to be kept")
		}
	})
}
