package checkpoint_test

import (
	"errors"
	"testing"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
)

func TestOpsAreVerifiedOnACheckpointAsOnTheChainsItCovers(t *testing.T) {
	f := sample(t)
	base := func() *checkpoint.Anchors {
		s := folded(f.ops[:3]) // laptop 0 and 1, phone 0
		s.Close("phone")
		return checkpoint.Anchor(checkpoint.Of(s).Header)
	}
	head := f.ops[2].HLC
	op := func(device string, seq uint64, prev oplog.OpID, wall int64) oplog.Op {
		op, err := oplog.New(device, seq, prev, oplog.HLC{WallMS: wall, Device: device}, oplog.Personal, oplog.Routing, []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	id := f.ops[2].ID
	other := f.ops[0].ID
	bad := f.ops[3]
	bad.ID = other
	for _, c := range []struct {
		name   string
		op     oplog.Op
		anchor bool // matches ErrAnchor
		is     func(error) bool
	}{
		{"the next", f.ops[3], false, func(err error) bool { return err == nil }},
		{"seq left out", op("laptop", 3, id, head.WallMS+9), true, is[*oplog.GapError]},
		{"another prev", op("laptop", 2, other, head.WallMS+9), true, is[*oplog.ForkError]},
		{"stamp not after", op("laptop", 2, id, head.WallMS), true, is[*oplog.ClockError]},
		{"another at the head", op("laptop", 1, other, head.WallMS), true, is[*oplog.ForkError]},
		{"the head once more", f.ops[2], false, func(err error) bool { return err == nil }},
		{"below the head", f.ops[0], false, is[*oplog.BelowError]},
		{"wrong id", bad, false, is[*oplog.IDError]},
		{"new device from 0", op("new", 0, "", 1), false, func(err error) bool { return err == nil }},
		{"new device from 1", op("new", 1, other, 1), true, is[*checkpoint.UnanchoredDeviceError]},
		{"closed goes on", f.ops[5], true, is[*checkpoint.ClosedDeviceError]},
		{"closed, its last once more", f.ops[1], false, func(err error) bool { return err == nil }},
	} {
		_, err := base().Admit(c.op, oplog.MaxInt)
		if !c.is(err) || errors.Is(err, checkpoint.ErrAnchor) != c.anchor {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	a := base()
	if _, err := a.Admit(op("laptop", 4, id, head.WallMS+9), oplog.MaxInt); !is[*checkpoint.BrokenAnchorError](err) {
		t.Errorf("a broken anchor is reported as %v", err)
	}
	if _, err := a.Admit(f.ops[3], oplog.MaxInt); err != nil {
		t.Errorf("a refused op changed the chain: %v", err)
	}
	if _, err := a.Admit(op("laptop", 4, id, head.WallMS+9), oplog.MaxInt); !is[*oplog.GapError](err) || errors.Is(err, checkpoint.ErrAnchor) {
		t.Errorf("a gap after the first kept op is reported as %v", err)
	}
	if v, err := a.Admit(f.ops[4], f.ops[4].HLC.WallMS-2*oplog.MaxAhead); err != nil || v.Parked == nil {
		t.Errorf("a stamp from the future is not parked: %v", err)
	}
	if c, ok := a.Chain("laptop"); !ok || c.NextSeq() != 4 {
		t.Error("Chain is not where Admit left it")
	}
	if _, ok := a.Chain("phone"); ok {
		t.Error("a closed device has a chain")
	}
}
