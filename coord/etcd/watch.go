package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
)

// rereadAfter bounds how long a lost event can keep AwaitFree waiting.
const rereadAfter = coord.DefaultTTL / 2

// AwaitFree returns once the agent seems to be free: nobody holds it, or its holder expired. It is a hint and no
// promise: ask with Acquire or Start, and wait again if another was faster. It proposes nothing, stores nothing, and
// returns an error only when ctx ends or the agent cannot be read.
func (c *Coordinator) AwaitFree(ctx context.Context, agent string) error {
	if err := coord.CheckAgent(agent); err != nil {
		return err
	}
	for {
		if c.base.Err() != nil {
			return fmt.Errorf("wait for %s: %w: the coordinator is closed", agent, coord.ErrNotSent)
		}
		st, err := c.look(ctx, "wait for", agent, "")
		if err != nil {
			return err
		}
		f, err := c.facts(st, agent, "")
		if err != nil {
			return err
		}
		if !f.Held || f.Holder.Expired {
			return nil
		}
		c.awaitChange(ctx, st.rev+1, c.keys.holder(agent), c.keys.live(f.Holder.Device, f.Holder.Liveness), f.Holder.TTL)
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s: held by %s at epoch %d: %w: %w", agent, f.Holder.Device, f.Holder.Epoch, coord.ErrHeld, context.Cause(ctx))
		}
	}
}

// awaitChange returns when one of the keys may have changed since the revision: an event, the end of a watch whatever
// the reason, or time to look again.
func (c *Coordinator) awaitChange(ctx context.Context, rev int64, holder, live string, ttl time.Duration) {
	again := min(max(ttl/2, time.Second), rereadAfter)
	ctx, cancel := context.WithTimeout(ctx, again/2+rand.N(again))
	defer cancel()
	defer context.AfterFunc(c.base, cancel)()
	changed := make(chan struct{}, 2)
	for _, key := range unique([]string{holder, live}) {
		events := c.client.Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithRev(rev))
		c.watchers(events, changed)
	}
	select {
	case <-changed:
		// Those that wait for one agent do not all ask in the same moment.
		timer := time.NewTimer(rand.N(50 * time.Millisecond))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
}

// watchers passes on that a watch said anything, its end included. It ends with the watch.
func (c *Coordinator) watchers(events clientv3.WatchChan, changed chan<- struct{}) {
	c.spawn(func() {
		for range events {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	})
}
