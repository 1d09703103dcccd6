package etcd_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/session"
	"github.com/syncnode/syncnode/test/cluster"
)

const (
	soakers   = 4
	soakEach  = 40      // ops of a device in a round
	soakKeys  = 30      // that they are about
	soakEvery = 600     // ops in no checkpoint from which on a device takes or makes one
	soakRoll  = 1 << 15 // bytes of a journal's segment
	soakLine  = 400     // bytes: more than an op here takes
)

// A soaker is a device that writes for ever.
type soaker struct {
	*session.Session
	relay *etcd.Relay
	dir   string
	n     int
}

// The soak of package session goes on here, over etcd. SOAK is for how long.
func TestEndlessWritesKeepEtcdAndItsDevicesFlat(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	client := single(t, cluster.Config{}).Client(t)
	ns := namespace()
	var devices []*soaker
	for i := range soakers {
		d := &soaker{dir: t.TempDir(), relay: open(t, etcd.Config{Client: client, Namespace: ns, Grace: -1})}
		name := fmt.Sprint("d", i)
		j, err := journal.Open(t.Context(), journal.Config{Dir: filepath.Join(d.dir, "log"), Device: name, SegmentBytes: soakRoll})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { j.Close() })
		d.Session, err = session.Open(t.Context(), session.Config{Device: name, Journal: j,
			Checkpoints: &checkpoint.Store{Dir: filepath.Join(d.dir, "checkpoints")}})
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, d)
	}
	long, rounds := time.Duration(0), thorough.Of(100, 12)
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	until := time.Now().Add(long)
	var stored, inUse, journals []int64
	for round := 1; round <= rounds || time.Now().Before(until); round++ {
		soakRound(t, devices)
		live, used := etcdBytes(t, client, ns)
		stored, inUse = append(stored, live), append(inUse, used)
		largest := int64(0)
		for _, d := range devices {
			largest = max(largest, diskBytes(t, filepath.Join(d.dir, "log")))
		}
		journals = append(journals, largest)
		if round&(round-1) == 0 {
			t.Logf("round %d: %d ops written; etcd keeps %d bytes, %d of its file in use; the largest journal has %d", round, round*soakers*soakEach, live, used, largest)
		}
	}
	// Besides the state, of which etcd holds a checkpoint, what is in no checkpoint yet stays, and a round that is on its way.
	window := int64(2*soakEvery+2*soakers*soakEach) * soakLine
	state := int64(soakers * 3 * soakKeys * 2 * soakLine)
	for _, c := range []struct {
		what   string
		sizes  []int64
		bound  int64
		spread float64
	}{{"etcd", stored, window + 2*state, 1.5}, {"a journal", journals, window + 4*soakRoll, 1.5}, {"etcd's file", inUse, 0, 2}} {
		half := len(c.sizes) / 2
		early, late := highest(c.sizes[:half]), highest(c.sizes[half:])
		t.Logf("%s: at most %d bytes in the first half, %d in the second", c.what, early, late)
		if float64(late) > c.spread*float64(early) || c.bound > 0 && late > c.bound {
			t.Errorf("%s takes %d bytes in the second half, %d in the first, and may take %d", c.what, late, early, c.bound)
		}
	}
	soakRound(t, devices)
	for _, d := range devices {
		if d.Digest() != devices[0].Digest() {
			t.Errorf("%s has another digest", d.Device())
		}
	}
}

func highest(sizes []int64) (most int64) {
	for _, n := range sizes {
		most = max(most, n)
	}
	return most
}

// soakRound lets every device write and pump at one time, and do what a node does then.
func soakRound(t *testing.T, devices []*soaker) {
	t.Helper()
	var wg sync.WaitGroup
	for _, d := range devices {
		wg.Go(func() {
			drafts := make([]journal.Draft, soakEach)
			for i := range drafts {
				drafts[i] = journal.Draft{Scope: oplog.Personal, Surface: []oplog.Surface{oplog.Registry("tool"), oplog.DeclAgent, oplog.Knowledge}[d.n%3],
					Payload: fmt.Appendf(nil, `{"id":"%s-%d","n":%d}`, d.Device(), d.n%soakKeys, d.n)}
				d.n++
			}
			if _, err := d.Append(t.Context(), drafts...); err != nil {
				t.Error(err)
			}
			soakPump(t, d)
		})
	}
	wg.Wait()
	for range 2 { // all have folded and acked what all wrote
		for _, d := range devices {
			soakPump(t, d)
		}
	}
	for _, d := range devices {
		rep := soakPump(t, d)
		if all, _ := d.Uncovered(nil, nil); all < soakEvery {
			continue
		}
		if rep.Newer {
			if _, took, err := d.Rebase(t.Context(), d.relay); err != nil {
				t.Fatal(err)
			} else if took {
				continue
			}
		}
		if _, err := d.Publish(t.Context(), d.relay); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := relay.Collector(devices[0].relay).Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func soakPump(t *testing.T, d *soaker) session.Report {
	rep, err := d.Pump(t.Context(), d.relay)
	if err != nil {
		t.Errorf("%s: %v", d.Device(), err)
	}
	return rep
}

// etcdBytes is what the keys of a namespace take, and how much of etcd's file is in use once its history is compacted.
func etcdBytes(t *testing.T, client *clientv3.Client, ns string) (live, inUse int64) {
	t.Helper()
	got, err := client.Get(t.Context(), "", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		live += int64(len(kv.Key) + len(kv.Value))
	}
	if live == 0 {
		t.Fatalf("nothing of %s is in etcd", ns)
	}
	if _, err := client.Compact(t.Context(), got.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	status, err := client.Status(t.Context(), client.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	return live, status.DbSizeInUse
}

func diskBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
