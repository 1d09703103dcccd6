package relay_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/relaytest"
)

func TestLineLenIsNeverBelowTheLine(t *testing.T) {
	id := oplog.OpID("op-" + string(bytes.Repeat([]byte("f"), 64)))
	name := string(bytes.Repeat([]byte("d"), 128))
	for _, op := range []oplog.Op{
		relaytest.NewAuthor("a").Write(t, 1, 30)[0],
		{ID: id, Device: name, Seq: oplog.MaxInt, Prev: id, Scope: oplog.Shared(name), Surface: oplog.Registry(name),
			HLC: oplog.HLC{WallMS: oplog.MaxInt, Counter: 1<<32 - 1, Device: name}, Payload: []byte(`{}`)},
	} {
		if line := len(op.AppendLine(nil)) + 1; relay.LineLen(op) < line || relay.LineLen(op) > line+320 {
			t.Errorf("LineLen is %d, the line has %d bytes", relay.LineLen(op), line)
		}
	}
	if relay.MaxBytes < 2*oplog.MaxLine {
		t.Error("a page must hold more than the longest line")
	}
}

func TestNeedsStopsBelowWhatWasCollected(t *testing.T) {
	a := relaytest.NewAuthor("a")
	ops := a.Write(t, 9, 40)
	at := func(i int) oplog.Frontier { return oplog.Frontier{"a": {Seq: ops[i].Seq, ID: ops[i].ID}} }
	if _, err := relay.Needs("b", relay.Want{Held: at(2)}, at(8), at(3)); err == nil {
		t.Error("a pull from below the floor was not refused")
	}
	got, err := relay.Needs("b", relay.Want{Held: at(3)}, at(8), at(3))
	if err != nil || len(got) != 1 || got[0] != (relay.Wanted{Device: "a", From: 4, Last: 8}) {
		t.Errorf("a pull from the floor: %v, %v", got, err)
	}
}

func TestOnlyASilentReplicaIsEvicted(t *testing.T) {
	seen := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		role  relay.Role
		after time.Duration // configured
		quiet time.Duration
		want  bool
	}{
		{relay.Replica, 0, relay.EvictAfter, false},
		{relay.Replica, 0, relay.EvictAfter + 1, true},
		{relay.Replica, time.Hour, 2 * time.Hour, true},
		{relay.Replica, -1, 1000 * relay.EvictAfter, false},
		{relay.Replica, 0, -1000 * relay.EvictAfter, false}, // seen in the future
		{relay.Writer, 0, 2 * relay.EvictAfter, false},
		{relay.Seen, 0, 2 * relay.EvictAfter, false},
	} {
		if got := relay.IsEvicted(c.role, seen, seen.Add(c.quiet), c.after); got != c.want {
			t.Errorf("a %s silent for %v, limit %v: evicted %v", c.role, c.quiet, c.after, got)
		}
	}
}

func TestCollectedOpsAreComparedByTheirLinksToTheFloor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := relaytest.NewAuthor("a")
		a.Write(t, rapid.IntRange(1, 12).Draw(rt, "ops"), 40)
		floor := rapid.IntRange(0, len(a.Ops)-1).Draw(rt, "floor")
		branch := rapid.IntRange(0, len(a.Ops)).Draw(rt, "branch")
		pushed := a.Clone(branch)
		pushed.Write(t, len(a.Ops)-branch, 50)
		from := rapid.IntRange(0, len(a.Ops)-1).Draw(rt, "from")
		to := rapid.IntRange(from+1, len(a.Ops)).Draw(rt, "to")
		same, above, err := relay.MatchCollected("a", pushed.Ops[from:to], oplog.Pos{Seq: uint64(floor), ID: a.Ops[floor].ID})
		below := max(0, min(to, floor+1)-from)
		switch {
		case len(above) != to-from-below:
			rt.Fatalf("%d are above, of %d", len(above), to-from)
		case below == 0:
			if err != nil || same != 0 {
				rt.Fatalf("nothing is below: %d, %v", same, err)
			}
		case to <= floor:
			if !errors.Is(err, relay.ErrFrontierTruncated) || same != 0 {
				rt.Fatalf("not linked to the floor: %d, %v", same, err)
			}
		case branch <= floor:
			if !errors.Is(err, relay.ErrFork) || same != 0 {
				rt.Fatalf("another branch: %d, %v", same, err)
			}
		case err != nil || same != below:
			rt.Fatalf("the same ops: %d of %d, %v", same, below, err)
		}
	})
}
