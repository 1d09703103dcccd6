package claim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	inbubble "github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node/claim"
	"github.com/syncnode/syncnode/node/events"
	"github.com/syncnode/syncnode/node/hold"
)

func TestAClientRunsOnceAndItsResultIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, b := newProcess(t, s, "a"), newProcess(t, s, "b")
		c := a.claim(ask("1"))
		st := a.fence(c, "request-1")
		if st.Epoch != c.Epoch || st.Attempt == "" || !st.Deadline.After(time.Now()) || !st.StopBy.Before(st.Deadline) {
			t.Errorf("standing %+v of claim %+v", st, c)
		}
		for range 20 { // longer than many leases
			inbubble.Pass(st.TTL / 3)
			now, err := a.desk.Heartbeat(st.Run, st.Attempt, "")
			if err != nil || now.Stop != nil || time.Until(now.Deadline) < st.TTL/2 {
				t.Fatalf("heartbeat: %+v, %v", now, err)
			}
		}
		if got := a.end(st, coord.Committed); got.State != coord.RunCommitted || !got.Settled {
			t.Errorf("ended %+v", got)
		}
		for _, p := range []*process{a, b} {
			_, err := p.desk.Claim(t.Context(), ask("1"))
			wantErr(t, "claim of a committed run", err, coord.ErrCommitted)
		}
		if got := view(t, s, "1").Entry.Attempts[0]; got.Result != "so it was" || got.Device != "a" {
			t.Errorf("recorded: %+v", got)
		}
	})
}

func TestAClaimThatIsNotUsedLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, b := newProcess(t, s, "a"), newProcess(t, s, "b")
		c := a.claim(ask("1"))
		_, err := b.desk.Claim(t.Context(), ask("1"))
		wantErr(t, "claim at another node", err, coord.ErrHeld)
		for range 3 { // a client that prepares shows that it is there
			inbubble.Pass(c.TTL - time.Second)
			if _, err := a.desk.Heartbeat(c.Run, "", c.ID); err != nil {
				t.Fatal(err)
			}
		}
		inbubble.Pass(c.TTL + hold.Linger + time.Second) // and is silent then
		if v := view(t, s, "1"); v.Found || v.Held {
			t.Errorf("left behind: %+v", v)
		}
		_, err = a.desk.Fence(t.Context(), c.Run, c.ID, "request-1")
		wantErr(t, "fence of a claim that was given up", err, claim.ErrUnknown)
		b.fence(b.claim(ask("1")), "request-2")
	})
}

func TestAClaimThatIsGivenUpFreesTheAgentSoon(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, b := newProcess(t, s, "a"), newProcess(t, s, "b")
		c := a.claim(ask("1"))
		a.desk.Unclaim(c.Run, c.ID)
		a.desk.Unclaim(c.Run, c.ID)
		next := a.claim(ask("2"))
		_, err := b.desk.Claim(t.Context(), ask("1"))
		wantErr(t, "claim while another run has the agent", err, coord.ErrHeld)
		a.desk.Unclaim(next.Run, next.ID)
		inbubble.Pass(hold.Linger)
		b.claim(ask("1"))
	})
}

func TestARepeatedClaimIsTheSameClaimAndThatOfAnotherIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		mine := ask("1")
		mine.Request = "mine"
		c := a.claim(mine)
		if again := a.claim(mine); again != c {
			t.Errorf("repeated: %+v, first %+v", again, c)
		}
		other := ask("1")
		other.Request = "other"
		for _, no := range []claim.Ask{ask("1"), other} {
			_, err := a.desk.Claim(t.Context(), no)
			wantErr(t, "claim of another client", err, coord.ErrInProgress)
		}
		a.fence(c, "request-1")
		_, err := a.desk.Claim(t.Context(), mine)
		wantErr(t, "repeat of a claim that was used", err, coord.ErrInProgress)
	})
}

