package work

import (
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/missed"
	"github.com/syncnode/syncnode/schedule/due"
)

const (
	// together is how many occurrences are asked about at once.
	together = 16
	// farthest is how many are asked about at most: what lies farther back is decided by the log alone.
	farthest = 4096
)

// A past is what is on record of an agent's schedule.
type past struct {
	through time.Time  // all up to it is decided
	newest  coord.View // the run of the newest occurrence that was begun
	begun   bool       // there is one
	paused  bool
}

// load begins to decide over an agent, if that is this node's to do and nobody hinders it.
func (w *Worker) load(s *slot, now due.Reading) {
	switch {
	case !w.decides(s, now):
		if s.run == "" && !s.busy {
			w.forget(s)
			w.letGo(s)
		}
		return
	case s.due != nil || s.loading || !w.seen || s.busy || s.noting || s.moving:
		return
	case now.Boot < s.wait:
		s.soon(s.wait)
		return
	}
	s.loading = true
	a := s.agent
	w.spawn(func() {
		p, err := w.past(a, now.Wall)
		w.post(func() { w.loaded(s, a, p, err) })
	})
}

func (w *Worker) loaded(s *slot, a config.Agent, p past, err error) {
	s.loading, s.next = false, 0
	now := w.cfg.Clock()
	switch {
	case err != nil:
		w.log.Warn("what is on record of an agent cannot be read; nothing of it begins", "agent", a.ID, "err", err)
		s.later(now, 5*again)
	case w.leaving.Load() || !sameSchedule(s.agent, a) || !w.decides(s, now):
	default:
		s.fails, s.wait, s.paused = 0, 0, p.paused
		s.due = due.New(a.Schedule, a.Policy.Due(), w.rate, p.through)
		s.newest = p.through
		if p.begun {
			w.doubt(s, p.through, p.newest.State)
			s.sureAt = 0
		}
		w.log.Debug("decides over an agent", "agent", a.ID, "through", p.through.UTC())
	}
}

// past asks the log, and the ledger about what came due since. The newest occurrence that was begun is looked for from now on
// backwards: most often it is the first that is asked about.
func (w *Worker) past(a config.Agent, wall time.Time) (past, error) {
	p := past{through: w.decidedBefore(a, wall)}
	asked := 0
	for at, ok := a.Schedule.Prev(wall.Add(1)); ok && at.After(p.through) && asked < farthest; {
		var some []time.Time
		for ; ok && at.After(p.through) && len(some) < together; at, ok = a.Schedule.Prev(at) {
			some = append(some, at)
			if asked == 0 {
				at, ok = a.Schedule.Prev(at)
				break // the first alone
			}
		}
		asked += len(some)
		views, err := w.lookAll(a.ID, some)
		if err != nil {
			return p, err
		}
		for i, v := range views {
			p.paused = v.Paused != nil
			if wasBegun(v) {
				p.through, p.newest, p.begun = some[i], v, true
				return p, nil
			}
		}
	}
	return p, nil
}

// lookAll asks the ledger about several occurrences at once.
func (w *Worker) lookAll(agent string, all []time.Time) ([]coord.View, error) {
	views, errs := make([]coord.View, len(all)), make(chan error, len(all))
	for i, at := range all {
		go func() {
			var err error
			views[i], err = w.lookAt(agent, at)
			errs <- err
		}()
	}
	var first error
	for range all {
		if err := <-errs; err != nil {
			first = err
		}
	}
	return views, first
}

// wasBegun says that an attempt of the run passed the fence, and was not taken back.
func wasBegun(v coord.View) bool {
	return v.State != coord.RunFree || v.Permitted()
}

// decidedBefore is the newest occurrence that the log knows as missed, or else when the agent was first seen with its schedule.
func (w *Worker) decidedBefore(a config.Agent, wall time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known.refresh(w.cfg.Log)
	seen := missed.SeenAs(a.ID, a.Schedule, wall)
	at, ok := w.known.seen[seen.Key()]
	if !ok {
		at = seen.At
	}
	if last := w.known.last[a.ID]; last.After(at) {
		at = last
	}
	return at
}

