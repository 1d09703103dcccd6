package cluster_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/test/cluster"
)

func TestADroppedReplyLeavesAWriteThatItsClientDoesNotKnow(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	p, err := c.NewClientProxy()
	must(t, err)
	client, other := p.Client(t), c.Client(t)
	read(t, client)

	p.DropNextReply("Put")
	read(t, client) // not a Put
	if _, err := client.Put(ctx, "k", "v"); err == nil {
		t.Error("the client saw its write succeed")
	}
	must(t, p.WaitDropped(ctx))
	if got, err := other.Get(ctx, "k"); err != nil || len(got.Kvs) != 1 || got.Kvs[0].Version != 1 {
		t.Errorf("want the write once, got %v, %v", got, err)
	}
	if _, err := client.Put(ctx, "k", "w"); err != nil {
		t.Error("more than one reply was dropped:", err)
	}
}

func TestADroppedReplyOfATransactionLeavesItsEffect(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{Members: 1})
	p, err := c.NewClientProxy()
	must(t, err)
	client := p.Client(t)
	p.DropNextReply()
	_, err = client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision("k"), "=", 0)).Then(clientv3.OpPut("k", "v")).Commit()
	if err == nil {
		t.Error("the client saw its transaction succeed")
	}
	must(t, p.WaitDropped(ctx))
	if got, err := client.Get(ctx, "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("want the write, got %v, %v", got, err)
	}
}

func TestAHeldRequestLandsAfterItsClientGaveUp(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*clientv3.Client){
		"and stays":      func(*clientv3.Client) {},
		"and is no more": func(client *clientv3.Client) { _ = client.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := bounded(t)
			c := cluster.New(t, cluster.Config{Members: 1})
			p, err := c.NewClientProxy()
			must(t, err)
			client, other := p.Client(t), c.Client(t)
			read(t, client)

			p.HoldRequests()
			attempt, giveUp := context.WithCancel(ctx)
			failed := make(chan error, 1)
			go func() {
				_, err := client.Put(attempt, "k", "late")
				failed <- err
			}()
			must(t, p.WaitHeld(ctx, 1))
			giveUp()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("the client that gave up saw %v", err)
			}
			leave(client)
			if got, err := other.Get(ctx, "k"); err != nil || len(got.Kvs) != 0 {
				t.Errorf("the held request has landed: %v, %v", got, err)
			}
			must(t, p.Release(ctx))
			if got, err := other.Get(ctx, "k"); err != nil || len(got.Kvs) != 1 {
				t.Errorf("the released request has not landed: %v, %v", got, err)
			}
		})
	}
}

func TestHeldRequestsOfALivingClientAreAnsweredOnceReleased(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{Members: 1})
	p, err := c.NewClientProxy()
	must(t, err)
	client := p.Client(t)
	read(t, client)
	p.HoldRequests()
	const n = 20
	done := make(chan error, n)
	for range n {
		go func() {
			_, err := client.Put(ctx, "k", "v")
			done <- err
		}()
	}
	must(t, p.WaitHeld(ctx, n))
	must(t, p.Release(ctx))
	for range n {
		must(t, <-done)
	}
	got, err := client.Get(ctx, "k")
	must(t, err)
	if got.Kvs[0].Version != n {
		t.Errorf("%d writes landed, want %d", got.Kvs[0].Version, n)
	}
}
