package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
)

// A host is a data directory, and the way of its processes to the ledger.
type host struct {
	t    *testing.T
	dir  string // XDG_STATE_HOME
	work string // shared by the hosts of a test: where its commands leave their traces
	args []string
	env  []string

	stdin *os.File             // of its processes; nil: none
	attr  *syscall.SysProcAttr // how they are started

	ahead   string   // how far the wall clock of its nodes is ahead
	nodeEnv []string // what its nodes find in their environment besides
}

// hosts returns n hosts of one fleet. Without endpoints each has an embedded etcd.
func hosts(t *testing.T, n int, endpoints []string) []host {
	t.Helper()
	work := t.TempDir()
	all := make([]host, n)
	for i := range all {
		// A busy machine may keep etcd from answering for a while; a test that is about that says how long.
		all[i] = host{t: t, dir: t.TempDir(), work: work, env: []string{"SYNCNODE_BACKEND_TIMEOUT=60s"}}
		if len(endpoints) > 0 {
			all[i].args = []string{"--endpoints", strings.Join(endpoints, ",")}
		}
	}
	return all
}

// with is the same host with more flags.
func (h host) with(args ...string) host {
	h.args = append(append([]string(nil), h.args...), args...)
	return h
}

// A process is one call of the program.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
	code     int
}

// start calls a verb of one or two words, with the host's flags after them.
func (h host) start(args ...string) *process {
	h.t.Helper()
	words := 1
	if args[0] == "run" || args[0] == "lease" || args[0] == "log" || args[0] == "relay" || args[0] == "recover" {
		words = 2
	}
	all := append(append(append([]string(nil), args[:words]...), h.args...), args[words:]...)
	p := &process{t: h.t, cmd: exec.Command("syncnode", all...), done: make(chan struct{})}
	p.cmd.Dir = h.work
	p.cmd.Env = append(append(cleanEnv(), "XDG_STATE_HOME="+h.dir), h.env...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = &p.out, &p.err, h.attr
	if h.stdin != nil {
		p.cmd.Stdin = h.stdin
	}
	p.cmd.WaitDelay = patience
	if err := p.cmd.Start(); err != nil {
		h.t.Errorf("start: %v", err)
		p.code = -1
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		p.code = codeOfWait(p.cmd.Wait())
	}()
	h.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// cleanEnv is the environment without what would configure the program. A reader's machine has few processors for the many processes of
// the tests, each of which is given one; where all is run they have all.
func cleanEnv() []string {
	var env []string
	if !thorough.Asked() {
		env = append(env, "GOMAXPROCS=1")
	}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SYNCNODE_") && !strings.HasPrefix(kv, "ETCDCTL_") {
			env = append(env, kv)
		}
	}
	return env
}

