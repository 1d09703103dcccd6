package rules

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/coord"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func id(n int) string { return fmt.Sprintf("%032x", n) }

func alive(liveness string) bool { return liveness == "alive" }

// drawEntry makes any entry that the rules can have written.
func drawEntry(t *rapid.T) coord.Entry {
	e := coord.Entry{Agent: "a", Run: "r"}
	for n := range rapid.IntRange(0, 14).Draw(t, "attempts") {
		a := coord.Attempt{ID: id(n), Request: id(100 + n), Device: rapid.SampledFrom([]string{"d1", "d2"}).Draw(t, "device"),
			Liveness: rapid.SampledFrom([]string{"alive", "gone", ""}).Draw(t, "liveness"),
			State:    rapid.SampledFrom([]coord.State{coord.Open, coord.Void, coord.Failed, coord.Void, coord.Failed, coord.Committed}).Draw(t, "state")}
		a.Abandoned = a.State == coord.Open && rapid.Bool().Draw(t, "abandoned")
		a.Permitted = a.State == coord.Failed && rapid.Bool().Draw(t, "permitted")
		e.Attempts = append(e.Attempts, a)
	}
	return e
}

func drawFacts(t *rapid.T) Facts {
	f := Facts{Entry: drawEntry(t), Epoch: 3, Held: true, Ours: true, Alive: alive, Self: alive,
		Holder: coord.Lease{Agent: "a", Device: "d1", Epoch: 3, Handle: "h"}}
	f.Found = len(f.Entry.Attempts) > 0
	return f
}

func drawBegin(t *rapid.T) coord.Begin {
	n := rapid.IntRange(0, 20).Draw(t, "attempt")
	b := coord.Begin{Lease: coord.Lease{Agent: "a", Device: "d1", Epoch: 3, Handle: "h"}, Run: "r", Attempt: id(n), Request: id(100 + n)}
	b.RetryFailed = rapid.Bool().Draw(t, "retry failed")
	if n := rapid.IntRange(0, 20).Draw(t, "retry"); n < 15 && id(n) != b.Attempt {
		b.Retry = id(n)
	}
	return b
}

func drawOutcome(t *rapid.T) coord.Outcome {
	s := rapid.SampledFrom([]coord.State{coord.Open, coord.Void, coord.Failed, coord.Committed}).Draw(t, "outcome")
	return coord.Outcome{Agent: "a", Run: "r", Attempt: coord.Attempt{ID: id(rapid.IntRange(0, 15).Draw(t, "of")), Device: "d1",
		Epoch: 3, State: s, Abandoned: s == coord.Open, Ended: now}}
}

func count(e coord.Entry, s coord.State) (n int) {
	for _, a := range e.Attempts {
		if a.State == s {
			n++
		}
	}
	return n
}

func TestTrimNeverChangesTheStateAndKeepsAllCommittedAndOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		got := Trim(Clone(e))
		if want, is := coord.StateOf(e.Attempts, alive), coord.StateOf(got.Attempts, alive); is != want {
			t.Fatalf("%s became %s", want, is)
		}
		if count(got, coord.Committed) != count(e, coord.Committed) || count(got, coord.Open) != count(e, coord.Open) {
			t.Fatal("committed or open attempts were dropped")
		}
		if n := count(got, coord.Void) + count(got, coord.Failed); n > Kept+1 {
			t.Fatalf("%d closed attempts kept", n)
		}
		if again := Trim(Clone(got)); !reflect.DeepEqual(again, got) {
			t.Fatal("a second trim changed more")
		}
	})
}

// A begin is allowed only if nothing committed, nothing else runs or is in doubt, and no failure stands in
// the way; and then exactly one attempt is open.
func TestABeginThatIsAllowedLeavesOneOpenAttempt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, b := drawFacts(t), drawBegin(t)
		before := Clone(f.Entry)
		a, again, err := Begin(f, b)
		if !reflect.DeepEqual(before.Attempts, f.Entry.Attempts) {
			t.Fatal("the entry was changed")
		}
		if err != nil {
			if again || a.State == coord.Open {
				t.Fatalf("an error with a permission: %+v, %v", a, err)
			}
			return
		}
		if count(f.Entry, coord.Committed) > 0 {
			t.Fatal("begun over a commit")
		}
		if again {
			if a.ID != b.Attempt || a.Request != b.Request || a.State != coord.Open || a.Liveness != "alive" || a.Abandoned {
				t.Fatalf("a repeated yes for %+v", a)
			}
			return
		}
		if _, held := f.Entry.Find(b.Attempt); held {
			t.Fatal("an attempt is begun a second time")
		}
		e := Open(f, b, Attempt(b, f.Holder, "alive", now))
		if n := count(e, coord.Open); n != 1 {
			t.Fatalf("%d open attempts", n)
		}
		if closed, ok := f.Entry.Find(b.Retry); ok && closed.Running(alive) {
			t.Fatal("a running attempt was closed")
		}
		if state := coord.StateOf(f.Entry.Attempts, alive); state == coord.RunFailed && !b.RetryFailed {
			t.Fatal("begun over a failure without permission")
		}
		f.Entry, f.Found = e, true
		if _, again, err := Begin(f, b); !again || err != nil {
			t.Fatalf("the same question again: %v, %v", again, err)
		}
	})
}

