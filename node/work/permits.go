package work

import (
	"context"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/schedule/due"
)

const (
	// permitsEvery is the pause between two searches for runs that a person permits to be begun once more. A search reads all runs of
	// the agents that this node decides over, since such a run may lie as far back as there are any; permitsFirst is the first pause.
	permitsEvery = 5 * time.Minute
	permitsFirst = 30 * time.Second
	// mostPermits ends a search of an agent: the next one goes on behind the page that brought so many, once these were offered.
	mostPermits = 100
)

// search looks for permitted runs from time to time, one agent after the other, and says when the next search is.
func (w *Worker) search(now due.Reading) time.Duration {
	if w.searching {
		return due.MaxWait
	}
	if now.Boot < w.searchAt {
		return w.searchAt - now.Boot
	}
	var agents []config.Agent
	behind := map[string]string{}
	for _, s := range w.slots {
		if s.due != nil && s.held && len(s.permitted) == 0 {
			agents, behind[s.agent.ID] = append(agents, s.agent), s.searched
		}
	}
	if len(agents) == 0 {
		w.searchAt = now.Boot + permitsFirst
		return permitsFirst
	}
	w.searching = true
	w.spawn(func() {
		for _, a := range agents {
			if w.calls.Err() != nil {
				break
			}
			runs, searched, err := w.permittedRuns(a, behind[a.ID])
			if err != nil {
				w.log.Debug("runs that may be begun once more cannot be looked for", "agent", a.ID, "err", err)
			}
			w.post(func() { w.permits(a, runs, searched) })
		}
		w.post(func() { w.searching, w.searchAt = false, w.cfg.Clock().Boot+permitsEvery })
	})
	return due.MaxWait
}

// permittedRuns are occurrences of an agent's schedule that a person permits to be begun once more, and behind which cursor the next
// search goes on: empty at the end of the list, and after an error.
func (w *Worker) permittedRuns(a config.Agent, behind string) (all []time.Time, searched string, err error) {
	ctx, cancel := context.WithTimeout(w.calls, longest)
	defer cancel()
	f := coord.Filter{Agent: a.ID, States: []coord.RunState{coord.RunFree}, Limit: mostPermits, After: behind}
	for {
		page, err := w.cfg.Ledger.List(ctx, f)
		if err != nil {
			return all, "", err
		}
		for _, v := range page.Views {
			at, ok := instantOf(a, v.Entry.Occurrence)
			if !ok || !v.Permitted() || v.Entry.Input != "" || v.Paused != nil || v.Recovery != nil {
				continue
			}
			all = append(all, at)
		}
		if f.After = page.Next; f.After == "" || len(all) >= mostPermits {
			return all, f.After, nil
		}
	}
}

// instantOf is the instant that an occurrence names, if it is one of the agent's schedule: others name instants of their own.
func instantOf(a config.Agent, occurrence string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339Nano, ident.OccurrenceText(occurrence))
	if err != nil || ident.AtOccurrence(at) != occurrence {
		return time.Time{}, false
	}
	of, ok := a.Schedule.Prev(at.Add(1))
	return at, ok && of.Equal(at)
}

// permits notes what a search found of an agent, unless it has another schedule by now.
func (w *Worker) permits(a config.Agent, runs []time.Time, searched string) {
	s := w.slots[a.ID]
	if s == nil || s.due == nil || !sameSchedule(s.agent, a) {
		return
	}
	if s.permitted, s.searched = runs, searched; len(runs) > 0 {
		s.next = 0
	}
}

// beginPermitted offers one of the runs that a person permits to be begun once more, unless the schedule goes before. The ledger says
// whether it still may be.
func (w *Worker) beginPermitted(s *slot, now due.Reading) {
	if len(s.permitted) == 0 || s.due == nil || !s.held || !s.idle() || s.paused || now.Boot < s.wait || s.goesBefore(now) {
		return
	}
	at := s.permitted[0]
	s.permitted = s.permitted[1:]
	p := w.performance(s, ident.AtOccurrence(at), at)
	p.job.IfFailed = dispatch.FailedKeep // it may have been begun, and have failed, since
	w.launchPermitted(p)
}

// launchPermitted launches a run that a person permits, and notes which occurrence may be missed for it.
func (w *Worker) launchPermitted(p *performance) {
	p.once = true
	p.slot.beside, _ = p.slot.due.Next()
	w.launch(p)
}

// goesBefore says that the schedule goes before a run that a person permits: an occurrence is due, or one came due during the last
// permitted run and was missed for it, and none was begun since. So permitted runs follow each other where there is room, and the
// schedule goes on between those that leave none, however many there are.
func (s *slot) goesBefore(now due.Reading) bool {
	next, ok := s.due.Next()
	return ok && (!next.After(now.Wall) || !s.beside.IsZero() && next.After(s.beside))
}
