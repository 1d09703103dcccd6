package relaytest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// collectors are the sentences of relay.Collector.
func (s suite) collectors() []sentence {
	return []sentence{
		{"a checkpoint becomes the newest only if it covers what the newest covers", s.newest},
		{"a checkpoint that contradicts a chain is refused", s.contradiction},
		{"a checkpoint keeps its limits and gives its hash", s.body},
		{"an op is dropped only if stable and inside the newest checkpoint", s.dropped},
		{"a replica that never acked keeps every op", s.neverAcked},
		{"an ack of another op drops nothing", s.disputed},
		{"a pull below the floor says so", s.belowFloor},
		{"collection in two phases never shows a hole", s.twoPhases},
		{"a head outlives its ops", s.headOutlives},
		{"a returning device after eviction loses nothing", s.returning},
		{"a closed id cannot push", s.closedPush},
		{"a chain is closed at its end and when it is stable", s.closedStable},
		{"rows of a closed writer go and nothing of it is missed", s.closedRows},
		{"a damaged checkpoint drops nothing", s.damaged},
		{"collection makes room in a full relay", s.room},
		{"a collector's calls refuse what they must", s.collectorRefuses},
		{"every call of a collector may be repeated after any failure", s.collectorFaults},
		{"a relay that drops answers as one that never does", s.shadow},
	}
}

func (s suite) newest(t *testing.T) {
	r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 5, 60))
	mustPush(t, r, b.Write(t, 5, 60))
	r.holds(nil)
	low := checkpoint("a", frontier(a.Ops[1], b.Ops[1]), nil)
	r.put(low)
	r.holds(&low)
	r.put(low)
	for name, f := range map[string]oplog.Frontier{
		"less of a chain":      frontier(a.Ops[0], b.Ops[4]),
		"a chain less":         frontier(a.Ops[4]),
		"less of both":         frontier(a.Ops[0], b.Ops[0]),
		"more of one and less": frontier(a.Ops[2], b.Ops[0]),
	} {
		err := r.PutCheckpoint(t.Context(), "b", checkpoint("b", f, nil))
		if e, ok := errors.AsType[*relay.BehindError](err); !ok || !errors.Is(err, relay.ErrBehind) || e.Held != low.Hash {
			t.Errorf("%s: %v, expected a BehindError with the newest", name, err)
		}
		r.holds(&low)
	}
	again := checkpoint("b", low.Frontier, nil) // the same, sealed by another
	r.put(again)
	r.holds(&again)
	high := checkpoint("a", frontier(a.Ops[4], b.Ops[1]), nil)
	high.Author = "b" // put by another than its author
	if err := r.PutCheckpoint(t.Context(), "a", high); err != nil {
		t.Fatal(err)
	}
	r.holds(&high)
	second := r
	second.Relay = r.open()
	second.Collector = second.Relay.(relay.Collector)
	second.holds(&high)
}

func (s suite) contradiction(t *testing.T) {
	r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 6, 60))
	mustPush(t, r, b.Write(t, 2, 60))
	r.replica("a", frontier(a.Ops[5], b.Ops[1]))
	other := a.Clone(2)
	other.Write(t, 4, 60)
	check := func(what string, c relay.Checkpoint, device string) {
		t.Helper()
		err := r.PutCheckpoint(t.Context(), "a", c)
		if e, ok := errors.AsType[*relay.ContradictionError](err); !ok || !errors.Is(err, relay.ErrContradiction) || e.Device != device {
			t.Errorf("%s: %v, expected a ContradictionError about %s", what, err, device)
		}
	}
	check("another op", checkpoint("a", frontier(other.Ops[3]), nil), "a")
	check("another op at the head", checkpoint("a", frontier(b.Ops[1], other.Ops[5]), nil), "a")
	check("beyond the head", checkpoint("a", frontier(a.Ops[1], b.Write(t, 1, 60)[0]), nil), "b")
	check("an unknown chain", checkpoint("a", frontier(NewAuthor("x").Write(t, 1, 60)[0]), nil), "x")
	check("closed before its end", checkpoint("a", frontier(a.Ops[1]), frontier(b.Ops[0])), "b")
	r.holds(nil)
	r.put(checkpoint("a", frontier(a.Ops[3], b.Ops[1]), nil))
	r.wantDropped(map[string]int{"a": 4, "b": 2}, frontier(a.Ops[3], b.Ops[1]), map[string]relay.Reason{"a": {Cause: relay.Uncovered}})
	check("another op above the floor", checkpoint("a", frontier(other.Ops[4], b.Ops[1]), nil), "a")
	at := oplog.Frontier{"a": {Seq: 3, ID: other.Ops[3].ID}, "b": b.Head()}
	if err := r.PutCheckpoint(t.Context(), "a", checkpoint("a", at, nil)); !errors.Is(err, relay.ErrBehind) {
		t.Errorf("another op at the floor: %v, expected ErrBehind", err)
	}
}

