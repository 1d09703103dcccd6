package work

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/node/owner"
	"github.com/syncnode/syncnode/schedule/due"
)

const (
	// reown is the pause between two looks at whether an agent is held still. It asks nobody.
	reown = 5 * time.Second
	// dispute is how long somebody who is no living node has to hold an agent before its owner decides over it. A node that
	// takes its own lease anew is none for a moment.
	dispute = 2 * time.Second
	// moves is the pause between two agents that move.
	moves = time.Second
)

// A tending is the goroutine that owns an agent.
type tending struct {
	stop context.CancelFunc
	done chan struct{}
	poke chan struct{} // one place: try at once
}

func (s *slot) untend() {
	if s.tending != nil {
		s.tending.stop()
	}
}

// watchNodes tells the loop which nodes are living, whenever that changes.
func (w *Worker) watchNodes() {
	var same, all []string
	note := ""
	for ; w.calls.Err() == nil && !w.leaving.Load(); sleep(w.calls, look) {
		if !w.shares.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(w.calls, patience)
		leases, err := w.cfg.Nodes(ctx)
		cancel()
		if err == nil {
			w.post(func() {
				s, a := owner.Living(leases, w.note)
				if w.same == nil || note != w.note || !slices.Equal(s, same) || !slices.Equal(a, all) {
					same, all, note = s, a, w.note
					w.arrange(s, a)
				}
			})
		}
	}
}

// arrange notes who is living, and whose each agent is.
func (w *Worker) arrange(same, all []string) {
	if !slices.Contains(same, w.cfg.Device) {
		same = append(slices.Clone(same), w.cfg.Device)
	}
	if !slices.Equal(same, w.same) {
		w.log.Info("nodes that share the scheduled agents", "nodes", same)
	}
	w.same, w.living = same, map[string]bool{}
	for _, d := range all {
		w.living[d] = d != w.cfg.Device
	}
	for _, s := range w.slots {
		w.settle(s)
		s.next = 0
	}
}

// settle has an agent tended that is this node's, and none other.
func (w *Worker) settle(s *slot) {
	s.mine = s.agent.Schedule != nil && w.same != nil && owner.Of(s.agent.ID, w.same) == w.cfg.Device
	switch {
	case w.leaving.Load() || s.moving:
	case s.mine && s.tending == nil:
		w.tend(s)
	case s.mine:
		select {
		case s.tending.poke <- struct{}{}: // who held it may be gone
		default:
		}
	default:
		w.letGo(s)
	}
}

// letGo ends that an agent is tended which is another node's, and which this one does not hold.
func (w *Worker) letGo(s *slot) {
	if !s.mine && !s.held && s.idle() {
		s.contested = 0
		w.forget(s)
		w.handOver(s)
	}
}

// tend owns the agent from now on, whenever that is possible.
func (w *Worker) tend(s *slot) {
	ctx, stop := context.WithCancel(w.calls)
	t := &tending{stop: stop, done: make(chan struct{}), poke: make(chan struct{}, 1)}
	s.tending = t
	agent := s.agent.ID
	w.spawn(func() {
		defer close(t.done)
		defer stop()
		for pause, news := again, true; ctx.Err() == nil; {
			one, cancel := context.WithTimeout(ctx, patience)
			err := w.cfg.Hold.Own(one, agent)
			cancel()
			if ctx.Err() != nil {
				return
			}
			if news || err != nil {
				w.post(func() { w.owned(s, t, err) })
			}
			switch {
			case err == nil:
				news = t.sleep(ctx, reown)
				pause = again
			case errors.Is(err, coord.ErrHeld):
				w.awaitFree(ctx, t, agent)
				news, pause = true, again
			default:
				t.sleep(ctx, pause)
				news, pause = true, min(2*pause, reown)
			}
		}
	})
}

// sleep says whether it was poked.
func (t *tending) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-t.poke:
		return true
	case <-timer.C:
	}
	return false
}

// awaitFree returns when the agent may be free, or it should be asked anyway.
func (w *Worker) awaitFree(ctx context.Context, t *tending, agent string) {
	if w.cfg.Free == nil {
		t.sleep(ctx, again)
		return
	}
	wait, cancel := context.WithTimeout(ctx, due.MaxWait)
	defer cancel()
	free := make(chan error, 1)
	go func() { free <- w.cfg.Free(wait, agent) }()
	select {
	case err := <-free:
		if err != nil {
			t.sleep(ctx, again)
		}
	case <-t.poke:
		cancel()
		<-free
	}
}

// owned hears how an attempt to own the agent ended.
func (w *Worker) owned(s *slot, t *tending, err error) {
	if s.tending != t || w.leaving.Load() {
		return
	}
	held, other := errors.AsType[*coord.HeldError](err)
	switch {
	case err == nil:
		if !s.held {
			s.held, s.next = true, 0
		}
		s.holder, s.contested = "", 0
	case other:
		s.held, s.holder, s.next = false, held.Holder.Device, 0
		if w.living[s.holder] {
			s.contested = 0
			if s.run == "" {
				w.forget(s)
			}
		} else if s.contested == 0 {
			s.contested = max(w.last.Boot, 1)
			s.soon(s.contested + dispute)
		}
		w.letGo(s)
	}
}

// decides says whether this node decides over what is due now.
func (w *Worker) decides(s *slot, now due.Reading) bool {
	if s.held && !s.moving {
		return true
	}
	if !s.mine || s.contested == 0 {
		return false
	}
	if now.Boot < s.contested+dispute {
		s.soon(s.contested + dispute)
		return false
	}
	return !w.living[s.holder]
}

// move hands over one idle agent that is another node's, and says when the next may move.
func (w *Worker) move(now due.Reading) time.Duration {
	if now.Boot < w.moveAt {
		return w.moveAt - now.Boot
	}
	if w.same == nil {
		return due.MaxWait
	}
	for _, s := range w.slots {
		if s.mine || s.gone || !s.held || !s.idle() {
			continue
		}
		w.moveAt = now.Boot + moves
		w.log.Info("agent handed over", "agent", s.agent.ID, "to", owner.Of(s.agent.ID, w.same))
		w.forget(s)
		w.handOver(s)
		return moves
	}
	return due.MaxWait
}

// handOver gives the agent away, after what was missed is on disk.
func (w *Worker) handOver(s *slot) {
	if s.tending == nil && !s.held {
		return
	}
	s.moving = true
	t, agent, notes := s.tending, s.agent.ID, s.notes
	s.notes = nil
	w.open++
	w.spawn(func() {
		if t != nil {
			t.stop()
			<-t.done // or it would own the agent again
		}
		failed := w.record(agent, notes)
		ctx, cancel := context.WithTimeout(w.calls, patience)
		defer cancel()
		if err := w.cfg.Hold.Disown(ctx, agent); err != nil {
			w.log.Debug("agent is handed over later", "agent", agent, "err", err)
		}
		w.post(func() {
			w.open--
			if failed != nil {
				s.notes = append(notes, s.notes...)
			}
			s.moving, s.tending, s.held, s.next = false, nil, false, 0
			w.settle(s)
		})
	})
}
