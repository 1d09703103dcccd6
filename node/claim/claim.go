// Package claim lets clients of a node be the effect of a run: they claim it, ask the fence, act, and tell the end.
//
// # Guarantees
//
// A claim reserves an agent for one run, in the memory of the node: nothing of it is recorded, and when it is lost the
// run is free. Fence is the begin of package dispatch; only its nil is a permission, and it is given to one request: a
// repeat of the very same request hears the same, every other request of the run hears no. So a client that crashed after
// its effect does not get a second yes.
//
// A client is gone when nothing was heard of it for the TTL that was granted. Before the fence that leaves nothing; after
// it the run is in doubt, at once and loudly, and the agent is free again. A client that obeys the Standing of the last
// answer it got has ended before that, and before the lease can end, also when this node is dead.
//
// The end that a client tells is recorded once, with its result; another is refused. It may be told again, and told late to a later process of the same
// device: what happened is a fact. A commit also overrides what others decided meanwhile; see coord.Ledger.
//
// Not promised: that a client obeys. What it does at a resource after its Standing ended, the resource has to refuse by
// the epoch.
//
// # Failure
//
// An error of Claim or Fence means that nothing was begun for the caller. It is a verdict of package coord, one of this
// package, or one that matches coord.ErrNotSent or coord.ErrIndeterminate. An error of End means that the end is not
// recorded yet, unless it is a *ClosedError; it may be told again.
//
// # Concurrency
//
// A Desk may be used by several goroutines at once. Run owns its goroutines and has waited for them when it returns.
package claim

import (
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
)

// The answers of a Desk that are its own.
var (
	// ErrUnknown: there is no such claim here. It was lost or given up, and nothing was begun by it: claim again.
	ErrUnknown = errors.New("claim: no such claim here")
	// ErrFenced: another request of this claim was let through the fence, or is asking.
	ErrFenced = errors.New("claim: another request passed the fence already")
	// ErrSilent: nothing was heard of the client for the granted TTL.
	ErrSilent = errors.New("claim: the client was not heard of")
	// ErrStopped: the client was told to stop and did not tell its end in time.
	ErrStopped = errors.New("claim: the client did not tell its end in time")
	// ErrDraining: the node goes down and takes no new claims. Nothing was begun.
	ErrDraining = errors.New("claim: the node is going down")
	// ErrForeign: the attempt is that of another device; its end has to be told there.
	ErrForeign = errors.New("claim: the attempt belongs to another device")
	// ErrGone: the client went away before it could be told yes; nothing was begun.
	ErrGone = errors.New("claim: the client went away before the answer")
)

// A BusyError says that this node uses the agent for a run already. It matches coord.ErrInProgress if it is the run that
// was asked for, else coord.ErrHeld.
type BusyError struct {
	Agent, Run string // that has the agent
	Asked      string // the run that was asked for
	Device     string
	Epoch      coord.Epoch // 0 if it is not known yet
	Attempt    string      // empty before the fence
}

func (e *BusyError) Error() string {
	if e.Run == e.Asked {
		return fmt.Sprintf("run %s is claimed already, at %s", e.Run, e.Device)
	}
	return fmt.Sprintf("agent %s is busy with run %s, at %s", e.Agent, e.Run, e.Device)
}

// Is says what it is to the one who asked.
func (e *BusyError) Is(target error) bool {
	if e.Run == e.Asked {
		return target == coord.ErrInProgress
	}
	return target == coord.ErrHeld
}

// A RefusedError says why the fence did not let a claim through. It matches what the result rests on.
type RefusedError struct{ Result dispatch.Result }

func (e *RefusedError) Error() string { return e.Result.Message }
func (e *RefusedError) Unwrap() error { return e.Result.Err }

// A ClosedError says that the attempt ended otherwise than it is told now: in another state, or with another result or exit code. It
// matches coord.ErrClosed.
type ClosedError struct {
	Run     string
	Attempt coord.Attempt // as it is recorded
	Told    coord.State   // what it is told to be now
}

func (e *ClosedError) Error() string {
	said := fmt.Sprintf("attempt %s of run %s is recorded as %s already", e.Attempt.ID, e.Run, e.Attempt.State)
	if e.Told == e.Attempt.State {
		said += ", with another result or exit code; the first stands, and what is told now is not kept"
	}
	return said
}
func (e *ClosedError) Is(target error) bool { return target == coord.ErrClosed }

// An Ask is what a client wants to run.
type Ask struct {
	Agent      string
	Occurrence string // `key:TEXT` or `at:INSTANT`
	Input      string // lower-case hex SHA-256; empty: none
	// Request is the client's own nonce for this request; empty if it has none. A repeat with the same one hears the
	// same answer as long as the claim was not used.
	Request string

	IfFailed dispatch.IfFailed
	OnDoubt  dispatch.OnDoubt // hold or retry: a probe is the client's affair
	OnLost   dispatch.OnLost
	// HandOver gives the agent back with the end of the run, before that is answered, instead of keeping it for a while:
	// the next run is expected elsewhere.
	HandOver bool
}

// A Claim is a reservation.
type Claim struct {
	ID, Run    string
	Agent      string
	Occurrence string
	Device     string
	Epoch      coord.Epoch
	TTL        time.Duration // the client is gone if nothing was heard of it for that long
}

// A Standing says how long a client may go on. Instants are those of this node's clock; for another machine only the
// spans from when it sent its request count.
type Standing struct {
	Run, Agent, Attempt string // Attempt is empty before the fence
	Epoch               coord.Epoch
	TTL                 time.Duration
	At                  time.Time // of this answer
	StopBy              time.Time // begin to stop unless there is a newer Standing
	Deadline            time.Time // be gone
	Stop                error     // not nil: stop now, because of it
}

// An End is what a client tells about its attempt.
type End struct {
	Agent, Run string // Agent may be empty: then the run is looked for
	Attempt    string
	// State is Committed, Failed, Void for "it never started", or Open for "it ran and its end cannot be learned".
	State  coord.State
	Cause  string // of Failed: one of the coord.Cause constants; empty: exit or signal
	Exit   int
	Signal int
	Result string // at most coord.MaxResult bytes
}

// An Ended says how an attempt stands after its end was told.
type Ended struct {
	Agent, Run, Attempt string
	Epoch               coord.Epoch
	State               coord.RunState
	Cause               string
	// Settled is false if the end stands in the journal of this node and not in the ledger yet.
	Settled bool
}
