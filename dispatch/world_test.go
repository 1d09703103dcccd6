package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
)

const agent = "invoices"

var occurrence, _ = ident.KeyOccurrence("2026-11")

func runID(occ string) string { return ident.RunID("test", agent, occ) }

// A host is one process of a device at a store: a dispatcher over a coordinator that can fail.
type host struct {
	t     *testing.T
	d     *dispatch.Dispatcher
	c     *faulty
	book  *book
	cfg   dispatch.Config
	store *memory.Store
}

func newHost(t *testing.T, s *memory.Store, device string, change ...func(*dispatch.Config)) *host {
	t.Helper()
	return newHostOver(t, s, device, newBook(), change...)
}

// newHostOver is a later process of a device that has a book already.
func newHostOver(t *testing.T, s *memory.Store, device string, b *book, change ...func(*dispatch.Config)) *host {
	t.Helper()
	h := &host{t: t, store: s, book: b.process()}
	h.c = &faulty{Coordinator: s.Process(coord.Process{Host: device, PID: 7}), t: t, book: h.book}
	h.cfg = dispatch.Config{Coordinator: h.c, Device: device, Book: h.book}
	for _, f := range change {
		f(&h.cfg)
	}
	var err error
	if h.d, err = dispatch.New(h.cfg); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) memory() *memory.Coordinator { return h.c.Coordinator.(*memory.Coordinator) }

// job is the job of all tests; e is its effect.
func (h *host) job(e *work, change ...func(*dispatch.Job)) dispatch.Job {
	j := dispatch.Job{Agent: agent, Occurrence: occurrence, Run: runID(occurrence), Effect: dispatch.StartFunc(
		func(ctx context.Context, p dispatch.Permit) (dispatch.Effect, error) { return e.start(h, p) })}
	for _, f := range change {
		f(&j)
	}
	return j
}

func (h *host) run(e *work, change ...func(*dispatch.Job)) dispatch.Result {
	h.t.Helper()
	return h.check(h.d.Run(h.t.Context(), h.job(e, change...)))
}

// check holds what is true of every result.
func (h *host) check(r dispatch.Result) dispatch.Result {
	h.t.Helper()
	said := strings.Contains(r.Message, "was not run") || strings.Contains(r.Message, "was run") || strings.Contains(r.Message, "may have run")
	if !said || strings.Contains(r.Message, "\n") {
		h.t.Errorf("message does not say whether it ran: %q", r.Message)
	}
	if (r.Ran == dispatch.Yes) != strings.Contains(r.Message, "was run") {
		h.t.Errorf("ran %q, but the message is %q", r.Ran, r.Message)
	}
	return r
}

// view looks past all faults.
func (h *host) view(occ string) coord.View {
	h.t.Helper()
	v, err := h.store.Process(coord.Process{}).Look(context.Background(), coord.Question{Agent: agent, Run: runID(occ)})
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}

func wantCode(t *testing.T, r dispatch.Result, code int, ran dispatch.Ran, state coord.RunState) {
	t.Helper()
	if r.Code != code || r.Ran != ran || r.State != state {
		t.Errorf("got code %d, ran %q, state %q (%s; %v); want %d, %q, %q", r.Code, r.Ran, r.State, r.Message, r.Err, code, ran, state)
	}
}

func (h *host) wantLedger(occ string, state coord.RunState, cause string) coord.View {
	h.t.Helper()
	v := h.view(occ)
	got := ""
	if n := len(v.Entry.Attempts); n > 0 {
		got = v.Entry.Attempts[n-1].Cause
	}
	if v.State != state || got != cause {
		h.t.Errorf("the ledger says %q, cause %q; want %q, %q: %+v", v.State, got, state, cause, v.Entry.Attempts)
	}
	return v
}