// An unsure run is one whose end is not known, or may be taken back: it is looked at again.
type unsure struct{ at time.Time }

const (
	// mostUnsure is how many of the last runs of an agent are looked at again, once in sureEvery.
	mostUnsure = 4
	sureEvery  = 30 * time.Second
)

// doubt notes a run that is not committed.
func (w *Worker) doubt(s *slot, at time.Time, state coord.RunState) {
	kept := s.unsure[:0:0]
	for _, u := range s.unsure {
		if !u.at.Equal(at) {
			kept = append(kept, u)
		}
	}
	if state != coord.RunCommitted && !at.IsZero() && s.due != nil {
		kept = append(kept, unsure{at: at})
	}
	slices.SortFunc(kept, func(a, b unsure) int { return a.at.Compare(b.at) }) // an old one that was permitted does not push out a newer
	s.unsure = kept[max(0, len(kept)-mostUnsure):]
	if len(s.unsure) > 0 {
		s.sureAt = w.last.Boot + sureEvery
	}
}

// makeSure looks again at the runs that are not known to be over.
func (w *Worker) makeSure(s *slot, now due.Reading) {
	if s.due == nil || len(s.unsure) == 0 || !s.held || !s.idle() {
		return
	}
	if now.Boot < s.sureAt {
		s.soon(s.sureAt)
		return
	}
	s.sureAt, s.busy = now.Boot+sureEvery, true
	var all []time.Time
	for _, u := range s.unsure {
		all = append(all, u.at)
	}
	agent := s.agent.ID
	w.spawn(func() {
		views, err := w.lookAll(agent, all)
		w.post(func() {
			s.busy, s.next = false, 0
			if err == nil && s.due != nil && !w.leaving.Load() {
				w.judge(s, all, views)
			}
		})
	})
}

// judge does for runs that were looked at again what the agent's policies say: it begins one at most.
func (w *Worker) judge(s *slot, all []time.Time, views []coord.View) {
	now := w.cfg.Clock()
	var still []unsure
	var offer *performance
	permitted := false
	for i, v := range views {
		at, a := all[i], s.agent
		begin, keep := false, true
		switch v.State {
		case coord.RunCommitted:
			keep = false
		case coord.RunInDoubt:
			begin = a.OnDoubt == dispatch.DoubtRetry || a.OnDoubt == dispatch.DoubtProbe
		case coord.RunFailed:
			begin = goesOn(a.Retry, v)
		case coord.RunFree:
			if v.Permitted() {
				begin = !s.goesBefore(now)
			} else if begin = mayBegin(a.Policy, at, now.Wall); !begin { // it was taken back, and it is too late for another attempt
				w.miss(s, []due.Missed{{Reason: due.Window, First: at, Last: at, Count: 1}})
				keep = false
			}
		}
		if begin && offer == nil && v.Paused == nil && v.Recovery == nil {
			offer, permitted = w.performance(s, v.Entry.Occurrence, at), v.State == coord.RunFree && v.Permitted()
			if v.State == coord.RunFailed {
				offer.job.IfFailed, offer.tried = dispatch.FailedRetry, failures(v)
			}
		}
		if keep {
			still = append(still, unsure{at: at})
		}
	}
	s.unsure = still
	switch {
	case offer == nil || now.Boot < s.wait:
	case permitted:
		w.launchPermitted(offer)
	default:
		w.launch(offer)
	}
}

// goesOn says whether a failed run has attempts left: the process that made the others is gone, or this one was told to leave.
func goesOn(r config.Retry, v coord.View) bool {
	last, ok := v.Entry.Last(func(a coord.Attempt) bool { return a.State == coord.Failed })
	return ok && attemptsLeft(r, failures(v), last.Cause, last.Exit)
}

// attemptsLeft says whether one more is made after so many that failed, by whoever did not make them all. More than the ledger keeps of a
// run are not counted.
func attemptsLeft(r config.Retry, failed int, cause string, exit int) bool {
	const kept = 8
	return failed <= r.Count && failed < kept && repeatable(r, cause, exit)
}

func failures(v coord.View) (n int) {
	for _, a := range v.Entry.Attempts {
		if a.State == coord.Failed {
			n++
		}
	}
	return n
}