func (s suite) body(t *testing.T) {
	r, a := s.bench(t, 0), NewAuthor("a")
	mustPush(t, r, a.Write(t, 3, 60))
	c := checkpoint("a", frontier(a.Ops[0]), nil)
	wrong := c
	wrong.Body = append(bytes.Clone(c.Body), 'x')
	short := c
	short.Hash = c.Hash[:60]
	both := checkpoint("a", frontier(a.Ops[0]), frontier(a.Ops[0]))
	bad := checkpoint("a", oplog.Frontier{"a": {Seq: 1}}, nil)
	for name, c := range map[string]relay.Checkpoint{
		"another body": wrong, "half a hash": short, "open and closed": both, "no id": bad,
		"nothing covered": checkpoint("a", nil, nil), "author": checkpoint("../a", frontier(a.Ops[0]), nil),
	} {
		if err := r.PutCheckpoint(t.Context(), "a", c); !errors.Is(err, relay.ErrInvalid) {
			t.Errorf("%s: %v, expected ErrInvalid", name, err)
		}
	}
	c.Body = make([]byte, relay.MaxCheckpoint+1)
	if err := r.PutCheckpoint(t.Context(), "a", sealed(c)); !errors.Is(err, relay.ErrSize) {
		t.Errorf("too large a body: %v, expected ErrSize", err)
	}
	r.holds(nil)
	c.Body = bytes.Repeat([]byte("0123456789abcdef"), relay.MaxCheckpoint/16)
	for _, size := range []int{0, 1, 512 << 10, 512<<10 + 1, 3 << 20, relay.MaxCheckpoint} {
		c := sealed(relay.Checkpoint{Author: "a", Frontier: c.Frontier, Body: c.Body[:size]})
		r.put(c)
		r.holds(&c)
	}
}

func (s suite) dropped(t *testing.T) {
	r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 10, 60))
	mustPush(t, r, b.Write(t, 10, 60))
	why := func(a, b relay.Reason) map[string]relay.Reason { return map[string]relay.Reason{"a": a, "b": b} }
	none := map[string]int{}
	r.wantDropped(none, nil, why(relay.Reason{Cause: relay.NoCheckpoint}, relay.Reason{Cause: relay.NoCheckpoint}))
	r.put(checkpoint("a", frontier(a.Ops[5]), nil))
	r.wantDropped(none, nil, why(relay.Reason{Cause: relay.NoReplica}, relay.Reason{Cause: relay.Uncovered}))
	r.replica("a", frontier(a.Ops[9], b.Ops[9]))
	r.replica("b", frontier(b.Ops[9]))
	r.wantDropped(none, nil, why(relay.Reason{Cause: relay.Unacked, Replica: "b"}, relay.Reason{Cause: relay.Uncovered}))
	r.replica("b", frontier(a.Ops[3]))
	r.wantDropped(map[string]int{"a": 4}, frontier(a.Ops[3]), why(relay.Reason{Cause: relay.Unacked, Replica: "b"}, relay.Reason{Cause: relay.Uncovered}))
	r.replica("b", frontier(a.Ops[9]))
	r.wantDropped(map[string]int{"a": 2}, frontier(a.Ops[5]), why(relay.Reason{Cause: relay.Uncovered}, relay.Reason{Cause: relay.Uncovered}))
	r.put(checkpoint("b", frontier(a.Ops[9], b.Ops[7]), nil))
	r.wantDropped(map[string]int{"a": 4, "b": 8}, frontier(a.Ops[9], b.Ops[7]), map[string]relay.Reason{"b": {Cause: relay.Uncovered}})
	held := frontier(a.Ops[9], b.Ops[7])
	if got := pullAll(t, r, "c", relay.Want{Held: held}); len(got[0].Ops) != 2 {
		t.Errorf("%d ops are left, expected 2", len(got[0].Ops))
	}
	wantHead(t, r, a, 10)
	wantHead(t, r, b, 10)
}

