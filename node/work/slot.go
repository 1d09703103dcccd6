package work

import (
	"context"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/owner"
	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

const idleNote = owner.Idle

// A slot is one agent of the file. It belongs to the loop.
type slot struct {
	agent config.Agent
	gone  bool // the file has it no more

	// Whose it is.
	mine      bool // it is this node's among the living
	held      bool // its lease is held, as far as is known
	holder    string
	contested time.Duration // since when one who is no living node holds it, on the boot-time clock; 0: nobody
	tending   *tending
	moving    bool

	// What is due.
	due     *due.Agent // nil: this node does not decide over it
	newest  time.Time  // the newest occurrence that is known as begun or missed
	loading bool
	next    time.Duration // when to visit it again, on the boot-time clock
	paused  bool
	busy    bool   // a start, or a question that decides, is on its way: nothing is decided meanwhile
	run     string // the run that has it; empty: none
	wait    time.Duration
	fails   int

	notes  []due.Missed // ended gaps that are not on disk yet
	noting bool
	noteAt time.Duration

	unsure []unsure // runs whose end is not known, or may be taken back; newest last
	sureAt time.Duration

	permitted []time.Time // occurrences that the last search found permitted, and that were not offered yet
	searched  string      // where the next search goes on; empty: at the beginning
	beside    time.Time   // what was due next when the last permitted run was offered; zero: it, or a later one, was begun since
}

func (s *slot) idle() bool { return s.run == "" && !s.busy && !s.noting && !s.loading && !s.moving }

// apply takes over a file.
func (w *Worker) apply(f *config.File) {
	w.file = f
	w.rate.Set(f.CatchUpRate.N, f.CatchUpRate.Per)
	var scheduled []string
	in := map[string]bool{}
	for _, a := range f.Agents {
		in[a.ID] = true
		s := w.slots[a.ID]
		if s == nil {
			s = &slot{}
			w.slots[a.ID] = s
			w.count(a.ID)
		} else if !sameSchedule(s.agent, a) {
			w.forget(s)
		}
		s.agent, s.gone, s.next = a, false, 0
		if a.Schedule != nil {
			scheduled = append(scheduled, a.ID)
		}
	}
	for id, s := range w.slots {
		if !in[id] {
			s.gone, s.agent.Schedule, s.next = true, nil, 0
			w.forget(s)
		}
	}
	w.note = owner.Note(scheduled)
	w.shares.Store(len(scheduled) > 0)
	w.cfg.Announce(w.note)
	w.seen = false
	w.same = nil // until it was looked who runs the same
	w.spawn(w.see(f))
}

func sameSchedule(a, b config.Agent) bool {
	if (a.Schedule == nil) != (b.Schedule == nil) || a.Policy.Due() != b.Policy.Due() {
		return false
	}
	return a.Schedule == nil || a.Schedule.String() == b.Schedule.String()
}

// visit does what can be done for an agent now.
func (w *Worker) visit(s *slot, now due.Reading) {
	s.next = now.Boot + due.MaxWait
	if s.gone && w.retire(s) {
		return
	}
	w.flush(s)
	if w.leaving.Load() || s.agent.Schedule == nil {
		return
	}
	w.load(s, now)
	w.makeSure(s, now)
	if s.due == nil || s.busy || s.noting {
		return
	}
	if at, ok := s.due.Next(); s.paused && ok && !at.After(now.Wall) {
		w.askGate(s, at)
		return
	}
	w.step(s, now)
	w.beginPermitted(s, now)
}

// step decides over what came due. Whether the agent is paused is known as well as it can be.
func (w *Worker) step(s *slot, now due.Reading) {
	d := s.due.Step(now, due.State{Paused: s.paused, Running: s.run != "", Busy: !s.held})
	w.miss(s, d.Missed)
	s.soon(now.Boot + d.Wait)
	switch {
	case !d.Begin:
	case now.Boot < s.wait:
		s.soon(s.wait)
	default:
		w.begin(s, now, d.Due)
	}
}

// soon has the agent visited at a time, or sooner.
func (s *slot) soon(boot time.Duration) { s.next = min(s.next, boot) }

// later has the next start wait, longer each time it fails.
func (s *slot) later(now due.Reading, most time.Duration) {
	s.wait = now.Boot + min(again<<min(s.fails, 20), most)
	s.fails++
	s.soon(s.wait)
}

// decided notes an occurrence that was begun or missed.
func (s *slot) decided(at time.Time) {
	if at.After(s.newest) {
		s.newest = at
	}
}

// forget ends this node's decisions over the agent. The gap that is open is over then.
func (w *Worker) forget(s *slot) {
	if s.due != nil {
		w.miss(s, s.due.Leave())
	}
	s.due, s.unsure, s.paused = nil, nil, false
	s.permitted, s.searched, s.beside = nil, "", time.Time{}
}

// retire gives up an agent that is in the file no more. It is true if nothing is left of it.
func (w *Worker) retire(s *slot) bool {
	w.flush(s)
	if s.tending != nil || s.held {
		if !s.moving {
			w.handOver(s)
		}
		return false
	}
	if !s.idle() || len(s.notes) > 0 {
		return false
	}
	delete(w.slots, s.agent.ID)
	return true
}

// askGate looks whether the agent is paused still, and then decides.
func (w *Worker) askGate(s *slot, at time.Time) {
	s.busy = true
	agent := s.agent.ID
	w.spawn(func() {
		v, err := w.lookAt(agent, at)
		w.post(func() {
			s.busy = false
			now := w.cfg.Clock()
			switch {
			case err != nil:
				s.soon(now.Boot + 5*again)
			case s.due != nil && !w.leaving.Load():
				s.paused = v.Paused != nil
				w.step(s, now)
			}
		})
	})
}

func (w *Worker) runID(agent, occurrence string) string {
	return ident.RunID(w.cfg.Namespace, agent, occurrence)
}

// lookAt asks the ledger about an occurrence.
func (w *Worker) lookAt(agent string, at time.Time) (coord.View, error) {
	ctx, cancel := context.WithTimeout(w.calls, patience)
	defer cancel()
	return w.cfg.Ledger.Look(ctx, coord.Question{Agent: agent, Run: w.runID(agent, ident.AtOccurrence(at))})
}

// mayBegin says whether an occurrence may be begun so late.
func mayBegin(p config.Policy, at, wall time.Time) bool {
	late := wall.Sub(at)
	return late <= schedule.Tolerance || p.CatchUp != due.CatchUpNone && late <= p.Window
}
