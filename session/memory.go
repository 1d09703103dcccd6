package session

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// batch is how many ops are taken into memory in one hold of the lock.
const batch = 256

// catchUp reads what the journal knows and memory does not, and takes it in. It is the only way by which ops of
// others reach memory. The caller may be inside Journal.Update.
func (s *Session) catchUp(ctx context.Context) error {
	return s.whileReading(ctx, func() error {
		if err := s.readOwn(); err != nil {
			return fmt.Errorf("read the own chain: %w", err)
		}
		if err := s.readPeers(); err != nil {
			return fmt.Errorf("read the chains of others: %w", err)
		}
		return nil
	})
}

func (s *Session) readOwn() error {
	head, ok := s.cfg.Journal.Head()
	next := s.nextOwn()
	if !ok || head.Seq < next {
		return nil
	}
	ops := make([]oplog.Op, 0, min(batch, head.Seq-next+1))
	for op, err := range s.cfg.Journal.Own(next) {
		if err != nil {
			return err
		}
		if ops = append(ops, op); len(ops) == batch {
			s.takeOwn(ops)
			ops = ops[:0]
		}
	}
	s.takeOwn(ops)
	return nil
}

func (s *Session) readPeers() error {
	end := s.cfg.Journal.End(journal.Peers)
	if end == s.peersAt {
		return nil
	}
	var entries []journal.Entry
	for e, err := range s.peersFrom() {
		if err != nil {
			return err
		}
		if entries = append(entries, e); len(entries) == batch {
			s.takePeers(entries)
			entries = entries[:0]
		}
	}
	s.takePeers(entries)
	if beyond(end, s.peersAt) {
		s.peersAt = end // the blank line after the last record
	}
	return nil
}

// peersFrom yields what was not read yet of the chains of others.
func (s *Session) peersFrom() iter.Seq2[journal.Entry, error] {
	if s.peersAt != (journal.Cursor{}) {
		return s.cfg.Journal.Peers(s.peersAt)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.Journal.Kept(s.cut, journal.Peers)
}

func beyond(a, b journal.Cursor) bool {
	return a.Segment > b.Segment || a.Segment == b.Segment && a.Offset > b.Offset
}

func (s *Session) nextOwn() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownNext
}

// takeOwn takes journaled own ops in, those that are next. It reports whether memory holds the last of them now.
func (s *Session) takeOwn(ops []oplog.Op) bool {
	now := s.cfg.Now().UnixMilli()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range ops {
		if op.Seq == s.ownNext {
			s.ownNext++
			s.takeLocked(op, now)
		}
	}
	return len(ops) == 0 || ops[len(ops)-1].Seq < s.ownNext
}

// takePeers takes journaled ops of others in and moves the cursor past them. They were verified before they were
// written; one that does not verify now stops its own chain.
func (s *Session) takePeers(entries []journal.Entry) {
	now := s.cfg.Now().UnixMilli()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.peersAt = e.Next
		verdict, err := s.admitLocked(s.chainLocked(e.Op.Device), e.Op, now)
		if _, below := errors.AsType[*oplog.BelowError](err); below || verdict.Duplicate {
			continue
		}
		if err != nil && s.partedLocked(e.Op.Device) {
			continue // of the branch that was left
		}
		if err != nil {
			s.quarantineLocked(source{device: e.Op.Device}, e.Op.Seq, err, s.cfg.Now())
			continue
		}
		s.takeLocked(e.Op, now)
		delete(s.quarantined, source{device: e.Op.Device})
	}
}

// chainLocked is the verified chain of another device. It begins where the checkpoint ends.
func (s *Session) chainLocked(device string) *oplog.Chain {
	c := s.chains[device]
	if c == nil {
		c = oplog.NewChain(device)
		if head, ok := s.baseHead(device); ok {
			c = oplog.ResumeChain(device, head)
		}
		s.chains[device] = c
	}
	return c
}

// baseHead is the last op of a device that the checkpoint covers.
func (s *Session) baseHead(device string) (oplog.Head, bool) {
	head, ok := s.base.Heads[device]
	if !ok {
		head, ok = s.base.Closed[device]
	}
	return head, ok
}

// admitLocked verifies an op on its chain. That of a closed chain has ended; and the first op after the checkpoint has to continue it.
func (s *Session) admitLocked(c *oplog.Chain, op oplog.Op, nowMS int64) (oplog.Verdict, error) {
	if last, closed := s.base.Closed[op.Device]; closed && op.Seq > last.Seq {
		return oplog.Verdict{}, &checkpoint.ClosedDeviceError{Device: op.Device, Last: last, Seq: op.Seq}
	}
	before, begun := c.Head()
	verdict, err := c.Admit(op, nowMS)
	if err != nil {
		if again, ok := s.relinkLocked(c, op); ok {
			if verdict, err = again.Admit(op, nowMS); err == nil {
				*c = *again
			}
		}
	}
	if err == nil || s.base.Hash == "" {
		return verdict, err
	}
	_, gap := errors.AsType[*oplog.GapError](err)
	_, fork := errors.AsType[*oplog.ForkError](err)
	_, clock := errors.AsType[*oplog.ClockError](err)
	if base, known := s.baseHead(op.Device); known && before == base && (gap || fork || clock) {
		return verdict, &checkpoint.BrokenAnchorError{Device: op.Device, Head: base, Err: err}
	} else if !known && !begun && gap {
		return verdict, fmt.Errorf("%w: %w", &checkpoint.UnanchoredDeviceError{Device: op.Device, FirstSeq: op.Seq}, err)
	}
	return verdict, err
}

// takeLocked holds a journaled op that continues its chain, and folds it unless it has to wait.
func (s *Session) takeLocked(op oplog.Op, nowMS int64) {
	s.held[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
	if s.stopped[op.Device] != nil {
		s.state.NoteParked(op)
		return
	}
	if len(s.parked[op.Device]) > 0 || s.waitsLocked(op, nowMS) {
		s.parked[op.Device] = append(s.parked[op.Device], op)
		s.state.NoteParked(op)
		return
	}
	s.foldLocked(op)
}

// foldLocked folds an op, or stops its chain there if it cannot be read, and reports whether it was folded.
func (s *Session) foldLocked(op oplog.Op) bool {
	content, err := s.content(op)
	if err != nil {
		s.stopLocked(op, err)
		return false
	}
	s.applyLocked(op, content)
	return true
}

// applyLocked folds the content of an op. Its id stays that of what was written.
func (s *Session) applyLocked(op oplog.Op, content []byte) {
	op.Payload = content
	s.state.Apply(op)
	if oplog.Future(op, s.cfg.Now().UnixMilli()) == nil {
		s.cfg.Journal.Observe(op.HLC) // durable, and not folded before its time
	}
}

// unpark folds the ops whose time has come, and says how many.
func (s *Session) unpark() int {
	now := s.cfg.Now().UnixMilli()
	s.mu.Lock()
	defer s.mu.Unlock()
	folded := 0
	for device, ops := range s.parked {
		n := 0
		for n < len(ops) && !s.waitsLocked(ops[n], now) && s.foldLocked(ops[n]) {
			n++
		}
		folded += n
		switch {
		case s.stopped[device] != nil: // it keeps nothing in memory
		case n == len(ops):
			delete(s.parked, device)
		default:
			s.parked[device] = ops[n:]
		}
	}
	return folded
}
