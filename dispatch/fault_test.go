package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/internal/ident"
)

// A failing coordinator, before or after each step, for as long as the run lasts or once.
func TestAFailingCoordinatorIsNeverAPermission(t *testing.T) {
	ops := []string{"look", "start", "cancel", "finish", "complete", "release", "renew"}
	for _, op := range ops {
		for _, when := range []string{"before", "after"} {
			for _, times := range []int{1, 1 << 30} {
				for _, kind := range []error{coord.ErrNotSent, coord.ErrIndeterminate, context.DeadlineExceeded,
					fmt.Errorf("%w: %w", coord.ErrIndeterminate, coord.ErrNotSent)} {
					if when == "after" && kind == coord.ErrNotSent {
						continue // that would be a lie
					}
					t.Run(fmt.Sprintf("%s %s %d %v", op, when, times, kind), func(t *testing.T) {
						inBubble(t, func(t *testing.T, s *memory.Store) { failAt(t, s, op, when, times, kind) })
					})
				}
			}
		}
	}
}

func failAt(t *testing.T, s *memory.Store, op, when string, times int, kind error) {
	h, w := newHost(t, s, "a"), &work{takes: time.Minute}
	hook := func(got string) error {
		if got != op || times == 0 {
			return nil
		}
		times--
		return fmt.Errorf("%s: %w", op, kind)
	}
	if when == "before" {
		h.c.fail(hook, nil)
	} else {
		h.c.fail(nil, hook)
	}
	r := h.run(w)
	if w.count() > 1 || (w.count() == 1) != (r.Ran == dispatch.Yes) {
		t.Fatalf("begun %d times, and the result is %+v", w.count(), r)
	}
	v := h.view(occurrence)
	if w.count() == 0 && (v.State == coord.RunCommitted || v.State == coord.RunFailed) {
		t.Errorf("nothing ran, and the ledger says %s", v.State)
	}
	h.c.fail(nil, nil)
	bubble.Pass(2 * coord.MaxTTL) // whatever was held has run out
	next := newHostOver(t, s, "a", h.book)
	r2 := next.run(w, func(j *dispatch.Job) { j.IfFailed = dispatch.FailedRetry })
	switch total := w.count(); {
	case total > 2, total == 2 && v.State == coord.RunCommitted:
		t.Errorf("begun %d times: %+v, then %+v", total, r, r2)
	case r.Ran == dispatch.Yes && w.over.IsZero():
		t.Error("the run returned before its effect had ended")
	case total == 0:
		t.Errorf("never ran: %+v, then %+v", r, r2)
	}
}

func TestAnUnreachableCoordinatorRunsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.c.fail(failing(coord.ErrNotSent), nil)
		began := time.Now()
		r := h.run(w)
		wantCode(t, r, 125, dispatch.No, "")
		if time.Since(began) > 5*time.Second || w.count() != 0 {
			t.Errorf("took %s, begun %d times", time.Since(began), w.count())
		}
	})
}

func TestASilentCoordinatorIsGivenItsTimeAndRunsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		defer h.c.freeze()()
		began := time.Now()
		r := h.run(w)
		wantCode(t, r, 125, dispatch.No, "")
		if took := time.Since(began); took > dispatch.DefaultBackendTimeout+time.Second || w.count() != 0 {
			t.Errorf("took %s, begun %d times", took, w.count())
		}
	})
}

func TestALostAnswerOfAStartIsSettledByAskingAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		lost := 3
		h.c.fail(nil, func(op string) error {
			if op == "start" && lost > 0 {
				lost--
				return coord.ErrIndeterminate
			}
			return nil
		})
		r := h.run(w)
		wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
		if n := len(h.view(occurrence).Entry.Attempts); n != 1 || r.Epoch != 1 {
			t.Errorf("%d attempts, epoch %d", n, r.Epoch)
		}
	})
}

