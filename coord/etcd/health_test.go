package etcd

import (
	"testing"
	"time"
)

func TestHealthTellsWhatEveryMemberSaysOfItself(t *testing.T) {
	t.Parallel()
	cl := three(t)
	endpoints := append(cl.Endpoints(), "http://127.0.0.1:1")
	all, err := Health(bounded(t), DialConfig{Endpoints: endpoints, Timeout: time.Minute})
	must(t, err)
	members := map[uint64]bool{}
	for _, h := range all[:3] {
		members[h.Member] = true
		if h.Err != nil || h.Cluster != all[0].Cluster || h.Leader == 0 || h.Version == "" || h.DBSize == 0 || h.Quota == 0 {
			t.Errorf("%+v", h)
		}
		if h.DateErr != nil || h.Date.Sub(h.Heard) > time.Second || h.Asked.Sub(h.Date) > 2*time.Second {
			t.Errorf("its time: %+v", h)
		}
	}
	if len(members) != 3 || all[3].Err == nil {
		t.Errorf("members %v; who is not there: %v", members, all[3].Err)
	}
	l, err := Measure(bounded(t), cl.Client(t), "measured")
	if err != nil || l.Read <= 0 || l.Grant <= 0 || l.Keepalive <= 0 {
		t.Errorf("latency %+v, %v", l, err)
	}
}

func TestALivenessThatEtcdDoesNotEndIsNamed(t *testing.T) {
	w := newWorld(t)
	acquire(t, w.a, "d1")
	late, looked, err := w.b.Overdues(bounded(t))
	if err != nil || len(late) != 0 || looked != 1 {
		t.Errorf("overdue %+v of %d, %v", late, looked, err)
	}
	// A key without an etcd lease stays for ever.
	_, err = w.admin.Put(bounded(t), w.a.keys.live("d9", "x-15"), encode(liveValue{V: valueVersion}))
	must(t, err)
	late, looked, err = w.b.Overdues(bounded(t))
	if err != nil || len(late) != 1 || looked != 2 || late[0].Device != "d9" || late[0].Liveness != "x-15" {
		t.Errorf("overdue %+v of %d, %v", late, looked, err)
	}
	there, err := Exists(bounded(t), w.admin, w.ns)
	if err != nil || !there {
		t.Errorf("exists: %v, %v", there, err)
	}
	if there, err := Exists(bounded(t), w.admin, "never-used"); err != nil || there {
		t.Errorf("a namespace without a ledger exists: %v, %v", there, err)
	}
}
