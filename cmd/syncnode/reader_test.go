package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
)

func TestAStandardErrorThatNobodyReadsAnyMoreEndsNoRun(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, common.get(t).Endpoints())[0]
	r, w, err := os.Pipe()
	must(t, err)
	must(t, r.Close())
	args := append([]string{"exec"}, h.args...)
	args = append(args, "--agent", "pipe", "--occurrence", "k", "--result", "result.json", "--",
		"sh", "-c", `echo gone >&2; echo ran >>ran`)
	cmd := exec.Command("syncnode", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = h.work, append(append(cleanEnv(), "XDG_STATE_HOME="+h.dir), h.env...), w
	err = cmd.Run()
	w.Close()
	// The child still has the SIGPIPE that a shell gives it: its first word ends it.
	if code := codeOfWait(err); code != 128+13 && code != 1 {
		t.Errorf("exit code %d, want the child's own", code)
	}
	if s := h.show("pipe", "k"); s.State != "failed" {
		t.Errorf("the run is %s, want failed: its end was seen", s.State)
	}
	if _, err := os.Stat(h.path("result.json")); err != nil {
		t.Errorf("--result: %v", err)
	}
}

// full is a pipe that takes nothing more.
func full(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	must(t, w.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe is not full: %v", err)
	}
	must(t, w.SetWriteDeadline(time.Time{}))
	return w
}

func starting(t *testing.T, trusted func() error) (dispatch.Effect, error) {
	t.Helper()
	cmd := &cobra.Command{}
	cmd.SetOut(os.Stdout)
	cmd.SetErr(full(t))
	x := &execution{flags: &execFlags{out: outputFlag{format: "text"}}, cmd: cmd, args: []string{"touch", filepath.Join(t.TempDir(), "ran")}}
	no := func(context.Context) error { return errors.New("no") }
	return x.start(dispatch.Job{}, dispatch.Permit{Run: "r", Trusted: trusted, Fence: no}, nil)
}

func TestAStandardErrorThatNobodyReadsKeepsNoCommandFromItsStart(t *testing.T) {
	t.Parallel()
	e, err := starting(t, func() error { return nil })
	must(t, err)
	<-e.Done()
	if got := e.Ended(); !got.OK() {
		t.Errorf("it ended %+v", got)
	}
}

func TestACommandWhoseLeaseWasLostOnTheWayIsNotStarted(t *testing.T) {
	t.Parallel()
	if _, err := starting(t, func() error { return coord.ErrUnverifiable }); !errors.Is(err, coord.ErrUnverifiable) {
		t.Errorf("got %v, want ErrUnverifiable", err)
	}
}

func TestAResultPipeThatNobodyReadsDoesNotKeepTheWrapper(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, common.get(t).Endpoints())[0]
	must(t, syscall.Mkfifo(h.path("pipe"), 0o600))
	h.call("exec", "--agent", "fifo", "--occurrence", "k", "--result", "pipe", "--", "true").want(0, "was run", "--result")
	r, err := os.OpenFile(h.path("pipe"), os.O_RDWR, 0)
	must(t, err)
	defer r.Close()
	h.call("exec", "--agent", "fifo", "--occurrence", "k", "--result", "pipe", "--", "true").want(0)
	line, err := bufio.NewReader(r).ReadString('\n')
	must(t, err)
	if !strings.Contains(line, `"state":"committed"`) {
		t.Errorf("the pipe has %q", line)
	}
}
