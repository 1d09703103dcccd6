package remote_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/coord/remote"
)

// clock is a time that moves only when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// anyone lets everybody do everything.
func anyone(*http.Request, remote.Call) error { return nil }

// A backend is a ledger in memory that a handler serves, and what the handler opened.
type backend struct {
	now   *clock
	store *memory.Store

	mu     sync.Mutex
	opened map[int][]*memory.Coordinator // by the pid of the process that calls
	dead   []func(liveness string) bool  // what each process was told to be proved
}

func newBackend() *backend {
	b := &backend{now: &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, opened: map[int][]*memory.Coordinator{}}
	b.store = memory.New(memory.Config{Now: b.now.Now, Dead: func(l coord.Lease) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, dead := range b.dead {
			if dead(l.Liveness) {
				return true
			}
		}
		return false
	}})
	return b
}

func (b *backend) open(_ context.Context, p coord.Process, dead func(string) bool) (coord.Coordinator, error) {
	c := b.store.Process(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened[p.PID] = append(b.opened[p.PID], c)
	b.dead = append(b.dead, dead)
	return c, nil
}

func (b *backend) handler() *remote.Handler {
	return remote.NewHandler(remote.HandlerConfig{Open: b.open, Allow: anyone, Now: b.now.Now})
}

// expire ends what the process has at the ledger.
func (b *backend) expire(pid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.opened[pid] {
		for _, liveness := range c.Livenesses() {
			b.store.Expire(liveness)
		}
	}
}

func listen(t testing.TB, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(remote.Prefix, h)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func dial(t testing.TB, cfg remote.Config) *remote.Coordinator {
	t.Helper()
	c, err := remote.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// callers are the processes of a test by their numbers. Processes are made while others are at work.
type callers struct {
	mu    sync.Mutex
	made  int
	pids  map[coord.Coordinator]int
	proof map[int]bool // that the process of that number is dead
}

func newCallers() *callers {
	return &callers{pids: map[coord.Coordinator]int{}, proof: map[int]bool{}}
}

// dial makes the next process.
func (s *callers) dial(t testing.TB, url, device string) coord.Coordinator {
	s.mu.Lock()
	s.made++
	pid := s.made
	s.mu.Unlock()
	c := dial(t, remote.Config{URL: url, Process: coord.Process{Host: device, PID: pid}, Dead: func(_ string, p coord.Process) bool {
		return s.dead(p.PID)
	}})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids[c] = pid
	return c
}

func (s *callers) pid(c coord.Coordinator) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids[c]
}

func (s *callers) prove(c coord.Coordinator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proof[s.pids[c]] = true
}

func (s *callers) dead(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proof[pid]
}

func TestConformance(t *testing.T) {
	coordtest.Run(t, func(t *testing.T) coordtest.Backend {
		b := newBackend()
		url := listen(t, b.handler())
		all := newCallers()
		return coordtest.Backend{
			Process: func(t testing.TB, device string) coord.Coordinator { return all.dial(t, url, device) },
			Crash:   func(testing.TB, coord.Coordinator) {}, // it says no more, and the server does not know
			Expire:  func(_ testing.TB, c coord.Coordinator) { b.expire(all.pid(c)) },
			Prove:   func(_ testing.TB, c coord.Coordinator) { all.prove(c) },
			Advance: func(_ testing.TB, d time.Duration) { b.now.advance(d) },
		}
	})
}
