package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/seal"
)

func headerOf(op oplog.Op) seal.Header {
	return seal.Header{Device: op.Device, Seq: op.Seq, Prev: string(op.Prev), Wall: op.HLC.WallMS, Counter: op.HLC.Counter,
		Stamper: op.HLC.Device, Scope: string(op.Scope), Surface: string(op.Surface)}
}

// sealedChain is what a journal writes: each payload is sealed when seq, link and stamp are known.
func sealedChain(t *testing.T, s *seal.Sealer, n int) (lines [][]byte) {
	t.Helper()
	clock := oplog.NewClock("host-1")
	var prev oplog.OpID
	for seq := range n {
		op := oplog.Op{Device: "host-1", Seq: uint64(seq), Prev: prev, HLC: clock.Tick(1000), Scope: oplog.Personal, Surface: oplog.Knowledge}
		d, err := s.Draft(string(op.Scope), string(op.Surface), fmt.Appendf(nil, `{"id":"canary-%d"}`, seq))
		if err != nil {
			t.Fatal(err)
		}
		payload, err := d.Payload(headerOf(op))
		if err != nil {
			t.Fatal(err)
		}
		if op, err = oplog.New(op.Device, op.Seq, op.Prev, op.HLC, op.Scope, op.Surface, payload); err != nil {
			t.Fatal(err)
		}
		prev = op.ID
		lines = append(lines, op.AppendLine(nil))
	}
	return lines
}

func TestASealedChainVerifiesWithoutAKeyAndShowsNothing(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	stranger := sealer(t, nil, all)
	chain := oplog.NewChain("host-1")
	for i, line := range sealedChain(t, s, 20) {
		if bytes.Contains(line, []byte("canary")) {
			t.Errorf("line %d shows its content: %s", i, line)
		}
		op, err := oplog.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chain.Admit(op, 1000); err != nil {
			t.Errorf("line %d: %v", i, err)
		}
		if _, err := stranger.Read(headerOf(op), op.Payload); !errors.Is(err, seal.ErrNoKey) {
			t.Errorf("line %d, without the key: %v", i, err)
		}
		got, err := s.Read(headerOf(op), op.Payload)
		if err != nil || string(got) != fmt.Sprintf(`{"id":"canary-%d"}`, i) || oplog.CheckCanonical(got) != nil {
			t.Errorf("line %d: %q, %v", i, got, err)
		}
	}
}

// Whoever stores ops can give any of them a new place and a fitting id, since ids need no key.
func TestASealedOpThatWasMovedInItsChainDoesNotOpen(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	lines := sealedChain(t, s, 3)
	var ops []oplog.Op
	for _, line := range lines {
		op, err := oplog.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	moved, err := oplog.New("host-1", 2, ops[1].ID, ops[2].HLC, oplog.Personal, oplog.Knowledge, ops[1].Payload)
	if err != nil || moved.Check() != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(headerOf(moved), moved.Payload); !errors.Is(err, seal.ErrTampered) || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}
