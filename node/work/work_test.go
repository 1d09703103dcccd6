package work_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/node/work"
	"github.com/syncnode/syncnode/schedule/due"
)

// file is one agent that runs each minute, with some settings.
func file(more string) string {
	return "version: 1\ndrain: 20s\nagents: { report: { schedule: \"@every 1m\", command: [/bin/report]" + more + " } }\n"
}

func minute(w *world, n int) time.Time { return w.begin.Add(time.Duration(n) * time.Minute) }

func (w *world) want(at time.Time, ends ...string) {
	w.t.Helper()
	if got := w.ends("report", at); fmt.Sprint(got) != fmt.Sprint(ends) {
		w.t.Errorf("%s ended as %v, want %v", at.UTC().Format(time.TimeOnly), got, ends)
	}
}

// set changes what effects do from now on.
func (w *world) set(takes time.Duration, exit func(p dispatch.Permit) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takes, w.exit = takes, exit
}

func TestEachOccurrenceIsBegunOnceAtItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.start("a", parse(t, file("")), settings{})
		bubble.Pass(time.Hour + 30*time.Second)
		l.end()
		ends := w.everyOccurrence("report", minute(w, 1), minute(w, 60), true)
		if ends["committed"] != 60 {
			t.Errorf("got %v", ends)
		}
		for n := 1; n <= 60; n++ {
			if e := w.effects[runID("report", minute(w, n))]; len(e) == 1 && e[0].at.Sub(minute(w, n)) > 10*time.Millisecond {
				t.Errorf("the one of minute %d began at %s", n, e[0].at)
			}
		}
	})
}

func TestANodeThatWasDownForThreeHoursCatchesUpOnceAndTellsOfTheRestInOneRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		f := parse(t, file(""))
		l := w.start("a", f, settings{})
		bubble.Pass(10*time.Minute + 30*time.Second)
		l.crash()
		bubble.Pass(3 * time.Hour)
		l = w.start("a", f, settings{})
		bubble.Pass(30 * time.Second)
		w.want(minute(w, 190), "committed")
		if gaps := w.gaps("a"); len(gaps) != 1 || gaps[0].Reason != due.Superseded || gaps[0].Count != 179 ||
			!gaps[0].First.Equal(minute(w, 11)) || !gaps[0].Last.Equal(minute(w, 189)) {
			t.Errorf("gaps: %+v", gaps)
		}
		bubble.Pass(2 * time.Minute)
		l.end()
		w.everyOccurrence("report", minute(w, 1), minute(w, 192), true)
		if got := l.Missed()["report"][due.Superseded]; got != 179 || len(l.Missed()["report"]) != len(due.Reasons()) {
			t.Errorf("counted: %v", l.Missed())
		}
	})
}

func TestAClockThatIsPutBackRepeatsNothingAndOnePutForwardIsCaughtUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		f := parse(t, file(""))
		l := w.start("a", f, settings{})
		bubble.Pass(30*time.Minute + 30*time.Second)
		l.putClock(-20 * time.Minute)
		bubble.Pass(10 * time.Minute)
		l.end() // also over a restart
		l = w.start("a", f, settings{ahead: -20 * time.Minute})
		bubble.Pass(10 * time.Minute)
		w.everyOccurrence("report", minute(w, 1), minute(w, 30), true)
		if got := len(w.effects); got != 30 {
			t.Errorf("%d runs after the clock was put back, want those 30 of before", got)
		}
		l.putClock(10 * time.Minute) // half an hour forward
		bubble.Pass(31 * time.Second)
		l.end()
		w.everyOccurrence("report", minute(w, 1), minute(w, 60), true)
		w.want(minute(w, 61), "committed")
		if gaps := w.gaps("a"); len(gaps) != 1 || gaps[0].Count != 29 {
			t.Errorf("gaps: %+v", gaps)
		}
	})
}

func TestWhatComesDueDuringARunIsMissedOrQueued(t *testing.T) {
	for _, queue := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			more := ""
			if queue {
				more = ", overlap: queue"
			}
			w.set(150*time.Second, nil)
			l := w.start("a", parse(t, file(more)), settings{})
			bubble.Pass(4*time.Minute + 10*time.Second)
			if queue { // 1 ran till 3:30, then the newest that waited
				w.want(minute(w, 1), "committed")
				w.want(minute(w, 2), "overlap")
				w.want(minute(w, 3), "running")
			} else {
				w.want(minute(w, 2), "overlap")
				w.want(minute(w, 3), "overlap")
				w.want(minute(w, 4), "running")
			}
			l.end()
			w.everyOccurrence("report", minute(w, 1), minute(w, 3), true)
		})
	}
}

