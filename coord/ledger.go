package coord

import (
	"context"
	"time"
)

// A State is the state of an attempt in the ledger.
type State string

const (
	// Open: it passed the fence, and nobody has said yet how it ended.
	Open State = "open"
	// Void: the effect never started.
	Void State = "void"
	// Failed: its end was seen, and it was not success.
	Failed State = "failed"
	// Committed: success was seen, or a person or a probe says so. Final.
	Committed State = "committed"
)

// Causes of a state that is not plain success or a plain exit code.
const (
	CauseExit     = "exit"     // the effect ended by itself; Exit has its code
	CauseSignal   = "signal"   // it ended by a signal, Exit is 128+n; or by itself after one was passed on
	CauseTimeout  = "timeout"  // it was stopped and joined at its time limit
	CauseLost     = "lost"     // it was stopped and joined because the lease could not be trusted any more
	CauseDrain    = "drain"    // it was stopped and joined because its host went down in good order
	CauseStart    = "start"    // it could not be started
	CauseGivenUp  = "given-up" // its Begin was given up
	CauseNever    = "never"    // it is proved that it never started
	CauseResolved = "resolved" // a person or a probe decided
	CauseRetried  = "retried"  // it was closed in the step that opened the next attempt
)

// An Attempt is one try at a run.
type Attempt struct {
	ID      string `json:"id"`      // 32 hex digits, drawn once
	Request string `json:"request"` // the nonce of the one Begin call that may get yes, 32 hex digits
	Device  string `json:"device"`
	// Liveness is that of the process that began it; while it is there an open attempt is running.
	Liveness string    `json:"liveness,omitempty"`
	Epoch    Epoch     `json:"epoch"`
	State    State     `json:"state"`
	Cause    string    `json:"cause,omitempty"`
	Exit     int       `json:"exit,omitempty"`
	Begun    time.Time `json:"begun"`
	Ended    time.Time `json:"ended,omitzero"`
	// By is who decided, when it was not the device itself; Reason is what they gave.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// At is the head of the device's own chain when the attempt began: a journal that does not hold it
	// proves nothing about the attempt.
	At Position `json:"at,omitzero"`
	// Abandoned marks an open attempt whose device gave it up: in doubt whatever the liveness says.
	Abandoned bool `json:"abandoned,omitempty"`
	// Permitted marks a failed attempt that stands in no other's way: a person permitted one more (see
	// Ledger.Permit), and By and Reason tell who and why.
	Permitted bool `json:"permitted,omitempty"`
	// Result is at most 1 KiB of the caller's own words about the outcome.
	Result string `json:"result,omitempty"`
}

// A Position is a place in a device's chain. The zero Position is the empty chain.
type Position struct {
	Next uint64 `json:"next"`           // the sequence number that the next op of the chain will have
	Head string `json:"head,omitempty"` // the id of the last op; empty iff Next is 0
}

// An Entry is what the ledger holds of one run.
type Entry struct {
	Agent string
	Run   string
	// Occurrence is `key:TEXT` or `at:INSTANT`; empty if only the id is kept.
	Occurrence string
	// Input is the lower-case hex SHA-256 of the input; empty means that there was none, which is
	// a digest of its own.
	Input    string
	Attempts []Attempt
	// Packed means that only the fact of the commit is kept.
	Packed bool
}

// A RunState is the state of a run: a pure function of its attempts, see [StateOf].
type RunState string

const (
	RunFree      RunState = "free"
	RunRunning   RunState = "running"
	RunInDoubt   RunState = "in doubt"
	RunFailed    RunState = "failed"
	RunCommitted RunState = "committed"
)

// A View is what one linearizable read says about a run and its agent.
type View struct {
	Entry Entry
	Found bool
	// State is StateOf the attempts with Alive.
	State RunState
	// Alive tells for each open attempt's liveness whether it is there.
	Alive map[string]bool
	// Holder is the agent's lease; Held is false if nobody holds it.
	Holder Lease
	Held   bool
	// Paused and Recovery are the gates that stand.
	Paused, Recovery *Gate
	// Witness tells for each run asked for whether the ledger knows a closed attempt of it.
	Witness map[string]bool
}

// A Question is what Look wants to know.
type Question struct {
	Agent, Run string
	// Witnesses are other runs, as agent and run, whose presence proves that the ledger did not go back.
	Witnesses []RunRef
}

// A RunRef names a run of an agent.
type RunRef struct{ Agent, Run string }

// A Begin asks for the permission to start an effect.
type Begin struct {
	// Lease is the grant under which it begins: agent, device, epoch and handle are compared.
	Lease      Lease
	Run        string
	Occurrence string
	Input      string // see Entry.Input
	// Attempt and Request are fresh random nonces, see NewNonce. The same pair asks the same question
	// again; a new question needs a new pair.
	Attempt, Request string
	// At is the head of the device's chain.
	At Position
	// RetryFailed permits a new attempt over a failed one.
	RetryFailed bool
	// Retry, if set, is the id of the open attempt in doubt that is closed as failed{retried} in the same
	// step that opens this one. An attempt whose liveness is there gives ErrInProgress.
	Retry string
}

