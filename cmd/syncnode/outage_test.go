package main

import (
	"errors"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// These tests break a cluster of their own, one after the other, and leave it whole.

func TestAnExecCostsAtMostFiveProposals(t *testing.T) {
	c := lone.alone(t)
	h := hosts(t, 1, c.Endpoints())[0]
	h.call("exec", "-q", "--agent", "cost", "--occurrence", "warm", "--", "true").want(0)
	client := c.Client(t)
	eventually(t, "no lease of an earlier test is left to run out", func() bool {
		left, err := client.Leases(bounded(t))
		return err == nil && len(left.Leases) == 0
	})
	for i := range 10 {
		n, err := c.CountProposals(bounded(t), func() error {
			h.call("exec", "-q", "--agent", "cost", "--occurrence", occ(i), "--", "true").want(0)
			return nil
		})
		if errors.Is(err, cluster.ErrDisturbed) {
			continue
		}
		must(t, err)
		t.Logf("one exec: %d proposals", n)
		if n > 5 || n < 3 {
			t.Errorf("an exec made %d proposals, want at most 5: grant, acquire and begin, finish and release, revoke", n)
		}
		if n, err = c.CountProposals(bounded(t), func() error {
			h.call("exec", "-q", "--agent", "cost", "--occurrence", occ(i), "--", "true").want(0)
			return nil
		}); err == nil && n != 0 {
			t.Errorf("an exec of a committed run made %d proposals, want none", n)
		}
		return
	}
	t.Error("the leader changed at every count")
}

// pauseAll stops every member, and returns when all stand still: nothing was answered after.
func pauseAll(t *testing.T, c *cluster.Cluster) time.Time {
	t.Helper()
	t.Cleanup(func() { resumeAll(t, c) })
	for i := range c.Members() {
		must(t, c.Pause(i))
	}
	return time.Now()
}

func resumeAll(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for i := range c.Members() {
		must(t, c.Resume(i))
	}
}

func TestACommandIsGoneBeforeItsLeaseCanEndWhenEtcdStops(t *testing.T) {
	c := lone.alone(t)
	fleet := hosts(t, 2, c.Endpoints())
	a, b := fleet[0], fleet[1]
	p := a.start("exec", "--agent", "stop", "--occurrence", "k", "--ttl", "5s", "--", "sh", "-c", beats)
	child := a.pid("c")
	eventually(t, "a beat", func() bool { return !a.lastBeat().IsZero() })
	stopped := pauseAll(t, c) // the last good send was before
	eventually(t, "the end of the child", func() bool { return !alive(child) })
	if late := a.lastBeat().Sub(stopped); late >= 5*time.Second {
		t.Errorf("the child went on for %s after the last good send, want less than 5 s", late)
	}
	resumeAll(t, c)
	p.want(111, "was run: failed (lost)")
	must(t, c.WaitReady(bounded(t)))
	b.call("exec", "--agent", "stop", "--occurrence", "next", "--if-held", "wait", "--", "touch", "ran").want(0)
	if s := b.show("stop", "k"); s.State != "failed" || s.Cause != "lost" {
		t.Errorf("the stopped run is %s (%s), want failed (lost)", s.State, s.Cause)
	}
	b.call("exec", "--agent", "stop", "--occurrence", "k", "--", "touch", "again").want(115)
	b.notThere("again")
}

func TestAStallOfThreeSecondsTouchesNothing(t *testing.T) {
	c := lone.alone(t)
	a := hosts(t, 1, c.Endpoints())[0]
	// Of a minute a busy machine has a quarter to go on in after the stall.
	p := a.start("exec", "--agent", "stall", "--occurrence", "k", "--ttl", "60s", "--", "sh", "-c", beats)
	a.pid("c")
	stopped := pauseAll(t, c)
	eventually(t, "three seconds of beats", func() bool { return a.lastBeat().Sub(stopped) > 3*time.Second })
	resumeAll(t, c)
	must(t, c.WaitReady(bounded(t)))
	a.touch("go")
	p.want(0, "was run: committed at epoch 1")
}

func TestALedgerThatWentBackIsRefusedEverywhere(t *testing.T) {
	c := lone.alone(t)
	fleet := hosts(t, 2, c.Endpoints())
	a, b := fleet[0].with("--namespace", "restored"), fleet[1].with("--namespace", "restored")
	a.call("exec", "-q", "--agent", "job", "--occurrence", "one", "--", "true").want(0)
	old, err := c.SaveState(bounded(t))
	must(t, err)
	a.call("exec", "-q", "--agent", "job", "--occurrence", "two", "--", "true").want(0)
	must(t, c.LoadState(bounded(t), old))
	a.call("exec", "--agent", "job", "--occurrence", "two", "--", "touch", "ran").want(113, "was not run", "recover")
	a.call("exec", "--agent", "job", "--occurrence", "three", "--", "touch", "ran").want(113, "was not run")
	b.call("exec", "--agent", "other", "--occurrence", "one", "--", "touch", "ran").want(113, "was not run", "recover")
	b.notThere("ran")
	a.call("recover", "status").want(0).prints("nothing begins")
	a.call("recover", "end", "--reason", "too early").want(1, "was not lifted")
	a.call("recover", "end", "--reason", "too early", "--force").want(0).prints("not set")
	a.call("exec", "--agent", "job", "--occurrence", "four", "--", "touch", "ran").want(113, "was not run") // still missing: the gate closes again
	a.call("recover", "offer").want(0).prints("all 2 attempts")
	a.call("recover", "end", "--reason", "offered").want(0).prints("not set")
	a.call("exec", "--agent", "job", "--occurrence", "two", "--", "touch", "ran").want(0, "already committed")
	b.notThere("ran")
	b.call("exec", "-q", "--agent", "other", "--occurrence", "one", "--", "true").want(0)
	// Another namespace of the same etcd is another ledger.
	fleet[1].with("--namespace", "fresh").call("exec", "-q", "--agent", "other", "--occurrence", "one", "--", "true").want(0)
}

func TestADataDirectoryOfOneClusterIsRefusedByAnotherBehindTheSameEndpoints(t *testing.T) {
	c := lone.alone(t)
	fleet := hosts(t, 2, c.Endpoints())
	fleet[0].call("exec", "-q", "--agent", "job", "--occurrence", "one", "--", "true").want(0)
	must(t, c.Reset(bounded(t)))
	fleet[0].call("exec", "--agent", "job", "--occurrence", "two", "--", "touch", "ran").want(125, "another one", "the command was not run", "--data-dir")
	fleet[0].notThere("ran")
	fleet[1].call("exec", "-q", "--agent", "job", "--occurrence", "two", "--", "true").want(0)
	fleet[0].call("recover", "adopt", "--reason", "a new etcd").want(0).prints("nothing begins")
	fleet[0].call("exec", "--agent", "job", "--occurrence", "three", "--", "touch", "ran").want(113, "was not run")
	fleet[0].call("recover", "end", "--reason", "looked", "--force").want(0).prints("not set")
	fleet[0].call("exec", "-q", "--agent", "job", "--occurrence", "three", "--", "true").want(0)
}

// Whichever member is silent, the leader too: the other two are there.
func TestOneSilentMemberOfThreeStopsNobody(t *testing.T) {
	thorough.Only(t)
	c := lone.alone(t)
	fleet := spaced(hosts(t, 2, c.Endpoints()), "silent")
	for i := range c.Members() {
		must(t, c.Pause(i))
		fleet[0].call("exec", "--agent", "job", "--occurrence", occ(i), "--", "touch", occ(i)).want(0, "was run: committed")
		if got := fleet[1].show("job", occ(i)).State; got != "committed" {
			t.Errorf("the run is %s, want committed", got)
		}
		fleet[1].serve().stops()
		d := fleet[0].doctor(0, "--backend-timeout", "5s")
		d.says(t, "endpoints", "warning", c.MemberEndpoint(i)+" does not answer: no answer within 5s")
		d.says(t, "ledger", "ok", "generation")
		must(t, c.Resume(i))
		must(t, c.WaitReady(bounded(t)))
	}
}
