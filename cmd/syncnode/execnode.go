package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
)

// A nodeRun is one run through a node: the node's device holds the lease and keeps the record, the command is a child of
// this process.
type nodeRun struct {
	x       *execution
	c       *nodeClient
	info    api.NodeInfo
	job     dispatch.Job
	signals <-chan os.Signal
	path    string
	until   time.Time     // how long a node that does not answer is waited for
	request string        // names the claim until it is answered: a repeat gets the same one
	attempt coord.Attempt // as it was begun
}

// through gives the node that runs are to go through; nil if there is none. It is an error if that is not the ledger that
// was asked for.
func (x *execution) through(ctx context.Context) (c *nodeClient, info api.NodeInfo, err error) {
	f := x.flags
	if f.noJournal && f.via.node == "" {
		return nil, info, nil // it has nothing to do with the data directory
	}
	if c, err = f.via.client(f.dataDir); c == nil || err != nil {
		return nil, info, err
	}
	for until := time.Now().Add(f.timeout); ; {
		_, _, err = c.do(ctx, "GET", "/v1/node", nil, &info)
		if err == nil || !passing(err) || time.Now().After(until) || !pause(ctx, 100*time.Millisecond) {
			break
		}
	}
	switch {
	case err != nil && f.via.node == "" && problemName(err) == "":
		return nil, info, nil // it died: go on without it
	case err != nil:
		return nil, info, c.told(err)
	case info.Namespace != f.namespace:
		return nil, info, fmt.Errorf("the node %s serves namespace %s, not %s: give --namespace %[2]s, or --node none to run without the node", c.where, info.Namespace, f.namespace)
	case len(f.endpoints) > 0 && !meets(f.endpoints, info.Endpoints):
		return nil, info, fmt.Errorf("the node %s uses the etcd %s, not %s: leave --endpoints out, or give --node none to run without the node",
			c.where, etcdOf(info), strings.Join(f.endpoints, ","))
	case f.deviceID != "" && f.deviceID != info.Device:
		return nil, info, fmt.Errorf("the node %s is device %s, not %s", c.where, info.Device, f.deviceID)
	}
	return c, info, nil
}

func etcdOf(info api.NodeInfo) string {
	if len(info.Endpoints) == 0 {
		return "in its data directory"
	}
	return strings.Join(info.Endpoints, ",")
}

// meets reports whether two lists have an endpoint in common, however it is spelled: members of one cluster.
func meets(a, b []string) bool {
	bare := func(s string) string {
		_, rest, found := strings.Cut(s, "://")
		if !found {
			rest = s
		}
		return strings.TrimRight(strings.Replace(rest, "localhost:", "127.0.0.1:", 1), "/")
	}
	return slices.ContainsFunc(a, func(s string) bool {
		return slices.ContainsFunc(b, func(t string) bool { return bare(s) == bare(t) })
	})
}

