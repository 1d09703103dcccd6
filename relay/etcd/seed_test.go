package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/test/cluster"
)

// headsAt are the last ops of the first n ops of each author.
func headsAt(n int, authors ...*relaytest.Author) oplog.Heads {
	h := oplog.Heads{}
	for _, a := range authors {
		op := a.Ops[n-1]
		h[a.Device] = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
	}
	return h
}

// seedAt40 seeds with 40 ops of a and of b, and w closed at its end.
func seedAt40(ctx context.Context, r *etcd.Relay, a, b, w *relaytest.Author) error {
	heads := headsAt(40, a, b)
	heads["w"] = headsAt(5, w)["w"]
	f := heads.Frontier()
	delete(f, "w")
	return r.Seed(ctx, "a", checkpointOf([]byte("40 of each"), f, oplog.Frontier{"w": heads["w"].Pos()}), heads)
}

// A seed is several writes: before each of them something else may happen, and the process may end after each.
func TestASeedThatRacesOrWasInterruptedIsJudgedAnew(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	client, other := c.Client(t), c.Client(t)
	kv := &rivalKV{KV: client.KV}
	client.KV = kv
	ctx := t.Context()
	for name, rival := range map[string]func(r *etcd.Relay, a, b, w *relaytest.Author) error{
		"its owner offers all it has": func(r *etcd.Relay, a, _, _ *relaytest.Author) error {
			_, err := r.Push(ctx, "a", a.Ops)
			if errors.Is(err, relay.ErrFrontierTruncated) { // raised before
				_, err = r.Push(ctx, "a", a.Ops[40:])
			}
			return err
		},
		"another seeds more": func(r *etcd.Relay, a, b, w *relaytest.Author) error {
			heads := headsAt(45, a, b)
			heads["w"] = headsAt(5, w)["w"]
			f := heads.Frontier()
			delete(f, "w")
			return r.Seed(ctx, "b", checkpointOf([]byte("more"), f, oplog.Frontier{"w": heads["w"].Pos()}), heads)
		},
		"another seeds the same": func(r *etcd.Relay, a, b, w *relaytest.Author) error {
			return seedAt40(ctx, r, a, b, w)
		},
		"it ends": func(*etcd.Relay, *relaytest.Author, *relaytest.Author, *relaytest.Author) error { panic(errEnd) },
	} {
		t.Run(name, func(t *testing.T) {
			for write := 1; ; write++ {
				ns := namespace()
				mine := open(t, etcd.Config{Client: client, Namespace: ns, Now: time.Now})
				theirs := open(t, etcd.Config{Client: other, Namespace: ns, Now: time.Now})
				a, b, w := relaytest.NewAuthor("a"), relaytest.NewAuthor("b"), relaytest.NewAuthor("w")
				a.Write(t, 60, 50)
				b.Write(t, 60, 50)
				w.Write(t, 5, 50)
				if _, err := theirs.Push(ctx, "b", b.Ops[:7]); err != nil {
					t.Fatal(err)
				}
				happened := false
				var rivalErr error
				kv.before(write, func() { happened = true; rivalErr = rival(theirs, a, b, w) })
				err := untilEnd(func() error { return seedAt40(ctx, mine, a, b, w) })
				kv.before(0, nil)
				if rivalErr != nil {
					t.Fatalf("before write %d: %v", write, rivalErr)
				}
				if errors.Is(err, errEnd) || errors.Is(err, relay.ErrBehind) && name == "another seeds more" {
					err = nil
				}
				if err != nil {
					t.Fatalf("before write %d: %v", write, err)
				}
				if err := seedAt40(ctx, theirs, a, b, w); err != nil && !errors.Is(err, relay.ErrBehind) { // completes it
					t.Fatalf("write %d: %v", write, err)
				}
				for _, x := range []*relaytest.Author{a, b} {
					info, err := theirs.Hello(ctx, x.Device)
					if err != nil || !info.Known || info.Head.Seq < 39 || info.Head.ID != x.Ops[info.Head.Seq].ID {
						t.Fatalf("write %d: %s: %+v, %v", write, x.Device, info.Head, err)
					}
					if rest := x.Ops[info.Head.Seq+1:]; len(rest) > 0 {
						if _, err := theirs.Push(ctx, x.Device, rest); err != nil {
							t.Fatalf("write %d: push of %s: %v", write, x.Device, err)
						}
					}
				}
				got, ok, err := theirs.Checkpoint(ctx)
				if err != nil || !ok {
					t.Fatalf("write %d: checkpoint %v, %v", write, ok, err)
				}
				page, err := theirs.Pull(ctx, "z", relay.Want{Held: got.All()})
				if at := int(got.Frontier["a"].Seq); err != nil || len(page.Ops) != 2*(59-at) || len(page.Broken) > 0 {
					t.Fatalf("write %d: %d ops above seq %d, %v, %v", write, len(page.Ops), at, page.Broken, err)
				}
				if _, err := theirs.Push(ctx, "w", w.Ops); !errors.Is(err, relay.ErrClosed) {
					t.Fatalf("write %d: the closed one: %v", write, err)
				}
				if !happened {
					if write < 6 {
						t.Errorf("a seed of %d writes", write-1)
					}
					return
				}
			}
		})
	}
}

var errEnd = errors.New("the process ends")

// untilEnd is what call returns, or errEnd if it was ended.
func untilEnd(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if err, _ = r.(error); !errors.Is(err, errEnd) {
				panic(fmt.Sprint(r))
			}
		}
	}()
	return call()
}
