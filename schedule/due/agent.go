package due

import (
	"slices"
	"time"

	"github.com/syncnode/syncnode/schedule"
)

// maxCount bounds how many occurrences of one gap are counted.
const maxCount = 100_000

// An Agent is the schedule of one agent, and how far it was decided.
//
// Four things hold between calls: all up to mark is decided or waits; what waits is the newest of it, without a hole;
// so decisions are made from the oldest on; and gap, if there is one, lies right before what waits.
type Agent struct {
	schedule *schedule.Schedule
	policy   Policy
	rate     *Rate
	mark     time.Time
	waiting  []waiting // oldest first
	gap      *Missed   // still open
	ended    []Missed  // to be handed out
}

// A waiting occurrence may be begun until a time, and if the agent is taken by another run only until a sooner one.
type waiting struct{ at, taken, until time.Time }

// New gives the agent of a schedule of which all up to through is decided: the newest occurrence that the ledger knows
// as begun, or the log as missed. If neither knows any, or the schedule is another one since, through is the wall clock
// when that was first seen; the caller records it, or a restart would forget what came due since. It may lie ahead of
// the clock: then nothing is due before it is passed.
func New(s *schedule.Schedule, p Policy, r *Rate, through time.Time) *Agent {
	return &Agent{schedule: s, policy: p, rate: r, mark: through.Round(0)}
}

// Step looks at the clock and at the agent, and decides over all that came due.
func (a *Agent) Step(now Reading, state State) Decision {
	wall := now.Wall.Round(0)
	a.expire(wall, state)
	a.advance(wall, state)
	if state.Paused {
		a.drop(len(a.waiting), Paused)
	}
	d := Decision{Wait: a.wait(now, wall)}
	if len(a.waiting) > 0 && !state.Running && !state.Busy && !a.waiting[0].at.After(wall) {
		d.Due = a.waiting[0].at
		d.Late = wall.Sub(d.Due) > schedule.Tolerance
		d.Begin = !d.Late || a.rate.wait(now) == 0
		if !d.Begin {
			d.Due, d.Late = time.Time{}, false
		}
	}
	d.Missed = a.take()
	return d
}

// Before returns what has to be recorded before at, which a step offered, is begun; and it counts against the rate.
func (a *Agent) Before(now Reading, at time.Time) []Missed {
	if now.Wall.Round(0).Sub(at) > schedule.Tolerance {
		a.rate.take(now)
	}
	a.end()
	return a.take()
}

// Begun says that an occurrence was begun, by this node or by anybody: cron hosts name the same ones. Older ones that
// waited, or were not looked at yet, are superseded by it: what is on record is on record in the order of time.
func (a *Agent) Begun(at time.Time) []Missed {
	at = at.Round(0)
	older := 0
	for older < len(a.waiting) && a.waiting[older].at.Before(at) {
		older++
	}
	switch {
	case older < len(a.waiting) && a.waiting[older].at.Equal(at):
		a.drop(older, Superseded)
		a.waiting = a.waiting[1:]
		a.end()
	case at.After(a.mark):
		a.drop(older, Superseded)
		a.skip(a.mark, at.Add(-1), Superseded)
		a.mark = at
		a.end()
	}
	return a.take()
}

// Leave ends the agent's time with this owner: it returns the gap that is open. What waits is left to the next one.
func (a *Agent) Leave() []Missed {
	a.end()
	return a.take()
}

// Open returns the gap that goes on, for people who ask.
func (a *Agent) Open() (Missed, bool) {
	if a.gap == nil {
		return Missed{}, false
	}
	return *a.gap, true
}

// Next returns what will be begun next if nothing hinders it.
func (a *Agent) Next() (time.Time, bool) {
	if len(a.waiting) > 0 {
		return a.waiting[0].at, true
	}
	return a.schedule.Next(a.mark)
}

// expire gives up what has waited too long. What nothing but the ledger's silence kept from being begun on time is
// late by now, and waits as what is caught up does.
func (a *Agent) expire(wall time.Time, state State) {
	taken := state.Running || state.Busy
	n := 0
	for n < len(a.waiting) && (wall.After(a.waiting[n].until) || taken && wall.After(a.waiting[n].taken)) {
		n++
	}
	a.drop(n, because(state, Window))
	for i, w := range a.waiting {
		if !taken && wall.After(w.taken) {
			a.waiting[i].taken = w.until
		}
	}
}

// because is what hinders the agent, or otherwise if nothing does.
func because(state State, otherwise Reason) Reason {
	switch {
	case state.Paused:
		return Paused
	case state.Running:
		return Overlapped
	case state.Busy:
		return Busy
	}
	return otherwise
}

