package oplog_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/oplog"
)

const now = 1_000_000

func admit(t *testing.T, c *oplog.Chain, ops ...oplog.Op) {
	t.Helper()
	for _, op := range ops {
		if v, err := c.Admit(op, now); err != nil || v != (oplog.Verdict{}) {
			t.Fatalf("seq %d: %+v, %v", op.Seq, v, err)
		}
	}
}

func make1(t *testing.T, device string, seq uint64, prev oplog.OpID, h oplog.HLC) oplog.Op {
	t.Helper()
	op, err := oplog.New(device, seq, prev, h, oplog.Personal, oplog.Run, []byte(`1`))
	return must(t, op, err)
}

func TestEveryBadOpHasItsErrorAndChangesNothing(t *testing.T) {
	ops := chainOf(t, "dev", 5, 100)
	next := ops[3]
	with := func(change func(*oplog.Op)) oplog.Op { op := next; change(&op); return op }
	restamped := func(change func(*oplog.Op)) oplog.Op { op := with(change); op.ID = op.ComputeID(); return op }
	id := func(err error) bool {
		var e *oplog.IDError
		return errors.As(err, &e) && errors.Is(err, oplog.ErrChain)
	}
	gap := func(err error) bool {
		var e *oplog.GapError
		return errors.As(err, &e) && e.Expected == 3 && e.Found == 4 && errors.Is(err, oplog.ErrGap)
	}
	fork := func(seq uint64) func(error) bool {
		return func(err error) bool {
			var e *oplog.ForkError
			return errors.As(err, &e) && e.Seq == seq && e.Have == ops[2].ID && e.Got != e.Have && errors.Is(err, oplog.ErrChain)
		}
	}
	foreign := func(err error) bool {
		var e *oplog.ForeignError
		return errors.As(err, &e) && errors.Is(err, oplog.ErrChain)
	}
	clock := func(err error) bool {
		var e *oplog.ClockError
		return errors.As(err, &e) && e.Before == ops[2].HLC && errors.Is(err, oplog.ErrChain)
	}
	size := func(err error) bool { var e *oplog.SizeError; return errors.As(err, &e) }
	canon := func(err error) bool { var e *oplog.CanonError; return errors.As(err, &e) }
	field := func(err error) bool { var e *oplog.FieldError; return errors.As(err, &e) }
	below := func(err error) bool { var e *oplog.BelowError; return errors.As(err, &e) && e.Seq == 1 && e.Head == 2 }
	cases := []struct {
		name string
		op   oplog.Op
		want func(error) bool
	}{
		{"id", with(func(op *oplog.Op) { op.Payload = []byte(`{"id":"kX"}`) }), id},
		{"no id", with(func(op *oplog.Op) { op.ID = "" }), id},
		{"gap", ops[4], gap},
		{"below", ops[1], below},
		{"fork at the head", make1(t, "dev", 2, ops[1].ID, stamp(102, "dev")), fork(2)},
		{"fork before the head", make1(t, "dev", 3, ops[1].ID, stamp(200, "dev")), fork(2)},
		{"foreign", make1(t, "other", 3, ops[2].ID, stamp(200, "other")), foreign},
		{"foreign stamp", restamped(func(op *oplog.Op) { op.HLC.Device = "other" }), foreign},
		{"clock stands", make1(t, "dev", 3, ops[2].ID, ops[2].HLC), clock},
		{"clock goes back", make1(t, "dev", 3, ops[2].ID, stamp(50, "dev")), clock},
		{"size", restamped(func(op *oplog.Op) { op.Payload = make([]byte, oplog.MaxPayload+1) }), size},
		{"canon", restamped(func(op *oplog.Op) { op.Payload = []byte(`{"id": "k3"}`) }), canon},
		{"canon number", restamped(func(op *oplog.Op) { op.Payload = []byte(`{"n":9007199254740993}`) }), canon},
		{"nil payload", restamped(func(op *oplog.Op) { op.Payload = nil }), canon},
		{"surface", restamped(func(op *oplog.Op) { op.Surface = "x" }), field},
		{"seq 0 with prev", restamped(func(op *oplog.Op) { op.Seq = 0 }), field},
		{"zero", oplog.Op{Device: "dev"}, field},
	}
	c := oplog.NewChain("dev")
	admit(t, c, ops[:3]...)
	before, _ := c.Head()
	for _, k := range cases {
		v, err := c.Admit(k.op, now)
		if err == nil || !k.want(err) || v != (oplog.Verdict{}) {
			t.Errorf("%s: %+v, %T %v", k.name, v, err, err)
		}
		if head, ok := c.Head(); head != before || !ok {
			t.Errorf("%s: the chain changed", k.name)
		}
	}
	admit(t, c, ops[3:]...)
}

