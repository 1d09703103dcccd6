package remote_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/remote"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/internal/ident"
)

// direct is a way to a handler without a network, which a bubble cannot hold.
func direct(h http.Handler) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec.Result(), nil
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A network does to the next request what it is told to; between times it does nothing.
type network struct {
	to   http.RoundTripper
	next func(to http.RoundTripper, r *http.Request) (*http.Response, error)
	late []*http.Request // kept by held
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	next := n.next
	n.next = nil
	if next == nil {
		return n.to.RoundTrip(r)
	}
	return next(n.to, r)
}

var errCut = errors.New("the network was cut")

func droppedBefore(http.RoundTripper, *http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errCut}
}

func droppedOnTheWay(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, errCut }

func droppedAfter(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	if _, err := to.RoundTrip(r); err != nil {
		return nil, err
	}
	return nil, errCut
}

func copyOf(r *http.Request) *http.Request {
	again := r.Clone(context.Background())
	again.Body, _ = r.GetBody()
	return again
}

func twice(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	again := copyOf(r)
	resp, err := to.RoundTrip(r)
	if err == nil {
		_, _ = to.RoundTrip(again)
	}
	return resp, err
}

// held keeps the request, to arrive when the test lets it.
func (n *network) held(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	n.late = append(n.late, copyOf(r))
	return nil, errCut
}

func (n *network) deliver() {
	for _, r := range n.late {
		_, _ = n.to.RoundTrip(r)
	}
	n.late = nil
}

func proxyPage(http.RoundTripper, *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: http.NoBody}, nil
}

// behind opens a process behind a network of its own.
func behind(t *testing.T, h http.Handler, pid int) (*remote.Coordinator, *network) {
	t.Helper()
	n := &network{to: direct(h)}
	return dial(t, remote.Config{URL: "http://127.0.0.1:1", Client: &http.Client{Transport: n}, Process: coord.Process{PID: pid}}), n
}

const agent = "a"

func run(n int) string { return ident.RunID("remote", agent, occurrence(n)) }

func occurrence(n int) string { return "key:" + string(rune('0'+n)) }

func question(l coord.Lease, n int) coord.Begin {
	return coord.Begin{Lease: l, Run: run(n), Occurrence: occurrence(n), Attempt: coord.NewNonce(), Request: coord.NewNonce()}
}

func request(device string) coord.Request {
	return coord.Request{Agent: agent, Device: device, TTL: coord.MaxTTL}
}

func outcome(b coord.Begin, s coord.State) coord.Outcome {
	return coord.Outcome{Agent: agent, Run: b.Run, Occurrence: b.Occurrence, Attempt: coord.Attempt{ID: b.Attempt, Request: b.Request, Device: b.Lease.Device,
		Epoch: b.Lease.Epoch, State: s, Cause: coord.CauseExit, Begun: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC()}}
}