func TestOnlyOneRequestPassesTheFence(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		c := a.claim(ask("1"))
		st := a.fence(c, "request-1")
		if again := a.fence(c, "request-1"); again.Attempt != st.Attempt || again.Epoch != st.Epoch {
			t.Errorf("repeated: %+v, first %+v", again, st)
		}
		_, err := a.desk.Fence(t.Context(), c.Run, c.ID, "request-2")
		wantErr(t, "another request", err, claim.ErrFenced)
		_, err = a.desk.Fence(t.Context(), c.Run, coord.NewNonce(), "request-1")
		wantErr(t, "another claim", err, claim.ErrUnknown)
		a.end(st, coord.Committed)
		if _, err = a.desk.Fence(t.Context(), c.Run, c.ID, "request-1"); err == nil {
			t.Error("yes after the end")
		}
		if n := len(view(t, s, "1").Entry.Attempts); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestAClientThatIsSilentAfterTheFenceIsInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, b := newProcess(t, s, "a"), newProcess(t, s, "b")
		st := a.fence(a.claim(ask("1")), "request-1")
		inbubble.Pass(st.TTL - time.Second)
		wantState(t, s, "1", coord.RunRunning)
		_, err := b.desk.Claim(t.Context(), ask("1"))
		wantErr(t, "claim while it runs", err, coord.ErrInProgress)
		inbubble.Pass(time.Second + hold.Linger)
		wantState(t, s, "1", coord.RunInDoubt)
		_, err = b.desk.Claim(t.Context(), ask("1"))
		wantErr(t, "claim of a run in doubt", err, coord.ErrInDoubt)
		_, err = a.desk.Heartbeat(st.Run, st.Attempt, "")
		wantErr(t, "heartbeat of who was given up", err, claim.ErrUnknown)
		b.fence(b.claim(ask("2")), "request-2") // the agent is free for other runs

		// What it did is a fact, and may be told late.
		if got := a.end(st, coord.Committed); got.State != coord.RunCommitted || !got.Settled {
			t.Errorf("told late: %+v", got)
		}
		wantState(t, s, "1", coord.RunCommitted)
	})
}

func TestAClientThatIsGoneBeforeTheFenceAnswersLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		c := a.claim(ask("1"))
		a.c.slow.Store(int64(3 * time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.desk.Fence(ctx, c.Run, c.ID, "request-1"); err == nil {
			t.Fatal("yes without an answer of the ledger")
		}
		inbubble.Pass(5 * time.Second)
		wantState(t, s, "1", coord.RunFree)
		a.c.slow.Store(0)
		a.fence(a.claim(ask("1")), "request-2")
	})
}

func TestAClientThatAsksTheFenceAgainHearsTheSame(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		c := a.claim(ask("1"))
		a.c.slow.Store(int64(3 * time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.desk.Fence(ctx, c.Run, c.ID, "request-1")
		wantErr(t, "a request that was not answered", err, coord.ErrIndeterminate)
		st := a.fence(c, "request-1")
		if n := len(view(t, s, "1").Entry.Attempts); n != 1 || st.Attempt == "" {
			t.Errorf("%d attempts, standing %+v", n, st)
		}
	})
}

func TestAClientIsToldToStopAtTwoThirdsOfTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		st := a.fence(a.claim(ask("1")), "request-1")
		a.c.cut.Store(true)
		for heard := time.Now(); ; inbubble.Pass(100 * time.Millisecond) {
			now, err := a.desk.Heartbeat(st.Run, st.Attempt, "")
			if err != nil {
				t.Fatal(err)
			}
			if now.Stop == nil {
				continue
			}
			wantErr(t, "cause", now.Stop, dispatch.ErrLost)
			if passed := time.Since(heard); passed > st.TTL*2/3+100*time.Millisecond {
				t.Errorf("told after %s", passed)
			}
			if left := time.Until(now.Deadline); left <= 0 || left > st.TTL/3 {
				t.Errorf("%s left to stop", left)
			}
			break
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := a.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Failed, Cause: coord.CauseLost})
			if err != nil || got.State != coord.RunFailed || got.Cause != coord.CauseLost {
				t.Errorf("ended %+v, %v", got, err)
			}
		}()
		inbubble.Pass(time.Second)
		a.c.cut.Store(false)
		<-done
		wantState(t, s, "1", coord.RunFailed)
	})
}

