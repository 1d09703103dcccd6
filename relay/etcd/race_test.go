package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/test/cluster"
)

// rivalKV lets something happen between a read and the write that was decided by it.
type rivalKV struct {
	clientv3.KV
	rival  func()
	writes int // the rival comes before the how many-th write from now
	read   func()
	txn    func() // happens after the next transaction that only reads
}

func (k *rivalKV) before(write int, rival func()) { k.writes, k.rival = write, rival }

func (k *rivalKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := k.KV.Get(ctx, key, opts...)
	if read := k.read; read != nil {
		k.read = nil
		read()
	}
	return resp, err
}

func (k *rivalKV) Txn(ctx context.Context) clientv3.Txn { return &rivalTxn{Txn: k.KV.Txn(ctx), kv: k} }

type rivalTxn struct {
	clientv3.Txn
	kv     *rivalKV
	writes bool
}

func (t *rivalTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.Txn, t.writes = t.Txn.If(cs...), true // a read has no guard
	return t
}

func (t *rivalTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *rivalTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.writes {
		if t.kv.writes--; t.kv.writes == 0 {
			t.kv.rival()
		}
		return t.Txn.Commit()
	}
	resp, err := t.Txn.Commit()
	if txn := t.kv.txn; txn != nil {
		t.kv.txn = nil
		txn()
	}
	return resp, err
}

func TestAWriteThatLostItsRaceIsJudgedAnew(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	client, other := c.Client(t), c.Client(t)
	kv := &rivalKV{KV: client.KV}
	client.KV = kv
	setup := func(t *testing.T) (mine, rival *etcd.Relay) {
		ns := namespace()
		return open(t, etcd.Config{Client: client, Namespace: ns}), open(t, etcd.Config{Client: other, Namespace: ns})
	}
	fatal := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("push against another branch", func(t *testing.T) {
		mine, rival := setup(t)
		a := relaytest.NewAuthor("a")
		_, err := rival.Push(t.Context(), "a", a.Write(t, 2, 50))
		fatal(t, err)
		branch := a.Clone(2)
		kv.before(1, func() {
			_, err := rival.Push(t.Context(), "a", branch.Write(t, 3, 50))
			fatal(t, err)
		})
		got, err := mine.Push(t.Context(), "a", a.Clone(2).Write(t, 1, 70))
		if !errors.Is(err, relay.ErrFork) || got.Accepted != 0 {
			t.Errorf("%+v, %v; expected a fork", got, err)
		}
		page, err := mine.Pull(t.Context(), "b", relay.Want{})
		if err != nil || len(page.Ops) != 5 || page.Ops[4].ID != branch.Ops[4].ID {
			t.Errorf("the relay holds %d ops, %v; expected the branch that came first", len(page.Ops), err)
		}
	})
	t.Run("first push against another branch", func(t *testing.T) {
		mine, rival := setup(t)
		first := relaytest.NewAuthor("a")
		kv.before(1, func() {
			_, err := rival.Push(t.Context(), "a", first.Write(t, 1, 50))
			fatal(t, err)
		})
		if _, err := mine.Push(t.Context(), "a", relaytest.NewAuthor("a").Write(t, 3, 90)); !errors.Is(err, relay.ErrFork) {
			t.Errorf("%v; expected a fork", err)
		}
	})
	t.Run("push of the same ops", func(t *testing.T) {
		mine, rival := setup(t)
		a := relaytest.NewAuthor("a")
		ops := a.Write(t, 300, 50)
		kv.before(1, func() {
			_, err := rival.Push(t.Context(), "a", ops[:200])
			fatal(t, err)
		})
		got, err := mine.Push(t.Context(), "a", ops)
		if err != nil || got != (relay.Pushed{Accepted: 100, Duplicate: 200}) {
			t.Errorf("%+v, %v; expected 100 accepted and 200 duplicates", got, err)
		}
	})
	t.Run("push of the same ops, after the first transaction", func(t *testing.T) {
		mine, rival := setup(t)
		a := relaytest.NewAuthor("a")
		ops := a.Write(t, 300, 50)
		_, err := rival.Push(t.Context(), "a", ops[:10])
		fatal(t, err)
		kv.before(2, func() {
			_, err := rival.Push(t.Context(), "a", ops[136:236])
			fatal(t, err)
		})
		got, err := mine.Push(t.Context(), "a", ops)
		if err != nil || got != (relay.Pushed{Accepted: 190, Duplicate: 110}) {
			t.Errorf("%+v, %v; expected 190 accepted and 110 duplicates", got, err)
		}
	})
	t.Run("ack", func(t *testing.T) {
		mine, rival := setup(t)
		a, b := relaytest.NewAuthor("a"), relaytest.NewAuthor("b")
		a.Write(t, 2, 50)
		b.Write(t, 2, 50)
		kv.before(1, func() { fatal(t, rival.Ack(t.Context(), "d", oplog.Frontier{"b": b.Head()})) })
		fatal(t, mine.Ack(t.Context(), "d", oplog.Frontier{"a": a.Head()}))
		info, err := mine.Hello(t.Context(), "d")
		if want := (oplog.Frontier{"a": a.Head(), "b": b.Head()}); err != nil || !info.Acked.Equal(want) {
			t.Errorf("acked %v, %v; expected both", info.Acked, err)
		}
	})
	t.Run("first contact against a registration", func(t *testing.T) {
		mine, rival := setup(t)
		kv.before(1, func() { fatal(t, rival.Register(t.Context(), "d", relay.Replica)) })
		if info, err := mine.Hello(t.Context(), "d"); err != nil || info.Role != relay.Replica {
			t.Errorf("role %q, %v; the registration was overwritten", info.Role, err)
		}
	})
	t.Run("making the store", func(t *testing.T) {
		ns := namespace()
		var first relay.Info
		kv.before(1, func() {
			var err error
			first, err = open(t, etcd.Config{Client: other, Namespace: ns}).Hello(t.Context(), "a")
			fatal(t, err)
		})
		mine := open(t, etcd.Config{Client: client, Namespace: ns})
		if info, err := mine.Hello(t.Context(), "a"); err != nil || info.Instance != first.Instance {
			t.Errorf("two stores in one namespace: %s and %s, %v", first.Instance, info.Instance, err)
		}
	})
}