func TestOnlyTheHolderAtItsEpochWithItsHandleBegins(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Facts, *coord.Begin)
		want  error
	}{
		"nobody holds it":   {func(f *Facts, _ *coord.Begin) { f.Held = false }, coord.ErrNotHeld},
		"another device":    {func(f *Facts, _ *coord.Begin) { f.Holder.Device = "d2" }, coord.ErrNotHeld},
		"an older epoch":    {func(_ *Facts, b *coord.Begin) { b.Lease.Epoch = 2 }, coord.ErrStale},
		"a later epoch":     {func(_ *Facts, b *coord.Begin) { b.Lease.Epoch = 4 }, coord.ErrStale},
		"another handle":    {func(_ *Facts, b *coord.Begin) { b.Lease.Handle = "g" }, coord.ErrStale},
		"another process":   {func(f *Facts, _ *coord.Begin) { f.Ours = false }, coord.ErrStale},
		"the holder itself": {func(*Facts, *coord.Begin) {}, nil},
		"expired, unstolen": {func(f *Facts, _ *coord.Begin) { f.Holder.Expired = true }, nil},
	} {
		f := Facts{Entry: coord.Entry{Agent: "a", Run: "r"}, Epoch: 3, Held: true, Ours: true,
			Holder: coord.Lease{Agent: "a", Device: "d1", Epoch: 3, Handle: "h"}}
		b := coord.Begin{Lease: f.Holder, Run: "r", Attempt: id(1), Request: id(2)}
		c.spoil(&f, &b)
		if _, _, err := Begin(f, b); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func TestAPackedRunIsCommittedWhateverIsAsked(t *testing.T) {
	f := Facts{Entry: coord.Entry{Agent: "a", Run: "r", Packed: true}, Found: true, Held: true, Ours: true}
	b := coord.Begin{Run: "r", Attempt: id(1), Request: id(2), Input: "x", RetryFailed: true}
	for _, ask := range []func(Facts, coord.Begin) (coord.Attempt, bool, error){Begin, Start} {
		_, _, err := ask(f, b)
		if v, ok := errors.AsType[*coord.VerdictError](err); !ok || !errors.Is(err, coord.ErrCommitted) || !v.Packed {
			t.Errorf("got %v", err)
		}
	}
	if _, changed, err := Cancel(f, b, now); changed || err != nil {
		t.Errorf("cancel: %v, %v", changed, err)
	}
	if _, changed := Join(f, coord.Outcome{Attempt: coord.Attempt{ID: id(1), State: coord.Committed}}); changed {
		t.Error("finish wrote beside a packed commit")
	}
	if f.View().State != coord.RunCommitted || !Witness(f.Entry) {
		t.Errorf("shown as %+v", f.View())
	}
}

// An outcome that stands is found standing, none is lost, and only its own attempt changes.
func TestJoinIsIdempotentAndTouchesItsOwnAttemptOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, o := drawFacts(t), drawOutcome(t)
		f.Entry = Trim(f.Entry)
		before := Clone(f.Entry)
		e, changed := Join(f, o)
		if !reflect.DeepEqual(before.Attempts, f.Entry.Attempts) && len(before.Attempts) > 0 {
			t.Fatal("the entry was changed")
		}
		for _, a := range f.Entry.Attempts {
			now, kept := e.Find(a.ID)
			if a.ID != o.Attempt.ID && kept && !reflect.DeepEqual(a, now) {
				t.Fatalf("%+v became %+v", a, now)
			}
			if !kept && (a.State == coord.Open || a.State == coord.Committed) {
				t.Fatalf("%+v was dropped", a)
			}
			if a.State == coord.Committed && now.State != coord.Committed {
				t.Fatal("a commit was undone")
			}
		}
		if o.Attempt.State == coord.Committed {
			if a, ok := e.Find(o.Attempt.ID); !ok || a.State != coord.Committed {
				t.Fatal("the commit does not stand")
			}
		}
		f.Entry, f.Found = e, len(e.Attempts) > 0
		if again, twice := Join(f, o); twice {
			t.Fatalf("repeated, it wrote %+v after %+v (first wrote: %v)", again, e, changed)
		}
	})
}

