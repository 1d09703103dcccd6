package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	coordmemory "github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

// sessionOf opens a real session on a directory of its own.
func sessionOf(t *testing.T, device string) *session.Session {
	t.Helper()
	j, err := journal.Open(t.Context(), journal.Config{Dir: t.TempDir(), Device: device})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	s, err := session.Open(t.Context(), session.Config{Device: device, Journal: j})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, s *session.Session, n int) {
	t.Helper()
	payload := fmt.Sprintf(`{"id":"k","value":"%s %d"}`, s.Device(), n)
	if _, err := s.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: "registry:test", Payload: []byte(payload)}); err != nil {
		t.Fatal(err)
	}
}

func TestTwoNodesWithRealSessionsConvergeAndTheLastWordIsPumpedOnStop(t *testing.T) {
	meeting := memory.New(memory.Config{})
	store := coordmemory.New(coordmemory.Config{})
	sessions := []*session.Session{sessionOf(t, "d1"), sessionOf(t, "d2")}
	stops := make([]func(), 2)
	for i, s := range sessions {
		p := store.Process(coord.Process{})
		n, err := node.New(node.Config{Device: s.Device(), Session: s, Settler: &settler{}, Leases: p, Runs: p,
			Relays: map[string]relay.Relay{"memory": meeting}, PumpEvery: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		stops[i] = func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
	for n := range 20 {
		write(t, sessions[n%2], n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for s := 0; s < 2; {
		if sessions[s].FoldedFrontier().Covers(sessions[1-s].Device(), 9) {
			s++
			continue
		}
		if !poll(ctx) {
			t.Fatalf("not converged: %v and %v", sessions[0].FoldedFrontier(), sessions[1].FoldedFrontier())
		}
	}
	if a, b := sessions[0].Digest(), sessions[1].Digest(); a != b {
		t.Errorf("digests %v and %v, want equal ones", a, b)
	}
	write(t, sessions[0], 20)
	stops[0]()
	info, err := meeting.Hello(t.Context(), "d1")
	if err != nil || info.Head.Seq != 10 {
		t.Errorf("the relay's head of d1 is %d after the stop (err %v), want 10", info.Head.Seq, err)
	}
	stops[1]()
}

// poll waits a moment between two looks; false when the test has waited long enough.
func poll(ctx context.Context) bool {
	select {
	case <-time.After(2 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}
