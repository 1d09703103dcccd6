// Package due decides which occurrences of an agent's schedule are to be begun, and which are missed and why.
//
// # Guarantees
//
// Every occurrence after the mark that an [Agent] began with ends as exactly one of begun or missed with a reason,
// in the order of time, whatever readings of the clock, pauses, runs and restarts come between. Nothing is begun
// before its time, and nothing twice. A wall clock that is put back repeats nothing; one that is put forward, a
// suspend and a downtime are one thing: the catch-up policy decides over what came due meanwhile.
//
// A restart asks what is on record, never the clock: [New] is given the newest occurrence that the ledger knows as
// begun or the log as missed. For this to lose nothing, what [Agent.Before] returns is on disk before the
// occurrence is begun; then all that is older than the newest on record is on record too, and the rest is
// decided again.
//
// # Not promised
//
// An occurrence that the ledger refuses is not begun by being offered here: this package permits nothing. A gap that
// is still open when the process dies is decided anew by the next one. A wall clock that is put forward by mistake
// decides over the time it skipped, and those occurrences are not decided again when it is put back.
//
// # Failure
//
// Nothing here fails: there is no I/O and no clock, all time comes in as readings.
//
// # Concurrency
//
// The agents that share a [Rate] belong to one goroutine.
package due

import (
	"time"

	"github.com/syncnode/syncnode/schedule"
)

// MaxWait is the longest pause between two looks at the clock: timers stop in suspend and know nothing of steps.
const MaxWait = 30 * time.Second

// A Reading is what the clocks say at one moment.
type Reading struct {
	Wall time.Time
	Boot time.Duration // since boot, suspend included; never steps
}

// Stepped is how far the wall clock was put forward (above 0) or back between two readings, as the boot-time clock
// tells. A suspend is no step: both clocks went on.
func (r Reading) Stepped(before Reading) time.Duration {
	return r.Wall.Round(0).Sub(before.Wall.Round(0)) - (r.Boot - before.Boot)
}

// A CatchUp says what is done for occurrences that came due while nobody looked.
type CatchUp string

const (
	CatchUpNone CatchUp = "none" // only one that is late by at most schedule.Tolerance
	CatchUpLast CatchUp = "last" // the newest one
	CatchUpAll  CatchUp = "all"  // the newest Limit ones, oldest first
)

// An Overlap says what is done for an occurrence that comes due while a run of the agent goes on.
type Overlap string

const (
	OverlapSkip  Overlap = "skip"  // it is missed
	OverlapQueue Overlap = "queue" // it waits, within the window
)

// A Policy is what an agent's configuration says.
type Policy struct {
	CatchUp CatchUp
	Window  time.Duration // what is later than this is not begun any more; at least schedule.Tolerance counts
	Limit   int           // with CatchUpAll: how many may wait; at least 1 counts
	Overlap Overlap
}

// most is how many occurrences may wait.
func (p Policy) most() int {
	if p.CatchUp == CatchUpAll {
		return max(p.Limit, 1)
	}
	return 1
}

func (p Policy) window() time.Duration {
	if p.CatchUp == CatchUpNone && p.Overlap != OverlapQueue {
		return schedule.Tolerance
	}
	return max(p.Window, schedule.Tolerance)
}

// late is how old an occurrence may be when it is seen first.
func (p Policy) late() time.Duration {
	if p.CatchUp == CatchUpNone {
		return schedule.Tolerance
	}
	return p.window()
}

// A Reason says why an occurrence was not begun.
type Reason string

const (
	Overlapped Reason = "overlap"    // a run of the agent on this node went on
	Paused     Reason = "paused"     // the agent was paused
	Superseded Reason = "superseded" // a later one was run in its place
	Window     Reason = "window"     // it was too late to begin it
	Busy       Reason = "busy"       // the agent was held by somebody else
)

// Reasons are all there are, for counters that begin at 0.
func Reasons() []Reason { return []Reason{Overlapped, Paused, Superseded, Window, Busy} }

// A Missed is one gap: all occurrences of the schedule from First to Last were missed for one reason.
type Missed struct {
	Reason      Reason
	First, Last time.Time
	Count       int
	AtLeast     bool // there are more than Count: nobody counts millions
}

// A State is what the caller knows of the agent at this moment.
type State struct {
	Paused  bool
	Running bool // a run of it goes on in this node
	Busy    bool // somebody else holds it: another node, a client, a predecessor whose lease has not ended
}

// A Decision is what to do now.
type Decision struct {
	// Due is the occurrence to begin, if Begin is set. It is offered again until the agent hears that it was begun or
	// that it cannot be: by Begun, or by the State of the next step.
	Due   time.Time
	Begin bool
	Late  bool // it is one of catch-up, and uses up the rate

	Missed []Missed      // gaps that ended: to be recorded
	Wait   time.Duration // step again after this at the latest; above 0, at most MaxWait
}
