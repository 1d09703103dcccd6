package child

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	reapSoon  = 10 * time.Millisecond // a child of ours is about to be taken by its owner
	reapLater = time.Second           // in case a signal was lost
)

// ReapOrphans waits for the processes that this one is given as an orphan's new parent, until ctx is done: the
// duty of process 1. It never takes the state of a child that this package started; it takes that of any
// other, so a process that runs it starts its children here.
func ReapOrphans(ctx context.Context) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	defer signal.Stop(c)
	for {
		pause := reapLater
		if !own.reapOthers() {
			pause = reapSoon
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// reapOthers takes the states of all that have ended, up to one of ours: false then.
func (c *children) reapOthers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		event, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		if err != nil || event.PID == 0 {
			return true
		}
		if c.pids[int(event.PID)] {
			return false
		}
		_, _ = waitid(unix.P_PID, int(event.PID), unix.WEXITED|unix.WNOHANG)
	}
}