// A work is an effect that counts how often it was begun.
type work struct {
	takes    time.Duration // until it ends by itself
	exit     int
	stubborn bool          // ignores Stop
	polite   bool          // ends with 0 when it is told to stop
	slow     time.Duration // takes so long to obey
	passing  error         // its starter stops it after a second
	words    string        // for the ledger
	late     bool          // ends well just before Stop reaches it
	lazy     time.Duration // Stop itself takes so long
	refuse   error         // cannot be started
	blind    error         // its end cannot be learned
	leaves   bool          // a part of it survives KILL
	inside   func(h *host, p dispatch.Permit)

	mu      sync.Mutex
	begun   int
	running int
	most    int // how many ran at once
	epochs  []coord.Epoch
	stopped time.Time
	killed  time.Time
	over    time.Time
}

func (w *work) count() int { w.mu.Lock(); defer w.mu.Unlock(); return w.begun }

type running struct {
	w    *work
	done chan struct{}
	stop chan error
	kill chan error
	end  dispatch.Ended
}

func (w *work) start(h *host, p dispatch.Permit) (dispatch.Effect, error) {
	h.book.mustBeFree("when the effect starts")
	if w.refuse != nil {
		return nil, w.refuse
	}
	w.mu.Lock()
	w.begun++
	w.running++
	w.most = max(w.most, w.running)
	w.epochs = append(w.epochs, p.Epoch)
	w.mu.Unlock()
	e := &running{w: w, done: make(chan struct{}), stop: make(chan error, 1), kill: make(chan error, 1)}
	h.book.effect(+1)
	if w.passing != nil {
		time.AfterFunc(time.Second, func() { e.Stop(w.passing) })
	}
	go func() {
		if w.inside != nil {
			w.inside(h, p)
		}
		e.live()
		h.book.effect(-1)
		w.mu.Lock()
		w.running--
		w.over = time.Now()
		w.mu.Unlock()
		close(e.done)
	}()
	return e, nil
}

func (e *running) live() {
	t := time.NewTimer(e.w.takes)
	defer t.Stop()
	stop := e.stop
	for {
		select {
		case <-t.C:
			e.end.ExitCode, e.end.Err, e.end.Result = e.w.exit, e.w.blind, e.w.words
			return
		case why := <-stop:
			e.w.mu.Lock()
			e.w.stopped = time.Now()
			e.w.mu.Unlock()
			if e.w.late {
				return
			}
			if e.end.Stopped = why; e.w.stubborn {
				stop = nil
				continue
			}
			time.Sleep(e.w.slow)
			if e.end.ExitCode, e.end.Signal = -1, 15; e.w.polite {
				e.end.ExitCode, e.end.Signal = 0, 0
			}
			return
		case why := <-e.kill:
			e.w.mu.Lock()
			e.w.killed = time.Now()
			e.w.mu.Unlock()
			if e.end.Stopped == nil {
				e.end.Stopped = why
			}
			e.end.ExitCode, e.end.Signal, e.end.Left = -1, 9, e.w.leaves
			return
		}
	}
}

func (e *running) Stop(why error)        { offer(e.stop, why); time.Sleep(e.w.lazy) }
func (e *running) Kill(why error)        { offer(e.kill, why) }
func (e *running) Done() <-chan struct{} { return e.done }
func (e *running) Ended() dispatch.Ended { return e.end }
func offer(c chan error, why error) {
	select {
	case c <- why:
	default:
	}
}

// A faulty coordinator fails before or after it does what it was asked.
type faulty struct {
	coord.Coordinator
	t    *testing.T
	book *book

	mu         sync.Mutex
	before     func(op string) error // instead of doing it
	after      func(op string) error // done, and not answered
	unreadable []coord.UnreadableRun // named with each page of a list

	frozen  chan struct{} // until it is closed, no request gets an answer
	calls   []string
	unknown coord.Epoch // of a grant whose answer was lost
}

func (f *faulty) fail(before, after func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// freeze stops all answers; nothing sent meanwhile is done. The returned func ends it.
func (f *faulty) freeze() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{})
	f.frozen = c
	return sync.OnceFunc(func() { close(c) })
}