func TestAClientThatDoesNotStopInTimeIsInDoubtBeforeTheLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		st := a.fence(a.claim(ask("1")), "request-1")
		a.c.cut.Store(true)
		begun := time.Now()
		for {
			inbubble.Pass(time.Second)
			if _, err := a.desk.Heartbeat(st.Run, st.Attempt, ""); err != nil {
				wantErr(t, "heartbeat", err, claim.ErrUnknown)
				break
			}
			if time.Since(begun) > st.TTL {
				t.Fatal("it is taken for running when the lease is over")
			}
		}
		a.c.cut.Store(false)
		inbubble.Pass(5 * time.Second)
		wantState(t, s, "1", coord.RunInDoubt)
	})
}

func TestTheEndIsRecordedOnceAndMayBeToldAgain(t *testing.T) {
	for _, state := range []coord.State{coord.Committed, coord.Failed} {
		bubble(t, func(t *testing.T, s *memory.Store) {
			a := newProcess(t, s, "a")
			st := a.fence(a.claim(ask("1")), "request-1")
			first := a.end(st, state)
			if again := a.end(st, state); again != first {
				t.Errorf("told again: %+v, first %+v", again, first)
			}
			other := map[coord.State]coord.State{coord.Committed: coord.Failed, coord.Failed: coord.Committed}[state]
			_, err := a.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: other})
			wantErr(t, "another end", err, coord.ErrClosed)
			if got := view(t, s, "1").Entry.Attempts; len(got) != 1 || got[0].State != state {
				t.Errorf("recorded: %+v", got)
			}
		})
	}
}

func TestAnotherResultOfAnEndedAttemptIsRefused(t *testing.T) {
	for what, ends := range map[string][2]claim.End{
		"commit":               {{State: coord.Committed, Result: "41"}, {State: coord.Committed, Result: "42"}},
		"commit with a result": {{State: coord.Committed}, {State: coord.Committed, Result: "42"}},
		"commit without":       {{State: coord.Committed, Result: "41"}, {State: coord.Committed}},
		"fail":                 {{State: coord.Failed, Exit: 1, Result: "41"}, {State: coord.Failed, Exit: 1, Result: "42"}},
		"exit code":            {{State: coord.Failed, Exit: 1}, {State: coord.Failed, Exit: 2}},
		"signal":               {{State: coord.Failed, Exit: 1}, {State: coord.Failed, Signal: 9}},
	} {
		bubble(t, func(t *testing.T, s *memory.Store) {
			a := newProcess(t, s, "a")
			st := a.fence(a.claim(ask("1")), "request-1")
			for i := range ends {
				ends[i].Run, ends[i].Attempt = st.Run, st.Attempt
			}
			first, err := a.desk.End(t.Context(), ends[0])
			if err != nil {
				t.Fatal(err)
			}
			b := newProcess(t, s, "a")
			for _, p := range []*process{a, b} {
				_, err := p.desk.End(t.Context(), ends[1])
				if wantErr(t, what, err, coord.ErrClosed); err != nil && !strings.Contains(err.Error(), "what is told now is not kept") {
					t.Errorf("%s: %v", what, err)
				}
				if again, err := p.desk.End(t.Context(), ends[0]); err != nil || again != first {
					t.Errorf("%s: told again: %+v, %v, first %+v", what, again, err, first)
				}
			}
			if got := view(t, s, "1").Entry.Attempts[0]; got.Result != ends[0].Result {
				t.Errorf("%s: recorded %+v", what, got)
			}
		})
	}
}

func TestOfTwoWhoTellAnEndAtOnceTheSecondHearsWhetherItIsTheSame(t *testing.T) {
	for _, later := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *memory.Store) {
			a := newProcess(t, s, "a")
			st := a.fence(a.claim(ask("1")), "request-1")
			if later { // they tell it to the next process, which looks for all of them before it records one
				a.die()
				a = newProcessOf(t, s, "a", journal{}, proved)
				a.c.slow.Store(int64(time.Second))
			}
			ends := make(chan error)
			for _, result := range []string{"41", "41", "42"} {
				go func() {
					_, err := a.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Committed, Result: result})
					ends <- err
				}()
			}
			refused := 0
			for range 3 {
				if err := <-ends; err != nil {
					wantErr(t, "another result", err, coord.ErrClosed)
					refused++
				}
			}
			want := 1
			if view(t, s, "1").Entry.Attempts[0].Result == "42" {
				want = 2
			}
			if refused != want {
				t.Errorf("later %t: %d were refused, want %d", later, refused, want)
			}
		})
	}
}

