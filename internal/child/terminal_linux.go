package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the standard input of a child, if that is our controlling terminal.
type terminal struct {
	fd       int
	us, them int // process groups
	lent     bool
}

// newTerminal is nil if stdin is not our controlling terminal.
func newTerminal(stdin *os.File, pgid int) *terminal {
	if stdin == nil {
		return nil
	}
	fd := int(stdin.Fd())
	if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil {
		return nil
	}
	return &terminal{fd: fd, us: unix.Getpgrp(), them: pgid}
}

// resumes says whether a child that was stopped by sig is to go on, after lending it what it asked for.
func (t *terminal) resumes(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU: // it asked for the terminal
		foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
		switch {
		case err != nil:
			return false
		case foreground == t.them:
			return true // it has it: this stop was on its way when it was lent
		case foreground != t.us || t.set(t.them) != nil:
			return false
		}
		t.lent = true
		return true
	case unix.SIGTSTP: // from the keyboard
		return t.lent
	}
	return false
}

func (t *terminal) takeBack() {
	if t != nil && t.lent {
		_ = t.set(t.us) // the terminal may be gone
		t.lent = false
	}
}

// set makes a group the foreground group. The caller is locked to its thread: asking from the background is
// answered by SIGTTOU unless the asking thread blocks it.
func (t *terminal) set(pgid int) error {
	var block, old unix.Sigset_t
	block.Val[0] = 1 << (unix.SIGTTOU - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &old); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }()
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgid)
}