func TestAFailedAttemptIsRepeatedAsTheConfigurationSays(t *testing.T) {
	for name, c := range map[string]struct {
		more    string
		exit    int
		effects int
		ends    string
	}{
		"never":          {"", 3, 1, "failed"},
		"until it works": {", retry: { count: 5, backoff: 1s }", 0, 3, "committed"},
		"so often":       {", retry: { count: 2, backoff: 1s }", 3, 3, "failed"},
		"after its code": {", retry: { count: 2, backoff: 1s, exit_codes: [3] }", 3, 3, "failed"},
		"after another":  {", retry: { count: 2, backoff: 1s, exit_codes: [75] }", 3, 1, "failed"},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			tries := 0
			w.set(time.Second, func(dispatch.Permit) int {
				if tries++; c.exit == 0 && tries < 3 {
					return 3
				}
				return c.exit
			})
			l := w.start("a", parse(t, file(c.more)), settings{})
			bubble.Pass(time.Minute + 50*time.Second)
			l.end()
			w.want(minute(w, 1), c.ends)
			if got := w.count(runID("report", minute(w, 1))); got != c.effects {
				t.Errorf("%s: %d effects, want %d", name, got, c.effects)
			}
			if told := l.tells(); (told == 1) != (c.ends == "failed") || told > 1 {
				t.Errorf("%s: told %d times", name, told)
			}
		})
	}
}

func TestTheAttemptsThatAreLeftAreMadeByWhoeverComesNext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.proof = true
		f := parse(t, file(", retry: { count: 2, backoff: 20s }"))
		w.set(time.Second, func(dispatch.Permit) int { return 3 })
		l := w.start("a", f, settings{})
		bubble.Pass(time.Minute + 10*time.Second) // one attempt failed
		l.crash()
		l = w.start("a", f, settings{})
		bubble.Pass(5 * time.Minute)
		l.end()
		if got := w.count(runID("report", minute(w, 1))); got != 3 {
			t.Errorf("%d attempts, want 3", got)
		}
	})
}

func TestAFailureIsToldOnceAndNotBeforeNobodyMakesTheAttemptsThatAreLeft(t *testing.T) {
	for name, c := range map[string]struct {
		more     string
		works    int           // which attempt does; 0: none
		leaves   time.Duration // after the run began, in good order
		before   int           // how often the node that left told
		attempts int
	}{
		"they fail after it left":          {", retry: { count: 2, backoff: 20s }", 0, 10 * time.Second, 0, 3},
		"the last one works":               {", retry: { count: 2, backoff: 20s }", 3, 10 * time.Second, 0, 3},
		"it leaves after two":              {", retry: { count: 2, backoff: 10s }", 0, 20 * time.Second, 0, 3},
		"there are none":                   {"", 0, 10 * time.Second, 1, 1},
		"another code":                     {", retry: { count: 2, backoff: 20s, exit_codes: [75] }", 0, 10 * time.Second, 1, 1},
		"a later one was missed meanwhile": {", retry: { count: 2, backoff: 5m }", 0, 100 * time.Second, 1, 1},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			f := parse(t, file(c.more))
			run := runID("report", minute(w, 1))
			w.set(time.Second, func(p dispatch.Permit) int {
				if p.Run != run || len(w.effects[run]) == c.works {
					return 0
				}
				return 3
			})
			l := w.start("a", f, settings{})
			bubble.Pass(time.Minute + c.leaves)
			l.end()
			if told := l.tells(); told != c.before {
				t.Errorf("%s: the node that left told %d times, want %d\n%s", name, told, c.before, l.said())
			}
			next := w.start("a", f, settings{})
			bubble.Pass(5 * time.Minute)
			next.end()
			if got := w.count(run); got != c.attempts {
				t.Errorf("%s: %d attempts, want %d", name, got, c.attempts)
			}
			if told := l.tells() + next.tells(); (told == 1) != (c.works == 0) || told > 1 {
				t.Errorf("%s: told %d times in all", name, told)
			}
		})
	}
}

