package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrNoLeader means that no member is the leader of a majority just now. Asking again may help.
var ErrNoLeader = errors.New("cluster: no leader")

const (
	pollEvery  = 10 * time.Millisecond
	askTimeout = time.Second // for one question to one member
)

// poll calls f until it succeeds. When ctx ends first, it returns f's last error.
func poll(ctx context.Context, what string, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		timer := time.NewTimer(pollEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("cluster: wait for %s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

// WaitReady waits until every member that runs and is not paused answers a linearizable read. The
// question goes straight to the member, past every client proxy. It fails if no member runs.
func (c *Cluster) WaitReady(ctx context.Context) error {
	var running int
	for _, m := range c.members {
		if _, ok := m.answering(); ok {
			running++
		}
	}
	if running == 0 {
		return errors.New("cluster: wait until ready: no member runs")
	}
	return c.each(func(m *member) error {
		return poll(ctx, fmt.Sprintf("member %d", m.index), func(ctx context.Context) error {
			client, ok := m.answering()
			if !ok {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			_, err := client.Get(ctx, "\x00")
			return err
		})
	})
}

// Leader returns the member that a majority, itself included, takes for the leader of one term. It
// matches ErrNoLeader when there is none.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	leader, _, err := c.leader(ctx)
	return leader, err
}

// leader also returns the term.
func (c *Cluster) leader(ctx context.Context) (int, uint64, error) {
	type claim struct{ term, leader uint64 }
	votes := make(map[claim]int)
	for _, status := range c.statuses(ctx) {
		if status != nil && status.Leader != 0 {
			votes[claim{status.RaftTerm, status.Leader}]++
		}
	}
	for claim, n := range votes {
		if i, ok := c.memberByID(claim.leader); ok && n > len(c.members)/2 {
			return i, claim.term, nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return 0, 0, ErrNoLeader
}

// statuses asks all members at once; a member that does not answer leaves nil.
func (c *Cluster) statuses(ctx context.Context) []*clientv3.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all := make([]*clientv3.StatusResponse, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		client, ok := m.answering()
		if !ok {
			continue
		}
		wg.Go(func() {
			if status, err := client.Status(ctx, client.Endpoints()[0]); err == nil {
				all[i] = status
			}
		})
	}
	wg.Wait()
	return all
}

func (c *Cluster) memberByID(id uint64) (int, bool) {
	for i, m := range c.members {
		m.mu.Lock()
		same := m.id == id
		m.mu.Unlock()
		if same {
			return i, true
		}
	}
	return 0, false
}

// WaitLeader waits for a leader that is none of the given members, and returns it.
func (c *Cluster) WaitLeader(ctx context.Context, not ...int) (int, error) {
	var leader int
	err := poll(ctx, "a leader", func(ctx context.Context) (err error) {
		leader, err = c.Leader(ctx)
		if err == nil && slices.Contains(not, leader) {
			return fmt.Errorf("%w but member %d", ErrNoLeader, leader)
		}
		return err
	})
	return leader, err
}
