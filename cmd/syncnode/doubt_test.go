package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

// killed starts a run and kills wrapper and child; what they held stays held.
func killed(h host, agent, occurrence, ttl string) {
	h.t.Helper()
	p := h.start("exec", "-q", "--ttl", ttl, "--agent", agent, "--occurrence", occurrence, "--", "sh", "-c", "echo $$ >c-"+agent+"; exec sleep 600")
	child := h.pid("c-" + agent)
	must(h.t, p.cmd.Process.Kill())
	p.wait()
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		h.t.Fatal(err)
	}
	eventually(h.t, "the end of the child", func() bool { return !alive(child) })
}

func TestAKilledRunIsRunningUntilItsTTLAndInDoubtAfter(t *testing.T) {
	t.Parallel()
	fleet := hosts(t, 2, common.get(t).Endpoints())
	a, b := fleet[0], fleet[1]
	killed(a, "doubt-f", "k", "15s")
	killed(a, "doubt-c", "k", "15s")
	killed(a, "doubt-r", "k", "15s")

	// While the liveness key lives: of one that outlasts the questions on the slowest machine.
	killed(a, "doubt-l", "k", "300s")
	b.call("exec", "--agent", "doubt-l", "--occurrence", "k", "--", "touch", "ran").want(0, "is running elsewhere, on ", "it was not run here")
	b.call("exec", "--agent", "doubt-l", "--occurrence", "k", "--if-held", "fail", "--", "touch", "ran").want(110, "is running elsewhere")
	b.call("exec", "--agent", "doubt-l", "--occurrence", "other", "--", "touch", "ran").want(110, "the agent is busy")
	if s := b.show("doubt-l", "k"); s.State != "running" || s.Epoch != 1 || s.Device == "" || s.Since == "" {
		t.Errorf("run show: %+v, want running with device, epoch and since when", s)
	}
	b.call("run", "resolve", "--agent", "doubt-l", "--occurrence", "k", "--as", "failed", "--reason", "impatience").want(1)
	if s := b.show("doubt-l", "k"); s.State != "running" {
		t.Errorf("a refused resolve left it %s", s.State)
	}

	// After the TTL.
	for _, agent := range []string{"doubt-f", "doubt-c", "doubt-r"} {
		eventually(t, "doubt about "+agent, func() bool { return b.show(agent, "k").State == "in doubt" })
		for _, h := range fleet {
			h.call("exec", "--agent", agent, "--occurrence", "k", "--", "touch", "ran").want(112, "may have run", "it was not run again", "syncnode run resolve")
		}
	}
	b.notThere("ran")
	s := b.show("doubt-f", "k")
	if s.Epoch != 1 || s.Device == "" || s.Since == "" || !strings.Contains(s.Next, "run resolve") {
		t.Errorf("run show: %+v, want device, epoch, since when, and what next", s)
	}

	// A person decides.
	b.call("run", "resolve", "--agent", "doubt-f", "--occurrence", "k", "--as", "failed", "--reason", "it is not there").want(0)
	a.call("exec", "--agent", "doubt-f", "--occurrence", "k", "--", "touch", "ran-f").want(0, "was run: committed at epoch 2")
	if b.show("doubt-f", "k").State != "committed" {
		t.Error("a run resolved as failed did not become free")
	}
	b.call("run", "resolve", "--agent", "doubt-c", "--occurrence", "k", "--as", "committed", "--reason", "it is there").want(0)
	a.call("exec", "--agent", "doubt-c", "--occurrence", "k", "--", "touch", "ran").want(0, "already committed", "it was not run again")
	a.call("exec", "--agent", "doubt-c", "--occurrence", "k", "--if-failed", "retry", "--on-doubt", "retry", "--", "touch", "ran").want(0, "already committed")
	a.call("exec", "--agent", "doubt-r", "--occurrence", "k", "--on-doubt", "retry", "--", "touch", "ran-r").want(0, "was run: committed")
	b.notThere("ran")
}

