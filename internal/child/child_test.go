//go:build linux

package child_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/child"
)

func TestExitCodeAndSignalAreKept(t *testing.T) {
	for _, c := range []struct {
		script string
		exit   int
		signal syscall.Signal
		shell  int
	}{
		{"exit 0", 0, 0, 0},
		{"exit 7", 7, 0, 7},
		{"exit 126", 126, 0, 126},
		{"exit 255", 255, 0, 255},
		{"kill -TERM $$", -1, syscall.SIGTERM, 143},
		{"kill -KILL $$", -1, syscall.SIGKILL, 137},
		{"ulimit -c 0; kill -QUIT $$", -1, syscall.SIGQUIT, 131},
	} {
		r := wait(t, start(t, shell(c.script)))
		if r.ExitCode != c.exit || r.Signal != c.signal || r.ShellCode() != c.shell {
			t.Errorf("%s: got exit %d, signal %d, shell code %d; want %d, %d, %d",
				c.script, r.ExitCode, r.Signal, r.ShellCode(), c.exit, c.signal, c.shell)
		}
		if r.Err != nil || r.Stopped != nil || r.TimedOut || r.OutputOpen || r.LeftBehind {
			t.Errorf("%s: more than its end is reported: %+v", c.script, r)
		}
		if r.Success() != (c.shell == 0) {
			t.Errorf("%s: success = %v", c.script, r.Success())
		}
	}
}

func TestNoShellSeesTheArguments(t *testing.T) {
	var out bytes.Buffer
	args := []string{"[%s]", "a b", "$HOME", "*", "", "; exit 3"}
	r := wait(t, start(t, child.Spec{Path: "printf", Args: args, Stdout: &out}))
	if want := "[a b][$HOME][*][][; exit 3]"; !r.Success() || out.String() != want {
		t.Errorf("got %q, %+v; want %q", out.String(), r, want)
	}
}

func TestDescriptorsAreZeroOneTwo(t *testing.T) {
	inherited, err := syscall.Dup(2) // without the close-on-exec mark, as from a parent's lock file
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	p := start(t, child.Spec{Path: "sleep", Args: []string{"300"}, Stdout: new(lines), Stderr: os.Stderr})
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("open in the child: %v", got)
		}
	}()
	eventually(t, "the child has descriptors 0, 1 and 2 alone", func() bool {
		got = nil
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
		for _, e := range entries {
			got = append(got, e.Name())
		}
		return err == nil && slices.Equal(got, []string{"0", "1", "2"})
	})
}

func TestSignalsAreTheChildsAsTheyWereOurs(t *testing.T) {
	masks := func(status string) (blocked, ignored string) {
		for line := range strings.Lines(status) {
			if v, ok := strings.CutPrefix(line, "SigBlk:"); ok {
				blocked = strings.TrimSpace(v)
			}
			if v, ok := strings.CutPrefix(line, "SigIgn:"); ok {
				ignored = strings.TrimSpace(v)
			}
		}
		return blocked, ignored
	}
	var out bytes.Buffer
	wait(t, start(t, child.Spec{Path: "cat", Args: []string{"/proc/self/status"}, Stdout: &out}))
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, wantIgnored := masks(string(own))
	if blocked, ignored := masks(out.String()); strings.Trim(blocked, "0") != "" || blocked == "" || ignored != wantIgnored {
		t.Errorf("the child blocks %s and ignores %s; want none and %s", blocked, ignored, wantIgnored)
	}
}

func TestLimitOfDescriptorsIsAsItWas(t *testing.T) {
	cmd := helper(t, "wrapper")
	cmd.Path = "/bin/sh" // Go raises the limit of its own process
	cmd.Args = []string{"sh", "-c", `ulimit -Sn 77; exec "$0" sh -c "ulimit -Sn"`, fmt.Sprintf("/proc/%d/exe", os.Getpid())}
	got, err := cmd.Output()
	if err != nil || string(got) != "77\n" {
		t.Errorf("got %q, %v; want 77", got, err)
	}
}

func TestFilesAreHandedOverAsTheyAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := start(t, child.Spec{Path: "sleep", Args: []string{"300"}, Stdout: f, Stderr: f})
	for _, fd := range []int{1, 2} {
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.PID(), fd)); got != path {
			t.Errorf("descriptor %d of the child is %q (%v), want %q", fd, got, err, path)
		}
	}
}

func TestStandardInputIsPassedThrough(t *testing.T) {
	want := bytes.Repeat([]byte("\x00binary\xff\n"), 100_000)
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var got bytes.Buffer
	if r := wait(t, start(t, child.Spec{Path: "cat", Stdin: in, Stdout: &got})); !r.Success() {
		t.Fatalf("cat: %+v", r)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes came back of %d", got.Len(), len(want))
	}
}

func TestNoStandardInputIsEmpty(t *testing.T) {
	var got bytes.Buffer
	if r := wait(t, start(t, child.Spec{Path: "cat", Stdout: &got})); !r.Success() || got.Len() != 0 {
		t.Errorf("cat of nothing: %q, %+v", got.String(), r)
	}
}

func TestOneWriterForBothStreamsKeepsTheirOrder(t *testing.T) {
	var got bytes.Buffer
	s := shell("echo a; echo b >&2; echo c; echo d >&2")
	s.Stdout, s.Stderr = &got, &got
	wait(t, start(t, s))
	if got.String() != "a\nb\nc\nd\n" {
		t.Errorf("got %q", got.String())
	}
}

type counter struct{ n int }

func (c *counter) Write(b []byte) (int, error) { c.n += len(b); return len(b), nil }

