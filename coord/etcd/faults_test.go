package etcd

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/syncnode/syncnode/test/cluster"
)

// A send carries one copy of a transaction to etcd; it may be called at any time and any number of times.
type send func(context.Context) (*clientv3.TxnResponse, error)

// slowKV is the way of one client to etcd. What it does to writes is decided by plan; reads pass.
type slowKV struct {
	clientv3.KV
	mu   sync.Mutex
	plan func(ctx context.Context, n int, s send) (*clientv3.TxnResponse, error) // nil passes; n counts from 1
	n    int
}

func (kv *slowKV) Txn(ctx context.Context) clientv3.Txn { return &slowTxn{kv: kv, ctx: ctx} }

// next sets the plan for the writes that follow.
func (kv *slowKV) next(plan func(ctx context.Context, n int, s send) (*clientv3.TxnResponse, error)) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.plan, kv.n = plan, 0
}

type slowTxn struct {
	kv        *slowKV
	ctx       context.Context
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
}

func (t *slowTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.cmps = cs; return t }
func (t *slowTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.then = ops; return t }
func (t *slowTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.els = ops; return t }

func (t *slowTxn) Commit() (*clientv3.TxnResponse, error) {
	s := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.kv.KV.Txn(ctx).If(t.cmps...).Then(t.then...).Else(t.els...).Commit()
	}
	writes := false
	for _, op := range t.then {
		writes = writes || !op.IsGet()
	}
	t.kv.mu.Lock()
	plan := t.kv.plan
	if writes {
		t.kv.n++
	}
	n := t.kv.n
	t.kv.mu.Unlock()
	if !writes || plan == nil {
		return s(t.ctx)
	}
	return plan(t.ctx, n, s)
}

// slow gives a client of the cluster whose writes can be planned.
func slow(t testing.TB, c *cluster.Cluster) (*clientv3.Client, *slowKV) {
	client := c.Client(t)
	kv := &slowKV{KV: client.KV}
	client.KV = kv
	return client, kv
}

var errLost = status.Error(codes.Unavailable, "the answer was lost")

// lose carries out the first n writes and loses their answers.
func lose(lost int) func(context.Context, int, send) (*clientv3.TxnResponse, error) {
	return func(ctx context.Context, n int, s send) (*clientv3.TxnResponse, error) {
		resp, err := s(ctx)
		if n <= lost && err == nil {
			return nil, errLost
		}
		return resp, err
	}
}

// held keeps the first write back and loses the others. late are the copies, which the test may send when it likes.
type held struct {
	mu   sync.Mutex
	late []send
	came chan struct{} // gets one for the copy
}

func hold() *held { return &held{came: make(chan struct{}, 100)} }

func (h *held) plan(ctx context.Context, n int, s send) (*clientv3.TxnResponse, error) {
	if n == 1 {
		h.mu.Lock()
		h.late = append(h.late, s)
		h.mu.Unlock()
		h.came <- struct{}{}
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// deliver sends every copy that was held and says how many were carried out.
func (h *held) deliver(t testing.TB) (carriedOut int) {
	t.Helper()
	h.mu.Lock()
	late := h.late
	h.late = nil
	h.mu.Unlock()
	if len(late) == 0 {
		t.Fatal("nothing was held")
	}
	for _, s := range late {
		resp, err := s(bounded(t))
		if err != nil {
			continue // refused whole: the etcd lease of a cold grant is dead
		}
		if resp.Succeeded {
			carriedOut++
		}
	}
	return carriedOut
}

// briefly is a context that ends by the test once a copy was held.
func (h *held) briefly(t testing.TB) context.Context {
	ctx, cancel := context.WithCancelCause(bounded(t))
	go func() {
		<-h.came
		cancel(errGaveUp)
	}()
	t.Cleanup(func() { cancel(nil) })
	return ctx
}

var errGaveUp = errors.New("the caller gave up")

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// noSpaceAfter carries writes out and says that there was no space.
func noSpaceAfter(ctx context.Context, _ int, s send) (*clientv3.TxnResponse, error) {
	if _, err := s(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return nil, rpctypes.ErrNoSpace
}
