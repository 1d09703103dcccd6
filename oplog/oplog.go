// Package oplog is the record that devices exchange: an op, its id, its one spelling, the clock that stamps
// it, and the rules by which a chain of ops is verified.
//
// # Guarantees
//
// An op is immutable and its id is the SHA-256 of everything else in it, the payload's exact bytes included.
// An op has exactly one spelling as a line: what [ParseLine] accepts, [Op.AppendLine] gives back byte for byte.
// A payload is RFC 8785 JSON, so the same value has the same bytes on every device; what two readers could
// read differently is refused when it is written and when it is read. A [Chain] admits ops only in order, each
// linked to the one before, with rising stamps; a bad op never changes it. The order of all ops is (hlc, op id).
//
// Not promised: that an op was written by the device it names. Ops carry no signature yet; Key and Sig are
// reserved and refused when set.
//
// # Failure
//
// Every refusal has a type. [*CanonError], [*SizeError] and [*FieldError] match [ErrCanon]: no reader will ever
// accept these bytes. [*IDError], [*ForkError], [*ForeignError] and [*ClockError] match [ErrChain]: the chain
// has to be set aside, others are not touched. [*GapError]: fetch what is missing and try again.
// [*BelowError]: look up the op at that seq and compare ids. A stamp from the future is no error: see [Verdict].
//
// # Concurrency
//
// The package is pure: no clock, no I/O, no goroutine. Op, HLC, Intent are values. A Chain, a Clock and a
// Frontier belong to one goroutine at a time.
package oplog

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/syncnode/syncnode/internal/ident"
)

// Limits of an op. They are part of the format: every device refuses what exceeds them.
const (
	MaxInt     = 1<<53 - 1         // greatest integer anywhere in an op, also in its payload
	MaxPayload = 256 << 10         // bytes of a payload
	MaxDepth   = 32                // nested arrays and objects in a payload
	MaxLine    = MaxPayload + 1024 // bytes of a line
)

const opFormat = "syncnode/op/v1"

// An OpID names an op: "op-" and 64 lower-case hex digits, a SHA-256. The empty OpID means none.
type OpID string

const opIDLen = len("op-") + 2*sha256.Size

// Valid reports whether id has the form of an op id.
func (id OpID) Valid() bool {
	if len(id) != opIDLen || !strings.HasPrefix(string(id), "op-") {
		return false
	}
	for i := len("op-"); i < len(id); i++ {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// An Op is one immutable record of one device's chain. Make it with [New] or [ParseLine]; a literal has to pass
// [Op.Check]. Do not write it with encoding/json, which escapes the payload anew: use [Op.AppendLine].
type Op struct {
	ID      OpID            `json:"op_id"`
	Device  string          `json:"device_id"`
	Seq     uint64          `json:"seq"`            // from 0, without holes
	Prev    OpID            `json:"prev,omitempty"` // id of the op at Seq-1; empty exactly at seq 0
	HLC     HLC             `json:"hlc"`
	Scope   Scope           `json:"scope"`
	Surface Surface         `json:"surface"`
	Payload json.RawMessage `json:"payload"`       // RFC 8785; not to be changed
	Key     string          `json:"key,omitempty"` // reserved: which key sealed the payload
	Sig     string          `json:"sig,omitempty"` // reserved: the device's signature of the id
}

// New returns the op with these fields and its id. The payload may be any JSON text within the limits; the op
// holds its own canonical copy. It fails with [*CanonError], [*SizeError] or [*FieldError]; then there is no op.
func New(device string, seq uint64, prev OpID, hlc HLC, scope Scope, surface Surface, payload []byte) (Op, error) {
	canonical, err := Canonical(json.RawMessage(payload))
	if err != nil {
		return Op{}, fmt.Errorf("payload: %w", err)
	}
	op := Op{Device: device, Seq: seq, Prev: prev, HLC: hlc, Scope: scope, Surface: surface, Payload: canonical}
	if err := op.checkFields(); err != nil {
		return Op{}, err
	}
	if hlc.Device != device {
		return Op{}, &ForeignError{Field: "hlc.device_id", Want: device, Got: hlc.Device}
	}
	op.ID = op.ComputeID()
	return op, nil
}

// ComputeID is the id that the op's fields demand: the SHA-256 of the fields in this order, each text preceded
// by its length and each number as such, all numbers 8 bytes big-endian: "syncnode/op/v1", device, seq, prev
// (empty if none), hlc wall, hlc counter, hlc device, scope, surface, key, payload. The signature is not
// covered: it signs the id.
func (op Op) ComputeID() OpID {
	b := make([]byte, 0, 512+len(op.Payload))
	b = lp(b, opFormat)
	b = lp(b, op.Device)
	b = binary.BigEndian.AppendUint64(b, op.Seq)
	b = lp(b, string(op.Prev))
	b = binary.BigEndian.AppendUint64(b, uint64(op.HLC.WallMS))
	b = binary.BigEndian.AppendUint64(b, uint64(op.HLC.Counter))
	b = lp(b, op.HLC.Device)
	b = lp(b, string(op.Scope))
	b = lp(b, string(op.Surface))
	b = lp(b, op.Key)
	b = lp(b, string(op.Payload))
	sum := sha256.Sum256(b)
	var text [opIDLen]byte
	copy(text[:], "op-")
	hex.Encode(text[len("op-"):], sum[:])
	return OpID(text[:])
}

func lp(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(s)))
	return append(dst, s...)
}

// Check verifies all that can be known from the op alone: fields, payload, that the stamp names the op's own
// device, and the id. Errors are those of the package comment.
func (op Op) Check() error {
	if len(op.Payload) > MaxPayload {
		return &SizeError{What: "payload", Size: len(op.Payload), Max: MaxPayload}
	}
	if err := op.checkFields(); err != nil {
		return err
	}
	if err := CheckCanonical(op.Payload); err != nil {
		return err
	}
	if op.HLC.Device != op.Device {
		return &ForeignError{Field: "hlc.device_id", Want: op.Device, Got: op.HLC.Device}
	}
	if want := op.ComputeID(); op.ID != want {
		return &IDError{Device: op.Device, Seq: op.Seq, Have: op.ID, Want: want}
	}
	return nil
}

// checkFields verifies every field but the id and the payload.
func (op *Op) checkFields() error {
	if err := ident.Check("device", op.Device); err != nil {
		return &FieldError{Field: "device_id", Err: err}
	}
	if err := op.HLC.check(); err != nil {
		return err
	}
	if err := op.Scope.Check(); err != nil {
		return &FieldError{Field: "scope", Err: err}
	}
	if _, err := op.Surface.Tier(); err != nil {
		return &FieldError{Field: "surface", Err: err}
	}
	switch {
	case op.Seq > MaxInt:
		return &FieldError{Field: "seq", Err: errBeyond}
	case op.Seq == 0 && op.Prev != "":
		return &FieldError{Field: "prev", Err: errFirstPrev}
	case op.Seq > 0 && !op.Prev.Valid():
		return &FieldError{Field: "prev", Err: errNoPrev}
	case op.Key != "":
		return &FieldError{Field: "key", Err: errReserved}
	case op.Sig != "":
		return &FieldError{Field: "sig", Err: errReserved}
	}
	return nil
}
