package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/remote"
	"github.com/syncnode/syncnode/internal/ident"
)

// A hindered coordinator does what a test says before it is asked; an error is the answer.
type hindered struct {
	coord.Coordinator
	begin, release func() error
	begins         atomic.Int32
	unreadable     []coord.UnreadableRun
}

func (h *hindered) Begin(ctx context.Context, b coord.Begin) (coord.Attempt, error) {
	h.begins.Add(1)
	if h.begin != nil {
		if err := h.begin(); err != nil {
			return coord.Attempt{}, err
		}
	}
	return h.Coordinator.Begin(ctx, b)
}

func (h *hindered) Release(ctx context.Context, agent, device string, epoch coord.Epoch) error {
	if h.release != nil {
		if err := h.release(); err != nil {
			return err
		}
	}
	return h.Coordinator.Release(ctx, agent, device, epoch)
}

// hinder opens a process whose coordinator at the server can be hindered.
func hinder(t *testing.T) (*remote.Coordinator, *network, *hindered) {
	b, at := newBackend(), &hindered{}
	h := remote.NewHandler(remote.HandlerConfig{Allow: anyone, Now: b.now.Now, Open: func(ctx context.Context, p coord.Process, dead func(string) bool) (coord.Coordinator, error) {
		c, err := b.open(ctx, p, dead)
		at.Coordinator = c
		return at, err
	}})
	c, n := behind(t, h, 1)
	return c, n, at
}

func (h *hindered) List(ctx context.Context, f coord.Filter) (coord.Page, error) {
	page, err := h.Coordinator.List(ctx, f)
	page.Unreadable = h.unreadable
	return page, err
}

func TestAListThroughAServerNamesWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, at := hinder(t)
		l, err := c.Acquire(t.Context(), coord.Request{Agent: "a", Device: "d1"})
		if err != nil {
			t.Fatal(err)
		}
		run := ident.RunID("n", "a", "key:1")
		if _, err := c.Begin(t.Context(), coord.Begin{Lease: l, Run: run, Occurrence: "key:1", Attempt: coord.NewNonce(), Request: coord.NewNonce()}); err != nil {
			t.Fatal(err)
		}
		want := []coord.UnreadableRun{{Agent: "a", Run: ident.RunID("n", "a", "key:2"), Reason: "it is damaged"}}
		at.unreadable = want
		page, err := c.List(t.Context(), coord.Filter{})
		if err != nil || len(page.Views) != 1 || page.Views[0].Entry.Run != run || !slices.Equal(page.Unreadable, want) {
			t.Errorf("got %+v, %v", page, err)
		}
	})
}

// copied lets a request through and keeps a copy of it.
func (n *network) copied(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	n.late = append(n.late, copyOf(r))
	return to.RoundTrip(r)
}

