package work

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/missed"
	"github.com/syncnode/syncnode/schedule/due"
)

// fresh is how old what is known of the log may be when an agent is taken over.
const fresh = 2 * time.Second

// records are what the log says, by agent and by key.
type records struct {
	at   time.Time
	last map[string]time.Time // the newest occurrence that was missed
	seen map[string]time.Time
}

// refresh reads the log, unless that was just done. Without a log what this process knows is all there is.
func (r *records) refresh(log Log) {
	if r.last == nil {
		r.last, r.seen = map[string]time.Time{}, map[string]time.Time{}
	}
	if log == nil || time.Since(r.at) < fresh {
		return
	}
	for payload := range log.Records() {
		r.take(payload)
	}
	r.at = time.Now()
}

func (r *records) take(payload json.RawMessage) {
	gap, seen := missed.Parse(payload)
	switch {
	case gap != nil && gap.Last.After(r.last[gap.Agent]):
		r.last[gap.Agent] = gap.Last
	case seen != nil:
		if at, ok := r.seen[seen.Key()]; !ok || seen.At.Before(at) {
			r.seen[seen.Key()] = seen.At
		}
	}
}

// see notes since when each agent has its schedule, if that is not on record; nothing of the file begins before.
func (w *Worker) see(f *config.File) func() {
	now := w.cfg.Clock().Wall
	return func() {
		for w.calls.Err() == nil {
			err := w.write(w.newlySeen(f, now))
			if err == nil {
				w.post(func() {
					if w.file == f {
						w.seen = true
						for _, s := range w.slots {
							s.next = 0
						}
					}
				})
				return
			}
			w.log.Error("that agents were seen cannot be written to the log; nothing of them begins", "err", err)
			sleep(w.calls, 5*again)
		}
	}
}

func (w *Worker) newlySeen(f *config.File, now time.Time) []json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known.refresh(w.cfg.Log)
	var all []json.RawMessage
	for _, a := range f.Agents {
		if a.Schedule == nil {
			continue
		}
		s := missed.SeenAs(a.ID, a.Schedule, now)
		if _, ok := w.known.seen[s.Key()]; ok {
			continue
		}
		if payload, err := s.Payload(); err == nil { // ids were checked with the file
			all = append(all, payload)
		}
	}
	return all
}

// miss counts and tells gaps that ended, and keeps them until they are on disk.
func (w *Worker) miss(s *slot, gaps []due.Missed) {
	for _, g := range gaps {
		w.log.Info("occurrences missed", "agent", s.agent.ID, "reason", string(g.Reason), "first", g.First.UTC(), "last", g.Last.UTC(), "count", g.Count)
		w.count(s.agent.ID)
		w.mu.Lock()
		w.missed[s.agent.ID][g.Reason] += g.Count
		w.mu.Unlock()
		s.decided(g.Last)
	}
	s.notes = append(s.notes, gaps...)
	if len(s.notes) > 0 {
		s.next = 0
	}
}

// count makes an agent's counters begin at 0.
func (w *Worker) count(agent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missed[agent] == nil {
		w.missed[agent] = map[due.Reason]int{}
		for _, r := range due.Reasons() {
			w.missed[agent][r] = 0
		}
	}
}

// Missed counts the occurrences that were missed since this process began, by agent and reason.
func (w *Worker) Missed() map[string]map[due.Reason]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]map[due.Reason]int{}
	for agent, counts := range w.missed {
		all[agent] = maps.Clone(counts)
	}
	return all
}

// flush writes what waits to be on disk.
func (w *Worker) flush(s *slot) {
	if len(s.notes) == 0 || s.noting || s.moving || w.last.Boot < s.noteAt {
		return
	}
	notes, agent := s.notes, s.agent.ID
	s.notes, s.noting = nil, true
	w.open++
	w.spawn(func() {
		err := w.record(agent, notes)
		w.post(func() {
			w.open--
			s.noting, s.next = false, 0
			if err != nil {
				s.notes = append(notes, s.notes...)
				s.noteAt = w.last.Boot + 5*again
			}
		})
	})
}

// record writes gaps of an agent, and returns when they are on disk.
func (w *Worker) record(agent string, gaps []due.Missed) error {
	var all []json.RawMessage
	for _, g := range gaps {
		payload, err := missed.Gap{Agent: agent, Missed: g}.Payload()
		if err != nil {
			return err
		}
		all = append(all, payload)
	}
	err := w.write(all)
	if err != nil {
		w.log.Error("what was missed cannot be written to the log; it is tried again", "agent", agent, "err", err)
	}
	return err
}

func (w *Worker) write(all []json.RawMessage) error {
	if len(all) == 0 {
		return nil
	}
	if w.cfg.Log != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.cfg.Log.Append(ctx, all...); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, payload := range all {
		w.known.take(payload)
	}
	return nil
}
