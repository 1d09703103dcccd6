package etcd

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
)

func TestALivenessRevokedFromOutsideCostsNoEpochOfWhatNobodyStole(t *testing.T) {
	w := newWorld(t)
	var epochs [6]coord.Epoch
	for i := range epochs {
		l, err := w.a.Acquire(bounded(t), request(fmt.Sprint("a", i), "d1"))
		must(t, err)
		epochs[i] = l.Epoch
	}
	expire(t, w.admin, w.a)
	_, err := w.b.Acquire(bounded(t), request("a3", "d2"))
	must(t, err)
	for i, epoch := range epochs {
		l, err := w.a.Renew(bounded(t), fmt.Sprint("a", i), "d1", epoch, ttl)
		if i == 3 {
			wantErr(t, err, coord.ErrLost)
			continue
		}
		must(t, err)
		if l.Epoch != epoch {
			t.Errorf("agent %d goes on with epoch %d, had %d", i, l.Epoch, epoch)
		}
	}
}

// A keepalive still succeeds after the key was deleted, so that only a read tells.
func TestALivenessKeyDeletedByHandIsPutAgain(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	key := w.a.keys.live("d1", l.Liveness)
	_, err := w.admin.Delete(bounded(t), key)
	must(t, err)
	_, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	if resp, err := w.admin.Get(bounded(t), key); err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease == 0 {
		t.Errorf("the key is %v, %v", resp, err)
	}
	_, err = w.b.Acquire(bounded(t), request("a", "d2"))
	wantErr(t, err, coord.ErrHeld)
}

func TestALivenessKeyThatAnotherUsesIsNeverTrusted(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	foreign, err := w.admin.Grant(bounded(t), 60)
	must(t, err)
	key := w.a.keys.live("d1", l.Liveness)
	_, err = w.admin.Put(bounded(t), key, encode(liveValue{V: valueVersion}), clientv3.WithLease(foreign.ID))
	must(t, err)
	_, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	wantErr(t, err, coord.ErrUnverifiable)
	_, err = w.a.Acquire(bounded(t), request("another", "d1"))
	wantErr(t, err, coord.ErrUnverifiable)
	_, err = w.admin.Revoke(bounded(t), foreign.ID)
	must(t, err)
}

func TestAllKeysButTheEpochDeletedTheNextGrantIsOneAbove(t *testing.T) {
	w := newWorld(t)
	for range 6 {
		release(t, w.a, acquire(t, w.a, "d1"))
	}
	l := acquire(t, w.a, "d1")
	all, err := w.admin.Get(bounded(t), w.a.keys.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)
	for _, kv := range all.Kvs {
		if string(kv.Key) != w.a.keys.epoch("a") {
			_, err := w.admin.Delete(bounded(t), string(kv.Key))
			must(t, err)
		}
	}
	_, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	wantErr(t, err, coord.ErrGeneration) // the ledger is another one: an earlier process does nothing on it
	next := acquire(t, process(t, w.admin, w.ns), "d2")
	if next.Epoch != l.Epoch+1 {
		t.Errorf("granted epoch %d after %d", next.Epoch, l.Epoch)
	}
}

func TestEverythingWorksWhileEveryRevisionIsCompacted(t *testing.T) {
	w := newWorld(t)
	compactions := 0
	compacted := func() {
		t.Helper()
		resp, err := w.admin.Get(bounded(t), "x")
		must(t, err)
		if _, err := w.admin.Compact(bounded(t), resp.Header.Revision); err == nil {
			compactions++
		}
	}
	waiting, cancel := context.WithCancel(bounded(t))
	defer cancel()
	l := acquire(t, w.a, "d1")
	free := make(chan error, 1)
	go func() { free <- w.b.AwaitFree(waiting, "a") }()
	for i := range 10 {
		compacted()
		b := question(l, fmt.Sprint(i))
		_, err := w.a.Begin(bounded(t), b)
		must(t, err)
		compacted()
		_, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
		must(t, err)
		compacted()
		must(t, w.a.Finish(bounded(t), outcome(b, coord.Committed)))
		compacted()
		page, err := w.b.List(bounded(t), coord.Filter{Agent: "a"})
		if err != nil || len(page.Views) != i+1 {
			t.Fatalf("%d runs are listed, %v", len(page.Views), err)
		}
	}
	compacted()
	release(t, w.a, l)
	compacted()
	must(t, <-free)
	if compactions < 20 {
		t.Errorf("only %d compactions", compactions)
	}
}

func TestCloseRevokesEveryEtcdLeaseAlsoOneThatNothingHangsOn(t *testing.T) {
	w := newWorld(t)
	acquire(t, w.a, "d1")
	idle, _, err := w.a.lifeOf("d1", coord.MaxTTL).grant(bounded(t))
	must(t, err)
	must(t, w.a.Close(bounded(t)))
	if resp, err := w.admin.TimeToLive(bounded(t), idle); err != nil || resp.TTL != -1 {
		t.Errorf("an etcd lease outlives its process: %+v, %v", resp, err)
	}
	if l, held, err := w.b.Current(bounded(t), "a"); err != nil || !held || !l.Expired {
		t.Errorf("got %+v, %v, %v", l, held, err)
	}
	for _, err := range []error{
		w.a.Release(bounded(t), "a", "d1", 1), w.a.Close(bounded(t)),
		func() error { _, err := w.a.Acquire(bounded(t), request("b", "d1")); return err }(),
	} {
		if err != nil {
			wantErr(t, err, coord.ErrNotSent)
		}
	}
}

// Re-binding keeps device and epoch: only the nonce tells the processes apart.
func TestAProcessWhoseLeaseWasReboundIsNotItsHolderAnyMore(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Dead = func(string, coord.Process) bool { return true } }) // a wrong proof
	l := acquire(t, w.a, "d1")
	next, err := w.b.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	if next.Epoch != l.Epoch || next.Handle == l.Handle {
		t.Fatalf("got %+v after %+v", next, l)
	}
	_, err = w.a.Begin(bounded(t), question(l, "1"))
	wantErr(t, err, coord.ErrStale)
	w.a.dead = nil
	_, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	wantErr(t, err, coord.ErrLost)
	err = w.a.Release(bounded(t), "a", "d1", l.Epoch)
	wantErr(t, err, coord.ErrHeld) // as for any process that does not hold it
	_, err = w.b.Begin(bounded(t), question(next, "1"))
	must(t, err)
}
