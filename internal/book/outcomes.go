package book

import (
	"context"
	"iter"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

// Outcomes yields every outcome that this device ever recorded of its own attempts, oldest first: what it can offer to
// a ledger that went back. It reads the whole journal. The last thing it yields is its error, if there is one.
func (b *Book) Outcomes(ctx context.Context) iter.Seq2[coord.Outcome, error] {
	return func(yield func(coord.Outcome, error) bool) {
		if err := b.journal.Refresh(ctx); err != nil {
			yield(coord.Outcome{}, err)
			return
		}
		for op, err := range b.journal.Own(0) {
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
