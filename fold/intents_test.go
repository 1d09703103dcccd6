package fold_test

import (
	"slices"
	"testing"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/oplog"
)

func TestTheOracleKeepsACommitForEver(t *testing.T) {
	f := newFleet(t)
	f.say("x", 10, "r", 1, "pending", "n1")
	c := f.say("x", 11, "r", 1, "committed", "n1")
	f.say("y", 20, "r", 9, "pending", "n2")
	f.say("y", 21, "r", 9, "failed", "n2")
	s := f.state()
	if rec, ok := s.CommittedRun("a", "r"); !ok || rec.ID != c.ID || rec.HLC.Device != "x" || rec.Epoch != 1 {
		t.Errorf("oracle shows %+v", rec)
	}
	if rec, _ := s.Run("a", "r"); rec.ID != c.ID {
		t.Errorf("the view of runs shows %+v: a failed of a higher epoch replaced a commit", rec)
	}
	if s.RunState("a", "r") != fold.RunCommitted || s.OpenAttempts("a", "r") != nil {
		t.Error("a committed run is in doubt")
	}
}

func TestFailedNeverEntersTheOracle(t *testing.T) {
	f := newFleet(t)
	f.say("x", 10, "r", 1, "pending", "n1")
	f.say("x", 11, "r", 1, "failed", "n1")
	s := f.state()
	if rec, ok := s.CommittedRun("a", "r"); ok {
		t.Errorf("oracle shows %+v", rec)
	}
	if s.RunState("a", "r") != fold.RunFailed {
		t.Errorf("state %v", s.RunState("a", "r"))
	}
}

func TestAnEndIsNeverRevertedByAPending(t *testing.T) {
	for _, end := range []string{"committed", "failed"} {
		f := newFleet(t)
		op := f.say("x", 10, "r", 1, end, "n1")
		f.say("y", 20, "r", 2, "pending", "n2")
		if rec, ok := f.state().Run("a", "r"); !ok || rec.ID != op.ID {
			t.Errorf("%s: %+v", end, rec)
		}
	}
}

func TestAZombieThatCommitsLateAtALowerEpochLoses(t *testing.T) {
	f := newFleet(t)
	f.say("zombie", 10, "r", 1, "pending", "n1")
	winner := f.say("heir", 20, "r", 2, "committed", "n2")
	f.say("zombie", 99, "r", 1, "committed", "n1") // later by the clock
	s := f.state()
	for name, view := range map[string]func(string, string) (fold.IntentRecord, bool){"oracle": s.CommittedRun, "runs": s.Run} {
		if rec, _ := view("a", "r"); rec.ID != winner.ID {
			t.Errorf("%s shows epoch %d", name, rec.Epoch)
		}
	}
}

func TestAPendingBelowTheFencingEpochIsAbsentButItsDoubtIsNot(t *testing.T) {
	f := newFleet(t)
	f.say("x", 10, "old", 1, "pending", "n1")
	f.say("y", 20, "other", 5, "pending", "n2") // another run of the agent
	s := f.state()
	if rec, ok := s.Run("a", "old"); ok {
		t.Errorf("a fenced pending holds the run: %+v", rec)
	}
	if _, ok := s.Run("a", "other"); !ok {
		t.Error("the pending at the highest epoch is absent")
	}
	open := s.OpenAttempts("a", "old")
	if len(open) != 1 || open[0].Device != "x" || open[0].Epoch != 1 || open[0].Begun.Attempt != "n1" || open[0].Ended.ID != "" {
		t.Errorf("a higher epoch erased the evidence of doubt: %+v", open)
	}
	if e, ok := s.FencingEpoch("a"); e != 5 || !ok {
		t.Errorf("fencing epoch %d, %v", e, ok)
	}
	if e, ok := s.FencingEpoch("nobody"); e != 0 || ok {
		t.Errorf("fencing epoch of an unknown agent %d, %v", e, ok)
	}
}

