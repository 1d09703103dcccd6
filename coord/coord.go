// Package coord is the contract of a coordinator: the leases that say who may act for an agent,
// and the ledger that says which runs began and how they ended.
//
// # Guarantees
//
// An agent has at most one holder, and every grant carries an epoch that is one above the last: K
// grants give 1..K, except where a floor jumps it, which the lease shows. An epoch outlives every
// process and is never given twice. A lease can be renewed until somebody else took it, also after
// it expired; expiry only permits stealing.
//
// An effect begins only through Begin: one step that holds the lease, the record of the run and the
// gates together. A run with a committed attempt is never begun again, and no attempt is begun beside
// one that is still open. What Finish wrote as committed is never forgotten.
//
// A coordinator does not promise that two processes never believe at the same time that they hold a
// lease; it promises that at most one of them can begin. It cannot stop an effect that was allowed and
// then delayed: hand the epoch to the resource.
//
// # Failure
//
// An error is never a permission. An error that matches [ErrNotSent] says that nothing happened. One
// that matches [ErrIndeterminate] says that the request may have been carried out, or may still be: it
// is settled by asking again for the very same thing, or by giving it up through Cancel or Release.
// Every other error of this package is a verdict: the coordinator was asked and said no.
//
// # Concurrency
//
// A coordinator belongs to one process, and several goroutines may use it at once. Writes for one
// agent are settled one after another. Two processes never share trust, not even two processes of one
// device: each has a liveness of its own.
//
// The conformance suite in coord/coordtest holds a test for every sentence here.
package coord

import (
	"context"
	"time"
)

// MaxEpoch is the greatest epoch, sequence number or counter that is ever written: 2^53-1, the
// greatest integer that every JSON reader keeps exactly.
const MaxEpoch Epoch = 1<<53 - 1

// A floor is refused when it is more than MaxFloorJump above the stored epoch, or above MaxFloor, so
// that one bad record cannot spend all epochs. A person decides then.
const (
	MaxFloorJump Epoch = 1 << 20
	MaxFloor     Epoch = 1 << 48
)

// An Epoch is the fencing token of an agent: it grows by one with each grant and is never reused.
// 0 means that the agent was never held.
type Epoch uint64

// A Request asks for the lease of an agent.
type Request struct {
	Agent  string
	Device string
	// TTL is how long the lease lives without a renewal. It is rounded up to a class (see Granted);
	// 0 gives a lease that can be stolen at once. Above MaxTTL it is refused.
	TTL time.Duration
	// Floor is the highest epoch the caller knows for the agent: what this device was granted, or
	// has folded. The grant is above it.
	Floor Epoch
	// Note is shown beside the holder in lists: the run that the lease was taken for. At most 128 bytes.
	Note string
}

// A Lease is a grant, as the coordinator knows it.
type Lease struct {
	Agent  string
	Device string
	Epoch  Epoch
	// TTL is what was granted, which may be more than was asked for.
	TTL time.Duration
	// Handle identifies this very grant: a process that does not know it is not the holder, whatever
	// its device and epoch. Current shows it; it is no secret.
	Handle string
	// Liveness names the liveness of the process that holds the lease; empty for a lease with TTL 0.
	Liveness string
	// Expired means that the liveness is gone and nobody took the lease yet.
	Expired bool
	// Since is the coordinator's wall time of the grant, for display only.
	Since time.Time
	// Jump is how far a floor moved the epoch beyond one above the last; 0 as a rule.
	Jump Epoch
	// Note is what the request said; By and Reason tell who stole the lease and why.
	Note, By, Reason string
	// Host, Boot, Dir and PID describe the holder's process as it described itself, for display and for proof of death.
	Process Process
	// Sent is the local time before the grant or the last good renewal was sent. Trust in the lease
	// ends at Sent+TTL on the clock of this process. Zero in what Current shows of others.
	Sent time.Time
}

// A Process describes itself beside its liveness. Nothing rests on it but what people read, and, together
// with a lock file that is held for life, the proof that a process is dead.
type Process struct {
	Host string `json:"host,omitempty"`
	Boot string `json:"boot,omitempty"` // the host's boot id
	Dir  string `json:"dir,omitempty"`  // the canonical data directory
	PID  int    `json:"pid,omitempty"`
}

