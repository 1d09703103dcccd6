package fold

import (
	"testing"

	"github.com/syncnode/syncnode/oplog"
)

func TestFoldingAParkedOpForgetsItsNote(t *testing.T) {
	s := New()
	commit := func(device string, seq uint64) oplog.Op {
		return oplog.Op{ID: oplog.OpID(device), Device: device, Seq: seq, HLC: oplog.HLC{Device: device}, Scope: oplog.Personal,
			Surface: oplog.Intents, Payload: []byte(`{"agent_id":"a","epoch":1,"id":"r","status":"committed"}`)}
	}
	ops := []oplog.Op{commit("x", 0), commit("x", 1), commit("y", 0)}
	for _, op := range ops {
		s.NoteParked(op)
	}
	if len(s.parked.byRun[runName{"a", "r"}]) != 3 {
		t.Fatalf("notes: %+v", s.parked)
	}
	for _, op := range ops {
		s.Apply(op)
	}
	s.NoteParked(ops[1]) // folded: no note
	if len(s.parked.byPos) != 0 || len(s.parked.byRun) != 0 {
		t.Errorf("left behind: %+v", s.parked)
	}
}

func TestALateEventMovesAtMostABlock(t *testing.T) {
	var l eventList
	for i := range 10_000 {
		l.insert(&Record{HLC: oplog.HLC{WallMS: int64(i * 7919 % 10_000)}})
	}
	appended := eventList{}
	for i := range 10_000 {
		appended.insert(&Record{HLC: oplog.HLC{WallMS: int64(i)}})
	}
	for _, list := range []eventList{l, appended} {
		count := 0
		for _, b := range list.blocks {
			count += len(b)
			if len(b) > blockSize || len(b) == 0 {
				t.Fatalf("a block of %d", len(b))
			}
		}
		if count != 10_000 {
			t.Errorf("%d records", count)
		}
	}
	if n := len(appended.blocks); n != 10_000/blockSize+1 {
		t.Errorf("appending leaves %d blocks, want them full", n)
	}
}
