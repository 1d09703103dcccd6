package fold_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/fold/foldtest"
	"github.com/syncnode/syncnode/oplog"
)

var devices = []string{"x", "y", "z"}

// drawOps is a set of chains whose ops collide in keys, runs, attempts, epochs and stamps.
func drawOps(t *rapid.T, tb testing.TB) []oplog.Op {
	f := newFleet(tb)
	for range rapid.IntRange(0, 40).Draw(t, "ops") {
		device := rapid.SampledFrom(devices).Draw(t, "device")
		wall := rapid.Int64Range(0, 12).Draw(t, "wall")
		surface := rapid.SampledFrom([]oplog.Surface{oplog.Knowledge, oplog.Skill, oplog.Registry("m"), oplog.DeclAgent,
			oplog.Routing, oplog.Conversation, oplog.Intents, oplog.Intents, oplog.Intents, oplog.Intents}).Draw(t, "surface")
		f.write(device, wall, surface, drawPayload(t, surface))
	}
	return f.ops
}

func drawPayload(t *rapid.T, surface oplog.Surface) string {
	if surface != oplog.Intents || rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
		return rapid.SampledFrom([]string{`null`, `{"v":1}`, `{"id":"k","v":1}`, `{"id":"k","v":2}`, `{"id":7}`, `[]`,
			`{"agent_id":"a","id":"r","status":"committed"}`, `{"agent_id":"a","epoch":"1","id":"r"}`}).Draw(t, "payload")
	}
	in := oplog.Intent{
		Agent:   rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "agent"),
		RunID:   rapid.SampledFrom([]string{"r", "r", "q"}).Draw(t, "run"),
		Epoch:   rapid.Uint64Range(0, 3).Draw(t, "epoch"),
		Status:  rapid.SampledFrom([]string{"pending", "committed", "failed"}).Draw(t, "status"),
		Attempt: rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "attempt"),
		By:      rapid.SampledFrom([]string{"", "", "ann"}).Draw(t, "by"),
		Cause:   rapid.SampledFrom([]string{"", "void"}).Draw(t, "cause"),
	}
	p, err := in.Payload()
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// interleave draws an order of ops that keeps each device's own.
func interleave(t *rapid.T, ops []oplog.Op) []oplog.Op {
	rest := map[string][]oplog.Op{}
	for _, op := range ops {
		rest[op.Device] = append(rest[op.Device], op)
	}
	var out []oplog.Op
	for len(out) < len(ops) {
		device := rapid.SampledFrom(devices).Draw(t, "next")
		for len(rest[device]) == 0 {
			device = devices[(slices.Index(devices, device)+1)%len(devices)]
		}
		out = append(out, rest[device][0])
		rest[device] = rest[device][1:]
	}
	return out
}

// Any order between devices, any split into batches with digests taken between, any duplication: one state.
func TestAnyOrderSplitAndDuplicationGivesTheRefoldedState(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ops := drawOps(r, t)
		model := foldtest.Refold(ops)
		var first *fold.State
		for range 2 {
			s := fold.New()
			for _, op := range interleave(r, ops) {
				s.Apply(op)
				switch rapid.IntRange(0, 5).Draw(r, "then") {
				case 0:
					s.Digest() // ends a batch
				case 1:
					if s.Apply(op) {
						r.Fatalf("applied twice")
					}
				case 2:
					s.Apply(rapid.SampledFrom(ops).Draw(r, "again")) // covered, next or a gap: all harmless
				}
			}
			for _, op := range ops { // what "again" took early is covered by now
				s.Apply(op)
			}
			compare(r, s, model)
			if first == nil {
				first = s
			} else if first.FrontierDigest() != s.FrontierDigest() || !first.Frontier().Equal(s.Frontier()) {
				r.Fatalf("frontiers differ")
			}
		}
	})
}

// A digest taken after each op equals the one of a state that was folded in one go: no dirty mark is missed.
func TestEveryPrefixHasTheRefoldedDigest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ops := drawOps(r, t)
		ops = ops[:min(len(ops), 16)] // the refold of every prefix is quadratic
		s := fold.New()
		for i, op := range ops {
			s.Apply(op)
			if got, want := string(s.Digest()), foldtest.Refold(ops[:i+1]).Digest(); got != want {
				r.Fatalf("after op %d: %s, refolded %s", i, got, want)
			}
		}
	})
}

// Parking moves nothing but the veto, whatever is parked and when it is folded.
func TestParkingLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ops := drawOps(r, t)
		s := fold.New()
		for _, op := range interleave(r, ops) {
			if rapid.Bool().Draw(r, "park") {
				before := s.Digest()
				s.NoteParked(op)
				if s.Digest() != before {
					r.Fatalf("parking moved the digest")
				}
				in := oplog.ReadIntent(op.Payload)
				if _, ok := s.CommittedRun(in.Agent, in.RunID); op.Surface == oplog.Intents && in.Committed() && !ok {
					r.Fatalf("no veto while parked")
				}
			}
			s.Apply(op)
		}
		compare(r, s, foldtest.Refold(ops))
	})
}

// Whatever comes later, the oracle never takes a commit back.
func TestMoreOpsNeverTakeACommitBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := fold.New()
		vetoed := map[[2]string]bool{}
		for _, op := range drawOps(r, t) {
			s.Apply(op)
			for _, agent := range s.Agents() {
				for _, run := range s.Runs(agent) {
					_, ok := s.CommittedRun(agent, run)
					if vetoed[[2]string{agent, run}] && !ok {
						r.Fatalf("the commit of %s/%s is gone", agent, run)
					}
					vetoed[[2]string{agent, run}] = ok
				}
			}
		}
	})
}

func TestLateEventsKeepTheirOrderAcrossBlocks(t *testing.T) {
	f := newFleet(t)
	const n = 3000
	for i := range n {
		f.write(fmt.Sprintf("d%d", i%5), int64((i*7919)%n), oplog.Routing, `1`)
	}
	s := folded(f.ops)
	var last fold.Record
	count := 0
	for rec := range s.Events(oplog.Routing) {
		if count > 0 && rec.HLC.Compare(last.HLC) <= 0 {
			t.Fatalf("%v after %v", rec.HLC, last.HLC)
		}
		last = rec
		count++
	}
	if count != n {
		t.Errorf("%d events, want %d", count, n)
	}
	if got, want := string(s.Digest()), foldtest.Refold(f.ops).Digest(); got != want {
		t.Errorf("digest %s, refolded %s", got, want)
	}
}
