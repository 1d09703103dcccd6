package cluster_test

import (
	"testing"

	"github.com/syncnode/syncnode/test/cluster"
)

func TestAClusterServesWritesThroughEachOfItsEndpoints(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	for i := range c.Members() {
		client := c.Client(t)
		client.SetEndpoints(c.MemberEndpoint(i))
		_, err := client.Put(ctx, "k", "v")
		must(t, err)
	}
}

func TestAClusterOfOneServes(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{Members: 1})
	_, err := c.Client(t).Put(ctx, "k", "v")
	must(t, err)
}

func TestAnotherLeaderFollowsAKilledOneAndTheKilledOneReturns(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	client := c.Client(t)
	old, err := c.WaitLeader(ctx)
	must(t, err)
	must(t, c.Kill(old))
	if c.Running(old) {
		t.Error("the killed member runs")
	}
	_, err = c.WaitLeader(ctx, old)
	must(t, err)
	_, err = client.Put(ctx, "k", "v")
	must(t, err)
	must(t, c.Restart(ctx, old))
	must(t, c.WaitReady(ctx))
	client.SetEndpoints(c.MemberEndpoint(old))
	got, err := client.Get(ctx, "k")
	must(t, err)
	if len(got.Kvs) != 1 {
		t.Error("the member that returned does not know what was written without it")
	}
}
