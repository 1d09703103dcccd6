package etcd

import (
	"fmt"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/thorough"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// docs/operations.md tells what a run leaves in etcd; here it is measured.
func TestACommittedRunLeavesLessThanAKilobyteInEtcd(t *testing.T) {
	cl := alone(t)
	client, ns := cl.Client(t), namespace()
	c := process(t, client, ns, patient)
	endpoint := cl.Endpoints()[0]
	size := func() (full, tidy int64, keys, bytes int) {
		t.Helper()
		resp, err := client.Get(bounded(t), "/syncnode/"+ns+"/", clientv3.WithPrefix())
		must(t, err)
		for _, kv := range resp.Kvs {
			bytes += len(kv.Key) + len(kv.Value)
		}
		_, err = client.Compact(bounded(t), resp.Header.Revision, clientv3.WithCompactPhysical())
		must(t, err)
		before, err := client.Status(bounded(t), endpoint)
		must(t, err)
		_, err = client.Defragment(bounded(t), endpoint)
		must(t, err)
		after, err := client.Status(bounded(t), endpoint)
		must(t, err)
		return before.DbSizeInUse, after.DbSizeInUse, len(resp.Kvs), bytes
	}
	runs := thorough.Of(2000, 100)
	request := long("mailer", "web01-1a2b3c4d")
	run := func(n int) {
		t.Helper()
		b := question(coord.Lease{Agent: request.Agent, Device: request.Device}, fmt.Sprintf("2026-11-29T%06d", n))
		l, _, err := c.Start(bounded(t), request, b)
		must(t, err)
		b.Lease = l
		o := outcome(b, coord.Committed)
		finished, released := c.Complete(bounded(t), o, l)
		must(t, finished)
		must(t, released)
	}
	run(0)
	_, tidy, keys, bytes := size()
	for n := range runs {
		run(1 + n)
	}
	fullAfter, tidyAfter, keysAfter, bytesAfter := size()
	each, full, stored := (bytesAfter-bytes)/runs, int(fullAfter-tidy)/runs, int(tidyAfter-tidy)/runs
	t.Logf("a committed run: %d bytes of key and value in %.2f keys, %d bytes of the store, %d before it was defragmented",
		each, float64(keysAfter-keys)/float64(runs), stored, full)
	if each < 100 || stored < each || stored > 1024 {
		t.Errorf("a committed run leaves %d bytes of key and value, %d of the store; want below 1 KiB", each, stored)
	}
}
