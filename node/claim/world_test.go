package claim_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/claim"
	"github.com/syncnode/syncnode/node/events"
	"github.com/syncnode/syncnode/node/hold"
)

const agent = "invoices"

func runOf(key string) string { return ident.RunID("test", agent, "key:"+key) }

func ask(key string) claim.Ask { return claim.Ask{Agent: agent, Occurrence: "key:" + key} }

// cutOff is a coordinator that can be cut off: nothing that is asked of it happens.
type cutOff struct {
	coord.Coordinator
	cut  atomic.Bool
	deaf atomic.Bool  // to outcomes alone
	last atomic.Bool  // cut off once it has an outcome
	slow atomic.Int64 // how long a begin takes, and an outcome
}

func (c *cutOff) away() error {
	if c.cut.Load() {
		return coord.ErrNotSent
	}
	return nil
}

func (c *cutOff) Renew(ctx context.Context, agent, device string, e coord.Epoch, ttl time.Duration) (coord.Lease, error) {
	if err := c.away(); err != nil {
		return coord.Lease{}, err
	}
	return c.Coordinator.Renew(ctx, agent, device, e, ttl)
}

func (c *cutOff) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	if err := c.away(); err != nil {
		return coord.View{}, err
	}
	return c.Coordinator.Look(ctx, q)
}

func (c *cutOff) Finish(ctx context.Context, o coord.Outcome) error {
	if err := c.away(); err != nil || c.deaf.Load() {
		return coord.ErrNotSent
	}
	<-time.After(time.Duration(c.slow.Load()))
	err := c.Coordinator.Finish(ctx, o)
	if c.last.Swap(false) {
		c.cut.Store(true)
	}
	return err
}

func (c *cutOff) Begin(ctx context.Context, b coord.Begin) (coord.Attempt, error) {
	if err := c.away(); err != nil {
		return coord.Attempt{}, err
	}
	<-time.After(time.Duration(c.slow.Load()))
	return c.Coordinator.Begin(ctx, b)
}

// A process is one life of a node, as far as clients see it.
type process struct {
	t     *testing.T
	store *memory.Store
	c     *cutOff
	desk  *claim.Desk
	ring  *events.Ring
	stop  context.CancelFunc
	ended chan struct{}
}

// newProcess begins a life of a device; the test's end ends it.
func newProcess(t *testing.T, s *memory.Store, device string) *process {
	t.Helper()
	return newProcessOf(t, s, device, nil, nil)
}

// newProcessOf is newProcess of a device with a journal; dead proves the death of its other processes.
func newProcessOf(t *testing.T, s *memory.Store, device string, book dispatch.Book, dead func(string, coord.Process) bool) *process {
	t.Helper()
	p := &process{t: t, store: s, ring: events.New(), ended: make(chan struct{})}
	p.c = &cutOff{Coordinator: s.Process(coord.Process{Host: device})}
	d, err := dispatch.New(dispatch.Config{Coordinator: p.c, Device: device, Book: book, Dead: dead})
	if err != nil {
		t.Fatal(err)
	}
	holds, err := hold.New(hold.Config{Leases: p.c, Device: device})
	if err != nil {
		t.Fatal(err)
	}
	p.desk, err = claim.New(claim.Config{Namespace: "test", Device: device, Dispatcher: d, Holds: claim.Over(holds), Ledger: p.c, Events: p.ring})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() {
		defer close(p.ended)
		var both errgroup.Group
		both.Go(func() error { return holds.Run(ctx) })
		both.Go(func() error { return p.desk.Run(ctx) })
		both.Wait()
	}()
	synctest.Wait()
	t.Cleanup(func() {
		p.stop()
		<-p.ended
	})
	return p
}

// die is the end of the process: nothing of it is renewed or recorded any more.
func (p *process) die() {
	p.c.cut.Store(true)
	p.c.Coordinator.(*memory.Coordinator).Crash()
}

func bubble(t *testing.T, f func(t *testing.T, s *memory.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.New(memory.Config{})) })
}

func (p *process) claim(a claim.Ask) claim.Claim {
	p.t.Helper()
	c, err := p.desk.Claim(p.t.Context(), a)
	if err != nil {
		p.t.Fatalf("claim: %v", err)
	}
	return c
}

func (p *process) fence(c claim.Claim, request string) claim.Standing {
	p.t.Helper()
	st, err := p.desk.Fence(p.t.Context(), c.Run, c.ID, request)
	if err != nil {
		p.t.Fatalf("fence: %v", err)
	}
	return st
}

func (p *process) end(st claim.Standing, state coord.State) claim.Ended {
	p.t.Helper()
	got, err := p.desk.End(p.t.Context(), claim.End{Run: st.Run, Attempt: st.Attempt, State: state, Result: "so it was"})
	if err != nil {
		p.t.Fatalf("end: %v", err)
	}
	return got
}

// view looks past every process.
func view(t *testing.T, s *memory.Store, key string) coord.View {
	t.Helper()
	v, err := s.Process(coord.Process{}).Look(context.Background(), coord.Question{Agent: agent, Run: runOf(key)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func wantState(t *testing.T, s *memory.Store, key string, want coord.RunState) {
	t.Helper()
	if v := view(t, s, key); v.State != want {
		t.Errorf("run %s is %s, want %s: %+v", key, v.State, want, v.Entry.Attempts)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}