func (f *faulty) ask(ctx context.Context, op string, do func() error) error {
	if op != "renew" { // the keeper has a goroutine of its own
		f.book.mustBeFree("while the coordinator is asked: " + op)
	}
	f.mu.Lock()
	before, after, frozen := f.before, f.after, f.frozen
	f.calls = append(f.calls, op)
	f.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", op, coord.ErrIndeterminate, ctx.Err())
		}
	}
	if before != nil {
		if err := before(op); err != nil {
			return err
		}
	}
	err := do()
	if after != nil {
		if lost := after(op); lost != nil {
			return lost
		}
	}
	return err
}

func (f *faulty) Look(ctx context.Context, q coord.Question) (v coord.View, err error) {
	err = f.ask(ctx, "look", func() error { v, err = f.Coordinator.Look(ctx, q); return err })
	return v, err
}

func (f *faulty) Start(ctx context.Context, req coord.Request, b coord.Begin) (l coord.Lease, a coord.Attempt, err error) {
	err = f.ask(ctx, "start", func() error { l, a, err = f.Coordinator.Start(ctx, req, b); return err })
	if err != nil {
		f.mu.Lock()
		f.unknown = max(f.unknown, l.Epoch) // granted, and the caller does not know
		f.mu.Unlock()
		return coord.Lease{}, coord.Attempt{}, err
	}
	return l, a, nil
}

func (f *faulty) Begin(ctx context.Context, b coord.Begin) (a coord.Attempt, err error) {
	err = f.ask(ctx, "begin", func() error { a, err = f.Coordinator.Begin(ctx, b); return err })
	return a, err
}

func (f *faulty) Cancel(ctx context.Context, b coord.Begin) error {
	return f.ask(ctx, "cancel", func() error { return f.Coordinator.Cancel(ctx, b) })
}

func (f *faulty) Finish(ctx context.Context, o coord.Outcome) error {
	return f.ask(ctx, "finish", func() error { return f.Coordinator.Finish(ctx, o) })
}

func (f *faulty) Complete(ctx context.Context, o coord.Outcome, l coord.Lease) (finished, released error) {
	err := f.ask(ctx, "complete", func() error { finished, released = f.Coordinator.Complete(ctx, o, l); return finished })
	if err != nil && finished == nil {
		return err, err
	}
	return finished, released
}

func (f *faulty) Renew(ctx context.Context, agent, device string, e coord.Epoch, ttl time.Duration) (l coord.Lease, err error) {
	err = f.ask(ctx, "renew", func() error { l, err = f.Coordinator.Renew(ctx, agent, device, e, ttl); return err })
	return l, err
}

func (f *faulty) Current(ctx context.Context, agent string) (l coord.Lease, held bool, err error) {
	err = f.ask(ctx, "current", func() error { l, held, err = f.Coordinator.Current(ctx, agent); return err })
	return l, held, err
}

func (f *faulty) Release(ctx context.Context, agent, device string, e coord.Epoch) error {
	return f.ask(ctx, "release", func() error {
		f.mu.Lock()
		if e == 0 {
			e = f.unknown
		}
		f.mu.Unlock()
		return f.Coordinator.Release(ctx, agent, device, e)
	})
}

func (f *faulty) Resolve(ctx context.Context, r coord.Resolution) (v coord.View, err error) {
	err = f.ask(ctx, "resolve", func() error { v, err = f.Coordinator.Resolve(ctx, r); return err })
	return v, err
}

func (f *faulty) SetRecovery(ctx context.Context, g coord.Gate) error {
	return f.ask(ctx, "set recovery", func() error { return f.Coordinator.SetRecovery(ctx, g) })
}

func (f *faulty) List(ctx context.Context, q coord.Filter) (p coord.Page, err error) {
	err = f.ask(ctx, "list", func() error { p, err = f.Coordinator.List(ctx, q); return err })
	p.Unreadable = f.unreadable
	return p, err
}

func failing(err error, ops ...string) func(string) error {
	return func(op string) error {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return fmt.Errorf("%s: %w", op, err)
		}
		return nil
	}
}

// A book is the journal of one device in memory, as one process sees it.
type book struct {
	*pages
	using int // guarded by pages.mu: calls of this process that are at work
	acts  int // effects of this process
	fails func(op string) error
	slow  func(op string)
}

