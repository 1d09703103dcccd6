package relay

import (
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/oplog"
)

// The answers a caller can act on. Each is matched by the error types below.
var (
	// ErrNotSent: nothing happened; the same call may be tried again.
	ErrNotSent = errors.New("relay: not sent, nothing happened")
	// ErrIndeterminate: it may have happened. Repeat the same call; no call does harm when repeated.
	ErrIndeterminate = errors.New("relay: outcome unknown")
	// ErrInvalid: the call can never be carried out. Nothing happened.
	ErrInvalid = errors.New("relay: invalid request")
	// ErrGap: ops are missing between the relay's head and the push. Push from Expected on.
	ErrGap = errors.New("relay: gap")
	// ErrFork: the relay holds another op at this place of the chain. Write no more under this id.
	ErrFork = errors.New("relay: fork")
	// ErrForeign: the ops are another device's. Nothing was added.
	ErrForeign = errors.New("relay: not the device's own chain")
	// ErrBadOp: the op can never be part of the chain.
	ErrBadOp = errors.New("relay: op refused")
	// ErrSize: the push is larger than one call may be. Split it.
	ErrSize = errors.New("relay: too large")
	// ErrFull: the relay's space is used up. Nothing is lost; push again after a collection.
	ErrFull = errors.New("relay: full")
	// ErrFrontierTruncated: what the caller lacks was collected. Start from a checkpoint.
	ErrFrontierTruncated = errors.New("relay: history was collected")
	// ErrClosed: a checkpoint ended this chain. Write on under a new id.
	ErrClosed = errors.New("relay: chain is closed")
	// ErrBehind: the newest checkpoint covers what this one does not. Take that one up, and extend it.
	ErrBehind = errors.New("relay: checkpoint is behind the newest")
	// ErrContradiction: the relay does not hold what the checkpoint claims to cover. Push and pull first; if it stays, its
	// author followed another branch.
	ErrContradiction = errors.New("relay: checkpoint contradicts a chain")
	// ErrNotStable: a chain can be closed only when every replica has acked it. Try again later.
	ErrNotStable = errors.New("relay: not stable yet")
	// ErrCorrupt: the relay's own store holds what it should not. A person has to look; repeating does not help.
	ErrCorrupt = errors.New("relay: store is damaged")
)

var (
	errRole = errors.New("role must be replica or writer")
	errPos  = errors.New("frontier has a position without an op id, or beyond 2^53-1")
)

// An InvalidError wraps why a call can never be carried out. It matches ErrInvalid.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string        { return fmt.Sprintf("relay: invalid request: %v", e.Err) }
func (e *InvalidError) Unwrap() error        { return e.Err }
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// A GapError says which seq the relay needs next. It matches ErrGap.
type GapError struct {
	Device          string
	Expected, Found uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("relay: device %s: expected seq %d, found %d", e.Device, e.Expected, e.Found)
}
func (e *GapError) Is(target error) bool { return target == ErrGap }

// A ForkError says which op the relay holds at Seq, and which other one was meant. It matches ErrFork.
type ForkError struct {
	Device        string
	Seq           uint64
	Existing, Got oplog.OpID
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("relay: device %s forked at seq %d: the relay holds %s, got %s", e.Device, e.Seq, e.Existing, e.Got)
}
func (e *ForkError) Is(target error) bool { return target == ErrFork }

// A ForeignError says whose op was pushed by which device. It matches ErrForeign.
type ForeignError struct{ Device, OpDevice string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("relay: device %s may not push an op of %.140q", e.Device, e.OpDevice)
}
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// A BadOpError wraps why an op can never be part of the chain: an error of package oplog. It matches ErrBadOp.
type BadOpError struct {
	Device string
	Seq    uint64
	Err    error
}

func (e *BadOpError) Error() string {
	return fmt.Sprintf("relay: op %s/%d refused: %v", e.Device, e.Seq, e.Err)
}
func (e *BadOpError) Unwrap() error        { return e.Err }
func (e *BadOpError) Is(target error) bool { return target == ErrBadOp }

// A SizeError says what was too large. It matches ErrSize.
type SizeError struct {
	What      string // "ops", "bytes", or of a checkpoint "body bytes", "chains" or "closings"
	Size, Max int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("relay: %d %s in one call, at most %d are allowed", e.Size, e.What, e.Max)
}
func (e *SizeError) Is(target error) bool { return target == ErrSize }

// A FullError says how much space is used. It matches ErrFull.
type FullError struct{ Used, Need, Max int64 } // bytes

func (e *FullError) Error() string {
	return fmt.Sprintf("relay: full: %d of %d bytes are used, %d more are needed", e.Used, e.Max, e.Need)
}
func (e *FullError) Is(target error) bool { return target == ErrFull }

// A FrontierTruncatedError says for which device the pull began below what was collected, and up to where
// each chain was. It matches ErrFrontierTruncated.
type FrontierTruncatedError struct {
	Device string
	Held   uint64 // the next seq the caller needs
	Floor  oplog.Frontier
}

func (e *FrontierTruncatedError) Error() string {
	return fmt.Sprintf("relay: ops of %s up to seq %d were collected, and seq %d is wanted: start from a checkpoint", e.Device, e.Floor[e.Device].Seq, e.Held)
}
func (e *FrontierTruncatedError) Is(target error) bool { return target == ErrFrontierTruncated }

// A ClosedError says with which op the chain ended. It matches ErrClosed.
type ClosedError struct {
	Device string
	Last   oplog.Pos
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("relay: chain of %s was closed at seq %d: write on under a new id", e.Device, e.Last.Seq)
}
func (e *ClosedError) Is(target error) bool { return target == ErrClosed }

// A BehindError says which checkpoint is the newest. It matches ErrBehind.
type BehindError struct{ Held, Offered string }

func (e *BehindError) Error() string {
	return fmt.Sprintf("relay: checkpoint %.12s does not cover what the newest, %.12s, does", e.Offered, e.Held)
}
func (e *BehindError) Is(target error) bool { return target == ErrBehind }

// A ContradictionError says which entry of a checkpoint the relay's chain does not bear out. It matches ErrContradiction.
type ContradictionError struct {
	Device string
	Got    oplog.Pos // in the checkpoint; zero if the device is absent there
	Held   oplog.Pos // what the relay knows nearest to it; zero if nothing
	Why    string
}

func (e *ContradictionError) Error() string {
	return fmt.Sprintf("relay: checkpoint covers %s up to seq %d (%.15s), the relay knows seq %d (%.15s): %s",
		e.Device, e.Got.Seq, e.Got.ID, e.Held.Seq, e.Held.ID, e.Why)
}
func (e *ContradictionError) Is(target error) bool { return target == ErrContradiction }

// A NotStableError says which chain cannot be closed yet, and why. It matches ErrNotStable.
type NotStableError struct {
	Device string
	Reason Reason
}

func (e *NotStableError) Error() string {
	return fmt.Sprintf("relay: chain of %s cannot be closed yet: %s", e.Device, e.Reason)
}
func (e *NotStableError) Is(target error) bool { return target == ErrNotStable }