func TestAFailureWhoseEndTheLedgerDidNotTakeIsToldAfterItsLastAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		run := runID("report", minute(w, 1))
		w.set(50*time.Second, func(p dispatch.Permit) int {
			if w.takes = time.Second; p.Run != run {
				return 0
			} else if len(w.effects[run]) == 1 {
				w.takes = 50 * time.Second
			}
			return 3
		})
		l := w.start("a", parse(t, file(", on_lost: keep, retry: { count: 1, backoff: 1s }")), settings{})
		bubble.Pass(70 * time.Second)
		l.fail(coordtest.Before)
		bubble.Pass(time.Minute)
		if w.count(run) != 1 || l.tells() != 0 {
			t.Errorf("during the outage: %d attempts, told %d times", w.count(run), l.tells())
		}
		l.fail(coordtest.Fine)
		bubble.Pass(3 * time.Minute)
		l.end()
		if w.count(run) != 2 || l.tells() != 1 {
			t.Errorf("%d attempts, told %d times\n%s", w.count(run), l.tells(), l.said())
		}
	})
}

func TestATriggeredRunWhoseAttemptsNobodyMakesIsToldWhenTheNodeLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.set(time.Second, func(dispatch.Permit) int { return 3 })
		l := w.start("a", parse(t, file(", retry: { count: 2, backoff: 20s }")), settings{})
		bubble.Pass(2 * time.Second)
		_, err := l.Trigger(t.Context(), "report", "key:now")
		must(t, err)
		bubble.Pass(5 * time.Second)
		l.end()
		if l.tells() != 1 {
			t.Errorf("told %d times\n%s", l.tells(), l.said())
		}
	})
}

func TestAPermittedRunWhoseAttemptsNobodyMakesIsToldWhenTheNodeLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		f := parse(t, "version: 1\nagents: { report: { schedule: \"@every 1h\", command: [/bin/report], retry: { count: 1, backoff: 20s } } }\n")
		w.set(time.Second, func(dispatch.Permit) int { return 3 })
		l := w.start("a", f, settings{})
		at := w.begin.Add(time.Hour)
		bubble.Pass(70 * time.Minute)
		w.permit(at)
		for range 60 {
			if bubble.Pass(time.Second); w.count(runID("report", at)) == 3 {
				break
			}
		}
		bubble.Pass(5 * time.Second)
		l.end()
		if l.tells() != 2 {
			t.Errorf("told %d times, want after the second attempt and after the permitted one\n%s", l.tells(), l.said())
		}
		next := w.start("a", f, settings{})
		bubble.Pass(5 * time.Minute)
		next.end()
		if n := w.count(runID("report", at)); n != 3 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestPeopleAreToldOfARunThatTheDrainStoppedWithinABound(t *testing.T) {
	const drain, bound = 20 * time.Second, 30 * time.Second
	for telling, told := range map[time.Duration]int{25 * time.Second: 1, time.Hour: 0} {
		inBubble(t, func(t *testing.T, w *world) {
			w.set(time.Hour, nil)
			w.telling = telling
			l := w.start("a", parse(t, file("")), settings{})
			bubble.Pass(time.Minute + time.Second)
			began := time.Now()
			l.end()
			w.want(minute(w, 1), "failed")
			if l.tells() != told {
				t.Errorf("told %d times where that takes %s\n%s", l.tells(), telling, l.said())
			}
			if took, want := time.Since(began), drain+min(telling, bound); took < want || took > want+time.Second {
				t.Errorf("the node ended after %s, want %s", took, want)
			}
		})
	}
}

func TestAPausedAgentMissesWhatComesDueAndGoesOnAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.start("a", parse(t, file("")), settings{})
		person := w.store.Process(coord.Process{})
		bubble.Pass(90 * time.Second)
		must(t, person.Pause(t.Context(), "report", coord.Gate{By: "ada", Reason: "test"}))
		bubble.Pass(3 * time.Minute)
		if a := l.agent(); !a.Paused || a.Open == nil || a.Open.Count != 3 || a.Open.Reason != due.Paused {
			t.Errorf("listed as %+v", a)
		}
		must(t, person.Resume(t.Context(), "report"))
		bubble.Pass(2 * time.Minute)
		l.end()
		ends := w.everyOccurrence("report", minute(w, 1), minute(w, 6), true)
		if ends["paused"] != 3 || ends["committed"] != 3 {
			t.Errorf("got %v", ends)
		}
		if gaps := w.gaps("a"); len(gaps) != 1 {
			t.Errorf("%d records of one gap", len(gaps))
		}
	})
}

