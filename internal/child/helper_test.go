//go:build linux

package child_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/child"
)

// patience bounds what a test waits for; nothing is expected to take that long.
const patience = time.Minute

// helperEnv names the part that this binary plays when a test executes it again.
const helperEnv = "CHILD_TEST_HELPER"

var helpers = map[string]func() int{
	"wrapper":  wrapper,
	"init":     initProcess,
	"terminal": onTerminal,
	"ignored":  ignored,
}

func TestMain(m *testing.M) {
	if part := os.Getenv(helperEnv); part != "" {
		os.Exit(helpers[part]())
	}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // under nohup or in the background, and children would inherit it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

// helper is this binary in another part; it is killed at the end of the test.
func helper(t *testing.T, part string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+part, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
}

func start(t *testing.T, s child.Spec) *child.Process {
	t.Helper()
	p, err := child.Start(s)
	if err != nil {
		t.Fatalf("start %s: %v", s.Path, err)
	}
	t.Cleanup(func() {
		p.Kill(nil)
		p.Wait()
	})
	return p
}

func wait(t *testing.T, p *child.Process) child.Result {
	t.Helper()
	select {
	case <-p.Done():
		return p.Wait()
	case <-time.After(patience):
		t.Fatalf("child %d has not ended within %s", p.PID(), patience)
		panic("unreachable")
	}
}

func shell(script string) child.Spec {
	return child.Spec{Path: "sh", Args: []string{"-c", script}}
}

// live says whether a process is there and no zombie.
func live(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

func killLater(t *testing.T, pid int) {
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
}

// lines is a writer that a test reads line by line while the child runs.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	all bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(b)
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// next waits for the next whole line.
func (l *lines) next(t *testing.T) (line string) {
	t.Helper()
	eventually(t, "a line of output", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := bytes.IndexByte(l.buf.Bytes(), '\n'); i >= 0 {
			line = strings.TrimSpace(string(l.buf.Next(i + 1)))
			return true
		}
		return false
	})
	return line
}

func (l *lines) pid(t *testing.T) int {
	t.Helper()
	line := l.next(t)
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatalf("want a process id, got %q", line)
	}
	killLater(t, pid)
	return pid
}

// pump copies a stream into lines until it ends.
func pump(t *testing.T, from io.Reader) *lines {
	l := new(lines)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(l, from)
	}()
	t.Cleanup(func() { <-done })
	return l
}