func (s suite) neverAcked(t *testing.T) {
	r, a := s.bench(t, 0), NewAuthor("a")
	mustPush(t, r, a.Write(t, 3, 60))
	r.replica("a", frontier(a.Ops[2]))
	r.replica("quiet", nil)
	r.put(checkpoint("a", frontier(a.Ops[2]), nil))
	r.wantDropped(map[string]int{}, nil, map[string]relay.Reason{"a": {Cause: relay.NeverAcked, Replica: "quiet"}})
	if err := r.Register(t.Context(), "quiet", relay.Writer); err != nil {
		t.Fatal(err)
	}
	r.wantDropped(map[string]int{"a": 3}, frontier(a.Ops[2]), map[string]relay.Reason{})
}

func (s suite) disputed(t *testing.T) {
	r, a := s.bench(t, 0), NewAuthor("a")
	mustPush(t, r, a.Write(t, 5, 60))
	r.put(checkpoint("a", frontier(a.Ops[3]), nil))
	other := a.Clone(1)
	other.Write(t, 4, 60)
	r.replica("b", frontier(other.Ops[2]))
	why := map[string]relay.Reason{"a": {Cause: relay.Disputed, Replica: "b"}}
	r.wantDropped(map[string]int{}, nil, why)
	r.replica("b", frontier(other.Ops[3]))
	r.wantDropped(map[string]int{}, nil, why)
}

func (s suite) belowFloor(t *testing.T) {
	r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 6, 60))
	mustPush(t, r, b.Write(t, 2, 60))
	r.replica("a", frontier(a.Ops[3]))
	c := checkpoint("a", frontier(a.Ops[4]), nil)
	r.put(c)
	r.wantDropped(map[string]int{"a": 4}, frontier(a.Ops[3]), map[string]relay.Reason{
		"a": {Cause: relay.Unacked, Replica: "a"}, "b": {Cause: relay.Uncovered},
	})
	for _, held := range []oplog.Frontier{nil, frontier(a.Ops[2]), frontier(b.Ops[1])} {
		_, err := r.Pull(t.Context(), "c", relay.Want{Held: held})
		e, ok := errors.AsType[*relay.FrontierTruncatedError](err)
		if !ok || !errors.Is(err, relay.ErrFrontierTruncated) || e.Device != "a" || e.Floor["a"].Seq != 3 {
			t.Errorf("pull from %v: %v, expected a FrontierTruncatedError about a", held, err)
		}
	}
	if page, err := r.Pull(t.Context(), "c", relay.Want{Skip: []string{"a"}}); err != nil || len(page.Ops) != 2 {
		t.Errorf("a pull that leaves a out: %d ops, %v", len(page.Ops), err)
	}
	for _, held := range []oplog.Frontier{frontier(a.Ops[3]), c.Frontier} {
		pages := pullAll(t, r, "c", relay.Want{Held: held})
		if n := len(pages[0].Ops); n != 2+5-int(held["a"].Seq) {
			t.Errorf("pull from %v: %d ops", held, n)
		}
	}
}

