package remote

import (
	"errors"
	"strconv"
	"testing"
)

func TestASessionRemembersItsLastRefusals(t *testing.T) {
	const more = maxRefusals + maxRefusals/2
	var r memo
	no := errors.New("no")
	for i := range more {
		r.add(strconv.Itoa(i), no)
	}
	for i := range more {
		var want error
		switch {
		case i >= more-maxAnswers:
			want = no
		case i >= more-maxRefusals:
			want = errRefusedBefore
		}
		if got := r.of(strconv.Itoa(i)); got != want {
			t.Fatalf("of refusal %d of %d is remembered: %v, want %v", i, more, got, want)
		}
	}
	if len(r.why) != maxRefusals || len(r.calls) != maxRefusals {
		t.Errorf("%d and %d are kept", len(r.why), len(r.calls))
	}
}
