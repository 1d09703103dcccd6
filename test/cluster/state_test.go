package cluster_test

import (
	"testing"

	"github.com/syncnode/syncnode/test/cluster"
)

func TestALoadedStateForgetsWhatCameAfterItsSave(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	client := c.Client(t)
	_, err := client.Put(ctx, "old", "")
	must(t, err)
	saved, err := c.SaveState(ctx)
	must(t, err)
	put, err := client.Put(ctx, "new", "")
	must(t, err)
	must(t, c.LoadState(ctx, saved))

	if got, err := client.Get(ctx, "old"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("what was saved reads as %v, %v", got, err)
	}
	if got, err := client.Get(ctx, "new"); err != nil || len(got.Kvs) != 0 {
		t.Errorf("what was not saved reads as %v, %v", got, err)
	}
	again, err := client.Put(ctx, "other", "")
	must(t, err)
	if again.Header.Revision != put.Header.Revision {
		t.Errorf("the revision is %d, want %d a second time", again.Header.Revision, put.Header.Revision)
	}
	if again.Header.ClusterId != put.Header.ClusterId {
		t.Error("a restored cluster changed its id")
	}
}

func TestAResetClusterIsEmptyAndAnother(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{Members: 1})
	client := c.Client(t)
	put, err := client.Put(ctx, "k", "")
	must(t, err)
	must(t, c.Reset(ctx))
	got, err := client.Get(ctx, "k")
	must(t, err)
	if len(got.Kvs) != 0 || got.Header.ClusterId == put.Header.ClusterId {
		t.Errorf("want nothing from another cluster than %x, got %v", put.Header.ClusterId, got)
	}
}

func TestAWriteThatWasAcknowledgedOutlivesTheDeathOfAllMembers(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	client := c.Client(t)
	_, err := client.Put(ctx, "k", "")
	must(t, err)
	for i := range c.Members() {
		must(t, c.Kill(i))
	}
	for i := range c.Members() {
		must(t, c.Restart(ctx, i))
	}
	must(t, c.WaitReady(ctx))
	if got, err := client.Get(ctx, "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the write reads as %v, %v", got, err)
	}
}
