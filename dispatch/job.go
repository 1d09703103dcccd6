package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

// IfHeld says what to do when the agent is busy.
type IfHeld string

const (
	// HeldSkip: this very run is running elsewhere: good, code 0. Another run: not run, ExitBusy. The default.
	HeldSkip IfHeld = "skip"
	// HeldWait waits for Job.HeldWait, then goes on as if asked anew.
	HeldWait IfHeld = "wait"
	// HeldFail: ExitBusy, for this very run too.
	HeldFail IfHeld = "fail"
)

// IfDone says what to do when the run is committed already.
type IfDone string

const (
	DoneOK   IfDone = "ok"   // code 0. The default
	DoneFail IfDone = "fail" // ExitBusy
)

// IfFailed says what to do when the run failed earlier.
type IfFailed string

const (
	FailedKeep  IfFailed = "keep"  // ExitFailed. The default
	FailedRetry IfFailed = "retry" // one more attempt
)

// OnDoubt says what to do when an earlier attempt may have run.
type OnDoubt string

const (
	DoubtHold  OnDoubt = "hold"  // ExitInDoubt. The default
	DoubtRetry OnDoubt = "retry" // one more attempt, for effects that may happen twice
	DoubtProbe OnDoubt = "probe" // Job.Probe decides, or else hold
)

// OnLost says what to do with an effect whose lease can no longer be trusted.
type OnLost string

const (
	LostStop OnLost = "stop" // stopped and joined before the lease can end. The default
	LostKeep OnLost = "keep" // it goes on; nobody can begin this run again, but the agent's next run may begin beside it
)

// DefaultGrace is the time between Stop and Kill if Job.Grace is zero.
const DefaultGrace = 10 * time.Second

// A Job is one occurrence of an agent's work, and the rules for it.
type Job struct {
	Agent      string
	Run        string // the run id of Occurrence
	Occurrence string // `key:TEXT` or `at:INSTANT`
	Input      string // lower-case hex SHA-256 of the input; empty if there is none

	TTL     time.Duration // 0: coord.DefaultTTL; rounded up to a class
	Timeout time.Duration // from the start of the effect; 0: none
	Grace   time.Duration // from Stop to Kill; 0: DefaultGrace

	IfHeld   IfHeld
	HeldWait time.Duration // with the policy HeldWait; 0: as long as the context lasts
	IfDone   IfDone
	IfFailed IfFailed
	OnDoubt  OnDoubt
	OnLost   OnLost

	// Probe finds out whether the effect of an earlier attempt happened; known is false if it cannot tell. The permit
	// is that of the attempt in doubt, and its Fence says no.
	Probe func(ctx context.Context, p Permit) (happened, known bool, err error)

	// Effect starts the work.
	Effect Starter

	// Held, if not nil, is the agent's lease, which the caller keeps: the run begins under it, and neither renews it nor
	// gives it back. TTL is not used then. Without, the run takes the lease for itself.
	Held Held
}

// Held is a lease of the dispatcher's device that somebody else keeps: it goes on being renewed until the run is over,
// and other runs may have begun under it before.
type Held interface {
	// Context ends when an effect may have to stop, with the cause.
	Context() context.Context
	// Trusted is nil while the lease can be trusted. It asks nobody.
	Trusted() error
	// Lease is the lease as last renewed, with when that was sent.
	Lease() coord.Lease
}

// A Permit is what an effect may know about its attempt. Hand the run id to the resource as its idempotency key and the
// epoch as its fencing token.
type Permit struct {
	Run        string
	Agent      string
	Occurrence string
	Epoch      coord.Epoch
	Attempt    string
	Deadline   time.Time // zero without a Timeout
	// Trusted asks nobody: it is an error once the lease may have ended or has to be doubted. A Starter that did anything
	// that may take its time looks here last.
	Trusted func() error
	// Fence asks right now whether the effect may still act. Nil means yes; every error means no.
	Fence func(ctx context.Context) error
}

// A Starter starts an effect. An error means that nothing happened and nothing will; one with a method
// ExitCode() int chooses the code. ctx lasts as long as Start; it is not the effect's.
type Starter interface {
	Start(ctx context.Context, p Permit) (Effect, error)
}

