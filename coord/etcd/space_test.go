package etcd

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/test/cluster"
)

// fill writes until etcd raises the alarm.
func fill(t testing.TB, client *clientv3.Client) {
	t.Helper()
	ctx := bounded(t)
	for {
		_, err := client.Put(ctx, "ballast", strings.Repeat("x", 1<<20))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		must(t, err)
	}
	eventually(t, "the alarm is raised", func() bool {
		resp, err := client.AlarmList(ctx)
		return err == nil && len(resp.Alarms) > 0
	})
}

func TestWithoutSpaceRenewLookAndReleaseWorkAndNothingBegins(t *testing.T) {
	t.Parallel()
	cl := cluster.New(t, cluster.Config{Members: 1, QuotaBytes: 16 << 20, NoFsync: true})
	client := cl.Client(t)
	ns := namespace()
	c, other := process(t, client, ns), process(t, client, ns)
	held := acquire(t, c, "d1")
	open := question(held, "open")
	_, err := c.Begin(bounded(t), open)
	must(t, err)
	fill(t, client)
	health, err := Health(bounded(t), DialConfig{Endpoints: cl.Endpoints()})
	if err != nil || len(health[0].Alarms) != 1 || health[0].Alarms[0].Kind != "NOSPACE" || health[0].Alarms[0].Member != health[0].Member || health[0].Quota != 16<<20 {
		t.Errorf("health %+v, %v", health, err)
	}

	if l, err := c.Renew(bounded(t), "a", "d1", held.Epoch, ttl); err != nil || l.Epoch != held.Epoch {
		t.Errorf("renew: %+v, %v", l, err)
	}
	if got := attempts(t, other, open); got != "open" {
		t.Errorf("attempts are %q", got)
	}
	_, err = other.Acquire(bounded(t), request("a", "d2"))
	wantErr(t, err, coord.ErrHeld)
	refused := question(held, "refused")
	for what, call := range map[string]func() error{
		"begin":   func() error { _, err := c.Begin(bounded(t), refused); return err },
		"acquire": func() error { _, err := c.Acquire(bounded(t), request("b", "d1")); return err },
		"cold acquire": func() error {
			_, err := other.Acquire(bounded(t), request("b", "d2"))
			return err
		},
		"start": func() error {
			_, _, err := c.Start(bounded(t), request("b", "d1"), question(coord.Lease{}, "1"))
			return err
		},
		"finish": func() error { return c.Finish(bounded(t), outcome(open, coord.Committed)) },
		"pause":  func() error { return c.Pause(bounded(t), "a", coord.Gate{By: "me", Reason: "test"}) },
	} {
		if err := call(); !errors.Is(err, coord.ErrFull) || errors.Is(err, coord.ErrIndeterminate) {
			t.Errorf("%s: got %v, want that it is full and nothing happened", what, err)
		}
	}
	finished, released := c.Complete(bounded(t), outcome(open, coord.Committed), held)
	wantErr(t, finished, coord.ErrFull)
	must(t, released)
	if got := attempts(t, other, open) + "/" + attempts(t, other, refused); got != "open/" {
		t.Errorf("attempts are %q", got)
	}
	if _, isHeld, err := other.Current(bounded(t), "a"); err != nil || isHeld {
		t.Errorf("held %v, %v", isHeld, err)
	}

	resp, err := client.Get(bounded(t), "ballast")
	must(t, err)
	_, err = client.Compact(bounded(t), resp.Header.Revision)
	must(t, err)
	_, err = client.Delete(bounded(t), "ballast")
	must(t, err)
	_, err = client.Defragment(bounded(t), cl.MemberEndpoint(0))
	must(t, err)
	_, err = client.AlarmDisarm(bounded(t), &clientv3.AlarmMember{})
	must(t, err)
	must(t, c.Finish(bounded(t), outcome(open, coord.Committed))) // it waited, and is repeated
	if l := acquire(t, other, "d2"); l.Epoch != held.Epoch+1 {
		t.Errorf("granted %+v", l)
	}
}

// etcd may carry a write out and then answer that there is no space: only a read tells.
func TestAnAnswerOfNoSpaceIsNotTakenForARefusal(t *testing.T) {
	client, kv := slow(t, three(t))
	c := process(t, client, namespace())
	kv.next(noSpaceAfter)
	l, err := c.Acquire(bounded(t), request("a", "d1"))
	must(t, err)
	kv.next(noSpaceAfter)
	b := question(l, "1")
	_, err = c.Begin(bounded(t), b)
	must(t, err)
	if got := attempts(t, c, b); got != "open" {
		t.Errorf("attempts are %q", got)
	}
	kv.next(nil)
}
