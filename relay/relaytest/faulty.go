package relaytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A Fault is what Faulty does to a call.
type Fault int

const (
	None     Fault = iota
	Before         // fails with relay.ErrNotSent; nothing happens
	After          // happens, and fails with relay.ErrIndeterminate
	Twice          // happens twice; the second answer is given
	Delayed        // a pull gives an empty page that says there is more
	Again          // a pull gives the page before once more
	Reversed       // a pull gives its page in reversed order
	Holed          // a pull gives its page without its first op
)

// ErrInjected is in every error that Faulty makes.
var ErrInjected = errors.New("injected fault")

// A Call is one call of a relay, as Faulty saw it.
type Call struct {
	Name   string // "hello", "push", "pull", "ack", "register", "roster"
	Device string
	N      int // the how many-th call of this name, from 1
	Ops    int // pushed or pulled
}

// Faulty is a relay between a caller and another relay that fails as told, and counts.
type Faulty struct {
	inner relay.Relay

	mu    sync.Mutex
	plan  func(Call) Fault
	edit  func([]oplog.Op) []oplog.Op
	count map[string]int
	last  relay.Page
}

var _ relay.Relay = (*Faulty)(nil)

// NewFaulty returns a relay that does nothing to a call yet.
func NewFaulty(inner relay.Relay) *Faulty { return &Faulty{inner: inner, count: map[string]int{}} }

// Plan sets what happens to calls from now on; nil means nothing.
func (f *Faulty) Plan(plan func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Edit changes the ops of every page from now on, as a relay does that lies; nil means not. The function gets
// a copy that it may change.
func (f *Faulty) Edit(edit func([]oplog.Op) []oplog.Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.edit = edit
}

// Calls returns how often each call was made.
func (f *Faulty) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := map[string]int{}
	for name, n := range f.count {
		calls[name] = n
	}
	return calls
}

func (f *Faulty) next(name, device string, ops int) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[name]++
	if f.plan == nil {
		return None
	}
	return f.plan(Call{Name: name, Device: device, N: f.count[name], Ops: ops})
}

func run[T any](fault Fault, call func() (T, error)) (T, error) {
	var zero T
	switch fault {
	case Before:
		return zero, fmt.Errorf("%w: %w", relay.ErrNotSent, ErrInjected)
	case After:
		if _, err := call(); err != nil {
			return zero, err
		}
		return zero, fmt.Errorf("%w: %w", relay.ErrIndeterminate, ErrInjected)
	case Twice:
		if _, err := call(); err != nil {
			return zero, err
		}
	}
	return call()
}

// Hello implements relay.Relay.
func (f *Faulty) Hello(ctx context.Context, device string) (relay.Info, error) {
	return run(f.next("hello", device, 0), func() (relay.Info, error) { return f.inner.Hello(ctx, device) })
}

// Push implements relay.Relay.
func (f *Faulty) Push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	return run(f.next("push", device, len(ops)), func() (relay.Pushed, error) { return f.inner.Push(ctx, device, ops) })
}

// Pull implements relay.Relay.
func (f *Faulty) Pull(ctx context.Context, device string, want relay.Want) (relay.Page, error) {
	fault := f.next("pull", device, 0)
	if fault == Delayed {
		return relay.Page{More: true}, nil
	}
	page, err := run(fault, func() (relay.Page, error) { return f.inner.Pull(ctx, device, want) })
	if err != nil {
		return relay.Page{}, err
	}
	page.Ops = slices.Clone(page.Ops)
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.last
	f.last = relay.Page{Ops: slices.Clone(page.Ops), More: page.More}
	switch {
	case fault == Again:
		page = relay.Page{Ops: before.Ops, More: true}
	case fault == Reversed:
		slices.Reverse(page.Ops)
	case fault == Holed && len(page.Ops) > 0:
		page.Ops = page.Ops[1:]
	}
	if f.edit != nil {
		page.Ops = f.edit(page.Ops)
	}
	return page, nil
}

// Ack implements relay.Relay.
func (f *Faulty) Ack(ctx context.Context, device string, folded oplog.Frontier) error {
	_, err := run(f.next("ack", device, 0), func() (struct{}, error) { return struct{}{}, f.inner.Ack(ctx, device, folded) })
	return err
}

// Register implements relay.Relay.
func (f *Faulty) Register(ctx context.Context, device string, role relay.Role) error {
	_, err := run(f.next("register", device, 0), func() (struct{}, error) { return struct{}{}, f.inner.Register(ctx, device, role) })
	return err
}

// Roster implements relay.Relay.
func (f *Faulty) Roster(ctx context.Context) ([]relay.Member, error) {
	return run(f.next("roster", "", 0), func() ([]relay.Member, error) { return f.inner.Roster(ctx) })
}

func (s suite) faults(t *testing.T) {
	for name, fault := range map[string]Fault{"before": Before, "after": After, "twice": Twice} {
		t.Run(name, func(t *testing.T) { s.settled(t, fault) })
	}
}

// settled lets the first try of every call meet the fault and repeats it.
func (s suite) settled(t *testing.T, fault Fault) {
	f, a := NewFaulty(s.open(t)), NewAuthor("a")
	f.Plan(func(c Call) Fault {
		if c.N%2 == 1 {
			return fault
		}
		return None
	})
	ctx, ops := t.Context(), a.Write(t, 6, 60)
	again := func(what string, call func() error) {
		t.Helper()
		err := call()
		if fault != Twice && !errors.Is(err, ErrInjected) {
			t.Fatalf("%s was not failed: %v", what, err)
		}
		if err := call(); err != nil {
			t.Fatalf("%s, repeated: %v", what, err)
		}
	}
	for i := 0; i < len(ops); i += 3 {
		again("push", func() error { _, err := f.Push(ctx, "a", ops[i:i+3]); return err })
	}
	again("register", func() error { return f.Register(ctx, "b", relay.Replica) })
	again("ack", func() error { return f.Ack(ctx, "b", frontier(ops[4])) })
	again("hello", func() error { _, err := f.Hello(ctx, "a"); return err })
	f.Plan(nil)
	wantHead(t, f, a, 6)
	if pages := pullAll(t, f, "c", relay.Want{}); len(pages[0].Ops) != 6 {
		t.Errorf("the relay holds %d ops, expected 6", len(pages[0].Ops))
	}
	if m := member(t, f, "b"); m.Role != relay.Replica || !m.Acked.Equal(frontier(ops[4])) {
		t.Errorf("row after repeated calls: %+v", m)
	}
}