// A journal knows an end that the ledger does not have yet.
type journal struct {
	dispatch.Book
	end coord.Outcome
}

func (j journal) Standing(context.Context, string, string) (dispatch.Standing, error) {
	if j.end.Run == "" {
		return dispatch.Standing{}, nil
	}
	return dispatch.Standing{Unsettled: []coord.Outcome{j.end}}, nil
}
func (journal) Outcome(context.Context, coord.Outcome) error       { return nil }
func (journal) Settled(context.Context, ...string) error           { return nil }
func (journal) Pending(context.Context, coord.Outcome) error       { return nil }
func (journal) Granted(context.Context, string, coord.Epoch) error { return nil }

func proved(string, coord.Process) bool   { return true }
func unproved(string, coord.Process) bool { return false }

func TestAnEndInTheJournalStandsAgainstAnother(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		st := a.fence(a.claim(ask("1")), "request-1")
		a.die()
		kept := view(t, s, "1").Entry
		o := coord.Outcome{Agent: agent, Run: st.Run, Occurrence: kept.Occurrence, Attempt: kept.Attempts[0]}
		o.Attempt.State, o.Attempt.Result = coord.Committed, "41"
		b := newProcessOf(t, s, "a", journal{end: o}, proved)
		e := claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Committed, Result: "42"}
		_, err := b.desk.End(t.Context(), e)
		wantErr(t, "another result", err, coord.ErrClosed)
		e.Result, e.State = "41", coord.Failed
		_, err = b.desk.End(t.Context(), e)
		wantErr(t, "another state", err, coord.ErrClosed)
		e.State = coord.Committed
		if got, err := b.desk.End(t.Context(), e); err != nil || !got.Settled {
			t.Errorf("told again: %+v, %v", got, err)
		}
		if got := view(t, s, "1").Entry.Attempts[0]; got.Result != "41" {
			t.Errorf("recorded %+v", got)
		}
	})
}

func TestACommitByDecisionGetsTheResultThatTheClientTells(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		st := a.fence(a.claim(ask("1")), "request-1")
		inbubble.Pass(st.TTL + time.Second)
		_, err := a.c.Resolve(t.Context(), coord.Resolution{Agent: agent, Run: st.Run, Attempt: st.Attempt, As: coord.Committed, By: "somebody", Reason: "it did"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			a.end(st, coord.Committed)
		}
		if got := view(t, s, "1").Entry.Attempts[0]; got.Result != "so it was" || got.By != "somebody" {
			t.Errorf("recorded %+v", got)
		}
		_, err = a.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Committed, Result: "otherwise"})
		wantErr(t, "another result", err, coord.ErrClosed)
	})
}

func TestARunThatNeverStartedIsFreeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		a.end(a.fence(a.claim(ask("1")), "request-1"), coord.Void)
		wantState(t, s, "1", coord.RunFree)
		a.end(a.fence(a.claim(ask("1")), "request-2"), coord.Open)
		wantState(t, s, "1", coord.RunInDoubt)
		retry := ask("1")
		retry.OnDoubt = dispatch.DoubtRetry
		a.end(a.fence(a.claim(retry), "request-3"), coord.Failed)
		_, err := a.desk.Claim(t.Context(), ask("1"))
		wantErr(t, "claim of a failed run", err, coord.ErrFailed)
		retry.IfFailed = dispatch.FailedRetry
		a.end(a.fence(a.claim(retry), "request-4"), coord.Committed)
		wantState(t, s, "1", coord.RunCommitted)
	})
}

