package coord_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/syncnode/syncnode/coord"
)

func TestAnErrorAboutRunsThatCannotBeReadKeepsThreeAndCountsTheOthers(t *testing.T) {
	var all coord.UnreadableError
	if err := all.Err(); err != nil {
		t.Errorf("of none: %v", err)
	}
	n := 0
	for _, page := range []int{2, 0, 1000, 1000} {
		runs := make([]coord.UnreadableRun, page)
		for i := range runs {
			runs[i] = coord.UnreadableRun{Agent: "a", Run: fmt.Sprint("r", n), Reason: "damaged"}
			n++
		}
		all.Add(runs)
	}
	const want = "2002 cannot be read: run r0 of agent a: damaged; run r1 of agent a: damaged; run r2 of agent a: damaged; and 1999 more"
	if err := all.Err(); !errors.Is(err, coord.ErrUnreadable) || err.Error() != want || len(all.First) != 3 {
		t.Errorf("%d are kept: %v", len(all.First), err)
	}
}

// Nothing in a person's words is taken for an error of ours, or for a line of its own.
func TestTheReasonOfAGateIsQuoted(t *testing.T) {
	err := &coord.GateError{Kind: coord.ErrPaused, Agent: "a", Gate: coord.Gate{By: "ada", Reason: "client: wrong\n\"build\""}}
	if want := `coord: agent is paused: by ada: "client: wrong\n\"build\""`; err.Error() != want {
		t.Errorf("got %s, want %s", err, want)
	}
}
