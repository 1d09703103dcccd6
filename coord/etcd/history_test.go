package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// badNetwork loses answers, loses requests, and delivers some late: each of percent of the writes.
type badNetwork struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	percent int
	late    []send
	faults  int
}

func (n *badNetwork) plan(ctx context.Context, _ int, s send) (*clientv3.TxnResponse, error) {
	n.mu.Lock()
	dice, kind := n.rnd.IntN(100), n.rnd.IntN(3)
	var overdue send
	if len(n.late) > 0 && n.rnd.IntN(4) == 0 {
		i := n.rnd.IntN(len(n.late))
		overdue, n.late = n.late[i], append(n.late[:i:i], n.late[i+1:]...)
	}
	if dice < n.percent {
		n.faults++
		if kind == 2 {
			n.late = append(n.late, s)
		}
	}
	n.mu.Unlock()
	if overdue != nil {
		_, _ = overdue(ctx)
	}
	switch {
	case dice >= n.percent:
		return s(ctx)
	case kind == 0:
		_, _ = s(ctx)
	}
	return nil, errLost
}

func (n *badNetwork) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults
}

// Every call is settled before it is answered, whatever the network and the leader do, and all answers are those of one
// ledger. Only of a release may it stay unknown whether the lease was given back or taken.
func TestAHistoryUnderLostAndLateRequestsAndLeaderChangesIsLinearizable(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	cl := cluster.New(t, cluster.Config{})
	seed := [2]uint64{rand.Uint64(), rand.Uint64()}
	t.Logf("seed %d %d", seed[0], seed[1])
	h, ns, admin := coordtest.NewHistory(), namespace(), cl.Client(t)
	answers := []string{"acquire", "begin", "finish", "release", "renew", "look"}
	var wg sync.WaitGroup
	faults := 0
	var nets []*badNetwork
	var actors []*actor
	for i := range 4 {
		client, kv := slow(t, cl)
		net := &badNetwork{rnd: rand.New(rand.NewPCG(seed[0], seed[1]+uint64(i))), percent: 25}
		nets = append(nets, net)
		c := process(t, client, ns)
		kv.next(net.plan)
		a := &actor{rnd: rand.New(rand.NewPCG(seed[1], seed[0]+uint64(i))), device: fmt.Sprintf("d%d", i%3),
			c: h.Record(fmt.Sprint("p", i), c), expire: func() { _ = tryExpire(bounded(t), admin, c) }}
		actors = append(actors, a)
	}
	enough := func() bool { // for all, since one that ended alone might keep the lease from the rest
		return !slices.ContainsFunc(nets, func(n *badNetwork) bool { return n.count() < 5 }) &&
			!slices.ContainsFunc(answers, func(answer string) bool { return h.Count(answer) == 0 })
	}
	for _, a := range actors {
		wg.Go(func() {
			for n := 0; n < 60 || n < 300 && !enough(); n++ {
				a.step(bounded(t))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	disturb(t, cl, done)
	for _, net := range nets {
		faults += net.faults
	}
	unsure := 0
	for _, a := range actors {
		unsure += a.unsure
	}
	if err := h.Check(2 * time.Minute); err != nil {
		t.Error(err)
	}
	t.Logf("%d calls, %d faults, %d unknown", h.Len(), faults, h.Unknown())
	if h.Unknown() != unsure {
		t.Errorf("%d calls were not settled, only %d of them releases of what another took", h.Unknown(), unsure)
	}
	for _, answer := range answers {
		if h.Count(answer) == 0 {
			t.Errorf("no %s succeeded", answer)
		}
	}
	if faults < 10 {
		t.Errorf("only %d faults", faults)
	}
}

// disturb ends a leader twice, in two ways, and waits until done.
func disturb(t *testing.T, cl *cluster.Cluster, done <-chan struct{}) {
	defer func() { <-done }()
	for i := range 2 {
		leader, err := cl.WaitLeader(bounded(t))
		must(t, err)
		if i%2 == 0 {
			must(t, cl.Kill(leader))
			_, err = cl.WaitLeader(bounded(t), leader)
			must(t, err)
			must(t, cl.Restart(bounded(t), leader))
		} else {
			cl.Isolate(leader)
			_, err = cl.WaitLeader(bounded(t), leader)
			must(t, err)
			cl.Heal()
		}
		must(t, cl.WaitReady(bounded(t)))
	}
}

// An actor is a process that acts at random on one agent.
type actor struct {
	rnd    *rand.Rand
	device string
	c      coord.Coordinator
	expire func()

	lease  coord.Lease
	begun  []coord.Begin
	unsure int // releases of what another took, before or after
}

func (a *actor) step(ctx context.Context) {
	const runs = 4
	occurrence := fmt.Sprint(a.rnd.IntN(runs))
	switch p := a.rnd.IntN(100); {
	case p < 4:
		a.expire()
	case p < 10:
		_, _, _ = a.c.Current(ctx, "a")
	case p < 20:
		_, _ = a.c.Look(ctx, coord.Question{Agent: "a", Run: runID("a", occurrence)})
	case a.lease.Epoch == 0 && p < 40:
		b := question(coord.Lease{Agent: "a", Device: a.device}, occurrence)
		b.RetryFailed = true
		if l, _, err := a.c.Start(ctx, request("a", a.device), b); err == nil {
			a.lease, b.Lease = l, l
			a.begun = append(a.begun, b)
		}
	case a.lease.Epoch == 0:
		if l, err := a.c.Acquire(ctx, request("a", a.device)); err == nil {
			a.lease = l
		}
	case p < 35:
		if _, err := a.c.Renew(ctx, "a", a.device, a.lease.Epoch, ttl); errors.Is(err, coord.ErrLost) {
			a.lease = coord.Lease{}
		}
	case p < 45:
		err := a.c.Release(ctx, "a", a.device, a.lease.Epoch)
		if errors.Is(err, coord.ErrIndeterminate) && errors.Is(err, coord.ErrLost) {
			a.unsure++
		}
		a.lease = coord.Lease{}
	case p < 70 || len(a.begun) == 0:
		b := question(a.lease, occurrence)
		b.RetryFailed = true
		if _, err := a.c.Begin(ctx, b); err == nil {
			a.begun = append(a.begun, b)
		}
	default:
		a.end(ctx)
	}
}

func (a *actor) end(ctx context.Context) {
	b := a.begun[0]
	a.begun = a.begun[1:]
	switch p := a.rnd.IntN(100); {
	case p < 15:
		_ = a.c.Cancel(ctx, b)
	case p < 30:
		_, _ = a.c.Complete(ctx, outcome(b, coord.Failed), a.lease)
		a.lease = coord.Lease{}
	case p < 40:
		_ = a.c.Finish(ctx, outcome(b, coord.Committed))
	default:
		_ = a.c.Finish(ctx, outcome(b, coord.Failed))
	}
}
