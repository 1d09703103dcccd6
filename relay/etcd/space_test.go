package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/test/cluster"
)

// A relay is filled to its limit, checkpointed and collected again and again, in an etcd that has room for little more and is compacted as
// an operator's etcd is.
func TestNoAlarmIsRaisedByARelayThatIsFilledAndCollectedForEver(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	const limit = 3 << 20
	c := single(t, cluster.Config{QuotaBytes: 24 << 20})
	client, ctx := c.Client(t), t.Context()
	r := open(t, etcd.Config{Client: client, Namespace: namespace(), MaxBytes: limit, Grace: -1})
	a := relaytest.NewAuthor("a")
	if err := r.Register(ctx, "a", relay.Replica); err != nil {
		t.Fatal(err)
	}
	pending := a.Ops
	var checkpointed int64
	for round := range 8 {
		for {
			if len(pending) == 0 {
				pending = a.Write(t, 2, 100_000)
			}
			got, err := r.Push(ctx, "a", pending)
			if errors.Is(err, relay.ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			pending = pending[got.Accepted+got.Duplicate:]
		}
		last := a.Ops[len(a.Ops)-len(pending)-1]
		at := oplog.Frontier{"a": {Seq: last.Seq, ID: last.ID}}
		body := bytes.Repeat(fmt.Appendf(nil, "state %d ", round), 1<<20/8)
		checkpointed += int64(len(body))
		if err := r.Ack(ctx, "a", at); err != nil {
			t.Fatal(err)
		}
		if err := r.PutCheckpoint(ctx, "a", checkpointOf(body, at, nil)); err != nil {
			t.Fatal(err)
		}
		dropped := 0
		for range 2 {
			done, err := r.Collect(ctx)
			if err != nil {
				t.Fatal(err)
			}
			dropped += done.Dropped["a"]
		}
		if dropped == 0 {
			t.Fatalf("round %d: nothing was dropped", round)
		}
		status, err := client.Status(ctx, client.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Compact(ctx, status.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
	}
	// A checkpoint makes room, so it may pass the limit by its own size; one that is larger than the limit makes none.
	if _, err := r.Push(ctx, "a", pending[:1]); err != nil {
		t.Fatal(err)
	}
	at := oplog.Frontier{"a": {Seq: pending[0].Seq, ID: pending[0].ID}}
	if err := r.Ack(ctx, "a", at); err != nil {
		t.Fatal(err)
	}
	if err := r.PutCheckpoint(ctx, "a", checkpointOf(make([]byte, limit+1), at, nil)); !errors.Is(err, relay.ErrFull) {
		t.Errorf("a checkpoint larger than the limit: %v", err)
	}
	if err := r.PutCheckpoint(ctx, "a", checkpointOf(make([]byte, limit), at, nil)); err != nil {
		t.Errorf("a checkpoint as large as the limit, beside an op: %v", err)
	}
	if _, err := r.Push(ctx, "a", append(pending[1:], a.Write(t, 1, 100)...)); !errors.Is(err, relay.ErrFull) {
		t.Errorf("a push beside it: %v", err)
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("alarms %v, %v", alarms, err)
	}
	t.Logf("%d ops of 100 kB and %d MiB of checkpoints went through", len(a.Ops), checkpointed>>20)
}

func TestSmallPushesAreKeptApart(t *testing.T) {
	t.Parallel()
	const apart = 40 * time.Millisecond
	client := single(t, cluster.Config{}).Client(t)
	r := open(t, etcd.Config{Client: client, Namespace: namespace(), Coalesce: apart})
	a := relaytest.NewAuthor("a")
	began := time.Now()
	for range 6 {
		if _, err := r.Push(t.Context(), "a", a.Write(t, 1, 60)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 5*apart {
		t.Errorf("six pushes within %v", took)
	}
	slow := open(t, etcd.Config{Client: client, Namespace: namespace(), Coalesce: time.Hour})
	b := relaytest.NewAuthor("b")
	if _, err := slow.Push(t.Context(), "b", b.Write(t, 1, 60)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), apart)
	defer cancel()
	if _, err := slow.Push(ctx, "b", b.Write(t, 1, 60)); !errors.Is(err, relay.ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a push that had to wait for longer than it may: %v", err)
	}
	if _, err := slow.Push(t.Context(), "b", append(b.Ops[1:2:2], b.Write(t, relay.MaxOps/2, 60)...)); err != nil {
		t.Errorf("a large one waits for nothing: %v", err)
	}
	if info, err := slow.Hello(t.Context(), "b"); err != nil || info.Head.Seq != relay.MaxOps/2+1 {
		t.Errorf("head %+v, %v", info.Head, err)
	}
}