func TestAStartWithoutAnAnswerIsClosedForGood(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.c.fail(nil, failing(coord.ErrIndeterminate, "start"))
		r := h.run(w)
		if r.Code != 125 || r.Ran != dispatch.No || w.count() != 0 || errors.Is(r.Err, coord.ErrIndeterminate) {
			t.Errorf("got %+v", r)
		}
		h.wantLedger(occurrence, coord.RunFree, coord.CauseGivenUp)
		wantCode(t, newHost(t, s, "b").run(w), 0, dispatch.Yes, coord.RunCommitted)
	})
}

func TestAStartThatCannotBeClosedSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.c.fail(failing(coord.ErrIndeterminate, "cancel"), failing(coord.ErrIndeterminate, "start"))
		r := h.run(w)
		if r.Code != 125 || r.Ran != dispatch.No || w.count() != 0 || !errors.Is(r.Err, coord.ErrIndeterminate) ||
			!strings.Contains(r.Message, "may be recorded as open, in doubt") {
			t.Errorf("got %+v", r)
		}
	})
}

func TestWithoutADurablePendingNothingRunsAndTheAttemptIsVoid(t *testing.T) {
	for _, op := range []string{"granted", "pending"} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h, w := newHost(t, s, "a"), &work{}
			h.book.fails = failing(errors.New("disk full"), op)
			r := h.run(w)
			wantCode(t, r, 125, dispatch.No, coord.RunFree)
			h.wantLedger(occurrence, coord.RunFree, coord.CauseGivenUp)
			if _, held, _ := h.memory().Current(t.Context(), agent); held || w.count() != 0 {
				t.Errorf("held %v, begun %d times", held, w.count())
			}
			if !strings.Contains(r.Message, "disk full") {
				t.Error(r.Message)
			}
			h.book.fails = nil
			wantCode(t, newHost(t, s, "b").run(w), 0, dispatch.Yes, coord.RunCommitted)
		})
	}
}

func TestAnAttemptThatItsJournalVoidedDoesNotStart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.book.fails = failing(dispatch.ErrVoided, "pending")
		r := h.run(w)
		wantCode(t, r, 125, dispatch.No, coord.RunFree)
		if w.count() != 0 || !errors.Is(r.Err, dispatch.ErrVoided) {
			t.Errorf("got %+v", r)
		}
	})
}

func TestAnUnreadableJournalRunsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.book.fails = failing(errors.New("bad record"), "standing")
		wantCode(t, h.run(w), 125, dispatch.No, "")
		if w.count() != 0 || len(h.c.calls) != 0 {
			t.Error("it went on")
		}
	})
}

func TestAnOutcomeThatTheLedgerCannotTakeWaitsInTheJournal(t *testing.T) {
	for _, c := range []struct {
		w    *work
		code int
	}{{&work{}, 114}, {&work{exit: 3}, 114}, {&work{takes: time.Hour}, 124}} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h := newHost(t, s, "a")
			h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish"), nil)
			r := h.run(c.w, func(j *dispatch.Job) { j.Timeout = time.Minute })
			if r.Code != c.code || r.Ran != dispatch.Yes || !r.Unsettled || r.ExitCode != c.w.exit && r.Signal == 0 {
				t.Errorf("got %+v", r)
			}
			if v := h.view(occurrence); v.Entry.Attempts[0].State != coord.Open {
				t.Errorf("the ledger has it: %+v", v)
			}
			bubble.Pass(time.Minute)
			// A run of anything on this device settles it.
			later := newHostOver(t, s, "a", h.book)
			later.run(&work{}, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:next", runID("key:next") })
			if v := h.view(occurrence); v.State != r.State {
				t.Errorf("the run ended %s, and the ledger says %s", r.State, v.State)
			}
		})
	}
}

func TestSettlingThatFailsDoesNotStopTheNextRun(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish"), nil)
		h.run(&work{})
		bubble.Pass(time.Minute)
		h.c.fail(failing(coord.ErrIndeterminate, "finish"), nil)
		r := h.run(&work{}, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:next", runID("key:next") })
		wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
	})
}

