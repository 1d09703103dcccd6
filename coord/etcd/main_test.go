package etcd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// shared is the three-member cluster of all tests that break no member.
var shared struct {
	once sync.Once
	c    *cluster.Cluster
	err  error
}

func TestMain(m *testing.M) {
	cluster.RunMember()
	// What runs side by side waits for leases and replies; what the command line says wins.
	beside := "4"
	if thorough.Raced() {
		beside = "2"
	}
	if err := flag.Set("test.parallel", beside); err != nil {
		panic(err)
	}
	code := m.Run()
	for _, c := range []*cluster.Cluster{shared.c, counted.c} {
		if c != nil {
			c.Close()
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func three(t testing.TB) *cluster.Cluster {
	t.Helper()
	shared.once.Do(func() {
		shared.c, shared.err = cluster.Start(context.Background(), cluster.Config{TickMS: 50, ElectionMS: 500, NoFsync: true})
	})
	must(t, shared.err)
	return shared.c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bounded is the longest that a test waits for one thing. Nothing is measured against it.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var namespaces atomic.Int64

// namespace is one that no other test uses.
func namespace() string { return fmt.Sprintf("n%d", namespaces.Add(1)) }

// process opens a coordinator that ends with the test.
func process(t testing.TB, client *clientv3.Client, ns string, change ...func(*Config)) *Coordinator {
	t.Helper()
	cfg := Config{Client: client, Namespace: ns, Process: coord.Process{Host: "h", PID: int(namespaces.Add(1))}}
	for _, f := range change {
		f(&cfg)
	}
	c, err := Open(bounded(t), cfg)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// crash ends the process without a word: what it holds runs out by itself.
func crash(c *Coordinator) {
	c.mu.Lock()
	c.closed = true
	c.lives = map[string]*life{}
	c.mu.Unlock()
	c.stop()
	c.wg.Wait()
}

// expire revokes every etcd lease of the process from outside, and returns when its keys are gone.
func expire(t testing.TB, admin *clientv3.Client, c *Coordinator) {
	t.Helper()
	must(t, tryExpire(bounded(t), admin, c))
}

// tryExpire is expire where etcd may not answer.
func tryExpire(ctx context.Context, admin *clientv3.Client, c *Coordinator) error {
	resp, err := admin.Get(ctx, c.keys.prefix+"live/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		if c.mine(string(kv.Key[len(kv.Key)-len(c.id)-suffix(kv.Key):])) {
			_, err := admin.Revoke(ctx, clientv3.LeaseID(kv.Lease))
			if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) { // the client asks again by itself
				return err
			}
		}
	}
	return nil
}

// suffix is the length of the TTL class at the end of a liveness key.
func suffix(key []byte) int {
	n := 0
	for key[len(key)-1-n] != '-' {
		n++
	}
	return n + 1
}