func TestEqualEpochsAreDecidedByStampThenID(t *testing.T) {
	f := newFleet(t)
	f.say("x", 10, "r", 3, "committed", "n1")
	last := f.say("y", 11, "r", 3, "committed", "n2")
	if rec, _ := f.state().CommittedRun("a", "r"); rec.ID != last.ID {
		t.Errorf("got %+v", rec)
	}
}

func TestWhoMayCloseAnAttempt(t *testing.T) {
	pending := func(f *fleet) { f.say("x", 10, "r", 1, "pending", "n1") }
	resolve := func(f *fleet, wall int64, status string) {
		f.intent("person", wall, oplog.Intent{RunID: "r", Agent: "a", Epoch: 1, Status: status, Attempt: "n1", By: "ann"})
	}
	cases := []struct {
		name  string
		write func(*fleet)
		want  []string
		state fold.RunState
		open  int
	}{
		{"nobody", func(f *fleet) {}, []string{"n1 x open"}, fold.RunOpen, 1},
		{"its device, committed", func(f *fleet) { f.say("x", 11, "r", 1, "committed", "n1") },
			[]string{"n1 x committed"}, fold.RunCommitted, 0},
		{"its device, failed", func(f *fleet) { f.say("x", 11, "r", 1, "failed", "n1") },
			[]string{"n1 x failed"}, fold.RunFailed, 0},
		{"another device, failed", func(f *fleet) { f.say("y", 11, "r", 2, "failed", "n1") },
			[]string{"n1 x open disputed"}, fold.RunOpen, 1},
		{"another device, committed", func(f *fleet) { f.say("y", 11, "r", 2, "committed", "n1") },
			[]string{"n1 x open disputed"}, fold.RunOpen, 1},
		{"a person, failed", func(f *fleet) { resolve(f, 11, "failed") }, []string{"n1 x failed"}, fold.RunFailed, 0},
		{"a person, committed", func(f *fleet) { resolve(f, 11, "committed") }, []string{"n1 x committed"}, fold.RunCommitted, 0},
		{"a person, then its device late", func(f *fleet) { resolve(f, 50, "failed"); f.say("x", 11, "r", 1, "committed", "n1") },
			[]string{"n1 x committed"}, fold.RunCommitted, 0},
		{"its device says failed, another committed", func(f *fleet) {
			f.say("x", 11, "r", 1, "failed", "n1")
			f.say("y", 12, "r", 1, "committed", "n1")
		}, []string{"n1 x failed disputed"}, fold.RunOpen, 1},
		{"a disputed run that a person settles is still shown as disputed", func(f *fleet) {
			f.say("y", 12, "r", 1, "committed", "n1")
			resolve(f, 13, "committed")
		}, []string{"n1 x committed disputed"}, fold.RunCommitted, 0},
		{"a second attempt commits", func(f *fleet) {
			f.say("y", 20, "r", 2, "pending", "n2")
			f.say("y", 21, "r", 2, "committed", "n2")
		}, []string{"n1 x open", "n2 y committed"}, fold.RunCommitted, 0},
		{"a second attempt fails", func(f *fleet) {
			f.say("y", 20, "r", 2, "pending", "n2")
			f.say("y", 21, "r", 2, "failed", "n2")
		}, []string{"n1 x open", "n2 y failed"}, fold.RunOpen, 1},
		{"void", func(f *fleet) {
			f.intent("x", 11, oplog.Intent{RunID: "r", Agent: "a", Epoch: 1, Status: "failed", Attempt: "n1", Cause: oplog.CauseVoid})
		}, []string{"n1 x void"}, fold.RunFree, 0},
		{"two devices began under one id", func(f *fleet) {
			f.say("y", 20, "r", 2, "pending", "n1")
			f.say("y", 21, "r", 2, "failed", "n1")
		}, []string{"n1 x open", "n1 y failed"}, fold.RunOpen, 1},
	}
	for _, c := range cases {
		f := newFleet(t)
		pending(f)
		c.write(f)
		s := f.state()
		if got := describe(s.Attempts("a", "r")); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if got := s.RunState("a", "r"); got != c.state {
			t.Errorf("%s: run is %v, want %v", c.name, got, c.state)
		}
		if got := s.OpenAttempts("a", "r"); len(got) != c.open {
			t.Errorf("%s: open %+v, want %d", c.name, got, c.open)
		}
	}
}

