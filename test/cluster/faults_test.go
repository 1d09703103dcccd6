package cluster_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/test/cluster"
)

func TestAnotherLeaderFollowsAPausedOneAndTheResumedOneCatchesUp(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	old, err := c.WaitLeader(ctx)
	must(t, err)
	must(t, c.Pause(old))
	next, err := c.WaitLeader(ctx, old)
	must(t, err)
	client := direct(t, c, next)
	_, err = client.Put(ctx, "k", "v")
	must(t, err)
	must(t, c.Resume(old))
	must(t, c.WaitReady(ctx))
	if got, err := direct(t, c, old).Get(ctx, "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the resumed member reads %v, %v", got, err)
	}
}

func TestTheLeadershipIsHandedOverInANewTerm(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	term := func(i int) uint64 {
		t.Helper()
		status, err := direct(t, c, i).Status(ctx, c.MemberEndpoint(i))
		must(t, err)
		return status.RaftTerm
	}
	old, err := c.WaitLeader(ctx)
	must(t, err)
	next, _ := others(c, old)
	before := term(old)
	must(t, c.MoveLeader(ctx, next))
	if now, err := c.Leader(ctx); err != nil || now != next || term(next) <= before {
		t.Errorf("member %d leads (%v) in term %d, want member %d in one after %d", now, err, term(next), next, before)
	}
}

func TestACutOfOneDirectionStopsItsMessagesAlone(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	old, err := c.WaitLeader(ctx)
	must(t, err)
	a, b := others(c, old)
	c.Cut(old, a)
	c.Cut(old, b)
	if _, err = c.WaitLeader(ctx, old); err != nil {
		t.Fatal("the followers of a leader that they do not hear elected none:", err)
	}
	// The old leader hears the new one, and what it answers reaches nobody.
	deposed := direct(t, c, old)
	eventually(t, "the old leader to follow the new one", func() bool {
		status, err := deposed.Status(ctx, c.MemberEndpoint(old))
		must(t, err)
		return status.Leader != 0 && status.Leader != status.Header.MemberId
	})
	if !refused(deposed) {
		t.Error("a member whose messages reach nobody answered a linearizable read")
	}
	c.Heal()
	must(t, c.WaitReady(ctx))
}

func TestAnIsolatedLeaderRefusesALinearizableReadUntilHealed(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	old, err := c.WaitLeader(ctx)
	must(t, err)
	c.Isolate(old)
	next, err := c.WaitLeader(ctx, old)
	must(t, err)
	_, err = direct(t, c, next).Put(ctx, "k", "v")
	must(t, err)
	if !refused(direct(t, c, old)) {
		t.Error("the isolated member answered a linearizable read")
	}
	if stale, err := direct(t, c, old).Get(ctx, "k", clientv3.WithSerializable()); err != nil || len(stale.Kvs) != 0 {
		t.Errorf("the isolated member cannot know the write, and reads %v, %v", stale, err)
	}
	c.Heal()
	must(t, c.WaitReady(ctx))
	if got, err := direct(t, c, old).Get(ctx, "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the healed member reads %v, %v", got, err)
	}
}

// A follower forwards a renewal over a connection that says nothing about its sender.
func TestOfTwoFollowersTheIsolatedOneAloneCannotRenewALease(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("outside Linux the sender of such a connection is not known, and both are refused")
	}
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{TickMS: 50}) // on a busy machine too the leader stays the leader
	leader, err := c.WaitLeader(ctx)
	must(t, err)
	a, b := others(c, leader)
	isolated, healthy := direct(t, c, a), direct(t, c, b)
	lease, err := healthy.Grant(ctx, 600)
	must(t, err)
	_, err = isolated.KeepAliveOnce(ctx, lease.ID) // opens the connection that isolation has to find
	must(t, err)
	c.Isolate(a)
	_, err = healthy.KeepAliveOnce(ctx, lease.ID)
	must(t, err)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := isolated.KeepAliveOnce(short, lease.ID); err == nil {
		t.Error("an isolated member renewed a lease")
	}
}

func TestACutClientIsResetAndAHealedOneServed(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Members: 1})
	client := c.Client(t)
	read(t, client)
	c.CutClient(0)
	if !refused(client) {
		t.Error("a cut client was served")
	}
	c.HealClient(0)
	read(t, client)
	c.BlackholeClient(0)
	if !refused(client) {
		t.Error("a client in a black hole was served")
	}
	c.HealClient(0)
	read(t, client)
}

func TestOneClientCanBeCutOffWhileAnotherGoesOn(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Members: 1})
	p, err := c.NewClientProxy()
	must(t, err)
	mine, other := p.Client(t), c.Client(t)
	for _, fault := range []func(){p.Cut, p.Blackhole, p.BlackholeReplies} {
		read(t, mine)
		fault()
		if !refused(mine) {
			t.Error("the client that was cut off was served")
		}
		read(t, other)
		p.Heal()
	}
	read(t, mine)
}

// read is a linearizable read that has to succeed.
func read(t *testing.T, client *clientv3.Client) {
	t.Helper()
	_, err := client.Get(bounded(t), "k")
	must(t, err)
}

// refused says whether a linearizable read was not answered within a bound.
func refused(client *clientv3.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
	defer cancel()
	_, err := client.Get(ctx, "k")
	return err != nil
}

// direct returns a client of one member.
func direct(t *testing.T, c *cluster.Cluster, i int) *clientv3.Client {
	t.Helper()
	client := c.Client(t)
	client.SetEndpoints(c.MemberEndpoint(i))
	return client
}

// others returns the two members of three that are not i.
func others(c *cluster.Cluster, i int) (int, int) {
	return (i + 1) % c.Members(), (i + 2) % c.Members()
}

// eventually polls f up to a bound.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain for " + what)
		}
	}
}
