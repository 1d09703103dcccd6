package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

var (
	// ErrNotFound means that there is no such command; nothing ran.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable means that the command is there and cannot be executed; nothing ran.
	ErrNotExecutable = errors.New("command not executable")
	// ErrTimeout is the reason of a child that outlived Spec.Timeout.
	ErrTimeout = errors.New("timed out")
	// ErrStopped is the reason of a Stop or Kill that gave none.
	ErrStopped = errors.New("stopped")
)

// A StartError says why nothing ran. It matches ErrNotFound, ErrNotExecutable, or neither, and the error of
// the system.
type StartError struct {
	Path string // as it was asked for
	Kind error  // ErrNotFound, ErrNotExecutable or nil
	Err  error
}

func (e *StartError) Error() string {
	if e.Kind == nil {
		return fmt.Sprintf("start %s: %v", e.Path, e.Err)
	}
	if e.Err == nil {
		return fmt.Sprintf("%s: %v", e.Path, e.Kind)
	}
	return fmt.Sprintf("%s: %v: %v", e.Path, e.Kind, e.Err)
}

func (e *StartError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// ExitCode is 127 for a command that is not there, 126 for one that cannot be executed, else 125.
func (e *StartError) ExitCode() int {
	switch e.Kind {
	case ErrNotFound:
		return 127
	case ErrNotExecutable:
		return 126
	}
	return 125
}

// A SignalError is the reason of a child that was told to end because this process received a signal.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return "received " + e.Signal.String() }

// A Result says how a child ended.
type Result struct {
	ExitCode int            // of a child that exited; -1 if a signal ended it, or Err is set
	Signal   syscall.Signal // that ended it; 0 if it exited

	// Stopped is why the child was told to end, nil if it was not. The child may have ended well all the
	// same, just before or because of it: ExitCode and Signal tell.
	Stopped  error
	TimedOut bool // Stopped is ErrTimeout

	OutputOpen bool  // a process left behind still held an output that is copied; its rest is not copied
	OutputErr  error // a writer failed; the rest of its output was read and thrown away
	LeftBehind bool  // others of the group were still there when Wait returned

	// Err means that the child ran and its end could not be learned.
	Err error
}

// Success says that the child exited with code 0.
func (r Result) Success() bool { return r.Err == nil && r.Signal == 0 && r.ExitCode == 0 }

// ShellCode is what a shell would put into $?: the exit code, or 128 and the number of the signal. It is 255
// if the end could not be learned.
func (r Result) ShellCode() int {
	switch {
	case r.Err != nil:
		return 255
	case r.Signal != 0:
		return 128 + int(r.Signal)
	}
	return r.ExitCode
}

func newResult(state *os.ProcessState, err error) Result {
	if err != nil {
		return Result{ExitCode: -1, Err: fmt.Errorf("wait for the command: %w", err)}
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return Result{ExitCode: -1, Err: errors.New("wait for the command: state of an unknown kind")}
	case status.Signaled():
		return Result{ExitCode: -1, Signal: status.Signal()}
	}
	return Result{ExitCode: status.ExitStatus()}
}
