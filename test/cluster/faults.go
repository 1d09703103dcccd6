package cluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Kill ends member i by SIGKILL, paused or not, and waits until it is gone. It is no error if the
// member does not run.
func (c *Cluster) Kill(i int) error { return c.members[i].kill() }

// Stop ends member i in order, as an operator would. A member that takes too long is killed, and
// that is an error.
func (c *Cluster) Stop(i int) error { return c.members[i].end(syscall.SIGTERM, stopGrace) }

// Restart starts member i from its data, after a Kill if it still runs. It returns when the member listens;
// WaitReady also waits until it has caught up, which it cannot do without a majority.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartTimeout)
	defer cancel()
	if err := c.Kill(i); err != nil {
		return err
	}
	return c.members[i].start(ctx)
}

// Running says whether member i has a living process, paused or not.
func (c *Cluster) Running(i int) bool { return c.members[i].current() != nil }

// PID returns the process id of member i, if it runs.
func (c *Cluster) PID(i int) (int, bool) {
	if p := c.members[i].current(); p != nil {
		return p.cmd.Process.Pid, true
	}
	return 0, false
}

// Pause stops member i by SIGSTOP and returns when it stands still. Its connections stay open and silent.
func (c *Cluster) Pause(i int) error {
	m := c.members[i]
	p := m.current()
	if p == nil {
		return fmt.Errorf("cluster: pause member %d: it does not run", i)
	}
	m.mu.Lock()
	m.paused = true
	m.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("cluster: pause member %d: %w", i, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return poll(ctx, fmt.Sprintf("member %d to stand still", i), func(context.Context) error {
		switch ok, err := stopped(p.cmd.Process.Pid); {
		case err != nil:
			return err
		case !ok:
			return errors.New("it still runs")
		}
		return nil
	})
}

// Resume lets a paused member go on.
func (c *Cluster) Resume(i int) error {
	m := c.members[i]
	p := m.current()
	if p == nil {
		return fmt.Errorf("cluster: resume member %d: it does not run", i)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("cluster: resume member %d: %w", i, err)
	}
	m.mu.Lock()
	m.paused = false
	m.mu.Unlock()
	return nil
}

// MoveLeader hands the leadership to member to, which runs, and returns when a majority takes it for the leader. Moving it to the
// leader changes nothing.
func (c *Cluster) MoveLeader(ctx context.Context, to int) error {
	what := fmt.Sprintf("member %d to be the leader", to)
	return poll(ctx, what, func(ctx context.Context) error {
		from, err := c.Leader(ctx)
		if err != nil || from == to {
			return err
		}
		client, ok := c.members[from].answering()
		if !ok {
			return fmt.Errorf("%w: member %d does not answer", ErrNoLeader, from)
		}
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		m := c.members[to]
		m.mu.Lock()
		id := m.id
		m.mu.Unlock()
		if _, err := client.MoveLeader(ctx, id); err != nil {
			return err
		}
		return fmt.Errorf("%w: member %d gave it away", ErrNoLeader, from)
	})
}

// Cut stops every message from one member to another until Heal. Messages the other way still
// arrive; calls between the two, such as a forwarded lease renewal, need both ways and fail.
func (c *Cluster) Cut(from, to int) { c.peers.cut([2]int{from, to}) }

// Isolate cuts member i from all others in both directions until Heal. Clients still reach it.
func (c *Cluster) Isolate(i int) {
	var pairs [][2]int
	for j := range c.members {
		if j != i {
			pairs = append(pairs, [2]int{i, j}, [2]int{j, i})
		}
	}
	c.peers.cut(pairs...)
}

// Heal undoes every Cut and Isolate.
func (c *Cluster) Heal() { c.peers.heal() }

// CutClient resets the connections of all clients to member i and every new one, until HealClient.
func (c *Cluster) CutClient(i int) { c.gateMember(i, modeCut) }

// BlackholeClient makes all clients' bytes to and from member i vanish while connections stay open,
// until HealClient, which ends those that have lost bytes.
func (c *Cluster) BlackholeClient(i int) { c.gateMember(i, modeBlackhole) }

// HealClient undoes CutClient and BlackholeClient.
func (c *Cluster) HealClient(i int) { c.gateMember(i, modePass) }

func (c *Cluster) gateMember(i int, mode mode) {
	c.members[i].gate.Store(int32(mode))
	c.mu.Lock()
	proxies := c.proxies
	c.mu.Unlock()
	for _, p := range proxies {
		p.enforce()
	}
}