// pages are what all processes of a device share.
type pages struct {
	mu      sync.Mutex
	log     []coord.Outcome // State Open is a pending
	settled map[string]bool
	done    []coord.RunRef
	foreign []coord.Record // of peers
	floor   map[string]coord.Epoch
}

func newBook() *book {
	return &book{pages: &pages{settled: map[string]bool{}, floor: map[string]coord.Epoch{}}}
}

func (b *book) process() *book { return &book{pages: b.pages} }

var errLocked = errors.New("the journal's lock is held")

func (b *book) mustBeFree(when string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.using > 0 {
		panic(errLocked.Error() + " " + when)
	}
}

func (b *book) effect(n int) { b.mu.Lock(); defer b.mu.Unlock(); b.acts += n }

// work is one use of the journal: it takes its time, so that whoever does something else meanwhile is seen.
func (b *book) work(op string, do func()) error {
	b.mu.Lock()
	if b.acts > 0 {
		b.mu.Unlock()
		panic("the journal is used while an effect runs: " + op)
	}
	b.using++
	b.mu.Unlock()
	time.Sleep(time.Millisecond)
	if b.slow != nil {
		b.slow(op)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.using--
	if b.fails != nil {
		if err := b.fails(op); err != nil {
			return err
		}
	}
	do()
	return nil
}

func (b *book) Standing(_ context.Context, agent, run string) (s dispatch.Standing, err error) {
	err = b.work("standing", func() {
		s.Floor = b.floor[agent]
		if n := len(b.log); n > 0 {
			s.At = coord.Position{Next: uint64(n), Head: fmt.Sprint("op", n)}
		}
		for i := len(b.done) - 1; i >= 0 && len(s.Witnesses) < 2; i-- {
			s.Witnesses = append(s.Witnesses, b.done[i])
		}
		s.Records = append(s.Records, b.foreign...)
		for _, o := range b.log {
			if o.Attempt.State != coord.Open && !b.settled[o.Attempt.ID] {
				s.Unsettled = append(s.Unsettled, o)
			}
			if o.Agent == agent && o.Run == run {
				s.Records = append(s.Records, coord.Record{Run: run, Attempt: o.Attempt.ID, Device: o.Attempt.Device, Author: o.Attempt.Device,
					Epoch: o.Attempt.Epoch, State: o.Attempt.State, Cause: o.Attempt.Cause, Exit: o.Attempt.Exit})
			}
		}
	})
	return s, err
}

func (b *book) Pending(_ context.Context, o coord.Outcome) error {
	voided := false
	err := b.work("pending", func() {
		if voided = b.hasLocked(o.Attempt.ID, coord.Void); !voided {
			b.log = append(b.log, o)
		}
	})
	if voided {
		return dispatch.ErrVoided
	}
	return err
}

func (b *book) Outcome(_ context.Context, o coord.Outcome) error {
	return b.work("outcome", func() { b.log = append(b.log, o) })
}

func (b *book) Settled(_ context.Context, ids ...string) error {
	return b.work("settled", func() {
		for _, id := range ids {
			b.settled[id] = true
			for _, o := range b.log {
				if o.Attempt.ID == id && o.Attempt.State == coord.Committed {
					b.done = append(b.done, coord.RunRef{Agent: o.Agent, Run: o.Run})
				}
			}
		}
	})
}

func (b *book) Granted(_ context.Context, agent string, e coord.Epoch) error {
	return b.work("granted", func() { b.floor[agent] = max(b.floor[agent], e) })
}

func (b *book) Void(_ context.Context, agent, run string, a coord.Attempt) (proved bool, err error) {
	err = b.work("void", func() {
		if proved = a.At.Next <= uint64(len(b.log)) && !b.hasLocked(a.ID, coord.Open); proved {
			a.State = coord.Void
			b.log = append(b.log, coord.Outcome{Agent: agent, Run: run, Attempt: a})
		}
	})
	return proved, err
}

func (b *book) hasLocked(id string, s coord.State) bool {
	return slices.ContainsFunc(b.log, func(o coord.Outcome) bool { return o.Attempt.ID == id && o.Attempt.State == s })
}
