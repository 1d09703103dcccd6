package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

// A standing is what `recover status -o json` prints, as far as it is looked at.
type standing struct {
	Set     bool
	Reason  string
	Waiting []string
	Devices []struct {
		Device  string
		Offered bool
	}
	Gap *struct {
		Attempts []struct{ Lacks, Agent, Occurrence, State string }
		Epochs   []struct {
			Agent         string
			Epoch, Stored int
		}
	}
}

func (h host) standing() standing {
	h.t.Helper()
	var s standing
	must(h.t, json.Unmarshal(h.call("recover", "status", "-o", "json").want(0).out.Bytes(), &s))
	return s
}

// epoch runs one more occurrence of an agent and says at which epoch.
func (h host) epoch(agent, occurrence string) int {
	h.t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(h.call("exec", "-q", "--agent", agent, "--occurrence", occurrence, "--", "sh", "-c", "echo $SYNCNODE_RUN_EPOCH").want(0).out.String()))
	must(h.t, err)
	return n
}

// The runbook "Restore etcd from a snapshot" of docs/operations.md, step by step.
func TestTheRunbookOfARestoreBringsBackEveryRunAndEveryEpoch(t *testing.T) {
	thorough.Only(t)
	c := lone.alone(t)
	fleet := spaced(hosts(t, 6, c.Endpoints()), "runbook")
	cron, other, lostDisk, node, bystander, admin := fleet[0], fleet[1], fleet[2], fleet[3], fleet[4], fleet[5]
	cron.run("job", "before")
	serving := []server{lostDisk.serve(), node.serve()}
	lostDisk.run("far", "before")
	eventually(t, "the node knows the other's log", func() bool { return node.verify().Known == 2 })
	for _, s := range serving {
		s.stops()
	}
	snapshot, err := c.SaveState(bounded(t))
	must(t, err)

	// What nobody's snapshot holds: commits, a failure, a run that was cut off, one whose host is lost with its disk.
	cron.run("job", "committed")
	other.run("job", "elsewhere")
	other.call("exec", "-q", "--agent", "job", "--occurrence", "failed", "--", "false").want(1)
	p := cron.start("exec", "--agent", "cut", "--occurrence", "off", "--", "sh", "-c", "echo $$ >c; exec sleep 600")
	child := cron.pid("c")
	must(t, p.cmd.Process.Kill())
	p.wait()
	_ = syscall.Kill(child, syscall.SIGKILL)
	serving = []server{lostDisk.serve(), node.serve()}
	lostDisk.run("far", "lost with its disk")
	eventually(t, "the node knows the other's log", func() bool { return node.verify().Known == 4 })
	for _, s := range serving {
		s.stops()
	}
	lostID := lostDisk.verify().Device
	must(t, os.RemoveAll(lostDisk.dir))
	highest := cron.epoch("job", "last before the loss")

	// Restore, and set the gate before anybody else can reach it.
	must(t, c.LoadState(bounded(t), snapshot))
	admin.call("recover", "begin", "--reason", "etcd lost its disks").want(0).prints("nothing begins")
	bystander.call("exec", "--agent", "job", "--occurrence", "elsewhere", "--", "touch", "ran").want(113, "was not run", "etcd lost its disks")

	// The gap list.
	s := cron.standing()
	if !s.Set || s.Reason != "etcd lost its disks" || s.Gap == nil {
		t.Fatalf("recover status: %+v", s)
	}
	var lacks []string
	for _, a := range s.Gap.Attempts {
		lacks = append(lacks, fmt.Sprint(a.Agent, " ", a.Occurrence, ": ", a.State))
	}
	slices.Sort(lacks)
	if want := []string{"cut key:off: open", "job key:committed: committed", "job key:last before the loss: committed"}; !slices.Equal(lacks, want) {
		t.Errorf("the gap is %q, want %q", lacks, want)
	}
	if e := s.Gap.Epochs; !slices.ContainsFunc(e, func(e struct {
		Agent         string
		Epoch, Stored int
	}) bool {
		return e.Agent == "job" && e.Epoch == highest && e.Stored == 1
	}) {
		t.Errorf("epochs %+v, want job at %d, stored 1", e, highest)
	}
	if again := cron.standing(); len(again.Gap.Attempts) != len(lacks) {
		t.Errorf("to look at it changed it: %+v", again.Gap)
	}

	// Who has not offered holds the gate.
	admin.call("recover", "end", "--reason", "too early").want(1, "was not lifted", cron.verify().Device, lostID)
	cron.call("recover", "offer").want(0).prints("all 4 attempts")
	other.call("recover", "offer", "-o", "json").want(0).prints(`"written":2`)
	serves := node.serve()
	serves.says("offered what this device remembers")
	admin.call("recover", "end", "--reason", "too early").want(1, "not offered what they remember: "+lostID)
	if s := cron.standing(); len(s.Gap.Attempts)+len(s.Gap.Epochs) != 0 || !slices.Equal(s.Waiting, []string{lostID}) {
		t.Errorf("after all offered: %+v", s)
	}
	admin.call("run", "list", "--state", "in-doubt").want(0).prints("far")
	admin.call("run", "resolve", "--agent", "far", "--occurrence", "lost with its disk", "--as", "committed", "--reason", "the bank has it").want(0)
	bystander.call("exec", "--agent", "job", "--occurrence", "new", "--", "touch", "ran").want(113, "was not run")
	admin.call("recover", "end", "--reason", "all offered", "--without", lostID).want(0).prints("not set")

	// Nothing that was done is done again, and no epoch is given again.
	for agent, occurrences := range map[string][]string{"job": {"before", "committed", "elsewhere", "last before the loss"}, "far": {"before", "lost with its disk"}} {
		for _, o := range occurrences {
			bystander.call("exec", "--agent", agent, "--occurrence", o, "--", "touch", "ran").want(0, "already committed")
		}
	}
	bystander.call("exec", "--agent", "job", "--occurrence", "failed", "--", "touch", "ran").want(115)
	bystander.call("exec", "--agent", "cut", "--occurrence", "off", "--", "touch", "ran").want(112)
	bystander.notThere("ran")
	if got := bystander.epoch("job", "new"); got <= highest {
		t.Errorf("granted epoch %d, and %d was granted before the restore", got, highest)
	}
	cron.run("job", "the device that lost most goes on")
	serves.stops()
}

