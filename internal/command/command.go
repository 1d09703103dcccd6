// Package command is a child process as the effect of a run.
//
// # Guarantees
//
// The child learns its run from the SYNCNODE_RUN_ variables that [Environ] names, and sees no other variable of ours or of
// etcd's client. It may ask SYNCNODE_RUN_FENCE whether it may still act; the socket is gone when the effect is done. Right
// before the child starts [dispatch.Permit.Trusted] is asked, so that nothing that took its time stands between the last
// look at the lease and the start. An error of Start means that nothing ran.
//
// How the child is run, signalled and waited for is what package child promises.
//
// # Concurrency
//
// The methods of an Effect may be called by several goroutines at once.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/child"
	"github.com/syncnode/syncnode/internal/fencesock"
	"github.com/syncnode/syncnode/internal/ident"
)

// ProbeTime bounds a probe that does not answer.
const ProbeTime = time.Minute

// Environ is base as the child of a run sees it: it sees its run, and no flag and no credential of ours. fence is the path
// of the socket that it may ask; empty if there is none.
func Environ(base []string, p dispatch.Permit, fence string) []string {
	add := Variables(p)
	if fence != "" {
		add[fencesock.Env] = fence
	}
	return child.Environ(base, child.Private, add)
}

// Variables are those that name the run.
func Variables(p dispatch.Permit) map[string]string {
	vars := map[string]string{
		"SYNCNODE_RUN_ID":         p.Run,
		"SYNCNODE_RUN_AGENT":      p.Agent,
		"SYNCNODE_RUN_OCCURRENCE": ident.OccurrenceText(p.Occurrence),
		"SYNCNODE_RUN_EPOCH":      fmt.Sprint(p.Epoch),
		"SYNCNODE_RUN_ATTEMPT":    p.Attempt,
	}
	if !p.Deadline.IsZero() {
		vars["SYNCNODE_RUN_DEADLINE"] = p.Deadline.UTC().Format(time.RFC3339)
	}
	return vars
}

// Start starts the child of a run. The spec's Env is the environment that [Environ] begins with; nil is this process's.
// Signals that arrive are passed on to it as [child.Process.Forward] does; nil: none.
func Start(p dispatch.Permit, s child.Spec, signals <-chan os.Signal) (*Effect, error) {
	ctx, cancel := context.WithCancel(context.Background())
	fence, err := fencesock.Listen(ctx, p.Fence)
	if err != nil {
		cancel()
		return nil, err
	}
	process, err := start(p, s, fence.Path())
	if err != nil {
		cancel()
		fence.Close()
		return nil, err
	}
	e := &Effect{process: process, done: make(chan struct{})}
	if signals != nil {
		go process.Forward(ctx, signals)
	}
	go func() {
		e.result = process.Wait()
		cancel()
		fence.Close()
		close(e.done)
	}()
	return e, nil
}

func start(p dispatch.Permit, s child.Spec, fence string) (*child.Process, error) {
	s.Env = Environ(base(s), p, fence)
	if err := p.Trusted(); err != nil { // what was done since may have taken longer than a lease
		return nil, err
	}
	return child.Start(s)
}

func base(s child.Spec) []string {
	if s.Env == nil {
		return os.Environ()
	}
	return s.Env
}

// An Effect is a child that was started.
type Effect struct {
	process *child.Process
	done    chan struct{}
	result  child.Result // before done is closed
}

var _ dispatch.Effect = (*Effect)(nil)

// Stop sends TERM to the child's group, and KILL when its grace is over.
func (e *Effect) Stop(cause error) { e.process.Stop(cause) }

// Kill sends KILL to the child's group.
func (e *Effect) Kill(cause error) { e.process.Kill(cause) }

// Done is closed when the child was waited for and its socket is gone.
func (e *Effect) Done() <-chan struct{} { return e.done }

// Ended says how the child ended; it is called after Done.
func (e *Effect) Ended() dispatch.Ended {
	r := e.result
	if sig, ok := errors.AsType[*child.SignalError](r.Stopped); ok {
		r.Stopped = &dispatch.Interrupt{Signal: int(sig.Signal)}
	}
	return dispatch.Ended{ExitCode: r.ExitCode, Signal: int(r.Signal), Stopped: r.Stopped, Err: r.Err, Left: r.LeftBehind}
}

// Result is what package child saw of it; it is called after Done.
func (e *Effect) Result() child.Result { return e.result }

// Probe asks a program whether the effect of an attempt in doubt happened: it exits with 0 for yes and with 1 for no. Every
// other end, and none within [ProbeTime], is not known. The error says why it could not be asked.
func Probe(ctx context.Context, p dispatch.Permit, s child.Spec) (happened, known bool, err error) {
	s.Env, s.Timeout = Environ(base(s), p, ""), ProbeTime
	process, err := child.Start(s)
	if err != nil {
		return false, false, fmt.Errorf("probe: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { process.Stop(context.Cause(ctx)) })
	defer stop()
	r := process.Wait()
	if r.Err != nil || r.Stopped != nil || r.Signal != 0 || r.ExitCode > 1 {
		return false, false, nil
	}
	return r.ExitCode == 0, true, nil
}