// Commits that arrive in any order are all kept.
func TestTheOrderOfOutcomesDecidesNothingAboutCommits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		var all []coord.Outcome
		for range rapid.IntRange(1, 5).Draw(t, "outcomes") {
			all = append(all, drawOutcome(t))
		}
		ids := func(order []coord.Outcome) map[string]bool {
			f := f
			for _, o := range order {
				f.Entry, _ = Join(f, o)
				f.Found = len(f.Entry.Attempts) > 0
			}
			got := map[string]bool{}
			for _, a := range f.Entry.Attempts {
				if a.State == coord.Committed {
					got[a.ID] = true
				}
			}
			return got
		}
		if a, b := ids(all), ids(rapid.Permutation(all).Draw(t, "order")); !reflect.DeepEqual(a, b) {
			t.Fatalf("%v and %v", a, b)
		}
	})
}

// After a Cancel the begin can never be allowed, whoever asks it under whatever lease.
func TestABeginGivenUpNeverOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, b := drawFacts(t), drawBegin(t)
		e, changed, err := Cancel(f, b, now)
		if err != nil {
			if a, ok := f.Entry.Find(b.Attempt); !ok || a.State != coord.Open || a.Request == b.Request && a.Device == b.Lease.Device {
				t.Fatalf("refused for %+v: %v", a, err)
			}
			return
		}
		for _, a := range f.Entry.Attempts {
			if now, ok := e.Find(a.ID); a.ID != b.Attempt && a.State == coord.Open && (!ok || now != a) {
				t.Fatal("another's open attempt was closed")
			}
		}
		if changed {
			f.Entry, f.Found = e, true
		}
		if _, _, err := Begin(f, b); err == nil {
			t.Fatalf("allowed after it was given up: %+v", f.Entry)
		}
	})
}

func TestAResolutionClosesOnlyWhatWasJudged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		r := coord.Resolution{Agent: "a", Run: "r", Attempt: id(rapid.IntRange(0, 15).Draw(t, "attempt")), By: "ana", Reason: "x",
			From:  rapid.SampledFrom([]coord.State{"", coord.Open, coord.Failed}).Draw(t, "from"),
			As:    rapid.SampledFrom([]coord.State{coord.Void, coord.Committed}).Draw(t, "as"),
			Force: rapid.Bool().Draw(t, "force")}
		e, changed, err := Resolve(f, r, now)
		a, held := f.Entry.Find(r.Attempt)
		judged := a.State == r.From || r.From == "" && a.State == coord.Open
		switch {
		case !f.Found:
			if !errors.Is(err, coord.ErrNotFound) {
				t.Fatalf("no entry: %v", err)
			}
		case !held || !judged:
			if !errors.Is(err, coord.ErrMoved) {
				t.Fatalf("%+v: %v", a, err)
			}
		case a.Running(alive) && !r.Force:
			if !errors.Is(err, coord.ErrInProgress) {
				t.Fatalf("%+v: %v", a, err)
			}
		case err != nil || !changed:
			t.Fatalf("%+v: %v, %v", a, changed, err)
		}
		if err != nil && changed {
			t.Fatal("an error that is written")
		}
		if changed {
			f.Entry = e
			if _, changed, err := Resolve(f, r, now); changed || err != nil {
				if _, kept := e.Find(r.Attempt); kept {
					t.Fatalf("repeated: %v, %v", changed, err)
				}
			}
		}
	})
}

func TestNextEpochIsOneAboveAllThatIsKnown(t *testing.T) {
	for _, c := range []struct {
		stored, holder, floor, next, jump coord.Epoch
		refused                           bool
	}{
		{0, 0, 0, 1, 0, false},
		{5, 5, 0, 6, 0, false},
		{5, 7, 0, 8, 0, false}, // the counter went back: the holder's epoch was given
		{5, 5, 5, 6, 0, false},
		{5, 5, 9, 10, 4, false},
		{0, 0, coord.MaxFloorJump, coord.MaxFloorJump + 1, coord.MaxFloorJump, false},
		{0, 0, coord.MaxFloorJump + 1, 0, 0, true},
		{7, 7, coord.MaxFloorJump + 8, 0, 0, true},
		{coord.MaxFloor - 1, 0, coord.MaxFloor, coord.MaxFloor + 1, 1, false},
		{coord.MaxFloor, 0, coord.MaxFloor + 1, 0, 0, true},
		{coord.MaxEpoch - 1, 0, 0, coord.MaxEpoch, 0, false},
		{coord.MaxEpoch, 0, 0, 0, 0, true},
	} {
		next, jump, err := NextEpoch("a", c.stored, c.holder, c.floor)
		if next != c.next || jump != c.jump || (err != nil) != c.refused || err != nil && !errors.Is(err, coord.ErrInvalid) {
			t.Errorf("%+v: got %d, %d, %v", c, next, jump, err)
		}
	}
}

