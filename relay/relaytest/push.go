package relaytest

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

func (s suite) hello(t *testing.T) {
	r := s.open(t)
	first, err := r.Hello(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Instance) != 32 || first.Known || len(first.Heads) != 0 || first.Role != relay.Seen {
		t.Errorf("hello to an empty relay: %+v", first)
	}
	a, b := NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 3, 50))
	mustPush(t, r, b.Write(t, 2, 50))
	wantHead(t, r, a, 3)
	wantHead(t, r, b, 2)
	again, err := r.Hello(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if again.Instance != first.Instance || again.Generation != first.Generation {
		t.Errorf("the relay became another: %+v, before %+v", again, first)
	}
	if want := frontier(a.Ops[2], b.Ops[1]); !again.Heads.Equal(want) {
		t.Errorf("heads are %v, expected %v", again.Heads, want)
	}
	if other, err := s.open(t).Hello(t.Context(), "a"); err != nil || other.Instance == first.Instance {
		t.Errorf("another store has the same instance %s (%v)", other.Instance, err)
	}
}

func (s suite) push(t *testing.T) {
	r, a := s.open(t), NewAuthor("a")
	ops := a.Write(t, 10, 80)
	check := func(ops []oplog.Op, want relay.Pushed) {
		t.Helper()
		if got, err := r.Push(t.Context(), "a", ops); err != nil || got != want {
			t.Errorf("push of %d ops: %+v, %v; expected %+v", len(ops), got, err, want)
		}
	}
	check(nil, relay.Pushed{})
	check(ops[:4], relay.Pushed{Accepted: 4})
	check(ops[:4], relay.Pushed{Duplicate: 4})
	check(ops[2:7], relay.Pushed{Accepted: 3, Duplicate: 2})
	check(ops[1:2], relay.Pushed{Duplicate: 1})
	check(ops[6:10], relay.Pushed{Accepted: 3, Duplicate: 1})
	wantHead(t, r, a, 10)
	got := pullAll(t, r, "b", relay.Want{})[0].Ops
	if len(got) != 10 {
		t.Fatalf("the relay holds %d ops, expected 10", len(got))
	}
	for i, op := range got {
		if string(op.AppendLine(nil)) != string(ops[i].AppendLine(nil)) {
			t.Errorf("op %d came back changed", i)
		}
	}
}

// bad returns ops that no chain of a's may take after n ops, with the error each must give.
func bad(t *testing.T, a *Author, n int) map[string]struct {
	op   oplog.Op
	want error
} {
	next := a.Clone(n).Write(t, 1, 60)[0]
	id, clock, payload, foreign := next, next, next, next
	id.ID = a.Ops[0].ID
	clock.HLC = a.Ops[n-1].HLC
	clock.ID = clock.ComputeID()
	payload.Payload = json.RawMessage(`{"b":1, "a":2}`)
	payload.ID = payload.ComputeID()
	foreign.HLC.Device = "other"
	foreign.ID = foreign.ComputeID()
	far := a.Clone(n)
	far.Write(t, 3, 60)
	type row = struct {
		op   oplog.Op
		want error
	}
	return map[string]row{
		"id":            {id, relay.ErrBadOp},
		"clock":         {clock, relay.ErrBadOp},
		"canon":         {payload, relay.ErrBadOp},
		"foreign stamp": {foreign, relay.ErrBadOp},
		"foreign":       {NewAuthor("other").Write(t, 1, 60)[0], relay.ErrForeign},
		"gap":           {far.Ops[n+2], relay.ErrGap},
		"fork at head":  {a.Clone(n-1).Write(t, 1, 60)[0], relay.ErrFork},
		"fork below":    {a.Clone(n-2).Write(t, 1, 60)[0], relay.ErrFork},
		"fork by prev":  {forkByPrev(t, a, n), relay.ErrFork},
	}
}

// forkByPrev is an op with the next seq that continues another op than the head.
func forkByPrev(t *testing.T, a *Author, n int) oplog.Op {
	other := a.Clone(n - 1)
	other.Write(t, 2, 60)
	return other.Ops[n]
}

func (s suite) refusals(t *testing.T) {
	r, a, b := s.open(t), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 4, 60))
	mustPush(t, r, b.Write(t, 1, 60))
	for name, c := range bad(t, a, 4) {
		got, err := r.Push(t.Context(), "a", []oplog.Op{c.op})
		if !errors.Is(err, c.want) || got.Accepted != 0 {
			t.Errorf("%s: %+v, %v; expected %v", name, got, err, c.want)
		}
		wantHead(t, r, a, 4)
		wantHead(t, r, b, 1)
	}
	_, err := r.Push(t.Context(), "a", []oplog.Op{bad(t, a, 4)["id"].op})
	if _, ok := errors.AsType[*oplog.IDError](err); !ok {
		t.Errorf("a wrong id gives %v, expected it to wrap *oplog.IDError", err)
	}
}

func (s suite) prefix(t *testing.T) {
	for _, name := range []string{"id", "clock", "canon"} {
		r, a := s.open(t), NewAuthor("a")
		ops := a.Write(t, 6, 60)
		mustPush(t, r, ops[:2])
		got, err := r.Push(t.Context(), "a", append(append([]oplog.Op{}, ops[1:5]...), bad(t, a, 5)[name].op))
		if !errors.Is(err, relay.ErrBadOp) || got != (relay.Pushed{Accepted: 3, Duplicate: 1}) {
			t.Errorf("%s: %+v, %v; expected 3 accepted, 1 duplicate and a refusal", name, got, err)
		}
		wantHead(t, r, a, 5)
		mustPush(t, r, ops)
		wantHead(t, r, a, 6)
	}
}

