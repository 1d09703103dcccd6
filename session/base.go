package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// ErrCheckpoint means that the checkpoint which the journal begins at is lost or damaged. See CheckpointError.
var ErrCheckpoint = errors.New("session: the journal's checkpoint is lost")

// A CheckpointError names the checkpoint without which the journal cannot be read, and what is wrong with it. Nothing was removed:
// Restore fetches it from a relay. It matches ErrCheckpoint.
type CheckpointError struct {
	Checkpoint string
	Err        error
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("the journal begins at checkpoint %s, which cannot be used: %v: fetch it from a relay", e.Checkpoint, e.Err)
}

// Unwrap gives the cause.
func (e *CheckpointError) Unwrap() error { return e.Err }

// Is reports whether target is ErrCheckpoint.
func (e *CheckpointError) Is(target error) bool { return target == ErrCheckpoint }

// Facts are what a checkpoint says that may not be in the journal.
type Facts struct {
	Checkpoint string
	Heads      oplog.Heads // the last op of every chain, closed ones included
	// Intents are the covered ops on the surface intent that the state keeps, with seq and prev unknown. Nil: all of them have been
	// in the journal.
	Intents iter.Seq[oplog.Op]
}

func factsOf(h *checkpoint.Header, state *fold.State) Facts {
	f := Facts{Checkpoint: string(h.Hash), Heads: headsOf(h)}
	if state != nil {
		f.Intents = func(yield func(oplog.Op) bool) {
			for r := range state.Intents() {
				if !yield(oplog.Op{ID: r.ID, Device: r.HLC.Device, HLC: r.HLC, Scope: r.Scope, Surface: r.Surface, Payload: r.Payload}) {
					return
				}
			}
		}
	}
	return f
}

// ReadFacts are the facts of a checkpoint, all intents included: from them an index is made anew that was lost with its copy. Errors
// are those of checkpoint.Store.Load.
func ReadFacts(store *checkpoint.Store, name string) (Facts, error) {
	c, _, err := store.Load(checkpoint.Hash(name))
	if err != nil {
		return Facts{}, err
	}
	return factsOf(&c.Header, c.State), nil
}

// load puts the checkpoint that the journal begins at into the empty memory.
func (s *Session) load() error {
	if err := s.decided(); err != nil {
		return err
	}
	cut, ok, err := s.cfg.Journal.Cut()
	if err != nil || !ok {
		return err
	}
	if s.cfg.Checkpoints == nil {
		return &journal.AnchorError{Checkpoint: cut.Checkpoint}
	}
	c, _, err := s.cfg.Checkpoints.Load(checkpoint.Hash(cut.Checkpoint))
	if err == nil && !(maps.Equal(c.Heads, cut.Heads) && maps.Equal(c.Closed, cut.Closed)) {
		return &journal.CorruptError{File: "CUT.json", Err: fmt.Errorf("it does not say what checkpoint %s says", cut.Checkpoint)}
	}
	if err != nil {
		if c, err = s.remake(cut, err); err != nil {
			return err
		}
	}
	s.stand(c, cut.Checkpoint)
	return nil
}

// remake makes the lost checkpoint of a cut from an older one, or from nothing, and the ops that are still held.
func (s *Session) remake(cut journal.Cut, cause error) (*checkpoint.Checkpoint, error) {
	lost := func(err error) error {
		return &CheckpointError{Checkpoint: cut.Checkpoint, Err: errors.Join(cause, err)}
	}
	want := checkpoint.Header{Heads: cut.Heads, Closed: cut.Closed}
	found, err := s.cfg.Checkpoints.Newest(nil)
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		found.Checkpoint = nil
	case err != nil:
		return nil, lost(err)
	case found.Dominates(&want):
		return found.Checkpoint, nil
	case !want.Dominates(&found.Header):
		return nil, lost(fmt.Errorf("the newest of the others, %s, is no part of it", found.Hash))
	}
	meta := checkpoint.Meta{Author: s.cfg.Device, WallMS: s.cfg.Now().UnixMilli(), Sealed: found.Meta.Sealed}
	to := checkpoint.Cut{Frontier: want.All(), Closed: cut.Closed.Devices(), Content: s.contents(&meta.Sealed)}
	again, err := checkpoint.Extend(found.Checkpoint, to, s.keptOps(cut.Checkpoint))
	if err != nil {
		return nil, lost(err)
	}
	if string(again.Hash) != cut.Checkpoint {
		return nil, lost(fmt.Errorf("the ops that are held give %s", again.Hash))
	}
	if err := s.cfg.Checkpoints.Save(again, meta); err != nil {
		return nil, err
	}
	s.log.Warn("the journal's checkpoint was damaged, and was made again from the ops that are held", "checkpoint", again.Hash, "cause", cause)
	return again, nil
}

// stand makes a checkpoint the beginning of an empty memory.
func (s *Session) stand(c *checkpoint.Checkpoint, cut string) {
	s.base, s.cut, s.state = c.Header, cut, c.State
	s.held = c.All()
	if head, ok := c.Heads[s.cfg.Device]; ok {
		s.ownNext = head.Seq + 1
	}
	now := s.cfg.Now().UnixMilli()
	for _, heads := range []oplog.Heads{c.Heads, c.Closed} {
		for _, h := range heads {
			if oplog.Future(oplog.Op{HLC: h.HLC}, now) == nil {
				s.cfg.Journal.Observe(h.HLC)
			}
		}
	}
}

// keptOps yields all ops that the journal holds, the own first. The caller knows which checkpoint it begins at.
func (s *Session) keptOps(cut string) iter.Seq2[oplog.Op, error] {
	return func(yield func(oplog.Op, error) bool) {
		for _, series := range []journal.Series{journal.Own, journal.Peers} {
			for e, err := range s.cfg.Journal.Kept(cut, series) {
				if !yield(e.Op, err) || err != nil {
					return
				}
			}
		}
	}
}

// follow is catchUp that starts anew if another process has cut the journal. It takes in what people decided too.
func (s *Session) follow(ctx context.Context) error {
	if err := s.decided(); err != nil {
		return err
	}
	cut, _, err := s.cfg.Journal.Cut()
	if err != nil {
		return err
	}
	if cut.Checkpoint == s.cutName() {
		if err := s.catchUp(ctx); !errors.Is(err, journal.ErrAnchored) {
			return err
		}
	}
	next := newSession(s.cfg)
	if err := next.load(); err != nil {
		return err
	}
	if err := next.catchUp(ctx); err != nil {
		return err
	}
	if err := s.whileReading(ctx, func() error { s.swap(next); return nil }); err != nil {
		return err
	}
	return s.catchUp(ctx) // what was appended meanwhile
}

// swap takes the memory of next in place of the own, while nobody reads.
func (s *Session) swap(next *Session) {
	s.peersAt = next.peersAt
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base, s.cut, s.state, s.held, s.ownNext = next.base, next.cut, next.state, next.held, next.ownNext
	s.chains, s.parked, s.stopped = next.chains, next.parked, next.stopped
	maps.DeleteFunc(s.quarantined, func(from source, _ *Quarantine) bool { return from.instance == "" })
	maps.Copy(s.quarantined, next.quarantined)
}

// whileReading runs fn while nobody moves the cursors.
func (s *Session) whileReading(ctx context.Context, fn func() error) error {
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", journal.ErrBusy, context.Cause(ctx))
	}
	defer func() { <-s.reading }()
	return fn()
}
