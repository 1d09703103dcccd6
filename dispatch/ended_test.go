package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
)

func TestEachResultIsToldOnceWithHowLongTheEffectRan(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		type end struct {
			agent string
			code  int
			ran   time.Duration
		}
		var told []end
		h := newHost(t, s, "a", func(c *dispatch.Config) {
			c.Ended = func(j dispatch.Job, r dispatch.Result, ran time.Duration) {
				told = append(told, end{j.Agent, r.Code, ran})
			}
		})
		long := dispatch.StartFunc(func(context.Context, dispatch.Permit) (dispatch.Effect, error) {
			e := &lasting{done: make(chan struct{})}
			time.AfterFunc(7*time.Second, func() { close(e.done) })
			return e, nil
		})
		h.d.Run(t.Context(), h.job(nil, func(j *dispatch.Job) { j.Effect = long }))
		h.d.Run(t.Context(), h.job(nil)) // committed already
		bubble.Pass(time.Second)
		if len(told) != 2 || told[0] != (end{agent, dispatch.ExitOK, 7 * time.Second}) || told[1] != (end{agent, dispatch.ExitOK, 0}) {
			t.Errorf("told %+v, want one run of 7s and one that was not needed", told)
		}
	})
}

// lasting ends well when done is closed.
type lasting struct{ done chan struct{} }

func (e *lasting) Done() <-chan struct{} { return e.done }
func (e *lasting) Ended() dispatch.Ended { return dispatch.Ended{} }
func (e *lasting) Stop(error)            {}
func (e *lasting) Kill(error)            {}

func TestSettlingTellsWhatTheLedgerLacksAlsoWhileItIsSilent(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a")
		h.c.fail(failing(coord.ErrNotSent, "complete", "finish"), nil)
		if r := h.run(&work{}); !r.Unsettled {
			t.Fatalf("the outcome was recorded: %+v", r)
		}
		done, err := h.d.Settle(t.Context())
		if err == nil || done.Owed != 1 || done.Finished != 0 {
			t.Errorf("cut off: %+v, %v; want 1 owed", done, err)
		}
		h.c.fail(nil, nil)
		done, err = h.d.Settle(t.Context())
		if err != nil || done.Owed != 0 || done.Finished != 1 {
			t.Errorf("again: %+v, %v; want none owed", done, err)
		}
	})
}
