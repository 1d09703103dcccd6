package fold

import (
	"fmt"
	"slices"
)

// An AttemptState is how an attempt stands according to the log.
type AttemptState int

const (
	Open      AttemptState = iota // begun, and no word of its end that counts
	Void                          // the effect never started
	Failed                        // the end was seen and was not success
	Committed                     // the effect happened
)

func (s AttemptState) String() string {
	switch s {
	case Open:
		return "open"
	case Void:
		return "void"
	case Failed:
		return "failed"
	case Committed:
		return "committed"
	}
	return fmt.Sprintf("AttemptState(%d)", int(s))
}

// An Attempt is what the log says about one try at a run by one device.
type Attempt struct {
	ID     string // as the intent names it, or "~device@epoch" if it names none
	Device string // whose attempt it is; "" if only a resolver speaks of it
	Epoch  uint64 // the highest that an intent of its device gives it
	State  AttemptState
	// Disputed: somebody who is neither its device nor a resolver says how it ended. That closes nothing; it has to
	// be shown, and the run is in doubt until its device or a person speaks.
	Disputed bool
	// Begun and Ended are the intents behind the state. Begun has no ID if no pending is known, Ended if it is open.
	Begun, Ended IntentRecord
}

// Attempts returns the attempts at a run, ordered by attempt id and device.
//
// An attempt belongs to the device that wrote its pending, or if none is known, its end. It is closed by its own
// device, or by a resolver (an intent with "by"). Committed beats failed, so the device's late commit overrides a
// person's word that nothing happened; otherwise the device's word beats the resolver's.
func (s *State) Attempts(agent, run string) []Attempt {
	r := s.run(agent, run)
	if r == nil {
		return nil
	}
	var out []Attempt
	for from := 0; from < len(r.slots); {
		to := from + 1
		for to < len(r.slots) && r.slots[to].attempt == r.slots[from].attempt {
			to++
		}
		out = appendAttempts(out, r.slots[from:to])
		from = to
	}
	return out
}

// OpenAttempts returns the attempts that leave the run in doubt: open or disputed, while the run is not committed
// by an attempt's own device or a resolver. Whether the process of an open one still lives is not for the log to say.
func (s *State) OpenAttempts(agent, run string) []Attempt {
	all := s.Attempts(agent, run)
	if slices.ContainsFunc(all, func(a Attempt) bool { return a.State == Committed }) {
		return nil
	}
	return slices.DeleteFunc(all, func(a Attempt) bool { return a.State != Open && !a.Disputed })
}

// A RunState is a run's state according to the log alone. It may be behind the ledger, and never permits anything.
type RunState int

const (
	RunFree      RunState = iota // no attempt is known, or all are void
	RunFailed                    // an attempt failed, none is open
	RunOpen                      // an attempt is open or disputed: running or in doubt
	RunCommitted                 // an attempt committed
)

func (s RunState) String() string {
	switch s {
	case RunFree:
		return "free"
	case RunFailed:
		return "failed"
	case RunOpen:
		return "open"
	case RunCommitted:
		return "committed"
	}
	return fmt.Sprintf("RunState(%d)", int(s))
}

// RunState is: any attempt committed, or a parked op says so: committed; else any open or disputed: open; else any
// failed: failed; else free.
func (s *State) RunState(agent, run string) RunState {
	state := RunFree
	if s.parked.committed(agent, run) != nil {
		state = RunCommitted
	}
	for _, a := range s.Attempts(agent, run) {
		switch {
		case a.State == Committed:
			return RunCommitted
		case a.State == Open || a.Disputed:
			state = max(state, RunOpen)
		case a.State == Failed:
			state = max(state, RunFailed)
		}
	}
	return state
}

// appendAttempts appends the attempts that share an id: one per device that began it.
func appendAttempts(out []Attempt, slots []*slot) []Attempt {
	devices := owners(slots)
	for _, device := range devices {
		a := Attempt{ID: slots[0].attempt, Device: device}
		var end *slot
		for _, sl := range slots {
			own := sl.device == device && !sl.claim.resolved()
			switch {
			case own && sl.claim == claimPending:
				a.Begun = record(sl.rec)
			case own || sl.claim.resolved():
				if end == nil || sl.outranks(end) {
					end = sl
				}
			case sl.claim != claimPending && !slices.Contains(devices, sl.device):
				a.Disputed = true
			}
			if own {
				a.Epoch = max(a.Epoch, sl.epoch)
			}
		}
		a.end(end)
		out = append(out, a)
	}
	return out
}

func (a *Attempt) end(by *slot) {
	if by == nil {
		return
	}
	a.Ended = record(by.rec)
	switch {
	case by.claim.committed():
		a.State = Committed
	case by.void:
		a.State = Void
	default:
		a.State = Failed
	}
}

// outranks says which of two ends of an attempt counts: committed, then the device's own, then the greater.
func (s *slot) outranks(q *slot) bool {
	if s.claim.committed() != q.claim.committed() {
		return s.claim.committed()
	}
	if s.claim.resolved() != q.claim.resolved() {
		return !s.claim.resolved()
	}
	return s.compare(q) > 0
}

// owners are the devices whose attempt it is: who wrote a pending, else who wrote an end, else nobody known.
func owners(slots []*slot) []string {
	var began, ended []string
	for _, sl := range slots {
		switch {
		case sl.claim == claimPending:
			began = append(began, sl.device)
		case !sl.claim.resolved() && !slices.Contains(ended, sl.device):
			ended = append(ended, sl.device)
		}
	}
	switch {
	case len(began) > 0:
		return began
	case len(ended) > 0:
		return ended
	}
	return []string{""}
}
