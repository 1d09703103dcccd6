package main

import (
	"context"
	"fmt"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
)

// wouldRun is a dry run where there is no ledger yet: it makes none.
func wouldRun(job dispatch.Job, nothing error) dispatch.Result {
	return dispatch.Result{Code: dispatch.ExitOK, Ran: dispatch.No, State: coord.RunFree, Message: fmt.Sprintf("%s of agent %s (run %s) was not run: this is a dry run, and it would run now: %v",
		ident.OccurrenceText(job.Occurrence), job.Agent, job.Run, nothing)}
}

// askNode is a dry run through a node: what the ledger says, as the node has it. Nothing is claimed, so what the node has
// claimed for others and not begun yet is not seen.
func (x *execution) askNode(ctx context.Context, c *nodeClient, device string, job dispatch.Job) dispatch.Result {
	ctx, cancel := context.WithTimeoutCause(ctx, x.flags.timeout, fmt.Errorf("the node did not answer within %s (--backend-timeout)", x.flags.timeout))
	defer cancel()
	ledger, err := c.ledger(ctx)
	if err != nil {
		return notRun(fmt.Errorf("the node %s could not be asked for its ledger (it shows it on the socket to its owner, to others by --share coord): %w", c.where, causeOf(ctx, err)))
	}
	defer ledger.Close(context.WithoutCancel(ctx)) // it holds nothing
	d, err := dispatch.New(dispatch.Config{Coordinator: &nodeLedger{ledger, device}, Device: device, BackendTimeout: x.flags.timeout})
	if err != nil {
		return notRun(err)
	}
	r := d.DryRun(ctx, job)
	r.Message += fmt.Sprintf(" (the node %s was asked, and nothing was claimed)", c.where)
	return r
}

// A nodeLedger is a ledger as those see it who run through the node of a device: an agent that the device holds, and of which
// nothing is running, is theirs to use.
type nodeLedger struct {
	coord.Coordinator
	device string
}

// Look implements coord.Ledger.
func (l *nodeLedger) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	v, err := l.Coordinator.Look(ctx, q)
	if err != nil || !v.Held || v.Holder.Device != l.device {
		return v, err
	}
	running, err := l.List(ctx, coord.Filter{Agent: q.Agent, States: []coord.RunState{coord.RunRunning}, Limit: 1})
	if err == nil && len(running.Views)+len(running.Unreadable) == 0 {
		v.Held = false
	}
	return v, err
}
