package relay

import (
	"errors"

	"github.com/syncnode/syncnode/oplog"
)

// A Batch is a push after verification: what of it is new.
type Batch struct {
	New  []oplog.Op // continue the head, in order
	Head oplog.Head // the head after them; meaningful if New is not empty
	// Below are the ops at or below the head, in order: each is a duplicate if the relay holds the same id
	// there, else a fork.
	Below []oplog.Op
	// Repeated counts ops that the push itself holds twice.
	Repeated int
	// Refused is why the first op that is in neither was refused, nil if all are.
	Refused error
}

// CheckPush refuses a push that no relay may take: too large, or not the device's own. Nothing of it is added.
func CheckPush(device string, ops []oplog.Op) error {
	if err := CheckDevice(device); err != nil {
		return err
	}
	if len(ops) > MaxOps {
		return &SizeError{What: "ops", Size: len(ops), Max: MaxOps}
	}
	size := 0
	for _, op := range ops {
		if op.Device != device {
			return &ForeignError{Device: device, OpDevice: op.Device}
		}
		size += LineLen(op)
	}
	if size > MaxBytes {
		return &SizeError{What: "bytes", Size: size, Max: MaxBytes}
	}
	return nil
}

// Verify sorts the ops of a push by what they are to a chain whose head is head, or which is empty if known is
// false. Every relay judges by it, so that all judge alike.
func Verify(device string, head oplog.Head, known bool, ops []oplog.Op) Batch {
	chain := oplog.NewChain(device)
	if known {
		chain = oplog.ResumeChain(device, head)
	}
	var b Batch
	b.Refused = b.sort(chain, ops)
	b.Head, _ = chain.Head()
	return b
}

// sort fills b up to the first op that is refused and says why it is.
func (b *Batch) sort(chain *oplog.Chain, ops []oplog.Op) error {
	head, known := chain.Head()
	for _, op := range ops {
		if known && op.Seq <= head.Seq && len(b.New) == 0 {
			if err := op.Check(); err != nil {
				return refusal(op, err)
			}
			b.Below = append(b.Below, op)
			continue
		}
		verdict, err := chain.Admit(op, op.HLC.WallMS) // a relay parks nothing
		if err != nil {
			return refusal(op, err)
		}
		if verdict.Duplicate {
			b.Repeated++
			continue
		}
		b.New = append(b.New, op)
	}
	return nil
}

func refusal(op oplog.Op, err error) error {
	if gap, ok := errors.AsType[*oplog.GapError](err); ok {
		return &GapError{Device: gap.Device, Expected: gap.Expected, Found: gap.Found}
	}
	if fork, ok := errors.AsType[*oplog.ForkError](err); ok {
		return &ForkError{Device: fork.Device, Seq: fork.Seq, Existing: fork.Have, Got: fork.Got}
	}
	return &BadOpError{Device: op.Device, Seq: op.Seq, Err: err}
}

// Match compares an op at or below the head with the one that the relay holds at its seq: nil if it is the
// same, else a *ForkError.
func Match(op oplog.Op, held oplog.OpID) error {
	if op.ID == held {
		return nil
	}
	return &ForkError{Device: op.Device, Seq: op.Seq, Existing: held, Got: op.ID}
}

// LineLen is at least the length of the op's line in bytes, its newline included, and little more. Limits count by it.
func LineLen(op oplog.Op) int {
	const fixed = 320 // names, punctuation, two ids, numbers
	return fixed + len(op.Payload) + 2*len(op.Device) + len(op.Scope) + len(op.Surface)
}
