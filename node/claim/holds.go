package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/hold"
)

// A Hold is the right of one run to an agent whose lease this node keeps.
type Hold interface {
	dispatch.Held
	// Release says that the run is over. It may be repeated.
	Release()
	// HandOver is Release that does not keep the agent for a next run. It waits until the lease is given back, or ctx ends.
	HandOver(ctx context.Context)
}

// Holds keeps the leases of this node.
type Holds interface {
	// Claim takes the agent for one run. A *BusyError names the run of this node that has it, a *coord.HeldError another
	// device.
	Claim(ctx context.Context, agent, run string) (Hold, error)
}

// Over has a Desk use the leases of a table.
func Over(t *hold.Table) Holds { return table{t} }

type table struct{ t *hold.Table }

func (t table) Claim(ctx context.Context, agent, run string) (Hold, error) {
	h, err := t.t.Claim(ctx, agent, run)
	if busy, ok := errors.AsType[*hold.BusyError](err); ok {
		return nil, &BusyError{Agent: busy.Agent, Run: busy.Run}
	}
	if errors.Is(err, hold.ErrLeaving) {
		return nil, fmt.Errorf("%w: %w: %w", ErrDraining, coord.ErrNotSent, err)
	}
	if err != nil {
		return nil, err // not h: a nil *Hold is no nil Hold
	}
	return h, nil
}
