package dispatch_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
)

// inBubble runs f over a fresh store.
func inBubble(t *testing.T, f func(t *testing.T, s *memory.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.New(memory.Config{})) })
}

func TestASuccessfulRunIsCommittedOnceAndNotRunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		w := &work{takes: time.Minute}
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		r := a.run(w)
		wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
		if r.Epoch != 1 || r.Attempt == "" || r.Err != nil {
			t.Errorf("got %+v", r)
		}
		a.wantLedger(occurrence, coord.RunCommitted, "")
		if l, held, err := b.memory().Current(t.Context(), agent); err != nil || held {
			t.Errorf("the lease was not given back: %+v %v", l, err)
		}
		again := b.run(w)
		wantCode(t, again, 0, dispatch.No, coord.RunCommitted)
		if !strings.Contains(again.Message, "already committed") || !strings.Contains(again.Message, "by a at epoch 1") || again.Attempt != r.Attempt {
			t.Errorf("got %+v", again)
		}
		fail := b.run(w, func(j *dispatch.Job) { j.IfDone = dispatch.DoneFail })
		wantCode(t, fail, dispatch.ExitBusy, dispatch.No, coord.RunCommitted)
		if w.count() != 1 {
			t.Errorf("begun %d times", w.count())
		}
	})
}

func TestTheEffectsOwnCodeIsPassedOn(t *testing.T) {
	for _, c := range []struct{ exit, want int }{{1, 1}, {7, 7}, {110, 110}, {125, 125}} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h := newHost(t, s, "a")
			r := h.run(&work{exit: c.exit})
			wantCode(t, r, c.want, dispatch.Yes, coord.RunFailed)
			v := h.wantLedger(occurrence, coord.RunFailed, coord.CauseExit)
			if r.ExitCode != c.exit || v.Entry.Attempts[0].Exit != c.exit {
				t.Errorf("exit code %d, in the ledger %d", r.ExitCode, v.Entry.Attempts[0].Exit)
			}
		})
	}
}

type codedError struct{ code int }

func (e codedError) Error() string { return "no such command" }
func (e codedError) ExitCode() int { return e.code }

func TestAnEffectThatCannotBeStartedIsVoidAndMayBeRunAgain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{{codedError{127}, 127}, {codedError{126}, 126}, {codedError{3}, 125}, {os.ErrPermission, 125}} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h := newHost(t, s, "a")
			r := h.run(&work{refuse: c.err})
			wantCode(t, r, c.want, dispatch.No, coord.RunFree)
			h.wantLedger(occurrence, coord.RunFree, coord.CauseStart)
			if !h.book.hasLocked(r.Attempt, coord.Void) {
				t.Error("the journal does not say that it never started")
			}
			w := &work{}
			wantCode(t, newHost(t, s, "b").run(w), 0, dispatch.Yes, coord.RunCommitted)
		})
	}
}