func TestANodeThatDiesBeforeTheBeginLeavesNothingAndAfterItADoubt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		a.claim(ask("1"))
		open := a.claim(claim.Ask{Agent: "other", Occurrence: "key:2"})
		st := a.fence(open, "request-2")
		a.die()
		inbubble.Pass(coord.DefaultTTL + 2*time.Second)

		b := newProcess(t, s, "a") // a later process of the device
		_, err := b.desk.Heartbeat(st.Run, st.Attempt, "")
		wantErr(t, "heartbeat to the later process", err, claim.ErrUnknown)
		b.fence(b.claim(ask("1")), "request-3")
		_, err = b.desk.Claim(t.Context(), claim.Ask{Agent: "other", Occurrence: "key:2"})
		wantErr(t, "claim of what was begun", err, coord.ErrInDoubt)
		other := newProcess(t, s, "b")
		_, err = other.desk.End(t.Context(), claim.End{Agent: "other", Run: st.Run, Attempt: st.Attempt, State: coord.Committed})
		wantErr(t, "end told to another device", err, claim.ErrForeign)
		got, err := b.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Committed, Result: "done"})
		if err != nil || got.State != coord.RunCommitted || got.Agent != "other" {
			t.Errorf("told to the later process: %+v, %v", got, err)
		}
	})
}

func TestAnEndIsTakenByALaterProcessOfTheDeviceAtOnce(t *testing.T) {
	for state, want := range map[coord.State]coord.RunState{coord.Committed: coord.RunCommitted, coord.Failed: coord.RunFailed,
		coord.Void: coord.RunFree, coord.Open: coord.RunInDoubt} {
		for _, disk := range []bool{true, false} {
			bubble(t, func(t *testing.T, s *memory.Store) {
				a := newProcess(t, s, "a")
				st := a.fence(a.claim(ask("1")), "request-1")
				a.die()
				b := newProcess(t, s, "a")
				if disk {
					b = newProcessOf(t, s, "a", journal{}, proved)
				}
				wantState(t, s, "1", coord.RunRunning) // the lease of the first is not over
				if !disk && state == coord.Void {      // nothing proves that the first is dead: its run is not freed
					_, err := b.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: state})
					wantErr(t, "void without a disk", err, coord.ErrInProgress)
					wantState(t, s, "1", coord.RunRunning)
					inbubble.Pass(st.TTL + time.Second)
				}
				if got := b.end(st, state); got.State != want || !got.Settled {
					t.Errorf("told %s: %+v", state, got)
				}
				wantState(t, s, "1", want)
				if !disk && state == coord.Void {
					return
				}
				_, err := b.desk.Claim(t.Context(), ask("2"))
				wantErr(t, "claim while the lease of the first is not over", err, coord.ErrHeld)
			})
		}
	}
}

func TestNobodyEndsTheAttemptOfALivingProcessOfTheDevice(t *testing.T) {
	for _, state := range []coord.State{coord.Committed, coord.Failed, coord.Void, coord.Open} {
		bubble(t, func(t *testing.T, s *memory.Store) {
			beside := newProcess(t, s, "a") // an exec of the same device, which asks no node
			st := beside.fence(beside.claim(ask("1")), "request-1")
			node := newProcessOf(t, s, "a", journal{}, unproved)
			_, err := node.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: state})
			wantErr(t, "told "+string(state), err, coord.ErrInProgress)
			wantState(t, s, "1", coord.RunRunning)
			if got := beside.end(st, coord.Failed); got.State != coord.RunFailed || !got.Settled {
				t.Errorf("its own end after %s: %+v", state, got)
			}
			wantState(t, s, "1", coord.RunFailed)
		})
	}
}