// StartFunc is a Starter.
type StartFunc func(ctx context.Context, p Permit) (Effect, error)

// Start calls f.
func (f StartFunc) Start(ctx context.Context, p Permit) (Effect, error) { return f(ctx, p) }

// An Effect is work that was started. Its methods may be called at any time, also after its end, and by several
// goroutines.
type Effect interface {
	// Stop asks it to end, Kill makes it end. Neither waits. The first cause counts.
	Stop(cause error)
	Kill(cause error)
	// Done is closed when the work has ended or, after Kill, its end cannot be learned.
	Done() <-chan struct{}
	// Ended says how; it is called after Done.
	Ended() Ended
}

// Ended says how an effect ended.
type Ended struct {
	ExitCode int // -1 if a signal ended it
	Signal   int // 0 if none did
	// Stopped is the cause that reached it before its end; nil if it ended by itself.
	Stopped error
	// Err means that it ran and that its end could not be learned.
	Err error
	// Left means that a part of it is still there although it was killed.
	Left bool
	// Unstarted means that nothing happened after all, and why: the attempt is void. Only who is sure says so.
	Unstarted error
	// Result is at most 1 KiB of its own words for the ledger.
	Result string
}

// OK says that the effect succeeded by its own account.
func (e Ended) OK() bool { return e.Err == nil && e.Signal == 0 && e.ExitCode == 0 }

// Code is what a shell would say.
func (e Ended) Code() int {
	if e.Signal != 0 {
		return ExitSignal + e.Signal
	}
	return e.ExitCode
}

// withDefaults fills zero fields and reports every mistake at once.
func (j Job) withDefaults() (Job, error) {
	j.TTL = orElse(j.TTL, coord.DefaultTTL)
	j.Grace = orElse(j.Grace, DefaultGrace)
	j.IfHeld = orElse(j.IfHeld, HeldSkip)
	j.IfDone = orElse(j.IfDone, DoneOK)
	j.IfFailed = orElse(j.IfFailed, FailedKeep)
	j.OnDoubt = orElse(j.OnDoubt, DoubtHold)
	j.OnLost = orElse(j.OnLost, LostStop)
	return j, j.check()
}

func (j Job) check() error {
	var all []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	all = append(all, ident.Check("agent", j.Agent), ident.CheckRunID(j.Run), ident.CheckOccurrence(j.Occurrence))
	_, ttl := coord.Granted(j.TTL)
	all = append(all, ttl)
	bad(j.Timeout < 0, "timeout %s is negative", j.Timeout)
	bad(j.Grace < 0, "grace %s is negative", j.Grace)
	bad(j.HeldWait < 0, "wait %s is negative", j.HeldWait)
	bad(!oneOf(j.IfHeld, HeldSkip, HeldWait, HeldFail), "if-held %q: skip, wait or fail", j.IfHeld)
	bad(!oneOf(j.IfDone, DoneOK, DoneFail), "if-done %q: ok or fail", j.IfDone)
	bad(!oneOf(j.IfFailed, FailedKeep, FailedRetry), "if-failed %q: keep or retry", j.IfFailed)
	bad(!oneOf(j.OnDoubt, DoubtHold, DoubtRetry, DoubtProbe), "on-doubt %q: hold, retry or probe", j.OnDoubt)
	bad(j.OnDoubt == DoubtProbe && j.Probe == nil, "on-doubt probe needs a probe")
	bad(j.Held != nil && j.heldAgent() != j.Agent, "the lease that is held is that of agent %s", j.heldAgent())
	bad(!oneOf(j.OnLost, LostStop, LostKeep), "on-lost %q: stop or keep", j.OnLost)
	return errors.Join(all...)
}

func (j Job) heldAgent() string {
	if j.Held == nil {
		return ""
	}
	return j.Held.Lease().Agent
}

func orElse[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func oneOf[T comparable](v T, all ...T) bool {
	for _, a := range all {
		if a == v {
			return true
		}
	}
	return false
}