// twoPhases looks at the relay between the phases: what is below the floor is refused at once and deleted later, and a pull under way
// across the phases gets its ops or is told.
func (s suite) twoPhases(t *testing.T) {
	r, a := s.bench(t, 0), NewAuthor("a")
	mustPush(t, r, a.Write(t, 30, 500))
	r.replica("a", frontier(a.Ops[19]))
	r.put(checkpoint("a", frontier(a.Ops[19]), nil))
	want := relay.Want{MaxBytes: 4000}
	page, err := r.Pull(t.Context(), "b", want)
	if err != nil || !page.More {
		t.Fatalf("first page: more %v, %v", page.More, err)
	}
	first := r.collect()
	if len(first.Dropped) != 0 || first.Marked["a"] != 20 || !first.Floor.Equal(frontier(a.Ops[19])) {
		t.Fatalf("the first phase: %+v, expected 20 marked and nothing dropped", first)
	}
	want.Held = frontier(page.Ops[len(page.Ops)-1])
	if _, err := r.Pull(t.Context(), "b", want); !errors.Is(err, relay.ErrFrontierTruncated) {
		t.Errorf("the next page from below the floor: %v, expected ErrFrontierTruncated", err)
	}
	r.pass(relay.Grace - time.Second)
	if err := r.Ack(t.Context(), "a", frontier(a.Ops[24])); err != nil {
		t.Fatal(err)
	}
	r.put(checkpoint("a", frontier(a.Ops[24]), nil))
	early := r.collect()
	if len(early.Dropped) != 0 || early.Marked["a"] != 20 || early.Reasons["a"].Cause != relay.Waiting {
		t.Errorf("before the grace is over: %+v, expected to wait", early)
	}
	r.pass(time.Second)
	second := r.collect()
	if second.Dropped["a"] != 20 || second.Marked["a"] != 5 || !second.Floor.Equal(frontier(a.Ops[24])) {
		t.Errorf("the second phase: %+v, expected 20 dropped and 5 marked", second)
	}
	if got := pullAll(t, r, "b", relay.Want{Held: frontier(a.Ops[24])}); len(got[0].Ops) != 5 {
		t.Errorf("%d ops above the floor, expected 5", len(got[0].Ops))
	}
}

func (s suite) headOutlives(t *testing.T) {
	r, a := s.bench(t, 0), NewAuthor("a")
	mustPush(t, r, a.Write(t, 6, 60))
	r.replica("a", frontier(a.Ops[5]))
	r.put(checkpoint("a", frontier(a.Ops[5]), nil))
	r.wantDropped(map[string]int{"a": 6}, frontier(a.Ops[5]), map[string]relay.Reason{})
	wantHead(t, r, a, 6)
	if page, err := r.Pull(t.Context(), "b", relay.Want{Held: frontier(a.Ops[5])}); err != nil || len(page.Ops) != 0 {
		t.Errorf("pull from the head: %d ops, %v", len(page.Ops), err)
	}
	for name, c := range bad(t, a, 6) {
		want := c.want
		if name == "fork below" {
			want = relay.ErrFrontierTruncated // it cannot be compared, and is not taken for the same
		}
		if got, err := r.Push(t.Context(), "a", []oplog.Op{c.op}); !errors.Is(err, want) || got.Accepted != 0 {
			t.Errorf("%s: %+v, %v; expected %v", name, got, err, want)
		}
	}
	other := a.Clone(2)
	other.Write(t, 4, 60)
	if _, err := r.Push(t.Context(), "a", other.Ops); !errors.Is(err, relay.ErrFork) {
		t.Errorf("another branch up to the floor: %v, expected a fork", err)
	}
	if _, err := r.Push(t.Context(), "a", a.Ops[1:4]); !errors.Is(err, relay.ErrFrontierTruncated) {
		t.Errorf("ops that nothing links to the floor: %v, expected ErrFrontierTruncated", err)
	}
	wantHead(t, r, a, 6)
	a.Write(t, 3, 60)
	if got, err := r.Push(t.Context(), "a", a.Ops[3:]); err != nil || got != (relay.Pushed{Accepted: 3, Duplicate: 3}) {
		t.Errorf("ops from below the floor on: %+v, %v; expected 3 accepted and 3 duplicates", got, err)
	}
	wantHead(t, r, a, 9)
	if got := pullAll(t, r, "b", relay.Want{Held: frontier(a.Ops[5])}); len(got[0].Ops) != 3 {
		t.Errorf("%d ops above the floor, expected 3", len(got[0].Ops))
	}
}

