//go:build linux

package child_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/syncnode/syncnode/internal/child"
)

// onTerminal runs a script on its terminal, then says how it ended, why, and who has the terminal.
func onTerminal() int {
	signals := make(chan os.Signal, 8)
	child.Notify(signals)
	p, err := child.Start(child.Spec{
		Path: "sh", Args: []string{"-c", os.Args[1]}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Println(err)
		return 125
	}
	p.Forward(context.Background(), signals)
	r := p.Wait()
	foreground, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	fmt.Printf("end %d, stopped: %v, terminal ours: %v\n", r.ShellCode(), r.Stopped, err == nil && foreground == unix.Getpgrp())
	return 0
}

// onNewTerminal runs onTerminal as the leader of a session with a terminal of its own; the file types on it.
func onNewTerminal(t *testing.T, script string) (*os.File, *lines, *exec.Cmd) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	t.Cleanup(func() { keys.Close() })
	if err := unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	cmd := helper(t, "terminal", script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := new(lines)
	go func() { // ends when both ends of the terminal are closed
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			_, _ = seen.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return keys, seen, cmd
}

func TestChildOnATerminal(t *testing.T) {
	type step struct{ see, press string }
	for _, c := range []struct {
		name, script string
		steps        []step
		end          string
	}{
		{"that prints", "date", nil, "end 0, stopped: <nil>, terminal ours: true"},
		{"that reads a line", `echo ready; read x; echo "got:$x"`,
			[]step{{"ready", "hello\n"}, {"got:hello", ""}}, "end 0, stopped: <nil>, terminal ours: true"},
		{"whose child reads a line", `echo ready; (cat | head -n 1); echo done`,
			[]step{{"ready", "hello\n"}, {"hello\r\nhello\r\n", "\x04"}}, "end 0, stopped: <nil>, terminal ours: true"},
		{"interrupted before it read", `echo ready; exec sleep 300`,
			[]step{{"ready", "\x03"}}, "end 130, stopped: received interrupt, terminal ours: true"},
		{"interrupted after it read", `echo ready; read x; echo "got:$x"; exec sleep 300`,
			[]step{{"ready", "a\n"}, {"got:a", "\x03"}}, "end 130, stopped: <nil>, terminal ours: true"},
		{"cannot be suspended", `echo ready; read x; echo "got:$x"; while :; do read y && break; done; echo "again:$y"`,
			[]step{{"ready", "a\n"}, {"got:a", "\x1a"}, {"^Z", "b\n"}, {"again:b", ""}}, "end 0, stopped: <nil>, terminal ours: true"},
		{"cannot be suspended before it read", `echo ready; read x; echo "got:$x"`,
			[]step{{"ready", "\x1a"}, {"^Z", "a\n"}, {"got:a", ""}}, "end 0, stopped: <nil>, terminal ours: true"},
		{"that sets it", `stty -echo; stty echo; echo set`,
			[]step{{"set", ""}}, "end 0, stopped: <nil>, terminal ours: true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys, seen, cmd := onNewTerminal(t, c.script)
			defer func() {
				if t.Failed() {
					t.Logf("on the screen:\n%s", seen)
				}
			}()
			for _, s := range append(c.steps, step{"terminal ours", ""}) {
				eventually(t, s.see, func() bool { return strings.Contains(seen.String(), s.see) })
				if _, err := keys.WriteString(s.press); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Wait(); err != nil || !strings.Contains(seen.String(), c.end) {
				t.Errorf("%v; want %q", err, c.end)
			}
		})
	}
}
