package etcd_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/etcd"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/test/cluster"
)

func checkpointOf(body []byte, frontier, closed oplog.Frontier) relay.Checkpoint {
	sum := sha256.Sum256(body)
	return relay.Checkpoint{Hash: hex.EncodeToString(sum[:]), Author: "a", Frontier: frontier, Closed: closed, Body: body}
}

// A shelf is a store with a chain that is stable, seen by two handles, before whose writes and reads something may happen.
type shelf struct {
	t           *testing.T
	ns          string
	now         time.Time
	mine, other *etcd.Relay
	kv          *rivalKV
	client      *clientv3.Client
	a           *relaytest.Author
}

func newShelf(t *testing.T, c *cluster.Cluster) *shelf {
	s := &shelf{t: t, ns: namespace(), now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), client: c.Client(t), a: relaytest.NewAuthor("a")}
	client := c.Client(t)
	s.kv = &rivalKV{KV: client.KV}
	client.KV = s.kv
	now := func() time.Time { return s.now }
	s.mine = open(t, etcd.Config{Client: client, Namespace: s.ns, Now: now})
	s.other = open(t, etcd.Config{Client: s.client, Namespace: s.ns, Now: now})
	s.push(300)
	s.do(s.other.Register(t.Context(), "a", relay.Replica))
	s.do(s.other.Ack(t.Context(), "a", s.at(299)))
	return s
}

func (s *shelf) do(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) push(n int) {
	s.t.Helper()
	_, err := s.other.Push(s.t.Context(), "a", s.a.Write(s.t, n, 50))
	s.do(err)
}

func (s *shelf) at(seq int) oplog.Frontier {
	return oplog.Frontier{"a": {Seq: uint64(seq), ID: s.a.Ops[seq].ID}}
}

func (s *shelf) put(seq int) relay.Checkpoint {
	s.t.Helper()
	c := checkpointOf(fmt.Appendf(nil, "up to %d", seq), s.at(seq), nil)
	s.do(s.other.PutCheckpoint(s.t.Context(), "a", c))
	return c
}

func (s *shelf) collect(r *etcd.Relay) relay.Collection {
	s.t.Helper()
	c, err := r.Collect(s.t.Context())
	s.do(err)
	return c
}

// keys are the store's keys below a name.
func (s *shelf) keys(name string) []string {
	s.t.Helper()
	prefix := "/syncnode/" + s.ns + "/relay/"
	resp, err := s.client.Get(s.t.Context(), prefix+name, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	s.do(err)
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, strings.TrimPrefix(string(kv.Key), prefix))
	}
	return keys
}

func TestACollectionThatRacesIsJudgedAnew(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	t.Run("a pull whose ops are deleted under it is told", func(t *testing.T) {
		s := newShelf(t, c)
		s.put(199)
		s.kv.txn = func() { // after the pull has read the heads
			s.collect(s.other)
			s.now = s.now.Add(relay.Grace)
			if got := s.collect(s.other); got.Dropped["a"] != 200 {
				t.Errorf("dropped %v", got.Dropped)
			}
		}
		page, err := s.mine.Pull(t.Context(), "b", relay.Want{})
		if e, ok := errors.AsType[*relay.FrontierTruncatedError](err); !ok || e.Floor["a"].Seq != 199 {
			t.Errorf("%d ops, %v; expected a FrontierTruncatedError", len(page.Ops), err)
		}
	})
	t.Run("a repeated push whose ops are deleted under it", func(t *testing.T) {
		s := newShelf(t, c)
		s.put(199)
		s.kv.txn = func() {
			s.collect(s.other)
			s.now = s.now.Add(relay.Grace)
			s.collect(s.other)
		}
		if got, err := s.mine.Push(t.Context(), "a", s.a.Ops[150:]); err != nil || got != (relay.Pushed{Duplicate: 150}) {
			t.Errorf("%+v, %v; expected 150 duplicates", got, err)
		}
	})
	t.Run("a push between look and mark", func(t *testing.T) {
		s := newShelf(t, c)
		s.put(199)
		s.kv.before(2, func() { s.push(5) })
		if got := s.collect(s.mine); !got.Floor.Equal(s.at(199)) || got.Marked["a"] != 200 {
			t.Errorf("%+v", got)
		}
		info, err := s.mine.Hello(t.Context(), "a")
		if err != nil || info.Head.Seq != 304 {
			t.Errorf("the head is %+v, %v", info.Head, err)
		}
	})
	t.Run("a push between look and deletion", func(t *testing.T) {
		s := newShelf(t, c)
		s.put(199)
		s.collect(s.mine)
		s.now = s.now.Add(relay.Grace)
		s.kv.before(1, func() { s.push(5) })
		if got := s.collect(s.mine); got.Dropped["a"] != 200 {
			t.Errorf("%+v", got)
		}
		page, err := s.mine.Pull(t.Context(), "b", relay.Want{Held: s.at(199)})
		if err != nil || len(page.Ops) != 105 {
			t.Errorf("%d ops, %v", len(page.Ops), err)
		}
	})
	t.Run("another collection between look and deletion", func(t *testing.T) {
		s := newShelf(t, c)
		s.put(199)
		s.collect(s.mine)
		s.now = s.now.Add(relay.Grace)
		var other relay.Collection
		s.kv.before(2, func() { other = s.collect(s.other) })
		mine := s.collect(s.mine)
		if mine.Dropped["a"]+other.Dropped["a"] != 200 || len(s.keys("op/")) != 100 || len(s.keys("mark")) != 0 {
			t.Errorf("dropped %v and %v, %d ops are left", mine.Dropped, other.Dropped, len(s.keys("op/")))
		}
	})
	t.Run("a collector that stopped in the middle of marking marks nothing later", func(t *testing.T) {
		s := newShelf(t, c)
		s.put(199)
		s.kv.before(2, func() { // it has put its mark, and another collection takes that for complete and removes it
			s.now = s.now.Add(2 * relay.EvictAfter)
			s.collect(s.other)
		})
		if got := s.collect(s.mine); len(got.Floor) != 0 || len(s.keys("mark")) != 0 {
			t.Errorf("%+v; a floor without a mark", got)
		}
		s.do(s.other.Ack(t.Context(), "a", s.at(299)))
		s.collect(s.other)
		s.now = s.now.Add(relay.Grace)
		if got := s.collect(s.other); got.Dropped["a"] != 200 {
			t.Errorf("%+v", got)
		}
	})
}