func TestACommitInTheJournalIsSettledBeforeItsVerdict(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish"), nil)
		h.run(w)
		bubble.Pass(time.Minute)
		refused := h.run(w, func(j *dispatch.Job) { j.OnDoubt = dispatch.DoubtRetry })
		if refused.Code != 125 || refused.Ran != dispatch.No {
			t.Errorf("the ledger cannot take the fact, and the answer is %+v", refused)
		}
		h.c.fail(nil, nil)
		wantCode(t, h.run(w, func(j *dispatch.Job) { j.OnDoubt = dispatch.DoubtRetry }), 0, dispatch.No, coord.RunCommitted)
		if w.count() != 1 {
			t.Errorf("begun %d times", w.count())
		}
	})
}

func TestAnOutcomeThatIsRecordedNowhereIsInDoubt(t *testing.T) {
	for _, journal := range []bool{true, false} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h := newHost(t, s, "a", func(c *dispatch.Config) {
				if !journal {
					c.Book = nil
				}
			})
			h.book.fails = failing(errors.New("disk full"), "outcome")
			h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish"), nil)
			wantCode(t, h.run(&work{}), 112, dispatch.Yes, coord.RunInDoubt)
		})
	}
}

func TestAFullLedgerIsNotAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		h.c.fail(failing(coord.ErrFull, "complete", "finish"), nil)
		began := time.Now()
		r := h.run(&work{})
		if r.Code != 114 || time.Since(began) > time.Second {
			t.Errorf("after %s: %+v", time.Since(began), r)
		}
		h.c.fail(failing(coord.ErrFull, "start"), nil)
		r = h.run(&work{}, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:next", runID("key:next") })
		wantCode(t, r, 125, dispatch.No, coord.RunFree)
	})
}

func TestWithoutAJournalTheLedgerIsTheOnlyRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "pod", func(c *dispatch.Config) { c.Book = nil }), &work{}
		wantCode(t, h.run(w), 0, dispatch.Yes, coord.RunCommitted)
		wantCode(t, h.run(w), 0, dispatch.No, coord.RunCommitted)
		if got, err := h.d.Settle(t.Context()); err != nil || got != (dispatch.Settling{}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestAnOutcomeWithoutAJournalIsOfferedAgainWhileTheProcessLives(t *testing.T) {
	for want, w := range map[coord.RunState]*work{coord.RunCommitted: {}, coord.RunFailed: {exit: 3}, coord.RunInDoubt: {blind: errors.New("nobody saw it")}} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			h := newHost(t, s, "pod", func(c *dispatch.Config) { c.Book = nil })
			h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish", "release"), nil)
			wantCode(t, h.run(w), 112, dispatch.Yes, coord.RunInDoubt)
			if got, err := h.d.Settle(t.Context()); err == nil || got.Owed != 1 {
				t.Errorf("while the ledger takes nothing: %+v, %v", got, err)
			}
			if v := h.view(occurrence); v.State != coord.RunRunning {
				t.Errorf("the ledger says %s of what it was not told, and whose process lives", v.State)
			}
			h.c.fail(nil, nil)
			if got, err := h.d.Settle(t.Context()); err != nil || got != (dispatch.Settling{Finished: 1}) {
				t.Errorf("got %+v, %v", got, err)
			}
			if v := h.view(occurrence); v.State != want {
				t.Errorf("the ledger says %s, want %s", v.State, want)
			}
			if got, err := h.d.Settle(t.Context()); err != nil || got != (dispatch.Settling{}) {
				t.Errorf("settled again: %+v, %v", got, err)
			}
		})
	}
}

