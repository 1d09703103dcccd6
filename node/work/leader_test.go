package work_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/etcd"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/node/owner"
	"github.com/syncnode/syncnode/node/work"
	"github.com/syncnode/syncnode/test/cluster"
)

// The agents of a node that dies are taken after its liveness is gone from etcd and not before, and each change of etcd's leader begins the
// TTL of what is left of it anew. How long it took is logged beside the bound: how long it takes on a busy machine is not asserted.
func TestADeadNodesAgentsAreTakenAfterItsLivenessIsGoneWhichEachNewLeaderPutsOff(t *testing.T) {
	thorough.Only(t)
	const election = 500 * time.Millisecond
	c := cluster.New(t, cluster.Config{TickMS: 50, ElectionMS: uint(election.Milliseconds()), NoFsync: true})
	for changes := range 3 {
		done := false
		for try := 0; !done; try++ { // on a busy machine a lease may run out before its leader is changed
			if try == 5 {
				t.Fatalf("%d changes: the liveness never outlived the last by its TTL", changes)
			}
			done = takeOver(t, c, fmt.Sprintf("k%d-%d", changes, try), changes, election)
		}
	}
}

const (
	shortTTL = 2 * time.Second
	fewLong  = 2 * time.Minute // nothing is measured against it
)

const onEtcd = `
version: 1
defaults: { ttl: 2s }
agents:
  report: { schedule: "@hourly", command: [/bin/report] }
  mail: { schedule: "@hourly", command: [/bin/mail] }
  crm: { schedule: "@hourly", command: [/bin/crm] }
  sync: { schedule: "@hourly", command: [/bin/sync] }
`

// takeOver kills a node, changes the leader so often, each time shortly before the node's liveness would run out, and says whether that
// liveness lived on for its TTL after the last change.
func takeOver(t *testing.T, c *cluster.Cluster, namespace string, changes int, election time.Duration) bool {
	ctx, cancel := context.WithTimeout(t.Context(), fewLong)
	defer cancel()
	f := parse(t, onEtcd)
	nodes := map[string]*onCluster{}
	for _, d := range []string{"a", "b", "c"} {
		nodes[d] = serveOn(t, c, namespace, d, f)
	}
	defer func() {
		for _, n := range nodes {
			n.way.Heal() // or what was cut off takes its time to end
			n.stop()
		}
	}()
	admin := c.Client(t)
	prefix := etcd.Prefix(namespace)
	victim, agents := settled(t, nodes["a"].c, f)
	lives, err := admin.Get(ctx, prefix+"live/"+victim+"/", clientv3.WithPrefix())
	must(t, err)
	if len(lives.Kvs) != 1 {
		t.Fatalf("%s has %d livenesses, want one: its leases are of one class", victim, len(lives.Kvs))
	}
	lease := clientv3.LeaseID(lives.Kvs[0].Lease)
	watch := admin.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(lives.Header.Revision+1))

	term := termOf(t, c)
	died := time.Now()
	nodes[victim].way.Cut()
	nodes[victim].stop()
	var changed time.Time
	var electing time.Duration
	for range changes {
		waitFor(t, "less than a second is left", func() bool {
			left, err := admin.TimeToLive(ctx, lease)
			return err == nil && left.TTL <= 0
		})
		leader, err := c.WaitLeader(ctx)
		must(t, err)
		changed = time.Now()
		must(t, c.MoveLeader(ctx, (leader+1)%c.Members()))
		electing += time.Since(changed) + election // which a new leader gives besides
		if still, err := admin.Get(ctx, string(lives.Kvs[0].Key), clientv3.WithCountOnly()); err != nil || still.Count == 0 {
			t.Logf("%d changes: too late, once more (%v)", changes, err)
			return false
		}
	}
	gone := follow(t, watch, prefix, string(lives.Kvs[0].Key), agents)
	took := time.Since(died)
	if changes > 0 && gone.Sub(changed) < shortTTL {
		t.Logf("%d changes: gone %s after the last, once more", changes, gone.Sub(changed))
		return false
	}
	bound := time.Duration(1+changes)*shortTTL + 2*time.Second + electing
	t.Logf("%d changes, %d more terms: taken %s after the death, the liveness was gone after %s; bound %s", changes, termOf(t, c)-term,
		took.Round(time.Millisecond), gone.Sub(died).Round(time.Millisecond), bound.Round(time.Millisecond))
	return true
}