func TestACheckpointThatRacesIsJudgedAnew(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	body := bytes.Repeat([]byte("state"), 300_000) // three chunks
	t.Run("a greater one came first", func(t *testing.T) {
		s := newShelf(t, c)
		for write := 1; write <= 5; write++ {
			greater := checkpointOf(fmt.Appendf(nil, "greater %d", write), s.at(201+10*write), nil)
			s.kv.before(write, func() { s.do(s.other.PutCheckpoint(t.Context(), "a", greater)) })
			err := s.mine.PutCheckpoint(t.Context(), "a", checkpointOf(append(body, byte(write)), s.at(200+10*write), nil))
			if got, _, _ := s.mine.Checkpoint(t.Context()); !errors.Is(err, relay.ErrBehind) || got.Hash != greater.Hash {
				t.Errorf("before write %d: %v", write, err)
			}
		}
		s.now = s.now.Add(relay.Grace)
		s.collect(s.mine)
		if got := s.keys("checkpoint/"); len(got) != 2 {
			t.Errorf("keys are left over: %v", got)
		}
	})
	t.Run("the same one by another", func(t *testing.T) {
		s := newShelf(t, c)
		for write := 1; write <= 5; write++ {
			same := checkpointOf(append(body, byte(write)), s.at(200+write), nil)
			s.kv.before(write, func() { s.do(s.other.PutCheckpoint(t.Context(), "a", same)) })
			s.do(s.mine.PutCheckpoint(t.Context(), "a", same))
			if got, _, err := s.mine.Checkpoint(t.Context()); got.Hash != same.Hash || err != nil {
				t.Errorf("before write %d: %v", write, err)
			}
		}
	})
	t.Run("the upload was taken for abandoned", func(t *testing.T) {
		s := newShelf(t, c)
		for write := 2; write <= 5; write++ {
			s.kv.before(write, func() {
				s.now = s.now.Add(2 * relay.Grace)
				s.collect(s.other)
			})
			slow := checkpointOf(append(body, byte(write)), s.at(200+write), nil)
			s.do(s.mine.PutCheckpoint(t.Context(), "a", slow))
			if got, _, err := s.mine.Checkpoint(t.Context()); got.Hash != slow.Hash || err != nil {
				t.Errorf("before write %d: %v", write, err)
			}
		}
	})
	t.Run("a push to the chain that it closes", func(t *testing.T) {
		s := newShelf(t, c)
		w := relaytest.NewAuthor("w")
		_, err := s.other.Push(t.Context(), "w", w.Write(t, 2, 50))
		s.do(err)
		end := oplog.Frontier{"w": w.Head()}
		s.do(s.other.Ack(t.Context(), "a", end))
		s.kv.before(3, func() {
			_, err := s.other.Push(t.Context(), "w", w.Write(t, 1, 50))
			s.do(err)
		})
		err = s.mine.PutCheckpoint(t.Context(), "a", checkpointOf([]byte("closes"), s.at(200), end))
		if !errors.Is(err, relay.ErrContradiction) {
			t.Errorf("%v, expected ErrContradiction", err)
		}
		s.do(s.other.Ack(t.Context(), "a", oplog.Frontier{"w": w.Head()}))
		closes := checkpointOf([]byte("closes"), s.at(200), oplog.Frontier{"w": w.Head()})
		s.kv.before(1, func() { s.do(s.other.PutCheckpoint(t.Context(), "a", closes)) })
		if _, err := s.mine.Push(t.Context(), "w", w.Write(t, 1, 50)); !errors.Is(err, relay.ErrClosed) {
			t.Errorf("a push that lost against the closing: %v, expected ErrClosed", err)
		}
	})
	t.Run("a checkpoint that is replaced while it is read", func(t *testing.T) {
		s := newShelf(t, c)
		first := checkpointOf(body, s.at(10), nil)
		s.do(s.other.PutCheckpoint(t.Context(), "a", first))
		s.kv.txn = func() { s.put(20) }
		if got, _, err := s.mine.Checkpoint(t.Context()); err != nil || got.Hash != first.Hash {
			t.Errorf("%.12s, %v; expected the one that was the newest", got.Hash, err)
		}
		second := s.put(30)
		s.kv.txn = func() { // and its revision is gone as well
			s.put(40)
			resp, err := s.client.Get(t.Context(), "/elsewhere")
			s.do(err)
			_, err = s.client.Compact(t.Context(), resp.Header.Revision)
			s.do(err)
		}
		if got, _, err := s.mine.Checkpoint(t.Context()); err != nil || got.Hash == second.Hash || !got.Whole() {
			t.Errorf("%.12s, %v; expected the one that is the newest now", got.Hash, err)
		}
	})
}