func TestABusyAgentIsSkippedOrRefusedOrWaitedFor(t *testing.T) {
	other := func(j *dispatch.Job) { j.Occurrence, j.Run = "key:other", runID("key:other") }
	for _, c := range []struct {
		name   string
		policy func(*dispatch.Job)
		same   bool
		code   int
		ran    dispatch.Ran
		state  coord.RunState
	}{
		{"another run, skip", func(j *dispatch.Job) {}, false, 110, dispatch.No, coord.RunFree},
		{"another run, fail", func(j *dispatch.Job) { j.IfHeld = dispatch.HeldFail }, false, 110, dispatch.No, coord.RunFree},
		{"another run, waited in vain", func(j *dispatch.Job) { j.IfHeld, j.HeldWait = dispatch.HeldWait, 10*time.Second }, false, 110, dispatch.No, coord.RunFree},
		{"another run, waited for", func(j *dispatch.Job) { j.IfHeld = dispatch.HeldWait }, false, 0, dispatch.Yes, coord.RunCommitted},
		{"this run, skip", func(j *dispatch.Job) {}, true, 0, dispatch.No, coord.RunRunning},
		{"this run, fail", func(j *dispatch.Job) { j.IfHeld = dispatch.HeldFail }, true, 110, dispatch.No, coord.RunRunning},
		{"this run, waited in vain", func(j *dispatch.Job) { j.IfHeld, j.HeldWait = dispatch.HeldWait, 10*time.Second }, true, 110, dispatch.No, coord.RunRunning},
		{"this run, waited for", func(j *dispatch.Job) { j.IfHeld = dispatch.HeldWait }, true, 0, dispatch.No, coord.RunCommitted},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *memory.Store) {
				a, b := newHost(t, s, "a"), newHost(t, s, "b")
				busy, w := &work{takes: time.Minute}, &work{}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if c.same {
						a.run(busy)
					} else {
						a.run(busy, other)
					}
				}()
				bubble.Pass(time.Second)
				r := b.run(w, c.policy)
				wantCode(t, r, c.code, c.ran, c.state)
				if r.Code == 110 && !strings.Contains(r.Message, "a ") {
					t.Errorf("the message does not name the holder: %s", r.Message)
				}
				<-done
				if c.ran == dispatch.No && w.count() != 0 {
					t.Error("it ran")
				}
			})
		})
	}
}

func TestWhoWaitsForThisRunLearnsHowItEnded(t *testing.T) {
	for _, c := range []struct {
		first *work
		code  int
		state coord.RunState
	}{{&work{takes: time.Minute, exit: 3}, 115, coord.RunFailed}, {&work{takes: time.Minute, blind: errors.New("lost sight")}, 112, coord.RunInDoubt}} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			a, b := newHost(t, s, "a"), newHost(t, s, "b")
			done := make(chan struct{})
			go func() { a.run(c.first); close(done) }()
			bubble.Pass(time.Second)
			w := &work{}
			r := b.run(w, func(j *dispatch.Job) { j.IfHeld = dispatch.HeldWait })
			<-done
			if r.Code != c.code || r.State != c.state || w.count() != 0 {
				t.Errorf("got %+v, begun %d times", r, w.count())
			}
		})
	}
}

func TestAFailedRunIsNotRunAgainByABystander(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		a.run(&work{exit: 1})
		w := &work{}
		r := b.run(w)
		wantCode(t, r, 115, dispatch.No, coord.RunFailed)
		if w.count() != 0 || !strings.Contains(r.Message, "exit 1") || !strings.Contains(r.Message, "run retry") {
			t.Errorf("begun %d times: %s", w.count(), r.Message)
		}
		wantCode(t, b.run(w, func(j *dispatch.Job) { j.IfFailed = dispatch.FailedRetry }), 0, dispatch.Yes, coord.RunCommitted)
	})
}

func TestAPermittedRetryNeedsNoPolicy(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		a := newHost(t, s, "a")
		r := a.run(&work{exit: 1})
		if _, err := a.memory().Permit(t.Context(), coord.Resolution{Agent: agent, Run: runID(occurrence), Attempt: r.Attempt, By: "ada", Reason: "fixed"}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, a.run(&work{}), 0, dispatch.Yes, coord.RunCommitted)
	})
}

func TestClosedGatesRefuseBeforeTheEffect(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		g := coord.Gate{By: "ada", Reason: "month end"}
		if err := h.memory().Pause(t.Context(), agent, g); err != nil {
			t.Fatal(err)
		}
		r := h.run(w)
		wantCode(t, r, 113, dispatch.No, coord.RunFree)
		if !strings.Contains(r.Message, "month end") || !strings.Contains(r.Message, "ada") {
			t.Error(r.Message)
		}
		if err := h.memory().Resume(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		if err := h.memory().SetRecovery(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		wantCode(t, h.run(w), 113, dispatch.No, coord.RunFree)
		if w.count() != 0 {
			t.Error("it ran")
		}
	})
}

func TestAnotherInputOrAWrongJobIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.run(&work{exit: 1})
		r := h.run(w, func(j *dispatch.Job) { j.Input, j.IfFailed = strings.Repeat("ab", 32), dispatch.FailedRetry })
		wantCode(t, r, 125, dispatch.No, coord.RunFailed)
		for _, wrong := range []func(*dispatch.Job){
			func(j *dispatch.Job) { j.Agent = "a/b" },
			func(j *dispatch.Job) { j.Run = "x" },
			func(j *dispatch.Job) { j.Occurrence = "x" },
			func(j *dispatch.Job) { j.TTL = 301 * time.Second },
			func(j *dispatch.Job) { j.IfHeld = "maybe" },
			func(j *dispatch.Job) { j.OnDoubt = dispatch.DoubtProbe },
			func(j *dispatch.Job) { j.Effect = nil },
			func(j *dispatch.Job) { j.Grace = -1 },
		} {
			r := h.run(w, wrong)
			if r.Code != 125 || r.Ran != dispatch.No || r.Err == nil {
				t.Errorf("got %+v", r)
			}
		}
		if w.count() != 0 {
			t.Error("it ran")
		}
	})
}

func TestTimeLimitStopsAndIsRecordedAsFailed(t *testing.T) {
	for name, w := range map[string]*work{
		"obeys":             {takes: time.Hour},
		"ends with 0":       {takes: time.Hour, polite: true},
		"has to be killed":  {takes: time.Hour, stubborn: true},
		"takes time to end": {takes: time.Hour, slow: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *memory.Store) {
				h := newHost(t, s, "a")
				began := time.Now()
				r := h.run(w, func(j *dispatch.Job) { j.Timeout = time.Minute })
				wantCode(t, r, 124, dispatch.Yes, coord.RunFailed)
				h.wantLedger(occurrence, coord.RunFailed, coord.CauseTimeout)
				if w.stubborn && w.killed.Sub(began) > 71*time.Second {
					t.Errorf("killed after %s", w.killed.Sub(began))
				}
			})
		})
	}
}

func TestSuccessBeforeTheStopReachedItIsCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		r := h.run(&work{takes: time.Hour, late: true}, func(j *dispatch.Job) { j.Timeout = time.Minute })
		wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
	})
}

func TestAnEpochIsAboveWhatTheDeviceKnowsAndTheAttemptNotesItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		h.book.floor[agent] = 41
		h.book.log = make([]coord.Outcome, 3)
		h.book.log[0].Attempt.State, h.book.log[1].Attempt.State, h.book.log[2].Attempt.State = coord.Open, coord.Open, coord.Open
		r := h.run(&work{})
		if at := h.view(occurrence).Entry.Attempts[0].At; r.Epoch != 42 || at != (coord.Position{Next: 3, Head: "op3"}) {
			t.Errorf("epoch %d, place %+v", r.Epoch, at)
		}
		if h.book.floor[agent] != 42 {
			t.Errorf("the grant was not noted: %d", h.book.floor[agent])
		}
	})
}

// The lease is kept while an effect takes its time to end.
func TestAStoppedEffectKeepsItsLeaseUntilItHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{takes: time.Hour, slow: 40 * time.Second}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(dispatch.ErrDrain) })
		time.AfterFunc(45*time.Second, func() {
			if l, held, err := h.memory().Current(t.Context(), agent); err != nil || !held || l.Expired {
				t.Errorf("%+v, %v, %v", l, held, err)
			}
		})
		r := h.check(h.d.Run(ctx, h.job(w, func(j *dispatch.Job) { j.TTL, j.Grace = 2*time.Second, time.Minute })))
		wantCode(t, r, 143, dispatch.Yes, coord.RunFailed)
		if r.Cause != coord.CauseDrain || !w.killed.IsZero() {
			t.Errorf("%+v, killed at %v", r, w.killed)
		}
	})
}

