package dispatch

import (
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

// Every message is one line: what became of this occurrence, why, and what to do next.

// subject names the occurrence as a person knows it.
func subject(j Job) string {
	return fmt.Sprintf("%s of agent %s (run %s)", ident.OccurrenceText(j.Occurrence), j.Agent, j.Run)
}

func say(j Job, format string, args ...any) string {
	return subject(j) + " " + oneLine(fmt.Sprintf(format, args...))
}

// about fills in the attempt that a result rests on.
func about(res Result, v coord.View, a coord.Attempt) Result {
	res.State = v.State
	res.Attempt, res.Epoch, res.Cause = a.ID, a.Epoch, a.Cause
	return res
}

// restsOn is the attempt behind a verdict; the zero Attempt if none is known.
func restsOn(verdict error) coord.Attempt {
	if no, ok := errors.AsType[*coord.VerdictError](verdict); ok {
		return no.Attempt
	}
	return coord.Attempt{}
}

func resultNotRun(j Job, v coord.View, err error) Result {
	next := ""
	switch {
	case errors.Is(err, coord.ErrInput):
		next = "; choose another occurrence, or give the input it was recorded with"
	case errors.Is(err, coord.ErrGeneration):
		next = "; use another data directory, or decide with: syncnode recover adopt"
	case errors.Is(err, coord.ErrFull):
		next = "; free space in etcd: compact, defragment, then etcdctl alarm disarm"
	}
	return Result{Code: ExitNotRun, Ran: No, State: v.State, Err: err, Message: say(j, "was not run: %v%s", err, next)}
}

func resultDone(j Job, v coord.View, verdict error) Result {
	a := restsOn(verdict)
	res := about(Result{Code: ExitOK, Ran: No, Err: verdict}, v, a)
	res.State = coord.RunCommitted
	if j.IfDone == DoneFail {
		res.Code = ExitBusy
	} else {
		res.Err = nil
	}
	res.Message = say(j, "is already committed%s; it was not run again", byline(a))
	return res
}

func resultFailed(j Job, v coord.View, verdict error) Result {
	a := restsOn(verdict)
	res := about(Result{Code: ExitFailed, Ran: No, Err: verdict}, v, a)
	res.Message = say(j, "failed before%s; it was not run again; to run it once more: syncnode run retry %s --reason TEXT", byline(a), j.Run)
	return res
}

func resultGate(j Job, v coord.View, verdict error) Result {
	next := "syncnode agent resume " + j.Agent
	if errors.Is(verdict, coord.ErrRecovery) {
		next = "syncnode recover status"
	}
	return Result{Code: ExitGate, Ran: No, State: v.State, Err: verdict, Message: say(j, "was not run: %v; next: %s", verdict, next)}
}

func resultWitness(j Job, err error) Result {
	return Result{Code: ExitGate, Ran: No, Err: err,
		Message: say(j, "was not run: %v; begins are refused everywhere until a person decides; next: syncnode recover status", err)}
}

func resultRunning(j Job, v coord.View, verdict error) Result {
	a := restsOn(verdict)
	res := about(Result{Code: ExitOK, Ran: No, Err: verdict}, v, a)
	res.State = coord.RunRunning
	where := fmt.Sprintf("is running elsewhere, on %s since %s at epoch %d", orElse(a.Device, "another device"), clock(a.Begun), a.Epoch)
	switch j.IfHeld {
	case HeldSkip:
		res.Err = nil
		res.Message = say(j, "%s; it was not run here", where)
	case HeldWait:
		res.Code = ExitBusy
		res.Message = say(j, "%s, and did not end in the time it was waited for; it was not run here", where)
	default:
		res.Code = ExitBusy
		res.Message = say(j, "%s; it was not run here; to wait for its end: --if-held wait", where)
	}
	return res
}

func resultHeld(j Job, v coord.View) Result {
	h := v.Holder
	busy := fmt.Sprintf("the agent is busy: %s holds it since %s at epoch %d", h.Device, clock(h.Since), h.Epoch)
	if h.Note != "" {
		busy += " for run " + h.Note
	}
	if h.Process.Host != "" {
		busy += fmt.Sprintf(" (pid %d on %s)", h.Process.PID, h.Process.Host)
	}
	next := "; to wait for it: --if-held wait; to see it: syncnode lease show " + j.Agent
	if j.IfHeld == HeldWait {
		next = "; it was waited for in vain; to see it: syncnode lease show " + j.Agent
	}
	return Result{Code: ExitBusy, Ran: No, State: v.State, Err: &coord.HeldError{Holder: h}, Message: say(j, "was not run: %s%s", busy, next)}
}

// resultLostHold is for a lease that was held and is gone: somebody else has the agent, or may have it at once.
func resultLostHold(j Job, v coord.View, err error) Result {
	return Result{Code: ExitBusy, Ran: No, State: v.State, Err: err, Message: say(j, "was not run: the lease is not held any more: %v", err)}
}

func resultDoubt(j Job, v coord.View, verdict error) Result {
	a := restsOn(verdict)
	res := about(Result{Code: ExitInDoubt, Ran: Maybe, Err: verdict}, v, a)
	res.State = coord.RunInDoubt
	no, _ := errors.AsType[*coord.VerdictError](verdict)
	why := "nobody saw how it ended"
	if no != nil && no.Disputed {
		why = "records contradict each other"
	}
	res.Message = say(j, "may have run: attempt %s of %s began %s at epoch %d and %s; it was not run again; look, then decide: "+
		"syncnode run resolve %s --as committed|failed --reason TEXT", orElse(a.ID, "(unknown)"), orElse(a.Device, "another device"),
		clock(a.Begun), a.Epoch, why, j.Run)
	return res
}

// byline tells when and by whom an attempt ended, as far as it is known.
func byline(a coord.Attempt) string {
	if a.ID == "" {
		return ""
	}
	s := fmt.Sprintf("by %s at epoch %d", a.Device, a.Epoch)
	if !a.Ended.IsZero() {
		s = clock(a.Ended) + " " + s
	}
	if a.State == coord.Failed {
		s += ", " + causeOf(a.Cause, a.Exit)
	}
	if a.By != "" {
		s += ", as " + a.By + " decided"
	}
	return " (" + s + ")"
}

func causeOf(cause string, exit int) string {
	switch cause {
	case coord.CauseExit:
		return fmt.Sprintf("exit %d", exit)
	case coord.CauseSignal:
		if exit <= ExitSignal { // it was sent one, and chose its own end
			return fmt.Sprintf("exit %d after a signal", exit)
		}
		return fmt.Sprintf("signal %d", exit-ExitSignal)
	case "":
		return "cause unknown"
	}
	return cause
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format(time.RFC3339)
}