func codeOfWait(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// command starts another program of the tests, whose standard output goes into a file.
func (h host) command(out, name string, args ...string) *process {
	h.t.Helper()
	file, err := os.Create(out)
	must(h.t, err)
	defer file.Close()
	p := &process{t: h.t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = h.work, file, &p.err
	must(h.t, p.cmd.Start())
	go func() {
		defer close(p.done)
		p.code = codeOfWait(p.cmd.Wait())
	}()
	h.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// wait returns the process after its end. It may be called by any goroutine.
func (p *process) wait() *process {
	p.t.Helper()
	select {
	case <-p.done:
		return p
	case <-time.After(2 * patience):
		p.t.Errorf("%v did not end and was killed", p.cmd.Args)
		p.cmd.Process.Kill()
		<-p.done
		return p
	}
}

// call is start and wait.
func (h host) call(args ...string) *process {
	h.t.Helper()
	return h.start(args...).wait()
}

// tries calls a verb of two words that only reads, within this process: tests look often, and starting the program costs more than what
// it then does. It gives what is printed, and what is said if the exit code is not 0.
func (h host) tries(args ...string) ([]byte, error) {
	h.t.Helper()
	all := append(append(append([]string(nil), args[:2]...), h.args...), args[2:]...)
	all = append(all, "--data-dir", filepath.Join(h.dir, "syncnode"))
	var out, errs bytes.Buffer
	if code := run(bounded(h.t), all, os.Stdin, &out, &errs); code != 0 {
		return nil, fmt.Errorf("%v\nexit code %d\n%s%s", all, code, out.String(), errs.String())
	}
	return out.Bytes(), nil
}

// looks is tries where the exit code has to be 0.
func (h host) looks(args ...string) []byte {
	h.t.Helper()
	out, err := h.tries(args...)
	if err != nil {
		h.t.Error(err)
	}
	return out
}

// want checks the exit code, and that standard error holds all the texts.
func (p *process) want(code int, texts ...string) *process {
	p.t.Helper()
	p.wait()
	if p.code != code {
		p.t.Errorf("%v\nexit code %d, want %d\n%s%s", p.cmd.Args, p.code, code, p.out.String(), p.err.String())
	}
	for _, text := range texts {
		if !strings.Contains(p.err.String(), text) {
			p.t.Errorf("%v says\n%s\nwant %q in it", p.cmd.Args, p.err.String(), text)
		}
	}
	return p
}

// prints checks that standard output holds the text.
func (p *process) prints(text string) {
	p.t.Helper()
	if !strings.Contains(p.out.String(), text) {
		p.t.Errorf("%v prints\n%s\nwant %q in it", p.cmd.Args, p.out.String(), text)
	}
}

// A shown is what `run show -o json` prints.
type shown struct {
	State, Cause, Device, Since, Next string
	Epoch, Commits                    int
	Attempts                          []struct{ State, Cause, Device string }
}

func (h host) show(agent, occurrence string) shown {
	h.t.Helper()
	out := h.looks("run", "show", "-o", "json", "--agent", agent, "--occurrence", occurrence, "--backend-timeout", patience.String())
	var s shown
	if err := json.Unmarshal(out, &s); err != nil {
		h.t.Fatalf("run show: %v in %q", err, out)
	}
	return s
}

// traces of commands

func (h host) path(name string) string { return filepath.Join(h.work, name) }

func (h host) read(name string) string {
	data, err := os.ReadFile(h.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Error(err)
	}
	return string(data)
}

func (h host) touch(name string) {
	if err := os.WriteFile(h.path(name), []byte("x\n"), 0o600); err != nil {
		h.t.Error(err)
	}
}

// lines are the lines that commands appended to a file.
func (h host) lines(name string) []string { return strings.Fields(h.read(name)) }

func (h host) notThere(names ...string) {
	h.t.Helper()
	for _, name := range names {
		if _, err := os.Stat(h.path(name)); err == nil {
			h.t.Errorf("%s is there: the command was run", name)
		}
	}
}

// eventually waits for a condition. Many looks start processes: the pause after one is longer the longer it took, so that those who wait
// leave the processors to those who are waited for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		began := time.Now()
		if ok() {
			return
		}
		time.Sleep(10*time.Millisecond + min(3*time.Since(began), time.Second))
	}
	t.Fatalf("never happened: %s", what)
}

// pid waits for a process id that a command writes into a file.
func (h host) pid(name string) int {
	h.t.Helper()
	var pid int
	eventually(h.t, "a process id in "+name, func() bool {
		text, whole := strings.CutSuffix(h.read(name), "\n")
		n, err := strconv.Atoi(text)
		pid = n
		return err == nil && whole
	})
	return pid
}

// beats is a command that writes its process id into c and the time into beats, until there is a file named go.
const beats = `echo $$ >c; while ! test -e go; do date +%s%N >>beats; sleep 0.2; done`

// lastBeat is when a command last said that it lives.
func (h host) lastBeat() time.Time {
	lines := h.lines("beats")
	if len(lines) == 0 {
		return time.Time{}
	}
	ns, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// together runs f for 0 to n-1 at the same time.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// occ names the i-th occurrence.
func occ(i int) string { return fmt.Sprintf("n%03d", i) }