// deeds are all calls in an order in which each can be made. reads change nothing.
func deeds(t *testing.T) (all []deed) {
	ctx := t.Context()
	var l coord.Lease
	var b, second coord.Begin
	person := coord.Gate{By: "ana", Reason: "x"}
	add := func(name string, reads bool, do func(*remote.Coordinator) error) {
		all = append(all, deed{name, reads, do})
	}
	add("acquire", false, func(c *remote.Coordinator) error {
		got, err := c.Acquire(ctx, request("d"))
		if err == nil {
			l, b, second = got, question(got, 1), question(got, 2)
		}
		return err
	})
	add("renew", false, func(c *remote.Coordinator) error {
		_, err := c.Renew(ctx, agent, "d", l.Epoch, coord.MaxTTL)
		return err
	})
	add("current", true, func(c *remote.Coordinator) error { _, _, err := c.Current(ctx, agent); return err })
	add("begin", false, func(c *remote.Coordinator) error {
		a, err := c.Begin(ctx, b)
		if (a.State == coord.Open) != (err == nil) {
			t.Errorf("begin: %+v with %v", a, err)
		}
		return err
	})
	add("finish", false, func(c *remote.Coordinator) error { return c.Finish(ctx, outcome(b, coord.Failed)) })
	add("permit", false, func(c *remote.Coordinator) error {
		_, err := c.Permit(ctx, coord.Resolution{Agent: agent, Run: b.Run, Attempt: b.Attempt, By: "ana", Reason: "x"})
		return err
	})
	add("cancel", false, func(c *remote.Coordinator) error { return c.Cancel(ctx, second) })
	add("resolve", false, func(c *remote.Coordinator) error {
		_, err := c.Resolve(ctx, coord.Resolution{Agent: agent, Run: b.Run, Attempt: b.Attempt, From: coord.Failed, As: coord.Committed, By: "ana", Reason: "x"})
		return err
	})
	add("look", true, func(c *remote.Coordinator) error {
		_, err := c.Look(ctx, coord.Question{Agent: agent, Run: b.Run})
		return err
	})
	add("list", true, func(c *remote.Coordinator) error { _, err := c.List(ctx, coord.Filter{}); return err })
	add("leases", true, func(c *remote.Coordinator) error { _, err := c.Leases(ctx); return err })
	add("release", false, func(c *remote.Coordinator) error {
		if err := c.Release(ctx, agent, "d", l.Epoch); err != nil && !errors.Is(err, coord.ErrLost) { // which the first copy does
			return err
		}
		return nil
	})
	third := question(coord.Lease{}, 3)
	add("start", false, func(c *remote.Coordinator) error {
		got, a, err := c.Start(ctx, request("d"), third)
		if (a.State == coord.Open) != (err == nil) || (got.Epoch > 0) != (err == nil) {
			t.Errorf("start: %+v, %+v with %v", got, a, err)
		}
		if err == nil {
			l, third.Lease = got, got
		}
		return err
	})
	add("complete", false, func(c *remote.Coordinator) error {
		finished, released := c.Complete(ctx, outcome(third, coord.Committed), l)
		return errors.Join(finished, released)
	})
	add("give up", false, func(c *remote.Coordinator) error { return c.Release(ctx, agent, "d", 0) })
	add("steal", false, func(c *remote.Coordinator) error {
		_, err := c.Steal(ctx, coord.Theft{Request: request("d"), By: "ana", Reason: "x", Force: true, Epoch: l.Epoch})
		return err
	})
	add("evict", false, func(c *remote.Coordinator) error {
		return c.Evict(ctx, coord.Theft{Request: request("d"), By: "ana", Reason: "x", Force: true, Epoch: l.Epoch + 1})
	})
	add("pause", false, func(c *remote.Coordinator) error { return c.Pause(ctx, agent, person) })
	add("resume", false, func(c *remote.Coordinator) error { return c.Resume(ctx, agent) })
	add("set recovery", false, func(c *remote.Coordinator) error { return c.SetRecovery(ctx, person) })
	add("recovery", true, func(c *remote.Coordinator) error { _, _, err := c.Recovery(ctx); return err })
	add("lift recovery", false, func(c *remote.Coordinator) error { return c.LiftRecovery(ctx, person) })
	add("close", false, func(c *remote.Coordinator) error { return c.Close(ctx) })
	return all
}

type deed struct {
	name  string
	reads bool
	do    func(*remote.Coordinator) error
}

