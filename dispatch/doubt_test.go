package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
)

// crashed leaves an attempt behind whose process died in the middle of its effect; started says whether its pending was
// written.
func crashed(t *testing.T, s *memory.Store, device string, b *book, started bool) coord.Attempt {
	t.Helper()
	c := s.Process(coord.Process{Host: device})
	at := coord.Position{}
	if n := len(b.log); n > 0 {
		at = coord.Position{Next: uint64(n), Head: "op"}
	}
	_, a, err := c.Start(t.Context(), coord.Request{Agent: agent, Device: device, TTL: coord.DefaultTTL},
		coord.Begin{Run: runID(occurrence), Occurrence: occurrence, Attempt: coord.NewNonce(), Request: coord.NewNonce(), At: at})
	if err != nil {
		t.Fatal(err)
	}
	if started {
		b.log = append(b.log, coord.Outcome{Agent: agent, Run: runID(occurrence), Occurrence: occurrence, Attempt: a})
	}
	c.Crash()
	bubble.Pass(coord.DefaultTTL + time.Second)
	return a
}

func retryDoubt(j *dispatch.Job) { j.OnDoubt = dispatch.DoubtRetry }

func probing(happened, known bool, err error) func(*dispatch.Job) {
	return func(j *dispatch.Job) {
		j.OnDoubt = dispatch.DoubtProbe
		j.Probe = func(ctx context.Context, p dispatch.Permit) (bool, bool, error) {
			if p.Run != runID(occurrence) || p.Fence(ctx) == nil {
				return false, false, errors.New("a permit that permits")
			}
			return happened, known, err
		}
	}
}

func TestADoubtIsHeldRetriedOrProbed(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy func(*dispatch.Job)
		code   int
		ran    dispatch.Ran
		state  coord.RunState
	}{
		{"hold", func(*dispatch.Job) {}, 112, dispatch.Maybe, coord.RunInDoubt},
		{"retry", retryDoubt, 0, dispatch.Yes, coord.RunCommitted},
		{"it happened", probing(true, true, nil), 0, dispatch.No, coord.RunCommitted},
		{"it did not happen", probing(false, true, nil), 0, dispatch.Yes, coord.RunCommitted},
		{"the probe cannot tell", probing(true, false, nil), 112, dispatch.Maybe, coord.RunInDoubt},
		{"the probe fails", probing(true, true, errors.New("no\nnet")), 112, dispatch.Maybe, coord.RunInDoubt},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *memory.Store) {
				old := crashed(t, s, "dead", newBook(), true)
				h, w := newHost(t, s, "a"), &work{}
				r := h.run(w, c.policy)
				wantCode(t, r, c.code, c.ran, c.state)
				if (w.count() == 1) != (c.ran == dispatch.Yes) {
					t.Errorf("begun %d times", w.count())
				}
				if c.code == 112 && (r.Attempt != old.ID || !strings.Contains(r.Message, "of dead began 2000-01-01T00:00:00Z") || !strings.Contains(r.Message, "run resolve")) {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestARetryOfADoubtIsOneStep(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		old := crashed(t, s, "dead", newBook(), true)
		h, w := newHost(t, s, "a"), &work{takes: time.Second}
		w.inside = func(h *host, p dispatch.Permit) {
			v := h.view(occurrence)
			first, _ := v.Entry.Find(old.ID)
			if first.State != coord.Failed || first.Cause != coord.CauseRetried || v.State != coord.RunRunning {
				t.Errorf("%+v", v.Entry.Attempts)
			}
		}
		h.run(w, retryDoubt)
		writes := 0
		for _, op := range h.c.calls {
			if op != "look" && op != "renew" {
				writes++
			}
		}
		if writes != 2 { // start; complete
			t.Errorf("%v", h.c.calls)
		}
	})
}

func TestManyWhoRetryADoubtRunItOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		crashed(t, s, "dead", newBook(), true)
		w := &work{takes: time.Minute}
		var all sync.WaitGroup
		for range 20 {
			h := newHost(t, s, "a")
			all.Go(func() { h.run(w, retryDoubt) })
		}
		all.Wait()
		if w.count() != 1 {
			t.Errorf("begun %d times", w.count())
		}
	})
}