func (s suite) returning(t *testing.T) {
	r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 6, 60))
	mustPush(t, r, b.Write(t, 4, 60))
	b.Write(t, 3, 60) // never pushed before it went silent
	r.replica("a", frontier(a.Ops[5], b.Ops[3]))
	r.replica("b", frontier(a.Ops[1], b.Ops[3]))
	c := checkpoint("a", frontier(a.Ops[5], b.Ops[3]), nil)
	r.put(c)
	r.pass(relay.EvictAfter - time.Hour)
	r.replica("a", nil)
	if m := member(t, r, "b"); m.Evicted {
		t.Fatalf("evicted after %v: %+v", relay.EvictAfter-time.Hour, m)
	}
	r.wantDropped(map[string]int{"a": 2, "b": 4}, frontier(a.Ops[1], b.Ops[3]), map[string]relay.Reason{"a": {Cause: relay.Unacked, Replica: "b"}})
	r.pass(2 * 24 * time.Hour)
	r.replica("a", nil)
	m := member(t, r, "b")
	if !m.Evicted || m.Role != relay.Replica || !m.Acked.Equal(frontier(a.Ops[1], b.Ops[3])) {
		t.Fatalf("the row of a silent replica: %+v, expected it evicted and whole", m)
	}
	r.wantDropped(map[string]int{"a": 4}, c.Frontier, map[string]relay.Reason{})
	if info, err := r.Hello(t.Context(), "b"); err != nil || info.Role != relay.Replica || info.Head.Seq != 3 {
		t.Fatalf("hello of the device that is back: %+v, %v", info, err)
	}
	if m := member(t, r, "b"); m.Evicted {
		t.Errorf("still evicted after a hello: %+v", m)
	}
	if _, err := r.Pull(t.Context(), "b", relay.Want{Held: frontier(a.Ops[1], b.Ops[6])}); !errors.Is(err, relay.ErrFrontierTruncated) {
		t.Errorf("its pull: %v, expected ErrFrontierTruncated", err)
	}
	r.holds(&c)
	mustPush(t, r, b.Ops[4:])
	wantHead(t, r, b, 7)
	if got := pullAll(t, r, "a", relay.Want{Held: c.Frontier}); len(got[0].Ops) != 3 {
		t.Errorf("%d ops of the device that is back, expected 3", len(got[0].Ops))
	}
	mustPush(t, r, a.Write(t, 1, 60))
	r.replica("a", frontier(a.Ops[6], b.Ops[6]))
	r.put(checkpoint("a", frontier(a.Ops[6], b.Ops[6]), nil))
	r.wantDropped(map[string]int{}, c.Frontier, map[string]relay.Reason{
		"a": {Cause: relay.Unacked, Replica: "b"}, "b": {Cause: relay.Unacked, Replica: "b"},
	})
}

func (s suite) damaged(t *testing.T) {
	if s.Damage == nil {
		t.Skip("nothing can damage this relay's checkpoint")
	}
	r, a := s.bench(t, 0), NewAuthor("a")
	mustPush(t, r, a.Write(t, 6, 60))
	r.replica("a", frontier(a.Ops[5]))
	c := checkpoint("a", frontier(a.Ops[3]), nil)
	r.put(c)
	why := map[string]relay.Reason{"a": {Cause: relay.BadCheckpoint}}
	s.Damage(t, r.Relay)
	if _, _, err := r.Collector.Checkpoint(t.Context()); !errors.Is(err, relay.ErrCorrupt) {
		t.Errorf("a damaged checkpoint: %v, expected ErrCorrupt", err)
	}
	r.wantDropped(map[string]int{}, nil, why)
	r.put(c) // mends it
	r.holds(&c)
	r.collect()
	s.Damage(t, r.Relay)
	r.pass(2 * relay.Grace)
	if got := r.collect(); len(got.Dropped) != 0 || got.Marked["a"] != 4 {
		t.Errorf("after damage between the phases: %+v, expected nothing dropped", got)
	}
	next := checkpoint("a", frontier(a.Ops[4]), nil)
	r.put(next)
	r.holds(&next)
	r.wantDropped(map[string]int{"a": 5}, next.Frontier, map[string]relay.Reason{"a": {Cause: relay.Uncovered}})
}

