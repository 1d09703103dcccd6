package coord_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/coord"
)

// attempt is one of device d with the given id digit.
func attempt(id byte, d string, s coord.State) coord.Attempt {
	return coord.Attempt{ID: fmt.Sprintf("%032x", id), Device: d, Liveness: "live-" + d, Epoch: 1, State: s}
}

func view(alive bool, attempts ...coord.Attempt) coord.View {
	v := coord.View{Entry: coord.Entry{Agent: "a", Run: "r", Attempts: attempts}, Found: len(attempts) > 0, Alive: map[string]bool{}}
	for _, a := range attempts {
		v.Alive[a.Liveness] = alive
	}
	v.State = coord.StateOf(attempts, func(l string) bool { return v.Alive[l] })
	return v
}

func record(a coord.Attempt, author string, s coord.State) coord.Record {
	return coord.Record{Run: "r", Attempt: a.ID, Device: a.Device, Author: author, Epoch: a.Epoch, State: s, Cause: coord.CauseExit}
}

// The table "one run, one state": what ledger and log say, and what is to be done first.
func TestOneRunOneState(t *testing.T) {
	open := attempt(1, "me", coord.Open)
	theirs := attempt(2, "you", coord.Open)
	resolved := record(theirs, "boss", coord.Void)
	resolved.Resolver = true
	decided := record(theirs, "boss", coord.Committed)
	decided.Resolver = true
	old := coord.Record{Run: "r", Device: "me", Author: "me", State: coord.Committed}
	abandoned := open
	abandoned.Abandoned = true
	freed := attempt(3, "me", coord.Void)
	freed.Cause = coord.CauseResolved
	given := attempt(4, "me", coord.Void)
	given.Cause = coord.CauseGivenUp
	permitted := attempt(5, "me", coord.Failed)
	permitted.Permitted = true
	gone := view(false)
	gone.Witness = map[string]bool{"w": false}
	there := view(false)
	there.Witness = map[string]bool{"w": true}
	packed := view(false)
	packed.Entry.Packed, packed.Found = true, true
	log := func(r ...coord.Record) []coord.Record { return r }
	never := []string{open.ID, theirs.ID}
	for _, c := range []struct {
		name     string
		view     coord.View
		log      []coord.Record
		never    []string
		want     coord.RunState
		repair   coord.RepairKind
		disputed bool
		recovery bool
	}{
		{"nothing anywhere", view(false), nil, nil, coord.RunFree, "", false, false},
		{"open and alive, nothing", view(true, open), nil, nil, coord.RunRunning, "", false, false},
		{"open and dead, committed by its device", view(false, theirs), log(record(theirs, "you", coord.Committed)), nil, coord.RunCommitted, coord.RepairFinish, false, false},
		{"open and alive, committed by its device", view(true, theirs), log(record(theirs, "you", coord.Committed)), nil, coord.RunCommitted, coord.RepairFinish, false, false},
		{"open and dead, failed by its device", view(false, theirs), log(record(theirs, "you", coord.Failed)), nil, coord.RunFailed, coord.RepairFinish, false, false},
		{"open and dead, void by its device", view(false, theirs), log(record(theirs, "you", coord.Void)), nil, coord.RunFree, coord.RepairFinish, false, false},
		{"open and dead, open only", view(false, theirs), log(record(theirs, "you", coord.Open)), nil, coord.RunInDoubt, "", false, false},
		{"open and dead, nothing", view(false, theirs), nil, nil, coord.RunInDoubt, "", false, false},
		{"open and abandoned though alive", view(true, abandoned), nil, nil, coord.RunInDoubt, "", false, false},
		{"open, never started", view(false, open), nil, never, coord.RunFree, coord.RepairVoid, false, false},
		{"open, never started, yet its liveness is there", view(true, open), nil, never, coord.RunRunning, "", false, false},
		{"open, never started, yet a pending record", view(false, open), log(record(open, "me", coord.Open)), never, coord.RunInDoubt, "", false, false},
		{"open by another device, never started by us", view(false, theirs), nil, never, coord.RunInDoubt, "", false, false},
		{"open and dead, committed by another", view(false, theirs), log(record(theirs, "eve", coord.Committed)), nil, coord.RunInDoubt, "", true, false},
		{"open and dead, failed by another", view(false, theirs), log(record(theirs, "eve", coord.Failed)), nil, coord.RunInDoubt, "", true, false},
		{"open and dead, void by another", view(false, theirs), log(record(theirs, "eve", coord.Void)), nil, coord.RunInDoubt, "", true, false},
		{"open and dead, a resolver's void not in the ledger", view(false, theirs), log(resolved), nil, coord.RunInDoubt, "", false, false},
		{"open and dead, a resolver's commit", view(false, theirs), log(decided), nil, coord.RunCommitted, coord.RepairFinish, false, false},
		{"committed, nothing", view(false, attempt(1, "me", coord.Committed)), nil, nil, coord.RunCommitted, "", false, false},
		{"packed", packed, log(record(theirs, "you", coord.Failed)), nil, coord.RunCommitted, "", false, false},
		{"void by a person, a late commit by its device", view(false, freed), log(record(freed, "me", coord.Committed)), nil, coord.RunCommitted, coord.RepairFinish, false, false},
		{"void by a person, failed by its device", view(false, freed), log(record(freed, "me", coord.Failed)), nil, coord.RunFree, "", false, false},
		{"given up, yet failed by its device", view(false, given), log(record(given, "me", coord.Failed)), nil, coord.RunFailed, "", false, false},
		{"void, a commit by another", view(false, freed), log(record(freed, "eve", coord.Committed)), nil, coord.RunInDoubt, "", true, false},
		{"failed, a pending record", view(false, attempt(1, "me", coord.Failed)), log(record(open, "me", coord.Open)), nil, coord.RunFailed, "", false, false},
		{"failed and permitted, failed in the log", view(false, permitted), log(record(permitted, "me", coord.Failed)), nil, coord.RunFree, "", false, false},
		{"absent, witness there, committed by this device", there, log(record(open, "me", coord.Committed)), nil, coord.RunCommitted, coord.RepairRecreate, false, false},
		{"absent, committed by this device before attempts had ids", there, log(old), nil, coord.RunCommitted, "", false, false},
		{"absent, committed by another device", there, log(record(theirs, "you", coord.Committed)), nil, coord.RunInDoubt, "", true, false},
		{"absent, failed by another device", there, log(record(theirs, "you", coord.Failed)), nil, coord.RunFailed, "", false, false},
		{"absent, failed by somebody else", there, log(record(theirs, "eve", coord.Failed)), nil, coord.RunInDoubt, "", true, false},
		{"absent, pending by this device", there, log(record(open, "me", coord.Open)), nil, coord.RunInDoubt, "", false, false},
		{"absent, witness gone", gone, nil, nil, coord.RunFree, "", false, true},
		{"absent, witness gone, committed by this device", gone, log(record(open, "me", coord.Committed)), nil, coord.RunCommitted, "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := coord.Judge(c.view, c.log, coord.Facts{Device: "me", NeverStarted: c.never})
			if got.State != c.want || got.Disputed != c.disputed || got.Recovery != c.recovery {
				t.Errorf("got %+v, want %s, disputed %v, recovery %v", got, c.want, c.disputed, c.recovery)
			}
			var repair coord.RepairKind
			for _, r := range got.Repairs {
				repair = r.Kind
				if err := r.Outcome.Check(); err != nil {
					t.Errorf("the repair cannot be sent: %v", err)
				}
			}
			if repair != c.repair || len(got.Repairs) > 1 {
				t.Errorf("repairs %+v, want %q", got.Repairs, c.repair)
			}
			if got.State != coord.RunFree && !c.view.Entry.Packed && got.Attempt.Device == "" {
				t.Error("it does not say which attempt it rests on")
			}
		})
	}
}