func (l *life) agent() work.Agent {
	all, err := l.Agents(context.Background())
	if err != nil || len(all) != 1 {
		l.w.t.Fatalf("agents: %v, %v", all, err)
	}
	return all[0]
}

func TestAnAgentThatSomebodyElseHoldsIsMissedAsBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		other := w.store.Process(coord.Process{})
		_, err := other.Acquire(t.Context(), coord.Request{Agent: "report", Device: "client", TTL: coord.MaxTTL})
		must(t, err)
		l := w.start("a", parse(t, file("")), settings{})
		bubble.Pass(10*time.Minute + 30*time.Second)
		l.end()
		ends := w.everyOccurrence("report", minute(w, 1), minute(w, 10), true)
		if ends["busy"] != 4 || ends["committed"] != 6 { // the client's lease ran out after five minutes
			t.Errorf("got %v\n%s", ends, l.said())
		}
	})
}

func TestDuringAnOutageNothingBeginsAndAfterItTheNewestDoes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.start("a", parse(t, file("")), settings{})
		bubble.Pass(90 * time.Second)
		l.fail(coordtest.Before)
		bubble.Pass(10 * time.Minute)
		if got := len(w.effects); got != 1 {
			t.Errorf("%d effects in an outage", got-1)
		}
		l.fail(coordtest.Fine)
		bubble.Pass(10 * time.Second)
		w.want(minute(w, 11), "committed")
		bubble.Pass(2 * time.Minute)
		if lease, _, _ := w.store.Process(coord.Process{}).Current(t.Context(), "report"); lease.Epoch != 1 {
			t.Errorf("a lease that nobody took did not go on: epoch %d", lease.Epoch)
		}
		l.end()
		w.everyOccurrence("report", minute(w, 1), minute(w, 13), true)
	})
}

func TestAnAgentMovesToItsOwnerOnlyWhenItIsIdleAndOneASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		text := "version: 1\nagents:\n"
		for i := range 40 {
			text += fmt.Sprintf("  agent-%02d: { schedule: \"0 12 * * *\", command: [/bin/true] }\n", i)
		}
		text += "  report: { schedule: \"@every 1m\", command: [/bin/report] }\n"
		f := parse(t, text)
		w.set(5*time.Minute, nil)
		a := w.start("a", f, settings{})
		bubble.Pass(90 * time.Second)
		b, c := w.start("b", f, settings{}), w.start("c", f, settings{})
		held := func(l *life) (n int) {
			all, err := l.Agents(t.Context())
			must(t, err)
			for _, x := range all {
				if x.Held {
					n++
				}
			}
			return n
		}
		for range 30 {
			before := held(a)
			bubble.Pass(time.Second)
			if after := held(a); before-after > 1 {
				t.Errorf("%d agents moved within a second", before-after)
			}
		}
		bubble.Pass(20 * time.Second)
		if x, y, z := held(a), held(b), held(c); x+y+z != 41 || x < 6 || y < 6 || z < 6 {
			t.Errorf("agents by node: %d, %d, %d", x, y, z)
		}
		if got := w.count(runID("report", minute(w, 1))); got != 1 || w.view("report", minute(w, 1)).State != coord.RunRunning {
			t.Errorf("the run was touched: %d effects", got)
		}
		bubble.Pass(6 * time.Minute)
		a.end()
		bubble.Pass(2 * time.Second)
		if y, z := held(b), held(c); y+z != 41 {
			t.Errorf("what the node that left had was not taken at once: %d and %d of 41", y, z)
		}
		b.end()
		c.end()
	})
}

func TestWhoLeavesWaitsForWhatRunsAndThenStopsIt(t *testing.T) {
	for takes, want := range map[time.Duration]string{10 * time.Second: "committed", time.Hour: "failed"} {
		inBubble(t, func(t *testing.T, w *world) {
			w.set(takes, nil)
			l := w.start("a", parse(t, file("")), settings{})
			bubble.Pass(time.Minute + time.Second)
			began := time.Now()
			l.end()
			w.want(minute(w, 1), want)
			if took := time.Since(began); want == "failed" && (took < 20*time.Second || took > 21*time.Second) {
				t.Errorf("it was waited %s for what runs", took)
			}
			if v := w.view("report", minute(w, 1)); v.Held || want == "failed" && v.Entry.Attempts[0].Cause != coord.CauseDrain {
				t.Errorf("got %+v", v)
			}
			if len(w.effects) != 1 {
				t.Error("something began while the node left")
			}
		})
	}
}

