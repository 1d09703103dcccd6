package oplog_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/oplog"
)

func TestTheMinimumIsWhatEveryFrontierCovers(t *testing.T) {
	id := func(c string) oplog.OpID { return oplog.OpID("op-" + c) }
	for _, c := range []struct {
		name string
		in   []oplog.Frontier
		want oplog.Frontier
	}{
		{"of none", nil, oplog.Frontier{}},
		{"of one", []oplog.Frontier{{"a": {1, id("1")}}}, oplog.Frontier{"a": {1, id("1")}}},
		{"lowest", []oplog.Frontier{{"a": {3, id("3")}}, {"a": {1, id("1")}}, {"a": {2, id("2")}}}, oplog.Frontier{"a": {1, id("1")}}},
		{"absent in one", []oplog.Frontier{{"a": {3, id("3")}, "b": {0, id("b")}}, {"b": {0, id("b")}}}, oplog.Frontier{"b": {0, id("b")}}},
		{"forked", []oplog.Frontier{{"a": {3, id("3")}, "b": {0, id("b")}}, {"a": {3, id("x")}, "b": {0, id("b")}}}, oplog.Frontier{"b": {0, id("b")}}},
		{"forked above the lowest", []oplog.Frontier{{"a": {3, id("3")}}, {"a": {3, id("x")}}, {"a": {1, id("1")}}}, oplog.Frontier{"a": {1, id("1")}}},
	} {
		if got := oplog.Minimum(c.in...); !got.Equal(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTheMinimumIsTheGreatestLowerBound(t *testing.T) {
	draw := func(r *rapid.T) oplog.Frontier {
		f := oplog.Frontier{}
		for _, d := range []string{"a", "b", "c"} {
			if seq := rapid.IntRange(-1, 3).Draw(r, d); seq >= 0 {
				f[d] = oplog.Pos{Seq: uint64(seq), ID: oplog.OpID(rune('0' + seq))}
			}
		}
		return f
	}
	rapid.Check(t, func(r *rapid.T) {
		f, g, below := draw(r), draw(r), draw(r)
		m := oplog.Minimum(f, g)
		if !f.Dominates(m) || !g.Dominates(m) {
			r.Fatalf("%v is no lower bound of %v and %v", m, f, g)
		}
		if f.Dominates(below) && g.Dominates(below) && !m.Dominates(below) {
			r.Fatalf("%v is greater than %v", below, m)
		}
		if !m.Equal(oplog.Minimum(g, f)) {
			r.Fatalf("the order of frontiers counts")
		}
	})
}

func TestHeadsStandAtTheirFrontier(t *testing.T) {
	h := oplog.Heads{"b": {Seq: 1, ID: "op-b"}, "a": {Seq: 0, ID: "op-a"}}
	if !h.Frontier().Equal(oplog.Frontier{"a": {0, "op-a"}, "b": {1, "op-b"}}) || h.Devices()[0] != "a" {
		t.Errorf("got %v, %v", h.Frontier(), h.Devices())
	}
	c := h.Clone()
	delete(c, "a")
	if len(h) != 2 || oplog.Heads(nil).Clone() == nil {
		t.Error("Clone is no independent copy")
	}
}
