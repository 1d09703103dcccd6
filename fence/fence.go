// Package fence answers one question right before an effect: may this attempt act now?
//
// # Guarantees
//
// A run has at most one open attempt, begun only while the caller holds the agent's lease at
// the epoch it claims. A run that the ledger or this device's log knows as committed is not begun.
// What the log knows and the ledger lacks is written into the ledger first, and only then is a verdict
// given. The log can veto and settle; it can never permit: without the ledger's answer there is no yes.
//
// A ledger that lost a run which this device saw finished in it went back in time: that is a WitnessError,
// whatever the ledger says about the run that was asked for.
//
// The fence cannot stop an effect that was allowed and then delayed: hand the epoch to the
// resource, and let the resource refuse the older one.
//
// # Failure
//
// An error is never a permission. It is a verdict of package coord, a *WitnessError, or matches
// coord.ErrNotSent when nothing was recorded and coord.ErrIndeterminate when a repair may have been. Every
// call may be repeated.
//
// # Concurrency
//
// A Fence may be used by several goroutines at once.
package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/coord"
)

// Attempts is what a fence asks of the ledger. A coord.Coordinator has it. Look shows the holder, the gates and the
// attempts at one revision, so that no second read has to agree with the first.
type Attempts interface {
	Look(ctx context.Context, q coord.Question) (coord.View, error)
	Finish(ctx context.Context, o coord.Outcome) error
}

// ErrWitness means that the ledger forgot a run that this device saw finished in it.
var ErrWitness = errors.New("fence: the ledger went back in time")

// A WitnessError names a run that is gone. It matches ErrWitness.
type WitnessError struct{ Gone coord.RunRef }

func (e *WitnessError) Error() string {
	return fmt.Sprintf("%v: run %s of agent %s was finished in it and is gone", ErrWitness, e.Gone.Run, e.Gone.Agent)
}

// Is reports whether target is ErrWitness.
func (e *WitnessError) Is(target error) bool { return target == ErrWitness }

// A Config says what a Fence rests on. Its zero fields mean that there is no such thing.
type Config struct {
	Attempts Attempts // required
	Device   string   // required
	// Dead proves that the process behind a liveness of this device is dead; false proves nothing.
	Dead func(liveness string, p coord.Process) bool
	// Void writes into this device's journal that an attempt never started, if the journal proves it.
	Void func(ctx context.Context, agent, run string, a coord.Attempt) (bool, error)
	// Guard, if set, is asked before Check reads. It is for backends whose linearizable reads may be stale: it
	// must not return nil before a write guarded by the lease went through.
	Guard func(ctx context.Context, l coord.Lease) error
}

// A Fence gives verdicts for one device.
type Fence struct{ cfg Config }

// New returns a Fence.
func New(cfg Config) (*Fence, error) {
	if cfg.Attempts == nil || cfg.Device == "" {
		return nil, errors.New("fence: a ledger and a device are required")
	}
	return &Fence{cfg: cfg}, nil
}

// An Ask is the question before a begin.
type Ask struct {
	Agent, Run, Occurrence, Input string
	// Records are what this device's log says about the run.
	Records []coord.Record
	// Witnesses are runs that this device saw finished in the ledger.
	Witnesses []coord.RunRef
	// RetryFailed says that a failed run may be begun again.
	RetryFailed bool
	// ReadOnly leaves repairs out: the verdict is given as if they had been made.
	ReadOnly bool
}

// rounds bounds how often facts are settled before the verdict: each round more needs a ledger that moved meanwhile.
const rounds = 4

// Verdict looks, settles what the log knows and the ledger lacks, and judges. Nil means that nothing speaks against a
// begin; the ledger has the last word there. The view is what the verdict rests on, with State as ledger and log tell it
// together; it is good whenever the error is a verdict or nil. Who holds the lease plays no part: see View.Holder.
func (f *Fence) Verdict(ctx context.Context, a Ask) (coord.View, error) {
	for round := 1; ; round++ {
		v, err := f.look(ctx, a)
		if err != nil {
			return v, err
		}
		settled, state, verdict, err := f.judge(ctx, a, v)
		if err != nil {
			return v, err
		}
		if !settled || round == rounds {
			v.State = state
			return v, verdict
		}
	}
}

func (f *Fence) look(ctx context.Context, a Ask) (coord.View, error) {
	v, err := f.cfg.Attempts.Look(ctx, coord.Question{Agent: a.Agent, Run: a.Run, Witnesses: a.Witnesses})
	if err != nil {
		return v, fmt.Errorf("look at run %s: %w", a.Run, err)
	}
	for _, w := range a.Witnesses {
		if !v.Witness[w.Run] {
			return v, &WitnessError{Gone: w}
		}
	}
	return v, nil
}