func TestAnEndlessRunIsTakenAwayOnlyByForce(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := hosts(t, 2, common.get(t).Endpoints())
	a, b := fleet[0], fleet[1]
	p := a.start("exec", "--agent", "endless", "--occurrence", "k", "--ttl", "30s", "--", "sh", "-c",
		"syncnode fence && touch before; "+beats+"; syncnode fence; echo $? >after; sleep 600")
	a.pid("c")
	defer func() {
		if t.Failed() {
			t.Logf("the run said:\n%s", p.wait().err.String())
		}
	}()
	b.call("lease", "steal", "endless", "--epoch", "1", "--reason", "x").want(1)
	b.call("lease", "release", "endless", "--epoch", "1").want(1)
	b.call("lease", "renew", "endless", "--epoch", "1").want(1)
	a.call("lease", "renew", "endless", "--epoch", "1").want(1)
	a.call("lease", "release", "endless", "--epoch", "1").want(1)
	b.call("run", "resolve", "--agent", "endless", "--occurrence", "k", "--as", "failed", "--reason", "x").want(1)
	if s := b.show("endless", "k"); s.State != "running" || a.read("after") != "" || a.lastBeat().IsZero() {
		t.Errorf("refusals touched the run: %+v", s)
	}
	b.call("lease", "steal", "endless", "--epoch", "1", "--reason", "it hangs", "--force").want(0)
	a.touch("go") // if it still lives, the fence says no
	p.want(111, "was run: failed (lost)")
	if after := a.read("after"); after != "" && after != "111\n" {
		t.Errorf("the fence of a run that lost its agent said %q, want 111", after)
	}
	if s := b.show("endless", "k"); s.State != "failed" || s.Cause != "lost" {
		t.Errorf("the stopped run is %s (%s), want failed (lost)", s.State, s.Cause)
	}
}

func TestALeaseIsPickedUpAgainWithProofOfDeathOnly(t *testing.T) {
	t.Parallel()
	fleet := hosts(t, 2, common.get(t).Endpoints())
	a, b := fleet[0], fleet[1]
	a.call("lease", "acquire", "by-hand").want(0)
	b.call("lease", "acquire", "by-hand").want(1, "held by")
	b.call("lease", "renew", "by-hand", "--epoch", "1").want(1)
	b.call("lease", "release", "by-hand", "--epoch", "1").want(1)
	a.call("lease", "renew", "by-hand", "--epoch", "1").want(0)
	a.call("lease", "release", "by-hand", "--epoch", "1").want(0)
	p := b.call("lease", "acquire", "by-hand").want(0)
	if !strings.Contains(p.out.String(), "epoch   2") {
		t.Errorf("the next grant is\n%swant epoch 2", p.out.String())
	}
}

// Also what people may do by force to a run of another process, and what is refused without it.
func TestARunTakenAwayByForceThatGoesOnIsADouble(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := hosts(t, 2, common.get(t).Endpoints())
	a, b := fleet[0], fleet[1]
	p := a.start("exec", "--agent", "double", "--occurrence", "k", "--ttl", "300s", "--on-lost", "keep", "--", "sh", "-c", beats)
	a.pid("c")
	resolve := []string{"run", "resolve", "--agent", "double", "--occurrence", "k", "--as", "failed", "--reason", "it hangs"}
	release := []string{"lease", "release", "double", "--epoch", "1", "--reason", "it hangs"}
	b.call(resolve...).want(1, "is alive, nothing was changed", "--force")
	b.call(release...).want(1)
	if s := b.show("double", "k"); s.State != "running" || s.Epoch != 1 {
		t.Errorf("refusals touched the run: %+v", s)
	}
	b.call(append(resolve, "--force")...).want(0)
	if s := b.show("double", "k"); s.State != "free" || len(s.Attempts) != 1 || s.Attempts[0].State != "void" {
		t.Errorf("after resolve by force: %+v, want free with a void attempt", s)
	}
	b.call("exec", "--agent", "double", "--occurrence", "k", "--", "touch", "ran").want(110, "the agent is busy")
	b.call(append(release, "--force")...).want(0)
	b.call("exec", "--agent", "double", "--occurrence", "k", "--", "touch", "ran").want(0, "was run: committed at epoch 2")
	if s := b.show("double", "k"); s.State != "committed" || s.Commits != 0 {
		t.Errorf("after one commit: %+v", s)
	}
	a.touch("go") // the first one goes on, as --on-lost keep says
	p.want(0, "was run: committed at epoch 1")
	if s := b.show("double", "k"); s.State != "committed" || s.Commits != 2 || !strings.Contains(s.Next, "committed 2 times") {
		t.Errorf("run show: %+v, want a double, and what next", s)
	}
	if out := string(b.looks("run", "list", "--agent", "double")); !strings.Contains(out, "committed, 2 times") {
		t.Errorf("run list prints\n%s\nwant a double", out)
	}
}
