//go:build linux

package child_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/child"
)

func TestErrorOfStartSaysWhyNothingRan(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "echo hello\n", 0o755)
	locked := write("locked", "#!/bin/sh\n", 0o644)
	orphan := write("orphan", "#!/no/such/interpreter\n", 0o755)
	inPath := []string{"PATH=" + dir}

	for _, c := range []struct {
		name string
		spec child.Spec
		kind error
		code int
		says string
	}{
		{"not in PATH", child.Spec{Path: "no-such-command"}, child.ErrNotFound, 127, "not found"},
		{"empty", child.Spec{}, child.ErrNotFound, 127, "not found"},
		{"no such path", child.Spec{Path: dir + "/none"}, child.ErrNotFound, 127, "no such file"},
		{"below a file", child.Spec{Path: plain + "/x"}, child.ErrNotFound, 127, "not a directory"},
		{"a directory", child.Spec{Path: dir}, child.ErrNotExecutable, 126, "it is a directory"},
		{"no permission", child.Spec{Path: locked}, child.ErrNotExecutable, 126, "no permission"},
		{"no permission in PATH", child.Spec{Path: "locked", Env: inPath}, child.ErrNotExecutable, 126, "no permission"},
		{"no #!", child.Spec{Path: plain}, child.ErrNotExecutable, 126, "first line is #!"},
		{"no interpreter", child.Spec{Path: orphan}, child.ErrNotExecutable, 126, "interpreter"},
		{"too long", child.Spec{Path: "true", Args: []string{strings.Repeat("x", 1<<20)}}, child.ErrNotExecutable, 126, "argument list too long"},
		{"no directory", child.Spec{Path: "true", Dir: dir + "/none"}, nil, 125, "none"},
		{"no directory but a file", child.Spec{Path: "true", Dir: plain}, nil, 125, "not a directory"},
		{"NUL", child.Spec{Path: "true", Args: []string{"a\x00b"}}, child.ErrNotExecutable, 126, "invalid argument"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := child.Start(c.spec)
			if p != nil {
				p.Kill(nil)
			}
			se, ok := errors.AsType[*child.StartError](err)
			if !ok {
				t.Fatalf("want a StartError, got %v", err)
			}
			if se.ExitCode() != c.code || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got code %d, %q; want %d, %v, %q", se.ExitCode(), err, c.code, c.kind, c.says)
			}
			if c.kind == nil && (errors.Is(err, child.ErrNotFound) || errors.Is(err, child.ErrNotExecutable)) {
				t.Errorf("%v speaks of the command", err)
			}
		})
	}
}

func TestSearchGoesOnPastWhatCannotBeExecuted(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "true"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	if r := wait(t, start(t, child.Spec{Path: "true", Env: env})); !r.Success() {
		t.Errorf("got %+v", r)
	}
}

func TestUnsearchableDirectoryOfPathIsNoReason(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may search any directory")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	_, err := child.Start(child.Spec{Path: "no-such-command", Env: []string{"PATH=" + dir}})
	if !errors.Is(err, child.ErrNotFound) {
		t.Errorf("want ErrNotFound, got %v", err)
	}
}

func TestSearchGoesOnPastWhatIsForOthersToExecute(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may execute what anyone may")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "true"), nil, 0o611); err != nil {
		t.Fatal(err)
	}
	_, err := child.Start(child.Spec{Path: "true", Env: []string{"PATH=" + dir}})
	if !errors.Is(err, child.ErrNotExecutable) {
		t.Errorf("want ErrNotExecutable, got %v", err)
	}
	env := []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	if r := wait(t, start(t, child.Spec{Path: "true", Env: env})); !r.Success() {
		t.Errorf("got %+v", r)
	}
}

func TestFailedStartLeavesNothingOpen(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	path := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := count()
	for range 20 {
		_, err := child.Start(child.Spec{Path: path, Stdout: new(lines), Stderr: new(lines)})
		if !errors.Is(err, syscall.ENOEXEC) {
			t.Fatalf("want ENOEXEC, got %v", err)
		}
		wait(t, start(t, child.Spec{Path: "true", Stdout: new(lines), Stderr: new(lines)}))
	}
	if after := count(); after > before+4 { // the runtime may have opened some of its own
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
