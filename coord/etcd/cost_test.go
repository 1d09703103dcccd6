package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// costs counts the entries that f adds to the raft log. f is made ready anew, and counted again, if the
// cluster elected a leader meanwhile: an election adds an entry that is not ours.
func costs(t *testing.T, cl *cluster.Cluster, what string, want int, ready func() func() error) {
	t.Helper()
	for range 20 {
		got, err := cl.CountProposals(bounded(t), ready())
		if errors.Is(err, cluster.ErrDisturbed) {
			continue
		}
		must(t, err)
		if got != want {
			t.Errorf("%s: %d proposals, want %d", what, got, want)
		}
		return
	}
	t.Fatalf("%s: the cluster is never quiet", what)
}

// counted is a three-member cluster on which nothing happens but what a test counts: no lease of another test runs out.
var counted struct {
	turn sync.Mutex // of the test that counts
	once sync.Once
	c    *cluster.Cluster
	err  error
}

// alone gives that cluster to one test after the other, side by side with tests on others.
func alone(t *testing.T) *cluster.Cluster {
	t.Helper()
	t.Parallel()
	counted.turn.Lock()
	t.Cleanup(counted.turn.Unlock)
	counted.once.Do(func() {
		// No change of leader while proposals are counted, on a busy machine either.
		counted.c, counted.err = cluster.Start(context.Background(), cluster.Config{TickMS: 50, ElectionMS: 500, NoFsync: true})
	})
	must(t, counted.err)
	return counted.c
}

// patient is a process that sends nothing twice because the machine is slow.
func patient(cfg *Config) { cfg.Attempt = time.Minute }

// long asks for a lease that does not run out while proposals are counted.
func long(agent, device string) coord.Request {
	return coord.Request{Agent: agent, Device: device, TTL: coord.MaxTTL}
}

func TestProposals(t *testing.T) {
	cl := alone(t)
	ns := namespace()
	client := cl.Client(t)
	c, other := process(t, client, ns, patient), process(t, client, ns, patient)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	n := 0
	fresh := func() string { n++; return fmt.Sprintf("a%d", n) }
	nothing := func(f func() error) func() func() error { return func() func() error { return f } }
	acquired := func() coord.Lease {
		l, err := c.Acquire(ctx, long(fresh(), "d1"))
		must(t, err)
		return l
	}
	started := func() (coord.Lease, coord.Begin) {
		agent := fresh()
		b := question(coord.Lease{Agent: agent, Device: "d1"}, "1")
		l, _, err := c.Start(ctx, long(agent, "d1"), b)
		must(t, err)
		b.Lease = l
		return l, b
	}
	taken := acquired()

	costs(t, cl, "look", 0, nothing(func() error {
		_, err := c.Look(ctx, coord.Question{Agent: taken.Agent, Run: runID(taken.Agent, "1")})
		return err
	}))
	costs(t, cl, "a losing acquire", 0, nothing(func() error {
		_, err := other.Acquire(ctx, long(taken.Agent, "d2"))
		if errors.Is(err, coord.ErrHeld) {
			return nil
		}
		return fmt.Errorf("not held: %w", err)
	}))
	costs(t, cl, "acquire", 1, func() func() error {
		agent := fresh()
		return func() error { _, err := c.Acquire(ctx, long(agent, "d1")); return err }
	})
	costs(t, cl, "acquire and begin", 1, func() func() error {
		agent := fresh()
		return func() error {
			_, _, err := c.Start(ctx, long(agent, "d1"), question(coord.Lease{Agent: agent}, "1"))
			return err
		}
	})
	costs(t, cl, "finish and release", 1, func() func() error {
		l, b := started()
		return func() error { return errors.Join(c.Complete(ctx, outcome(b, coord.Committed), l)) }
	})
	costs(t, cl, "begin", 1, func() func() error {
		l := acquired()
		return func() error { _, err := c.Begin(ctx, question(l, "1")); return err }
	})
	costs(t, cl, "renewing one agent", 0, func() func() error {
		return func() error { _, err := c.Renew(ctx, taken.Agent, "d1", taken.Epoch, coord.MaxTTL); return err }
	})
	costs(t, cl, "a run of a new process: grant, start, complete, revoke", 4, func() func() error {
		p := process(t, client, ns, patient)
		agent := fresh()
		b := question(coord.Lease{Agent: agent, Device: "d1"}, "1")
		return func() error {
			l, _, err := p.Start(ctx, long(agent, "d1"), b)
			if err != nil {
				return err
			}
			b.Lease = l
			finished, released := p.Complete(ctx, outcome(b, coord.Committed), l)
			return errors.Join(finished, released, p.Close(ctx))
		}
	})
}