// A LeaseCoordinator grants the leases of agents.
type LeaseCoordinator interface {
	// Acquire grants the lease of req.Agent iff it is unheld or expired: epoch+1, new holder.
	// A lease that is held and not expired gives a *HeldError, also to its own holder.
	Acquire(ctx context.Context, req Request) (Lease, error)

	// Renew extends a lease iff device and epoch are still the holder's and this process is that
	// holder; also after it expired, as long as nobody took it. The epoch never changes. Otherwise a
	// *LostError. A later process of the same device renews only with proof that the earlier one is
	// dead; without it the answer is a *HeldError while the earlier one lives, a *LostError after.
	// The ttl may move the lease to another class.
	Renew(ctx context.Context, agent, device string, epoch Epoch, ttl time.Duration) (Lease, error)

	// Release gives a lease back: the next Acquire is granted at once, with epoch+1. It needs the same
	// as Renew; a lease that was taken meanwhile gives a *LostError and is left alone. Epoch 0 gives up
	// what this process asked for and does not know the outcome of (an Acquire, Start or Steal that gave
	// ErrIndeterminate): nil says that it holds nothing of it and never will.
	Release(ctx context.Context, agent, device string, epoch Epoch) error

	// Current is a linearizable read. It still shows an expired holder that nobody replaced.
	// False means that nobody holds the lease; the Lease then carries only Agent and the last Epoch.
	Current(ctx context.Context, agent string) (Lease, bool, error)
}

// A Theft takes a lease by decision of a person.
type Theft struct {
	Request
	By, Reason string
	// Force takes it even while the holder's liveness is there. Without it that is a *HeldError.
	Force bool
	// Epoch is the epoch that the person looked at; another one gives a *LostError.
	Epoch Epoch
}

// A Steward does what only people ask for.
type Steward interface {
	// Steal grants the lease to the caller whoever holds it.
	Steal(ctx context.Context, t Theft) (Lease, error)
	// Evict releases another's lease by decision of a person. Without force it is refused with a
	// *HeldError while the holder's liveness is there.
	Evict(ctx context.Context, t Theft) error
	// Leases lists the leases that somebody holds, expired ones too, ordered by agent.
	Leases(ctx context.Context) ([]Lease, error)
	// Pause sets the gate of an agent, Resume lifts it. Begin compares it in its own step.
	Pause(ctx context.Context, agent string, g Gate) error
	Resume(ctx context.Context, agent string) error
	// SetRecovery refuses every Begin under the namespace until LiftRecovery. The first one who set it stays shown.
	SetRecovery(ctx context.Context, g Gate) error
	// LiftRecovery lifts the gate that g.ID names, and none other: ErrMoved. Without an ID it lifts whatever stands.
	LiftRecovery(ctx context.Context, g Gate) error
	// Recovery reads the gate; false if there is none.
	Recovery(ctx context.Context) (Gate, bool, error)
}

// A Gate says who closed a gate and why.
type Gate struct {
	// ID tells one recovery gate from every other; it is drawn when the gate is set. A pause has none.
	ID     string    `json:"id,omitempty"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// A Coordinator is all of it, for one process.
type Coordinator interface {
	LeaseCoordinator
	Ledger
	Steward

	// Start is Acquire and Begin in one step: either both happen or neither. Begin's verdicts about the
	// run come first, so a run that was done or is in doubt needs no grant. b.Lease is ignored. Repeated
	// with the same nonces it gives the grant and the attempt of the first time.
	Start(ctx context.Context, req Request, b Begin) (Lease, Attempt, error)

	// Complete is Finish and Release in one round. Each part has its own verdict: Finish never depends
	// on the lease, and a lease that was lost meanwhile does not keep the outcome out of the ledger.
	// finished is nil once the outcome stands in the ledger, released once this lease is not ours any more.
	Complete(ctx context.Context, o Outcome, l Lease) (finished, released error)

	// Generation identifies the ledger behind the namespace: 32 hex digits, drawn once.
	Generation() string

	// Close gives up the liveness of this process: what it still holds expires at once.
	Close(ctx context.Context) error
}