func TestRecordsOfOtherRunsAreNoEvidence(t *testing.T) {
	r := record(attempt(1, "me", coord.Open), "me", coord.Committed)
	r.Run = "other"
	if got := coord.Judge(view(false), []coord.Record{r}, coord.Facts{Device: "me"}); got.State != coord.RunFree || len(got.Repairs) > 0 {
		t.Errorf("got %+v", got)
	}
}

// strict orders states: the higher, the less may be done.
func strict(s coord.RunState) int {
	return map[coord.RunState]int{coord.RunFree: 0, coord.RunFailed: 1, coord.RunInDoubt: 2, coord.RunRunning: 2, coord.RunCommitted: 3}[s]
}

var (
	devices = []string{"me", "you", "eve"}
	states  = []coord.State{coord.Open, coord.Void, coord.Failed, coord.Committed}
	causes  = []string{coord.CauseExit, coord.CauseResolved, coord.CauseGivenUp, coord.CauseRetried}
)

func drawView(t *rapid.T) coord.View {
	var attempts []coord.Attempt
	for i := range rapid.IntRange(0, 4).Draw(t, "attempts") {
		a := attempt(byte(i), rapid.SampledFrom(devices).Draw(t, "device"), rapid.SampledFrom(states).Draw(t, "state"))
		a.Cause = rapid.SampledFrom(causes).Draw(t, "cause")
		a.Abandoned = a.State == coord.Open && rapid.Bool().Draw(t, "abandoned")
		a.Permitted = a.State == coord.Failed && rapid.Bool().Draw(t, "permitted")
		attempts = append(attempts, a)
	}
	v := view(false, attempts...)
	for l := range v.Alive {
		v.Alive[l] = rapid.Bool().Draw(t, "alive")
	}
	return v
}

