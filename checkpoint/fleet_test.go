package checkpoint_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/oplog"
)

// A fleet writes chains, each device with a clock of its own.
type fleet struct {
	t    testing.TB
	ops  []oplog.Op
	head map[string]oplog.Head
	seen map[string]bool
}

func newFleet(t testing.TB) *fleet {
	return &fleet{t: t, head: map[string]oplog.Head{}, seen: map[string]bool{}}
}

func (f *fleet) write(device string, wall int64, surface oplog.Surface, payload string) oplog.Op {
	f.t.Helper()
	head, ok := f.head[device], f.seen[device]
	clock := oplog.NewClock(device)
	if ok {
		clock.Observe(head.HLC)
		head.Seq++
	}
	scope := oplog.Personal
	if wall%5 == 4 {
		scope = oplog.Shared("acme")
	}
	op, err := oplog.New(device, head.Seq, head.ID, clock.Tick(wall), scope, surface, []byte(payload))
	if err != nil {
		f.t.Fatal(err)
	}
	f.head[device], f.seen[device] = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}, true
	f.ops = append(f.ops, op)
	return op
}

func intent(run string, epoch int, status, attempt string) string {
	return fmt.Sprintf(`{"agent_id":"a","attempt":"%s","epoch":%d,"id":"%s","status":"%s"}`, attempt, epoch, run, status)
}

var devices = []string{"x", "y", "z"}

// draw is a history whose ops collide in keys, runs, attempts, epochs and stamps.
func draw(r *rapid.T, tb testing.TB) []oplog.Op {
	f := newFleet(tb)
	for range rapid.IntRange(0, 30).Draw(r, "ops") {
		device, wall := rapid.SampledFrom(devices).Draw(r, "device"), rapid.Int64Range(0, 12).Draw(r, "wall")
		surface := rapid.SampledFrom([]oplog.Surface{oplog.Knowledge, oplog.Registry("m"), oplog.Routing, oplog.Intents, oplog.Intents}).Draw(r, "surface")
		payload := rapid.SampledFrom([]string{`null`, `{"v":1}`, `{"id":"k","v":1}`, `{"id":"k","v":2}`}).Draw(r, "payload")
		if surface == oplog.Intents {
			payload = intent(rapid.SampledFrom([]string{"r", "q"}).Draw(r, "run"), rapid.IntRange(0, 3).Draw(r, "epoch"),
				rapid.SampledFrom([]string{"pending", "committed", "failed"}).Draw(r, "status"), rapid.SampledFrom([]string{"n1", "n2"}).Draw(r, "attempt"))
		}
		f.write(device, wall, surface, payload)
	}
	return f.ops
}

// drawCut draws a frontier of ops, at or above from.
func drawCut(r *rapid.T, ops []oplog.Op, from oplog.Frontier) oplog.Frontier {
	cut := from.Clone()
	for _, device := range devices {
		chain := chainOf(ops, device)
		n := rapid.IntRange(int(from.Next(device)), len(chain)).Draw(r, "cut "+device)
		if n > 0 {
			cut[device] = oplog.Pos{Seq: uint64(n - 1), ID: chain[n-1].ID}
		}
	}
	return cut
}

func chainOf(ops []oplog.Op, device string) []oplog.Op {
	return slices.DeleteFunc(slices.Clone(ops), func(op oplog.Op) bool { return op.Device != device })
}

func all(ops []oplog.Op) iter.Seq2[oplog.Op, error] {
	return func(yield func(oplog.Op, error) bool) {
		for _, op := range ops {
			if !yield(op, nil) {
				return
			}
		}
	}
}

func frontier(ops []oplog.Op) oplog.Frontier {
	f := oplog.Frontier{}
	for _, op := range ops {
		f[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
	}
	return f
}

func folded(ops []oplog.Op) *fold.State {
	s := fold.New()
	for _, op := range ops {
		s.Apply(op)
	}
	return s
}

func sample(t testing.TB) *fleet {
	f := newFleet(t)
	f.write("laptop", 1_700_000_000_000, oplog.Knowledge, `{"id":"sky","v":"blue"}`)
	f.write("phone", 1_700_000_000_001, oplog.Registry("model"), `{"id":"milo"}`)
	f.write("laptop", 1_700_000_000_002, oplog.Routing, `{"ms":5}`)
	f.write("laptop", 1_700_000_000_003, oplog.Intents, intent("r1-x", 1, "pending", "n1"))
	f.write("laptop", 1_700_000_000_004, oplog.Intents, intent("r1-x", 1, "committed", "n1"))
	f.write("phone", 1_700_000_000_005, oplog.Intents, intent("r1-y", 2, "pending", "n2"))
	f.write("old", 1_600_000_000_000, oplog.Conversation, `"bye"`)
	return f
}

// sampled is the checkpoint of the sample, with one chain closed.
func sampled(t testing.TB) *checkpoint.Checkpoint {
	s := folded(sample(t).ops)
	s.Close("old")
	return checkpoint.Of(s)
}

func body(t interface {
	Helper()
	Fatal(...any)
}, c *checkpoint.Checkpoint) []byte {
	t.Helper()
	b, err := c.Body()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
