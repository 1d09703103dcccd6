package due_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// loop is the timer of a node around an agent: it ends when the test does.
func loop(t *testing.T, a *due.Agent, read func() due.Reading, early time.Duration, begin func(time.Time)) {
	t.Helper()
	wait := time.Duration(0)
	for {
		select {
		case <-t.Context().Done():
			return
		case <-time.After(max(wait-early, time.Millisecond)):
		}
		now := read()
		d := a.Step(now, due.State{})
		if d.Begin {
			a.Before(now, d.Due)
			a.Begun(d.Due)
			begin(d.Due)
		}
		wait = d.Wait
	}
}

func TestATimerThatIsEarlyBeginsEachOccurrenceOnceAndOnTime(t *testing.T) {
	for _, early := range []time.Duration{0, 160 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s, err := schedule.New("*/5 * * * *", "UTC")
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			a := due.New(s, last, nil, begin)
			var at []time.Time
			go loop(t, a, func() due.Reading { return due.Reading{Wall: time.Now(), Boot: time.Since(begin)} }, early, func(occ time.Time) {
				if late := time.Since(occ); late < 0 || late > 2*time.Millisecond {
					t.Errorf("%s is begun %s after its time", occ, late)
				}
				at = append(at, occ)
			})
			bubble.Pass(time.Hour + time.Second)
			if len(at) != 12 {
				t.Errorf("early by %s: begun %v, want 12 in an hour", early, at)
			}
		})
	}
}

// Timers that stop in suspend, and a wall clock that steps, delay nothing by more than a look takes.
func TestASuspendOrAStepIsSeenWithinThirtySeconds(t *testing.T) {
	for name, suspend := range map[string]time.Duration{"suspend": 8 * time.Hour, "put forward": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := schedule.New("30 6 * * *", "UTC")
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now() // midnight, in a bubble
				a := due.New(s, last, nil, begin)
				var wall, boot atomic.Int64 // what went by while no timer ran
				begun := make(chan time.Time, 1)
				read := func() due.Reading {
					return due.Reading{Wall: time.Now().Add(time.Duration(wall.Load())), Boot: time.Since(begin) + time.Duration(boot.Load())}
				}
				go loop(t, a, read, 0, func(occ time.Time) { begun <- occ })
				bubble.Pass(time.Hour + 7*time.Second)
				wall.Store(int64(8 * time.Hour))
				boot.Store(int64(suspend))
				woke := time.Now()
				if occ := <-begun; !occ.Equal(begin.Add(6*time.Hour + 30*time.Minute)) {
					t.Errorf("begun %s", occ)
				}
				if took := time.Since(woke); took > due.MaxWait {
					t.Errorf("seen after %s", took)
				}
			})
		})
	}
}
