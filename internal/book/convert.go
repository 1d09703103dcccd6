package book

import (
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

// detailOf is the intent that an outcome, or an open attempt, is written as.
func detailOf(device string, o coord.Outcome, settled uint64) index.Detail {
	a := o.Attempt
	d := index.Detail{
		Intent: oplog.Intent{RunID: o.Run, Agent: o.Agent, Epoch: uint64(a.Epoch), Attempt: a.ID, Occurrence: o.Occurrence,
			By: clean(a.By), Reason: clean(a.Reason)},
		Input: o.Input, Abandoned: a.Abandoned, Begun: a.Begun.UTC(), Ended: a.Ended.UTC(), Result: clean(a.Result),
	}
	if settled > 0 {
		d.Settled = &settled
	}
	if a.Device != device {
		d.Device = a.Device
	}
	switch a.State {
	case coord.Committed:
		d.Status, d.Cause = oplog.StatusCommitted, a.Cause
	case coord.Failed:
		d.Status, d.Cause = oplog.StatusFailed, a.Cause
	case coord.Void:
		d.Status, d.Cause, d.Why = oplog.StatusFailed, oplog.CauseVoid, a.Cause
	default:
		d.Status, d.Cause = oplog.StatusPending, a.Cause
	}
	if a.Exit != 0 || a.State == coord.Committed {
		exit := a.Exit
		d.ExitCode = &exit
	}
	return d
}

// clean makes a caller's words fit into a record: an outcome is never refused for them.
func clean(text string) string {
	const most = 1024
	return strings.ToValidUTF8(text[:min(len(text), most)], "?")
}

// outcomeOf is detailOf read back.
func outcomeOf(device string, o index.Outcome) coord.Outcome {
	d := o.Detail
	a := coord.Attempt{ID: d.Attempt, Device: device, Epoch: coord.Epoch(d.Epoch), Cause: d.Cause, Begun: d.Begun, Ended: d.Ended,
		By: d.By, Reason: d.Reason, Result: d.Result}
	if d.Device != "" {
		a.Device = d.Device
	}
	if d.ExitCode != nil {
		a.Exit = *d.ExitCode
	}
	if a.Ended.IsZero() {
		a.Ended = time.UnixMilli(o.WallMS).UTC()
	}
	a.State, a.Cause = stateOf(d.Status, d.Cause, d.Why)
	a.Abandoned = a.State == coord.Open && d.Abandoned
	return coord.Outcome{Agent: d.Agent, Run: d.RunID, Occurrence: d.Occurrence, Input: d.Input, Attempt: a}
}

func stateOf(status, cause, why string) (coord.State, string) {
	switch {
	case status == oplog.StatusCommitted:
		return coord.Committed, cause
	case status == oplog.StatusFailed && cause == oplog.CauseVoid:
		return coord.Void, why
	case status == oplog.StatusFailed:
		return coord.Failed, cause
	}
	return coord.Open, cause
}

// recordOf is what the judge gets to see.
func recordOf(run string, r index.Record) coord.Record {
	out := coord.Record{Run: run, Attempt: r.Attempt, Device: r.Author, Author: r.Author, Resolver: r.Resolver,
		Epoch: coord.Epoch(r.Epoch), Exit: r.Exit}
	if r.Device != "" {
		out.Device = r.Device
	}
	out.State, out.Cause = stateOf(r.Status, r.Cause, r.Why)
	return out
}