// An Outcome says how an attempt ended.
type Outcome struct {
	Agent, Run string
	Occurrence string // used when the entry has to be made anew
	Input      string
	// Attempt is the attempt as it ended: ID, Device, Epoch, State, Cause, Exit, Ended, Result.
	// State is Void, Failed or Committed; or Open with Abandoned.
	Attempt Attempt
}

// A Resolution closes an open attempt, or frees a failed run, by decision of a person or a probe.
type Resolution struct {
	Agent, Run string
	// Attempt is the attempt that was judged; it must be what the entry holds.
	Attempt string
	// From is the state of the attempt when it was judged; empty means Open. Failed frees a failed run.
	From State
	// As is Committed, or Void for "it did not happen".
	As State
	By string
	// Reason is required.
	Reason string
	// Force closes an attempt even while its liveness is there; without it that is ErrInProgress.
	Force bool
}

// A Filter selects entries. Zero fields select all.
type Filter struct {
	Agent  string
	Device string
	States []RunState
	// Since, if set, leaves out runs whose View.Since is before it.
	Since time.Time
	// Limit is at most 1000; 0 is 100. After is the cursor that the last page gave.
	Limit int
	After string
}

// A Page is a part of a list. Next is empty at its end.
type Page struct {
	Views []View
	// Unreadable are the runs in this part of the list of which the ledger holds what cannot be read. Whether the
	// filter selects them is not known but for the agent. They count for the limit.
	Unreadable []UnreadableRun
	Next       string
}

// An UnreadableRun is a run whose entry, or what belongs to it, cannot be read. Nothing is done on top of it.
type UnreadableRun struct{ Agent, Run, Reason string }

// A Ledger records attempts; it is the only thing that lets an effect begin.
type Ledger interface {
	// Look is one linearizable read, in one revision, and proposes nothing.
	Look(ctx context.Context, q Question) (View, error)

	// Begin decides in one step; the first of these that holds is the answer:
	//
	//  1. the entry has another input: *InputError
	//  2. an attempt committed: *VerdictError of kind ErrCommitted
	//  3. the attempt b.Attempt is open: yes to the very same request of this process, else ErrInDoubt
	//  4. the attempt b.Attempt is closed: ErrClosed
	//  5. the agent has no holder, or another device: *HolderError of kind ErrNotHeld; the same device under
	//     another grant: ErrStale
	//  6. the recovery gate: *GateError of kind ErrRecovery
	//  7. the agent is paused: ErrPaused
	//  8. another attempt is open: ErrInProgress if its liveness is there, else ErrInDoubt
	//     (unless b.Retry names it and it is in doubt). If b.Retry names one that the entry does not hold:
	//     *MovedError
	//  9. an attempt failed, and nothing permits another: ErrFailed
	// 10. else the attempt is open, and the effect may start while the lease is trusted.
	//
	// With ErrIndeterminate the attempt may be open or may become so: repeat the same Begin, or Cancel it.
	Begin(ctx context.Context, b Begin) (Attempt, error)

	// Cancel gives a Begin up whose answer is not known, or whose effect will not be started: the attempt
	// is void and can never open again. It returns nil only once that stands in the ledger, or once the
	// ledger can never take the attempt any more. Of b.Lease it needs agent and device, also after a
	// Start. An attempt that another request opened is not touched: ErrInDoubt.
	Cancel(ctx context.Context, b Begin) error

	// Finish records how an attempt ended. It is not fenced: an effect that happened is a fact, whoever
	// holds the lease by now. It may be repeated. Committed wins over void and failed; a second commit of
	// another attempt is kept beside the first; void and failed close only this attempt while it is open. The first
	// result stands; a commit by decision has none, and gets that of the attempt's own device.
	Finish(ctx context.Context, o Outcome) error

	// Resolve closes an attempt as a person decided. What the entry holds is compared in the same step;
	// if it moved: *MovedError with the entry as it is; ErrNotFound if there is no entry. A resolved run
	// whose attempts are all void is free. The same decision may be repeated.
	Resolve(ctx context.Context, r Resolution) (View, error)

	// Permit lets a failed run be begun once more (`run retry`): the next Begin needs no RetryFailed, and
	// the run counts as free until then. r.Attempt is its last failed attempt, r.As, r.From and r.Force are
	// ignored; a run that is not failed, or failed anew, gives a *MovedError.
	Permit(ctx context.Context, r Resolution) (View, error)

	// List shows the runs that the ledger holds entries of, ordered by agent and run id; packed ones are
	// not listed. A run that cannot be read keeps back no other: see Page.Unreadable.
	List(ctx context.Context, f Filter) (Page, error)
}
