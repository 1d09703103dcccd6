package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// revoke ends an etcd lease that is not needed. It tries once: Close tries again.
func (c *Coordinator) revoke(ctx context.Context, l *life, id clientv3.LeaseID) {
	t := c.tries("revoke a liveness of device", l.device)
	err := t.once(ctx, func(ctx context.Context) error {
		_, err := c.leases.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: int64(id)})
		return err
	})
	if class := classify(err); class == answered || class == noLease {
		l.died(id)
	}
}

// spawn runs f until Close waits for it; false if it is too late for that.
func (c *Coordinator) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// Close revokes every etcd lease that this process was granted and did not see die: what it holds
// expires at once, and nothing that it asked for and that is still under way can be granted any more. What
// could not be revoked runs out by itself. The coordinator cannot be used afterwards.
func (c *Coordinator) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	lives := slices.Collect(maps.Values(c.lives))
	c.mu.Unlock()
	c.stop()
	c.wg.Wait()
	var errs []error
	for _, l := range lives {
		l.mu.Lock()
		ids := slices.Collect(maps.Keys(l.granted))
		l.mu.Unlock()
		for _, id := range ids {
			errs = append(errs, c.revokeSurely(ctx, l, id))
		}
	}
	return joined("close", errs)
}

// revokeSurely asks until it is answered.
func (c *Coordinator) revokeSurely(ctx context.Context, l *life, id clientv3.LeaseID) error {
	t := c.tries("revoke the liveness of device", l.device)
	for ctx.Err() == nil {
		err := t.once(ctx, func(ctx context.Context) error {
			_, err := c.leases.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: int64(id)})
			return err
		})
		if class := classify(err); class == answered || class == noLease {
			l.died(id)
			return nil
		}
		if permanent(err) {
			return fmt.Errorf("%s: %w", t.name(), err)
		}
		t.pause(ctx)
	}
	return t.ended(ctx, true)
}
