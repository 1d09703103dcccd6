package memory_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
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

func TestWhatWasForgottenIsNotCollected(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r, a := memory.New(memory.Config{Now: func() time.Time { return now }, EvictAfter: -1, Grace: -1}), relaytest.NewAuthor("a")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	collect := func(want relay.Cause, dropped int) {
		t.Helper()
		var got relay.Collection
		sum := 0
		for range 2 { // marks, deletes
			var err error
			got, err = r.Collect(t.Context())
			must(err)
			sum += got.Dropped["a"]
		}
		if got.Reasons["a"].Cause != want || sum != dropped {
			t.Errorf("%+v, dropped %d; expected %d and %q", got, sum, dropped, want)
		}
	}
	_, err := r.Push(t.Context(), "a", a.Write(t, 6, 60))
	must(err)
	at := oplog.Frontier{"a": a.Head()}
	body := []byte("state")
	sum := sha256.Sum256(body)
	must(r.Register(t.Context(), "a", relay.Replica))
	must(r.Ack(t.Context(), "a", at))
	must(r.PutCheckpoint(t.Context(), "a", relay.Checkpoint{Hash: hex.EncodeToString(sum[:]), Frontier: at, Body: body}))
	r.Forget("a", 3)
	now = now.Add(1000 * 24 * time.Hour) // nobody is evicted
	collect(relay.BadChain, 0)
	other := a.Clone(3)
	_, err = r.Push(t.Context(), "a", other.Write(t, 4, 60))
	must(err)
	collect(relay.Disputed, 0)
	r.Forget("a", 3)
	_, err = r.Push(t.Context(), "a", a.Ops)
	must(err)
	collect("", 6)
}
