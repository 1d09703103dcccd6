package oplog

import (
	"maps"
	"slices"
)

// Heads are the last ops of several chains, by device. They are a frontier that also knows the stamps, so that chains
// can be resumed from them.
type Heads map[string]Head

// Frontier is the frontier that the heads stand at.
func (h Heads) Frontier() Frontier {
	f := make(Frontier, len(h))
	for device, head := range h {
		f[device] = head.Pos()
	}
	return f
}

// Devices returns the devices in bytewise order.
func (h Heads) Devices() []string { return slices.Sorted(maps.Keys(h)) }

// Clone returns an independent copy, also of nil.
func (h Heads) Clone() Heads {
	if h == nil {
		return Heads{}
	}
	return maps.Clone(h)
}

// Minimum is the greatest frontier that each of the frontiers covers: per device the lowest position. A device that is
// absent from one of them is absent; so is one of which two of them know different ops at that seq, because nothing of
// a forked chain is known to be common. The minimum of no frontiers is empty.
func Minimum(frontiers ...Frontier) Frontier {
	if len(frontiers) == 0 {
		return Frontier{}
	}
	out := frontiers[0].Clone()
	forked := map[string]bool{}
	for _, f := range frontiers[1:] {
		for device, low := range out {
			p, ok := f[device]
			switch {
			case !ok:
				delete(out, device)
			case p.Seq < low.Seq:
				out[device], forked[device] = p, false
			case p.Seq == low.Seq && p.ID != low.ID:
				forked[device] = true
			}
		}
	}
	maps.DeleteFunc(out, func(device string, _ Pos) bool { return forked[device] })
	return out
}

// Check returns nil if h is a stamp that an op may have. It fails with [*FieldError].
func (h HLC) Check() error { return h.check() }