func TestARetryWaitsForTheAgentLikeAnyOther(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		crashed(t, s, "dead", newBook(), true)
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		done := make(chan struct{})
		go func() {
			a.run(&work{takes: time.Minute}, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:other", runID("key:other") })
			close(done)
		}()
		bubble.Pass(time.Second)
		w := &work{}
		wantCode(t, b.run(w, retryDoubt), 110, dispatch.No, coord.RunInDoubt)
		wantCode(t, b.run(w, retryDoubt, func(j *dispatch.Job) { j.IfHeld = dispatch.HeldWait }), 0, dispatch.Yes, coord.RunCommitted)
		<-done
	})
}

func TestWhileItsLivenessLivesADeadRunIsRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		c := s.Process(coord.Process{Host: "dead"})
		_, _, err := c.Start(t.Context(), coord.Request{Agent: agent, Device: "dead", TTL: coord.DefaultTTL},
			coord.Begin{Run: runID(occurrence), Occurrence: occurrence, Attempt: coord.NewNonce(), Request: coord.NewNonce()})
		if err != nil {
			t.Fatal(err)
		}
		c.Crash()
		h, w := newHost(t, s, "a"), &work{}
		wantCode(t, h.run(w), 0, dispatch.No, coord.RunRunning)
		bubble.Pass(coord.DefaultTTL)
		wantCode(t, h.run(w), 112, dispatch.Maybe, coord.RunInDoubt)
		if w.count() != 0 {
			t.Error("it ran")
		}
	})
}

func dead(c *dispatch.Config) { c.Dead = func(string, coord.Process) bool { return true } }

func TestAnAttemptProvedNeverStartedIsFree(t *testing.T) {
	for name, c := range map[string]struct {
		started bool
		proof   bool
		want    coord.RunState
	}{
		"dead and no pending": {false, true, coord.RunFree},
		"dead and a pending":  {true, true, coord.RunInDoubt},
		"no proof of death":   {false, false, coord.RunInDoubt},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *memory.Store) {
				b := newBook()
				old := crashed(t, s, "a", b, c.started)
				h := newHostOver(t, s, "a", b, func(cfg *dispatch.Config) {
					if c.proof {
						dead(cfg)
					}
				})
				got, err := h.d.Settle(t.Context())
				if err != nil || (got.Voided == 1) != (c.want == coord.RunFree) || (got.Open == 1) != (c.want == coord.RunInDoubt) {
					t.Errorf("got %+v, %v", got, err)
				}
				if v := h.view(occurrence); v.State != c.want {
					t.Errorf("the ledger says %s", v.State)
				}
				if h.book.hasLocked(old.ID, coord.Void) != (c.want == coord.RunFree) {
					t.Error("ledger and journal differ")
				}
				w := &work{}
				h.run(w)
				if (w.count() == 1) != (c.want == coord.RunFree) {
					t.Errorf("begun %d times", w.count())
				}
			})
		})
	}
}

func TestARunRepairsWhatItCanProveWithoutASettle(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		b := newBook()
		crashed(t, s, "a", b, false)
		h, w := newHostOver(t, s, "a", b, dead), &work{}
		wantCode(t, h.run(w), 0, dispatch.Yes, coord.RunCommitted)
	})
}

func TestSettleWritesTheJournalsOutcomes(t *testing.T) {
	for _, state := range []coord.State{coord.Committed, coord.Failed, coord.Void} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			b := newBook()
			a := crashed(t, s, "a", b, true)
			a.State, a.Cause = state, coord.CauseExit
			b.log = append(b.log, coord.Outcome{Agent: agent, Run: runID(occurrence), Occurrence: occurrence, Attempt: a})
			h := newHostOver(t, s, "a", b)
			h.c.fail(failing(coord.ErrNotSent, "finish"), nil)
			if _, err := h.d.Settle(t.Context()); !errors.Is(err, coord.ErrNotSent) {
				t.Errorf("got %v", err)
			}
			h.c.fail(nil, nil)
			if got, err := h.d.Settle(t.Context()); err != nil || got.Finished != 1 {
				t.Errorf("got %+v, %v", got, err)
			}
			if at, _ := h.view(occurrence).Entry.Find(a.ID); at.State != state {
				t.Errorf("the ledger says %s", at.State)
			}
			if got, err := h.d.Settle(t.Context()); err != nil || got != (dispatch.Settling{}) {
				t.Errorf("again: %+v, %v", got, err)
			}
		})
	}
}