func (s suite) forks(t *testing.T) {
	r, a := s.open(t), NewAuthor("a")
	mustPush(t, r, a.Write(t, 5, 60))
	clone := a.Clone(2)
	clone.Write(t, 4, 60)
	_, err := r.Push(t.Context(), "a", clone.Ops)
	fork, ok := errors.AsType[*relay.ForkError](err)
	if !ok || fork.Seq != 2 || fork.Existing != a.Ops[2].ID || fork.Got != clone.Ops[2].ID {
		t.Fatalf("a second branch gives %v, expected a fork at seq 2 with both ids", err)
	}
	got := pullAll(t, r, "b", relay.Want{})[0].Ops
	if len(got) != 5 {
		t.Fatalf("the relay holds %d ops, expected 5", len(got))
	}
	for i := range got {
		if got[i].ID != a.Ops[i].ID {
			t.Errorf("op %d was replaced", i)
		}
	}
	_, err = r.Push(t.Context(), "a", a.Clone(5).Write(t, 3, 60)[1:])
	if gap, ok := errors.AsType[*relay.GapError](err); !ok || gap.Expected != 5 || gap.Found != 6 {
		t.Errorf("a push beyond the head gives %v, expected a gap at seq 5", err)
	}
}

func (s suite) limits(t *testing.T) {
	r, a := s.open(t), NewAuthor("a")
	many := a.Write(t, relay.MaxOps+1, 40)
	if _, err := r.Push(t.Context(), "a", many); !errors.Is(err, relay.ErrSize) {
		t.Errorf("%d ops in one push: %v", len(many), err)
	}
	wantHead(t, r, a, 0)
	if got, err := r.Push(t.Context(), "a", many[:relay.MaxOps]); err != nil || got.Accepted != relay.MaxOps {
		t.Fatalf("as many ops as a push may hold: %+v, %v", got, err)
	}
	b := NewAuthor("b")
	big := b.Write(t, 5, oplog.MaxPayload-100)
	if _, err := r.Push(t.Context(), "b", big); !errors.Is(err, relay.ErrSize) {
		t.Errorf("more than %d bytes in one push: %v", relay.MaxBytes, err)
	}
	wantHead(t, r, b, 0)
	if got, err := r.Push(t.Context(), "b", big[:3]); err != nil || got.Accepted != 3 {
		t.Errorf("three of the largest ops: %+v, %v", got, err)
	}
}

func (s suite) full(t *testing.T) {
	const limit = 64 << 10
	r, a := s.New(t, limit)(), NewAuthor("a")
	var used int64
	for {
		ops := a.Write(t, 1, 4000)
		_, err := r.Push(t.Context(), "a", ops)
		if err != nil {
			if !errors.Is(err, relay.ErrFull) {
				t.Fatalf("a full relay gives %v", err)
			}
			break
		}
		if used += int64(relay.LineLen(ops[0])); used > limit+s.Slack {
			t.Fatalf("the relay took %d bytes, its limit is %d", used, limit)
		}
	}
	if used < limit-8000-s.Slack {
		t.Errorf("full after %d bytes of %d", used, limit)
	}
	n := len(a.Ops) - 1
	wantHead(t, r, a, n)
	if got, err := r.Push(t.Context(), "a", a.Ops[:n]); err != nil || got.Duplicate != n {
		t.Errorf("duplicates at a full relay: %+v, %v", got, err)
	}
	if err := r.Ack(t.Context(), "b", frontier(a.Ops[0])); err != nil {
		t.Errorf("ack at a full relay: %v", err)
	}
	if pages := pullAll(t, r, "b", relay.Want{}); len(pages[0].Ops) != n {
		t.Errorf("a full relay gives %d ops of %d", len(pages[0].Ops), n)
	}
}

func (s suite) race(t *testing.T) {
	open := s.New(t, 0)
	base := NewAuthor("a")
	mustPush(t, open(), base.Write(t, 2, 60))
	const rivals = 4
	errs := make([]error, rivals)
	var wg sync.WaitGroup
	for i := range rivals {
		clone, r := base.Clone(2), open()
		clone.wall += int64(1000 * i)
		clone.Write(t, 5, 60)
		wg.Go(func() { _, errs[i] = r.Push(t.Context(), "a", clone.Ops) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, relay.ErrFork):
			t.Errorf("the loser of a race gets %v, expected a fork", err)
		}
	}
	pages := pullAll(t, open(), "b", relay.Want{})
	chain := oplog.NewChain("a")
	for _, op := range pages[0].Ops {
		if _, err := chain.Admit(op, op.HLC.WallMS); err != nil {
			t.Fatalf("the chain is broken: %v", err)
		}
	}
	if won != 1 || len(pages[0].Ops) != 7 {
		t.Errorf("%d pushes won and the chain has %d ops, expected 1 and 7", won, len(pages[0].Ops))
	}
}

func (s suite) parallel(t *testing.T) {
	open := s.New(t, 0)
	var wg sync.WaitGroup
	for _, device := range []string{"a", "b", "c", "d"} {
		a, r := NewAuthor(device), open()
		a.Write(t, 60, 60)
		wg.Go(func() {
			for i := 0; i < len(a.Ops); i += 20 {
				if _, err := r.Push(t.Context(), device, a.Ops[i:i+20]); err != nil {
					t.Errorf("%s: %v", device, err)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, p := range pullAll(t, open(), "z", relay.Want{}) {
		total += len(p.Ops)
	}
	if total != 240 {
		t.Errorf("the relay holds %d ops, expected 240", total)
	}
}
