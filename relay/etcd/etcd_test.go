package etcd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
	"github.com/syncnode/syncnode/test/cluster"
)

func TestMain(m *testing.M) {
	cluster.RunMember()
	// Each test has an etcd of its own, and waits for it; what the command line says wins.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	if err := flag.Set("rapid.checks", thorough.Of("100", "20")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var namespaces atomic.Int64

func namespace() string { return fmt.Sprintf("ns-%d", namespaces.Add(1)) }

func single(t *testing.T, cfg cluster.Config) *cluster.Cluster {
	cfg.Members, cfg.NoFsync = 1, true
	return cluster.New(t, cfg)
}

func open(t *testing.T, cfg etcd.Config) *etcd.Relay {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if cfg.Coalesce == 0 {
		cfg.Coalesce = -1
	}
	r, err := etcd.Open(ctx, cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return r
}

func TestConformance(t *testing.T) {
	t.Parallel()
	client := single(t, cluster.Config{}).Client(t)
	last := "" // the namespace that was opened last
	newAt := func(t *testing.T, maxBytes int64, now func() time.Time) func() relay.Relay {
		ns := namespace()
		return func() relay.Relay {
			last = ns
			return open(t, etcd.Config{Client: client, Namespace: ns, MaxBytes: maxBytes, Now: now})
		}
	}
	relaytest.Run(t, relaytest.Options{
		New:   func(t *testing.T, maxBytes int64) func() relay.Relay { return newAt(t, maxBytes, time.Now) },
		NewAt: newAt,
		Slow:  true,
		Damage: func(t *testing.T, _ relay.Relay) {
			resp, err := client.Get(t.Context(), "/syncnode/"+last+"/relay/checkpoint/chunk/", clientv3.WithPrefix())
			if err != nil || len(resp.Kvs) == 0 {
				t.Fatalf("%d chunks, %v", len(resp.Kvs), err)
			}
			kv := resp.Kvs[0]
			kv.Value[len(kv.Value)/2] ^= 1
			if _, err := client.Put(t.Context(), string(kv.Key), string(kv.Value)); err != nil {
				t.Fatal(err)
			}
		},
	})
}

func TestWhatIsNotNewIsNotProposed(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	r := open(t, etcd.Config{Client: c.Client(t), Namespace: namespace(), Now: func() time.Time { return now }})
	ctx := t.Context()
	count := func(what string, want int, call func() error) {
		t.Helper()
		if got, err := c.CountProposals(ctx, call); err != nil || got != want {
			t.Errorf("%s: %d proposals, %v; expected %d", what, got, err, want)
		}
	}
	a := relaytest.NewAuthor("a")
	ops := a.Write(t, 1000, 40)
	held := oplog.Frontier{"a": a.Head()}
	hello := func() error { _, err := r.Hello(ctx, "a"); return err }
	push := func(ops []oplog.Op) func() error {
		return func() error { _, err := r.Push(ctx, "a", ops); return err }
	}
	ack := func() error { return r.Ack(ctx, "a", held) }
	count("first contact", 1, hello)
	count("hello", 0, hello)
	count("a push of one op", 1, push(ops[:1]))
	count("a push of 126 ops", 1, push(ops[1:127]))
	count("the same push", 0, push(ops[1:127]))
	count("a push of 873 ops", 7, push(ops[127:]))
	count("an ack", 1, ack)
	count("the same ack", 0, ack)
	count("register", 1, func() error { return r.Register(ctx, "a", relay.Replica) })
	count("register again", 0, func() error { return r.Register(ctx, "a", relay.Replica) })
	count("an idle exchange", 0, func() error {
		_, err := r.Pull(ctx, "a", relay.Want{Held: held})
		return errors.Join(err, hello(), ack())
	})
	collect := func() error { _, err := r.Collect(ctx); return err }
	c1 := checkpointOf(make([]byte, 1<<20), held, nil)
	put := func() error { return r.PutCheckpoint(ctx, "a", c1) }
	count("a collection without a checkpoint", 0, collect)
	count("a checkpoint of two chunks", 4, put)
	count("the same checkpoint", 0, put)
	count("the first phase, for one chain", 2, collect)
	count("a collection before the grace is over", 0, collect)
	now = now.Add(relay.Grace)
	count("the second phase, for 1000 ops", 9, collect)
	count("a collection without news", 0, collect)
}

func TestAPushWhoseReplyIsLostIsSettledByPushingAgain(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	proxy, err := c.NewClientProxy()
	if err != nil {
		t.Fatal(err)
	}
	client := proxy.Client(t)
	kv := &rivalKV{KV: client.KV}
	client.KV = kv
	r := open(t, etcd.Config{Client: client, Namespace: namespace()})
	a := relaytest.NewAuthor("a")
	if _, err := r.Hello(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ops := a.Write(t, 5, 100)
		kv.before(1, func() { proxy.DropNextReply("Txn") })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		got, err := r.Push(ctx, "a", ops)
		cancel()
		if !errors.Is(err, relay.ErrIndeterminate) || got.Accepted != 0 {
			t.Fatalf("a push without a reply: %+v, %v", got, err)
		}
		if got, err = pushUntil(t, r, "a", ops); err != nil || got != (relay.Pushed{Duplicate: 5}) {
			t.Fatalf("pushed again: %+v, %v; expected 5 duplicates", got, err)
		}
	}
	if info, err := r.Hello(t.Context(), "a"); err != nil || info.Head.Seq != 14 {
		t.Errorf("head %+v, %v", info.Head, err)
	}
}

// pushUntil pushes until the relay answers: the connection may still be on its way back.
func pushUntil(t *testing.T, r relay.Relay, device string, ops []oplog.Op) (relay.Pushed, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		got, err := r.Push(ctx, device, ops)
		if err == nil || ctx.Err() != nil || !errors.Is(err, relay.ErrIndeterminate) && !errors.Is(err, relay.ErrNotSent) {
			return got, err
		}
	}
}

func TestAnotherStoreBehindTheSameEndpointsIsNoticed(t *testing.T) {
	t.Parallel()
	client := single(t, cluster.Config{}).Client(t)
	ns := namespace()
	r, a := open(t, etcd.Config{Client: client, Namespace: ns}), relaytest.NewAuthor("a")
	before, err := r.Hello(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ops := a.Write(t, 5, 50)
	if _, err := r.Push(t.Context(), "a", ops[:3]); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(t.Context(), "/syncnode/"+ns+"/relay/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Push(t.Context(), "a", ops[:1]); !errors.Is(err, relay.ErrNotSent) {
		t.Errorf("a push to another store than the one that said hello: %v", err)
	}
	after, err := r.Hello(t.Context(), "a")
	if err != nil || after.Instance == before.Instance || after.Known {
		t.Errorf("the new store says %+v, %v; the old one was %s", after, err, before.Instance)
	}
	if got, err := r.Push(t.Context(), "a", ops); err != nil || got.Accepted != 5 {
		t.Errorf("offered again: %+v, %v", got, err)
	}
}

func TestADamagedOpStopsItsOwnChainOnly(t *testing.T) {
	t.Parallel()
	client := single(t, cluster.Config{}).Client(t)
	for name, damage := range map[string]func(ctx context.Context, key string) error{
		"garbage": func(ctx context.Context, key string) error { _, err := client.Put(ctx, key, "{"); return err },
		"missing": func(ctx context.Context, key string) error { _, err := client.Delete(ctx, key); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace()
			r := open(t, etcd.Config{Client: client, Namespace: ns})
			for _, device := range []string{"a", "b", "c"} {
				if _, err := r.Push(t.Context(), device, relaytest.NewAuthor(device).Write(t, 4, 50)); err != nil {
					t.Fatal(err)
				}
			}
			if err := damage(t.Context(), "/syncnode/"+ns+"/relay/op/b/00000000000002"); err != nil {
				t.Fatal(err)
			}
			page, err := r.Pull(t.Context(), "z", relay.Want{})
			if err != nil || len(page.Ops) != 10 || page.More {
				t.Errorf("%d ops, more %v, %v; expected 4 of a, 2 of b, 4 of c", len(page.Ops), page.More, err)
			}
			if !errors.Is(page.Broken["b"], relay.ErrCorrupt) || len(page.Broken) != 1 {
				t.Errorf("broken chains: %v", page.Broken)
			}
		})
	}
}

func TestAHintSurvivesCompaction(t *testing.T) {
	t.Parallel()
	client := single(t, cluster.Config{}).Client(t)
	r, a := open(t, etcd.Config{Client: client, Namespace: namespace()}), relaytest.NewAuthor("a")
	if _, err := r.Push(t.Context(), "a", a.Write(t, 1, 50)); err != nil {
		t.Fatal(err)
	}
	known := oplog.Frontier{"a": a.Head()}
	done := make(chan error, 1)
	go func() { done <- r.Hint(t.Context(), known) }()
	for range 3 {
		if _, err := r.Push(t.Context(), "b", nil); err != nil {
			t.Fatal(err)
		}
		resp, err := client.Put(t.Context(), "/elsewhere", "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Compact(t.Context(), resp.Header.Revision); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Push(t.Context(), "a", a.Write(t, 1, 50)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("hint: %v", err)
	}
}

func TestNoAlarmIsRaisedByAFullRelay(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{QuotaBytes: 16 << 20})
	client := c.Client(t)
	r := open(t, etcd.Config{Client: client, Namespace: namespace(), MaxBytes: 4 << 20})
	a := relaytest.NewAuthor("a")
	for {
		if _, err := r.Push(t.Context(), "a", a.Write(t, 3, 200_000)); err != nil {
			if !errors.Is(err, relay.ErrFull) {
				t.Fatal(err)
			}
			break
		}
	}
	alarms, err := client.AlarmList(t.Context())
	if err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("alarms %v, %v", alarms, err)
	}
}

