package session

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A refusal is where a chain stopped, and why.
type refusal struct {
	device string
	seq    uint64
	reason error
}

// admit verifies the ops of a page, journals and syncs those that are good, and folds them. It says how many were
// new. When it fails, nothing of the page is in the journal nor in memory, or all that was good is in both.
func (p *pump) admit(ctx context.Context, page relay.Page) (int, error) {
	ops := p.sorted(page.Ops)
	var good []oplog.Op
	var refused []refusal
	if len(ops) > 0 {
		err := p.cfg.Journal.Update(ctx, func(tx *journal.Tx) error {
			if err := p.catchUp(ctx); err != nil { // another process may have journaled some of them
				return err
			}
			good, refused = p.verify(ops)
			if len(good) == 0 {
				return nil
			}
			return tx.AppendPeers(good...)
		})
		if err != nil {
			return 0, err
		}
		if err := p.catchUp(context.WithoutCancel(ctx)); err != nil {
			return 0, err
		}
	}
	p.settle(good, refused, page.Broken)
	p.report.Pulled += len(good)
	return len(good), nil
}

// sorted gives the ops of others by device and seq, so that a relay which mixes them up does no harm.
func (p *pump) sorted(ops []oplog.Op) []oplog.Op {
	out := make([]oplog.Op, 0, len(ops))
	for _, op := range ops {
		if op.Device != p.cfg.Device {
			out = append(out, op)
		}
	}
	slices.SortStableFunc(out, func(a, b oplog.Op) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Seq, b.Seq))
	})
	return out
}

// verify tries the ops on copies of the chains. Of each device it takes those up to the first that is refused.
func (p *pump) verify(ops []oplog.Op) (good []oplog.Op, refused []refusal) {
	now := p.cfg.Now().UnixMilli()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(ops) > 0 {
		device, n := ops[0].Device, 1
		for n < len(ops) && ops[n].Device == device {
			n++
		}
		chain := p.chainLocked(device).Clone()
		for i, op := range ops[:n] {
			verdict, err := p.admitLocked(chain, op, now)
			if _, below := errors.AsType[*oplog.BelowError](err); below || verdict.Duplicate {
				continue // held already; what the relay says of it now changes nothing
			}
			if err != nil {
				refused = append(refused, refusal{device, op.Seq, err})
				p.report.Refused += n - i
				break
			}
			good = append(good, op)
		}
		ops = ops[n:]
	}
	return good, refused
}

// settle notes which chains stopped and which went on.
func (p *pump) settle(good []oplog.Op, refused []refusal, broken map[string]error) {
	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range good {
		delete(p.quarantined, source{p.info.Instance, op.Device})
	}
	for _, r := range refused {
		p.quarantineLocked(source{p.info.Instance, r.device}, r.seq, r.reason, now)
	}
	for device, err := range broken {
		p.quarantineLocked(source{p.info.Instance, device}, p.held.Next(device), err, now)
	}
}
