//go:build linux

package child_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/child"
)

var errLost = errors.New("lost")

const shortGrace = 50 * time.Millisecond

// ready starts a script that prints "ready", and returns when it did.
func ready(t *testing.T, script string, grace time.Duration) (*child.Process, *lines) {
	t.Helper()
	out := new(lines)
	s := shell(script)
	s.Stdout, s.Grace = out, grace
	p := start(t, s)
	if got := out.next(t); got != "ready" {
		t.Fatalf("want ready, got %q", got)
	}
	return p, out
}

func TestChildLeadsItsOwnGroup(t *testing.T) {
	p := start(t, child.Spec{Path: "sleep", Args: []string{"300"}})
	if got, err := syscall.Getpgid(p.PID()); got != p.PID() {
		t.Errorf("the child is in group %d (%v), not in its own, %d", got, err, p.PID())
	}
}

func TestStopIsTermThenTheReasonIsKept(t *testing.T) {
	p, _ := ready(t, `trap "exit 9" TERM; echo ready; while :; do sleep 0.1; done`, time.Hour)
	p.Stop(errLost)
	if r := wait(t, p); r.ExitCode != 9 || r.Stopped != errLost || r.TimedOut {
		t.Errorf("want exit 9 and the reason, got %+v", r)
	}
}

func TestChildThatIgnoresTermIsKilledAfterTheGrace(t *testing.T) {
	p, _ := ready(t, `trap "" TERM; echo ready; while :; do sleep 0.1; done`, shortGrace)
	p.Stop(errLost)
	if r := wait(t, p); r.Signal != syscall.SIGKILL || r.ShellCode() != 137 || r.Stopped != errLost {
		t.Errorf("want an end by KILL and the reason, got %+v", r)
	}
}

func TestWholeGroupGetsTheSignal(t *testing.T) {
	p, out := ready(t, `sleep 300 & echo ready; echo $!; wait`, time.Hour)
	grandchild := out.pid(t)
	p.Stop(nil)
	r := wait(t, p)
	if r.Signal != syscall.SIGTERM || !errors.Is(r.Stopped, child.ErrStopped) || r.LeftBehind {
		t.Errorf("want an end by TERM with nothing left, got %+v", r)
	}
	if live(grandchild) {
		t.Error("the grandchild lives")
	}
}

func TestStoppedGroupIsGoneWhenWaitReturns(t *testing.T) {
	// The child ends at once; its own child does not listen.
	p, out := ready(t, `(trap "" TERM; echo ready; sh -c 'echo $PPID'; while :; do sleep 0.1; done) & wait`, shortGrace)
	grandchild := out.pid(t)
	p.Stop(errLost)
	r := wait(t, p)
	if live(grandchild) || r.LeftBehind {
		t.Errorf("the grandchild lives; %+v", r)
	}
}

func TestGrandchildHasTheRestOfTheGraceWhenTheChildHasEnded(t *testing.T) {
	done := filepath.Join(t.TempDir(), "done")
	p, _ := ready(t, `(trap "sleep 0.2; : >'`+done+`'; exit" TERM; echo ready; while :; do sleep 0.1; done) & wait`, time.Hour)
	p.Stop(errLost)
	r := wait(t, p)
	if _, err := os.Stat(done); err != nil || r.Signal != syscall.SIGTERM || r.LeftBehind {
		t.Errorf("the grandchild was not let finish: %v, %+v", err, r)
	}
}

func TestZombieOfASlowParentDoesNotKeepUs(t *testing.T) {
	p := start(t, child.Spec{Path: "sleep", Args: []string{"300"}, Grace: time.Hour})
	member := exec.Command("true")
	member.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: p.PID()}
	if err := member.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = member.Wait() }() // we are the slow parent
	eventually(t, "the member has ended", func() bool { return !live(member.Process.Pid) })
	p.Stop(errLost)
	if r := wait(t, p); r.Signal != syscall.SIGTERM || r.LeftBehind {
		t.Errorf("want an end by TERM with nothing left, got %+v", r)
	}
}

func TestStopReachesAChildThatStandsStill(t *testing.T) {
	p, _ := ready(t, `trap "exit 9" TERM; echo ready; while :; do sleep 0.1; done`, time.Hour)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Stop(nil)
	if r := wait(t, p); r.ExitCode != 9 {
		t.Errorf("want exit 9, got %+v", r)
	}
}

func TestStopIsIdempotentAndTheFirstReasonIsKept(t *testing.T) {
	p, out := ready(t, `trap "echo term" TERM; echo ready; while :; do sleep 0.1; done`, time.Hour)
	p.Stop(errLost)
	if got := out.next(t); got != "term" {
		t.Fatalf("got %q", got)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { p.Stop(errors.New("another")) })
	}
	wg.Wait()
	p.Kill(errors.New("a third")) // within the grace
	r := wait(t, p)
	if r.Stopped != errLost || r.Signal != syscall.SIGKILL {
		t.Errorf("want the first reason and KILL, got %+v", r)
	}
	if out.String() != "ready\nterm\n" {
		t.Errorf("TERM came more than once: %q", out)
	}
}

func TestNothingIsSignalledAfterTheEnd(t *testing.T) {
	p := start(t, shell("exit 3"))
	want := wait(t, p)
	p.Stop(errLost)
	p.Kill(errLost)
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("want os.ErrProcessDone, got %v", err)
	}
	if got := p.Wait(); got != want || got.Stopped != nil {
		t.Errorf("the result changed: %+v, then %+v", want, got)
	}
}

func TestStopMayComeAtAnyMoment(t *testing.T) {
	for range 50 {
		p := start(t, child.Spec{Path: "true", Grace: shortGrace})
		var wg sync.WaitGroup
		wg.Go(func() { p.Stop(errLost) })
		wg.Go(func() { _ = p.Signal(syscall.SIGCONT) })
		r := wait(t, p)
		wg.Wait()
		if r.Err != nil || r.Signal != 0 && (r.Signal != syscall.SIGTERM || r.Stopped != errLost) {
			t.Fatalf("got %+v", r)
		}
	}
}
