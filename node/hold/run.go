package hold

import (
	"context"
	"fmt"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
)

// A Hold is the right of one run to its agent, until it is released.
type Hold struct {
	t   *Table
	e   *entry
	ctx context.Context

	keeper *coord.Keeper // guarded by Table.mu: the last one under this grant
	grant  coord.Lease   // as it was claimed
	over   bool          // guarded by Table.mu
}

var _ dispatch.Held = (*Hold)(nil)

// Context ends when the run's effect may have to stop: the lease was taken, or was not renewed in time. It does not begin
// again when the lease is held again.
func (h *Hold) Context() context.Context { return h.ctx }

// Trusted is nil while the lease can be trusted: also after an outage, once it was renewed.
func (h *Hold) Trusted() error {
	k, held := h.current()
	if !held {
		return fmt.Errorf("agent %s at epoch %d: %w", h.grant.Agent, h.grant.Epoch, coord.ErrLost)
	}
	return k.Trusted()
}

// Lease is the lease as last renewed.
func (h *Hold) Lease() coord.Lease {
	k, _ := h.current()
	return k.Lease()
}

// current is the keeper of the grant, or the last that there was.
func (h *Hold) current() (k *coord.Keeper, held bool) {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	if k := h.e.keeper; k != nil && !h.over {
		if l := k.Lease(); l.Epoch == h.grant.Epoch && l.Handle == h.grant.Handle {
			h.keeper = k
			return k, true
		}
	}
	return h.keeper, false
}

// Release says that the run is over. It may be repeated.
func (h *Hold) Release() { h.end(false) }

// HandOver is Release for a run after which nobody here is expected to want the agent: an agent that is not owned is given
// back without a pause. It returns when that is done, when somebody here wants the agent again, or when ctx ends; the lease
// is given back all the same.
func (h *Hold) HandOver(ctx context.Context) {
	h.t.mu.Lock()
	h.e.hand = h.e.hand || !h.over
	h.t.mu.Unlock()
	h.end(false)
	h.t.await(ctx, func() bool {
		e := h.e
		return h.t.entries[e.agent] != e || e.keeper == nil || e.run != "" || e.owned || e.left
	})
}

// Abandon says that the run is over and that a part of its effect is still there: the agent is neither given to another
// run nor given back by this process.
func (h *Hold) Abandon() { h.end(true) }

func (h *Hold) end(left bool) {
	h.t.mu.Lock()
	over := h.over
	h.over = true
	h.t.mu.Unlock()
	if !over {
		h.t.ended(h.e, left)
	}
}
