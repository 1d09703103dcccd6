package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/syncnode/syncnode/internal/thorough"
)

// patience is the longest that a test waits for one thing. Nothing is measured against it.
const patience = 60 * time.Second

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			if !thorough.Asked() {
				env.Setenv("GOMAXPROCS", "1") // as cleanEnv
			}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "whole" {
				return thorough.Asked(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": scriptCode, "until": scriptUntil, "kill9": scriptKill9, "deaf": scriptDeaf, "damage": scriptDamage, "waiting": scriptWaiting,
		},
	})
}

// code N CMD ARGS… runs a command that has to end with the code.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N CMD ARGS…")
	}
	got := codeOf(ts, ts.Exec(args[1], args[2:]...))
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s\n%s%s", got, args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

func codeOf(ts *testscript.TestScript, err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "0"
	case errors.As(err, &exit):
		return strconv.Itoa(exit.ExitCode())
	}
	ts.Fatalf("%v", err)
	return ""
}

// until FILE waits for a file that is not empty.
func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return
		}
	}
	ts.Fatalf("%s did not come", args[0])
}

// kill9 FILE… kills the processes whose ids stand in the files, and waits until they are gone.
func scriptKill9(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(name)))
		ts.Check(err)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			ts.Check(err)
		}
		for end := time.Now().Add(patience); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				ts.Fatalf("process %d is still there", pid)
			}
		}
	}
}

// alive says whether a process runs; one that only waits to be joined does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// deaf NAME sets an environment variable to a socket that nobody answers on.
func scriptDeaf(ts *testscript.TestScript, neg bool, args []string) {
	dir, err := os.MkdirTemp("", "deaf-")
	ts.Check(err)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	ts.Check(err)
	ts.Defer(func() {
		l.Close()
		os.RemoveAll(dir)
	})
	ts.Setenv(args[0], l.Addr().String())
}

// damage GLOB flips a bit in the middle of the one file that matches.
func scriptDamage(ts *testscript.TestScript, neg bool, args []string) {
	found, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("%s matches %v, want one file", args[0], found)
	}
	data, err := os.ReadFile(found[0])
	ts.Check(err)
	data[len(data)/2] ^= 1
	ts.Check(os.WriteFile(found[0], data, 0o600))
}

// waiting FILE waits until the process whose id stands in the file waits for a lock.
func scriptWaiting(ts *testscript.TestScript, neg bool, args []string) {
	scriptUntil(ts, neg, args)
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if len(locksOf(pid)) > 0 {
			return
		}
	}
	ts.Fatalf("process %d waits for no lock", pid)
}

// locksOf names the directories of the lock files that a process has open.
func locksOf(pid int) []string {
	var dirs []string
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range open {
		to, err := os.Readlink(fd)
		// The lock of a process's life was made under another name.
		if dir := filepath.Base(filepath.Dir(to)); err == nil && (filepath.Base(to) == "LOCK" || dir == "proc") {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