func TestACancelledRunIsStoppedInGoodOrder(t *testing.T) {
	for _, c := range []struct {
		cause    error
		w        *work
		code     int
		inLedger string
		killed   bool
	}{
		{&dispatch.Interrupt{Signal: 2}, &work{takes: time.Hour}, 128 + 15, coord.CauseSignal, false},
		{&dispatch.Interrupt{Signal: 2}, &work{takes: time.Hour, polite: true}, 128 + 2, coord.CauseSignal, false},
		{&dispatch.Interrupt{Signal: 15}, &work{takes: time.Hour, stubborn: true}, 128 + 9, coord.CauseSignal, true},
		{dispatch.ErrDrain, &work{takes: time.Hour}, 128 + 15, coord.CauseDrain, false},
		{context.Canceled, &work{takes: time.Hour, polite: true}, 128 + 15, coord.CauseDrain, false},
	} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h := newHost(t, s, "a")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(30*time.Second, func() { cancel(c.cause) })
			r := h.check(h.d.Run(ctx, h.job(c.w)))
			wantCode(t, r, c.code, dispatch.Yes, coord.RunFailed)
			h.wantLedger(occurrence, coord.RunFailed, c.inLedger)
			if says := map[bool]string{true: "failed (exit 0 after a signal)", false: "failed (signal "}[c.w.polite]; c.inLedger == coord.CauseSignal && !strings.Contains(r.Message, says) {
				t.Errorf("%s: %q is missing", r.Message, says)
			}
			if c.w.killed.IsZero() == c.killed {
				t.Errorf("killed at %v", c.w.killed)
			}
			if _, held, _ := h.memory().Current(t.Context(), agent); held {
				t.Error("the lease was not given back")
			}
		})
	}
}

// A signal that the effect's starter passed on by itself.
func TestAnEffectThatItsStarterStoppedIsFailed(t *testing.T) {
	for _, c := range []struct {
		w     *work
		code  int
		cause string
	}{{&work{takes: time.Hour}, 143, coord.CauseSignal}, {&work{takes: time.Hour, polite: true}, 143, coord.CauseDrain}} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h := newHost(t, s, "a")
			c.w.passing = errors.New("received interrupt")
			r := h.run(c.w)
			wantCode(t, r, c.code, dispatch.Yes, coord.RunFailed)
			h.wantLedger(occurrence, coord.RunFailed, c.cause)
		})
	}
}

func TestASignalWhileWaitingRunsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		done := make(chan struct{})
		go func() {
			a.run(&work{takes: time.Minute}, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:other", runID("key:other") })
			close(done)
		}()
		bubble.Pass(time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(&dispatch.Interrupt{Signal: 15}) })
		w := &work{}
		r := b.check(b.d.Run(ctx, b.job(w, func(j *dispatch.Job) { j.IfHeld = dispatch.HeldWait })))
		wantCode(t, r, 143, dispatch.No, coord.RunFree)
		if w.count() != 0 || len(b.view(occurrence).Entry.Attempts) != 0 {
			t.Error("it left something behind")
		}
		<-done
	})
}

func TestAnEndThatNobodySawIsInDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		r := h.run(&work{blind: errors.New("wait: no child")})
		wantCode(t, r, 112, dispatch.Yes, coord.RunInDoubt)
		h.wantLedger(occurrence, coord.RunInDoubt, "")
	})
}

func TestADryRunSaysWhatItWouldDoAndWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		r := h.check(h.d.DryRun(t.Context(), h.job(w)))
		wantCode(t, r, 0, dispatch.No, coord.RunFree)
		if v := h.view(occurrence); v.Found || w.count() != 0 || len(h.book.log) != 0 {
			t.Errorf("it left something behind: %+v", v)
		}
		h.run(&work{exit: 1})
		wantCode(t, h.check(h.d.DryRun(t.Context(), h.job(w))), 115, dispatch.No, coord.RunFailed)
		h.run(&work{}, func(j *dispatch.Job) { j.IfFailed = dispatch.FailedRetry })
		wantCode(t, h.check(h.d.DryRun(t.Context(), h.job(w))), 0, dispatch.No, coord.RunCommitted)
	})
}
