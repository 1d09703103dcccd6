//go:build unix && !linux

package child

import (
	"context"
	"os"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// closeOnExec does what can be done without knowing which descriptors are open.
func closeOnExec() error {
	for fd := 3; fd < 256; fd++ {
		syscall.CloseOnExec(fd)
	}
	return nil
}

// awaitExit leaves the waiting to reap: between the end of the child and the note of it a signal may be sent
// to its number.
func (p *Process) awaitExit() {}

func (p *Process) reap() (*os.ProcessState, error) {
	state, err := p.proc.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letGoLocked()
	return state, err
}

// onlyZombies cannot be told here: what is left counts as alive.
func onlyZombies(int) bool { return false }

// ReapOrphans does nothing: only Linux runs this as process 1.
func ReapOrphans(ctx context.Context) { <-ctx.Done() }

type terminal struct{}

func newTerminal(*os.File, int) *terminal { return nil }

func (*terminal) takeBack() {}
