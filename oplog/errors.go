package oplog

import (
	"errors"
	"fmt"
	"time"
)

// What kind of refusal. The typed errors below match these.
var (
	// ErrCanon means that no reader will ever accept these bytes.
	ErrCanon = errors.New("oplog: not canonical")
	// ErrChain means that the op cannot belong to this chain; the chain has to be set aside.
	ErrChain = errors.New("oplog: chain broken")
	// ErrGap means that ops before this one are missing.
	ErrGap = errors.New("oplog: gap")
)

// Why bytes are not canonical: the Kind of a [*CanonError]. All match [ErrCanon] through it.
var (
	ErrSyntax       = errors.New("not JSON")
	ErrSpelling     = errors.New("not in its one spelling")
	ErrDuplicateKey = errors.New("duplicate key")
	ErrUTF8         = errors.New("bad UTF-8")
	ErrSurrogate    = errors.New("lone surrogate")
	ErrNumber       = errors.New("number beyond 2^53-1")
	ErrDepth        = errors.New("nested too deep")
)

var (
	errBeyond    = errors.New("beyond 2^53-1")
	errFirstPrev = errors.New("must be absent at seq 0")
	errNoPrev    = errors.New(`must be "op-" and 64 hex digits after seq 0`)
	errReserved  = errors.New("is reserved and must be absent")
	errNegative  = errors.New("is negative")
)

// A CanonError says where and why bytes are refused. It matches ErrCanon and its Kind.
type CanonError struct {
	Kind   error // one of ErrSyntax, ErrSpelling, ErrDuplicateKey, ErrUTF8, ErrSurrogate, ErrNumber, ErrDepth
	Offset int   // in the bytes that were checked; -1 if not known
	Detail string
}

func (e *CanonError) Error() string {
	switch {
	case e.Offset < 0 && e.Detail == "":
		return e.Kind.Error()
	case e.Offset < 0:
		return fmt.Sprintf("%v: %s", e.Kind, e.Detail)
	case e.Detail == "":
		return fmt.Sprintf("%v at byte %d", e.Kind, e.Offset)
	}
	return fmt.Sprintf("%v at byte %d: %s", e.Kind, e.Offset, e.Detail)
}

func (e *CanonError) Is(target error) bool { return target == ErrCanon || target == e.Kind }

// A SizeError means that a payload or line is too long; nothing of it was read. It matches ErrCanon.
type SizeError struct {
	What      string // "payload" or "line"
	Size, Max int    // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s of %d bytes, at most %d are allowed", e.What, e.Size, e.Max)
}

func (e *SizeError) Is(target error) bool { return target == ErrCanon }

// A FieldError means that a field of an op has no legal value. It matches ErrCanon and wraps the reason.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string        { return fmt.Sprintf("field %s: %v", e.Field, e.Err) }
func (e *FieldError) Unwrap() error        { return e.Err }
func (e *FieldError) Is(target error) bool { return target == ErrCanon }

// An IDError means that an op's id is not the hash of its fields. It matches ErrChain.
type IDError struct {
	Device     string
	Seq        uint64
	Have, Want OpID
}

func (e *IDError) Error() string {
	return fmt.Sprintf("op %s/%d: id is %.80q, its fields give %s", e.Device, e.Seq, e.Have, e.Want)
}

func (e *IDError) Is(target error) bool { return target == ErrChain }

// A GapError means that ops of the device are missing before this one. It matches ErrGap: fetch from Expected on.
type GapError struct {
	Device          string
	Expected, Found uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("device %s: expected seq %d, found %d", e.Device, e.Expected, e.Found)
}

func (e *GapError) Is(target error) bool { return target == ErrGap }

// A BelowError means that the op lies below the verified head, where a chain keeps no ids. The caller looks up
// the op it holds at Seq: the same id is a duplicate, another is a fork.
type BelowError struct {
	Device    string
	Seq, Head uint64
}

func (e *BelowError) Error() string {
	return fmt.Sprintf("device %s: seq %d is below the verified head %d", e.Device, e.Seq, e.Head)
}

// A ForkError means that the device wrote two ops at Seq: we hold Have, Got is the other. It matches ErrChain.
type ForkError struct {
	Device    string
	Seq       uint64
	Have, Got OpID
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("device %s forked at seq %d: have %s, got %s", e.Device, e.Seq, e.Have, e.Got)
}

func (e *ForkError) Is(target error) bool { return target == ErrChain }

// A ForeignError means that an op or its stamp names another device than it must. It matches ErrChain.
type ForeignError struct {
	Field     string // "device_id" or "hlc.device_id"
	Want, Got string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is %.140q, must be %q", e.Field, e.Got, e.Want)
}

func (e *ForeignError) Is(target error) bool { return target == ErrChain }

// A ClockError means that a stamp is not after that of the op before. It matches ErrChain.
type ClockError struct {
	Device string
	Seq    uint64
	Before HLC // stamp of the op at Seq-1
	Got    HLC
}

func (e *ClockError) Error() string {
	return fmt.Sprintf("device %s: stamp %v of seq %d is not after %v", e.Device, e.Got, e.Seq, e.Before)
}

func (e *ClockError) Is(target error) bool { return target == ErrChain }

// A FutureError says until when an op with a stamp from the future is parked. The op is good and part of its
// chain; it is only not folded before.
type FutureError struct {
	Device string
	Seq    uint64
	Until  int64 // unix milliseconds: when the stamp is no more than MaxAhead ahead
}

func (e *FutureError) Error() string {
	return fmt.Sprintf("op %s/%d is stamped in the future: parked until %s",
		e.Device, e.Seq, time.UnixMilli(e.Until).UTC().Format(time.RFC3339))
}
