package main

import (
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord/etcd"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// Those of these tests that break a cluster have one of their own, one after the other, and leave it whole.

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

// To the commands etcd stands still. To others it does not: it says which leases have ended, so that only the order of events counts. A
// look that comes late sees less, and never what was not so.
func TestACommandIsGoneBeforeItsLeaseCanEndWhenEtcdStops(t *testing.T) {
	t.Parallel()
	c := common.get(t)
	way, err := c.NewClientProxy()
	must(t, err)
	defer way.Close()
	fleet := hosts(t, 2, c.Endpoints())
	a, b := fleet[0], fleet[1]
	a.args = []string{"--endpoints", strings.Join(way.Endpoints(), ",")}
	begin := func(agent string, more ...string) *process {
		args := append([]string{"exec", "--agent", agent, "--occurrence", "k", "--result", agent + ".json"}, more...)
		return a.start(append(args, "--", "sh", "-c", `test $0 = deaf && trap "" TERM; echo $$ >c-$0; until test -e go; do sleep 0.2; done`, agent)...)
	}
	stopped := map[string]*process{"obeys": begin("obeys"), "deaf": begin("deaf", "--grace", "1s")}
	kept := begin("kept", "--ttl", "2s", "--on-lost", "keep")
	pids := map[string]int{"obeys": a.pid("c-obeys"), "deaf": a.pid("c-deaf"), "kept": a.pid("c-kept")}
	way.Blackhole()
	for _, agent := range []string{"obeys", "deaf"} {
		eventually(t, "the end of the lease of "+agent, func() bool { return b.show(agent, "k").State != "running" })
		if alive(pids[agent]) {
			t.Errorf("the lease of %s has ended, and its child is there", agent)
		}
	}
	if !alive(pids["kept"]) {
		t.Error("--on-lost keep: the child is gone, and its lease ended long before those of the others")
	}
	way.Heal()
	a.touch("go")
	kept.want(0, "was run: committed at epoch 1")
	for agent, signal := range map[string]syscall.Signal{"obeys": syscall.SIGTERM, "deaf": syscall.SIGKILL} {
		stopped[agent].want(111, "was run: failed (lost)")
		var r resultRow
		must(t, json.Unmarshal([]byte(a.read(agent+".json")), &r))
		if r.Signal != int(signal) {
			t.Errorf("the child of %s was ended by signal %d, want %d", agent, r.Signal, signal)
		}
		b.call("exec", "--agent", agent, "--occurrence", "next", "--if-held", "wait", "--", "touch", "ran").want(0)
		a.call("exec", "--agent", "later", "--occurrence", agent, "--", "true").want(0) // writes what the other could not
		if s := b.show(agent, "k"); s.State != "failed" || s.Cause != "lost" {
			t.Errorf("the stopped run is %s (%s), want failed (lost)", s.State, s.Cause)
		}
		b.call("exec", "--agent", agent, "--occurrence", "k", "--", "touch", "again").want(115)
	}
	b.notThere("again")
}

func TestAStallOfThreeSecondsTouchesNothing(t *testing.T) {
	c := lone.alone(t)
	a := hosts(t, 1, c.Endpoints())[0].with("--namespace", "stall")
	p := a.start("exec", "--agent", "stall", "--occurrence", "k", "--", "sh", "-c", beats)
	a.pid("c")
	// A renewal comes due after five of the fifteen seconds, within the stall. The command would be told to stop after ten: a busy machine
	// has the rest of them to go on in.
	client := c.Client(t)
	eventually(t, "eleven seconds and a part are left of the lease", func() bool {
		live, err := client.Get(bounded(t), etcd.Prefix("stall")+"live/", clientv3.WithPrefix())
		if err != nil || len(live.Kvs) != 1 {
			return false
		}
		lease, err := client.TimeToLive(bounded(t), clientv3.LeaseID(live.Kvs[0].Lease))
		return err == nil && lease.TTL == 11
	})
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
