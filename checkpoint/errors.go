package checkpoint

import (
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/oplog"
)

// How a checkpoint is damaged. None of these is a reason to remove anything.
var (
	// ErrUnreadable: the text is no checkpoint, or ends too early.
	ErrUnreadable = errors.New("checkpoint: unreadable")
	// ErrDigest: the state does not give the digest that the checkpoint claims. Its author folds wrongly, or lies.
	ErrDigest = errors.New("checkpoint: state does not give its digest")
	// ErrHash: the bytes do not give the hash. They changed after they were written.
	ErrHash = errors.New("checkpoint: record does not give its hash")
	// ErrName: the file holds another checkpoint than its name says.
	ErrName = errors.New("checkpoint: file name does not match")
	// ErrNone: there is no checkpoint that can be used.
	ErrNone = errors.New("checkpoint: none")
)

// A MismatchError says which two values differ. It matches its Kind.
type MismatchError struct {
	Kind      error // ErrDigest, ErrHash or ErrName
	Want, Got string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: %.80q is claimed, %.80q is found", e.Kind, e.Want, e.Got)
}
func (e *MismatchError) Is(target error) bool { return target == e.Kind }

// ErrAnchor means that ops do not continue the checkpoint. The types below match it. The chain has to be set aside; the
// others are not touched.
var ErrAnchor = errors.New("checkpoint: ops do not continue it")

// A BrokenAnchorError means that the first kept op of a device does not continue the checkpoint's head of it: ops are
// missing between them, prev is another op, or the stamp is not after the head's. It matches ErrAnchor and wraps the reason:
// *oplog.GapError, *oplog.ForkError or *oplog.ClockError.
type BrokenAnchorError struct {
	Device string
	Head   oplog.Head // the checkpoint's
	Err    error
}

func (e *BrokenAnchorError) Error() string {
	return fmt.Sprintf("checkpoint: chain of %s does not continue seq %d: %v", e.Device, e.Head.Seq, e.Err)
}
func (e *BrokenAnchorError) Unwrap() error        { return e.Err }
func (e *BrokenAnchorError) Is(target error) bool { return target == ErrAnchor }

// An UnanchoredDeviceError means that a device which the checkpoint does not know begins later than at seq 0: what is
// before is neither kept nor covered. It matches ErrAnchor.
type UnanchoredDeviceError struct {
	Device   string
	FirstSeq uint64
}

func (e *UnanchoredDeviceError) Error() string {
	return fmt.Sprintf("checkpoint: chain of %s begins at seq %d, and what is before is in no checkpoint", e.Device, e.FirstSeq)
}
func (e *UnanchoredDeviceError) Is(target error) bool { return target == ErrAnchor }

// A ClosedDeviceError means that a device went on after its chain was closed. It needs a new id, under which it writes its ops
// again. It matches ErrAnchor.
type ClosedDeviceError struct {
	Device string
	Last   oplog.Head
	Seq    uint64
}

func (e *ClosedDeviceError) Error() string {
	return fmt.Sprintf("checkpoint: chain of %s is closed at seq %d, got seq %d", e.Device, e.Last.Seq, e.Seq)
}
func (e *ClosedDeviceError) Is(target error) bool { return target == ErrAnchor }

// A ShortError means that an extension cannot reach its cut: the ops of Device end before it. Nothing was made.
type ShortError struct {
	Device string
	Next   uint64 // the seq that is missing
	Cut    uint64
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("checkpoint: extend: ops of %s are missing from seq %d on, up to %d", e.Device, e.Next, e.Cut)
}

// A BehindError means that a checkpoint does not cover what another one does, so it must not take its place.
type BehindError struct{ Held, Offered Hash }

func (e *BehindError) Error() string {
	return fmt.Sprintf("checkpoint: %.12s does not cover what %.12s does", e.Offered, e.Held)
}

// A DisputedError means that the covered ops, which are held here, give another checkpoint than the one offered: its author
// folds wrongly, or this device does. Do not adopt it; a person has to look.
type DisputedError struct {
	Offered, Refolded Hash
	// SameState: only heads, scopes or closed chains differ.
	SameState bool
}

func (e *DisputedError) Error() string {
	return fmt.Sprintf("checkpoint: the ops that %.12s covers give %.12s", e.Offered, e.Refolded)
}