func TestAHintWhoseHistoryIsGoneSaysToLookAgain(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	client, other := c.Client(t), c.Client(t)
	kv := &rivalKV{KV: client.KV}
	client.KV = kv
	r := open(t, etcd.Config{Client: client, Namespace: namespace()})
	kv.read = func() { // between the look at the heads and the watch
		for range 3 {
			if _, err := other.Put(t.Context(), "/elsewhere", "x"); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := other.Get(t.Context(), "/elsewhere")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Compact(t.Context(), resp.Header.Revision); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Hint(t.Context(), nil); err != nil {
		t.Errorf("hint: %v", err)
	}
}

func TestAContactIsNotedOnceADay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := open(t, etcd.Config{Client: single(t, cluster.Config{}).Client(t), Namespace: namespace(), Now: func() time.Time { return now }})
	for _, c := range []struct {
		after time.Duration
		seen  time.Time
	}{
		{0, now},
		{23 * time.Hour, now},
		{25 * time.Hour, now.Add(25 * time.Hour)},
		{-100 * time.Hour, now.Add(25 * time.Hour)}, // a clock that went back
	} {
		now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.after)
		if _, err := r.Hello(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		roster, err := r.Roster(t.Context())
		if err != nil || !roster[0].Seen.Equal(c.seen) || !roster[0].Added.Equal(c.seen) && c.after < 24*time.Hour && c.after >= 0 {
			t.Errorf("a contact after %v: %+v, %v; expected seen %v", c.after, roster, err, c.seen)
		}
	}
}
