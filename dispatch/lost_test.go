package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
)

func TestAnEffectIsGoneBeforeItsLeaseCanEnd(t *testing.T) {
	for _, ttl := range coord.Classes() {
		for name, w := range map[string]*work{"obeys": {takes: time.Hour}, "stubborn": {takes: time.Hour, stubborn: true}, "slow": {takes: time.Hour, slow: time.Hour}} {
			t.Run(fmt.Sprint(name, " ", ttl), func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *memory.Store) {
					h := newHost(t, s, "a")
					var lease coord.Lease
					var thaw func()
					w.inside = func(h *host, p dispatch.Permit) {
						lease, _, _ = h.memory().Current(t.Context(), agent)
						thaw = h.c.freeze()
					}
					if w.slow > 0 {
						w.slow, w.stubborn = 0, true
					}
					r := h.run(w, func(j *dispatch.Job) { j.TTL, j.Grace = ttl, time.Hour })
					thaw()
					wantCode(t, r, 111, dispatch.Yes, coord.RunFailed)
					if got := w.stopped.Sub(lease.Sent); got != ttl*2/3 {
						t.Errorf("told to stop after %s of %s", got, ttl)
					}
					if got := w.over.Sub(lease.Sent); got >= ttl {
						t.Errorf("gone after %s of %s", got, ttl)
					}
					if !r.Unsettled || r.Cause != coord.CauseLost {
						t.Errorf("got %+v", r)
					}
					// Another device takes the agent; the record arrives when this device is back.
					bubble.Pass(2 * ttl)
					h.c.fail(nil, nil)
					back := newHostOver(t, s, "a", h.book)
					wantCode(t, back.run(&work{}), 115, dispatch.No, coord.RunFailed)
					h.wantLedger(occurrence, coord.RunFailed, coord.CauseLost)
				})
			})
		}
	}
}

func TestAStopThatTakesItsTimeDoesNotDelayTheKill(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{takes: time.Hour, stubborn: true, lazy: 1500 * time.Millisecond}
		var lease coord.Lease
		var thaw func()
		ctx, cancel := context.WithCancelCause(t.Context())
		w.inside = func(h *host, p dispatch.Permit) {
			lease, _, _ = h.memory().Current(t.Context(), agent)
			thaw = h.c.freeze()
			time.AfterFunc(3*time.Second, func() { cancel(dispatch.ErrDrain) })
		}
		r := h.check(h.d.Run(ctx, h.job(w, func(j *dispatch.Job) { j.TTL, j.Grace = 5*time.Second, time.Hour })))
		thaw()
		if got := w.over.Sub(lease.Sent); got >= lease.TTL || r.Ran != dispatch.Yes {
			t.Errorf("gone after %s of %s: %+v", got, lease.TTL, r)
		}
	})
}

func TestABackendThatComesBackInTimeRecordsTheLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{takes: time.Minute}
		w.inside = func(h *host, p dispatch.Permit) {
			thaw := h.c.freeze()
			time.AfterFunc(8*time.Second, thaw)
		}
		r := h.run(w, func(j *dispatch.Job) { j.TTL = 5 * time.Second })
		wantCode(t, r, 111, dispatch.Yes, coord.RunFailed)
		h.wantLedger(occurrence, coord.RunFailed, coord.CauseLost)
		next := newHost(t, s, "b").run(&work{}, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:next", runID("key:next") })
		wantCode(t, next, 0, dispatch.Yes, coord.RunCommitted)
		if next.Epoch != 2 {
			t.Errorf("epoch %d", next.Epoch)
		}
	})
}

func TestAShortStallTouchesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{takes: time.Minute}
		w.inside = func(h *host, p dispatch.Permit) {
			time.AfterFunc(20*time.Second, func() {
				thaw := h.c.freeze()
				time.AfterFunc(3*time.Second, thaw)
			})
		}
		wantCode(t, h.run(w), 0, dispatch.Yes, coord.RunCommitted)
		if !w.stopped.IsZero() {
			t.Error("it was told to stop")
		}
	})
}

func steal(t *testing.T, h *host) {
	t.Helper()
	c := h.store.Process(coord.Process{Host: "thief"})
	l, _, err := c.Current(t.Context(), agent)
	if err == nil {
		_, err = c.Steal(t.Context(), coord.Theft{Request: coord.Request{Agent: agent, Device: "thief", TTL: coord.MaxTTL}, By: "ada", Reason: "test", Force: true, Epoch: l.Epoch})
	}
	if err != nil {
		t.Error(err)
	}
}

func TestAStolenLeaseStopsTheEffectAtOnce(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h, w := newHost(t, s, "a"), &work{takes: time.Hour, stubborn: stubborn}
			var at time.Time
			w.inside = func(h *host, p dispatch.Permit) {
				time.AfterFunc(time.Minute, func() { at = time.Now(); steal(t, h) })
			}
			r := h.run(w)
			wantCode(t, r, 111, dispatch.Yes, coord.RunFailed)
			h.wantLedger(occurrence, coord.RunFailed, coord.CauseLost)
			if noticed := w.stopped.Sub(at); noticed > coord.DefaultTTL/3 {
				t.Errorf("told to stop after %s", noticed)
			}
			if got := w.over.Sub(w.stopped); got >= coord.DefaultTTL/3 {
				t.Errorf("gone %s after it was told to stop", got)
			}
			if l, _, _ := h.memory().Current(t.Context(), agent); l.Device != "thief" {
				t.Errorf("the thief's lease was touched: %+v", l)
			}
		})
	}
}

