package fold_test

import (
	"fmt"
	"testing"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/oplog"
)

// literal is an op that nothing verifies here: fold trusts its input, and a million hashes would take the time that
// is to be measured.
func literal(device string, seq uint64, surface oplog.Surface, payload string) oplog.Op {
	return oplog.Op{ID: oplog.OpID(fmt.Sprintf("op-%064x", seq)), Device: device, Seq: seq, HLC: oplog.HLC{WallMS: int64(seq), Device: device},
		Scope: oplog.Personal, Surface: surface, Payload: []byte(payload)}
}

func mixed(seq uint64) oplog.Op {
	switch seq % 4 {
	case 0:
		return literal("d", seq, oplog.Knowledge, fmt.Sprintf(`{"id":"k%d","text":"some words"}`, seq))
	case 1:
		return literal("d", seq, oplog.Routing, `{"ms":12}`)
	case 2:
		return literal("d", seq, oplog.Intents, fmt.Sprintf(`{"agent_id":"a%d","attempt":"n%d","epoch":1,"id":"r%d","status":"pending"}`, seq%100, seq, seq))
	}
	return literal("d", seq, oplog.Intents, fmt.Sprintf(`{"agent_id":"a%d","attempt":"n%d","epoch":1,"id":"r%d","status":"committed"}`, (seq-1)%100, seq-1, seq-1))
}

func history(n int) *fold.State {
	s := fold.New()
	for seq := range uint64(n) {
		s.Apply(mixed(seq))
	}
	return s
}

var sizes = []int{1_000, 100_000}

func BenchmarkApply(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("history=%d", n), func(b *testing.B) {
			s := history(n)
			seq := uint64(n)
			b.ReportAllocs()
			for b.Loop() {
				if !s.Apply(mixed(seq)) {
					b.Fatal("not applied")
				}
				seq++
			}
		})
	}
}

func BenchmarkApplyAndDigest(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("history=%d", n), func(b *testing.B) {
			s := history(n)
			s.Digest()
			seq := uint64(n)
			for b.Loop() {
				s.Apply(mixed(seq))
				s.Digest()
				seq++
			}
		})
	}
}

func BenchmarkOracle(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("history=%d", n), func(b *testing.B) {
			s := history(n)
			for b.Loop() {
				if _, ok := s.CommittedRun("a2", "r2"); !ok {
					b.Fatal("not committed")
				}
			}
		})
	}
}

// The cost of one op and of one look at the oracle does not grow with what was folded before, counted in
// allocations, which no other load on the machine can change.
func TestApplyAndOracleCostTheSameWhateverWasFolded(t *testing.T) {
	var apply, oracle []float64
	for _, n := range []int{400, 40_000} {
		s := history(n)
		const runs = 400
		ops := make([]oplog.Op, runs+4)
		for i := range ops {
			ops[i] = mixed(uint64(n + i))
		}
		i := 0
		apply = append(apply, testing.AllocsPerRun(runs, func() { s.Apply(ops[i]); i++ }))
		oracle = append(oracle, testing.AllocsPerRun(runs, func() { s.CommittedRun("a2", "r2") }))
	}
	if apply[1] > 2*apply[0] || oracle[1] != oracle[0] {
		t.Errorf("allocations at 400 and 40,000 ops: apply %v, oracle %v", apply, oracle)
	}
}
