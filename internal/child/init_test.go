//go:build linux

package child_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/syncnode/syncnode/internal/child"
)

const manyChildren = 50

// initProcess is process 1 of a namespace: it runs children that leave orphans, and checks that it loses no
// state of its own and keeps no orphan's.
func initProcess() int {
	if os.Getpid() != 1 {
		fmt.Println("not process 1 but", os.Getpid())
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); child.ReapOrphans(ctx) }()
	for i := range manyChildren {
		code := i % 7
		p, err := child.Start(child.Spec{Path: "sh", Args: []string{"-c",
			fmt.Sprintf("(true & true & sleep 0.01 &) ; exit %d", code)}})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if r := p.Wait(); r.Err != nil || r.ExitCode != code {
			fmt.Printf("child %d: want exit %d, got %+v\n", i, code, r)
			return 1
		}
	}
	deadline := time.Now().Add(patience)
	for {
		// A look that takes nothing: ECHILD is the answer only to one without any child, dead or alive.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == syscall.ECHILD {
			break
		}
		if time.Now().After(deadline) {
			fmt.Println("a child is still there:", err)
			return 1
		}
		time.Sleep(2 * time.Millisecond)
	}
	cancel()
	<-done
	fmt.Println("clean")
	return 0
}

func TestProcessOneReapsOrphansAndKeepsTheStatesOfItsOwn(t *testing.T) {
	cmd := helper(t, "init")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		t.Skipf("no PID namespace can be made here: %v", err)
	}
	if err != nil || string(out) != "clean\n" {
		t.Errorf("process 1: %v\n%s", err, out)
	}
}
