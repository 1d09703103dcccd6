//go:build linux

package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/child"
)

// hasty makes wrapper kill a child that does not obey soon. Others are given more time than a busy machine takes.
const hasty = "SYNCNODE_TEST_HASTY"

// wrapper runs its arguments with everything handed over, and exits as they do.
func wrapper() int {
	grace := patience
	if os.Getenv(hasty) != "" {
		grace = shortGrace
	}
	signals := make(chan os.Signal, 8)
	child.Notify(signals)
	p, err := child.Start(child.Spec{
		Path: os.Args[1], Args: os.Args[2:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Grace: grace,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	p.Forward(context.Background(), signals)
	return p.Wait().ShellCode()
}

// startWrapper runs a script under a wrapper in a group of its own, as an interactive shell starts a job.
func startWrapper(t *testing.T, script string) (*exec.Cmd, *lines, int) {
	t.Helper()
	cmd := helper(t, "wrapper", "sh", "-c", "echo $$; "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	out := pump(t, read)
	t.Cleanup(func() { read.Close() })
	return cmd, out, out.pid(t)
}

func TestKilledWrapperTakesItsChildWithIt(t *testing.T) {
	cmd, out, pid := startWrapper(t, `trap "" TERM INT HUP; echo ready; while :; do sleep 0.1; done`)
	out.next(t)
	if !live(pid) {
		t.Fatal("the child is not there")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the child is gone", func() bool { return !live(pid) })
}

func TestSignalsOfTheWrapperReachTheChild(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, out, _ := startWrapper(t, `ulimit -c 0; echo ready; exec sleep 300`)
			out.next(t)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if got, want := cmd.ProcessState.ExitCode(), 128+int(sig); got != want {
				t.Errorf("the wrapper exits %d, want %d", got, want)
			}
		})
	}
}

func TestDeafChildOfASignalledWrapperIsKilled(t *testing.T) {
	t.Setenv(hasty, "yes")
	cmd, out, pid := startWrapper(t, `trap "" TERM; echo ready; while :; do sleep 0.1; done`)
	out.next(t)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 137 || live(pid) {
		t.Errorf("the wrapper exits %d, want 137; child lives: %v", got, live(pid))
	}
}

func TestKeyboardStopDoesNotStopTheWrapper(t *testing.T) {
	cmd, out, _ := startWrapper(t, `echo ready; exec sleep 300`)
	out.next(t)
	for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTERM} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-ended
	}
	if got := cmd.ProcessState.ExitCode(); got != 143 {
		t.Errorf("the wrapper exits %d, want 143", got)
	}
}

func TestForwardKeepsTheFirstEndingSignal(t *testing.T) {
	p, out := ready(t, `trap "echo int" INT; trap "echo hup; exit 4" HUP; echo ready; while :; do sleep 0.1; done`, time.Hour)
	signals := make(chan os.Signal, 4)
	forwarded := make(chan struct{})
	go func() { defer close(forwarded); p.Forward(t.Context(), signals) }()
	signals <- syscall.SIGINT
	if got := out.next(t); got != "int" {
		t.Fatalf("got %q", got)
	}
	signals <- syscall.SIGHUP
	r := wait(t, p)
	<-forwarded
	got, ok := errors.AsType[*child.SignalError](r.Stopped)
	if !ok || got.Signal != syscall.SIGINT || r.ExitCode != 4 {
		t.Errorf("want exit 4 because of INT, got %+v", r)
	}
}

func TestForwardPassesOtherSignalsWithoutAnEnd(t *testing.T) {
	p, out := ready(t, `trap "echo usr1" USR1; trap "echo usr2; exit 6" USR2; trap "echo tstp" TSTP
		echo ready; while :; do sleep 0.1; done`, time.Nanosecond)
	signals := make(chan os.Signal, 4)
	go p.Forward(t.Context(), signals)
	for _, step := range []struct {
		sig  os.Signal
		says string
	}{{syscall.SIGCONT, ""}, {syscall.SIGTSTP, ""}, {syscall.SIGUSR1, "usr1"}, {syscall.SIGUSR2, "usr2"}} {
		signals <- step.sig
		if step.says == "" {
			continue
		}
		if got := out.next(t); got != step.says {
			t.Fatalf("after %v: got %q, want %q", step.sig, got, step.says)
		}
	}
	if r := wait(t, p); r.ExitCode != 6 || r.Stopped != nil {
		t.Errorf("want exit 6 and no stop, got %+v", r)
	}
}

func TestForwardEndsWithItsContextOrChannel(t *testing.T) {
	p := start(t, child.Spec{Path: "sleep", Args: []string{"300"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Forward(ctx, nil)
	closed := make(chan os.Signal)
	close(closed)
	p.Forward(t.Context(), closed)
}

// ignored says whether HUP is still ignored after Notify, here and in a child.
func ignored() int {
	c := make(chan os.Signal, 8)
	child.Notify(c)
	fmt.Println(signal.Ignored(syscall.SIGHUP), signal.Ignored(syscall.SIGTERM))
	p, err := child.Start(child.Spec{Path: "sh", Args: []string{"-c", `kill -HUP $$; echo survived`}, Stdout: os.Stdout})
	if err != nil {
		return 125
	}
	return p.Wait().ShellCode()
}

func TestIgnoredHangupStaysIgnored(t *testing.T) {
	cmd := helper(t, "ignored")
	cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$0"`}, cmd.Path)
	cmd.Args[3] = "/proc/" + fmt.Sprint(os.Getpid()) + "/exe"
	cmd.Path = "/bin/sh"
	got, err := cmd.Output()
	if want := "true false\nsurvived\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
