package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/client"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/claim"
	"github.com/syncnode/syncnode/node/hold"
)

// A world is a node behind its API on a socket, over a ledger in memory.
type world struct {
	t      testing.TB
	ledger coord.Coordinator
	socket string
	leave  func() // the node goes down in good order: its clients are told to stop
}

func newWorld(t testing.TB) *world {
	t.Helper()
	c := memory.New(memory.Config{}).Process(coord.Process{Host: "h", PID: 1})
	holds, err := hold.New(hold.Config{Leases: c, Device: "d", TTL: func(string) time.Duration { return 2 * time.Second }})
	must(t, err)
	d, err := dispatch.New(dispatch.Config{Coordinator: c, Device: "d"})
	must(t, err)
	desk, err := claim.New(claim.Config{Namespace: "test", Device: "d", Dispatcher: d, Holds: claim.Over(holds), Ledger: c, Drain: time.Millisecond})
	must(t, err)
	server := api.New(api.Config{Version: "test"})
	// A path of a socket is short.
	socket := filepath.Join(t.TempDir(), "s")
	a, err := api.ParseAddress("unix:" + socket)
	must(t, err)
	l, err := api.Listen(a, api.Security{})
	must(t, err)
	serving, end := context.WithCancel(context.Background())
	going, leave := context.WithCancel(context.Background())
	var all errgroup.Group
	all.Go(func() error { return server.Serve(serving, l) })
	all.Go(func() error { return holds.Run(going) })
	all.Go(func() error { return desk.Run(going) })
	detach := server.Attach(&api.Node{Device: "d", Namespace: "test", Generation: c.Generation(), Desk: desk, Ledger: c, Probe: func(context.Context) error { return nil }})
	t.Cleanup(func() {
		leave()
		detach()
		end()
		_ = all.Wait()
	})
	return &world{t, c, socket, leave}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A network changes what becomes of requests whose path ends so.
type network struct {
	to   http.RoundTripper
	mu   sync.Mutex
	plan func(verb string, r *http.Request) (*http.Response, error) // both nil: nothing
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	plan := n.plan
	n.mu.Unlock()
	if plan != nil {
		if resp, err := plan(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], r); resp != nil || err != nil {
			return resp, err
		}
	}
	return n.to.RoundTrip(r)
}

// client is a client of the node, and the network between them.
func (w *world) client() (*client.Client, *network) {
	w.t.Helper()
	n := &network{to: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.socket)
	}}}
	c, err := client.New(client.Config{URL: "http://localhost", Client: &http.Client{Transport: n}})
	must(w.t, err)
	return c, n
}