func TestWithoutSpacePullsGoOn(t *testing.T) {
	t.Parallel()
	client := single(t, cluster.Config{QuotaBytes: 16 << 20}).Client(t)
	r := open(t, etcd.Config{Client: client, Namespace: namespace()})
	a := relaytest.NewAuthor("a")
	if _, err := r.Push(t.Context(), "a", a.Write(t, 3, 100)); err != nil {
		t.Fatal(err)
	}
	filler := strings.Repeat("x", 1<<20)
	for i := 0; ; i++ {
		if _, err := client.Put(t.Context(), fmt.Sprintf("/filler/%d", i), filler); errors.Is(err, rpctypes.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Push(t.Context(), "a", a.Write(t, 1, 100)); !errors.Is(err, relay.ErrFull) {
		t.Errorf("push: %v", err)
	}
	if info, err := r.Hello(t.Context(), "b"); err != nil || info.Heads["a"].Seq != 2 {
		t.Errorf("hello: %+v, %v", info, err)
	}
	if page, err := r.Pull(t.Context(), "b", relay.Want{}); err != nil || len(page.Ops) != 3 {
		t.Errorf("pull: %d ops, %v", len(page.Ops), err)
	}
}

func TestSessionsConvergeThroughEtcd(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	ns := namespace()
	type member struct {
		*session.Session
		relay *etcd.Relay
	}
	var members []member
	for _, device := range []string{"a", "b", "c"} {
		j, err := journal.Open(t.Context(), journal.Config{Dir: filepath.Join(t.TempDir(), device), Device: device})
		if err != nil {
			t.Fatal(err)
		}
		s, err := session.Open(t.Context(), session.Config{Device: device, Journal: j})
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, member{s, open(t, etcd.Config{Client: c.Client(t), Namespace: ns})})
	}
	for round := range 3 {
		var wg sync.WaitGroup
		for _, m := range members {
			wg.Go(func() {
				for i := range 40 {
					draft := journal.Draft{Scope: oplog.Personal, Surface: oplog.DeclAgent, Payload: fmt.Appendf(nil, `{"id":"%d","by":"%s","round":%d}`, i, m.Device(), round)}
					if _, err := m.Append(t.Context(), draft); err != nil {
						t.Errorf("append: %v", err)
					}
				}
				if _, err := m.Pump(t.Context(), m.relay); err != nil {
					t.Errorf("pump: %v", err)
				}
			})
		}
		wg.Wait()
	}
	for range 2 {
		for _, m := range members {
			if _, err := m.Pump(t.Context(), m.relay); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range members {
		if m.Digest() != members[0].Digest() || m.FoldedFrontier()["c"].Seq != 119 {
			t.Errorf("%s has folded %v, digest equal to a's: %v", m.Device(), m.FoldedFrontier(), m.Digest() == members[0].Digest())
		}
	}
	// What an idle exchange proposes is counted in TestWhatIsNotNewIsNotProposed; here it has to write nothing.
	before := revision(t, c)
	rep, err := members[0].Pump(t.Context(), members[0].relay)
	if err != nil || rep.Pulled+rep.Pushed.Accepted > 0 || rep.Acked {
		t.Errorf("an idle pump did something: %+v, %v", rep, err)
	}
	if after := revision(t, c); after != before {
		t.Errorf("an idle pump wrote: revision %d, was %d", after, before)
	}
}

func revision(t *testing.T, c *cluster.Cluster) int64 {
	t.Helper()
	got, err := c.Client(t).Get(t.Context(), "none")
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.Revision
}

func TestAnUnreachableEtcdIsNamed(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	proxy, err := c.NewClientProxy()
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, etcd.Config{Client: proxy.Client(t), Namespace: namespace()})
	proxy.Blackhole()
	why := errors.New("enough waited")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancelSoon := time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	defer cancelSoon.Stop()
	_, err = r.Hello(ctx, "a")
	if !errors.Is(err, relay.ErrNotSent) || !errors.Is(err, why) {
		t.Errorf("hello to a silent etcd: %v", err)
	}
}
