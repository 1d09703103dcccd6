package coord

import "slices"

// Facts is what the judge knows beside ledger and log.
type Facts struct {
	// Device is the device that judges.
	Device string
	// NeverStarted holds the ids of its own open attempts whose process is proved dead and whose pending
	// record is not in its journal, which is intact up to Attempt.At.
	NeverStarted []string
}

// A RepairKind says what a Repair is.
type RepairKind string

const (
	// RepairFinish: the log knows how an attempt of the ledger ended.
	RepairFinish RepairKind = "finish"
	// RepairVoid: the attempt never started. The void is written into the device's journal first, under its
	// lock, where the append of the pending record looks for it.
	RepairVoid RepairKind = "void"
	// RepairRecreate: the log knows a commit of this device that the ledger lost.
	RepairRecreate RepairKind = "recreate"
)

// A Repair is a fact that the ledger lacks. It is given to Finish before the judgement is acted upon.
type Repair struct {
	Kind    RepairKind
	Outcome Outcome
}

// A Judgement is the state of a run as ledger and log tell it together.
type Judgement struct {
	// State says what may be done: only RunFree may be begun without anybody's permission, and Begin still
	// decides.
	State RunState
	// Attempt is the one that the state rests on; zero if the run is free, or packed.
	Attempt Attempt
	// Disputed means that a record contradicts the ledger and its author had no right to close the attempt:
	// the run is in doubt, loudly.
	Disputed bool
	// Recovery means that a witness is gone: the ledger went back. Nothing may be begun, whatever State says.
	Recovery bool
	// Repairs come first, in this order.
	Repairs []Repair
}

// Judge is the one state of a run: a pure function of what the ledger shows and what the log records.
// v.Entry.Agent and v.Entry.Run name the run also when there is no entry; other runs' records are ignored.
//
// An attempt is closed by a record only if its author is the attempt's own device, or a resolver. A record
// of anybody else, or of another device about an attempt that the ledger does not hold, makes the run
// disputed if it says more than the ledger. No record and no loss of a record frees a run that the ledger
// does not call free; only a void of the attempt's device does, or the proof that it never started.
func Judge(v View, log []Record, facts Facts) Judgement {
	j := &judge{view: v, facts: facts}
	if v.Entry.Packed {
		return Judgement{State: RunCommitted, Recovery: j.witnessGone()}
	}
	j.attempts = slices.Clone(v.Entry.Attempts)
	var others []tried // that the ledger does not hold
	for _, r := range log {
		one := tried{r.Attempt, r.Device}
		if _, held := v.Entry.Find(r.Attempt); r.Run == v.Entry.Run && !held && !slices.Contains(others, one) {
			others = append(others, one)
		}
	}
	for i := range j.attempts {
		j.known(&j.attempts[i], recordsOf(log, func(r Record) bool { return r.Run == v.Entry.Run && r.Attempt == j.attempts[i].ID }))
	}
	for _, o := range others {
		j.unknown(o, recordsOf(log, func(r Record) bool { return r.Run == v.Entry.Run && o == tried{r.Attempt, r.Device} }))
	}
	return j.judgement()
}

// judge is one judgement in the making.
type judge struct {
	view     View
	facts    Facts
	attempts []Attempt // as ledger and log tell together
	disputed []Attempt
	repairs  []Repair
}

// tried names an attempt of the log. Records that predate attempts have an empty id.
type tried struct{ attempt, device string }

// known joins what the log says about an attempt of the ledger.
func (j *judge) known(a *Attempt, log []Record) {
	closer, foreign := strongest(log, a.Device)
	switch {
	case a.State == Committed:
	case closer.State == Committed:
		j.close(a, closer)
	case a.State == Open && j.neverStarted(*a, log):
		a.State, a.Cause, a.Abandoned = Void, CauseNever, false
		j.repair(RepairVoid, *a)
	case a.State == Open && foreign != "":
		j.disputed = append(j.disputed, *a)
	case a.State == Open && closer.State != "":
		j.close(a, closer)
	case foreign == Committed:
		j.disputed = append(j.disputed, *a)
	case a.State == Void && a.Cause != CauseResolved && closer.State == Failed:
		a.State, a.Cause, a.Exit = Failed, closer.Cause, closer.Exit // its effect was seen: not free
	}
}

