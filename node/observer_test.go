package node_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/node/metrics"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

var _ node.Observer = (*metrics.Metrics)(nil)

// hearing keeps what it is told.
type hearing struct {
	mu   sync.Mutex
	said []string
}

func (h *hearing) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, fmt.Sprintf(format, args...))
}
func (h *hearing) Pumped(relay string, _ session.Report, err error) {
	h.note("pumped %s %v", relay, err)
}
func (h *hearing) Settled(s dispatch.Settling, doubts int, err error) {
	h.note("settled %d, %d in doubt, %v", s.Finished, doubts, err)
}
func (h *hearing) Gate(set bool)   { h.note("gate %v", set) }
func (h *hearing) Lease(held bool) { h.note("lease %v", held) }

func (h *hearing) count(what string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.said {
		if s == what {
			n++
		}
	}
	return n
}

func TestAnObserverHearsEachRoundOfEachLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, broken := &plain{}, &hinting{}
		w := newWorld(map[string]relay.Relay{"good": good, "bad": broken})
		w.sess.fail[broken] = errors.New("broken")
		w.set.answer = dispatch.Settling{Finished: 1, Open: 1}
		d := &doubtful{}
		d.show(openOf("d1", "r1"))
		w.cfg.Runs = d
		r := &rescuer{}
		r.answers(node.Rescued{Gate: true}, nil)
		w.cfg.Rescuer = r
		h := &hearing{}
		w.cfg.Observer = h
		stop := w.run(t)
		bubble.Pass(3 * node.DefaultSettleEvery)
		for _, what := range []string{"pumped good <nil>", "pumped bad broken", "settled 1, 1 in doubt, <nil>", "gate true"} {
			if h.count(what) < 2 {
				t.Errorf("%q was heard %d times, want each round: %q", what, h.count(what), h.said)
			}
		}
		stop()
		var lease []string
		for _, s := range h.said {
			if s == "lease true" || s == "lease false" {
				lease = append(lease, s)
			}
		}
		if !slices.Equal(lease, []string{"lease true", "lease false"}) {
			t.Errorf("of the lease it heard %q", lease)
		}
	})
}

func TestAnObserverHearsOfALeaseThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		h := &hearing{}
		w.cfg.Observer = h
		stop := w.run(t)
		bubble.Pass(time.Second)
		if h.count("lease true") != 1 {
			t.Fatalf("heard %q", h.said)
		}
		if _, err := w.store.Process(coord.Process{}).Steal(t.Context(), coord.Theft{
			Request: coord.Request{Agent: node.Agent("d1"), Device: "d2", TTL: time.Minute}, By: "test", Reason: "test", Force: true, Epoch: 1,
		}); err != nil {
			t.Fatal(err)
		}
		bubble.Pass(coord.DefaultTTL)
		if h.count("lease false") != 1 || h.count("lease true") != 1 {
			t.Errorf("after it was stolen: %q", h.said)
		}
		stop()
	})
}
