package dispatch

import (
	"github.com/syncnode/syncnode/coord"
)

// Ran tells whether the effect ran in this call. An occurrence that ran in an earlier call, or runs elsewhere, is No
// here; State tells about it.
type Ran string

const (
	No    Ran = "no"
	Yes   Ran = "yes"
	Maybe Ran = "maybe" // an earlier attempt may have run
)

// A Result says what became of a run.
type Result struct {
	// Code is one of the Exit constants, or the effect's own code.
	Code int
	Ran  Ran
	// State is the run's state as far as it is known; empty if the ledger was not reached.
	State coord.RunState
	// Attempt and Epoch are those of the attempt that the result rests on; empty and 0 if there is none.
	Attempt string
	Epoch   coord.Epoch
	// Cause is that attempt's cause, see the Cause constants of package coord.
	Cause string
	// ExitCode and Signal are the effect's own, if it ran and ended. ExitCode is -1 if a signal ended it.
	ExitCode int
	Signal   int
	// Unsettled means that the outcome stands in the journal and not in the ledger yet.
	Unsettled bool
	// Left means that a part of the effect is still there after KILL. Its lease was not given back: it ends with this
	// process, or a person takes it; whoever keeps it for Job.Held does the same.
	Left bool
	// Message is one line for a person. It holds the words "was not run", "was run" or "may have run".
	Message string
	// Err is what stood in the way, for errors.Is; nil if nothing did.
	Err error
}