// unknown joins records of one attempt that the ledger does not hold: it was lost, or trimmed once closed.
func (j *judge) unknown(o tried, log []Record) {
	a := Attempt{ID: o.attempt, Device: o.device, Epoch: log[0].Epoch, State: Open}
	closer, foreign := strongest(log, o.device)
	switch {
	case closer.State == Committed && closer.Author == j.facts.Device && o.device == j.facts.Device:
		a.State, a.Cause, a.Exit = Committed, closer.Cause, closer.Exit
		if a.ID != "" && !j.witnessGone() {
			j.repair(RepairRecreate, a)
		}
	case foreign != "", closer.State == Committed:
		j.disputed = append(j.disputed, a)
	case closer.State != "":
		a.State, a.Cause, a.Exit = closer.State, closer.Cause, closer.Exit
	}
	j.attempts = append(j.attempts, a)
}

// close ends an attempt of the ledger as the log says, and has the ledger told.
func (j *judge) close(a *Attempt, r Record) {
	a.State, a.Cause, a.Exit, a.Abandoned, a.Permitted, a.By, a.Reason = r.State, r.Cause, r.Exit, false, false, "", ""
	if r.Resolver {
		a.Cause, a.By = CauseResolved, r.Author
	}
	j.repair(RepairFinish, *a)
}

func (j *judge) repair(kind RepairKind, a Attempt) {
	e := j.view.Entry
	j.repairs = append(j.repairs, Repair{kind, Outcome{Agent: e.Agent, Run: e.Run, Occurrence: e.Occurrence, Input: e.Input, Attempt: a}})
}

// neverStarted reports whether an own attempt is proved never to have started, and no record speaks against it.
func (j *judge) neverStarted(a Attempt, log []Record) bool {
	return a.Device == j.facts.Device && len(log) == 0 && !a.Running(j.alive) && slices.Contains(j.facts.NeverStarted, a.ID)
}

func (j *judge) alive(liveness string) bool { return j.view.Alive[liveness] }

func (j *judge) witnessGone() bool {
	for _, there := range j.view.Witness {
		if !there {
			return true
		}
	}
	return false
}

func (j *judge) judgement() Judgement {
	out := Judgement{State: StateOf(j.attempts, j.alive), Recovery: j.witnessGone(), Repairs: j.repairs}
	if len(j.disputed) > 0 && out.State != RunCommitted && out.State != RunRunning {
		out.State, out.Attempt = RunInDoubt, j.disputed[0]
	}
	out.Disputed = len(j.disputed) > 0
	if out.Attempt.ID == "" && out.State != RunFree {
		out.Attempt, _ = Entry{Attempts: j.attempts}.Last(func(a Attempt) bool {
			return StateOf([]Attempt{a}, j.alive) == out.State
		})
	}
	return out
}

// strongest is the strongest record that closes an attempt of the device with right: committed before
// failed before void. A resolver's void is none: it counts once Resolve wrote it into the ledger. foreign is
// the strongest end that somebody without that right tells of; empty if there is none.
func strongest(log []Record, device string) (closer Record, foreign State) {
	for _, r := range log {
		own := r.Author == device && r.Device == device
		resolved := r.Resolver && r.Device == device
		switch {
		case r.State == Open, resolved && !own && r.State != Committed:
		case !own && !resolved:
			foreign = stronger(foreign, r.State)
		case stronger(closer.State, r.State) != closer.State, own && r.State == closer.State && closer.Author != device:
			closer = r // of equals the device's own word, whatever order the log is read in
		}
	}
	return closer, foreign
}

func stronger(a, b State) State {
	order := []State{"", Void, Failed, Committed}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

func recordsOf(log []Record, of func(Record) bool) (got []Record) {
	for _, r := range log {
		if of(r) {
			got = append(got, r)
		}
	}
	return got
}
