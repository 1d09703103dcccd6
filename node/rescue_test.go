package node_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node"
)

// A rescuer answers with what stands in it. It offers once.
type rescuer struct {
	mu    sync.Mutex
	asked int
	say   node.Rescued
	err   error
}

func (r *rescuer) Rescue(context.Context) (node.Rescued, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	say := r.say
	r.say.Offered, r.say.Written = false, 0
	return say, r.err
}

func (r *rescuer) answers(say node.Rescued, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say, r.err = say, err
}

func TestANodeOffersUnderAGateByItselfAndTellsItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newWorld(nil), &rescuer{}
		w.cfg.Rescuer = r
		stop := w.run(t)
		pass := func() {
			bubble.Pass(4 * node.DefaultSettleEvery)
		}
		pass()
		r.answers(node.Rescued{}, errors.New("unreachable"))
		pass()
		r.answers(node.Rescued{Gate: true}, errors.New("unreadable"))
		pass()
		r.answers(node.Rescued{Gate: true, Offered: true, Written: 3}, nil)
		pass()
		r.answers(node.Rescued{}, nil)
		pass()
		stop()
		for text, want := range map[string]int{"the recovery gate is set": 1, "the recovery gate is lifted": 1, "written=3": 1, "could not be offered yet": 1, "the ledger could not be asked": 1} {
			if got := strings.Count(w.log.String(), text); got != want {
				t.Errorf("%q was told %d times, want %d\n%s", text, got, want, w.log.String())
			}
		}
		if r.asked < 12 {
			t.Errorf("asked %d times in 16 periods", r.asked)
		}
	})
}
