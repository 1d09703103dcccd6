package claim

import (
	"fmt"
	"sync"
	"time"

	"github.com/syncnode/syncnode/dispatch"
)

// An effect is what a client does, as far as it tells.
type effect struct {
	done chan struct{} // closed with ended

	mu      sync.Mutex
	ended   dispatch.Ended // guarded by mu until done is closed
	over    bool
	cause   error     // it was told to stop; nil: not
	causeAt time.Time // when
}

// Stop has the client's next heartbeat told.
func (e *effect) Stop(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause == nil {
		e.cause, e.causeAt = cause, time.Now()
	}
}

// Kill ends the wait: what the client does from now on nobody here will see.
func (e *effect) Kill(cause error) {
	e.end(dispatch.Ended{ExitCode: -1, Err: fmt.Errorf("%w: %w", ErrStopped, cause)})
}

func (e *effect) Done() <-chan struct{} { return e.done }
func (e *effect) Ended() dispatch.Ended { return e.ended }

// told is why the client has to stop, and since when; nil: it has not.
func (e *effect) told() (since time.Time, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.causeAt, e.cause
}

func (e *effect) isOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over
}

// end is the end of the effect, as the first to tell it says; false to the others.
func (e *effect) end(how dispatch.Ended) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return false
	}
	e.ended, e.over = how, true
	close(e.done)
	return true
}