// advance decides over what came due since mark: it waits, or it is missed.
func (a *Agent) advance(wall time.Time, state State) {
	if !wall.After(a.mark) {
		return // put back, or no time went by
	}
	first, ok := a.schedule.Next(a.mark)
	if !ok || first.After(wall) {
		return
	}
	last, _ := a.schedule.Prev(wall.Add(1))
	defer func() { a.mark = last }()
	switch {
	case state.Paused:
		a.drop(len(a.waiting), Paused)
		a.skip(a.mark, last, Paused)
		return
	case state.Running && a.policy.Overlap != OverlapQueue && len(a.waiting) == 0:
		a.skip(a.mark, last, Overlapped)
		return
	}
	fresh := a.newest(last, wall)
	before := last
	if len(fresh) > 0 {
		before = fresh[0].Add(-1)
	}
	if !before.Before(first) {
		hindered := Superseded
		if len(fresh) == 0 {
			hindered = Window
		}
		a.drop(len(a.waiting), because(state, hindered)) // they are older still
		horizon := wall.Add(-a.policy.late())
		a.skip(a.mark, earlier(before, horizon.Add(-1)), Window)
		a.skip(later(a.mark, horizon.Add(-1)), before, Superseded)
	}
	for _, at := range fresh {
		a.waiting = append(a.waiting, waiting{at, a.taken(at, wall), at.Add(a.policy.window())})
	}
	a.drop(len(a.waiting)-a.policy.most(), because(state, Superseded))
}

// newest are the occurrences after mark that may still be begun, oldest first.
func (a *Agent) newest(last, wall time.Time) []time.Time {
	var found []time.Time
	for at, ok := last, true; ok && len(found) < a.policy.most(); at, ok = a.schedule.Prev(at) {
		if !at.After(a.mark) || wall.Sub(at) > a.policy.late() {
			break
		}
		found = append(found, at)
	}
	slices.Reverse(found)
	return found
}

// taken says how long an occurrence may wait for another run. One on time, by overlap: skip, is given as long as a
// trigger may be off; a predecessor's lease often ends within it. Behind others it waits as they do.
func (a *Agent) taken(at, wall time.Time) time.Time {
	if wall.Sub(at) <= schedule.Tolerance && a.policy.Overlap != OverlapQueue && len(a.waiting) == 0 {
		return at.Add(schedule.Tolerance)
	}
	return at.Add(a.policy.window())
}

// drop gives up the oldest n that wait.
func (a *Agent) drop(n int, why Reason) {
	for range n {
		a.miss(Missed{Reason: why, First: a.waiting[0].at, Last: a.waiting[0].at, Count: 1})
		a.waiting = a.waiting[1:]
	}
}

// skip gives up the occurrences after one time up to another.
func (a *Agent) skip(after, upTo time.Time, why Reason) {
	first, ok := a.schedule.Next(after)
	if !ok || first.After(upTo) {
		return
	}
	last, _ := a.schedule.Prev(upTo.Add(1))
	m := Missed{Reason: why, First: first, Last: last}
	for at := range a.schedule.After(first.Add(-1)) {
		if m.AtLeast = m.Count == maxCount; m.AtLeast || at.After(last) {
			break
		}
		m.Count++
	}
	a.miss(m)
}

// miss writes a gap on, or ends it and begins another.
func (a *Agent) miss(m Missed) {
	if a.gap != nil && a.gap.Reason == m.Reason {
		a.gap.Last = m.Last
		a.gap.Count += m.Count
		a.gap.AtLeast = a.gap.AtLeast || m.AtLeast
		return
	}
	a.end()
	a.gap = &m
}

// end ends the open gap.
func (a *Agent) end() {
	if a.gap != nil {
		a.ended = append(a.ended, *a.gap)
		a.gap = nil
	}
}

func (a *Agent) take() []Missed {
	ended := a.ended
	a.ended = nil
	return ended
}

// wait is how long nothing changes by the clock alone.
func (a *Agent) wait(now Reading, wall time.Time) time.Duration {
	w := MaxWait
	sooner := func(d time.Duration) {
		if d > 0 {
			w = min(w, d)
		}
	}
	if next, ok := a.schedule.Next(later(a.mark, wall)); ok {
		sooner(next.Sub(wall))
	}
	if len(a.waiting) > 0 {
		sooner(a.waiting[0].at.Sub(wall))
		sooner(a.waiting[0].taken.Sub(wall) + 1)
		sooner(a.waiting[0].until.Sub(wall) + 1)
		sooner(a.rate.wait(now))
	}
	return w
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