// follow reads events until others hold these agents, and says when the liveness of the node that held them was seen to be gone.
func follow(t *testing.T, watch clientv3.WatchChan, prefix, live string, agents map[string]bool) (gone time.Time) {
	t.Helper()
	taken := map[string]bool{}
	for resp := range watch {
		must(t, resp.Err())
		for _, e := range resp.Events {
			key := string(e.Kv.Key)
			agent, ofHolder := strings.CutSuffix(strings.TrimPrefix(key, prefix+"lease/"), "/holder")
			switch {
			case key == live && e.Type == mvccpb.DELETE:
				gone = time.Now()
			case key == live:
				t.Errorf("revision %d: the liveness of a dead node is written", e.Kv.ModRevision)
			case ofHolder && agents[agent]:
				if gone.IsZero() {
					t.Errorf("revision %d: %s is taken while its holder lives in etcd: %s", e.Kv.ModRevision, agent, e.Kv.Value)
				}
				taken[agent] = true
			}
		}
		if len(taken) == len(agents) && !gone.IsZero() {
			return gone
		}
	}
	t.Fatalf("of %v only %v were taken", agents, taken)
	return gone
}

// An onCluster is a node whose ledger is on etcd, without a disk.
type onCluster struct {
	c    *etcd.Coordinator
	way  *cluster.ClientProxy
	stop context.CancelFunc
	all  sync.WaitGroup
}

func serveOn(t *testing.T, c *cluster.Cluster, namespace, device string, f *config.File) *onCluster {
	t.Helper()
	way, err := c.NewClientProxy()
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	n := &onCluster{way: way, stop: stop}
	n.c, err = etcd.Open(t.Context(), etcd.Config{Client: way.Client(t), Namespace: namespace, Process: coord.Process{Host: device}})
	must(t, err)
	d, err := dispatch.New(dispatch.Config{Coordinator: n.c, Device: device})
	must(t, err)
	table, err := hold.New(hold.Config{Leases: n.c, Device: device, TTL: func(string) time.Duration { return shortTTL }})
	must(t, err)
	worker, err := work.New(work.Config{
		Namespace: namespace, Device: device, Hold: table, Dispatch: d, Ledger: n.c, Free: n.c.AwaitFree,
		Nodes:    func(ctx context.Context) ([]coord.Lease, error) { return n.c.LeasesOf(ctx, owner.Prefix) },
		Announce: func(note string) { n.all.Go(func() { n.announce(ctx, device, note) }) },
		Effect:   func(*config.File, config.Agent) work.Effect { return work.Effect{} },
	}, f)
	must(t, err)
	n.all.Go(func() {
		var parts sync.WaitGroup
		parts.Go(func() { must(t, table.Run(ctx)) })
		parts.Go(func() { must(t, worker.Run(ctx)) })
		parts.Wait()
		last, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = n.c.Close(last)
		way.Close()
	})
	t.Cleanup(n.all.Wait)
	return n
}

// announce holds the lease of the node.
func (n *onCluster) announce(ctx context.Context, device, note string) {
	l, err := n.c.Acquire(ctx, coord.Request{Agent: owner.Agent(device), Device: device, TTL: shortTTL, Note: note})
	if err != nil {
		return
	}
	k := coord.Keep(ctx, n.c, l, coord.KeepOptions{})
	<-ctx.Done()
	k.Stop()
}

// settled waits until each node has its share, and gives one with what it holds.
func settled(t *testing.T, c *etcd.Coordinator, f *config.File) (device string, agents map[string]bool) {
	t.Helper()
	waitFor(t, "each agent is held by its owner", func() bool {
		leases, err := c.Leases(t.Context())
		if err != nil {
			return false
		}
		nodes, _ := owner.Living(leases, noteOf(f))
		agents = map[string]bool{}
		for _, l := range leases {
			if strings.HasPrefix(l.Agent, owner.Prefix) {
				continue
			}
			if l.Device != owner.Of(l.Agent, nodes) || len(nodes) < 3 {
				return false
			}
			if device = owner.Of("report", nodes); l.Device == device {
				agents[l.Agent] = true
			}
		}
		return len(agents) > 0
	})
	return device, agents
}

func noteOf(f *config.File) string {
	var ids []string
	for _, a := range f.Agents {
		ids = append(ids, a.ID)
	}
	return owner.Note(ids)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(fewLong); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}

// termOf is the present term of etcd: one more for each leader.
func termOf(t *testing.T, c *cluster.Cluster) uint64 {
	t.Helper()
	leader, err := c.WaitLeader(t.Context())
	must(t, err)
	status, err := c.Client(t).Status(t.Context(), c.MemberEndpoint(leader))
	must(t, err)
	return status.RaftTerm
}