// Its liveness runs out when it is cut off, and what it runs may go on.
func TestOnlyProofFreesTheAttemptOfAnotherProcessOfTheDevice(t *testing.T) {
	for _, test := range []struct {
		name  string
		proof func(string, coord.Process) bool
		kept  bool // its journal has the end
		state coord.State
		want  coord.RunState
	}{
		{"never started", unproved, false, coord.Void, coord.RunInDoubt},
		{"never started, proved dead", proved, false, coord.Void, coord.RunFree},
		{"never started, as the journal says", unproved, true, coord.Void, coord.RunFree},
		{"committed", unproved, false, coord.Committed, coord.RunCommitted},
		{"failed", unproved, false, coord.Failed, coord.RunFailed},
	} {
		bubble(t, func(t *testing.T, s *memory.Store) {
			beside := newProcess(t, s, "a") // an exec of the same device, which asks no node
			st := beside.fence(beside.claim(ask("1")), "request-1")
			beside.die()
			inbubble.Pass(st.TTL + time.Second)
			wantState(t, s, "1", coord.RunInDoubt)
			book := journal{}
			if test.kept {
				entry := view(t, s, "1").Entry
				book.end = coord.Outcome{Agent: agent, Run: st.Run, Occurrence: entry.Occurrence, Attempt: entry.Attempts[0]}
				book.end.Attempt.State = test.state
			}
			node := newProcessOf(t, s, "a", book, test.proof)
			got, err := node.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: test.state})
			if test.want == coord.RunInDoubt {
				wantErr(t, test.name, err, coord.ErrInDoubt)
			} else if err != nil || got.State != test.want {
				t.Errorf("%s: %+v, %v", test.name, got, err)
			}
			wantState(t, s, "1", test.want)
		})
	}
}

func TestOfAFailureAndACommitThatAreToldLateAtOnceOneIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		st := a.fence(a.claim(ask("1")), "request-1")
		a.die()
		b := newProcessOf(t, s, "a", journal{}, proved)
		b.c.slow.Store(int64(time.Second))
		ends := make(chan error)
		for _, state := range []coord.State{coord.Failed, coord.Committed} {
			go func() {
				_, err := b.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: state})
				ends <- err
			}()
			synctest.Wait() // the failure is on its way
		}
		if err := <-ends; err != nil {
			t.Errorf("the first: %v", err)
		}
		wantErr(t, "the other", <-ends, coord.ErrClosed)
		wantState(t, s, "1", coord.RunFailed)
	})
}

func TestAnEndThatIsRecordedAndCannotBeLookedAtIsStillAnEvent(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		st := a.fence(a.claim(ask("1")), "request-1")
		a.die()
		b := newProcessOf(t, s, "a", journal{}, proved)
		b.c.last.Store(true)
		e := claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Committed}
		_, err := b.desk.End(t.Context(), e)
		wantErr(t, "told", err, coord.ErrIndeterminate)
		b.c.cut.Store(false)
		if _, err := b.desk.End(t.Context(), e); err != nil {
			t.Errorf("told again: %v", err)
		}
		ended := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, _, _, err := b.ring.Wait(ctx, 0)
		for _, e := range got {
			if e.Kind == events.RunEnded && e.Attempt == st.Attempt && e.State == string(coord.RunCommitted) {
				ended++
			}
		}
		if ended != 1 || err != nil {
			t.Errorf("%d ends in %+v, %v", ended, got, err)
		}
	})
}

func TestAnEndIsTakenByTheProcessThatGaveTheAttemptUpAlsoWhereItsDoubtIsNotRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcessOf(t, s, "a", journal{}, unproved)
		st := a.fence(a.claim(ask("1")), "request-1")
		a.c.deaf.Store(true)
		inbubble.Pass(st.TTL + dispatch.DefaultRecordTimeout + 5*time.Second)
		wantState(t, s, "1", coord.RunRunning)
		a.c.deaf.Store(false)
		a.end(st, coord.Void)
		wantState(t, s, "1", coord.RunFree)
	})
}

func TestAPersonsDecisionIsOverriddenByACommitOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		st := a.fence(a.claim(ask("1")), "request-1")
		inbubble.Pass(st.TTL + time.Second)
		_, err := a.c.Resolve(t.Context(), coord.Resolution{Agent: agent, Run: st.Run, Attempt: st.Attempt, As: coord.Void, By: "somebody", Reason: "it did not"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Failed})
		wantErr(t, "a failure told after a decision", err, coord.ErrClosed)
		a.end(st, coord.Committed)
		wantState(t, s, "1", coord.RunCommitted)
	})
}