func TestLeftoversOfUploadsAreCollected(t *testing.T) {
	t.Parallel()
	c := single(t, cluster.Config{})
	s := newShelf(t, c)
	newest := s.put(5)
	body := bytes.Repeat([]byte("x"), 12<<20)
	stop := errors.New("stopped")
	for _, write := range []int{2, 4} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s.kv.before(write, func() { cancel(stop) })
		err := s.mine.PutCheckpoint(ctx, "a", checkpointOf(append(body, byte(write)), s.at(50), nil))
		if !errors.Is(err, relay.ErrIndeterminate) || !errors.Is(err, stop) {
			t.Fatalf("a put that was stopped: %v", err)
		}
	}
	if err := s.mine.PutCheckpoint(t.Context(), "a", checkpointOf(body, s.at(50), nil)); !errors.Is(err, relay.ErrFull) {
		t.Errorf("a third of 12 MiB on its way: %v, expected ErrFull", err)
	}
	left := len(s.keys("checkpoint/"))
	s.collect(s.mine)
	if got := len(s.keys("checkpoint/")); got != left {
		t.Errorf("%d keys before the grace is over, %d before: an upload under way was removed", got, left)
	}
	s.now = s.now.Add(relay.Grace)
	s.collect(s.mine)
	if got := s.keys("checkpoint/"); len(got) != 2 {
		t.Errorf("keys are left over: %v", got)
	}
	if got, _, err := s.mine.Checkpoint(t.Context()); err != nil || got.Hash != newest.Hash {
		t.Errorf("the newest checkpoint: %.12s, %v", got.Hash, err)
	}
	s.put(60)
}

func TestTheRelayStaysBoundedByWhatLives(t *testing.T) {
	t.Parallel()
	s := newShelf(t, single(t, cluster.Config{}))
	gone := oplog.Frontier{}
	for i := range 6 {
		w := relaytest.NewAuthor(fmt.Sprintf("w%d", i))
		s.do(s.other.Register(t.Context(), w.Device, relay.Writer))
		_, err := s.other.Push(t.Context(), w.Device, w.Write(t, 20, 50))
		s.do(err)
		gone[w.Device] = w.Head()
		s.push(10)
		folded := s.at(len(s.a.Ops) - 1)
		relay.Join(folded, gone)
		s.do(s.other.Ack(t.Context(), "a", folded))
		s.do(s.other.PutCheckpoint(t.Context(), "a", checkpointOf(fmt.Appendf(nil, "%d", i), s.at(len(s.a.Ops)-1), gone)))
		s.collect(s.mine)
		s.now = s.now.Add(relay.Grace)
		s.collect(s.mine)
		for name, want := range map[string]int{"op/": 0, "head/": 1, "ack/": 1, "member/": 1, "closed/": i + 1, "checkpoint/": 2} {
			if got := s.keys(name); len(got) != want {
				t.Errorf("round %d: %d keys at %s, expected %d: %v", i, len(got), name, want, got)
			}
		}
	}
	info, err := s.mine.Hello(t.Context(), "a")
	if err != nil || len(info.Acked) != 1 {
		t.Errorf("acked %v, %v", info.Acked, err)
	}
}

func TestCollectorsSideBySideDropEachOpOnce(t *testing.T) {
	t.Parallel()
	s := newShelf(t, single(t, cluster.Config{}))
	s.put(280)
	s.collect(s.mine)
	s.now = s.now.Add(relay.Grace)
	var wg sync.WaitGroup
	dropped := make([]int, 4)
	for i := range dropped {
		r := open(t, etcd.Config{Client: s.client, Namespace: s.ns, Now: func() time.Time { return s.now }})
		wg.Go(func() {
			c, err := r.Collect(t.Context())
			if err != nil {
				t.Errorf("collect: %v", err)
			}
			dropped[i] = c.Dropped["a"]
		})
	}
	wg.Wait()
	if sum := dropped[0] + dropped[1] + dropped[2] + dropped[3]; sum != 281 || len(s.keys("op/")) != 19 {
		t.Errorf("dropped %v, %d ops are left", dropped, len(s.keys("op/")))
	}
}
