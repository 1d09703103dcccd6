package child

import (
	"errors"
	"math"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// closeOnExec marks every descriptor above 2, those included that this process inherited without the mark.
func closeOnExec() error {
	err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Kernels before 5.11.
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range fds {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// childEvent is the part of siginfo_t that waitid fills in.
type childEvent struct {
	Signo, Errno, Code int32
	_                  [unsafe.Sizeof(uintptr(0))/4 - 1]int32 // the union that follows is aligned
	PID                int32
	UID                uint32
	Status             int32
}

const childStopped = 5 // CLD_STOPPED

func waitid(kind, id, options int) (childEvent, error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(kind, id, &info, options, nil)
		if !errors.Is(err, unix.EINTR) {
			return *(*childEvent)(unsafe.Pointer(&info)), err
		}
	}
}

// awaitExit returns when the child has ended, and leaves its state to be taken: until then neither its number
// nor that of its group can be given to others. It lends the terminal to a child that asks for it.
func (p *Process) awaitExit() {
	options := unix.WEXITED | unix.WNOWAIT
	if p.tty != nil {
		options |= unix.WSTOPPED
	}
	for {
		event, err := waitid(unix.P_PID, p.pgid, options)
		if err != nil || event.Code != childStopped {
			return // an error shows again when the state is taken
		}
		_, _ = waitid(unix.P_PID, p.pgid, unix.WSTOPPED|unix.WNOHANG)
		if p.tty.resumes(syscall.Signal(event.Status)) {
			p.resume()
		}
	}
}

// resume lets a stopped group go on, and says so again: the kernel stops a group member by member, so that
// one whose turn comes late may stop after it was told to go on, and nobody is told of that.
func (p *Process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.signalLocked(syscall.SIGCONT)
	for _, later := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		p.timers = append(p.timers, time.AfterFunc(later, func() { _ = p.Signal(syscall.SIGCONT) }))
	}
}

// reap takes the child's state. From then on its number may be given to another process, unless others of
// its group are left; those are let go if there is no reason to end them.
func (p *Process) reap() (*os.ProcessState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state, err := own.reap(p.proc)
	p.letGoLocked()
	return state, err
}

// reap takes the state of a child that has ended.
func (c *children) reap(proc *os.Process) (*os.ProcessState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, proc.Pid)
	return proc.Wait()
}
