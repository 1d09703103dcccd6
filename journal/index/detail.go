package index

import (
	"encoding/json"
	"time"

	"github.com/syncnode/syncnode/oplog"
)

// A Detail is an intent with what its author needs to tell the ledger about it again. Readers may lack any of it.
//
// Its Settled says that every own record below that sequence number is in the ledger, so that an index made anew does not
// bring old records up again.
type Detail struct {
	oplog.Intent
	// Device is the device of the attempt, if it is not the author.
	Device string `json:"device,omitempty"`
	// Why is the finer cause of a void attempt.
	Why string `json:"why,omitempty"`
	// Input is the digest of the run's input.
	Input string `json:"input,omitempty"`
	// Abandoned marks a pending attempt that its device gave up: it is in doubt.
	Abandoned bool      `json:"abandoned,omitempty"`
	Begun     time.Time `json:"begun,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// Result is at most 1 KiB of the caller's own words.
	Result string `json:"result,omitempty"`
}

// ReadDetail reads any payload, as oplog.ReadIntent does: what is missing or mistyped is zero.
func ReadDetail(payload []byte) Detail {
	var more struct {
		Device    string          `json:"device"`
		Why       string          `json:"why"`
		Input     string          `json:"input"`
		Abandoned bool            `json:"abandoned"`
		Begun     json.RawMessage `json:"begun"`
		Ended     json.RawMessage `json:"ended"`
		Result    string          `json:"result"`
	}
	_ = json.Unmarshal(payload, &more) // total: mistyped members stay zero
	d := Detail{Intent: oplog.ReadIntent(payload), Device: more.Device, Why: more.Why, Input: more.Input,
		Abandoned: more.Abandoned, Result: more.Result}
	d.Begun, d.Ended = instant(more.Begun), instant(more.Ended)
	return d
}

func instant(text []byte) time.Time {
	var t time.Time
	if json.Unmarshal(text, &t) != nil {
		return time.Time{}
	}
	return t
}

// Rank orders what one author says about one attempt: a later word replaces only an earlier one of lower rank.
func (d *Detail) Rank() int {
	switch {
	case d.Committed():
		return 3
	case d.Terminal():
		return 2
	case d.Abandoned:
		return 1
	}
	return 0 // about to act, or acting
}

// A Record is what one author's chain says about one attempt, at its highest rank.
type Record struct {
	Author    string `json:"by_device"`
	Seq       uint64 `json:"seq"`
	Agent     string `json:"agent"`
	Attempt   string `json:"attempt,omitempty"`
	Device    string `json:"device,omitempty"` // of the attempt, if it is not the author
	Epoch     uint64 `json:"epoch"`
	Status    string `json:"status"`
	Cause     string `json:"cause,omitempty"`
	Why       string `json:"why,omitempty"`
	Exit      int    `json:"exit,omitempty"`
	Resolver  bool   `json:"resolver,omitempty"`
	Abandoned bool   `json:"abandoned,omitempty"`
	Rank      int    `json:"rank"`
}

func recordOf(op oplog.Op, d Detail) Record {
	r := Record{Author: op.Device, Seq: op.Seq, Agent: d.Agent, Attempt: d.Attempt, Device: d.Device, Epoch: d.Epoch,
		Status: d.Status, Cause: d.Cause, Why: d.Why, Resolver: d.By != "", Abandoned: d.Abandoned, Rank: d.Rank()}
	if d.ExitCode != nil {
		r.Exit = *d.ExitCode
	}
	return r
}

// RecordOf is the record that an op holds, and its run; the run is empty if the op is no intent.
func RecordOf(op oplog.Op) (Record, string) {
	if op.Surface != oplog.Intents {
		return Record{}, ""
	}
	d := ReadDetail(op.Payload)
	return recordOf(op, d), d.RunID
}

// Void reports whether the record says that the attempt never started.
func (r *Record) Void() bool { return r.Status == oplog.StatusFailed && r.Cause == oplog.CauseVoid }

// An Outcome is an own record of how an attempt ended that the ledger is not known to hold.
type Outcome struct {
	Seq    uint64
	WallMS int64 // of its stamp
	Detail Detail
}
