package coord

import "time"

// StateOf is the state of a run: any attempt committed, it is committed; else any open, it is running if
// one of them runs and in doubt if none does; else any failed that nothing permits to repeat, it is
// failed; else it is free. alive tells whether a liveness is there; nil means that none is.
func StateOf(attempts []Attempt, alive func(liveness string) bool) RunState {
	state := RunFree
	for _, a := range attempts {
		switch {
		case a.State == Committed:
			return RunCommitted
		case a.Running(alive):
			state = RunRunning
		case a.State == Open && state != RunRunning:
			state = RunInDoubt
		case a.State == Failed && !a.Permitted && state == RunFree:
			state = RunFailed
		}
	}
	return state
}

// Deciding is the attempt that the state of the run rests on, and whether there is one.
func (v View) Deciding() (Attempt, bool) {
	want := map[RunState]State{RunCommitted: Committed, RunRunning: Open, RunInDoubt: Open, RunFailed: Failed, RunFree: Void}[v.State]
	return v.Entry.Last(func(a Attempt) bool { return a.State == want })
}

// Double is how often the run committed, if that is more than once: what it does may have happened that often. Else it is 0.
func (e Entry) Double() int {
	n := 0
	for _, a := range e.Attempts {
		if a.State == Committed {
			n++
		}
	}
	if n < 2 {
		return 0
	}
	return n
}

// Permitted reports whether the run is free and a person permits one more attempt of it, after one that failed.
func (v View) Permitted() bool {
	_, yes := v.Entry.Last(func(a Attempt) bool { return a.State == Failed && a.Permitted })
	return v.State == RunFree && yes
}

// Since is when the attempt that the state rests on ended, or began if it has not ended; of the last attempt if there is no such one. It is
// by the clock of the device that wrote it, and zero if no attempt is kept.
func (v View) Since() time.Time {
	a, ok := v.Deciding()
	if !ok {
		a, _ = v.Entry.Last(func(Attempt) bool { return true })
	}
	if !a.Ended.IsZero() {
		return a.Ended
	}
	return a.Begun
}

// Running reports whether the attempt is open, its device did not give it up, and its liveness is there.
func (a Attempt) Running(alive func(liveness string) bool) bool {
	return a.State == Open && !a.Abandoned && a.Liveness != "" && alive != nil && alive(a.Liveness)
}

// Last returns the last attempt for which is holds, and whether there is one.
func (e Entry) Last(is func(Attempt) bool) (Attempt, bool) {
	for i := len(e.Attempts) - 1; i >= 0; i-- {
		if is(e.Attempts[i]) {
			return e.Attempts[i], true
		}
	}
	return Attempt{}, false
}

// Find returns the attempt with that id, and whether the entry holds it.
func (e Entry) Find(id string) (Attempt, bool) {
	return e.Last(func(a Attempt) bool { return a.ID == id })
}