func TestTheHeadOnceMoreIsADuplicate(t *testing.T) {
	ops := chainOf(t, "dev", 2, 100)
	c := oplog.NewChain("dev")
	admit(t, c, ops...)
	if v, err := c.Admit(ops[1], now); err != nil || !v.Duplicate {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestAChainBeginsAtZeroOrWhereItWasVerified(t *testing.T) {
	ops := chainOf(t, "dev", 4, 100)
	c := oplog.NewChain("dev")
	var gap *oplog.GapError
	if _, err := c.Admit(ops[1], now); !errors.As(err, &gap) || gap.Expected != 0 {
		t.Errorf("got %v", err)
	}
	c = oplog.ResumeChain("dev", oplog.Head{Seq: 1, ID: ops[1].ID, HLC: ops[1].HLC})
	try := c.Clone()
	admit(t, try, ops[2:]...)
	if c.NextSeq() != 2 || try.NextSeq() != 4 {
		t.Errorf("next %d and %d", c.NextSeq(), try.NextSeq())
	}
}

func TestAFutureStampParksAndDoesNotBreakTheChain(t *testing.T) {
	a := make1(t, "dev", 0, "", stamp(now+oplog.MaxAhead, "dev"))
	b := make1(t, "dev", 1, a.ID, stamp(now+oplog.MaxAhead+1, "dev"))
	c := oplog.NewChain("dev")
	admit(t, c, a)
	v, err := c.Admit(b, now)
	if err != nil || v.Parked == nil || v.Parked.Until != now+1 || v.Parked.Seq != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	if head, _ := c.Head(); head.ID != b.ID || head.Pos() != (oplog.Pos{Seq: 1, ID: b.ID}) {
		t.Error("the parked op is not the head")
	}
	if oplog.Future(b, v.Parked.Until) != nil {
		t.Error("still parked when its time has come")
	}
}

func TestClockIsMonotoneUnderSkewAndBursts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := oplog.NewClock("me")
		var last oplog.HLC
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "observe") {
				h := oplog.HLC{WallMS: rapid.Int64Range(0, 100).Draw(t, "wall"),
					Counter: rapid.SampledFrom([]uint32{0, 1, 7, math.MaxUint32 - 1, math.MaxUint32}).Draw(t, "counter"),
					Device:  rapid.SampledFrom([]string{"a", "me", "zz"}).Draw(t, "device")}
				c.Observe(h)
				if next := c.Last(); next.WallMS < h.WallMS || next.WallMS == h.WallMS && next.Counter < h.Counter {
					t.Fatalf("observed %v, last is %v", h, next)
				}
				last = c.Last()
				continue
			}
			got := c.Tick(rapid.Int64Range(-5, 100).Draw(t, "now"))
			if got.Compare(last) <= 0 || got.Device != "me" || got.WallMS < 0 {
				t.Fatalf("%v after %v", got, last)
			}
			last = got
		}
	})
}

func TestClockCounterOverflowAdvancesTheWall(t *testing.T) {
	c := oplog.NewClock("me")
	c.Observe(oplog.HLC{WallMS: 7, Counter: math.MaxUint32, Device: "z"})
	if got := c.Tick(3); got != (oplog.HLC{WallMS: 8, Counter: 0, Device: "me"}) {
		t.Errorf("got %v", got)
	}
	if got := c.Tick(100); got != (oplog.HLC{WallMS: 100, Device: "me"}) {
		t.Errorf("got %v", got)
	}
}

func TestFrontierOrder(t *testing.T) {
	f := oplog.Frontier{"a": {Seq: 3, ID: "x"}, "b": {Seq: 0, ID: "y"}}
	cases := []struct {
		g    oplog.Frontier
		want oplog.Order
	}{
		{f.Clone(), oplog.Same},
		{oplog.Frontier{}, oplog.Ahead},
		{nil, oplog.Ahead},
		{oplog.Frontier{"a": {Seq: 2, ID: "w"}}, oplog.Ahead},
		{oplog.Frontier{"a": {Seq: 4, ID: "z"}, "b": {Seq: 0, ID: "y"}}, oplog.Behind},
		{oplog.Frontier{"a": {Seq: 4, ID: "z"}}, oplog.Concurrent},
		{oplog.Frontier{"a": {Seq: 3, ID: "forked"}, "b": {Seq: 0, ID: "y"}}, oplog.Concurrent},
	}
	for _, c := range cases {
		if got := f.Compare(c.g); got != c.want {
			t.Errorf("Compare(%v) = %v, want %v", c.g, got, c.want)
		}
	}
	if !f.Covers("a", 3) || f.Covers("a", 4) || f.Covers("c", 0) || f.Next("a") != 4 || f.Next("c") != 0 {
		t.Error("Covers or Next is wrong")
	}
	g := f.Clone()
	g["a"] = oplog.Pos{Seq: 9}
	if f["a"].Seq != 3 {
		t.Error("Clone shares memory")
	}
	if d := f.Devices(); len(d) != 2 || d[0] != "a" || !f.Equal(f.Clone()) || f.Equal(g) {
		t.Error("Devices or Equal is wrong")
	}
}
