package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/identity"
	"github.com/syncnode/syncnode/internal/book"
)

// notStarted gives the begin back: nothing happened.
func (n *nodeRun) notStarted(res dispatch.Result, why error) dispatch.Result {
	res.Code, res.Ran, res.State, res.Cause, res.Err = dispatch.ExitNotRun, dispatch.No, coord.RunFree, coord.CauseStart, why
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](why); ok {
		res.Code = coded.ExitCode()
	}
	res.Message = n.say("was not run: %v", why)
	_, kept, err := n.tell("/fail", map[string]any{"attempt": res.Attempt, "agent": n.job.Agent, "ran": "no"}, n.outcome(coord.Void, coord.CauseStart, 0))
	switch {
	case err == nil:
	case kept:
		res.Unsettled, res.Err = true, errors.Join(res.Err, err)
		res.Message += fmt.Sprintf("; the node could not be told (%v): its attempt is recorded as open until the node writes the journal's word into the ledger", err)
	default:
		res.State = coord.RunInDoubt
		res.Message += fmt.Sprintf("; the node could not be told (%v): its attempt may be recorded as open, in doubt: syncnode run resolve %s --as failed --reason TEXT", err, n.job.Run)
	}
	return res
}

// ended tells the node how the command ended.
func (n *nodeRun) ended(res dispatch.Result, w dispatch.Watched) dispatch.Result {
	e := w.Ended
	res.Code, res.Ran, res.Cause, res.Err, res.ExitCode, res.Signal, res.Left = w.Code, dispatch.Yes, w.Cause, w.Why, e.ExitCode, e.Signal, e.Left
	body := map[string]any{"attempt": res.Attempt, "agent": n.job.Agent, "result": e.Result}
	verb := "/fail"
	switch w.State {
	case coord.Committed:
		res.State, verb = coord.RunCommitted, "/commit"
		res.Message = n.say("was run: committed at epoch %d", res.Epoch)
	case coord.Failed:
		res.State = coord.RunFailed
		body["cause"], body["exit_code"], body["signal"] = w.Cause, max(0, e.ExitCode), e.Signal
		res.Message = n.say("was run: failed (%s) at epoch %d", failedHow(w), res.Epoch)
	default:
		res.State, body["ran"] = coord.RunInDoubt, "maybe"
		res.Message = n.say("was run, and its end could not be seen; it is in doubt; look, then decide: syncnode run resolve %s --as committed|failed --reason TEXT", n.job.Run)
	}
	o := n.outcome(w.State, w.Cause, e.Code())
	o.Attempt.Result = e.Result
	got, kept, err := n.tell(verb, body, o)
	switch {
	case w.State == coord.Open:
	case err != nil && kept:
		res.Unsettled, res.Err = true, errors.Join(res.Err, err)
		if w.Why == nil {
			res.Code = dispatch.ExitUnsettled
		}
		res.Message += fmt.Sprintf("; the node could not be told (%v); the outcome is in the journal and not in the ledger yet; the node writes it when it is back", err)
	case err != nil:
		res.Code, res.State, res.Err = dispatch.ExitInDoubt, coord.RunInDoubt, errors.Join(res.Err, err)
		res.Message += fmt.Sprintf("; the node could not be told (%v), so the run is in doubt: syncnode run resolve %s --as committed|failed --reason TEXT", err, n.job.Run)
	case !got.Settled:
		res.Unsettled = true
		if w.Why == nil {
			res.Code = dispatch.ExitUnsettled
		}
		res.Message += "; the outcome is in the node's journal and not in the ledger yet; the node writes it"
	}
	return res
}

func failedHow(w dispatch.Watched) string {
	switch w.Cause {
	case coord.CauseExit:
		return fmt.Sprintf("exit %d", w.Ended.ExitCode)
	case coord.CauseSignal:
		return fmt.Sprintf("signal %d", w.Ended.Signal)
	}
	return w.Cause
}

// outcome is the attempt as it ended.
func (n *nodeRun) outcome(state coord.State, cause string, exit int) coord.Outcome {
	a := n.attempt
	a.State, a.Cause, a.Exit, a.Ended = state, cause, exit, time.Now().Round(0).UTC()
	return coord.Outcome{Agent: n.job.Agent, Run: n.job.Run, Occurrence: n.job.Occurrence, Input: n.job.Input, Attempt: a}
}

// tellTime is how long the node is told an end: it may be started anew meanwhile. A variable for tests.
var tellTime = 30 * time.Second

// firstTell is how long the first answer is waited for before the end is also written down here, and keepTime how long that may take on a
// disk that is slow, or where the journal is in use.
const (
	firstTell = 5 * time.Second
	keepTime  = 30 * time.Second
)

// tell repeats the end until it is recorded, or telling it again cannot help. Nothing that ends the wait of others ends
// this. A node that does not answer at first may not be back before this process is gone: then the end goes into the journal at
// once, which kept says.
func (n *nodeRun) tell(verb string, body map[string]any, o coord.Outcome) (got api.Ended, kept bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	for within := min(firstTell, tellTime); ; within = tellTime {
		ask, done := context.WithTimeout(ctx, within)
		_, _, err = n.c.do(ask, "POST", n.path+verb, body, &got)
		done()
		name := problemName(err)
		_, silent := errors.AsType[*silence](err)
		again := silent || passing(err) || name == "not-recorded" || name == "run-in-progress" || name == "indeterminate"
		switch {
		case err == nil:
			return got, kept, nil
		case !again:
			return got, false, err // nor does it take the journal's word
		}
		if !kept {
			kept = n.keep(o)
		}
		if !pause(ctx, 250*time.Millisecond) {
			return got, kept, err
		}
	}
}

// keep writes an end into the journal of the node's device, and says whether it stands there. The node settles what it finds in its
// journal, as it does with what killed processes left. It is possible only where the journal is this data directory's, and this
// user's: a file of another user's would keep the node out.
func (n *nodeRun) keep(o coord.Outcome) bool {
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	f := n.x.flags
	if o.Attempt.State == coord.Open || n.c.where != "unix:"+nodeSocket(f.dataDir) {
		return false
	}
	d := device{name: o.Attempt.Device, dataDir: f.dataDir, dir: identity.OpenClusters(f.dataDir).Dir(f.namespace, n.info.Generation), segment: f.segment}
	info, err := os.Stat(book.JournalDir(d.dir, d.name))
	if err != nil {
		return false
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return false
	}
	b, err := d.openBook(ctx)
	if err == nil {
		defer b.Close()
		err = b.Outcome(ctx, o)
	}
	if err != nil {
		n.x.say("the end of run %s could not be written into the journal: %v", o.Run, err)
	}
	return err == nil
}