// passing reports whether an answer may be another in a moment, and nothing was begun.
func passing(err error) bool {
	_, silent := errors.AsType[*silence](err)
	name := problemName(err)
	return silent || name == "unavailable" || name == "too-many-requests"
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// run claims, begins, runs the command and tells its end.
func (n *nodeRun) run(ctx context.Context) dispatch.Result {
	n.path = "/v1/runs/" + n.job.Run
	if cmdChanged(n.x.cmd, "ttl") {
		n.x.say("--ttl is not used: the node %s keeps the lease", n.c.where)
	}
	n.until, n.request = time.Now().Add(n.x.flags.timeout), coord.NewNonce()
	var wait time.Time // how long a busy agent is waited for
	if n.job.HeldWait > 0 {
		wait = time.Now().Add(n.job.HeldWait)
	}
	for {
		st, sent, again, err := n.begin(ctx)
		if err == nil {
			return n.begun(ctx, st, sent)
		}
		res, next := n.refused(err)
		busy := next && n.job.IfHeld == dispatch.HeldWait && (wait.IsZero() || time.Now().Before(wait))
		switch {
		case ctx.Err() != nil:
			return n.interrupted(ctx)
		case busy, (problemName(err) == "claim-unknown" || passing(err)) && time.Now().Before(n.until):
		case problemName(err) == "run-in-doubt" && n.job.OnDoubt == dispatch.DoubtProbe:
			if err := n.probe(ctx, err); err != nil {
				res.Message += "; the probe could not tell: " + err.Error()
				return res
			}
		default:
			return res
		}
		if busy {
			n.until = time.Now().Add(n.x.flags.timeout)
		}
		pause(ctx, min(max(again, 100*time.Millisecond), time.Second))
	}
}

// begin claims the run and asks the fence. Whatever the error, nothing of this run was begun here.
func (n *nodeRun) begin(ctx context.Context) (st api.Standing, sent time.Time, again time.Duration, err error) {
	ask := map[string]any{"agent": n.job.Agent, "if_failed": n.job.IfFailed, "on_lost": n.job.OnLost, "hand_over": true, "request": n.request}
	if at, ok := strings.CutPrefix(n.job.Occurrence, "at:"); ok {
		ask["at"] = at
	} else {
		ask["occurrence"] = ident.OccurrenceText(n.job.Occurrence)
	}
	if n.job.Input != "" {
		ask["input_digest"] = n.job.Input
	}
	if n.job.OnDoubt == dispatch.DoubtRetry {
		ask["on_doubt"] = "retry"
	}
	var c api.Claimed
	header, again, err := n.c.do(ctx, "POST", "/v1/runs", ask, &c)
	if _, silent := errors.AsType[*silence](err); !silent {
		n.request = coord.NewNonce()
	}
	if err != nil {
		return st, sent, again, err
	}
	if header.Get("Syncnode-Replayed") != "" {
		return st, sent, 0, &replayed{c}
	}
	n.attempt.Device = c.Device
	request := map[string]any{"claim": c.Claim, "request": coord.NewNonce()}
	for {
		sent = time.Now()
		_, again, err = n.c.do(ctx, "POST", n.path+"/fence", request, &st)
		_, silent := errors.AsType[*silence](err)
		// The very same request again: it hears what the first would have heard.
		if !silent && problemName(err) != "indeterminate" || time.Now().After(n.until) || !pause(ctx, 100*time.Millisecond) {
			return st, sent, again, err
		}
	}
}

// A replayed is the answer to the claim of a run that is committed.
type replayed struct{ api.Claimed }

func (r *replayed) Error() string { return "the run is committed" }

func (n *nodeRun) say(format string, args ...any) string {
	return fmt.Sprintf("%s of agent %s (run %s) %s", ident.OccurrenceText(n.job.Occurrence), n.job.Agent, n.job.Run,
		strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
}

// refused says what a refusal means for the exit code, and whether the agent is busy.
func (n *nodeRun) refused(err error) (res dispatch.Result, busy bool) {
	res = dispatch.Result{Code: dispatch.ExitNotRun, Ran: dispatch.No, Err: err}
	if done, ok := errors.AsType[*replayed](err); ok {
		res.Code, res.State, res.Attempt, res.Epoch, res.Err = dispatch.ExitOK, coord.RunCommitted, done.Attempt, coord.Epoch(done.Epoch), nil
		if n.job.IfDone == dispatch.DoneFail {
			res.Code = dispatch.ExitBusy
		}
		res.Message = n.say("is already committed (by %s at epoch %d); it was not run again", done.Device, done.Epoch)
		return res, false
	}
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		res.Message = n.say("was not run: %v", err)
		return res, false
	}
	res.Attempt, res.Epoch, res.Cause = p.Attempt, coord.Epoch(p.Epoch), p.Cause
	switch problemName(err) {
	case "run-in-progress":
		res.State, busy = coord.RunRunning, true
		if n.job.IfHeld != dispatch.HeldSkip {
			res.Code = dispatch.ExitBusy
			res.Message = n.say("is running elsewhere (%s); it was not run here", p.Detail)
			break
		}
		res.Code, res.Err = dispatch.ExitOK, nil
		res.Message = n.say("is running elsewhere (%s); it was not run here", p.Detail)
	case "agent-held":
		res.Code, busy = dispatch.ExitBusy, true
		res.Message = n.say("was not run: the agent is busy: %s; to wait for it: --if-held wait", p.Detail)
	case "run-in-doubt":
		res.Code, res.Ran, res.State = dispatch.ExitInDoubt, dispatch.Maybe, coord.RunInDoubt
		res.Message = n.say("may have run: %s; it was not run again; look, then decide: syncnode run resolve %s --as committed|failed --reason TEXT", p.Detail, n.job.Run)
	case "run-failed":
		res.Code, res.State = dispatch.ExitFailed, coord.RunFailed
		res.Message = n.say("failed before (%s); it was not run again; to run it once more: syncnode run retry %s --reason TEXT", p.Detail, n.job.Run)
	case "agent-paused", "recovery":
		res.Code = dispatch.ExitGate
		res.Message = n.say("was not run: %s", p.Detail)
	default:
		res.Message = n.say("was not run: %s: %s", p.Title, p.Detail)
	}
	return res, busy
}

func (n *nodeRun) interrupted(ctx context.Context) dispatch.Result {
	why := context.Cause(ctx)
	res := dispatch.Result{Code: dispatch.ExitNotRun, Ran: dispatch.No, Err: why, Message: n.say("was not run: %v", why)}
	if sig, ok := errors.AsType[*dispatch.Interrupt](why); ok {
		res.Code = dispatch.ExitSignal + sig.Signal
	}
	return res
}

// probe asks the user's program about the attempt in doubt, and has the node record its answer.
func (n *nodeRun) probe(ctx context.Context, doubt error) error {
	p, _ := errors.AsType[*api.Problem](doubt)
	happened, known, err := n.x.probe(ctx, dispatch.Permit{Run: n.job.Run, Agent: n.job.Agent, Occurrence: n.job.Occurrence, Epoch: coord.Epoch(p.Epoch), Attempt: p.Attempt})
	if err != nil {
		return err
	}
	if !known {
		return errors.New("it does not know")
	}
	as, says := "failed", "it did not happen"
	if happened {
		as, says = "committed", "it happened"
	}
	var run api.Run
	_, _, err = n.c.do(ctx, "POST", n.path+"/resolve", map[string]any{"agent": n.job.Agent, "attempt": p.Attempt, "as": as, "by": "probe",
		"reason": "the probe says that " + says}, &run)
	if problemName(err) == "moved" {
		return nil // look again
	}
	return err
}

// begun runs the command under the permission of the fence.
func (n *nodeRun) begun(ctx context.Context, st api.Standing, sent time.Time) dispatch.Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := newLink(n.c, n.path, st, sent, func() { cancel(dispatch.ErrDrain) })
	beating, stop := context.WithCancel(context.Background())
	var beats sync.WaitGroup
	beats.Go(func() { l.beat(beating) })
	defer beats.Wait()
	defer stop() // not before the end is told: silence would make it a doubt
	n.attempt = coord.Attempt{ID: st.Attempt, Device: n.attempt.Device, Epoch: coord.Epoch(st.Epoch), Begun: sent.Round(0).UTC()}
	p := dispatch.Permit{Run: n.job.Run, Agent: n.job.Agent, Occurrence: n.job.Occurrence, Epoch: coord.Epoch(st.Epoch), Attempt: st.Attempt,
		Trusted: l.Trusted, Fence: l.check}
	if n.job.Timeout > 0 {
		p.Deadline = time.Now().Add(n.job.Timeout)
	}
	res := dispatch.Result{Attempt: st.Attempt, Epoch: coord.Epoch(st.Epoch), ExitCode: -1}
	eff, err := n.x.start(n.job, p, n.signals)
	if err != nil {
		return n.notStarted(res, err)
	}
	w := dispatch.Watch(ctx, n.job, l, eff, p.Deadline)
	return n.ended(res, w)
}
