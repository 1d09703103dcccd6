package relaytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A bench is a relay that collects, on a clock that the test moves.
type bench struct {
	relay.Relay
	relay.Collector
	t    *testing.T
	now  *time.Time
	open func() relay.Relay
}

func (s suite) bench(t *testing.T, maxBytes int64) bench {
	t.Helper()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	open := s.NewAt(t, maxBytes, func() time.Time { return now })
	r := open()
	c, ok := r.(relay.Collector)
	if !ok {
		t.Fatalf("%T is no relay.Collector", r)
	}
	return bench{Relay: r, Collector: c, t: t, now: &now, open: open}
}

// replica registers a device and acks.
func (b bench) replica(device string, acked oplog.Frontier) {
	b.t.Helper()
	if err := b.Register(b.t.Context(), device, relay.Replica); err != nil {
		b.t.Fatalf("register: %v", err)
	}
	if acked != nil {
		if err := b.Ack(b.t.Context(), device, acked); err != nil {
			b.t.Fatalf("ack: %v", err)
		}
	}
}

// checkpoint makes one with a body of its own.
func checkpoint(author string, frontier, closed oplog.Frontier) relay.Checkpoint {
	var body bytes.Buffer
	fmt.Fprintf(&body, "folded by %s", author)
	for _, d := range frontier.Devices() {
		fmt.Fprintf(&body, "\n%s %d %s", d, frontier[d].Seq, frontier[d].ID)
	}
	for _, d := range closed.Devices() {
		fmt.Fprintf(&body, "\nclosed %s %d %s", d, closed[d].Seq, closed[d].ID)
	}
	return sealed(relay.Checkpoint{Author: author, Frontier: frontier, Closed: closed, Body: body.Bytes()})
}

func sealed(c relay.Checkpoint) relay.Checkpoint {
	sum := sha256.Sum256(c.Body)
	c.Hash = hex.EncodeToString(sum[:])
	return c
}

func (b bench) put(c relay.Checkpoint) {
	b.t.Helper()
	if err := b.PutCheckpoint(b.t.Context(), c.Author, c); err != nil {
		b.t.Fatalf("put checkpoint: %v", err)
	}
}

// holds checks that c is the newest checkpoint; nil: there is none.
func (b bench) holds(c *relay.Checkpoint) {
	b.t.Helper()
	got, ok, err := b.Collector.Checkpoint(b.t.Context())
	info, hello := b.Hello(b.t.Context(), "asks")
	switch {
	case err != nil || hello != nil:
		b.t.Fatalf("checkpoint: %v, %v", err, hello)
	case c == nil:
		if ok || info.Checkpoint != "" {
			b.t.Fatalf("there is a checkpoint %s, hello says %q; expected none", got.Hash, info.Checkpoint)
		}
	case !ok || got.Hash != c.Hash || info.Checkpoint != c.Hash || got.Author != c.Author || !bytes.Equal(got.Body, c.Body) ||
		!got.Frontier.Equal(c.Frontier) || !got.Closed.Equal(c.Closed):
		b.t.Fatalf("the newest checkpoint is %.12s (%v) of %s, %v closed %v, hello says %.12s; expected %.12s of %s, %v closed %v",
			got.Hash, ok, got.Author, got.Frontier, got.Closed, info.Checkpoint, c.Hash, c.Author, c.Frontier, c.Closed)
	}
}

func (b bench) collect() relay.Collection {
	b.t.Helper()
	c, err := b.Collect(b.t.Context())
	if err != nil {
		b.t.Fatalf("collect: %v", err)
	}
	return c
}

func (b bench) pass(d time.Duration) { *b.now = b.now.Add(d) }

// collectAll collects until nothing more goes, and returns what was dropped.
func (b bench) collectAll() (map[string]int, relay.Collection) {
	b.t.Helper()
	dropped := map[string]int{}
	for range 10 {
		c := b.collect()
		for d, n := range c.Dropped {
			dropped[d] += n
		}
		if len(c.Marked) == 0 {
			return dropped, c
		}
		b.pass(relay.Grace)
	}
	b.t.Fatal("collection does not end")
	return nil, relay.Collection{}
}

func (b bench) wantDropped(want map[string]int, floor oplog.Frontier, reasons map[string]relay.Reason) {
	b.t.Helper()
	dropped, c := b.collectAll()
	if !maps.Equal(dropped, want) || !c.Floor.Equal(floor) || !maps.Equal(c.Reasons, reasons) {
		b.t.Fatalf("dropped %v up to %v, the rest stays because of %v;\nexpected %v up to %v because of %v", dropped, c.Floor, c.Reasons, want, floor, reasons)
	}
	if info, err := b.Hello(b.t.Context(), "asks"); err != nil || !info.Floor.Equal(floor) {
		b.t.Fatalf("hello says the floor is %v (%v), expected %v", info.Floor, err, floor)
	}
}