// drawRecord makes any record; right says that its author may close the attempt, which the ledger holds.
func drawRecord(t *rapid.T, v coord.View) (r coord.Record, right bool) {
	id := rapid.IntRange(0, 6).Draw(t, "attempt")
	a := attempt(byte(id), rapid.SampledFrom(devices).Draw(t, "of"), coord.Open)
	if held, ok := v.Entry.Find(a.ID); ok && rapid.IntRange(0, 3).Draw(t, "lie") > 0 {
		a = held
	}
	r = record(a, rapid.SampledFrom(devices).Draw(t, "author"), rapid.SampledFrom(states).Draw(t, "says"))
	r.Resolver = rapid.IntRange(0, 5).Draw(t, "resolver") == 0
	held, ok := v.Entry.Find(r.Attempt)
	return r, ok && r.Device == held.Device && (r.Author == r.Device || r.Resolver)
}

// freed reports whether something with the right to do so says that the attempt had no effect.
func freed(a coord.Attempt, log []coord.Record, never []string) bool {
	return slices.Contains(never, a.ID) && a.Device == "me" || slices.ContainsFunc(log, func(r coord.Record) bool {
		return r.Attempt == a.ID && r.Device == a.Device && r.Author == a.Device && r.State == coord.Void
	})
}

func TestNoLogFreesARunThatTheLedgerDoesNotCallFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		var log []coord.Record
		for range rapid.IntRange(0, 5).Draw(t, "records") {
			r, _ := drawRecord(t, v)
			log = append(log, r)
		}
		var never []string
		if rapid.Bool().Draw(t, "never") && len(v.Entry.Attempts) > 0 {
			never = append(never, v.Entry.Attempts[0].ID)
		}
		got := coord.Judge(v, log, coord.Facts{Device: "me", NeverStarted: never})
		var left []coord.Attempt // what stands in the way once the freed ones are away
		for _, a := range v.Entry.Attempts {
			if a.State != coord.Open || !freed(a, log, never) {
				left = append(left, a)
			}
		}
		if ledger := coord.StateOf(left, func(l string) bool { return v.Alive[l] }); got.State == coord.RunFree && ledger != coord.RunFree {
			t.Fatalf("free, though the ledger says %s", ledger)
		}
		if v.State == coord.RunCommitted && got.State != coord.RunCommitted {
			t.Fatalf("committed in the ledger, judged %s", got.State)
		}
	})
}

