package relay_test

import (
	"bytes"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/relaytest"
)

func TestLineLenIsNeverBelowTheLine(t *testing.T) {
	id := oplog.OpID("op-" + string(bytes.Repeat([]byte("f"), 64)))
	name := string(bytes.Repeat([]byte("d"), 128))
	for _, op := range []oplog.Op{
		relaytest.NewAuthor("a").Write(t, 1, 30)[0],
		{ID: id, Device: name, Seq: oplog.MaxInt, Prev: id, Scope: oplog.Shared(name), Surface: oplog.Registry(name),
			HLC: oplog.HLC{WallMS: oplog.MaxInt, Counter: 1<<32 - 1, Device: name}, Payload: []byte(`{}`)},
	} {
		if line := len(op.AppendLine(nil)) + 1; relay.LineLen(op) < line || relay.LineLen(op) > line+320 {
			t.Errorf("LineLen is %d, the line has %d bytes", relay.LineLen(op), line)
		}
	}
	if relay.MaxBytes < 2*oplog.MaxLine {
		t.Error("a page must hold more than the longest line")
	}
}

func TestNeedsStopsBelowWhatWasCollected(t *testing.T) {
	a := relaytest.NewAuthor("a")
	ops := a.Write(t, 9, 40)
	at := func(i int) oplog.Frontier { return oplog.Frontier{"a": {Seq: ops[i].Seq, ID: ops[i].ID}} }
	if _, err := relay.Needs("b", relay.Want{Held: at(2)}, at(8), at(3)); err == nil {
		t.Error("a pull from below the floor was not refused")
	}
	got, err := relay.Needs("b", relay.Want{Held: at(3)}, at(8), at(3))
	if err != nil || len(got) != 1 || got[0] != (relay.Wanted{Device: "a", From: 4, Last: 8}) {
		t.Errorf("a pull from the floor: %v, %v", got, err)
	}
}
