package coord

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The answers a caller can act on. Each is matched by the error types below.
var (
	// ErrNotSent: nothing happened and nothing will; the same thing may be tried again.
	ErrNotSent = errors.New("coord: not sent, nothing happened")
	// ErrIndeterminate: it may have happened, or may still. Settle it before trying anything else.
	ErrIndeterminate = errors.New("coord: outcome unknown")
	// ErrHeld: somebody holds the lease and it has not expired.
	ErrHeld = errors.New("coord: held")
	// ErrLost: a newer epoch exists, or the lease was released. Trying again cannot help.
	ErrLost = errors.New("coord: lease lost")
	// ErrUnverifiable: the lease was not renewed in time to be trusted any longer. It may still be ours.
	ErrUnverifiable = errors.New("coord: lease can no longer be verified")
	// ErrReleased: the holder gave the lease back itself.
	ErrReleased = errors.New("coord: lease released")
	// ErrFloor: the floor is too far above the stored epoch; a person has to decide.
	ErrFloor = errors.New("coord: floor refused")
	// ErrInvalid: the request can never be carried out. Nothing happened.
	ErrInvalid = errors.New("coord: invalid request")
	// ErrFull: the backend refuses writes for lack of space. Nothing happened.
	ErrFull = errors.New("coord: backend is out of space")
	// ErrGeneration: the ledger behind the namespace is another one than before.
	ErrGeneration = errors.New("coord: another generation")

	ErrInput      = errors.New("coord: another input was recorded for this run")
	ErrCommitted  = errors.New("coord: already committed")
	ErrInDoubt    = errors.New("coord: in doubt")
	ErrClosed     = errors.New("coord: attempt is closed")
	ErrNotHeld    = errors.New("coord: not the holder")
	ErrStale      = errors.New("coord: stale epoch")
	ErrRecovery   = errors.New("coord: recovery gate is set")
	ErrPaused     = errors.New("coord: agent is paused")
	ErrInProgress = errors.New("coord: run is in progress")
	ErrFailed     = errors.New("coord: run failed before")
	ErrMoved      = errors.New("coord: the entry is not what was judged")
	ErrNotFound   = errors.New("coord: no such run")
	// ErrUnreadable: what the ledger holds of a run cannot be read. Trying again cannot help; a person has to look.
	ErrUnreadable = errors.New("coord: run cannot be read")
)

// An UnreadableError names runs that cannot be read; what was asked was done for all others. It matches ErrUnreadable.
type UnreadableError struct {
	First []UnreadableRun // at most three of them
	Count int             // how many there are
}

func (e *UnreadableError) Error() string {
	var all []string
	for _, r := range e.First {
		all = append(all, fmt.Sprintf("run %s of agent %s: %s", r.Run, r.Agent, r.Reason))
	}
	said := fmt.Sprintf("%d cannot be read: %s", e.Count, strings.Join(all, "; "))
	if more := e.Count - len(e.First); more > 0 {
		said += fmt.Sprintf("; and %d more", more)
	}
	return said
}
func (e *UnreadableError) Is(target error) bool { return target == ErrUnreadable }

// Add takes more of them in: a list of any length keeps three.
func (e *UnreadableError) Add(runs []UnreadableRun) {
	const most = 3
	e.First = append(e.First, runs[:min(len(runs), most-len(e.First))]...)
	e.Count += len(runs)
}

// Err is e; nil if there are none.
func (e *UnreadableError) Err() error {
	if e.Count == 0 {
		return nil
	}
	return e
}

// Unread is an *UnreadableError about runs; nil if there are none.
func Unread(runs []UnreadableRun) error {
	var e UnreadableError
	e.Add(runs)
	return e.Err()
}

// A HeldError says who holds the lease. It matches ErrHeld.
type HeldError struct{ Holder Lease }

