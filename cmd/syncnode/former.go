package main

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A settling settles a device, and before that takes over what commands that began under an earlier id have recorded since.
type settling struct {
	*dispatch.Dispatcher
	device *device
}

// Settle implements node.Settler.
func (s settling) Settle(ctx context.Context) (dispatch.Settling, error) {
	if _, err := s.device.reissue(ctx, false); err != nil {
		return dispatch.Settling{}, err
	}
	return s.Dispatcher.Settle(ctx)
}

// offerFormer pushes what the relays lack of the ids that this directory had when it lay elsewhere: if it was moved, nobody else will.
// If it was copied the original pushes the same ops, which a relay takes once. It is tried at each start, and stops no node.
func (s *serving) offerFormer(ctx context.Context) {
	d := s.be.local
	if d.given || len(d.former) == 0 || len(s.relays) == 0 {
		return
	}
	frozen, err := d.frozenBefore()
	for _, former := range d.former {
		if err != nil {
			break
		}
		if slices.Contains(frozen, former) {
			continue // written again
		}
		if _, err := os.Stat(book.JournalDir(d.dir, former)); err != nil {
			continue // it never wrote for this ledger
		}
		for name, r := range s.relays {
			n, err := d.offer(ctx, former, r)
			switch {
			case err != nil && !errors.Is(err, relay.ErrClosed):
				s.log.Warn("what an earlier id had not pushed could not be offered; the next start tries again", "of", former, "relay", name, "err", err)
			case n > 0:
				s.log.Info("pushed what an earlier id had not", "of", former, "relay", name, "ops", n)
			}
		}
	}
	if err != nil {
		s.log.Warn("earlier ids of this directory could not be looked at", "err", err)
	}
}

// offer pushes the rest of the chain of an earlier id, and says how many ops.
func (d *device) offer(ctx context.Context, former string, r relay.Relay) (int, error) {
	old, err := journal.Open(ctx, journal.Config{Dir: book.JournalDir(d.dir, former), Device: former, Log: logger(d.log), SegmentBytes: d.segment})
	if err != nil {
		return 0, err
	}
	defer old.Close()
	if err := old.Refresh(ctx); err != nil { // what is pushed is on stable storage
		return 0, err
	}
	info, err := r.Hello(ctx, d.name)
	if err != nil {
		return 0, err
	}
	head, ok := old.Head()
	if !ok || info.Heads.Covers(former, head.Seq) {
		return 0, nil
	}
	var ops []oplog.Op
	pushed, size := 0, 0
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		done, err := r.Push(ctx, former, ops)
		pushed += done.Accepted
		ops, size = nil, 0
		return err
	}
	for op, err := range old.Own(info.Heads.Next(former)) {
		if err != nil {
			return pushed, err
		}
		n := relay.LineLen(op)
		if len(ops) == relay.MaxOps || size+n > relay.MaxBytes {
			if err := flush(); err != nil {
				return pushed, err
			}
		}
		ops, size = append(ops, op), size+n
	}
	return pushed, flush()
}