func (s suite) room(t *testing.T) {
	const limit = 64 << 10
	r, a := s.bench(t, limit), NewAuthor("a")
	var err error
	for err == nil {
		_, err = r.Push(t.Context(), "a", a.Write(t, 1, 2000))
	}
	if !errors.Is(err, relay.ErrFull) {
		t.Fatal(err)
	}
	n := len(a.Ops) - 2
	r.replica("a", frontier(a.Ops[n]))
	r.put(checkpoint("a", frontier(a.Ops[n]), nil))
	r.wantDropped(map[string]int{"a": n + 1}, frontier(a.Ops[n]), map[string]relay.Reason{})
	mustPush(t, r, a.Ops[n+1:])
	for err = nil; err == nil; {
		_, err = r.Push(t.Context(), "a", a.Write(t, 1, 2000))
	}
	if more := len(a.Ops) - n; !errors.Is(err, relay.ErrFull) || more < n/2 {
		t.Errorf("%d more ops, %v; expected about %d and ErrFull", more, err, n)
	}
}

func (s suite) collectorRefuses(t *testing.T) {
	r, a := s.bench(t, 0), NewAuthor("a")
	mustPush(t, r, a.Write(t, 1, 60))
	c := checkpoint("a", frontier(a.Ops[0]), nil)
	if err := r.PutCheckpoint(t.Context(), "../a", c); !errors.Is(err, relay.ErrInvalid) {
		t.Errorf("put as ../a: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, get := r.Collector.Checkpoint(ctx)
	_, collect := r.Collect(ctx)
	for call, err := range map[string]error{"get": get, "collect": collect, "put": r.PutCheckpoint(ctx, "a", c)} {
		if !errors.Is(err, relay.ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, expected ErrNotSent and the cause", call, err)
		}
	}
	r.holds(nil)
}

func (s suite) collectorFaults(t *testing.T) {
	for name, fault := range map[string]Fault{"before": Before, "after": After, "twice": Twice} {
		t.Run(name, func(t *testing.T) {
			r, a := s.bench(t, 0), NewAuthor("a")
			mustPush(t, r, a.Write(t, 6, 60))
			r.replica("a", frontier(a.Ops[5]))
			f := NewFaultyCollector(r.Relay)
			f.Plan(func(c Call) Fault {
				if c.N%2 == 1 {
					return fault
				}
				return None
			})
			again := func(what string, call func() error) {
				t.Helper()
				if err := call(); fault != Twice && !errors.Is(err, ErrInjected) {
					t.Fatalf("%s was not failed: %v", what, err)
				}
				if err := call(); err != nil {
					t.Fatalf("%s, repeated: %v", what, err)
				}
			}
			c := checkpoint("a", frontier(a.Ops[3]), nil)
			again("put", func() error { return f.PutCheckpoint(t.Context(), "a", c) })
			again("get", func() error { _, _, err := f.Checkpoint(t.Context()); return err })
			again("mark", func() error { _, err := f.Collect(t.Context()); return err })
			r.pass(relay.Grace)
			again("sweep", func() error { _, err := f.Collect(t.Context()); return err })
			r.holds(&c)
			r.wantDropped(map[string]int{}, c.Frontier, map[string]relay.Reason{"a": {Cause: relay.Uncovered}})
			if got := pullAll(t, r, "b", relay.Want{Held: c.Frontier}); len(got[0].Ops) != 2 {
				t.Errorf("%d ops are left, expected 2", len(got[0].Ops))
			}
		})
	}
}
