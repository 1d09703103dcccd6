package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

// doubtful is a ledger that lists the given views.
type doubtful struct {
	mu    sync.Mutex
	views []coord.View
}

func (d *doubtful) List(context.Context, coord.Filter) (coord.Page, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return coord.Page{Views: d.views}, nil
}

func (d *doubtful) show(views ...coord.View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.views = views
}

func openOf(device, run string) coord.View {
	return coord.View{State: coord.RunInDoubt, Entry: coord.Entry{Agent: "a", Run: run,
		Attempts: []coord.Attempt{{ID: "t-" + run, Device: device, State: coord.Open}}}}
}

func TestEachOwnRunInDoubtIsToldOnceAndAgainOnlyIfItComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		ledger := &doubtful{}
		w.cfg.Runs, w.set.answer.Open = ledger, 1
		ledger.show(openOf("d1", "r1"), openOf("d2", "r2"))
		stop := w.run(t)
		pass := func() { bubble.Pass(5 * time.Minute) }
		pass()
		ledger.show(openOf("d1", "r1"), openOf("d1", "r3"))
		pass()
		ledger.show(openOf("d1", "r3"))
		pass()
		ledger.show(openOf("d1", "r1"), openOf("d1", "r3"))
		pass()
		stop()
		for run, want := range map[string]int{"r1": 2, "r2": 0, "r3": 1} {
			if got := strings.Count(w.log.String(), "run="+run); got != want {
				t.Errorf("doubt of %s was told %d times, want %d\n%s", run, got, want, w.log.String())
			}
		}
	})
}

func TestDoubtsAreToldBesideARunThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		ledger := &doubtful{}
		w.cfg.Runs, w.set.answer.Open, w.set.err = ledger, 1, coord.Unread([]coord.UnreadableRun{{Agent: "b", Run: "r9", Reason: "it is damaged"}})
		ledger.show(openOf("d1", "r1"))
		stop := w.run(t)
		bubble.Pass(5 * time.Minute)
		stop()
		for _, want := range []string{"run=r1", "run r9 of agent b: it is damaged"} {
			if n := strings.Count(w.log.String(), want); n != 1 {
				t.Errorf("%q was told %d times\n%s", want, n, w.log.String())
			}
		}
	})
}

// scripted is a session whose pumps are a function.
type scripted struct {
	*countingSession
	pump func(ctx context.Context, r relay.Relay) (session.Report, error)
}

func (s *scripted) Pump(ctx context.Context, r relay.Relay) (session.Report, error) {
	s.countingSession.Pump(ctx, r)
	return s.pump(ctx, r)
}

func (w *world) script(pump func(ctx context.Context, r relay.Relay) (session.Report, error)) *scripted {
	s := &scripted{countingSession: newCounting(), pump: pump}
	w.cfg.Session = s
	return s
}

func TestATroubleIsToldOncePerKindThoughItsWordsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]relay.Relay{"r": &plain{}})
		var n int64
		w.script(func(context.Context, relay.Relay) (session.Report, error) {
			switch n++; {
			case n <= 10:
				return session.Report{}, fmt.Errorf("try %d: %w", n, relay.ErrNotSent)
			case n <= 20:
				return session.Report{}, errors.Join(&relay.FullError{Used: n, Need: n, Max: 5}, relay.ErrIndeterminate)
			}
			return session.Report{}, nil
		})
		stop := w.run(t)
		bubble.Pass(5 * time.Minute)
		stop()
		log := w.log.String()
		for text, want := range map[string]int{"cannot be reached": 1, "relay is full": 1, "pump works again": 1, "level=ERROR": 1} {
			if got := strings.Count(log, text); got != want {
				t.Errorf("%q was told %d times, want %d\n%s", text, got, want, log)
			}
		}
	})
}

func TestARelayThatDoesNotAnswerIsGivenUpAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &plain{}
		w := newWorld(map[string]relay.Relay{"r": r})
		s := w.script(func(ctx context.Context, _ relay.Relay) (session.Report, error) {
			<-ctx.Done()
			return session.Report{}, context.Cause(ctx)
		})
		stop := w.run(t)
		bubble.Pass(5 * node.LongestPump)
		if got := s.count(r); got < 4 {
			t.Errorf("tried %d times, want at least 4", got)
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took > node.LastPump {
			t.Errorf("the stop took %s, want at most %s", took, node.LastPump)
		}
	})
}

func TestARelayThatPromisesMoreAndGivesNothingCausesNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &plain{}
		w := newWorld(map[string]relay.Relay{"r": r})
		s := w.script(func(context.Context, relay.Relay) (session.Report, error) { return session.Report{More: true}, nil })
		stop := w.run(t)
		bubble.Pass(time.Minute)
		stop()
		if got := s.count(r); got > 16 {
			t.Errorf("pumped %d times in a minute, want at most 16", got)
		}
	})
}

func TestAFatalErrorEndsTheNodeAndIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]relay.Relay{"r": &plain{}})
		broken := errors.New("the disk is gone")
		w.cfg.Fatal = func(err error) bool { return errors.Is(err, broken) }
		w.script(func(context.Context, relay.Relay) (session.Report, error) {
			return session.Report{}, fmt.Errorf("pump: %w", broken)
		})
		n, err := node.New(w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Run(t.Context()); !errors.Is(err, broken) {
			t.Errorf("Run: %v, want what broke it", err)
		}
		if _, held, err := w.store.Process(coord.Process{}).Current(t.Context(), node.Agent("d1")); err != nil || held {
			t.Errorf("held %v, err %v; want the lease given back", held, err)
		}
	})
}
