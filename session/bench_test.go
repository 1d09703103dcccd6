package session_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// heldSizes are compared with each other: a cost that does not grow is the same in all.
var heldSizes = []int{1_000, 30_000}

func benchSession(b *testing.B, n int) (*session.Session, *memory.Relay, *relaytest.Author) {
	b.Helper()
	r, a := memory.New(memory.Config{MaxBytes: 1 << 40}), relaytest.NewAuthor("a")
	a.Write(b, n, 100)
	pushAll(b, r, a, 0)
	j, err := journal.Open(b.Context(), journal.Config{Dir: filepath.Join(b.TempDir(), "b"), Device: "b"})
	if err != nil {
		b.Fatal(err)
	}
	s, err := session.Open(b.Context(), session.Config{Device: "b", Journal: j})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Pump(b.Context(), r); err != nil {
		b.Fatal(err)
	}
	return s, r, a
}

func BenchmarkIdlePump(b *testing.B) {
	for _, n := range heldSizes {
		b.Run(fmt.Sprintf("held=%d", n), func(b *testing.B) {
			s, r, _ := benchSession(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Pump(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPumpOf20(b *testing.B) {
	for _, n := range heldSizes {
		b.Run(fmt.Sprintf("held=%d", n), func(b *testing.B) {
			s, r, a := benchSession(b, n)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				a.Write(b, 20, 100)
				pushAll(b, r, a, len(a.Ops)-20)
				b.StartTimer()
				if _, err := s.Pump(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCommittedRun(b *testing.B) {
	for _, n := range heldSizes {
		b.Run(fmt.Sprintf("held=%d", n), func(b *testing.B) {
			s, _, _ := benchSession(b, n)
			b.ReportAllocs()
			for b.Loop() {
				s.CommittedRun("agent", "run")
			}
		})
	}
}
