package session_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// overtaken is a relay that has collected what device a wrote, and a copy of a from before, which holds the first `shared` ops of it.
func overtaken(t *testing.T, shared, later int) (r *memory.Relay, a, b, copied *device) {
	t.Helper()
	r = collecting()
	a, b = newSmall(t, "a"), newSmall(t, "b")
	for i := range shared {
		a.write(oplog.Conversation, fmt.Sprintf(`{"id":"shared %d"}`, i))
	}
	a.pump(r)
	copied = copyOf(t, a)
	copied.wall.add(time.Second)
	for i := range later {
		a.write(oplog.Conversation, fmt.Sprintf(`{"id":"later %d"}`, i))
	}
	b.some(3)
	pumpAll(r, a, b)
	a.publish(r)
	collect(t, r)
	return r, a, b, copied
}

// The relay cannot show any more how its chain went on, only that it did.
func TestABackupIsFrozenAlsoWhenWhatItLacksWasCollected(t *testing.T) {
	for name, wrote := range map[string]int{"it wrote nothing since": 0, "it wrote on": 2, "it wrote more than was collected": 9} {
		t.Run(name, func(t *testing.T) {
			r, a, b, copied := overtaken(t, 3, 4)
			for i := range wrote {
				copied.write(oplog.Conversation, fmt.Sprintf(`{"id":"of the copy %d"}`, i))
			}
			for range 2 { // once it is frozen it stays so, and says it again
				if _, err := copied.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
					t.Fatalf("got %v", err)
				}
			}
			note, ok, err := copied.journal().Frozen()
			if err != nil || !ok || note.First != 3 {
				t.Fatalf("noted %+v, %v, %v", note, ok, err)
			}
			next := renewed(t, copied)
			if n := reissue(t, copied, next); n != wrote {
				t.Errorf("%d ops were written again, expected the %d of the copy", n, wrote)
			}
			next.open()
			pumpAll(r, a, b, next)
			same(t, a, b, next)
			var events int
			a.View(func(s *stateOf) { events = count(s, oplog.Conversation) })
			if events != 3+4+wrote {
				t.Errorf("%d ops are in the state, expected %d", events, 3+4+wrote)
			}
		})
	}
}

// The checkpoint only says that the chain went on; where both part is found in the relay's.
func TestAForkThatACheckpointShowedIsWrittenAgainFromWhereItParted(t *testing.T) {
	r := collecting()
	a, b := newSmall(t, "a"), newSmall(t, "b")
	a.some(3)
	a.pump(r)
	copied := copyOf(t, a)
	copied.wall.add(time.Second)
	copied.write(oplog.Conversation, `{"id":"of the copy"}`)
	a.some(4)
	pumpAll(r, a, b)
	a.publish(r) // and nothing is collected
	if _, _, err := copied.Rebase(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
		t.Fatalf("got %v", err)
	}
	if _, noted, err := copied.journal().Frozen(); !noted || err != nil {
		t.Errorf("the call that found it out did not note it: %v", err)
	}
	if _, err := copied.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
		t.Fatalf("got %v", err)
	}
	note, ok, err := copied.journal().Frozen()
	if err != nil || !ok || note.First != 3 || !note.Fork {
		t.Errorf("noted %+v, %v, %v", note, ok, err)
	}
	if n := reissue(t, copied, renewed(t, copied)); n != 1 {
		t.Errorf("%d ops were written again", n)
	}
}

// Nothing shows that the relay had them: rather twice than never.
func TestWhatTheRelayMayHaveCollectedIsWrittenAgainIfNothingShowsIt(t *testing.T) {
	r := collecting()
	a, b := newSmall(t, "a"), newSmall(t, "b")
	a.write(oplog.Conversation, `{"id":"shown"}`)
	a.write(oplog.DeclAgent, `{"id":"overwritten"}`)
	a.pump(r)
	copied := copyOf(t, a)
	a.write(oplog.DeclAgent, `{"id":"overwritten","v":2}`)
	pumpAll(r, a, b)
	a.publish(r)
	collect(t, r)
	if _, err := copied.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
		t.Fatalf("got %v", err)
	}
	if n := reissue(t, copied, renewed(t, copied)); n != 1 {
		t.Errorf("%d ops were written again, expected the one that no state shows", n)
	}
}

