package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/syncnode/syncnode/coord"
)

var (
	// ErrTimeout is the cause that an effect is stopped with at its time limit.
	ErrTimeout = errors.New("dispatch: time limit reached")
	// ErrLost is the cause that an effect is stopped with when its lease cannot be trusted any more.
	ErrLost = errors.New("dispatch: lease lost")
	// ErrDrain is the cause to cancel a Run with when its host goes down in good order. It is assumed when there
	// is no other.
	ErrDrain = errors.New("dispatch: draining")
)

// An Interrupt is the cause to cancel a Run with when this process was told to end by a signal. The effect is
// stopped with it; nothing run yet, the code is 128 and the signal's number.
type Interrupt struct{ Signal int }

func (e *Interrupt) Error() string { return fmt.Sprintf("interrupted by signal %d", e.Signal) }

// verdicts are the answers of a coordinator that was asked and said no.
var verdicts = []error{
	coord.ErrHeld, coord.ErrLost, coord.ErrInput, coord.ErrCommitted, coord.ErrInDoubt, coord.ErrClosed, coord.ErrNotHeld,
	coord.ErrStale, coord.ErrRecovery, coord.ErrPaused, coord.ErrInProgress, coord.ErrFailed, coord.ErrMoved, coord.ErrNotFound,
}

// refusals are definite too: nothing happened.
var refusals = []error{coord.ErrNotSent, coord.ErrInvalid, coord.ErrFloor, coord.ErrFull, coord.ErrGeneration}

func isVerdict(err error) bool { return matches(err, verdicts) }

// isDefinite says that a request did not happen and never will. An error that nobody knows is not definite.
func isDefinite(err error) bool {
	return !errors.Is(err, coord.ErrIndeterminate) && (matches(err, verdicts) || matches(err, refusals))
}

// isOutage says that nothing happened because the coordinator could not be reached.
func isOutage(err error) bool {
	return !errors.Is(err, coord.ErrIndeterminate) && (errors.Is(err, coord.ErrNotSent) || errors.Is(err, context.DeadlineExceeded))
}

func matches(err error, any []error) bool {
	for _, a := range any {
		if errors.Is(err, a) {
			return true
		}
	}
	return false
}

// interrupted is the result of a run that was told to end before its effect was started.
func (r *run) interrupted(ctx context.Context) Result {
	why := context.Cause(ctx)
	res := r.notRun(why)
	if sig, ok := errors.AsType[*Interrupt](why); ok {
		res.Code = ExitSignal + sig.Signal
	}
	return res
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
