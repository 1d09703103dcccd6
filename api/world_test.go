package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/claim"
	"github.com/syncnode/syncnode/node/events"
	"github.com/syncnode/syncnode/node/hold"
)

// cutOff is a coordinator that can be cut off: nothing that is asked of it happens.
type cutOff struct {
	coord.Coordinator
	cut        atomic.Bool
	unreadable []coord.UnreadableRun
}

// List pages through what can be read, and names the rest with the first page.
func (c *cutOff) List(ctx context.Context, f coord.Filter) (coord.Page, error) {
	page, err := c.Coordinator.List(ctx, f)
	if f.After == "" {
		page.Unreadable = c.unreadable
	}
	return page, err
}

func (c *cutOff) Renew(ctx context.Context, agent, device string, e coord.Epoch, ttl time.Duration) (coord.Lease, error) {
	if c.cut.Load() {
		return coord.Lease{}, coord.ErrNotSent
	}
	return c.Coordinator.Renew(ctx, agent, device, e, ttl)
}

func (c *cutOff) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	if c.cut.Load() {
		return coord.View{}, coord.ErrNotSent
	}
	return c.Coordinator.Look(ctx, q)
}

func (c *cutOff) Finish(ctx context.Context, o coord.Outcome) error {
	if c.cut.Load() {
		return coord.ErrNotSent
	}
	return c.Coordinator.Finish(ctx, o)
}

// A world is one node behind its API, in a bubble, without a socket.
type world struct {
	t      *testing.T
	server *api.Server
	node   *api.Node
	c      *cutOff
	store  *memory.Store
	ring   *events.Ring
	caller func(*http.Request) // how requests are sent; nil: over the socket, by its owner
}

// inWorld runs f with a node that serves.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{})
		f(w)
	})
}

func newWorld(t *testing.T, s *memory.Store, device string, cfg api.Config) *world {
	t.Helper()
	w := &world{t: t, store: s, ring: events.New(), c: &cutOff{Coordinator: s.Process(coord.Process{Host: device, PID: 7})}}
	cfg.Events, cfg.Version = w.ring, "test"
	w.server = api.New(cfg)
	holds, err := hold.New(hold.Config{Leases: w.c, Device: device})
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatch.New(dispatch.Config{Coordinator: w.c, Device: device})
	if err != nil {
		t.Fatal(err)
	}
	desk, err := claim.New(claim.Config{Namespace: "test", Device: device, Dispatcher: d, Holds: claim.Over(holds), Ledger: w.c, Events: w.ring})
	if err != nil {
		t.Fatal(err)
	}
	w.node = &api.Node{Device: device, Namespace: "test", Generation: s.Process(coord.Process{}).Generation(), Desk: desk, Ledger: w.c,
		Probe: func(ctx context.Context) error { _, _, err := w.c.Current(ctx, "any"); return err }}
	ctx, cancel := context.WithCancel(context.Background())
	var all errgroup.Group
	all.Go(func() error { return holds.Run(ctx) })
	all.Go(func() error { return desk.Run(ctx) })
	detach := w.server.Attach(w.node)
	synctest.Wait()
	t.Cleanup(func() {
		detach()
		cancel()
		all.Wait()
	})
	return w
}

// An answer is what a client sees.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any
}

func (a answer) text(key string) string { s, _ := a.body[key].(string); return s }

// do sends a request; body may be nil, text, or anything that has a JSON form.
func (w *world) do(method, path string, body any, change ...func(*http.Request)) answer {
	w.t.Helper()
	var b []byte
	switch v := body.(type) {
	case nil:
	case string:
		b = []byte(v)
	default:
		b, _ = json.Marshal(v)
	}
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, bytes.NewReader(b))
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.caller != nil {
		w.caller(r)
	} else {
		*r = *api.OverSocket(r)
	}
	for _, f := range change {
		f(r)
	}
	rec := httptest.NewRecorder()
	w.server.ServeHTTP(rec, r)
	a := answer{status: rec.Code, header: rec.Header(), raw: rec.Body.Bytes()}
	if strings.Contains(rec.Header().Get("Content-Type"), "json") {
		if err := json.Unmarshal(a.raw, &a.body); err != nil {
			w.t.Fatalf("%s %s: %v: %s", method, path, err, a.raw)
		}
	}
	return a
}

type obj = map[string]any

// claim claims a run of agent a.
func (w *world) claim(occurrence string) answer {
	w.t.Helper()
	return w.do("POST", "/v1/runs", obj{"agent": "a", "occurrence": occurrence})
}

// fenced claims a run and passes the fence: the path of the run, its attempt.
func (w *world) fenced(occurrence string) (path, attempt string) {
	w.t.Helper()
	c := w.want(w.claim(occurrence), 201, "")
	path = c.header.Get("Location")
	f := w.want(w.do("POST", path+"/fence", obj{"claim": c.text("claim"), "request": "request-1"}), 200, "")
	return path, f.text("attempt")
}

// want holds what is true of every answer, and the status and problem of this one.
func (w *world) want(a answer, status int, problem string) answer {
	w.t.Helper()
	if a.status != status {
		w.t.Errorf("status %d, want %d: %s", a.status, status, a.raw)
	}
	if a.status < 400 {
		return a
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		w.t.Errorf("a refusal of type %q: %s", got, a.raw)
	}
	if got := a.text("type"); got != "/problems/"+problem {
		w.t.Errorf("problem %s, want %s: %s", got, problem, a.raw)
	}
	if e := a.text("executed"); e != "no" && e != "maybe" && e != "yes" || a.text("title") == "" || a.body["status"] != float64(a.status) {
		w.t.Errorf("not a whole problem: %s", a.raw)
	}
	for _, name := range []string{"coord: ", "claim: ", "hold: ", "api: ", "dispatch: "} {
		if strings.Contains(a.text("detail"), name) {
			w.t.Errorf("a refusal names a Go package: %s", a.raw)
		}
	}
	if (a.status == 503 || a.status == 429) && a.header.Get("Retry-After") == "" {
		w.t.Errorf("%d without Retry-After", a.status)
	}
	return a
}

func (w *world) wantExecuted(a answer, want string) {
	w.t.Helper()
	if got := a.text("executed"); got != want {
		w.t.Errorf("executed %q, want %q: %s", got, want, a.raw)
	}
}

func runID(occurrence string) string { return ident.RunID("test", "a", "key:"+occurrence) }