func TestARunThatCannotBeReadKeepsNoOtherFromBeingSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		b := newBook()
		a := crashed(t, s, "a", b, false)
		h := newHostOver(t, s, "a", b, dead)
		h.c.unreadable = []coord.UnreadableRun{{Agent: "other", Run: "r1-x", Reason: "it is damaged"}}
		got, err := h.d.Settle(t.Context())
		if !errors.Is(err, coord.ErrUnreadable) || !strings.Contains(err.Error(), "run r1-x of agent other: it is damaged") || got.Voided != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
		if at, _ := h.view(occurrence).Entry.Find(a.ID); at.State != coord.Void {
			t.Errorf("the ledger says %s", at.State)
		}
	})
}

func TestSettleLeavesWhatIsRunningHereAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a", dead), &work{takes: time.Minute}
		w.inside = func(*host, dispatch.Permit) {
			h.book.effect(-1) // another goroutine of this process may use the journal
			if got, err := h.d.Settle(t.Context()); err != nil || got != (dispatch.Settling{}) {
				t.Errorf("got %+v, %v", got, err)
			}
			h.book.effect(+1)
		}
		wantCode(t, h.run(w), 0, dispatch.Yes, coord.RunCommitted)
	})
}

func TestADoubtThatPoliciesMayNotTouchIsHeld(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, s *memory.Store, b *book){
		"records contradict each other": func(t *testing.T, s *memory.Store, b *book) {
			a := crashed(t, s, "dead", newBook(), true)
			b.foreign = append(b.foreign, coord.Record{Run: runID(occurrence), Attempt: a.ID, Device: "dead", Author: "third", Epoch: a.Epoch, State: coord.Committed})
		},
		"the ledger does not hold the attempt": func(t *testing.T, s *memory.Store, b *book) {
			b.log = append(b.log, coord.Outcome{Agent: agent, Run: runID(occurrence), Attempt: coord.Attempt{ID: coord.NewNonce(), Device: "a", Epoch: 3, State: coord.Open}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *memory.Store) {
				b := newBook()
				leave(t, s, b)
				h, w := newHostOver(t, s, "a", b), &work{}
				for _, policy := range []func(*dispatch.Job){retryDoubt, probing(false, true, nil)} {
					wantCode(t, h.run(w, policy), 112, dispatch.Maybe, coord.RunInDoubt)
				}
				if w.count() != 0 {
					t.Error("it ran")
				}
			})
		})
	}
}

func TestSettleClosesNothingOnAnothersWord(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		b := newBook()
		a := crashed(t, s, "a", b, true)
		b.foreign = append(b.foreign, coord.Record{Run: runID(occurrence), Attempt: a.ID, Device: "a", Author: "third", Epoch: a.Epoch, State: coord.Failed})
		h := newHostOver(t, s, "a", b, dead)
		if got, err := h.d.Settle(t.Context()); err != nil || got != (dispatch.Settling{Open: 1}) {
			t.Errorf("got %+v, %v", got, err)
		}
		h.wantLedger(occurrence, coord.RunInDoubt, "")
	})
}

// A doubt that arises between look and start is treated by the policy like any other.
func TestWhatWasLookedAtMayMove(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		once := sync.OnceFunc(func() {
			c := s.Process(coord.Process{Host: "dead"})
			_, _, err := c.Start(t.Context(), coord.Request{Agent: agent, Device: "dead", TTL: 2 * time.Second},
				coord.Begin{Run: runID(occurrence), Occurrence: occurrence, Attempt: coord.NewNonce(), Request: coord.NewNonce()})
			if err != nil {
				t.Error(err)
			}
			c.Crash()
			bubble.Pass(3 * time.Second)
		})
		h.c.fail(func(op string) error {
			if op == "start" {
				once()
			}
			return nil
		}, nil)
		wantCode(t, h.run(w, retryDoubt), 0, dispatch.Yes, coord.RunCommitted)
		if n := len(h.view(occurrence).Entry.Attempts); n != 2 || w.count() != 1 {
			t.Errorf("%d attempts, begun %d times", n, w.count())
		}
	})
}