func TestAnIntentWithoutAttemptClosesOnlyItsOwn(t *testing.T) {
	f := newFleet(t)
	f.say("x", 10, "r", 1, "pending", "")
	f.say("y", 20, "r", 2, "pending", "")
	f.say("y", 21, "r", 2, "failed", "")
	s := f.state()
	if got := describe(s.Attempts("a", "r")); !slices.Equal(got, []string{"~x@1 x open", "~y@2 y failed"}) {
		t.Errorf("got %q", got)
	}
	f.intent("y", 22, oplog.Intent{RunID: "r", Agent: "a", Epoch: 2, Status: "failed", Attempt: "~x@1", By: "ann"})
	if got := f.state().RunState("a", "r"); got != fold.RunFailed {
		t.Errorf("a person cannot close it: %v", got)
	}
}

func TestAParkedCommitVetoesWithoutMovingTheDigest(t *testing.T) {
	f := newFleet(t)
	f.say("x", 10, "r", 1, "pending", "n1")
	future := f.say("x", 1_000_000, "r", 1, "committed", "n1")
	s := folded(f.ops[:1])
	before, front := s.Digest(), s.FrontierDigest()
	s.NoteParked(future)
	s.NoteParked(future)
	s.NoteParked(f.ops[0]) // folded: no note
	if rec, ok := s.CommittedRun("a", "r"); !ok || !rec.Parked || rec.ID != future.ID || s.RunState("a", "r") != fold.RunCommitted {
		t.Errorf("no veto: %+v, %v", rec, s.RunState("a", "r"))
	}
	if s.Digest() != before || s.FrontierDigest() != front {
		t.Error("a parked op moved a digest")
	}
	if !s.Apply(future) {
		t.Fatal("not folded when its time has come")
	}
	if rec, ok := s.CommittedRun("a", "r"); !ok || rec.Parked {
		t.Errorf("after folding: %+v", rec)
	}
	s.NoteParked(future)
	if s.Digest() != folded(f.ops).Digest() {
		t.Error("the note left a trace")
	}
}

func TestOnlyCommittedIntentsVetoWhileParked(t *testing.T) {
	f := newFleet(t)
	s := fold.New()
	s.NoteParked(f.say("x", 10, "r", 1, "pending", "n1"))
	s.NoteParked(f.say("x", 11, "r", 1, "failed", "n1"))
	s.NoteParked(f.write("x", 12, oplog.Run, `{"id":"r","agent_id":"a","status":"committed"}`))
	if rec, ok := s.CommittedRun("a", "r"); ok || s.RunState("a", "r") != fold.RunFree {
		t.Errorf("veto by %+v", rec)
	}
}

func TestMalformedIntentsFoldUnderTheEmptyAgent(t *testing.T) {
	f := newFleet(t)
	for i, p := range []string{`null`, `[]`, `{}`, `{"id":5,"agent_id":{},"epoch":"x","status":7}`, `"committed"`, `{"agent_id":"a","id":"r","status":"COMMITTED"}`} {
		f.write("x", int64(10+i), oplog.Intents, p)
	}
	s := f.state()
	if got := s.Agents(); !slices.Equal(got, []string{"", "a"}) {
		t.Errorf("agents %q", got)
	}
	if e, ok := s.FencingEpoch(""); e != 0 || !ok {
		t.Errorf("epoch %d, %v", e, ok)
	}
	if _, ok := s.CommittedRun("a", "r"); ok || s.RunState("a", "r") != fold.RunOpen {
		t.Error("an unknown status is not pending")
	}
}