// Else the run would show as running for as long as the process lives.
func TestADoubtThatTheLedgerDoesNotTakeIsOfferedAgainAlsoWithAJournal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish", "release"), nil)
		wantCode(t, h.run(&work{blind: errors.New("nobody saw it")}), 112, dispatch.Yes, coord.RunInDoubt)
		h.c.fail(nil, nil)
		for range 2 {
			if _, err := h.d.Settle(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if v := h.view(occurrence); v.State != coord.RunInDoubt {
			t.Errorf("the ledger says %s", v.State)
		}
	})
}

// An overtaken coordinator is told something else while it takes a doubt.
type overtaken struct {
	coord.Coordinator
	meanwhile func(doubt coord.Outcome)
}

func (o *overtaken) Finish(ctx context.Context, out coord.Outcome) error {
	if out.Attempt.State == coord.Open {
		o.meanwhile(out)
	}
	return o.Coordinator.Finish(ctx, out)
}

// The client of a node tells its end while the doubt that the node had about it is on its way to the ledger.
func TestWithoutAJournalAnEndThatIsToldWhileItsDoubtIsWrittenIsStillOwed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		c := &overtaken{meanwhile: func(coord.Outcome) {}}
		h := newHost(t, s, "pod", func(cfg *dispatch.Config) {
			c.Coordinator = cfg.Coordinator
			cfg.Coordinator, cfg.Book = c, nil
		})
		h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish"), nil)
		wantCode(t, h.run(&work{blind: errors.New("nobody saw it")}), 112, dispatch.Yes, coord.RunInDoubt)
		c.meanwhile = func(o coord.Outcome) {
			for _, state := range []coord.State{coord.Committed, coord.Failed} { // the later one is a mistake
				o.Attempt.State, o.Attempt.Abandoned = state, false
				if _, err := h.d.Report(t.Context(), h.view(occurrence), o); err == nil {
					t.Error("the end was taken")
				}
			}
			h.c.fail(nil, nil)
		}
		for range 2 {
			if _, err := h.d.Settle(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if v := h.view(occurrence); v.State != coord.RunCommitted {
			t.Errorf("the ledger says %s", v.State)
		}
	})
}

// An unreadable coordinator cannot read one run, as if a newer release had written it.
type unreadable struct {
	coord.Coordinator
	run, agent string
}

func (u unreadable) Finish(ctx context.Context, o coord.Outcome) error {
	if o.Run == u.run {
		return fmt.Errorf("finish: %w: unreadable value", coord.ErrNotSent)
	}
	return u.Coordinator.Finish(ctx, o)
}

func (u unreadable) Release(ctx context.Context, agent, device string, e coord.Epoch) error {
	if agent == u.agent {
		return fmt.Errorf("release: %w: unreadable value", coord.ErrNotSent)
	}
	return u.Coordinator.Release(ctx, agent, device, e)
}

func TestAnOutcomeThatCannotBeWrittenKeepsNoOtherBack(t *testing.T) {
	others := []string{"key:b", "key:c", "key:d"}
	for name, cannot := range map[string]unreadable{"a run": {run: runID(occurrence)}, "an agent": {agent: "x"}} {
		for _, journal := range []bool{true, false} {
			inBubble(t, func(t *testing.T, s *memory.Store) {
				h := newHost(t, s, "a", func(c *dispatch.Config) {
					cannot.Coordinator = c.Coordinator
					c.Coordinator = cannot
					if !journal {
						c.Book = nil
					}
				})
				h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish"), nil)
				h.run(&work{}, func(j *dispatch.Job) { j.Agent, j.Run = "x", ident.RunID("test", "x", occurrence) })
				for _, occ := range append([]string{occurrence}, others...) {
					h.run(&work{}, func(j *dispatch.Job) { j.Occurrence, j.Run = occ, runID(occ) })
				}
				h.c.fail(nil, nil)
				for range 2 {
					if _, err := h.d.Settle(t.Context()); err == nil {
						t.Errorf("%s, journal %v: nothing is said of what cannot be written", name, journal)
					}
				}
				for _, occ := range others {
					if v := h.view(occ); v.State != coord.RunCommitted {
						t.Errorf("%s, journal %v: the ledger says %s of %s", name, journal, v.State, occ)
					}
				}
			})
		}
	}
}