func TestKeepNeedsTheVeryProcessOrProof(t *testing.T) {
	holder := coord.Lease{Agent: "a", Device: "d1", Epoch: 3}
	claim := Claim{"a", "d1", 3}
	dead := func(coord.Lease) bool { return true }
	for _, c := range []struct {
		name    string
		f       Facts
		claim   Claim
		dead    func(coord.Lease) bool
		rebind  bool
		want    error
		current coord.Epoch
	}{
		{"ours", Facts{Epoch: 3, Held: true, Ours: true, Holder: holder}, claim, nil, false, nil, 0},
		{"another process lives", Facts{Epoch: 3, Held: true, Holder: holder}, claim, nil, false, coord.ErrHeld, 0},
		{"another process is dead", Facts{Epoch: 3, Held: true, Holder: holder}, claim, dead, true, nil, 0},
		{"another process expired", Facts{Epoch: 3, Held: true, Holder: coord.Lease{Device: "d1", Epoch: 3, Expired: true}}, claim, nil, false, coord.ErrLost, 3},
		{"another device, even dead", Facts{Epoch: 3, Held: true, Holder: coord.Lease{Device: "d2", Epoch: 3}}, claim, dead, false, coord.ErrLost, 3},
		{"a later epoch, even dead", Facts{Epoch: 4, Held: true, Holder: coord.Lease{Device: "d1", Epoch: 4}}, claim, dead, false, coord.ErrLost, 4},
		{"released", Facts{Epoch: 3}, claim, dead, false, coord.ErrLost, 3},
	} {
		rebind, err := Keep(c.f, c.claim, c.dead)
		if rebind != c.rebind || !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, %v", c.name, rebind, err)
		}
		if lost, ok := errors.AsType[*coord.LostError](err); ok && lost.Current != c.current {
			t.Errorf("%s: current %d, want %d", c.name, lost.Current, c.current)
		}
	}
}

// Found by the property above: the oldest attempt, closed last, was dropped in the step that closed it.
func TestAnAttemptThatWasClosedJustNowIsKeptHoweverEarlyItBegan(t *testing.T) {
	f := Facts{Found: true, Alive: func(string) bool { return false }}
	f.Entry.Attempts = append(f.Entry.Attempts, coord.Attempt{ID: id(0), State: coord.Open})
	for i := range Kept {
		f.Entry.Attempts = append(f.Entry.Attempts, coord.Attempt{ID: id(i + 1), State: coord.Void})
	}
	e, changed := Join(f, coord.Outcome{Attempt: coord.Attempt{ID: id(0), State: coord.Void}})
	if got, ok := e.Find(id(0)); !changed || !ok || got.State != coord.Void {
		t.Errorf("changed %v, found %v: %+v", changed, ok, got)
	}
}

// What is told again about an attempt that the entry lacks moves no run towards free, and changes no other attempt.
func TestWhatIsRecreatedMovesNoRunTowardsFree(t *testing.T) {
	order := map[coord.RunState]int{coord.RunFree: 0, coord.RunFailed: 1, coord.RunInDoubt: 2, coord.RunRunning: 3, coord.RunCommitted: 4}
	rapid.Check(t, func(t *rapid.T) {
		f, o := drawFacts(t), drawOutcome(t)
		f.Entry = Trim(f.Entry)
		_, held := f.Entry.Find(o.Attempt.ID)
		e, changed := Recreate(f, o)
		was, is := coord.StateOf(f.Entry.Attempts, alive), coord.StateOf(e.Attempts, alive)
		if !held && order[is] < order[was] {
			t.Fatalf("%s became %s", was, is)
		}
		for _, a := range f.Entry.Attempts {
			now, kept := e.Find(a.ID)
			if a.ID != o.Attempt.ID && (kept && !reflect.DeepEqual(a, now) || !kept && (a.State == coord.Open || a.State == coord.Committed)) {
				t.Fatalf("%+v became %+v, %v", a, now, kept)
			}
		}
		if o.Attempt.State == coord.Committed && is != coord.RunCommitted {
			t.Fatal("a commit was not noted")
		}
		f.Entry, f.Found = e, len(e.Attempts) > 0
		if _, again := Recreate(f, o); again {
			t.Fatalf("written twice (first: %v): %+v", changed, e)
		}
	})
}
