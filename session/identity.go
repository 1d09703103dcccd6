package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// compare tells from where on the relay lacks the own chain, or freezes the id.
func (p *pump) compare(ctx context.Context) (uint64, error) {
	if err := p.frozenErr(); err != nil {
		return 0, err
	}
	if !p.info.Known {
		return 0, nil
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
	held, ok, err := p.cfg.Journal.OpAt(at.Seq)
	switch {
	case err != nil:
		return 0, fmt.Errorf("look up the own op %d: %w", at.Seq, err)
	case !ok || held.ID != at.ID:
		return 0, p.freeze(true, own.Pos())
	}
	return at.Seq + 1, nil
}

// ahead decides what it means that the relay holds own ops beyond the journal's end: the first of them continues
// the journal, or something else. The relay has to show it.
func (p *pump) ahead(ctx context.Context, own oplog.Head, known bool) error {
	want := relay.Want{Held: oplog.Frontier{}, MaxBytes: 1}
	if known {
		want.Held[p.cfg.Device] = own.Pos()
	}
	for device := range p.info.Heads {
		if device != p.cfg.Device {
			want.Skip = append(want.Skip, device)
		}
	}
	page, err := p.relay.Pull(ctx, p.cfg.Device, want)
	if err != nil {
		return err
	}
	for _, op := range page.Ops {
		if op.Device != p.cfg.Device || op.Seq != p.nextOwn() {
			continue
		}
		if err := op.Check(); err != nil {
			return fmt.Errorf("the relay holds a bad op under this id: %w", err)
		}
		pos := oplog.Pos{}
		if known {
			pos = own.Pos()
		}
		return p.freeze(op.Prev != pos.ID, pos)
	}
	return fmt.Errorf("%w: it says that it holds own ops up to seq %d and gives none", errUnproved, p.info.Head.Seq)
}

var errUnproved = errors.New("the relay contradicts itself")

func (p *pump) freeze(fork bool, own oplog.Pos) error {
	e := &FrozenError{Device: p.cfg.Device, Fork: fork, Own: own, Relay: p.info.Head.Pos()}
	p.mu.Lock()
	p.frozen = e
	p.mu.Unlock()
	p.log.Error("the device's id is frozen", "fork", fork, "own", own.Seq, "relay", e.Relay.Seq)
	return e
}

func (s *Session) frozenErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		return nil
	}
	return s.frozen
}
