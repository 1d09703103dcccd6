package oplog

import (
	"maps"
	"slices"
)

// A Pos is the position of an op in a chain.
type Pos struct {
	Seq uint64 `json:"seq"`
	ID  OpID   `json:"op_id"`
}

// A Frontier says how far each device's chain is known: its last seq and that op's id. A device that is absent
// has no op yet. Since ids cover what came before, equal frontiers mean equal ops.
type Frontier map[string]Pos

// Clone returns an independent copy.
func (f Frontier) Clone() Frontier {
	if f == nil {
		return Frontier{}
	}
	return maps.Clone(f)
}

// Covers reports whether the op of device at seq is at or below the frontier.
func (f Frontier) Covers(device string, seq uint64) bool {
	p, ok := f[device]
	return ok && seq <= p.Seq
}

// Next is the first seq of device above the frontier.
func (f Frontier) Next(device string) uint64 {
	if p, ok := f[device]; ok {
		return p.Seq + 1
	}
	return 0
}

// Dominates reports whether f covers everything that g covers. It compares seqs, and ids where the seqs are
// equal: a device that forked is dominated by neither side.
func (f Frontier) Dominates(g Frontier) bool {
	for device, q := range g {
		p, ok := f[device]
		if !ok || p.Seq < q.Seq || p.Seq == q.Seq && p.ID != q.ID {
			return false
		}
	}
	return true
}

// Equal reports whether f and g are the same frontier.
func (f Frontier) Equal(g Frontier) bool { return maps.Equal(f, g) }

// An Order says how two frontiers relate.
type Order int

const (
	Same       Order = iota // equal
	Behind                  // the other covers more
	Ahead                   // this one covers more
	Concurrent              // each covers something the other does not, or a device forked
)

// Compare says how f relates to g.
func (f Frontier) Compare(g Frontier) Order {
	ahead, behind := f.Dominates(g), g.Dominates(f)
	switch {
	case ahead && behind:
		return Same
	case ahead:
		return Ahead
	case behind:
		return Behind
	}
	return Concurrent
}

// Devices returns the devices in bytewise order.
func (f Frontier) Devices() []string { return slices.Sorted(maps.Keys(f)) }