func TestACallThatTheNetworkFailedSaysWhetherItHappenedAndIsSettledByRepeating(t *testing.T) {
	for name, fault := range map[string]struct {
		do   func(http.RoundTripper, *http.Request) (*http.Response, error)
		want error
	}{
		"dropped before it left":       {droppedBefore, coord.ErrNotSent},
		"dropped on its way":           {droppedOnTheWay, coord.ErrIndeterminate},
		"its answer dropped":           {droppedAfter, coord.ErrIndeterminate},
		"arrives twice":                {twice, nil},
		"a proxy has no such upstream": {proxyPage, coord.ErrIndeterminate},
	} {
		t.Run(name, func(t *testing.T) {
			c, n := behind(t, newBackend().handler(), 1)
			for _, d := range deeds(t) {
				n.next = fault.do
				want := fault.want
				if d.reads && want == coord.ErrIndeterminate {
					want = coord.ErrNotSent // it does nothing
				}
				err := d.do(c)
				if !errors.Is(err, want) || errors.Is(err, coord.ErrNotSent) && want != coord.ErrNotSent || errors.Is(err, coord.ErrIndeterminate) && want != coord.ErrIndeterminate {
					t.Errorf("%s: %v, expected %v", d.name, err, want)
				}
				if want == nil { // a repeated call is another one
					continue
				}
				if err := d.do(c); err != nil {
					t.Errorf("%s, repeated: %v", d.name, err)
				}
			}
		})
	}
}

// A copy of a request that arrives when its caller has long gone on grants nothing and takes nothing away.
func TestALateCopyOfARequestGrantsNothing(t *testing.T) {
	ctx := t.Context()
	ask := map[string]func(*remote.Coordinator, coord.Begin) (coord.Lease, error){
		"acquire": func(c *remote.Coordinator, _ coord.Begin) (coord.Lease, error) { return c.Acquire(ctx, request("d")) },
		"steal": func(c *remote.Coordinator, _ coord.Begin) (coord.Lease, error) {
			return c.Steal(ctx, coord.Theft{Request: request("d"), By: "ana", Reason: "x", Force: true})
		},
		"start": func(c *remote.Coordinator, b coord.Begin) (coord.Lease, error) {
			l, _, err := c.Start(ctx, request("d"), b)
			return l, err
		},
	}
	then := map[string]func(*testing.T, *remote.Coordinator, func() (coord.Lease, error)){
		"settled and released": func(t *testing.T, c *remote.Coordinator, again func() (coord.Lease, error)) {
			l, err := again()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Release(ctx, agent, "d", l.Epoch); err != nil {
				t.Fatal(err)
			}
		},
		"given up": func(t *testing.T, c *remote.Coordinator, _ func() (coord.Lease, error)) {
			if err := c.Release(ctx, agent, "d", 0); err != nil {
				t.Fatal(err)
			}
		},
		"another was asked for": func(t *testing.T, c *remote.Coordinator, _ func() (coord.Lease, error)) {
			req := request("d")
			req.Note = "another"
			l, err := c.Acquire(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Release(ctx, agent, "d", l.Epoch); err != nil {
				t.Fatal(err)
			}
		},
	}
	for what, ask := range ask {
		for how, then := range then {
			for _, executed := range []bool{false, true} {
				c, n := behind(t, newBackend().handler(), 1)
				b := question(coord.Lease{}, 1)
				n.next = func(to http.RoundTripper, r *http.Request) (*http.Response, error) {
					if again := copyOf(r); executed {
						_, _ = to.RoundTrip(again)
					}
					return n.held(to, r)
				}
				if _, err := ask(c, b); !errors.Is(err, coord.ErrIndeterminate) {
					t.Fatalf("%s: %v", what, err)
				}
				then(t, c, func() (coord.Lease, error) { return ask(c, b) })
				n.deliver()
				if l, held, err := c.Current(ctx, agent); held || err != nil {
					t.Errorf("%s, %s, executed before %v: the late copy left %+v, %v", what, how, executed, l, err)
				}
			}
		}
	}
}

// What was granted and not told is given back before the next is asked for: else the process would stand in its own way.
func TestAGrantThatItsCallerNeverLearntOfIsGivenBackByTheNextRequest(t *testing.T) {
	c, n := behind(t, newBackend().handler(), 1)
	n.next = droppedAfter
	if _, err := c.Acquire(t.Context(), request("d")); !errors.Is(err, coord.ErrIndeterminate) {
		t.Fatal(err)
	}
	n.next = droppedBefore // the next one never leaves; the one after it has to give back all the same
	other := request("d")
	other.Note = "other"
	if _, err := c.Acquire(t.Context(), other); !errors.Is(err, coord.ErrNotSent) {
		t.Fatal(err)
	}
	third := request("d")
	third.Note = "third"
	l, err := c.Acquire(t.Context(), third)
	if err != nil || l.Epoch != 2 || l.Note != "third" {
		t.Fatalf("got %+v, %v", l, err)
	}
	fourth := request("d")
	fourth.Note = "fourth"
	if _, err := c.Acquire(t.Context(), fourth); !errors.Is(err, coord.ErrHeld) { // and what is known is not
		t.Fatalf("got %v", err)
	}
}

func TestTrustCountsFromBeforeTheFirstCopyWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		h := remote.NewHandler(remote.HandlerConfig{Open: b.open, Allow: anyone, Now: b.now.Now})
		c, n := behind(t, h, 1)
		slow := func(to http.RoundTripper, r *http.Request) (*http.Response, error) {
			bubble.Pass(4 * time.Second) // it is on its way
			resp, err := to.RoundTrip(r)
			bubble.Pass(3 * time.Second)
			return resp, err
		}
		at := func(what string, l coord.Lease, err error, want time.Time) {
			t.Helper()
			if err != nil || !l.Sent.Equal(want) {
				t.Errorf("%s: sent at %v, expected %v; %v", what, l.Sent, want, err)
			}
		}
		n.next = slow
		before := time.Now()
		l, err := c.Acquire(t.Context(), request("d"))
		at("acquire", l, err, before)
		n.next, before = slow, time.Now()
		l, err = c.Renew(t.Context(), agent, "d", 1, coord.MaxTTL)
		at("renew", l, err, before)
		if err := c.Release(t.Context(), agent, "d", 1); err != nil {
			t.Fatal(err)
		}
		n.next, before = droppedAfter, time.Now()
		if _, err := c.Acquire(t.Context(), request("d")); !errors.Is(err, coord.ErrIndeterminate) {
			t.Fatal(err)
		}
		bubble.Pass(time.Minute)
		l, err = c.Acquire(t.Context(), request("d"))
		at("the answer of a repeated request", l, err, before)
	})
}