func TestATriggerBeginsOneRunIfTheAgentIsFree(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		f := parse(t, file("")+"  \n")
		w.set(10*time.Second, nil)
		l := w.start("a", f, settings{})
		bubble.Pass(2 * time.Second)
		run, err := l.Trigger(t.Context(), "report", "key:now")
		if err != nil || run != ident.RunID(namespace, "report", "key:now") {
			t.Fatalf("got %s, %v", run, err)
		}
		bubble.Pass(time.Second)
		if w.count(run) != 1 {
			t.Error("it did not begin")
		}
		_, err = l.Trigger(t.Context(), "report", "key:again")
		if busy, ok := errors.AsType[*hold.BusyError](err); !ok || busy.Run != run {
			t.Errorf("a second one at the same time: %v", err)
		}
		bubble.Pass(20 * time.Second)
		if _, err := l.Trigger(t.Context(), "report", "key:now"); err != nil {
			t.Errorf("the same one again: %v", err)
		}
		if _, err := l.Trigger(t.Context(), "nobody", ""); !errors.Is(err, work.ErrUnknown) {
			t.Errorf("an agent that is not there: %v", err)
		}
		bubble.Pass(2 * time.Minute)
		l.end()
		if w.count(run) != 1 {
			t.Errorf("%d effects of one occurrence", w.count(run))
		}
		w.everyOccurrence("report", minute(w, 1), minute(w, 2), true)
		if _, err := l.Trigger(t.Context(), "report", ""); !errors.Is(err, hold.ErrLeaving) {
			t.Errorf("a trigger of a node that left: %v", err)
		}
	})
}

func TestAFirstStartIsRememberedSoThatARestartForgetsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		f := parse(t, "version: 1\nagents: { report: { schedule: \"0 1 * * *\", command: [/bin/report] } }\n")
		l := w.start("a", f, settings{})
		bubble.Pass(10 * time.Second)
		l.crash()
		bubble.Pass(2 * time.Hour) // it came due meanwhile, for the first time ever
		l = w.start("a", f, settings{})
		bubble.Pass(time.Minute)
		l.end()
		w.want(w.begin.Add(time.Hour), "committed")
	})
}

func TestAPersonsPermissionForOneMoreAttemptIsUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.set(time.Second, func(p dispatch.Permit) int { return min(1, w.again(p.Run)) })
		l := w.start("a", parse(t, "version: 1\nagents: { report: { schedule: \"@every 1h\", command: [/bin/report] } }\n"), settings{})
		at := w.begin.Add(time.Hour)
		bubble.Pass(90 * time.Minute)
		w.want(at, "failed")
		w.permit(at)
		bubble.Pass(time.Minute)
		w.want(at, "committed")
		l.end()
		if n := w.count(runID("report", at)); n != 2 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestEachPermissionIsUsedHoweverOldTheRunIs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.set(time.Second, func(p dispatch.Permit) int { return 1 })
		l := w.start("a", parse(t, file("")), settings{})
		bubble.Pass(20*time.Minute + 10*time.Second)
		var permitted []string
		for _, n := range []int{2, 3} {
			w.permit(minute(w, n))
			permitted = append(permitted, runID("report", minute(w, n)))
		}
		w.set(time.Second, func(p dispatch.Permit) int {
			if p.Run == permitted[0] {
				return 1 // once more
			}
			return 0
		})
		bubble.Pass(12 * time.Minute)
		w.want(minute(w, 2), "failed")
		w.want(minute(w, 3), "committed")
		w.want(minute(w, 4), "failed")
		w.want(minute(w, 30), "committed")
		w.permit(minute(w, 17)) // one of the last four that are not committed, though 2 failed after it
		bubble.Pass(45 * time.Second)
		w.want(minute(w, 17), "committed")
		l.end()
		for n, want := range map[int]int{2: 2, 3: 2, 4: 1} {
			if got := w.count(runID("report", minute(w, n))); got != want {
				t.Errorf("minute %d: %d effects, want %d", n, got, want)
			}
		}
	})
}

