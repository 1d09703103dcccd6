package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
)

// An Adopted is a checkpoint that was taken from a relay.
type Adopted struct {
	Checkpoint checkpoint.Hash
	Author     string
	// Proved: the ops that it covers were all held here and give the same. Otherwise its author vouches for it.
	Proved bool
}

// Rebase begins the journal at the relay's newest checkpoint, on a device without anything (a bootstrap), on one that is behind
// what was collected, or on one that only wants to drop what is covered. What the checkpoint does not cover stays, and is folded on top
// of it; own ops that were never pushed are pushed by the next pump. False if the relay has none, or none that covers more than the
// present one.
//
// While the covered ops are held the checkpoint is made again from them and compared: a *checkpoint.DisputedError if it differs. It is
// refused with a *checkpoint.BehindError if it does not cover the present one, with an *oplog.ForkError if an op here that it covers
// is another one, and if that is an own op, or one that this journal lost, the id is frozen. Then nothing was changed.
func (s *Session) Rebase(ctx context.Context, r relay.Relay) (Adopted, bool, error) {
	if _, err := s.collector(r); err != nil {
		return Adopted{}, false, fmt.Errorf("rebase: %w", err)
	}
	release, err := s.pump(ctx)
	if err != nil {
		return Adopted{}, false, fmt.Errorf("rebase: %w", err)
	}
	defer release()
	if err := s.Refresh(ctx); err != nil {
		return Adopted{}, false, fmt.Errorf("rebase: %w", err)
	}
	adopted, err := s.adopt(ctx, r)
	if errors.Is(err, errNothingNewer) {
		return Adopted{}, false, nil
	}
	if err != nil {
		return Adopted{}, false, fmt.Errorf("rebase: %w", s.noting(ctx, r, err))
	}
	return adopted, true, nil
}

var errNothingNewer = errors.New("the relay has no newer checkpoint")

// adopt takes the relay's newest checkpoint. The pumping token is held.
func (s *Session) adopt(ctx context.Context, r relay.Relay) (Adopted, error) {
	store, err := s.collector(r)
	if err != nil {
		return Adopted{}, err
	}
	newest, ok, err := store.Checkpoint(ctx)
	if err != nil {
		return Adopted{}, err
	}
	base := s.baseHeader()
	if !ok || covers(&base, newest) {
		return Adopted{}, errNothingNewer
	}
	offered, err := s.open(newest)
	if err != nil {
		return Adopted{}, err
	}
	if offered.hash == base.Hash {
		return Adopted{}, errNothingNewer
	}
	adopted, err := s.take(ctx, offered)
	if err != nil {
		return Adopted{}, err
	}
	var done Published
	if err := s.tidy(ctx, &done); err != nil {
		return Adopted{}, err
	}
	return adopted, nil
}

// take begins the journal at a checkpoint of a relay.
func (s *Session) take(ctx context.Context, offered offer) (Adopted, error) {
	c, err := checkpoint.Decode(bytes.NewReader(offered.body), offered.hash)
	if err != nil {
		return Adopted{}, fmt.Errorf("checkpoint of %s: %w", offered.Author, err)
	}
	base := s.baseHeader()
	if base.Hash != "" {
		if err := c.MayReplace(&base); err != nil {
			return Adopted{}, err
		}
	}
	if err := s.checkOwn(&c.Header); err != nil {
		return Adopted{}, err
	}
	proved, err := s.prove(&c.Header, &base)
	if err == nil {
		err = offered.provedBy(proved)
	}
	if err != nil {
		return Adopted{}, err
	}
	meta := checkpoint.Meta{Author: offered.Author, WallMS: s.cfg.Now().UnixMilli(), Sealed: offered.sealed}
	if err := s.cfg.Checkpoints.Save(c, meta); err != nil {
		return Adopted{}, err
	}
	if err := s.standOn(ctx, c); err != nil {
		return Adopted{}, err
	}
	s.log.Info("took a checkpoint", "checkpoint", c.Hash, "author", offered.Author, "proved", proved)
	return Adopted{Checkpoint: c.Hash, Author: offered.Author, Proved: proved}, nil
}

