package checkpoint

import (
	"errors"

	"github.com/syncnode/syncnode/oplog"
)

// Anchors verify chains whose beginnings are only in a checkpoint. They hold one head per device, no ops. They belong to
// one goroutine at a time.
type Anchors struct {
	base   Header
	chains map[string]*oplog.Chain
}

// Anchor gives the anchors of a checkpoint. Those of the zero Header take every chain from seq 0.
func Anchor(h Header) *Anchors { return &Anchors{base: h, chains: map[string]*oplog.Chain{}} }

// Chain gives the verified chain of a device, to be resumed elsewhere: at the checkpoint's head, or empty if the checkpoint does
// not know the device. It is the anchors' own. A closed device has none.
func (a *Anchors) Chain(device string) (*oplog.Chain, bool) {
	if c := a.chains[device]; c != nil {
		return c, true
	}
	if _, closed := a.base.Closed[device]; closed {
		return nil, false
	}
	c := oplog.NewChain(device)
	if head, ok := a.base.Heads[device]; ok {
		c = oplog.ResumeChain(device, head)
	}
	a.chains[device] = c
	return c, true
}

// Admit verifies op as oplog.Chain.Admit does, after what the checkpoint covers. The first op of a device that is kept has to
// continue the checkpoint; if it does not, the error is a [*BrokenAnchorError], an [*UnanchoredDeviceError] or a
// [*ClosedDeviceError]. An op below the head is an *oplog.BelowError: it is covered, or was admitted already.
func (a *Anchors) Admit(op oplog.Op, nowMS int64) (oplog.Verdict, error) {
	if last, closed := a.base.Closed[op.Device]; closed {
		return a.admitClosed(last, op, nowMS)
	}
	c, _ := a.Chain(op.Device)
	before, begun := c.Head()
	verdict, err := c.Admit(op, nowMS)
	base, known := a.base.Heads[op.Device]
	switch {
	case err == nil || !continues(err):
		return verdict, err
	case !begun:
		return verdict, &UnanchoredDeviceError{Device: op.Device, FirstSeq: op.Seq}
	case known && before == base:
		return verdict, &BrokenAnchorError{Device: op.Device, Head: base, Err: err}
	}
	return verdict, err
}

// admitClosed knows the last op of a closed chain and takes nothing after it.
func (a *Anchors) admitClosed(last oplog.Head, op oplog.Op, nowMS int64) (oplog.Verdict, error) {
	if op.Seq > last.Seq {
		return oplog.Verdict{}, &ClosedDeviceError{Device: op.Device, Last: last, Seq: op.Seq}
	}
	return oplog.ResumeChain(op.Device, last).Admit(op, nowMS)
}

// continues reports whether err is about how an op continues its chain.
func continues(err error) bool {
	if _, ok := errors.AsType[*oplog.GapError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*oplog.ForkError](err); ok {
		return true
	}
	_, ok := errors.AsType[*oplog.ClockError](err)
	return ok
}
