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
		if kept := r.of(strconv.Itoa(i)) == no; kept != (i >= more-maxRefusals) {
			t.Fatalf("refusal %d of %d is remembered: %v", i, more, kept)
		}
	}
	if len(r.why) != maxRefusals || len(r.calls) != maxRefusals {
		t.Errorf("%d and %d are kept", len(r.why), len(r.calls))
	}
}
