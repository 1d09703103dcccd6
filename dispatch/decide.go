package dispatch

import (
	"errors"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/fence"
)

// A move is what comes next after a look.
type move int

const (
	end     move = iota // with decision.result
	proceed             // acquire and begin
	wait                // for whoever holds the agent
	probe               // ask about decision.doubt
	gate                // set the recovery gate
	again               // look again: what was looked at has moved
)

// A decision is what the policies make of a verdict.
type decision struct {
	move   move
	result Result        // of end; of the others, what is said if it comes to nothing
	doubt  coord.Attempt // with probe, and with proceed over a doubt: the attempt in doubt
}

// decide applies the job's policies to a verdict: that of the fence, or the refusal of a start. It is pure.
func decide(j Job, v coord.View, verdict error) decision {
	switch {
	case verdict == nil:
		return decideFree(j, v, coord.Attempt{})
	case errors.Is(verdict, fence.ErrWitness):
		return decision{move: gate, result: resultWitness(j, verdict)}
	case errors.Is(verdict, coord.ErrCommitted):
		return decision{result: resultDone(j, v, verdict)}
	case errors.Is(verdict, coord.ErrRecovery), errors.Is(verdict, coord.ErrPaused):
		return decision{result: resultGate(j, v, verdict)}
	case errors.Is(verdict, coord.ErrInProgress):
		return decideRunning(j, v, verdict)
	case errors.Is(verdict, coord.ErrInDoubt):
		return decideDoubt(j, v, verdict)
	case errors.Is(verdict, coord.ErrFailed):
		return decision{result: resultFailed(j, v, verdict)}
	case j.Held != nil && lostHold(verdict):
		return decision{result: resultLostHold(j, v, verdict)}
	case errors.Is(verdict, coord.ErrHeld):
		held, _ := errors.AsType[*coord.HeldError](verdict)
		v.Held, v.Holder = true, held.Holder
		return decideFree(j, v, coord.Attempt{})
	}
	return decision{result: resultNotRun(j, v, verdict)}
}

// decideFree is for a run that may be begun: only the agent can be busy, with another run.
func decideFree(j Job, v coord.View, doubt coord.Attempt) decision {
	if j.Held != nil {
		return decideHeld(j, v, doubt)
	}
	if !v.Held || v.Holder.Expired {
		return decision{move: proceed, doubt: doubt}
	}
	d := decision{result: resultHeld(j, v)}
	if j.IfHeld == HeldWait {
		d.move = wait
	}
	return d
}

// decideHeld begins under the lease that the caller keeps, if it is still there.
func decideHeld(j Job, v coord.View, doubt coord.Attempt) decision {
	l := j.Held.Lease()
	if v.Held && v.Holder.Device == l.Device && v.Holder.Epoch == l.Epoch && v.Holder.Handle == l.Handle {
		return decision{move: proceed, doubt: doubt}
	}
	gone := &coord.HolderError{Kind: coord.ErrNotHeld, Agent: j.Agent, Claimed: l.Epoch}
	if v.Held {
		gone.Holder = v.Holder
	}
	return decision{result: resultLostHold(j, v, gone)}
}

// lostHold says that the lease is not the caller's any more: to look again cannot help.
func lostHold(err error) bool {
	return errors.Is(err, coord.ErrNotHeld) || errors.Is(err, coord.ErrStale)
}

func decideRunning(j Job, v coord.View, verdict error) decision {
	d := decision{result: resultRunning(j, v, verdict)}
	if j.IfHeld == HeldWait {
		d.move = wait
	}
	return d
}

// decideDoubt lets a policy act on a plain doubt only: an open attempt of the ledger whose records agree. Where records
// contradict each other, the device of the attempt or a person decides.
func decideDoubt(j Job, v coord.View, verdict error) decision {
	hold := decision{result: resultDoubt(j, v, verdict)}
	no, ok := errors.AsType[*coord.VerdictError](verdict)
	if !ok || no.Disputed {
		return hold
	}
	a, found := v.Entry.Find(no.Attempt.ID)
	if !found || a.State != coord.Open {
		return hold
	}
	switch j.OnDoubt {
	case DoubtRetry:
		return decideFree(j, v, a)
	case DoubtProbe:
		return decision{move: probe, doubt: a, result: hold.result}
	}
	return hold
}