func TestAnIDThatWasClosedIsFrozenAndItsOpsAreWrittenAgain(t *testing.T) {
	for name, meet := range map[string]func(*device, relay.Relay) error{
		"by a push":    func(d *device, r relay.Relay) error { _, err := d.Pump(d.t.Context(), r); return err },
		"by a rebase":  func(d *device, r relay.Relay) error { _, _, err := d.Rebase(d.t.Context(), r); return err },
		"by a publish": func(d *device, r relay.Relay) error { _, err := d.Publish(d.t.Context(), r); return err },
	} {
		t.Run(name, func(t *testing.T) {
			r := collecting()
			a, b, c := newSmall(t, "a"), newSmall(t, "b"), newSmall(t, "c")
			c.write(oplog.Conversation, `{"id":"pushed"}`)
			pumpAll(r, a, b, c)
			a.publish(r, "c")
			collect(t, r)
			c.write(oplog.Conversation, `{"id":"not pushed"}`)
			if err := meet(c, r); !errors.Is(err, session.ErrFrozen) {
				t.Fatalf("got %v", err)
			}
			if _, noted, err := c.journal().Frozen(); !noted || err != nil {
				t.Errorf("the call that found it out did not note it: %v", err)
			}
			if _, err := c.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
				t.Fatalf("then %v", err)
			}
			next := renewed(t, c)
			if n := reissue(t, c, next); n != 1 {
				t.Errorf("%d ops were written again", n)
			}
			next.open()
			pumpAll(r, a, b, next)
			for _, d := range []*device{a, b, next} { // closed or not: they hold the same
				if !d.HeldFrontier().Equal(a.HeldFrontier()) || d.Digest() != a.Digest() {
					t.Errorf("%s holds %v, a %v, and the digests are equal: %v", d.name, d.HeldFrontier(), a.HeldFrontier(), d.Digest() == a.Digest())
				}
			}
		})
	}
}

// What is left of it is in the relay's checkpoint alone.
func TestAColdDeviceLearnsOfAClosedChainThatLeftNoRows(t *testing.T) {
	r := collecting()
	a, c := newSmall(t, "a"), newSmall(t, "c")
	c.write(oplog.Conversation, `{"id":"pushed"}`)
	pumpAll(r, a, c)
	a.publish(r, "c")
	collect(t, r)
	cold := newSmall(t, "d")
	if rep := cold.pump(r); rep.Adopted == nil || cold.Digest() != a.Digest() {
		t.Errorf("adopted %+v, and the digests are equal: %v", rep.Adopted, cold.Digest() == a.Digest())
	}
	f := relaytest.NewFaultyCollector(r)
	for range 2 { // who holds it all asks once
		a.open()
		a.pump(f)
		a.pump(f)
	}
	if n := f.Calls()["pull"]; n > 2 {
		t.Errorf("%d pulls", n)
	}
}

func TestAChainOfWhichAnotherRelayHasMoreIsNotClosed(t *testing.T) {
	one, two := collecting(), collecting()
	a, c := newSmall(t, "a"), newSmall(t, "c")
	c.some(4)
	c.pump(one)
	c.pump(two)
	c.some(4)
	c.pump(two)
	for _, r := range []relay.Relay{one, two, one} { // a has it all, and says so to the first
		a.pump(r)
	}
	a.publish(one, "c")
	if _, closed := a.held(t).Closed["c"]; closed {
		t.Error("ops that are held were cut off for ever")
	}
	a.publish(two, "c")
	pumpAll(two, a)
	if at, closed := a.held(t).Closed["c"]; !closed || at.Seq != 7 {
		t.Errorf("closed at %d, %v; want all that is held", at.Seq, closed)
	}
}

// held is what the device's checkpoint says of itself.
func (d *device) held(t *testing.T) journal.Cut {
	t.Helper()
	cut, _, err := d.journal().Cut()
	if err != nil {
		t.Fatal(err)
	}
	return cut
}

// Acks tell what a replica has, from wherever it has it.
func TestPublishCoversNoMoreThanTheRelayHolds(t *testing.T) {
	one, two := collecting(), collecting()
	a, b := newSmall(t, "a"), newSmall(t, "b")
	a.some(8)
	a.pump(one)
	b.some(4)
	b.pump(one) // has what a wrote
	b.pump(two) // and says so
	if out := b.publish(two); !out.New {
		t.Errorf("published %+v", out)
	}
	if c, ok, err := two.Checkpoint(t.Context()); err != nil || !ok || c.All().Covers("a", 0) || !c.All().Covers("b", 3) {
		t.Errorf("the checkpoint covers %v, %v, %v", c.All(), ok, err)
	}
}

func TestAnOlderCheckpointOfAnotherRelayIsNothingNew(t *testing.T) {
	one, two := collecting(), collecting()
	a := newSmall(t, "a")
	a.some(8)
	a.pump(one)
	a.pump(two)
	a.publish(two)
	a.some(8)
	a.pump(one)
	if out := a.publish(one); !out.New {
		t.Fatalf("published %+v", out)
	}
	if _, ok, err := a.Rebase(t.Context(), two); ok || err != nil {
		t.Errorf("adopted %v, %v", ok, err)
	}
}
