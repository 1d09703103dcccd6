// Package child runs one command the way a person at a shell would expect, and says how it ended.
//
// # Guarantees
//
// No shell is involved: Path and Args are what is executed. The child leads a process group of its own, and
// a signal goes to that whole group. Its descriptors are 0, 1 and 2 and no others, also when this process
// inherited more: Start marks those above 2 close-on-exec in this process. An *os.File given as an output is handed over as it is; nothing is copied or kept.
//
// An error of Start means that the child never ran. Once Start returned a Process, Wait tells the exit code
// or the signal of the child itself, judged by its own state: a process left behind that still holds an
// output delays Wait by OutputWait at most. After Stop, Kill, a timeout or an ending signal, Wait returns only
// when the whole group is gone: what ignores the first signal is killed when the grace is over.
//
// On Linux the child is killed by the kernel when this process dies, however it dies. That reaches the child
// alone: its own children are not told, and those that it has not tied to itself may go on. Nor does it reach
// a child that gained privileges by its executable (set-uid, file capabilities). Other systems have no such
// signal. A process that left the group (setsid, a daemon) is never reached by any signal from here.
//
// A child that reads from, or sets, the terminal gets it for as long as it runs, if this process has it; it
// is taken back at the end. A child that has the terminal cannot be suspended from the keyboard: while it
// stands still it would hold what it was started under. Until a child asks for it, the terminal stays with
// this process, so that a keyboard interrupt arrives here: see Forward. Other systems than Linux hand over
// no terminal, and a child that reads from it there stands still.
//
// # Failure
//
// StartError says why nothing ran, and gives the code a shell would. Result.Err means that the child ran and
// that its end could not be learned: it may have done its work.
//
// # Concurrency
//
// The methods of a Process may be called by several goroutines at once and in any state; a signal is never
// sent to a group whose end was seen. One locked thread per child lives as long as the child.
package child

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// DefaultGrace is the time between the first signal and KILL if Spec.Grace is zero.
	DefaultGrace = 10 * time.Second
	// OutputWait bounds how long Wait lets an output be copied after the child has ended.
	OutputWait = time.Second

	// killSettle bounds how long Wait looks for the end of a killed group: a process in an uninterruptible
	// call cannot die.
	killSettle = 2 * time.Second
	groupPoll  = 10 * time.Millisecond
)

// A Spec says what to run. It is not changed, and may be used again.
type Spec struct {
	Path string   // looked up in the PATH of Env if it has no slash
	Args []string // without the command's own name
	Env  []string // nil: this process's environment; see Environ
	Dir  string   // "": this process's

	Stdin          *os.File  // nil: empty. Files stay open until Wait returns
	Stdout, Stderr io.Writer // nil: discarded. *os.File: handed over; equal writers share one pipe

	Grace   time.Duration // from the first signal to KILL; 0: DefaultGrace
	Timeout time.Duration // 0: none. TERM when it is over
}

// A Process is a child that was started.
type Process struct {
	proc  *os.Process
	pgid  int
	grace time.Duration
	tty   *terminal // used by the child's thread alone

	output *output
	done   chan struct{} // closed when result is set
	result Result        // written before done is closed

	mu       sync.Mutex
	gone     bool        // the group must not be signalled any more
	why      error       // first reason to end it
	killedAt time.Time   // when KILL was first sent
	timers   []stoppable // timeout and grace
}

type stoppable interface{ Stop() bool }

