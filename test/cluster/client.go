package cluster

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// newClient makes an etcd client that logs nothing and reconnects soon. It needs no server yet.
func newClient(endpoints []string) (*clientv3.Client, error) {
	retry := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 300 * time.Millisecond}
	return clientv3.New(clientv3.Config{
		Endpoints:   endpoints,
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second})},
	})
}

// Client returns an etcd client on Endpoints that ends with the test.
func (c *Cluster) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return c.shared.Client(t)
}

// Client returns an etcd client that goes through p alone and ends with the test. A client that asks
// the members for their URLs (clientv3's Sync) would leave p; this one does not.
func (p *ClientProxy) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := newClient(p.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
