package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// ErrNoCoordinator means that the session was opened without one. Nothing was recorded.
var ErrNoCoordinator = errors.New("session: no coordinator to ask")

// Append adds ops to the own chain and returns them when they are on stable storage and in memory. If it fails with
// journal.ErrNotWritten or journal.ErrBusy there is no such op, and the next one takes its place. Where the policy seals, payloads are
// checked as they are and sealed then; without a key nothing is written, and the error matches seal.ErrNoKey.
func (s *Session) Append(ctx context.Context, drafts ...journal.Draft) ([]oplog.Op, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	drafts, err := s.sealed(drafts)
	if err != nil {
		return nil, fmt.Errorf("append: %w: %w", journal.ErrNotWritten, err)
	}
	ops, err := s.cfg.Journal.Append(ctx, drafts...)
	if err != nil {
		return nil, err
	}
	s.include(ctx, ops)
	return ops, nil
}

// include takes own ops into memory that were just journaled. Others may have come before them.
func (s *Session) include(ctx context.Context, ops []oplog.Op) {
	if s.takeOwn(ops) {
		return
	}
	if err := s.catchUp(context.WithoutCancel(ctx)); err != nil {
		s.log.Warn("memory is behind the journal until the next look", "error", err)
	}
}

// Appended is closed with the next op that this process appends to the own chain, through this session or beside it through the same journal.
func (s *Session) Appended() <-chan struct{} { return s.cfg.Journal.Appended() }

// RecordIntent records an intent whoever holds the lease: what happened is a fact. A pending or failed intent for
// a run that is known as committed is not recorded, and false is returned.
func (s *Session) RecordIntent(ctx context.Context, in oplog.Intent) (oplog.Op, bool, error) {
	payload, err := in.Payload()
	if err != nil {
		return oplog.Op{}, false, fmt.Errorf("record intent: %w", err)
	}
	draft := journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload}
	if in.Committed() {
		ops, err := s.Append(ctx, draft)
		if err != nil {
			return oplog.Op{}, false, fmt.Errorf("record intent: %w", err)
		}
		return ops[0], true, nil
	}
	var ops []oplog.Op
	err = s.cfg.Journal.Update(ctx, func(tx *journal.Tx) error {
		if err := s.catchUp(ctx); err != nil { // the commit may be another process's
			return err
		}
		if _, done := s.CommittedRun(in.Agent, in.RunID); done {
			return nil
		}
		ops, err = tx.Append(draft)
		return err
	})
	if err != nil {
		return oplog.Op{}, false, fmt.Errorf("record intent: %w", err)
	}
	if len(ops) == 0 {
		return oplog.Op{}, false, nil
	}
	s.include(ctx, ops)
	return ops[0], true, nil
}

// RecordIntentIfCurrent is RecordIntent if the coordinator says that this device holds the agent's lease at the
// intent's epoch; else nothing is recorded and false is returned. The lease may be lost right after: what must be
// safe asks the fence.
func (s *Session) RecordIntentIfCurrent(ctx context.Context, in oplog.Intent) (oplog.Op, bool, error) {
	if s.cfg.Coordinator == nil {
		return oplog.Op{}, false, ErrNoCoordinator
	}
	device, epoch, held, err := s.cfg.Coordinator.Current(ctx, in.Agent)
	if err != nil {
		return oplog.Op{}, false, fmt.Errorf("record intent of agent %s: nothing was recorded: %w", in.Agent, err)
	}
	if !held || device != s.cfg.Device || epoch != in.Epoch {
		return oplog.Op{}, false, nil
	}
	return s.RecordIntent(ctx, in)
}