func TestWhatIsDueGoesBeforeWhatIsPermittedOnceMore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.set(time.Second, func(p dispatch.Permit) int { return 1 })
		l := w.start("a", parse(t, file(", overlap: queue")), settings{})
		bubble.Pass(20*time.Minute + 10*time.Second)
		again := map[string]bool{}
		for n := 1; n <= 3; n++ {
			w.permit(minute(w, n))
			again[runID("report", minute(w, n))] = true
		}
		var order strings.Builder
		w.set(time.Second, func(p dispatch.Permit) int {
			if w.takes = time.Second; again[p.Run] {
				w.takes = 90 * time.Second // the next comes due meanwhile
				order.WriteString("p")
			} else {
				order.WriteString("d")
			}
			return 0
		})
		bubble.Pass(25 * time.Minute)
		l.end()
		if got := order.String(); strings.Contains(got, "pp") || strings.Count(got, "p") != 3 {
			t.Errorf("in the order %s: one that is permitted went before what was due", got)
		}
	})
}

func TestAPermittedRunOfAScheduleThatWasReplacedDuringTheSearchIsNotBegun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.set(time.Second, func(p dispatch.Permit) int { return 1 })
		l := w.start("a", parse(t, file("")), settings{})
		bubble.Pass(10*time.Minute + 10*time.Second)
		w.permit(minute(w, 1))
		searches, goOn := make(chan struct{}), make(chan struct{})
		l.onList(func() { searches <- struct{}{}; <-goOn })
		<-searches
		l.onList(nil)
		must(t, l.Reload(t.Context(), parse(t, "version: 1\nagents: { report: { schedule: \"@every 1h\", command: [/bin/other] } }\n")))
		bubble.Pass(10 * time.Second) // it is decided over by the new schedule
		close(goOn)
		bubble.Pass(10 * time.Minute)
		l.end()
		if n := w.count(runID("report", minute(w, 1))); n != 1 {
			t.Errorf("%d effects of an instant that the new schedule does not have", n)
		}
	})
}

func TestTheScheduleGoesOnBetweenPermittedRunsThatOverlapIt(t *testing.T) {
	const every = 10 * time.Minute
	for takes, together := range map[time.Duration]bool{8 * time.Minute: false, time.Minute: true} {
		inBubble(t, func(t *testing.T, w *world) {
			w.set(time.Second, func(dispatch.Permit) int { return 1 })
			f := "version: 1\nagents: { report: { schedule: \"@every 10m\", command: [/bin/report], overlap: skip } }\n"
			l := w.start("a", parse(t, f), settings{})
			bubble.Pass(6*every + 10*time.Second)
			again := map[string]bool{}
			for _, n := range []int{1, 2, 5, 6} { // two of them among the last four
				w.permit(w.begin.Add(time.Duration(n) * every))
				again[runID("report", w.begin.Add(time.Duration(n)*every))] = true
			}
			var order strings.Builder
			w.set(takes, func(p dispatch.Permit) int {
				order.WriteString(map[bool]string{true: "p", false: "d"}[again[p.Run]])
				return 0
			})
			bubble.Pass(14*every - 20*time.Second)
			l.end()
			got := order.String()
			if strings.Count(got, "p") != len(again) || strings.HasPrefix(got, "ppp") != together {
				t.Errorf("runs of %s: in the order %s", takes, got)
			}
			missed := 0
			for n := 7; n < 20; n++ {
				if w.count(runID("report", w.begin.Add(time.Duration(n)*every))) > 0 {
					missed = 0
				} else if missed++; missed > 1 {
					t.Errorf("runs of %s: occurrence %d is missed as well as the one before it", takes, n)
				}
			}
		})
	}
}

// permit has a person permit one more attempt of an occurrence that failed.
func (w *world) permit(at time.Time) {
	w.t.Helper()
	e := w.view("report", at).Entry
	last := e.Attempts[len(e.Attempts)-1]
	_, err := w.store.Process(coord.Process{}).Permit(context.Background(), coord.Resolution{Agent: "report", Run: e.Run, Attempt: last.ID, By: "ada", Reason: "test"})
	must(w.t, err)
}

// again is 1 at the first effect of a run, and 0 after. The world is locked.
func (w *world) again(run string) int {
	if len(w.effects[run]) > 1 {
		return 0
	}
	return 1
}