func TestAnAdoptedLedgerIsToldWhatWasDoneUnderTheEarlierOne(t *testing.T) {
	thorough.Only(t)
	c := lone.alone(t)
	fleet := spaced(hosts(t, 2, c.Endpoints()), "adopted")
	a, b := fleet[0], fleet[1]
	a.run("job", "one")
	last := a.epoch("job", "two")
	must(t, c.Reset(bounded(t)))
	a.call("exec", "--agent", "job", "--occurrence", "one", "--", "touch", "ran").want(125, "another one", "the command was not run")
	a.call("recover", "offer").want(1, "another one")
	a.call("recover", "adopt", "--reason", "a new etcd").want(0).prints("nothing begins")
	a.call("recover", "end", "--reason", "too early").want(1, "was not lifted")
	b.call("exec", "--agent", "job", "--occurrence", "one", "--", "touch", "ran").want(113, "was not run")
	if s := a.standing(); s.Gap == nil || len(s.Gap.Attempts) != 2 || len(s.Gap.Epochs) != 1 {
		t.Errorf("gap of the adopted ledger: %+v", s.Gap)
	}
	a.call("recover", "offer").want(0).prints("all 2 attempts")
	a.call("recover", "end", "--reason", "offered").want(0).prints("not set")
	for _, h := range fleet {
		h.call("exec", "--agent", "job", "--occurrence", "one", "--", "touch", "ran").want(0, "already committed")
	}
	b.notThere("ran")
	if got := b.epoch("job", "three"); got != last+1 {
		t.Errorf("granted epoch %d, want %d", got, last+1)
	}
}

func TestALedgerThatGoesBackTwiceIsWaitedForTwice(t *testing.T) {
	thorough.Only(t)
	c := lone.alone(t)
	a := spaced(hosts(t, 1, c.Endpoints()), "twice")[0]
	a.run("job", "one")
	a.call("recover", "begin", "--reason", "a drill").want(0)
	a.call("recover", "offer").want(0).prints("it counts")
	snapshot, err := c.SaveState(bounded(t)) // under a gate that everybody has offered under
	must(t, err)
	a.call("recover", "end", "--reason", "done").want(0).prints("not set")
	a.run("job", "two")
	must(t, c.LoadState(bounded(t), snapshot))
	a.call("recover", "begin", "--reason", "now in earnest").want(0)
	a.call("recover", "end", "--reason", "too early").want(1, "was not lifted")
	a.call("recover", "offer", "-o", "json").want(0).prints(`"written":1`)
	a.call("recover", "end", "--reason", "done").want(0).prints("not set")
	a.call("exec", "--agent", "job", "--occurrence", "two", "--", "touch", "ran").want(0, "already committed")
	a.notThere("ran")
}
