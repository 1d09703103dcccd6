package session

import (
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

// ErrNoCheckpoints means that the session has no place for checkpoints, or the relay keeps none. Nothing was done.
var ErrNoCheckpoints = errors.New("session: no place for checkpoints")

// A Published says what Publish did.
type Published struct {
	Checkpoint checkpoint.Hash // that the journal begins at now; empty if there is none yet
	New        bool            // this call made it
	Adopted    *Adopted        // the relay's newest one, which was taken first; nil if it was known
	Dropped    journal.Compaction
}

// Publish makes a checkpoint of what every replica of the relay has folded, as far as this device has. It closes for ever the
// chains of other devices that the caller names as retired, as soon as they are stable to their end; what one that is closed has folded
// does not count any more. In this order, each step of which may be repeated after a crash:
//
//  1. take the relay's newest checkpoint, as Rebase does, if it is another;
//  2. extend the own one to the stable frontier and save it; and to what the relay's covers, if neither covers the other, as may be when
//     two were put in two copies of a folder;
//  3. give it to the relay;
//  4. begin the journal at it;
//  5. drop the segments and the checkpoints that lie below.
//
// If nothing is stable beyond the present one, none is made. Memory is twice that of the state meanwhile.
func (s *Session) Publish(ctx context.Context, r relay.Relay, retired ...string) (Published, error) {
	var out Published
	store, err := s.collector(r)
	if err != nil {
		return out, fmt.Errorf("publish checkpoint: %w", err)
	}
	release, err := s.pump(ctx)
	if err != nil {
		return out, fmt.Errorf("publish checkpoint: %w", err)
	}
	defer release()
	if err = s.noting(ctx, r, s.publish(ctx, r, store, retired, &out)); err != nil {
		return out, fmt.Errorf("publish checkpoint: %w", err)
	}
	return out, nil
}

// collector is the relay, if it and this session keep checkpoints.
func (s *Session) collector(r relay.Relay) (relay.Collector, error) {
	store, ok := r.(relay.Collector)
	if !ok || s.cfg.Checkpoints == nil {
		return nil, ErrNoCheckpoints
	}
	return store, nil
}

// pump waits until no pump runs, and keeps others from it.
func (s *Session) pump(ctx context.Context) (release func(), err error) {
	select {
	case s.pumping <- struct{}{}:
		return func() { <-s.pumping }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *Session) publish(ctx context.Context, r relay.Relay, store relay.Collector, retired []string, out *Published) error {
	if err := s.Refresh(ctx); err != nil {
		return err
	}
	if err := s.frozenErr(); err != nil {
		return err
	}
	newest, known, err := s.takeNewest(ctx, store, out)
	parted, apart := errors.AsType[*partedError](err)
	if err != nil && !apart {
		return err
	}
	info, err := r.Hello(ctx, s.cfg.Device)
	if err != nil {
		return err
	}
	roster, err := r.Roster(ctx)
	if err != nil {
		return err
	}
	base := s.baseHeader()
	out.Checkpoint = base.Hash
	roster = slices.DeleteFunc(roster, func(m relay.Member) bool {
		_, closed := base.Closed[m.Device]
		return closed // counts no more
	})
	to, more := s.cutWithout(&base, roster, info.Heads, retired)
	if apart {
		if !s.join(&to, &base, parted.newest) {
			return fmt.Errorf("what it covers is not all folded here yet: %w", parted)
		}
		more = true
	}
	switch {
	case more && s.loose(&base):
		err = ErrAccepted
	case more:
		err = s.extend(ctx, store, base, to, out)
	case base.Hash != "" && (!known || newest != base.Hash):
		err = s.offerAgain(ctx, store, base.Hash)
	}
	return errors.Join(err, s.tidy(ctx, out))
}

// cutWithout is where to extend to, and whether that is beyond the base. It closes those of the retired that can be; the others count
// as before.
func (s *Session) cutWithout(base *checkpoint.Header, roster []relay.Member, heads oplog.Frontier, retired []string) (checkpoint.Cut, bool) {
	for {
		rest := slices.DeleteFunc(slices.Clone(roster), func(m relay.Member) bool { return slices.Contains(retired, m.Device) })
		// Own ops are acked when they are folded, also those that a full relay does not take.
		to, more := s.stableCut(base, lower(relay.Stable(rest), heads))
		to.Closed = closable(base, to.Frontier, heads, s.HeldFrontier(), retired)
		if len(to.Closed) == len(retired) {
			return to, more || len(to.Closed) > 0
		}
		retired = to.Closed
	}
}

// closable are the retired devices whose chains are stable to their end, which is that of the relay and of what is held here: another relay
// may have more.
func closable(base *checkpoint.Header, stable, heads, held oplog.Frontier, retired []string) (out []string) {
	for _, device := range retired {
		_, closed := base.Closed[device]
		if at, ok := stable[device]; ok && !closed && heads[device] == at && held[device] == at {
			out = append(out, device)
		}
	}
	return out
}

// takeNewest adopts the relay's newest checkpoint, unless the own one covers it. It says what is inside, or that it is of no use.
func (s *Session) takeNewest(ctx context.Context, store relay.Collector, out *Published) (checkpoint.Hash, bool, error) {
	newest, ok, err := store.Checkpoint(ctx)
	if errors.Is(err, relay.ErrCorrupt) {
		s.log.Error("the relay's checkpoint is damaged, and is replaced", "cause", err)
		return "", false, nil
	}
	if err != nil || !ok {
		return "", false, err
	}
	base := s.baseHeader()
	offered, err := s.open(newest)
	covered := covers(&base, newest)
	switch {
	case err != nil && covered && !seal.Temporary(err):
		s.log.Error("the relay's checkpoint cannot be read by anybody, and is replaced", "author", newest.Author, "cause", err)
		return "", false, nil
	case err != nil && covered && newest.All().Equal(base.All()):
		return base.Hash, true, nil // the own one, as far as can be seen without the key
	case err != nil:
		return "", false, err
	case offered.bare && covered:
		s.log.Warn("the relay's checkpoint is not sealed, and is replaced", "author", newest.Author)
		return "", false, nil
	case offered.hash == base.Hash || covered:
		return offered.hash, true, nil
	}
	adopted, err := s.take(ctx, offered)
	if _, behind := errors.AsType[*checkpoint.BehindError](err); behind {
		return "", true, &partedError{newest, err}
	}
	if err != nil {
		return "", false, err
	}
	out.Adopted = &adopted
	return offered.hash, true, nil
}

// A partedError means that neither the relay's checkpoint nor the own one covers the other.
type partedError struct {
	newest relay.Checkpoint
	error
}

func (e *partedError) Unwrap() error { return e.error }

// covers reports whether h covers what the relay's checkpoint says of itself.
func covers(h *checkpoint.Header, c relay.Checkpoint) bool {
	for device := range c.Closed {
		if _, ok := h.Closed[device]; !ok {
			return false
		}
	}
	return h.Hash != "" && h.All().Dominates(c.All())
}

func (s *Session) baseHeader() checkpoint.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

// stableCut is where to extend to, and whether that is beyond the base.
func (s *Session) stableCut(base *checkpoint.Header, stable oplog.Frontier) (checkpoint.Cut, bool) {
	to, more := checkpoint.Cut{Frontier: lower(stable, s.FoldedFrontier())}, false
	for device, at := range to.Frontier {
		more = more || !base.Covers(device, at.Seq)
	}
	return to, more
}

// join raises a cut so that it covers what another checkpoint does. False: not all of that is folded here, or it was never ahead.
func (s *Session) join(to *checkpoint.Cut, base *checkpoint.Header, other relay.Checkpoint) bool {
	folded := s.FoldedFrontier()
	for device, p := range other.All() {
		if base.Covers(device, p.Seq) {
			continue
		}
		if !folded.Covers(device, p.Seq) {
			return false
		}
		if at, ok := to.Frontier[device]; !ok || at.Seq < p.Seq {
			to.Frontier[device] = p
		}
	}
	for device := range other.Closed {
		if _, closed := base.Closed[device]; !closed && !slices.Contains(to.Closed, device) {
			to.Closed = append(to.Closed, device)
		}
	}
	return true
}

func (s *Session) extend(ctx context.Context, store relay.Collector, base checkpoint.Header, to checkpoint.Cut, out *Published) error {
	var from *checkpoint.Checkpoint
	meta := checkpoint.Meta{}
	if base.Hash != "" {
		var err error
		if from, meta, err = s.cfg.Checkpoints.Load(base.Hash); err != nil {
			return err
		}
	}
	meta = checkpoint.Meta{Parent: base.Hash, Author: s.cfg.Device, WallMS: s.cfg.Now().UnixMilli(), Sealed: meta.Sealed}
	to.Content = s.contents(&meta.Sealed)
	c, err := checkpoint.Extend(from, to, s.keptOps(s.cutName()))
	if err != nil {
		return err
	}
	if err := s.cfg.Checkpoints.Save(c, meta); err != nil {
		return err
	}
	if err := s.put(ctx, store, c, meta.Sealed); err != nil {
		return err
	}
	if err := s.begin(ctx, &c.Header, nil, nil); err != nil {
		return err
	}
	out.Checkpoint, out.New = c.Hash, true
	return nil
}

func (s *Session) cutName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

func (s *Session) put(ctx context.Context, store relay.Collector, c *checkpoint.Checkpoint, sealed bool) error {
	offered, err := s.offered(c, sealed)
	if err != nil {
		return err
	}
	err = store.PutCheckpoint(ctx, s.cfg.Device, offered)
	if !errors.Is(err, relay.ErrContradiction) {
		return err
	}
	// The relay may lack what is only in the checkpoint, as one that is new does. If it holds something else, the seed is refused as well.
	if seedErr := store.Seed(ctx, s.cfg.Device, offered, headsOf(&c.Header)); seedErr != nil {
		return errors.Join(err, seedErr)
	}
	s.log.Warn("the relay lacked what only a checkpoint has, and begins at it now", "checkpoint", c.Hash, "cause", err)
	return nil
}

// offerAgain gives the relay the own checkpoint that it lacks.
func (s *Session) offerAgain(ctx context.Context, store relay.Collector, hash checkpoint.Hash) error {
	c, meta, err := s.cfg.Checkpoints.Load(hash)
	if err != nil {
		return err
	}
	return s.put(ctx, store, c, meta.Sealed)
}

// begin makes the journal begin at a checkpoint that is saved. next, if not nil, is the memory that goes with it; otherwise what is in
// memory covers it. facts, if not nil, say things that have not been in the journal.
func (s *Session) begin(ctx context.Context, h *checkpoint.Header, next *Session, facts *Facts) error {
	if facts == nil {
		f := factsOf(h, nil)
		facts = &f
	}
	return s.cfg.Journal.Update(ctx, func(tx *journal.Tx) error {
		if next != nil {
			if err := next.catchUp(ctx); err != nil {
				return err
			}
		}
		if s.cfg.BeforeCut != nil {
			if err := s.cfg.BeforeCut(tx, *facts); err != nil {
				return fmt.Errorf("the journal was not cut: %w", err)
			}
		}
		// From here on nobody may be half way through the old beginning.
		return s.whileReading(ctx, func() error {
			if err := tx.Cut(journal.Cut{Checkpoint: string(h.Hash), Heads: h.Heads, Closed: h.Closed}); err != nil {
				return err
			}
			if next != nil {
				s.swap(next)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.base, s.cut = *h, string(h.Hash)
			for device := range h.Closed {
				s.state.Close(device)
			}
			return nil
		})
	})
}

// tidy drops what lies below the cut.
func (s *Session) tidy(ctx context.Context, out *Published) error {
	base := s.baseHeader()
	if base.Hash == "" {
		return nil
	}
	var err error
	if out.Dropped, err = s.cfg.Journal.Compact(ctx); err != nil {
		return err
	}
	return s.cfg.Checkpoints.Prune(base.Hash)
}