func TestBigOutputIsNotKeptInMemory(t *testing.T) {
	const size = 256 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var c counter
	r := wait(t, start(t, child.Spec{Path: "head", Args: []string{"-c", fmt.Sprint(size), "/dev/zero"}, Stdout: &c}))
	runtime.ReadMemStats(&after)
	if !r.Success() || c.n != size {
		t.Fatalf("copied %d of %d bytes, %+v", c.n, size, r)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("%d bytes were allocated for %d bytes of output", used, size)
	}
}

type failsOnce struct{ calls int }

var errFull = errors.New("full")

func (w *failsOnce) Write(b []byte) (int, error) {
	if w.calls++; w.calls == 1 {
		return 0, errFull
	}
	return len(b), nil
}

func TestFailingWriterDoesNotEndTheChild(t *testing.T) {
	s := shell("head -c 1000000 /dev/zero && echo more && exit 7")
	w := new(failsOnce)
	s.Stdout = w
	r := wait(t, start(t, s))
	if r.ExitCode != 7 || !errors.Is(r.OutputErr, errFull) || r.OutputOpen {
		t.Errorf("want exit 7 and the writer's error, got %+v", r)
	}
	if w.calls != 1 {
		t.Errorf("the writer was called %d times: its output has a hole", w.calls)
	}
}

func TestGrandchildHoldingTheOutputDoesNotKeepUs(t *testing.T) {
	out := new(lines)
	s := shell("sleep 300 & echo $!; echo ok")
	s.Stdout, s.Stderr = out, out
	r := wait(t, start(t, s))
	grandchild := out.pid(t)
	if !r.Success() || !r.OutputOpen || !r.LeftBehind || out.next(t) != "ok" {
		t.Errorf("want success, an open output and one left behind, got %+v with output %q", r, out)
	}
	if !live(grandchild) {
		t.Error("the process left behind by a child that ended by itself was ended")
	}
	eventually(t, "nobody reads the output any more", func() bool {
		stacks := make([]byte, 1<<20)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("child.stream.copy"))
	})
}

func TestGrandchildHoldingAFileDoesNotKeepUs(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	s := shell("sleep 300 & echo $!")
	s.Stdout = write
	r := wait(t, start(t, s))
	write.Close()
	line := make([]byte, 32)
	n, err := read.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(line[:n]), &pid); err != nil {
		t.Fatal(err)
	}
	killLater(t, pid)
	if !r.Success() || r.OutputOpen || !r.LeftBehind {
		t.Errorf("want success and one left behind, got %+v", r)
	}
}

func TestStuckWriterDoesNotKeepUs(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	s := shell("echo ok")
	s.Stdout = stuck{release}
	if r := wait(t, start(t, s)); !r.Success() || !r.OutputOpen {
		t.Errorf("want success and an open output, got %+v", r)
	}
}

type stuck struct{ release chan struct{} }

func (s stuck) Write(b []byte) (int, error) { <-s.release; return len(b), nil }

func TestNoZombieIsLeft(t *testing.T) {
	for range 20 {
		p := start(t, shell("exit 3"))
		wait(t, p)
		var status syscall.WaitStatus
		if pid, err := syscall.Wait4(p.PID(), &status, syscall.WNOHANG, nil); err != syscall.ECHILD {
			t.Fatalf("the child can still be waited for: %d, %v", pid, err)
		}
	}
}

func TestChildOutlivesTheThreadOfItsCaller(t *testing.T) {
	hold, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	started := make(chan *child.Process, 1)
	tid := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		tid <- syscall.Gettid()
		s := shell("read line; exit 7")
		s.Stdin = hold
		p, err := child.Start(s)
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	p := <-started
	if p == nil {
		return
	}
	thread := fmt.Sprintf("/proc/self/task/%d", <-tid)
	if filepath.Base(thread) != fmt.Sprint(os.Getpid()) { // the main thread never ends
		eventually(t, "the caller's thread has ended", func() bool {
			_, err := os.Stat(thread)
			return errors.Is(err, os.ErrNotExist)
		})
	}
	release.Close()
	if r := wait(t, p); r.ExitCode != 7 {
		t.Errorf("want exit 7, got %+v", r)
	}
}

func TestManyChildrenAtOnceKeepTheirOwnEnds(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			p, err := child.Start(child.Spec{Path: "sh", Args: []string{"-c", fmt.Sprintf("exit %d", i)}})
			if err != nil {
				t.Error(err)
				return
			}
			if r := p.Wait(); r.ExitCode != i {
				t.Errorf("want exit %d, got %+v", i, r)
			}
		})
	}
	wg.Wait()
}

func TestDirAndEnvAreTheChilds(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := child.Spec{Path: "/bin/sh", Args: []string{"-c", `pwd -P; echo "$A"; env | wc -l`}, Dir: dir, Stdout: &out,
		Env: []string{"A=b", "PATH=" + os.Getenv("PATH")}}
	wait(t, start(t, s))
	if got := strings.Fields(out.String()); len(got) != 3 || got[0] != dir || got[1] != "b" {
		t.Errorf("got %q", got)
	}
}

func TestTimeoutEndsTheChildAndSaysSo(t *testing.T) {
	r := wait(t, start(t, child.Spec{Path: "sleep", Args: []string{"300"}, Timeout: 10 * time.Millisecond}))
	if !r.TimedOut || !errors.Is(r.Stopped, child.ErrTimeout) || r.Signal != syscall.SIGTERM {
		t.Errorf("want an end by TERM for the timeout, got %+v", r)
	}
	r = wait(t, start(t, child.Spec{Path: "true", Timeout: time.Hour}))
	if !r.Success() || r.TimedOut || r.Stopped != nil {
		t.Errorf("want success in time, got %+v", r)
	}
}
