package dispatch_test

import (
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
)

func TestAPermitIsTrustedUntilTwoThirdsOfTheLeaseAndNotBeyond(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h, w, thaw := newHost(t, s, "a"), &work{takes: time.Hour}, func() {}
		w.inside = func(h *host, p dispatch.Permit) {
			lease, _, _ := h.memory().Current(t.Context(), agent)
			thaw = h.c.freeze() // until the run has ended: a thaw at the very instant of the doubt could still save it
			end := lease.Sent.Add(coord.DefaultTTL * 2 / 3)
			bubble.Pass(time.Until(end) - time.Nanosecond)
			if err := p.Trusted(); err != nil {
				t.Errorf("before two thirds: %v", err)
			}
			time.Sleep(time.Nanosecond)
			if p.Trusted() == nil {
				t.Error("it is trusted at two thirds of a lease that is not renewed")
			}
		}
		r := h.run(w)
		thaw()
		wantCode(t, r, 111, dispatch.Yes, coord.RunFailed)
	})
}
