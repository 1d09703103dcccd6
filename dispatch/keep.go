package dispatch

import (
	"context"

	"github.com/syncnode/syncnode/coord"
)

// keep renews the lease from the grant on, whatever becomes of the caller: an effect that is told to stop keeps its
// lease until it has ended and was recorded.
func (r *run) keep(ctx context.Context) keeper {
	return coord.Keep(context.WithoutCancel(ctx), r.d.cfg.Coordinator, r.lease, coord.KeepOptions{})
}
