package fold_test

import (
	"testing"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/fold/foldtest"
	"github.com/syncnode/syncnode/oplog"
)

// Whatever payloads say, folding never panics, and the result is the refolded one, in either order of devices.
func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"agent_id":"a","epoch":1,"id":"r","status":"pending"}`), []byte(`{"agent_id":"a","epoch":2,"id":"r","status":"committed"}`), byte(8))
	f.Add([]byte(`null`), []byte(``), byte(0))
	f.Add([]byte(`{"id":"k"}`), []byte(`{"id":"k","v":"\u0000"}`), byte(6))
	f.Add([]byte(`{"attempt":"~y@0","by":"x","status":"failed"}`), []byte(`{}`), byte(8))
	surfaces := []oplog.Surface{oplog.Knowledge, oplog.Skill, oplog.Trajectory, oplog.Run, oplog.Routing, oplog.Conversation,
		oplog.DeclAgent, oplog.Registry("m"), oplog.Intents, "unknown", ""}
	f.Fuzz(func(t *testing.T, p, q []byte, surface byte) {
		s := surfaces[int(surface)%len(surfaces)]
		a := literal("x", 0, s, string(p))
		b := literal("y", 0, s, string(q))
		b.ID = "op-b"
		c := literal("x", 1, oplog.Intents, string(q))
		one, two := fold.New(), fold.New()
		for _, op := range []oplog.Op{a, b, c} {
			one.NoteParked(op)
			one.Apply(op)
		}
		for _, op := range []oplog.Op{b, a, c} {
			two.Apply(op)
		}
		if one.Digest() != two.Digest() {
			t.Fatal("the order of devices changes the digest")
		}
		if one.Covers("x", 1) {
			compare(t, one, foldtest.Refold([]oplog.Op{a, b, c}))
		}
	})
}
