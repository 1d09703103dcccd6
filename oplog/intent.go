package oplog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/syncnode/syncnode/internal/ident"
)

// What an intent says about its attempt.
const (
	StatusPending   = "pending"   // about to act, or acting
	StatusCommitted = "committed" // the effect happened
	StatusFailed    = "failed"    // the end was seen and was not success, or, with CauseVoid, it never started
)

// CauseVoid is the cause of a failed intent whose effect never started. It closes the attempt and is no failure
// of the run.
const CauseVoid = "void"

// An Intent is the payload of an op on the surface [Intents]: the log's record of an attempt. The names id,
// agent_id, epoch and status are frozen; the rest are details that a reader may lack.
type Intent struct {
	RunID   string `json:"id"`
	Agent   string `json:"agent_id"`
	Epoch   uint64 `json:"epoch"`
	Status  string `json:"status"` // one of the Status constants
	Attempt string `json:"attempt,omitempty"`

	Occurrence string  `json:"occurrence,omitempty"`
	ExitCode   *int    `json:"exit_code,omitempty"`
	Signal     string  `json:"signal,omitempty"`
	Cause      string  `json:"cause,omitempty"`   // exit, signal, timeout, lost, drain, void
	Settled    *uint64 `json:"settled,omitempty"` // every record of the author below this seq is in the ledger
	By         string  `json:"by,omitempty"`      // set by a resolver: who closed an attempt that is not the author's
	Reason     string  `json:"reason,omitempty"`
}

// Committed reports whether the intent says that the effect happened.
func (in Intent) Committed() bool { return in.Status == StatusCommitted }

// Terminal reports whether the intent says that its attempt ended.
func (in Intent) Terminal() bool { return in.Status == StatusCommitted || in.Status == StatusFailed }

// Payload is the intent as a payload in its one spelling. It fails if agent or run is not a legal id, the status
// is none of the three, or a number is beyond 2^53-1.
func (in Intent) Payload() ([]byte, error) {
	if err := ident.Check("run", in.RunID); err != nil {
		return nil, &FieldError{Field: "id", Err: err}
	}
	if err := ident.Check("agent", in.Agent); err != nil {
		return nil, &FieldError{Field: "agent_id", Err: err}
	}
	if in.Status != StatusPending && !in.Terminal() {
		return nil, &FieldError{Field: "status", Err: fmt.Errorf("%.40q is not pending, committed or failed", in.Status)}
	}
	return Canonical(in)
}

// ReadIntent reads any payload as an intent. It never fails: what is missing or has the wrong type is "" or 0, so
// that the epoch is below every real one, and any status that is not exactly committed or failed is pending.
func ReadIntent(payload []byte) Intent {
	var in Intent
	if !members(payload, in.set) {
		in = Intent{}
		if canonical, err := Canonical(json.RawMessage(payload)); err == nil && !members(canonical, in.set) {
			in = Intent{}
		}
	}
	if !in.Terminal() {
		in.Status = StatusPending
	}
	return in
}

// set takes one member, spelled canonically.
func (in *Intent) set(key, value []byte) {
	switch string(key) {
	case "id":
		in.RunID = textOf(value)
	case "agent_id":
		in.Agent = textOf(value)
	case "epoch":
		if n, ok := uintOf(value); ok {
			in.Epoch = n
		}
	case "status":
		in.Status = textOf(value)
	case "attempt":
		in.Attempt = textOf(value)
	case "occurrence":
		in.Occurrence = textOf(value)
	case "exit_code":
		if n, err := strconv.Atoi(string(value)); err == nil {
			in.ExitCode = &n
		}
	case "signal":
		in.Signal = textOf(value)
	case "cause":
		in.Cause = textOf(value)
	case "settled":
		if n, ok := uintOf(value); ok {
			in.Settled = &n
		}
	case "by":
		in.By = textOf(value)
	case "reason":
		in.Reason = textOf(value)
	}
}

func textOf(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	return unquote(value[1 : len(value)-1])
}

func uintOf(value []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(value), 10, 64)
	return n, err == nil // canonical: at most MaxInt
}

// StableKey is the key of a payload in the set and register tiers: "id:" and the payload's member "id" if the
// payload is an object and that is a string, else "sha256:" and the hash of the payload's bytes in hex. So an
// edited record without an id is another record, and an identical repeat is the same.
func StableKey(payload []byte) string {
	var id []byte
	if members(payload, func(key, value []byte) {
		if string(key) == "id" && value[0] == '"' {
			id = value
		}
	}) && id != nil {
		return "id:" + textOf(id)
	}
	sum := sha256.Sum256(payload)
	return "sha256:" + hex.EncodeToString(sum[:])
}
