package relaytest

import (
	"errors"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

func (s suite) closedPush(t *testing.T) {
	r, a, w := s.bench(t, 0), NewAuthor("a"), NewAuthor("w")
	mustPush(t, r, a.Write(t, 2, 60))
	mustPush(t, r, w.Write(t, 3, 60))
	r.replica("a", frontier(a.Ops[1], w.Ops[2]))
	c := checkpoint("a", frontier(a.Ops[1]), frontier(w.Ops[2]))
	r.put(c)
	r.holds(&c)
	w.Write(t, 1, 60)
	refused := func(when string) {
		t.Helper()
		for what, ops := range map[string][]oplog.Op{"the next op": w.Ops[3:], "all again": w.Ops, "a new beginning": NewAuthor("w").Write(t, 1, 99)} {
			got, err := r.Push(t.Context(), "w", ops)
			e, ok := errors.AsType[*relay.ClosedError](err)
			if !ok || !errors.Is(err, relay.ErrClosed) || e.Device != "w" || e.Last != c.Closed["w"] || got.Accepted != 0 {
				t.Errorf("%s, %s: %+v, %v; expected a ClosedError with its end", when, what, got, err)
			}
		}
	}
	refused("closed")
	r.wantDropped(map[string]int{"a": 2, "w": 3}, frontier(a.Ops[1]), map[string]relay.Reason{})
	refused("closed and gone")
	mustPush(t, r, a.Write(t, 1, 60))
	open := checkpoint("a", frontier(a.Ops[2]), nil)
	if err := r.PutCheckpoint(t.Context(), "a", open); !errors.Is(err, relay.ErrBehind) {
		t.Errorf("a checkpoint that does not know of the closing: %v, expected ErrBehind", err)
	}
	elsewhere := checkpoint("a", frontier(a.Ops[2]), frontier(w.Ops[1]))
	if err := r.PutCheckpoint(t.Context(), "a", elsewhere); !errors.Is(err, relay.ErrContradiction) {
		t.Errorf("a checkpoint that closes it elsewhere: %v, expected ErrContradiction", err)
	}
	next := checkpoint("a", frontier(a.Ops[2]), frontier(w.Ops[2]))
	r.put(next)
	r.holds(&next)
	refused("closed by a second checkpoint as well")
}

func (s suite) closedStable(t *testing.T) {
	r, a, w := s.bench(t, 0), NewAuthor("a"), NewAuthor("w")
	mustPush(t, r, a.Write(t, 2, 60))
	mustPush(t, r, w.Write(t, 3, 60))
	c := checkpoint("a", frontier(a.Ops[1]), frontier(w.Ops[2]))
	try := func(what string, want relay.Reason) {
		t.Helper()
		err := r.PutCheckpoint(t.Context(), "a", c)
		if e, ok := errors.AsType[*relay.NotStableError](err); !ok || !errors.Is(err, relay.ErrNotStable) || e.Device != "w" || e.Reason != want {
			t.Errorf("%s: %v, expected a NotStableError: %v", what, err, want)
		}
		r.holds(nil)
	}
	try("without a replica", relay.Reason{Cause: relay.NoReplica})
	r.replica("a", frontier(a.Ops[1], w.Ops[2]))
	r.replica("b", nil)
	try("one never acked", relay.Reason{Cause: relay.NeverAcked, Replica: "b"})
	r.replica("b", frontier(a.Ops[1], w.Ops[1]))
	try("one is behind", relay.Reason{Cause: relay.Unacked, Replica: "b"})
	mustPush(t, r, w.Write(t, 1, 60))
	r.replica("b", frontier(w.Ops[3]))
	if err := r.PutCheckpoint(t.Context(), "a", c); !errors.Is(err, relay.ErrContradiction) {
		t.Errorf("a chain that went on: %v, expected ErrContradiction", err)
	}
	r.replica("a", frontier(w.Ops[3]))
	r.replica("w", nil) // who is closed has no say
	r.put(checkpoint("a", frontier(a.Ops[1]), frontier(w.Ops[3])))
}

// closedRows retires a writer and looks for what is left of it, and that whoever lacks its ops is told.
func (s suite) closedRows(t *testing.T) {
	r, a, w := s.bench(t, 0), NewAuthor("a"), NewAuthor("w")
	mustPush(t, r, a.Write(t, 4, 60))
	mustPush(t, r, w.Write(t, 3, 60))
	if err := r.Register(t.Context(), "w", relay.Writer); err != nil {
		t.Fatal(err)
	}
	r.replica("a", frontier(a.Ops[3], w.Ops[2]))
	r.replica("b", frontier(a.Ops[0], w.Ops[2]))
	c := checkpoint("a", frontier(a.Ops[2]), frontier(w.Ops[2]))
	r.put(c)
	r.wantDropped(map[string]int{"a": 1, "w": 3}, frontier(a.Ops[0]), map[string]relay.Reason{"a": {Cause: relay.Unacked, Replica: "b"}})
	info, err := r.Hello(t.Context(), "a")
	if err != nil || !info.Heads.Equal(frontier(a.Ops[3])) || !info.Acked.Equal(frontier(a.Ops[3])) {
		t.Errorf("hello after the writer went: %+v, %v", info, err)
	}
	roster, err := r.Roster(t.Context())
	for _, m := range roster {
		if _, acked := m.Acked["w"]; acked || m.Device == "w" {
			t.Errorf("the roster still has %+v", m)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	told := func(what string, held oplog.Frontier) {
		t.Helper()
		_, err := r.Pull(t.Context(), "c", relay.Want{Held: held})
		if e, ok := errors.AsType[*relay.FrontierTruncatedError](err); !ok || e.Floor[e.Device].ID == "" {
			t.Errorf("%s: %v, expected a FrontierTruncatedError", what, err)
		}
	}
	told("nothing held", nil)
	told("a part of the closed chain", frontier(a.Ops[3], w.Ops[1]))
	told("nothing of the closed chain", frontier(a.Ops[3]))
	for what, held := range map[string]oplog.Frontier{
		"the closed chain held": frontier(a.Ops[1], w.Ops[2]),
		"anchored":              c.All(),
	} {
		if _, err := r.Pull(t.Context(), "c", relay.Want{Held: held}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.Pull(t.Context(), "c", relay.Want{Held: frontier(a.Ops[1]), Skip: []string{"w"}}); err != nil {
		t.Errorf("the closed chain left out: %v", err)
	}
	if err := r.Ack(t.Context(), "b", frontier(a.Ops[3], w.Ops[2])); err != nil { // it has not taken the checkpoint up
		t.Fatal(err)
	}
	r.wantDropped(map[string]int{"a": 2}, frontier(a.Ops[2]), map[string]relay.Reason{"a": {Cause: relay.Uncovered}})
	if got := member(t, r, "b").Acked; !got.Equal(frontier(a.Ops[3])) {
		t.Errorf("after the next collection b has acked %v", got)
	}
}