// TestARunIsDoneByTheRulesOfItsAgent has a case for each rule of an agent that a run is given, and for what holds without it.
func TestARunIsDoneByTheRulesOfItsAgent(t *testing.T) {
	for name, c := range map[string]struct {
		rules  string
		deaf   bool
		outage bool // of forty seconds, while it runs
		early  bool // it is triggered once before it is due, and fails then
		ends   string
	}{
		"no timeout":       {rules: "", ends: "[committed] of 1 after 2m0s "},
		"timeout":          {rules: ", timeout: 10s", ends: "[failed] of 1 after 10s timeout"},
		"no grace":         {rules: ", timeout: 10s", deaf: true, ends: "[failed] of 1 after 20s timeout"},
		"grace":            {rules: ", timeout: 10s, grace: 3s", deaf: true, ends: "[failed] of 1 after 13s timeout"},
		"on_lost: stop":    {rules: ", on_lost: stop, ttl: 15s", outage: true, ends: "[failed] of 1 after 20s lost"},
		"on_lost: keep":    {rules: ", on_lost: keep, ttl: 15s", outage: true, ends: "[committed] of 1 after 2m0s "},
		"if_failed: keep":  {rules: ", if_failed: keep", early: true, ends: "[failed] of 1 after 2m0s exit"},
		"if_failed: retry": {rules: ", if_failed: retry", early: true, ends: "[committed] of 2 after 2m0s "},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			w.deaf = c.deaf
			at := minute(w, 5)
			run := runID("report", at)
			w.set(2*time.Minute, func(p dispatch.Permit) int {
				if c.early && len(w.effects[p.Run]) == 1 {
					return 3
				}
				return 0
			})
			f := parse(t, "version: 1\nagents: { report: { schedule: \"@every 5m\", command: [/bin/report]"+c.rules+" } }\n")
			l := w.start("a", f, settings{})
			bubble.Pass(2 * time.Second)
			if c.early {
				_, err := l.Trigger(t.Context(), "report", ident.AtOccurrence(at))
				must(t, err)
			}
			bubble.Pass(5*time.Minute + 8*time.Second)
			if c.outage {
				l.fail(coordtest.Before)
				bubble.Pass(40 * time.Second)
				l.fail(coordtest.Fine)
			}
			bubble.Pass(3 * time.Minute)
			l.end()
			attempts := w.view("report", at).Entry.Attempts
			last, began := attempts[len(attempts)-1], w.effects[run][len(attempts)-1].at
			got := fmt.Sprintf("%v of %d after %s %s", w.ends("report", at), len(attempts), last.Ended.Sub(began).Round(time.Second), last.Cause)
			if got != c.ends {
				t.Errorf("%s: %s, want %s\n%s", name, got, c.ends, l.said())
			}
		})
	}
}

func TestARunInDoubtIsBegunAgainOnlyWhereThePolicySays(t *testing.T) {
	for policy, effects := range map[string]int{"hold": 1, "retry": 2, "probe, probe: [/bin/no]": 2, "probe, probe: [/bin/yes]": 1} {
		inBubble(t, func(t *testing.T, w *world) {
			f := parse(t, file(", on_doubt: "+policy))
			w.happens = strings.Contains(policy, "yes")
			w.set(30*time.Second, nil)
			l := w.start("a", f, settings{})
			bubble.Pass(time.Minute + 10*time.Second)
			l.crash()
			bubble.Pass(20 * time.Second)
			l = w.start("a", f, settings{})
			bubble.Pass(4 * time.Minute)
			l.end()
			if got := w.count(runID("report", minute(w, 1))); got != effects {
				t.Errorf("%s: %d effects, want %d\n%s", policy, got, effects, l.said())
			}
			if ends := w.ends("report", minute(w, 1)); fmt.Sprint(ends) != map[bool]string{true: "[in doubt]", false: "[committed]"}[policy == "hold"] {
				t.Errorf("%s: it ended as %v", policy, ends)
			}
		})
	}
}

