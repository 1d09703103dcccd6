package remote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/coord/etcd"
	"github.com/syncnode/syncnode/coord/remote"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

func TestMain(m *testing.M) {
	cluster.RunMember()
	os.Exit(m.Run())
}

// served is the coordinator of each process that calls, on etcd.
type served struct {
	client *clientv3.Client
	ns     string

	mu     sync.Mutex
	opened map[int]*etcd.Coordinator // by the pid of the process
}

func (s *served) open(ctx context.Context, p coord.Process, dead func(string) bool) (coord.Coordinator, error) {
	c, err := etcd.Open(ctx, etcd.Config{Client: s.client, Namespace: s.ns, Process: p, Dead: func(liveness string, _ coord.Process) bool { return dead(liveness) }})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened[p.PID] = c
	}
	return c, err
}

// expire revokes what the livenesses of the process hang on.
func (s *served) expire(t testing.TB, pid int) {
	t.Helper()
	s.mu.Lock()
	id := s.opened[pid].Liveness()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	resp, err := s.client.Get(ctx, "/syncnode/"+s.ns+"/live/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), id) {
			if _, err := s.client.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The whole contract once more, over a real etcd.
func TestConformanceOverEtcd(t *testing.T) {
	thorough.Only(t)
	c, err := cluster.Start(t.Context(), cluster.Config{Members: 1, NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client, n := c.Client(t), 0
	coordtest.Run(t, func(t *testing.T) coordtest.Backend {
		n++
		s := &served{client: client, ns: fmt.Sprintf("n%d", n), opened: map[int]*etcd.Coordinator{}}
		url := listen(t, remote.NewHandler(remote.HandlerConfig{Open: s.open, Allow: anyone}))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var errs []error
			for _, c := range s.opened {
				errs = append(errs, c.Close(ctx))
			}
			if err := errors.Join(errs...); err != nil {
				t.Log(err)
			}
		})
		all := newCallers()
		return coordtest.Backend{
			Options: coordtest.Options{Timeout: 5 * time.Minute},
			Process: func(t testing.TB, device string) coord.Coordinator { return all.dial(t, url, device) },
			Crash:   func(testing.TB, coord.Coordinator) {},
			Expire:  func(t testing.TB, c coord.Coordinator) { s.expire(t, all.pid(c)) },
			Prove:   func(_ testing.TB, c coord.Coordinator) { all.prove(c) },
		}
	})
}
