package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// compare tells from where on the relay lacks the own chain, or freezes the id. It fails with ErrRelayBehind if that is below what the
// journal has.
func (p *pump) compare(ctx context.Context) (uint64, error) {
	if err := p.frozenErr(); err != nil {
		return 0, err
	}
	if !p.info.Known {
		_, _, err := p.cfg.Journal.OpAt(0)
		if errors.Is(err, journal.ErrAnchored) {
			return 0, fmt.Errorf("%w: it has none of them: %w", ErrRelayBehind, err)
		}
		return 0, err
	}
	at := p.info.Head.Pos()
	if own, ok := p.cfg.Journal.Head(); !ok || own.Seq < at.Seq {
		// another process of this device may have appended and pushed since the journal was looked at
		if err := p.cfg.Journal.Refresh(ctx); err != nil {
			return 0, err
		}
		if err := p.catchUp(ctx); err != nil {
			return 0, err
		}
	}
	own, ok := p.cfg.Journal.Head()
	if !ok || own.Seq < at.Seq {
		return 0, p.ahead(ctx, own, ok)
	}
	if own.Pos() == at {
		return at.Seq + 1, nil
	}
	held, err := p.ownAt(at.Seq)
	switch {
	case errors.Is(err, journal.ErrAnchored):
		return 0, fmt.Errorf("%w: it ends at own op %d: %w", ErrRelayBehind, at.Seq, err)
	case err != nil:
		return 0, fmt.Errorf("look up the own op %d: %w", at.Seq, err)
	case held != at.ID:
		if err := p.shown(ctx, at); err != nil {
			return 0, err
		}
		return 0, p.freeze(true, own.Pos(), at)
	}
	return at.Seq + 1, nil
}

// ownAt is the id of the own op at a seq, empty if there is none. It may be the last one below the journal's cut.
func (s *Session) ownAt(seq uint64) (oplog.OpID, error) {
	s.mu.Lock()
	base, ok := s.base.Heads[s.cfg.Device]
	s.mu.Unlock()
	if ok && base.Seq == seq {
		return base.ID, nil
	}
	op, _, err := s.cfg.Journal.OpAt(seq)
	return op.ID, err
}

// ahead decides what it means that the relay holds own ops beyond the journal's end: the first of them continues
// the journal, or something else. The relay has to show it.
func (p *pump) ahead(ctx context.Context, own oplog.Head, known bool) error {
	// The chains that are skipped count as held: a relay that collected them would send us to its checkpoint otherwise.
	want := relay.Want{Held: p.HeldFrontier(), MaxBytes: 1}
	delete(want.Held, p.cfg.Device)
	if known {
		want.Held[p.cfg.Device] = own.Pos()
	}
	for device := range p.info.Heads {
		if device != p.cfg.Device {
			want.Skip = append(want.Skip, device)
		}
	}
	pos := oplog.Pos{}
	if known {
		pos = own.Pos()
	}
	page, err := p.relay.Pull(ctx, p.cfg.Device, want)
	if errors.Is(err, relay.ErrFrontierTruncated) { // it had them, that much is sure
		return p.freeze(false, pos, p.info.Head.Pos())
	}
	if err != nil {
		return err
	}
	for _, op := range page.Ops {
		if op.Device != p.cfg.Device || op.Seq != p.nextOwn() {
			continue
		}
		if err := op.Check(); err != nil {
			return fmt.Errorf("%w: %w", errBadOwn, err)
		}
		return p.freeze(op.Prev != pos.ID, pos, p.info.Head.Pos())
	}
	return fmt.Errorf("%w: it says that it holds own ops up to seq %d and gives none", ErrUnproved, p.info.Head.Seq)
}

// ErrUnproved means that the relay says something of the own chain which its own ops do not bear out. Nothing was pushed, and nothing was
// concluded from it.
var ErrUnproved = errors.New("session: the relay contradicts itself")

// shown fails if the relay does not give the own op that it says is its head, though it could: its word alone freezes nobody.
func (p *pump) shown(ctx context.Context, at oplog.Pos) error {
	id, err := p.theirs(ctx, at.Seq)
	switch {
	case errors.Is(err, relay.ErrFrontierTruncated), errors.Is(err, journal.ErrAnchored):
		return p.compared(ctx, at) // collected there or here
	case err != nil:
		return err
	case id != at.ID:
		return fmt.Errorf("%w: it says that own op %d is %.15s and gives %.15s", ErrUnproved, at.Seq, at.ID, id)
	}
	return nil
}

// compared lets the relay compare its head with the own chain, by a push of the own op there or, if that is not kept, of the next one: a
// chain that is another refuses both. Without either there is nothing to push, and nothing is concluded yet.
func (p *pump) compared(ctx context.Context, at oplog.Pos) error {
	op, ok, err := p.cfg.Journal.OpAt(at.Seq)
	if errors.Is(err, journal.ErrAnchored) {
		op, ok, err = p.cfg.Journal.OpAt(at.Seq + 1)
	}
	if err == nil && ok {
		_, err = p.relay.Push(ctx, p.cfg.Device, []oplog.Op{op})
	}
	switch {
	case errors.Is(err, relay.ErrFork), errors.Is(err, relay.ErrBadOp):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: it says that own op %d is %.15s, and does not hold another than is here", ErrUnproved, at.Seq, at.ID)
}

// freeze stops pushing under the id. there is what others know as its last op.
func (s *Session) freeze(fork bool, own, there oplog.Pos) error {
	e := &FrozenError{Device: s.cfg.Device, Fork: fork, Own: own, Relay: there}
	s.mu.Lock()
	s.frozen = e
	s.mu.Unlock()
	return e
}

// loadFrozen takes the note that an earlier session left.
func (s *Session) loadFrozen() error {
	f, ok, err := s.cfg.Journal.Frozen()
	if err == nil && ok {
		s.frozen = frozenOf(s.cfg.Device, f)
	}
	return err
}

func frozenOf(device string, f journal.Frozen) *FrozenError {
	return &FrozenError{Device: device, Fork: f.Fork, Earlier: f.Earlier, Own: f.Own, Relay: f.Relay}
}

func (s *Session) frozenErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		return nil
	}
	return s.frozen
}