func TestOnLostKeepLetsTheEffectGoOnAndRecordsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{takes: time.Hour}
		w.inside = func(h *host, p dispatch.Permit) { time.AfterFunc(time.Minute, func() { steal(t, h) }) }
		r := h.run(w, func(j *dispatch.Job) { j.OnLost = dispatch.LostKeep })
		wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
		h.wantLedger(occurrence, coord.RunCommitted, "")
		if !w.stopped.IsZero() {
			t.Error("it was told to stop")
		}
	})
}

func TestOnLostKeepRenewsAgainAfterAnOutageUntilSomebodyTookTheLease(t *testing.T) {
	for _, taken := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h, w := newHost(t, s, "a"), &work{takes: 10 * time.Minute}
			w.inside = func(h *host, p dispatch.Permit) {
				thaw := h.c.freeze()
				bubble.Pass(time.Minute)
				if p.Fence(t.Context()) == nil {
					t.Error("the fence said yes without a lease")
				}
				if taken {
					steal(t, h)
				}
				thaw()
				bubble.Pass(5 * time.Second)
				if err := p.Fence(t.Context()); (err != nil) != taken {
					t.Errorf("the fence says %v", err)
				}
			}
			wantCode(t, h.run(w, func(j *dispatch.Job) { j.OnLost = dispatch.LostKeep }), 0, dispatch.Yes, coord.RunCommitted)
		})
	}
}

// A zombie: its lease ended and was taken, its run is in doubt elsewhere, and then it commits.
func TestALateCommitIsAFactWhateverTheEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{takes: 10 * time.Minute}
		other := newHost(t, s, "b")
		w.inside = func(h *host, p dispatch.Permit) {
			thaw := h.c.freeze()
			time.AfterFunc(time.Minute, func() {
				r := other.run(&work{}, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:next", runID("key:next") })
				wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
				wantCode(t, other.run(&work{}), 112, dispatch.Maybe, coord.RunInDoubt)
			})
			time.AfterFunc(5*time.Minute, thaw)
		}
		r := h.run(w, func(j *dispatch.Job) { j.OnLost = dispatch.LostKeep })
		wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
		wantCode(t, other.run(&work{}), 0, dispatch.No, coord.RunCommitted)
		if r.Epoch != 1 {
			t.Errorf("epoch %d", r.Epoch)
		}
	})
}

// The lease is lost at each step before the effect: it does not start.
func TestALeaseLostBeforeTheEffectVoidsTheAttempt(t *testing.T) {
	for _, op := range []string{"granted", "pending"} {
		for name, lose := range map[string]func(*testing.T, *host){
			"stolen": func(t *testing.T, h *host) { steal(t, h); bubble.Pass(6 * time.Second) },
			"a disk and a backend that stand still": func(t *testing.T, h *host) {
				thaw := h.c.freeze()
				bubble.Pass(11 * time.Second)
				time.AfterFunc(2*time.Second, thaw)
			},
		} {
			t.Run(op+" "+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *memory.Store) {
					h, w := newHost(t, s, "a"), &work{}
					h.book.slow = func(got string) {
						if got == op {
							lose(t, h)
						}
					}
					r := h.run(w)
					wantCode(t, r, 125, dispatch.No, coord.RunFree)
					h.wantLedger(occurrence, coord.RunFree, coord.CauseGivenUp)
					if w.count() != 0 || !h.book.hasLocked(r.Attempt, coord.Void) {
						t.Errorf("begun %d times", w.count())
					}
				})
			})
		}
	}
}

func TestASlowDiskAloneCostsNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.book.slow = func(op string) {
			if op == "pending" {
				bubble.Pass(time.Minute)
			}
		}
		wantCode(t, h.run(w), 0, dispatch.Yes, coord.RunCommitted)
	})
}

func TestTheFenceSaysNoOnceTheEffectMayNotActAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		do  func(*testing.T, *host)
		say string
	}{
		"stolen": {steal, "not the holder"},
		"paused": {func(t *testing.T, h *host) {
			_ = h.memory().Pause(t.Context(), agent, coord.Gate{By: "ada", Reason: "x"})
		}, "paused"},
		"recovery": {func(t *testing.T, h *host) {
			_ = h.memory().SetRecovery(t.Context(), coord.Gate{By: "ada", Reason: "x"})
		}, "recovery"},
		"resolved": {func(t *testing.T, h *host) {
			a := h.view(occurrence).Entry.Attempts[0]
			if _, err := h.memory().Resolve(t.Context(), coord.Resolution{Agent: agent, Run: runID(occurrence), Attempt: a.ID, As: coord.Void, By: "ada", Reason: "x", Force: true}); err != nil {
				t.Error(err)
			}
		}, "closed"},
		"committed": {func(t *testing.T, h *host) {
			o := coord.Outcome{Agent: agent, Run: runID(occurrence), Attempt: coord.Attempt{ID: coord.NewNonce(), Device: "zombie", Epoch: 1, State: coord.Committed}}
			if err := h.memory().Finish(t.Context(), o); err != nil {
				t.Error(err)
			}
		}, "already committed"},
		"unreachable": {func(t *testing.T, h *host) { h.c.fail(failing(coord.ErrNotSent, "look"), nil) }, "not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *memory.Store) {
				h, w := newHost(t, s, "a"), &work{takes: 10 * time.Second}
				w.inside = func(h *host, p dispatch.Permit) {
					if err := p.Fence(t.Context()); err != nil {
						t.Errorf("before: %v", err)
					}
					c.do(t, h)
					if err := p.Fence(t.Context()); err == nil || !strings.Contains(err.Error(), c.say) {
						t.Errorf("after: %v", err)
					}
				}
				h.run(w)
			})
		})
	}
}
