package fold_test

import (
	"fmt"
	"testing"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/oplog"
)

// The intents of a state give, folded anew, the same answers about runs and attempts.
func TestTheIntentsOfAStateAreWhatItsRunsFollowFrom(t *testing.T) {
	s, again := fold.New(), fold.New()
	clock := oplog.NewClock("a")
	var prev oplog.OpID
	for i := range 12 {
		status := []string{oplog.StatusPending, oplog.StatusFailed, oplog.StatusCommitted}[i/4]
		payload := fmt.Appendf(nil, `{"agent_id":"x%d","attempt":"t","epoch":%d,"id":"r%d","status":"%s"}`, i%2, i, i%4, status)
		op, err := oplog.New("a", uint64(i), prev, clock.Tick(1_700_000_000_000), oplog.Personal, oplog.Intents, payload)
		if err != nil {
			t.Fatal(err)
		}
		prev = op.ID
		s.Apply(op)
	}
	n, stop := uint64(0), 0
	for range s.Intents() {
		if stop++; stop == 2 {
			break
		}
	}
	prev = ""
	for r := range s.Intents() {
		if r.HLC.Device != "a" || r.Surface != oplog.Intents {
			t.Fatalf("%+v", r)
		}
		op, err := oplog.New("b", n, prev, oplog.HLC{WallMS: r.HLC.WallMS, Counter: uint32(n), Device: "b"}, r.Scope, r.Surface, r.Payload)
		if err != nil {
			t.Fatal(err)
		}
		n, prev = n+1, op.ID
		again.Apply(op)
	}
	if n < 4 {
		t.Fatalf("%d intents", n)
	}
	for _, agent := range s.Agents() {
		for _, run := range s.Runs(agent) {
			if s.RunState(agent, run) != again.RunState(agent, run) {
				t.Errorf("%s/%s is %v, and of its intents %v", agent, run, s.RunState(agent, run), again.RunState(agent, run))
			}
		}
	}
}
