package dispatch

import (
	"context"
	"errors"

	"github.com/syncnode/syncnode/coord"
)

// ErrVoided means that the attempt was declared never started, in this very journal: it must not start.
var ErrVoided = errors.New("dispatch: attempt was voided")

// A Book is the durable memory of one device, as a run needs it. Each method takes the journal's lock for
// the time it works and for no longer: never while a child runs, never across the network.
//
// A Book may be used by several goroutines and by several processes over one directory.
type Book interface {
	// Standing reads what the device knows, in one step.
	Standing(ctx context.Context, agent, run string) (Standing, error)

	// Pending appends the pending intent of an attempt and returns when it is on stable storage.
	// ErrVoided if a void for the attempt stands in the journal. On any other error nothing of it will
	// ever be read back as pending, or the error says that the journal must be reopened; either way the
	// effect must not start.
	Pending(ctx context.Context, o coord.Outcome) error

	// Outcome appends how an attempt ended and returns when it is on stable storage. It may be repeated.
	Outcome(ctx context.Context, o coord.Outcome) error

	// Settled notes that the ledger holds the outcome of these attempts. It is a hint that spares the next
	// process a question: it may be lost.
	Settled(ctx context.Context, attempts ...string) error

	// Void writes into the journal that an attempt never started, if the journal proves it: it holds the
	// position the attempt noted at its begin, and no pending of it. False if it proves nothing. The
	// caller must have proof that the process of the attempt is dead, or rely on Pending's ErrVoided.
	Void(ctx context.Context, agent, run string, a coord.Attempt) (bool, error)

	// Granted notes the epoch of a grant, so that it is a floor for ever.
	Granted(ctx context.Context, agent string, e coord.Epoch) error
}

// A Standing is what a device's own journal says before a run.
type Standing struct {
	// At is the head of the own chain.
	At coord.Position
	// Floor is the highest epoch of the agent that this device was granted or has folded.
	Floor coord.Epoch
	// Witnesses are the last runs that this device saw finished in the ledger, newest first, at most two.
	Witnesses []coord.RunRef
	// Unsettled are outcomes in the journal that the ledger is not known to hold, oldest first, at most 128.
	Unsettled []coord.Outcome
	// Records are what the own journal says about this run.
	Records []coord.Record
}
