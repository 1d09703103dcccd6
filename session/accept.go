package session

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// ErrAccepted means that a chain was accepted here across a break that no checkpoint covers yet. What this device holds of it before the
// break is not what the relay does, so another device has to make the checkpoint, and this one takes it.
var ErrAccepted = errors.New("session: a break in a chain was accepted here; another device has to make the checkpoint")

// decided takes in the decisions of people about chains, and asks again for those that are concerned.
func (s *Session) decided() error {
	list, err := s.cfg.Journal.Accepted()
	if err != nil {
		return fmt.Errorf("read the accepted chains: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(list, s.accepted) {
		return nil
	}
	s.accepted = list
	for from, q := range s.quarantined {
		if slices.ContainsFunc(list, func(a journal.Acceptance) bool { return a.Of == from.device }) {
			q.retry = time.Time{}
		}
	}
	return nil
}

// relinkLocked gives the chain that an accepted op continues, whatever is held before it.
func (s *Session) relinkLocked(c *oplog.Chain, op oplog.Op) (*oplog.Chain, bool) {
	for _, a := range s.accepted {
		if a.Link && a.ID == op.ID && c.NextSeq() == op.Seq && op.Seq > 0 {
			return oplog.ResumeChain(op.Device, oplog.Head{Seq: op.Seq - 1, ID: op.Prev}), true
		}
	}
	return nil, false
}

// partedLocked reports whether a chain was accepted across a break: what is held of it before need not fit together.
func (s *Session) partedLocked(device string) bool {
	return slices.ContainsFunc(s.accepted, func(a journal.Acceptance) bool { return a.Link && a.Of == device })
}

// waitsLocked reports whether an op has to wait for its time.
func (s *Session) waitsLocked(op oplog.Op, nowMS int64) bool {
	return oplog.Future(op, nowMS) != nil &&
		!slices.ContainsFunc(s.accepted, func(a journal.Acceptance) bool { return !a.Link && a.Of == op.Device && op.Seq <= a.Seq })
}

// excused reports whether err is a fork of a chain that was accepted across a break.
func (s *Session) excused(err error) bool {
	fork, ok := errors.AsType[*oplog.ForkError](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok && s.partedLocked(fork.Device)
}

// loose reports whether a break that was accepted lies above the base.
func (s *Session) loose(base *checkpoint.Header) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.accepted, func(a journal.Acceptance) bool { return a.Link && !base.Covers(a.Of, a.Seq) })
}