func TestALedgerThatCannotBeReachedMeansNotRun(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		c := a.claim(ask("1"))
		a.c.cut.Store(true)
		_, err := a.desk.Claim(t.Context(), ask("2"))
		wantErr(t, "claim", err, coord.ErrNotSent)
		_, err = a.desk.Fence(t.Context(), c.Run, c.ID, "request-1")
		wantErr(t, "fence", err, coord.ErrNotSent)
		a.c.cut.Store(false)
		inbubble.Pass(time.Minute)
		wantState(t, s, "1", coord.RunFree)
		st := a.fence(a.claim(ask("1")), "request-2")
		a.c.cut.Store(true)
		_, err = a.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Committed}) // there is no journal here
		wantErr(t, "end that could be recorded nowhere", err, coord.ErrIndeterminate)
		a.c.cut.Store(false)
		a.end(st, coord.Committed)
	})
}

func TestANodeThatGoesDownLetsOpenAttemptsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		unused := a.claim(claim.Ask{Agent: "unused", Occurrence: "key:1"})
		st := a.fence(a.claim(ask("1")), "request-1")
		a.stop()
		synctest.Wait()
		_, err := a.desk.Claim(t.Context(), ask("2"))
		wantErr(t, "claim", err, claim.ErrDraining)
		_, err = a.desk.Fence(t.Context(), unused.Run, unused.ID, "request-2")
		wantErr(t, "fence", err, claim.ErrUnknown)
		var told error
		for begun := time.Now(); told == nil; inbubble.Pass(time.Second) {
			now, err := a.desk.Heartbeat(st.Run, st.Attempt, "")
			if err != nil {
				t.Fatal(err)
			}
			told = now.Stop
			if passed := time.Since(begun); told != nil && passed < claim.DefaultDrain {
				t.Errorf("told to stop after %s", passed)
			}
		}
		wantErr(t, "cause", told, dispatch.ErrDrain)
		got, err := a.desk.End(t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: coord.Failed, Signal: 15})
		if err != nil || got.Cause != coord.CauseDrain {
			t.Errorf("ended %+v, %v", got, err)
		}
		<-a.ended
	})
}

func TestABusyNodeIsNotRefusedForTheSakeOfIdleOnes(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		busy := newProcess(t, s, "busy")
		for i := range 10 {
			idle := newProcess(t, s, fmt.Sprintf("idle-%d", i))
			idle.end(idle.fence(idle.claim(ask(fmt.Sprintf("idle-%d", i))), "request-1"), coord.Committed) // it had the agent once
			inbubble.Pass(hold.Linger)
		}
		for i := range 100 { // longer than many leases
			st := busy.fence(busy.claim(ask(fmt.Sprint(i))), "request-1")
			inbubble.Pass(time.Second)
			busy.end(st, coord.Committed)
			inbubble.Pass(time.Duration(i) * 100 * time.Millisecond)
		}
	})
}

func TestAnOpenAttemptMayAskWhetherItMayStillAct(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a := newProcess(t, s, "a")
		st := a.fence(a.claim(ask("1")), "request-1")
		if err := a.desk.Check(t.Context(), st.Run, st.Attempt); err != nil {
			t.Errorf("an open attempt hears %v", err)
		}
		wantErr(t, "another attempt", a.desk.Check(t.Context(), st.Run, coord.NewNonce()), claim.ErrUnknown)
		if err := a.c.Pause(t.Context(), agent, coord.Gate{By: "ada", Reason: "stop"}); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "of a paused agent", a.desk.Check(t.Context(), st.Run, st.Attempt), coord.ErrPaused)
		a.end(st, coord.Committed)
		wantErr(t, "after the end", a.desk.Check(t.Context(), st.Run, st.Attempt), claim.ErrUnknown)
	})
}

func TestAnAgentThatIsHandedOverIsFreeWhenTheEndIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, b := newProcess(t, s, "a"), newProcess(t, s, "b")
		for i := range 10 { // at one instant
			for _, p := range []*process{a, b} {
				next := claim.Ask{Agent: agent, Occurrence: fmt.Sprintf("key:%p-%d", p, i), HandOver: true}
				p.end(p.fence(p.claim(next), "request-1"), coord.Committed)
			}
		}
	})
}
