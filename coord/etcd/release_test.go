package etcd

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
)

// A release whose first copy was carried out unseen is no loss, also if others held the agent since; one that came too
// late is.
func TestAReleaseSettledAfterOthersHeldTheAgentTellsGivenBackFromTaken(t *testing.T) {
	admin := three(t).Client(t)
	client, kv := slow(t, three(t))
	ns := namespace()
	c, other := process(t, client, ns), process(t, admin, ns)
	for _, compacted := range []bool{false, true} {
		for _, applied := range []bool{true, false} {
			l, err := c.Acquire(bounded(t), request("a", "d1"))
			must(t, err)
			kv.next(func(ctx context.Context, n int, s send) (*clientv3.TxnResponse, error) {
				if n > 1 {
					return s(ctx)
				}
				ctx = bounded(t) // what happens here takes longer than one copy is waited for
				if applied {
					_, err = s(ctx)
					must(t, err)
				} else {
					expire(t, admin, c)
				}
				for range 2 {
					next, err := other.Acquire(ctx, request("a", "d2"))
					must(t, err)
					must(t, other.Release(ctx, "a", "d2", next.Epoch))
				}
				if compacted {
					resp, err := admin.Get(ctx, "x")
					must(t, err)
					_, err = admin.Compact(ctx, resp.Header.Revision)
					must(t, err)
				}
				return nil, errLost
			})
			err = c.Release(bounded(t), "a", "d1", l.Epoch)
			kv.next(nil)
			switch {
			case compacted:
				wantErr(t, err, coord.ErrLost)
				wantErr(t, err, coord.ErrIndeterminate)
			case applied:
				must(t, err)
			default:
				wantErr(t, err, coord.ErrLost)
				if errors.Is(err, coord.ErrIndeterminate) {
					t.Errorf("got %v", err)
				}
			}
		}
	}
}