func (w *world) state(occurrence string) coord.View {
	w.t.Helper()
	v, err := w.ledger.Look(w.t.Context(), coord.Question{Agent: "a", Run: ident.RunID("test", "a", "key:"+occurrence)})
	must(w.t, err)
	return v
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var errEffect = errors.New("the effect failed")

func TestARunIsRunOnceAndItsEndIsTold(t *testing.T) {
	w := newWorld(t)
	c, err := client.New(client.Config{URL: "unix:" + w.socket})
	must(t, err)
	defer c.Close()
	calls := 0
	effect := func(_ context.Context, p *client.Permit) error {
		calls++
		if p.Epoch == 0 || p.Attempt == "" || p.Agent != "a" || !time.Now().Before(p.Deadline()) {
			t.Errorf("permit %+v", p)
		}
		p.SetResult("42")
		return nil
	}
	done, err := c.Run(bounded(t), "a", "1", effect)
	if err != nil || done.State != "committed" || done.Replayed || done.Result != "42" {
		t.Fatalf("%+v, %v", done, err)
	}
	again, err := c.Run(bounded(t), "a", "1", effect)
	if err != nil || !again.Replayed || again.Result != "42" || again.Attempt != done.Attempt || calls != 1 {
		t.Errorf("again: %+v, %v; %d calls", again, err, calls)
	}
	if v := w.state("1"); v.State != coord.RunCommitted {
		t.Errorf("the ledger says %q", v.State)
	}
}

func TestAnEffectThatFailsIsToldAsItEnded(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client()
	for occurrence, x := range map[string]struct {
		err      error
		state    coord.RunState
		executed client.Executed
	}{
		"failed":  {errEffect, coord.RunFailed, client.Yes},
		"nothing": {client.ErrNothingHappened, coord.RunFree, client.No},
		"unknown": {client.ErrEndUnknown, coord.RunInDoubt, client.Maybe},
	} {
		done, err := c.Run(bounded(t), "a", occurrence, func(context.Context, *client.Permit) error { return x.err })
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Executed != x.executed || !errors.Is(err, x.err) || done.State != string(x.state) {
			t.Errorf("%s: %+v, %v", occurrence, done, err)
		}
		if v := w.state(occurrence); v.State != x.state {
			t.Errorf("%s: the ledger says %q", occurrence, v.State)
		}
	}
	_, err := c.Run(bounded(t), "a", "failed", func(context.Context, *client.Permit) error { t.Error("run again"); return nil })
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Name != "run-failed" || e.Executed != client.Yes {
		t.Errorf("a failed run: %v", err)
	}
	done, err := c.RunAsk(bounded(t), client.Ask{Agent: "a", Occurrence: "failed", RetryFailed: true}, func(context.Context, *client.Permit) error { return nil })
	if err != nil || done.State != "committed" {
		t.Errorf("retried: %+v, %v", done, err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = c.Run(bounded(t), "a", "panics", func(context.Context, *client.Permit) error { panic("x") })
	}()
	if v := w.state("panics"); v.State != coord.RunInDoubt {
		t.Errorf("an effect that panicked: the ledger says %q", v.State)
	}
}

func TestALostAnswerIsSettledAndTheEffectRunsOnce(t *testing.T) {
	for _, verb := range []string{"runs", "fence", "commit"} {
		w := newWorld(t)
		c, n := w.client()
		var lost atomic.Bool
		n.plan = func(at string, r *http.Request) (*http.Response, error) {
			if at != verb || lost.Swap(true) {
				return nil, nil
			}
			resp, err := n.to.RoundTrip(r)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				err = errors.New("the answer was lost")
			}
			return nil, err
		}
		calls := 0
		done, err := c.Run(bounded(t), "a", "1", func(context.Context, *client.Permit) error { calls++; return nil })
		if err != nil || calls != 1 || done.State != "committed" || len(w.state("1").Entry.Attempts) != 1 {
			t.Errorf("%s: %+v, %v; %d calls, %+v", verb, done, err, calls, w.state("1").Entry)
		}
	}
}

// Without a yes that was heard nothing is run, and once the node can be asked again the run is free.
func TestAFenceThatIsNotHeardRunsNothing(t *testing.T) {
	w := newWorld(t)
	c, n := w.client()
	ctx, cancel := context.WithCancel(bounded(t))
	n.plan = func(at string, r *http.Request) (*http.Response, error) {
		if at != "fence" || ctx.Err() != nil {
			return nil, nil
		}
		resp, err := n.to.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		cancel() // the caller gives up while the answer is on its way
		return nil, errors.New("the answer was lost")
	}
	_, err := c.Run(ctx, "a", "1", func(context.Context, *client.Permit) error { t.Error("it was run"); return nil })
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Executed != client.No {
		t.Errorf("got %v", err)
	}
	if v := w.state("1"); v.State != coord.RunFree || len(v.Entry.Attempts) != 1 || v.Entry.Attempts[0].State != coord.Void {
		t.Errorf("the ledger says %q: %+v", v.State, v.Entry.Attempts)
	}
}

func TestTheContextOfAnEffectEndsBeforeTheRightToAct(t *testing.T) {
	w := newWorld(t)
	c, n := w.client()
	n.plan = func(at string, _ *http.Request) (*http.Response, error) {
		if at == "heartbeat" {
			return nil, errors.New("cut off")
		}
		return nil, nil
	}
	_, err := c.Run(bounded(t), "a", "1", func(ctx context.Context, p *client.Permit) error {
		<-ctx.Done()
		stop, ok := errors.AsType[*client.StopError](context.Cause(ctx))
		if !ok || stop.Cause != "lost" || !time.Now().Before(p.Deadline().Add(30*time.Second)) {
			t.Errorf("ended by %v", context.Cause(ctx))
		}
		return context.Cause(ctx)
	})
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Executed == client.No {
		t.Errorf("got %v", err)
	}
}

func TestAnEffectIsToldToStopWhenItsNodeGoesDown(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client()
	done, err := c.Run(bounded(t), "a", "1", func(ctx context.Context, _ *client.Permit) error {
		w.leave()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	stop, told := errors.AsType[*client.StopError](err)
	if !told || stop.Cause != "drain" || done.State != "failed" {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestHeartbeatsKeepALongEffectGoing(t *testing.T) {
	w := newWorld(t)
	c, n := w.client()
	var beats atomic.Int32
	enough := make(chan struct{})
	n.plan = func(at string, _ *http.Request) (*http.Response, error) {
		if at == "heartbeat" && beats.Add(1) == 7 { // each a fifth of the TTL after the last
			close(enough)
		}
		return nil, nil
	}
	_, err := c.Run(bounded(t), "a", "1", func(ctx context.Context, _ *client.Permit) error {
		select {
		case <-enough:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeANodesAnswerPermitsNothing(t *testing.T) {
	for name, plan := range map[string]struct{ verb, body, kind string }{
		"a page":                  {"fence", "<html>", "text/html"},
		"no JSON":                 {"fence", "yes", "application/json"},
		"another run's":           {"fence", `{"run_id":"r1-x","attempt":"a","epoch":1,"valid_ms":9000,"stop_after_ms":9000}`, "application/json"},
		"no attempt":              {"fence", `{}`, "application/json"},
		"a claim of another":      {"runs", `{"run_id":"r","agent":"b","claim":"c","epoch":1,"state":"free"}`, "application/json"},
		"committed, and not told": {"runs", `{"run_id":"r","agent":"a","claim":"c","epoch":1,"state":"committed"}`, "application/json"},
	} {
		w := newWorld(t)
		_, n := w.client()
		ctx, cancel := context.WithCancel(t.Context())
		n.plan = func(at string, _ *http.Request) (*http.Response, error) {
			if at != plan.verb {
				return nil, nil
			}
			defer cancel() // once is enough
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {plan.kind}}, Body: io.NopCloser(strings.NewReader(plan.body))}, nil
		}
		short, err := client.New(client.Config{URL: "http://localhost", Client: &http.Client{Transport: n}, Tell: time.Millisecond})
		must(t, err)
		_, err = short.Run(ctx, "a", name, func(context.Context, *client.Permit) error { t.Errorf("%s: it was run", name); return nil })
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Executed == client.Yes || !errors.Is(err, client.ErrNoAnswer) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestNoNodeIsNothingRun(t *testing.T) {
	c, err := client.New(client.Config{URL: "unix:" + filepath.Join(t.TempDir(), "none.sock")})
	must(t, err)
	_, err = c.Run(bounded(t), "a", "1", func(context.Context, *client.Permit) error { t.Error("it was run"); return nil })
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Executed != client.No || !errors.Is(err, client.ErrNotSent) {
		t.Errorf("got %v", err)
	}
}

// notNow is a network before a node that has no answer for an end, in a row of ways.
func notNow(w *world) (c *client.Client, told *int) {
	c, n := w.client()
	told = new(int)
	n.plan = func(verb string, r *http.Request) (*http.Response, error) {
		if verb != "commit" && verb != "fail" {
			return nil, nil
		}
		*told++
		status, name := http.StatusServiceUnavailable, ""
		switch *told {
		case 1:
			status, name = http.StatusTooManyRequests, "too-many-requests"
		case 2:
			name = "unavailable"
		case 3:
			name = "not-recorded"
		case 4:
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		default:
			return nil, nil
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/problem+json"}, "Retry-After": {"1"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"type": "/problems/` + name + `", "executed": "no"}`))}, nil
	}
	return c, told
}

func TestAnEndThatIsNotTakenNowIsToldAgain(t *testing.T) {
	for _, x := range []struct {
		do    error
		state coord.RunState
	}{{nil, coord.RunCommitted}, {errEffect, coord.RunFailed}, {client.ErrNothingHappened, coord.RunFree}} {
		w := newWorld(t)
		c, told := notNow(w)
		_, err := c.Run(bounded(t), "a", "1", func(context.Context, *client.Permit) error { return x.do })
		if got := w.state("1").State; got != x.state || *told != 5 || !errors.Is(err, x.do) {
			t.Errorf("after %v the run is %q, told %d times: %v", x.do, got, *told, err)
		}
	}
}

func TestAnEndThatIsNotTakenMakesNothingUndone(t *testing.T) {
	w := newWorld(t)
	for want, e := range map[client.Executed]client.End{client.Yes: {Committed: true}, client.Maybe: {Ran: client.Maybe}, client.No: {Ran: client.No}} {
		c, told := notNow(w)
		e.Run, e.Agent, e.Attempt = ident.RunID("test", "a", "key:1"), "a", "t"
		for *told < 4 {
			_, err := c.End(bounded(t), e)
			if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Executed != want {
				t.Errorf("%+v: %v", e, err)
			}
		}
	}
}

// A node that was started anew does not take an end at once where its former process is not proved dead.
func TestAnEndThatIsRefusedAsInProgressIsToldAgainUntilItsLeaseHasEnded(t *testing.T) {
	const ttl = 5 * time.Minute
	for _, test := range []struct {
		name    string
		refused time.Duration // how long
		do      error
		state   string
	}{
		{"committed", 3 * time.Second, nil, "committed"},
		{"failed after Config.Tell", ttl - time.Second, errEffect, "failed"},
		{"never ran", 3 * time.Second, client.ErrNothingHappened, "free"},
		{"refused for ever", time.Hour, nil, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			run := ident.RunID("test", "a", "key:1")
			var first, last time.Time
			n := &network{plan: func(verb string, r *http.Request) (*http.Response, error) {
				status, kind, body := http.StatusOK, "application/json", ""
				switch verb {
				case "runs":
					body = `{"agent": "a", "claim": "c", "epoch": 1, "state": "free"`
				case "fence":
					body = `{"attempt": "t", "epoch": 1, "valid_ms": 300000, "stop_after_ms": 200000, "heartbeat_ms": 60000, "ttl_ms": 300000`
				default:
					if last = time.Now(); first.IsZero() {
						first = last
					}
					body = `{"attempt": "t", "state": "` + test.state + `"`
					if last.Sub(first) < test.refused {
						status, kind, body = http.StatusConflict, "application/problem+json", `{"type": "/problems/run-in-progress", "executed": "maybe"`
					}
				}
				return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}, "Retry-After": {"2"}},
					Body: io.NopCloser(strings.NewReader(body + `, "run_id": "` + run + `"}`)), Request: r}, nil
			}}
			c, err := client.New(client.Config{URL: "http://localhost", Client: &http.Client{Transport: n}})
			must(t, err)
			done, err := c.Run(t.Context(), "a", "1", func(context.Context, *client.Permit) error { return test.do })
			if test.state != "" && done.State != test.state {
				t.Errorf("%s: %+v, %v", test.name, done, err)
			}
			if e, ok := errors.AsType[*client.Error](err); test.state == "" && (!ok || e.Name != "run-in-progress" || e.Executed != client.Yes) {
				t.Errorf("%s: %+v, %v", test.name, done, err)
			}
			if took := last.Sub(first); took < min(test.refused, ttl) || took > min(test.refused, ttl)+10*time.Second {
				t.Errorf("%s: told for %s", test.name, took)
			}
		})
	}
}