func TestRecordsOfOthersNeverMakeAVerdictMorePermissive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		var log []coord.Record
		for range rapid.IntRange(0, 4).Draw(t, "records") {
			r, _ := drawRecord(t, v)
			log = append(log, r)
		}
		foreign := rapid.Custom(func(t *rapid.T) coord.Record {
			r, _ := drawRecord(t, v)
			r.Resolver = false
			return r
		}).Filter(func(r coord.Record) bool {
			held, ok := v.Entry.Find(r.Attempt)
			return r.Author != "me" && (r.Author != r.Device || ok && held.Device != r.Device)
		}).Draw(t, "foreign")
		facts := coord.Facts{Device: "me"}
		before := coord.Judge(v, log, facts)
		after := coord.Judge(v, slices.Insert(slices.Clone(log), rapid.IntRange(0, len(log)).Draw(t, "at"), foreign), facts)
		if strict(after.State) < strict(before.State) {
			t.Fatalf("%+v made %s of %s", foreign, after.State, before.State)
		}
		if after.State == coord.RunCommitted && before.State != coord.RunCommitted {
			t.Fatalf("%+v committed the run", foreign)
		}
		if len(after.Repairs) > len(before.Repairs) {
			t.Fatalf("%+v repairs the ledger: %+v", foreign, after.Repairs)
		}
	})
}

func TestNoLossOfLogMakesAVerdictMorePermissiveThanTheWholeLogDid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		var log []coord.Record // of attempts that the ledger holds, each closed once and with right
		closed := map[string]bool{}
		for range rapid.IntRange(0, 6).Draw(t, "records") {
			r, right := drawRecord(t, v)
			if !right || r.State != coord.Open && closed[r.Attempt] {
				continue
			}
			closed[r.Attempt] = closed[r.Attempt] || r.State != coord.Open
			log = append(log, r)
		}
		var rest []coord.Record
		for _, r := range log {
			if rapid.Bool().Draw(t, "kept") {
				rest = append(rest, r)
			}
		}
		facts := coord.Facts{Device: "me"}
		whole, part := coord.Judge(v, log, facts), coord.Judge(v, rest, facts)
		if part.State == coord.RunFree && whole.State != coord.RunFree && v.State != coord.RunFree {
			t.Fatalf("free with %d of %d records, %s with all", len(rest), len(log), whole.State)
		}
		if part.State == coord.RunFailed && strict(whole.State) > 1 && strict(v.State) > 1 && !slices.ContainsFunc(rest, func(r coord.Record) bool { return r.State == coord.Failed || r.State == coord.Void }) {
			t.Fatalf("failed without a record that says so")
		}
	})
}

func TestTheJudgementDoesNotDependOnTheOrderOfTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		var log []coord.Record
		for range rapid.IntRange(2, 6).Draw(t, "records") {
			r, _ := drawRecord(t, v)
			log = append(log, r)
		}
		shuffled := rapid.Permutation(log).Draw(t, "shuffled")
		a, b := coord.Judge(v, log, coord.Facts{Device: "me"}), coord.Judge(v, shuffled, coord.Facts{Device: "me"})
		if a.State != b.State || a.Disputed != b.Disputed || len(a.Repairs) != len(b.Repairs) {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

func TestAfterItsRepairsTheLedgerAloneSaysTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		var log []coord.Record
		for range rapid.IntRange(0, 4).Draw(t, "records") {
			if r, right := drawRecord(t, v); right {
				log = append(log, r)
			}
		}
		first := coord.Judge(v, log, coord.Facts{Device: "me"})
		for _, r := range first.Repairs {
			for i, a := range v.Entry.Attempts {
				if a.ID == r.Outcome.Attempt.ID {
					v.Entry.Attempts[i] = r.Outcome.Attempt
				}
			}
		}
		if again := coord.Judge(v, log, coord.Facts{Device: "me"}); again.State != first.State || len(again.Repairs) != 0 {
			t.Fatalf("first %+v, then %+v", first, again)
		}
	})
}

// Found by the property above: of two commits, of the device and of a resolver, the one read first decided.
func TestADevicesOwnCommitCountsBesideAResolvers(t *testing.T) {
	v := coord.View{Entry: coord.Entry{Agent: "a", Run: "r"}}
	own := coord.Record{Run: "r", Attempt: coord.NewNonce(), Device: "me", Author: "me", Epoch: 1, State: coord.Committed}
	resolver := own
	resolver.Author, resolver.Resolver = "you", true
	for _, log := range [][]coord.Record{{own, resolver}, {resolver, own}} {
		got := coord.Judge(v, log, coord.Facts{Device: "me"})
		if got.State != coord.RunCommitted || got.Disputed || len(got.Repairs) != 1 {
			t.Errorf("%+v", got)
		}
	}
}