// The server's coordinator may have begun to count before the question came, since its liveness was warm.
func TestTrustCountsFromWhenTheServersCoordinatorBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		h := remote.NewHandler(remote.HandlerConfig{Allow: anyone, Now: b.now.Now, Open: func(ctx context.Context, p coord.Process, dead func(string) bool) (coord.Coordinator, error) {
			c, err := b.open(ctx, p, dead)
			return &warm{c, 2 * time.Second}, err
		}})
		c, _ := behind(t, h, 1)
		before := time.Now()
		l, err := c.Acquire(t.Context(), request("d"))
		if err != nil || !l.Sent.Equal(before.Add(-2*time.Second)) {
			t.Errorf("sent at %v, expected two seconds before %v; %v", l.Sent, before, err)
		}
	})
}

// warm counts from an earlier keepalive.
type warm struct {
	coord.Coordinator
	since time.Duration
}

func (w *warm) Acquire(ctx context.Context, req coord.Request) (coord.Lease, error) {
	l, err := w.Coordinator.Acquire(ctx, req)
	l.Sent = l.Sent.Add(-w.since)
	return l, err
}

// A server that starts anew knows no sessions: their processes go on with new grants, and what they ran is in doubt.
func TestWhatAServerThatDiedHeldRunsOutAndItsRunsAreInDoubt(t *testing.T) {
	b := newBackend()
	first := b.handler()
	var now http.Handler = first
	c, _ := behind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.ServeHTTP(w, r) }), 1)
	l, err := c.Acquire(t.Context(), request("d"))
	if err != nil {
		t.Fatal(err)
	}
	q := question(l, 1)
	if _, err := c.Begin(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	now = b.handler()
	if _, err := c.Renew(t.Context(), agent, "d", 1, coord.MaxTTL); !errors.Is(err, coord.ErrHeld) {
		t.Errorf("renewed after the server died: %v, expected ErrHeld, by what it held", err)
	}
	if _, err := c.Begin(t.Context(), q); !errors.Is(err, coord.ErrInDoubt) {
		t.Errorf("the same begin: %v, expected ErrInDoubt", err)
	}
	if _, err := c.Begin(t.Context(), question(l, 2)); !errors.Is(err, coord.ErrStale) {
		t.Errorf("another begin: %v, expected ErrStale", err)
	}
	if v, err := c.Look(t.Context(), coord.Question{Agent: agent, Run: run(1)}); err != nil || v.State != coord.RunRunning {
		t.Errorf("before its liveness ran out: %q, %v", v.State, err)
	}
	b.now.advance(coord.MaxTTL)
	if _, err := c.Renew(t.Context(), agent, "d", 1, coord.MaxTTL); !errors.Is(err, coord.ErrLost) {
		t.Errorf("renewed after it ran out: %v, expected ErrLost", err)
	}
	if v, err := c.Look(t.Context(), coord.Question{Agent: agent, Run: run(1)}); err != nil || v.State != coord.RunInDoubt {
		t.Errorf("after its liveness ran out: %q, %v", v.State, err)
	}
	if l, err = c.Acquire(t.Context(), request("d")); err != nil || l.Epoch != 2 {
		t.Errorf("acquired anew: %+v, %v", l, err)
	}
	if err := c.Finish(t.Context(), outcome(q, coord.Committed)); err != nil { // what happened is a fact
		t.Error(err)
	}
	if v, err := c.Look(t.Context(), coord.Question{Agent: agent, Run: run(1)}); err != nil || v.State != coord.RunCommitted {
		t.Errorf("after its device told: %q, %v", v.State, err)
	}
}