// countingLeases counts keepalives, and notes when the last keepalive or grant was about to be sent.
type countingLeases struct {
	etcdserverpb.LeaseClient
	n    atomic.Int64
	last atomic.Pointer[time.Time]
}

func (c *countingLeases) note() {
	now := time.Now()
	c.last.Store(&now)
}

func (c *countingLeases) LeaseGrant(ctx context.Context, in *etcdserverpb.LeaseGrantRequest, opts ...grpc.CallOption) (*etcdserverpb.LeaseGrantResponse, error) {
	c.note()
	return c.LeaseClient.LeaseGrant(ctx, in, opts...)
}

func (c *countingLeases) LeaseKeepAlive(ctx context.Context, opts ...grpc.CallOption) (etcdserverpb.Lease_LeaseKeepAliveClient, error) {
	c.note()
	c.n.Add(1)
	return c.LeaseClient.LeaseKeepAlive(ctx, opts...)
}

func TestTrustCountsFromBeforeTheGrantOrTheKeepaliveWasSent(t *testing.T) {
	w := newWorld(t)
	counted := &countingLeases{LeaseClient: w.a.leases}
	w.a.leases = counted
	before := func(l coord.Lease) {
		t.Helper()
		if sent := *counted.last.Load(); l.Sent.IsZero() || l.Sent.After(sent) {
			t.Errorf("trusted from %v on, the request was sent at %v or later", l.Sent, sent)
		}
	}
	l := acquire(t, w.a, "d1")
	before(l)
	kept, err := w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	before(kept)
	if !kept.Sent.After(l.Sent) {
		t.Error("a renewal that was good renews no trust")
	}
	expire(t, w.admin, w.a) // the next renewal revives
	kept, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	before(kept)
	other, err := w.a.Acquire(bounded(t), long("warm", "d1"))
	must(t, err)
	before(other)
}

func TestRenewingAThousandAgentsCostsNoProposalAndFewKeepalives(t *testing.T) {
	cl := alone(t)
	c := process(t, cl.Client(t), namespace(), patient)
	counted := &countingLeases{LeaseClient: c.leases}
	c.leases = counted
	agents := thorough.Of(1000, 100)
	each := func(most int, f func(agent string) error) error {
		var g errgroup.Group
		g.SetLimit(most)
		for i := range agents {
			g.Go(func() error { return f(fmt.Sprintf("a%d", i)) })
		}
		return g.Wait()
	}
	must(t, each(32, func(agent string) error {
		_, err := c.Acquire(bounded(t), coord.Request{Agent: agent, Device: "d1", TTL: coord.MaxTTL})
		return err
	}))
	before := counted.n.Load()
	costs(t, cl, "renewing them", 0, func() func() error {
		return func() error {
			return each(agents, func(agent string) error {
				l, err := c.Renew(bounded(t), agent, "d1", 1, coord.MaxTTL)
				if err == nil && l.Epoch != 1 {
					return fmt.Errorf("epoch %d", l.Epoch)
				}
				return err
			})
		}
	})
	if n := counted.n.Load() - before; n == 0 || int(n) > agents/10 {
		t.Errorf("%d keepalives for %d agents: they are not shared", n, agents)
	}
}

func TestRevivingManyAgentsCostsOneGrantAndOnePut(t *testing.T) {
	cl := alone(t)
	admin := cl.Client(t)
	c := process(t, admin, namespace(), patient)
	agents := thorough.Of(200, 50)
	for i := range agents {
		_, err := c.Acquire(bounded(t), long(fmt.Sprint("a", i), "d1"))
		must(t, err)
	}
	costs(t, cl, "renewing agents whose liveness is gone", 2, func() func() error {
		expire(t, admin, c)
		return func() error {
			var wg sync.WaitGroup
			errs := make([]error, agents)
			for i := range agents {
				wg.Go(func() { _, errs[i] = c.Renew(bounded(t), fmt.Sprint("a", i), "d1", 1, coord.MaxTTL) })
			}
			wg.Wait()
			return errors.Join(errs...)
		}
	})
}

// What a list says of trust is what some renewal gave, while others renew: it never goes back.
func TestLeasesAreListedWhileTheyAreRenewed(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 30 {
			if _, err := w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl); err != nil {
				t.Error(err)
				return
			}
		}
	})
	sent := l.Sent
	for range 30 {
		all, err := w.a.Leases(bounded(t))
		must(t, err)
		if len(all) != 1 || all[0].Sent.Before(sent) {
			t.Fatalf("got %+v, was trusted from %v before", all, sent)
		}
		sent = all[0].Sent
	}
	wg.Wait()
}
