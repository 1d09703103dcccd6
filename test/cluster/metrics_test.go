package cluster_test

import (
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/test/cluster"
)

func TestProposalsAreCountedPerOperation(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	// A slow clock keeps a busy machine from electing in the middle of a count.
	c := cluster.New(t, cluster.Config{TickMS: 50, ElectionMS: 1000})
	client := c.Client(t)
	wrong := errors.New("not an error of etcd")
	for _, op := range []struct {
		name string
		want int
		run  func() error
		err  error
	}{
		{name: "nothing", want: 0, run: func() error { return nil }},
		{name: "linearizable get", want: 0, run: func() error { _, err := client.Get(ctx, "k"); return err }},
		{name: "put", want: 1, run: func() error { _, err := client.Put(ctx, "k", "v"); return err }},
		{name: "transaction of two puts", want: 1, run: func() error {
			_, err := client.Txn(ctx).Then(clientv3.OpPut("a", ""), clientv3.OpPut("b", "")).Commit()
			return err
		}},
		{name: "read-only transaction", want: 0, run: func() error {
			_, err := client.Txn(ctx).Then(clientv3.OpGet("a"), clientv3.OpGet("b")).Commit()
			return err
		}},
		{name: "grant, renew, revoke", want: 2, run: func() error {
			lease, err := client.Grant(ctx, 600)
			if err != nil {
				return err
			}
			_, err = client.KeepAliveOnce(ctx, lease.ID)
			if err != nil {
				return err
			}
			_, err = client.Revoke(ctx, lease.ID)
			return err
		}},
		{name: "failure", want: 0, run: func() error { return wrong }, err: wrong},
	} {
		got, err := c.CountProposals(ctx, op.run)
		for errors.Is(err, cluster.ErrDisturbed) {
			got, err = c.CountProposals(ctx, op.run)
		}
		if got != op.want || !errors.Is(err, op.err) {
			t.Errorf("%s: got %d, %v; want %d, %v", op.name, got, err, op.want, op.err)
		}
	}
}

func TestACountThatMeetsAnElectionIsRefused(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := cluster.New(t, cluster.Config{})
	for {
		killed := 0
		_, err := c.CountProposals(ctx, func() (err error) {
			if killed, err = c.WaitLeader(ctx); err != nil {
				return err
			}
			if err := c.Kill(killed); err != nil {
				return err
			}
			_, err = c.WaitLeader(ctx, killed)
			return err
		})
		if errors.Is(err, cluster.ErrDisturbed) {
			return
		}
		// Another may have led already when it was killed: then nothing was elected.
		if err != nil {
			t.Fatalf("got %v, want ErrDisturbed", err)
		}
		must(t, c.Restart(ctx, killed))
	}
}