func TestAnOutcomeThatCannotBeWrittenKeepsNoOtherBackWhereEachRunIsAProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		h.c.fail(failing(coord.ErrFull, "complete", "finish"), nil)
		for _, occ := range []string{occurrence, "key:b"} {
			h.run(&work{}, func(j *dispatch.Job) { j.Occurrence, j.Run = occ, runID(occ) })
		}
		for range 1000 {
			next := newHostOver(t, s, "a", h.book, func(c *dispatch.Config) { c.Coordinator = unreadable{c.Coordinator, runID(occurrence), ""} })
			next.run(&work{}, func(j *dispatch.Job) { j.Agent, j.Run = "x", ident.RunID("test", "x", occurrence) })
			if h.view("key:b").State == coord.RunCommitted {
				return
			}
		}
		t.Errorf("the ledger says %s", h.view("key:b").State)
	})
}

func TestALedgerThatForgotAWitnessClosesTheGate(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w := newHost(t, s, "a"), &work{}
		h.run(&work{})
		older := memory.New(memory.Config{})
		back := newHostOver(t, older, "a", h.book)
		r := back.run(w, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:next", runID("key:next") })
		wantCode(t, r, 113, dispatch.No, "")
		if g, set, err := back.memory().Recovery(t.Context()); !set || err != nil || g.By != "a" || !strings.Contains(g.Reason, runID(occurrence)) {
			t.Errorf("gate %+v %v %v", g, set, err)
		}
		wantCode(t, newHost(t, older, "b").run(w), 113, dispatch.No, coord.RunFree)
		if w.count() != 0 {
			t.Error("it ran")
		}
	})
}

// A process that lives on gives back what it could not give back when its run ended.
func TestALeaseThatCouldNotBeGivenBackIsGivenBackLater(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(string) error }{
		"after an outcome":       {failing(coord.ErrIndeterminate, "complete", "finish", "release"), nil},
		"after a start given up": {failing(coord.ErrIndeterminate, "release"), failing(coord.ErrIndeterminate, "start")},
	} {
		for _, settle := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", settle), func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *memory.Store) {
					h := newHost(t, s, "a")
					h.c.fail(c.before, c.after)
					long := func(j *dispatch.Job) { j.TTL = coord.MaxTTL }
					h.run(&work{}, long)
					if l, held, err := h.memory().Current(t.Context(), agent); err != nil || !held || l.Expired {
						t.Fatalf("nothing to give back: %+v, %v", l, err)
					}
					h.c.fail(nil, nil)
					if settle {
						if _, err := h.d.Settle(t.Context()); err != nil {
							t.Error(err)
						}
						if _, held, err := h.memory().Current(t.Context(), agent); err != nil || held {
							t.Errorf("held %v, %v", held, err)
						}
					}
					r := h.run(&work{}, long, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:next", runID("key:next") })
					wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
				})
			})
		}
	}
}

func TestTheCodeOfAStopStaysThoughTheLedgerLacksTheOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		h.c.fail(failing(coord.ErrIndeterminate, "complete", "finish"), nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&dispatch.Interrupt{Signal: 15}) })
		r := h.check(h.d.Run(ctx, h.job(&work{takes: time.Hour})))
		if r.Code != 143 || !r.Unsettled || r.State != coord.RunFailed {
			t.Errorf("got %+v", r)
		}
	})
}

func TestAnEffectsOwnWordsAreCutToWhatTheLedgerTakes(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		words := strings.Repeat("größe\xff", 300)
		wantCode(t, h.run(&work{words: words}), 0, dispatch.Yes, coord.RunCommitted)
		got := h.view(occurrence).Entry.Attempts[0].Result
		if len(got) > coord.MaxResult || len(got) < coord.MaxResult-4 || !utf8.ValidString(got) || !strings.HasPrefix(got, "größe") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}
