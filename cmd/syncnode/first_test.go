//go:build linux

package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

// leaves is a command that leaves a process behind and ends when the parent that this was given has waited for it: until then it can be
// signalled, also when it has ended.
const leaves = `(sleep 0.1 & echo $! >orphan); while kill -0 $(cat orphan) 2>/dev/null; do sleep 0.05; done; touch reaped`

// first is the same host with processes that are process 1, each of a namespace of its own.
func (h host) first() host {
	h.t.Helper()
	h.attr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		h.attr.Cloneflags |= syscall.CLONE_NEWUSER
		h.attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		h.attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
	try := exec.Command("true")
	try.SysProcAttr = h.attr
	if err := try.Run(); err != nil && try.ProcessState == nil {
		h.t.Skipf("no PID namespace can be made here: %v", err)
	}
	return h
}

func TestAnExecThatIsProcessOneReapsWhatItsCommandLeaves(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, common.get(t).Endpoints())[0].first()
	h.call("exec", "--agent", "first", "--occurrence", "k", "--", "sh", "-c", leaves).want(0, "was run: committed")
}

func TestANodeThatIsProcessOneReapsWhatItsCommandsLeave(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "first")[0].first()
	n := h.serve(h.configure("version: 1\nagents: { first: { schedule: \"@every 1s\", command: [sh, -c, '" + leaves + "'] } }\n")...)
	eventually(t, "what a command left was waited for", func() bool { _, err := os.Stat(h.path("reaped")); return err == nil })
	n.stops()
}
