package session_test

import (
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay/memory"
)

// What came from one relay is not acked to another that never had it: that one would seem to have lost it.
func TestARelayIsToldNothingOfWhatOnlyAnotherHolds(t *testing.T) {
	here, there := memory.New(memory.Config{}), memory.New(memory.Config{})
	a, c := newDevice(t, "a"), newDevice(t, "c")
	a.write(oplog.Knowledge, `{"id":"a"}`)
	c.write(oplog.Knowledge, `{"id":"c"}`)
	c.pump(there)
	for range 3 {
		for _, names := range [][]string{a.pump(there).Behind, a.pump(here).Behind} {
			if len(names) > 0 {
				t.Fatalf("a relay is said to have lost ops of %v", names)
			}
		}
	}
	c.pump(there)
	converged(t, a, c)
	if info, err := here.Hello(t.Context(), "a"); err != nil || info.Acked["a"].ID == "" || info.Acked["c"].ID != "" {
		t.Errorf("the relay was told %v (%v)", info.Acked, err)
	}
	if a.pump(here).Acked {
		t.Error("an ack that says nothing new was sent")
	}
	c.pump(here)
	a.pump(here)
	if info, err := here.Hello(t.Context(), "a"); err != nil || info.Acked["c"].ID == "" {
		t.Errorf("what the relay has now is not acked: %v (%v)", info.Acked, err)
	}
}

// Who writes all the time is further in one relay than in the other whenever somebody looks; what both hold is acked all the same.
func TestARelayIsAckedWhatItHoldsAlsoWhileAnotherIsAlwaysAhead(t *testing.T) {
	here, there := memory.New(memory.Config{}), memory.New(memory.Config{})
	a, c := newDevice(t, "a"), newDevice(t, "c")
	const rounds = 10
	for range rounds {
		c.write(oplog.Knowledge, `{"id":"c"}`)
		c.pump(here)
		c.write(oplog.Knowledge, `{"id":"c"}`)
		c.pump(there)
		a.pump(there)
		if names := a.pump(here).Behind; len(names) > 0 {
			t.Fatalf("a relay is said to have lost ops of %v", names)
		}
	}
	info, err := here.Hello(t.Context(), "a")
	if at, head := info.Acked["c"].Seq, info.Heads["c"].Seq; err != nil || at+4 < head {
		t.Errorf("acked up to %d of %d: %v", at, head, err)
	}
}