func TestAReloadIsTakenWithoutTouchingWhatRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.set(10*time.Minute, nil)
		l := w.start("a", parse(t, file("")), settings{})
		bubble.Pass(90 * time.Second)
		w.set(time.Second, nil)
		other := parse(t, "version: 1\nagents: { mail: { schedule: \"@every 1m\", command: [/bin/mail] } }\n")
		must(t, l.Reload(t.Context(), other))
		bubble.Pass(5 * time.Minute)
		if w.view("report", minute(w, 1)).State != coord.RunRunning || w.view("mail", minute(w, 3)).State != coord.RunCommitted {
			t.Errorf("report is %s, mail is %s", w.view("report", minute(w, 1)).State, w.view("mail", minute(w, 3)).State)
		}
		bubble.Pass(10 * time.Minute)
		if v := w.view("report", minute(w, 1)); v.State != coord.RunCommitted || v.Held {
			t.Errorf("the agent that is gone: %s, held %v", v.State, v.Held)
		}
		if n := len(w.effects); n != 1+15 {
			t.Errorf("%d runs", n)
		}
		must(t, l.Reload(t.Context(), parse(t, file(""))))
		bubble.Pass(2 * time.Minute)
		l.end()
		ends := w.everyOccurrence("report", minute(w, 1), minute(w, 17), true)
		if ends["superseded"] == 0 {
			t.Errorf("what came due while it was not in the file: %v", ends)
		}
	})
}

func TestWhatIsCaughtUpIsSpacedOutOverAllAgentsAlsoAfterAReload(t *testing.T) {
	of := func(rate string) string {
		text := "version: 1\ncatchup_rate: " + rate + "\nagents:\n"
		for i := range 8 {
			text += fmt.Sprintf("  agent-%d: { schedule: \"@hourly\", command: [/bin/true] }\n", i)
		}
		return text
	}
	for name, c := range map[string]struct {
		first, then string          // the rates; then from 25 s on
		begun       []time.Duration // after the start
	}{
		"the same":  {"6/m", "6/m", []time.Duration{0, 10, 20, 30, 40, 50, 60, 70}},
		"slower":    {"6/m", "2/m", []time.Duration{0, 10, 20, 50, 80, 110, 140, 170}},
		"faster":    {"2/m", "12/m", []time.Duration{0, 25, 30, 35, 40, 45, 50, 55}},
		"none then": {"2/m", "none", []time.Duration{0, 25, 25, 25, 25, 25, 25, 25}},
		"none":      {"none", "6/m", []time.Duration{0, 0, 0, 0, 0, 0, 0, 0}},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			l := w.start("a", parse(t, of(c.first)), settings{})
			bubble.Pass(time.Minute)
			l.end()
			bubble.Pass(2*time.Hour + 10*time.Minute)
			began := time.Now()
			l = w.start("a", parse(t, of(c.first)), settings{})
			bubble.Pass(25 * time.Second)
			must(t, l.Reload(t.Context(), parse(t, of(c.then))))
			bubble.Pass(5 * time.Minute)
			l.end()
			var begun []time.Duration
			for _, all := range w.effects {
				for _, e := range all {
					begun = append(begun, e.at.Sub(began).Round(time.Second)/time.Second)
				}
			}
			slices.Sort(begun)
			if !slices.Equal(begun, c.begun) {
				t.Errorf("%s: begun after %d s, want %d", name, begun, c.begun)
			}
		})
	}
}

func TestWhatIsMissedIsOnDiskBeforeTheNextBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		f := parse(t, file(""))
		l := w.start("a", f, settings{})
		bubble.Pass(90 * time.Second)
		l.crash()
		bubble.Pass(30 * time.Minute)
		seen := -1
		w.set(time.Second, func(dispatch.Permit) int {
			if seen < 0 {
				seen = len(w.disks["a"].records)
			}
			return 0
		})
		l = w.start("a", f, settings{})
		bubble.Pass(time.Minute)
		l.end()
		if seen != 2 { // that it was seen, and the gap
			t.Errorf("%d records on disk when the next began", seen)
		}
	})
}

func TestWithoutADiskAnAgentIsDecidedOverByTheLedgerAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		f := parse(t, file(""))
		l := w.start("a", f, settings{noLog: true})
		bubble.Pass(5*time.Minute + 30*time.Second)
		l.crash()
		bubble.Pass(10 * time.Minute)
		l = w.start("b", f, settings{noLog: true})
		bubble.Pass(30*time.Second + 20*time.Second)
		l.end()
		w.want(minute(w, 5), "committed")
		if len(w.gaps("a"))+len(w.gaps("b")) != 0 {
			t.Error("something was written")
		}
	})
}