// checkOwn refuses a checkpoint that covers own ops which this journal does not have.
func (s *Session) checkOwn(h *checkpoint.Header) error {
	own, ok := s.cfg.Journal.Head()
	if last, closed := h.Closed[s.cfg.Device]; closed {
		return fmt.Errorf("%w: %w: checkpoint %s closes it at seq %d", s.freeze(false, own.Pos(), last.Pos()), journal.ErrRetired, h.Hash, last.Seq)
	}
	there, known := h.Heads[s.cfg.Device]
	if !known {
		return nil
	}
	if !ok || own.Seq < there.Seq {
		return s.freeze(false, own.Pos(), there.Pos())
	}
	id, err := s.ownAt(there.Seq)
	if err != nil {
		return err
	}
	if id != there.ID {
		fork := &oplog.ForkError{Device: s.cfg.Device, Seq: there.Seq, Have: id, Got: there.ID}
		return fmt.Errorf("%w: %w", s.freeze(true, own.Pos(), there.Pos()), fork)
	}
	return nil
}

// prove compares a checkpoint with what the held ops give, and reports whether all of them were held.
func (s *Session) prove(h, base *checkpoint.Header) (bool, error) {
	cut := s.cutName()
	if !s.HeldFrontier().Dominates(h.All()) {
		for _, err := range checkpoint.Uncovered(h, s.keptOps(cut)) {
			if err != nil && !s.excused(err) {
				return false, err // a fork among them
			}
		}
		return false, nil
	}
	var from *checkpoint.Checkpoint
	if base.Hash != "" {
		var err error
		if from, _, err = s.cfg.Checkpoints.Load(base.Hash); err != nil {
			return false, err
		}
	}
	err := checkpoint.Refold(*h, from, s.keptOps(cut), s.content)
	if _, short := errors.AsType[*checkpoint.ShortError](err); short || seal.Temporary(err) || s.excused(err) {
		return false, nil // some of it is not held, or cannot be read here
	}
	return err == nil, err
}

// standOn begins the journal at c, which is saved, and puts it under what is in memory.
func (s *Session) standOn(ctx context.Context, c *checkpoint.Checkpoint) error {
	base := s.baseHeader()
	if s.folded(&c.Header) && !s.loose(&base) {
		return s.begin(ctx, &c.Header, nil, nil)
	}
	facts := factsOf(&c.Header, c.State)
	facts.Intents = slices.Values(slices.Collect(facts.Intents)) // the state goes on changing
	next := newSession(s.cfg)
	if err := next.decided(); err != nil {
		return err
	}
	next.stand(c, s.cutName())
	if err := next.catchUp(ctx); err != nil {
		return err
	}
	return s.begin(ctx, &c.Header, next, &facts)
}

// folded reports whether all that h covers is folded.
func (s *Session) folded(h *checkpoint.Header) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for device, at := range h.All() {
		if !s.state.Covers(device, at.Seq) {
			return false
		}
	}
	return true
}

// Restore fetches the checkpoint that the journal of cfg begins at, or one that covers it, from a relay. It is for a [*CheckpointError]
// of Open, and does nothing if the checkpoint is good.
func Restore(ctx context.Context, cfg Config, r relay.Relay) error {
	if err := check(&cfg); err != nil {
		return fmt.Errorf("restore checkpoint: %w", err)
	}
	s := newSession(cfg)
	err := s.load()
	if !errors.Is(err, ErrCheckpoint) {
		return err
	}
	if err := s.restore(ctx, r); err != nil {
		return fmt.Errorf("restore checkpoint: %w", s.noting(ctx, r, err))
	}
	return nil
}

func (s *Session) restore(ctx context.Context, r relay.Relay) error {
	store, err := s.collector(r)
	if err != nil {
		return err
	}
	cut, _, err := s.cfg.Journal.Cut()
	if err != nil {
		return err
	}
	s.base = checkpoint.Header{Hash: checkpoint.Hash(cut.Checkpoint), Heads: cut.Heads, Closed: cut.Closed}
	newest, ok, err := store.Checkpoint(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return errNothingNewer
	}
	offered, err := s.open(newest)
	if err == nil {
		err = offered.provedBy(false)
	}
	if err != nil {
		return err
	}
	c, err := checkpoint.Decode(bytes.NewReader(offered.body), offered.hash)
	if err != nil {
		return err
	}
	if err := c.MayReplace(&s.base); err != nil {
		return err
	}
	if err := s.checkOwn(&c.Header); err != nil {
		return err
	}
	if err := s.cfg.Checkpoints.Save(c, checkpoint.Meta{Author: newest.Author, WallMS: s.cfg.Now().UnixMilli(), Sealed: offered.sealed}); err != nil {
		return err
	}
	facts := factsOf(&c.Header, c.State)
	return s.begin(ctx, &c.Header, nil, &facts)
}