func TestAServerWithAnotherLedgerIsAnotherGeneration(t *testing.T) {
	var now http.Handler = newBackend().handler()
	c, _ := behind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.ServeHTTP(w, r) }), 1)
	now = newBackend().handler()
	if _, err := c.Acquire(t.Context(), request("d")); !errors.Is(err, coord.ErrGeneration) {
		t.Errorf("got %v", err)
	}
}

func TestASilentProcessLosesItsSessionAndAClosedOneStaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		h := b.handler()
		c, _ := behind(t, h, 1)
		if _, err := c.Acquire(t.Context(), request("d")); err != nil {
			t.Fatal(err)
		}
		bubble.Pass(2*coord.MaxTTL - time.Second)
		behind(t, h, 2)
		if h.Sessions() != 2 {
			t.Errorf("%d sessions before the silence was over", h.Sessions())
		}
		bubble.Pass(2 * time.Second)
		other, n := behind(t, h, 3) // who comes, sweeps
		if h.Sessions() != 2 {
			t.Errorf("%d sessions, expected those of the second and the third", h.Sessions())
		}
		if _, err := c.Renew(t.Context(), agent, "d", 1, coord.MaxTTL); !errors.Is(err, coord.ErrLost) {
			t.Errorf("the silent one renews: %v", err)
		}
		if l, err := c.Acquire(t.Context(), request("d")); err != nil || l.Epoch != 2 {
			t.Errorf("the silent one acquires: %+v, %v", l, err)
		}
		sessions := h.Sessions()
		n.next = n.held
		if err := other.Close(t.Context()); !errors.Is(err, coord.ErrIndeterminate) {
			t.Fatal(err)
		}
		if err := other.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.deliver()
		if _, _, err := other.Current(t.Context(), agent); !errors.Is(err, coord.ErrNotSent) || h.Sessions() != sessions-1 {
			t.Errorf("after it was closed: %v, %d sessions", err, h.Sessions())
		}
	})
}

func TestACallThatIsNotAnsweredInTimeIsIndeterminate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := behind(t, newBackend().handler(), 1)
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
		defer cancel()
		n.next = func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		if _, err := c.Acquire(ctx, request("d")); !errors.Is(err, coord.ErrIndeterminate) || errors.Is(err, coord.ErrNotSent) || !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
	})
}
