package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

// parted is a device and a copy of it that both wrote on; the copy is frozen. The copy has `unpushed` ops that no relay has.
func parted(t *testing.T, r *memory.Relay, first int, unpushed ...journal.Draft) (a, twin *device) {
	t.Helper()
	a = newDevice(t, "a")
	a.write(oplog.Knowledge, payloads(5)...)
	a.pump(r)
	twin = copyOf(t, a)
	twin.wall.add(time.Second)
	if first > 0 {
		a.write(oplog.Routing, payloads(first)...)
		a.pump(r)
	}
	if _, err := twin.Append(t.Context(), unpushed...); err != nil {
		t.Fatal(err)
	}
	if _, err := twin.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
		t.Fatalf("the copy is not frozen: %v", err)
	}
	return a, twin
}

func intentDraft(text string) journal.Draft {
	return journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: []byte(text)}
}

// renewed is the device under a new id, with an empty journal.
func renewed(t *testing.T, old *device) *device {
	t.Helper()
	d := newDevice(t, old.name+"2")
	d.wall.add(time.Minute)
	return d
}

func reissue(t *testing.T, from, to *device) int {
	t.Helper()
	n, err := session.Reissue(t.Context(), from.journal(), to.journal(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOpsThatNoRelayHasAreWrittenAgainUnderANewID(t *testing.T) {
	unpushed := []journal.Draft{
		intentDraft(`{"agent_id":"x","attempt":"t1","epoch":4,"id":"run","settled":9,"status":"committed"}`),
		{Scope: oplog.Personal, Surface: oplog.Conversation, Payload: []byte(`["hello"]`)},
		{Scope: oplog.Shared("acme"), Surface: oplog.Knowledge, Payload: []byte(`{"id":"mine"}`)},
	}
	for first := 1; first <= 6; first++ {
		t.Run(fmt.Sprint(first, " ops on the other side"), func(t *testing.T) {
			r := memory.New(memory.Config{})
			a, twin := parted(t, r, first, unpushed...)
			note, ok, err := twin.journal().Frozen()
			if err != nil || !ok || !note.Fork || note.First != 5 {
				t.Fatalf("note %+v, %v, %v: the chains part at seq 5", note, ok, err)
			}
			next := renewed(t, twin)
			if n := reissue(t, twin, next); n != len(unpushed) {
				t.Fatalf("%d ops were written again", n)
			}
			pumpAll(r, a, next)
			converged(t, a, next)
			in, ok := a.CommittedRun("x", "run")
			if !ok || in.HLC.Device != "a2" {
				t.Fatalf("the commit is %+v, %v", in, ok)
			}
			var text string
			for op, err := range next.journal().Own(0) {
				if err != nil {
					t.Fatal(err)
				}
				if op.Seq == 0 {
					text = string(op.Payload)
				}
			}
			old, _, err := twin.journal().OpAt(5)
			if err != nil || !strings.Contains(text, `"reissue_of":"`+string(old.ID)+`"`) || !strings.Contains(text, `"device":"a"`) || strings.Contains(text, "settled") {
				t.Errorf("written again as %s, %v", text, err)
			}
			passes, err := next.journal().Passes()
			head, _ := next.journal().Head()
			if err != nil || len(passes) != 1 || passes[0] != (journal.Pass{From: "a", First: 5, Last: 7, At: 0, End: head.ID}) {
				t.Errorf("passes %+v, %v", passes, err)
			}
			if n := reissue(t, twin, next); n != 0 {
				t.Errorf("once more: %d ops", n)
			}
		})
	}
}

func TestARestoredBackupWritesAgainOnlyWhatItWroteItself(t *testing.T) {
	r := memory.New(memory.Config{})
	a := newDevice(t, "a")
	a.write(oplog.Knowledge, payloads(3)...)
	backup := copyOf(t, a)
	a.write(oplog.Knowledge, `{"id":"later"}`)
	a.pump(r)
	if _, err := backup.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
		t.Fatal(err)
	}
	own := backup.write(oplog.Knowledge, `{"id":"after the restore"}`)
	next := renewed(t, backup)
	if n := reissue(t, backup, next); n != len(own) {
		t.Errorf("%d ops were written again", n)
	}
}

func TestWhatWasRunningUnderTheOldIDIsFoundLater(t *testing.T) {
	r := memory.New(memory.Config{})
	_, twin := parted(t, r, 2, intentDraft(`{"agent_id":"x","attempt":"t1","epoch":4,"id":"run","status":"pending"}`))
	next := renewed(t, twin)
	reissue(t, twin, next)
	next.open()
	next.write(oplog.Knowledge, `{"id":"new"}`)
	if _, err := twin.journal().Append(t.Context(), intentDraft(`{"agent_id":"x","attempt":"t1","epoch":4,"id":"run","status":"committed"}`)); err != nil {
		t.Fatal(err)
	}
	if n := reissue(t, twin, next); n != 1 {
		t.Errorf("%d ops were written again", n)
	}
	next.open()
	if _, ok := next.CommittedRun("x", "run"); !ok {
		t.Error("the end of the run is lost")
	}
}

func TestAFrozenIDStaysFrozenWhateverTheRelaySaysLater(t *testing.T) {
	r := memory.New(memory.Config{})
	_, twin := parted(t, r, 2, intentDraft(`{"id":"r"}`))
	twin.open()
	if twin.Status().Frozen == nil || !twin.Status().Frozen.Fork {
		t.Fatal("forgotten")
	}
	empty := memory.New(memory.Config{})
	if rep, err := twin.Pump(t.Context(), empty); !errors.Is(err, session.ErrFrozen) || rep.Pushed.Accepted != 0 {
		t.Errorf("pushed %+v to another relay, %v", rep.Pushed, err)
	}
}

func TestNothingIsWrittenAgainUnlessTheIDIsFrozen(t *testing.T) {
	a := newDevice(t, "a")
	a.write(oplog.Knowledge, payloads(3)...)
	next := renewed(t, a)
	if n, err := session.Reissue(t.Context(), a.journal(), next.journal(), nil); n != 0 || !errors.Is(err, journal.ErrNotFrozen) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestACrashAtAnyStepOfReissueWritesNothingTwiceAndLosesNothing(t *testing.T) {
	steps := 0
	for n := 0; ; n++ {
		r := memory.New(memory.Config{})
		var unpushed []journal.Draft
		for i := range 4 {
			unpushed = append(unpushed, journal.Draft{Scope: oplog.Personal, Surface: oplog.Routing, Payload: fmt.Appendf(nil, `[%d]`, i)})
		}
		_, twin := parted(t, r, 1, unpushed...)
		next := renewed(t, twin)
		from, to := twin.journal(), next.journal()
		left, hit := n, false
		next.disk.failing(func(string, string) error {
			if hit = hit || left == 0; hit {
				return errDisk
			}
			left--
			return nil
		})
		_, err := session.Reissue(t.Context(), from, to, nil)
		next.disk.failing(nil)
		if !hit {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		steps++
		if n%2 == 1 { // another process writes before it is tried again
			if _, err := next.journal().Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Conversation, Payload: []byte(`1`)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			reissue(t, twin, next)
		}
		var got []string
		for op, err := range next.journal().Own(0) {
			if err != nil {
				t.Fatal(err)
			}
			if op.Surface == oplog.Routing {
				got = append(got, string(op.Payload))
			}
		}
		if fmt.Sprint(got) != "[[0] [1] [2] [3]]" {
			t.Fatalf("crash at step %d: written again as %v", n, got)
		}
	}
	if steps < 8 {
		t.Errorf("only %d steps", steps)
	}
}