// Start runs the command. Its error is a *StartError, and then nothing ran.
func Start(s Spec) (*Process, error) {
	p := &Process{grace: s.Grace, done: make(chan struct{})}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	started := make(chan error)
	go p.run(s, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID is the process id of the child, and the id of its group.
func (p *Process) PID() int { return p.pgid }

// Done is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the child ended. The child has been waited for; it is no zombie. Wait may be called often.
func (p *Process) Wait() Result {
	<-p.done
	return p.result
}

// Signal sends a signal to the whole group, and does nothing else. The error is os.ErrProcessDone when the
// child has ended.
func (p *Process) Signal(sig os.Signal) error {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return errors.New("child: not a signal of this system")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signalLocked(n)
}

// Stop sends TERM to the group, and KILL to what is left of it when the grace is over. It does not wait.
// The first reason given to Stop, Kill or by a signal is kept as Result.Stopped, and the grace counts from
// there; a later Stop does nothing. Nor does a Stop after the end was seen.
func (p *Process) Stop(why error) { p.end(syscall.SIGTERM, why) }

// Kill sends KILL to the group now, also when a grace is running.
func (p *Process) Kill(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return
	}
	if p.why == nil {
		p.why = reason(why)
	}
	p.killLocked()
}

// end begins the end of the group with sig, unless it has begun; it says whether this call did.
func (p *Process) end(sig syscall.Signal, why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.why != nil {
		return false
	}
	p.why = reason(why)
	_ = p.signalLocked(sig)
	_ = p.signalLocked(syscall.SIGCONT) // a process that stands still cannot act on a signal
	p.timers = append(p.timers, time.AfterFunc(p.grace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.killLocked()
	}))
	return true
}

func reason(why error) error {
	if why == nil {
		return ErrStopped
	}
	return why
}

func (p *Process) killLocked() {
	if p.gone {
		return
	}
	if p.killedAt.IsZero() {
		p.killedAt = time.Now()
	}
	_ = p.signalLocked(syscall.SIGKILL)
}

func (p *Process) signalLocked(sig syscall.Signal) error {
	if p.gone {
		return os.ErrProcessDone
	}
	err := syscall.Kill(-p.pgid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// run is the child's thread: the kernel ties the child's life to the thread that created it.
func (p *Process) run(s Spec, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.start(s); err != nil {
		started <- err
		return
	}
	started <- nil

	p.awaitExit()
	state, err := p.reap()
	p.tty.takeBack()
	r := newResult(state, err)
	r.LeftBehind = p.endGroup()
	r.OutputOpen, r.OutputErr = p.output.finish(OutputWait)

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.timers {
		t.Stop()
	}
	r.Stopped = p.why
	r.TimedOut = errors.Is(p.why, ErrTimeout)
	p.result = r
	close(p.done)
}

func (p *Process) start(s Spec) error {
	path, err := lookup(s)
	if err != nil {
		return err
	}
	files, out, err := openFiles(s)
	if err != nil {
		return &StartError{Path: s.Path, Err: err}
	}
	attr := &os.ProcAttr{Dir: s.Dir, Env: s.Env, Files: files.child[:], Sys: sysProcAttr()}
	err = closeOnExec()
	if err == nil {
		p.proc, err = own.start(path, append([]string{s.Path}, s.Args...), attr)
	}
	files.close()
	if err != nil {
		out.abandon()
		return startError(s.Path, path, err)
	}
	p.pgid = p.proc.Pid
	p.output = out
	p.output.run()
	p.tty = newTerminal(s.Stdin, p.pgid)
	if s.Timeout > 0 {
		p.mu.Lock()
		p.timers = append(p.timers, time.AfterFunc(s.Timeout, func() { p.Stop(ErrTimeout) }))
		p.mu.Unlock()
	}
	return nil
}

// letGoLocked notes that the child's state was taken.
func (p *Process) letGoLocked() {
	if p.why == nil {
		p.gone = true
	}
}

// endGroup waits until nothing of a group that was told to end is left, and says whether something is.
func (p *Process) endGroup() bool {
	tick := time.NewTicker(groupPoll)
	defer tick.Stop()
	for {
		left, ended := p.lookAtGroup()
		if ended {
			return left
		}
		<-tick.C
	}
}

func (p *Process) lookAtGroup() (left, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left = !errors.Is(syscall.Kill(-p.pgid, 0), syscall.ESRCH)
	if left && onlyZombies(p.pgid) {
		left = false
		if !p.gone {
			p.killLocked() // the look is no snapshot: one born behind it must not get away
		}
	}
	ended = !left || p.gone || !p.killedAt.IsZero() && time.Since(p.killedAt) > killSettle
	if ended {
		p.gone = true
	}
	return left, ended
}
