package child

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// ending signals are passed on and begin the grace; passing ones are passed on; held ones are kept from this
// process and not passed on: a wrapper that stands still cannot end its child in time.
var (
	ending  = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}
	passing = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}
	held    = []os.Signal{syscall.SIGTSTP}
)

// Notify has the signals that Forward knows delivered to c, which needs some room. A signal that this process
// was started with as ignored (nohup) stays ignored, also by the child. End it by signal.Stop.
func Notify(c chan<- os.Signal) {
	for _, set := range [][]os.Signal{ending, passing, held} {
		for _, sig := range set {
			if !signal.Ignored(sig) {
				signal.Notify(c, sig)
			}
		}
	}
}

// Ends says whether a signal is one that ends the work: TERM, INT, HUP or QUIT.
func Ends(sig os.Signal) bool { return contains(ending, sig) }

// Forward passes signals on to the child's group until the child has ended, ctx is done or c is closed.
// TERM, INT, HUP and QUIT end it: KILL follows when the grace, counted from the first of them, is over, and
// Result.Stopped is a *SignalError with the first. USR1, USR2, WINCH and CONT are passed on; others are not.
func (p *Process) Forward(ctx context.Context, c <-chan os.Signal) {
	for {
		select {
		case <-p.done:
			return
		case <-ctx.Done():
			return
		case sig, ok := <-c:
			if !ok {
				return
			}
			p.forward(sig)
		}
	}
}

func (p *Process) forward(sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	first := Ends(sig) && p.end(n, &SignalError{n})
	if !first && !contains(held, sig) {
		_ = p.Signal(n) // the group has ended: nothing to tell
	}
}

func contains(set []os.Signal, sig os.Signal) bool {
	for _, s := range set {
		if s == sig {
			return true
		}
	}
	return false
}