func (e *HeldError) Error() string {
	return fmt.Sprintf("agent %s is held by %s at epoch %d%s", e.Holder.Agent, e.Holder.Device, e.Holder.Epoch, since(e.Holder.Since))
}
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A LostError says which epoch was claimed and which is current. It matches ErrLost.
type LostError struct {
	Agent            string
	Claimed, Current Epoch  // Current is 0 if the agent was never held
	Holder           string // the device that holds it now; empty if nobody does
}

func (e *LostError) Error() string {
	return fmt.Sprintf("lease of agent %s lost: claimed epoch %d, current epoch %d, holder %q", e.Agent, e.Claimed, e.Current, e.Holder)
}
func (e *LostError) Is(target error) bool { return target == ErrLost }

// A FloorError says what was refused. It matches ErrFloor and ErrInvalid.
type FloorError struct {
	Agent         string
	Floor, Stored Epoch
}

func (e *FloorError) Error() string {
	return fmt.Sprintf("floor %d for agent %s refused: the stored epoch is %d, and a jump above %d or past %d needs a person", e.Floor, e.Agent, e.Stored, MaxFloorJump, MaxFloor)
}
func (e *FloorError) Is(target error) bool { return target == ErrFloor || target == ErrInvalid }

// An InputError says that this run was recorded with another input. It matches ErrInput.
type InputError struct{ Run, Recorded, Given string }

func (e *InputError) Error() string {
	return fmt.Sprintf("run %s was recorded with input digest %q, not %q", e.Run, e.Recorded, e.Given)
}
func (e *InputError) Is(target error) bool { return target == ErrInput }

// A VerdictError is a no about a run, with the attempt that it rests on. It matches the sentinel Kind:
// ErrCommitted, ErrInDoubt, ErrClosed, ErrInProgress or ErrFailed.
type VerdictError struct {
	Kind    error
	Run     string
	Attempt Attempt
	// Packed means that the run is committed and no more is known.
	Packed bool
	// Disputed means that records contradict each other.
	Disputed bool
}

func (e *VerdictError) Error() string {
	if e.Packed {
		return fmt.Sprintf("%v: run %s", e.Kind, e.Run)
	}
	return fmt.Sprintf("%v: run %s, attempt %s of %s at epoch %d", e.Kind, e.Run, e.Attempt.ID, e.Attempt.Device, e.Attempt.Epoch)
}
func (e *VerdictError) Is(target error) bool { return target == e.Kind }

// A HolderError says that the caller is not the holder at the epoch it claims. It matches ErrNotHeld if
// another device or nobody holds the lease, ErrStale if it is the same device under another grant.
type HolderError struct {
	Kind    error
	Agent   string
	Claimed Epoch
	Holder  Lease // zero if nobody holds it
}

func (e *HolderError) Error() string {
	if e.Holder.Device == "" {
		return fmt.Sprintf("%v of agent %s: claimed epoch %d, nobody holds it", e.Kind, e.Agent, e.Claimed)
	}
	return fmt.Sprintf("%v of agent %s: claimed epoch %d, %s holds it at epoch %d", e.Kind, e.Agent, e.Claimed, e.Holder.Device, e.Holder.Epoch)
}
func (e *HolderError) Is(target error) bool { return target == e.Kind }

// A GateError says which gate is closed. It matches ErrPaused or ErrRecovery.
type GateError struct {
	Kind  error
	Agent string // empty for the recovery gate
	Gate  Gate
}

func (e *GateError) Error() string {
	return fmt.Sprintf("%v: by %s%s: %q", e.Kind, e.Gate.By, since(e.Gate.At), e.Gate.Reason)
}
func (e *GateError) Is(target error) bool { return target == e.Kind }

// A MovedError carries the run as it is. It matches ErrMoved.
type MovedError struct{ View View }

func (e *MovedError) Error() string {
	return fmt.Sprintf("%v: run %s is %s now", ErrMoved, e.View.Entry.Run, e.View.State)
}
func (e *MovedError) Is(target error) bool { return target == ErrMoved }

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + t.UTC().Format(time.RFC3339)
}
