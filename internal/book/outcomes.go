package book

import (
	"context"
	"iter"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

// Outcomes yields every outcome that this device recorded of its own attempts, oldest first: what it can offer to a ledger that went
// back. It reads the whole journal, after what its checkpoint keeps of the beginning. The last thing it yields is its error, if there
// is one.
func (b *Book) Outcomes(ctx context.Context) iter.Seq2[coord.Outcome, error] {
	return func(yield func(coord.Outcome, error) bool) {
		for op, err := range b.ownOps(ctx) {
			if err != nil {
				yield(coord.Outcome{}, err)
				return
			}
			if op.Surface != oplog.Intents {
				continue
			}
			o := outcomeOf(op.Device, index.Outcome{Seq: op.Seq, WallMS: op.HLC.WallMS, Detail: index.ReadDetail(op.Payload)})
			if o.Attempt.State == coord.Open || o.Attempt.ID == "" {
				continue
			}
			if !yield(o, nil) {
				return
			}
		}
	}
}

// ownOps yields what is left of the own chain: the intents in the checkpoint, whose seq is not known, and all that is kept. Some may
// come twice.
func (b *Book) ownOps(ctx context.Context) iter.Seq2[oplog.Op, error] {
	return func(yield func(oplog.Op, error) bool) {
		fail := func(err error) { yield(oplog.Op{}, err) }
		if err := b.journal.Refresh(ctx); err != nil {
			fail(err)
			return
		}
		cut, ok, err := b.journal.Cut()
		if err != nil {
			fail(err)
			return
		}
		if ok && b.cfg.Facts == nil {
			fail(&journal.AnchorError{Checkpoint: cut.Checkpoint})
			return
		}
		if ok {
			facts, err := b.cfg.Facts(cut.Checkpoint)
			if err != nil {
				fail(err)
				return
			}
			for op := range facts.Intents {
				if op.Device == b.cfg.Device && !yield(op, nil) {
					return
				}
			}
		}
		for e, err := range b.journal.Kept(cut.Checkpoint, journal.Own) {
			if !yield(e.Op, err) || err != nil {
				return
			}
		}
	}
}
