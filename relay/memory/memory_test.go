package memory_test

import (
	"testing"
	"time"

	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
)

func TestConformance(t *testing.T) {
	newAt := func(_ *testing.T, maxBytes int64, now func() time.Time) func() relay.Relay {
		r := memory.New(memory.Config{MaxBytes: maxBytes, Now: now})
		return func() relay.Relay { return r }
	}
	relaytest.Run(t, relaytest.Options{
		New:    func(t *testing.T, maxBytes int64) func() relay.Relay { return newAt(t, maxBytes, time.Now) },
		NewAt:  newAt,
		Damage: func(_ *testing.T, r relay.Relay) { r.(*memory.Relay).DamageCheckpoint() },
	})
}

func TestRosterTimesComeFromTheGivenClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := memory.New(memory.Config{Now: func() time.Time { return now }})
	first := now
	if err := r.Register(t.Context(), "a", relay.Replica); err != nil {
		t.Fatal(err)
	}
	now = now.Add(48 * time.Hour)
	if _, err := r.Hello(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	roster, err := r.Roster(t.Context())
	if err != nil || len(roster) != 1 || !roster[0].Added.Equal(first) || !roster[0].Seen.Equal(now) {
		t.Errorf("roster %+v, %v", roster, err)
	}
}

func TestForgottenOpsCanBeOfferedAgain(t *testing.T) {
	r, a := memory.New(memory.Config{}), relaytest.NewAuthor("a")
	ops := a.Write(t, 5, 60)
	if _, err := r.Push(t.Context(), "a", ops); err != nil {
		t.Fatal(err)
	}
	r.Forget("a", 2)
	if info, err := r.Hello(t.Context(), "a"); err != nil || info.Head.Seq != 1 {
		t.Fatalf("head after forgetting: %+v, %v", info.Head, err)
	}
	if got, err := r.Push(t.Context(), "a", ops); err != nil || got != (relay.Pushed{Accepted: 3, Duplicate: 2}) {
		t.Errorf("offered again: %+v, %v", got, err)
	}
}
