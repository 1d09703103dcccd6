package session

import (
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// Uncovered counts the folded ops that the journal's checkpoint does not cover, and how many of them Publish would take in now: those
// that every replica of the roster has folded and the relay holds.
func (s *Session) Uncovered(roster []relay.Member, heads oplog.Frontier) (all, stable uint64) {
	s.mu.Lock()
	folded, base := s.state.Frontier(), s.base
	s.mu.Unlock()
	for device := range base.Closed {
		delete(folded, device)
	}
	count := func(f oplog.Frontier) (n uint64) {
		for device, at := range lower(f, folded) {
			if head, ok := base.Heads[device]; !ok {
				n += at.Seq + 1
			} else if head.Seq < at.Seq {
				n += at.Seq - head.Seq
			}
		}
		return n
	}
	return count(folded), count(lower(relay.Stable(roster), heads))
}

// lower is what both frontiers have.
func lower(a, b oplog.Frontier) oplog.Frontier {
	out := oplog.Frontier{}
	for device, at := range a {
		if other, ok := b[device]; !ok {
			continue
		} else if other.Seq < at.Seq {
			at = other
		}
		out[device] = at
	}
	return out
}