func TestACopyOfARefusedBeginOpensNoAttempt(t *testing.T) {
	ctx := t.Context()
	mustBegin := func(t *testing.T, c *remote.Coordinator, b coord.Begin) {
		t.Helper()
		if _, err := c.Begin(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	acquired := func(t *testing.T, c *remote.Coordinator) coord.Lease {
		t.Helper()
		l, err := c.Acquire(ctx, request("d"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	begin := func(c *remote.Coordinator, l coord.Lease) error { _, err := c.Begin(ctx, question(l, 1)); return err }
	start := func(c *remote.Coordinator, _ coord.Lease) error {
		_, _, err := c.Start(ctx, request("d"), question(coord.Lease{}, 1))
		return err
	}
	paused := func(t *testing.T, c *remote.Coordinator, _ *network, _ *hindered) (coord.Lease, func() error) {
		l := acquired(t, c)
		if err := c.Pause(ctx, agent, coord.Gate{By: "ana", Reason: "x"}); err != nil {
			t.Fatal(err)
		}
		return l, func() error { return c.Resume(ctx, agent) }
	}
	for name, one := range map[string]struct {
		hinder func(*testing.T, *remote.Coordinator, *network, *hindered) (l coord.Lease, lift func() error)
		ask    func(*remote.Coordinator, coord.Lease) error
		want   error
	}{
		"a begin beside an open attempt that is cancelled": {func(t *testing.T, c *remote.Coordinator, _ *network, _ *hindered) (coord.Lease, func() error) {
			l := acquired(t, c)
			open := question(l, 1)
			mustBegin(t, c, open)
			return l, func() error { return c.Cancel(ctx, open) }
		}, begin, coord.ErrInProgress},
		"a begin of an agent that is paused and resumed": {paused, begin, coord.ErrPaused},
		"a begin that the coordinator could not send": {func(t *testing.T, c *remote.Coordinator, _ *network, at *hindered) (coord.Lease, func() error) {
			at.begin = func() error { return coord.ErrNotSent }
			return acquired(t, c), func() error { at.begin = nil; return nil }
		}, begin, coord.ErrNotSent},
		"a start of an agent that is paused and resumed": {paused, start, coord.ErrPaused},
		"a start before which an unknown grant could not be given back": {func(t *testing.T, c *remote.Coordinator, n *network, at *hindered) (coord.Lease, func() error) {
			at.release = func() error { return coord.ErrNotSent }
			n.next = droppedAfter
			if _, err := c.Acquire(ctx, request("d")); !errors.Is(err, coord.ErrIndeterminate) {
				t.Fatal(err)
			}
			return coord.Lease{}, func() error { at.release = nil; return nil }
		}, start, coord.ErrNotSent},
	} {
		t.Run(name, func(t *testing.T) {
			c, n, at := hinder(t)
			l, lift := one.hinder(t, c, n, at)
			n.next = n.copied
			if err := one.ask(c, l); !errors.Is(err, one.want) || errors.Is(err, coord.ErrIndeterminate) {
				t.Fatalf("got %v, expected %v", err, one.want)
			}
			if err := lift(); err != nil {
				t.Fatal(err)
			}
			n.late = append(n.late, copyOf(n.late[0])) // it comes twice
			n.deliver()
			if v, err := c.Look(ctx, coord.Question{Agent: agent, Run: run(1)}); err != nil || v.State != coord.RunFree {
				t.Errorf("the late copies left the run %q, %v", v.State, err)
			}
			if err := c.Release(ctx, agent, "d", 0); err != nil { // what a start never got
				t.Fatal(err)
			}
			if err := c.Release(ctx, agent, "d", 1); err != nil && !errors.Is(err, coord.ErrLost) {
				t.Fatal(err)
			}
			if err := start(c, coord.Lease{}); err != nil {
				t.Errorf("a new start: %v", err)
			}
		})
	}
}

func TestACopyOfABeginThatIsUnderWayGetsTheSameAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n, at := hinder(t)
		l, err := c.Acquire(t.Context(), request("d"))
		if err != nil {
			t.Fatal(err)
		}
		decided := make(chan struct{})
		at.begin = func() error {
			<-decided
			if at.begins.Load() > 1 {
				return nil
			}
			return &coord.GateError{Kind: coord.ErrPaused, Agent: agent, Gate: coord.Gate{By: "ana", Reason: "x"}}
		}
		answers := make([]*http.Response, 2)
		n.next = func(to http.RoundTripper, r *http.Request) (*http.Response, error) {
			var both sync.WaitGroup
			for i, r := range []*http.Request{r, copyOf(r)} {
				both.Go(func() { answers[i], _ = to.RoundTrip(r) })
			}
			synctest.Wait()
			close(decided)
			both.Wait()
			return answers[1], nil
		}
		if _, err := c.Begin(t.Context(), question(l, 1)); !errors.Is(err, coord.ErrPaused) {
			t.Errorf("got %v", err)
		}
		if asked := at.begins.Load(); asked != 1 || answers[0].StatusCode != answers[1].StatusCode {
			t.Errorf("the coordinator was asked %d times, and the answers are %s and %s", asked, answers[0].Status, answers[1].Status)
		}
	})
}

// An outcome that is not known is no refusal: the coordinator has to be asked again.
func TestACopyOfABeginWhoseOutcomeIsUnknownIsPutToTheCoordinator(t *testing.T) {
	for _, kind := range []error{coord.ErrIndeterminate, errors.New("what says nothing")} {
		c, n, at := hinder(t)
		l, err := c.Acquire(t.Context(), request("d"))
		if err != nil {
			t.Fatal(err)
		}
		at.begin = func() error { return fmt.Errorf("lost: %w", kind) }
		n.next = n.copied
		if _, err := c.Begin(t.Context(), question(l, 1)); !errors.Is(err, coord.ErrIndeterminate) {
			t.Fatalf("got %v", err)
		}
		at.begin = nil
		n.deliver()
		if v, err := c.Look(t.Context(), coord.Question{Agent: agent, Run: run(1)}); err != nil || v.State != coord.RunRunning {
			t.Errorf("%v: the copy left the run %q, %v", kind, v.State, err)
		}
	}
}
