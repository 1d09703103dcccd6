package coord

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
