// Package rules holds the decisions of the coordinator's contract, so that every implementation takes them
// in the same way and only has to make its reads and its write one step.
//
// # Guarantees
//
// Every function is pure: what it returns is a function of its arguments, which it does not change. None
// of them ever forgets a committed or an open attempt, and trimming never changes the state of a run.
//
// # Failure
//
// The errors are the verdicts of package coord. An error is never a permission.
//
// # Concurrency
//
// All functions may be called at once.
package rules

import (
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// Facts is what one step sees of a run and its agent.
type Facts struct {
	Entry coord.Entry // Agent and Run are set, also when it was not found
	Found bool
	// Epoch is the agent's stored epoch. Holder is its lease; Held is false if nobody holds it.
	Epoch  coord.Epoch
	Holder coord.Lease
	Held   bool
	// Ours means that this very process holds it: own process and own handle.
	Ours             bool
	Paused, Recovery *coord.Gate
	// Alive tells whether a liveness is there; nil means none.
	Alive func(liveness string) bool
	// Self tells whether a liveness is one of this process.
	Self func(liveness string) bool
}

// View is what Look shows of the facts.
func (f Facts) View() coord.View {
	v := coord.View{Entry: Clone(f.Entry), Found: f.Found, State: f.state(), Alive: map[string]bool{},
		Holder: f.Holder, Held: f.Held, Paused: f.Paused, Recovery: f.Recovery}
	v.Holder.Sent = time.Time{}
	if !f.Held {
		v.Holder = coord.Lease{Agent: f.Entry.Agent, Epoch: f.Epoch}
	}
	for _, a := range f.Entry.Attempts {
		if a.State == coord.Open && a.Liveness != "" {
			v.Alive[a.Liveness] = f.Alive != nil && f.Alive(a.Liveness)
		}
	}
	return v
}

func (f Facts) state() coord.RunState {
	if f.Entry.Packed {
		return coord.RunCommitted
	}
	return coord.StateOf(f.Entry.Attempts, f.Alive)
}

// Witness reports whether the entry proves that the ledger remembers: it is packed, or holds a closed attempt.
func Witness(e coord.Entry) bool {
	_, closed := e.Last(func(a coord.Attempt) bool { return a.State != coord.Open })
	return e.Packed || closed
}

// Clone returns a copy that shares no memory with e.
func Clone(e coord.Entry) coord.Entry {
	e.Attempts = append([]coord.Attempt(nil), e.Attempts...)
	return e
}

// Matches reports whether the filter selects the run of v.
func Matches(f coord.Filter, v coord.View) bool {
	if f.Agent != "" && f.Agent != v.Entry.Agent {
		return false
	}
	if f.Device != "" {
		if _, ok := v.Entry.Last(func(a coord.Attempt) bool { return a.Device == f.Device }); !ok {
			return false
		}
	}
	if !f.Since.IsZero() && v.Since().Before(f.Since) {
		return false
	}
	for _, s := range f.States {
		if s == v.State {
			return true
		}
	}
	return len(f.States) == 0
}

// NextEpoch is the epoch of the next grant: one above the stored epoch, the holder's and the floor. jump is
// how far the floor moved it. A floor that is too high gives a *coord.FloorError.
func NextEpoch(agent string, stored, holder, floor coord.Epoch) (next, jump coord.Epoch, err error) {
	last := max(stored, holder)
	if floor > coord.MaxFloor || floor > last && floor-last > coord.MaxFloorJump {
		return 0, 0, &coord.FloorError{Agent: agent, Floor: floor, Stored: last}
	}
	next = max(last, floor) + 1
	if next > coord.MaxEpoch {
		return 0, 0, fmt.Errorf("%w: the epochs of agent %s are spent", coord.ErrInvalid, agent)
	}
	return next, next - last - 1, nil
}
