package session

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// ErrRelayBehind means that the relay lacks own ops which are only in a checkpoint here, so that they cannot be offered again, and that
// it could not be given the checkpoint, for the reason beside it. Nothing was pushed.
var ErrRelayBehind = errors.New("session: the relay lacks own ops that are not kept any more")

// seed gives the relay the checkpoint that the journal begins at, because it lacks own ops that are only there: it is new, or lost
// them. The id is not frozen, and the relay's head does not lie beyond the own one. If the relay has a later checkpoint than that, it is
// taken first, as by Rebase, which compares it with what is held here.
func (p *pump) seed(ctx context.Context) error {
	err := p.offerSeed(ctx)
	if errors.Is(err, relay.ErrBehind) {
		if adoptErr := p.adoptNewest(ctx); adoptErr != nil {
			return fmt.Errorf("%w: %w, and its checkpoint was not taken: %w", ErrRelayBehind, err, adoptErr)
		}
		err = p.offerSeed(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: seed: %w", ErrRelayBehind, err)
	}
	return nil
}

// adoptNewest takes the relay's checkpoint and says so in the report.
func (p *pump) adoptNewest(ctx context.Context) error {
	adopted, err := p.adopt(ctx, p.relay)
	if err == nil {
		p.report.Adopted = &adopted
	}
	return err
}

func (p *pump) offerSeed(ctx context.Context) error {
	store, err := p.collector(p.relay)
	if err != nil {
		return err
	}
	base := p.baseHeader()
	if base.Hash == "" {
		return ErrNoCheckpoints
	}
	c, meta, err := p.cfg.Checkpoints.Load(base.Hash)
	if err != nil {
		return err
	}
	offered, err := p.offered(c, meta.Sealed)
	if err != nil {
		return err
	}
	if err := store.Seed(ctx, p.cfg.Device, offered, headsOf(&c.Header)); err != nil {
		return err
	}
	p.report.Seeded = c.Hash
	p.log.Warn("the relay lacked what only a checkpoint has, and begins at it now", "relay", p.info.Instance, "checkpoint", c.Hash)
	return nil
}

// headsOf are the last ops of all that a checkpoint covers.
func headsOf(h *checkpoint.Header) oplog.Heads {
	heads := h.Heads.Clone()
	maps.Copy(heads, h.Closed)
	return heads
}
