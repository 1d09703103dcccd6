package node_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
)

// Whoever makes a checkpoint for one relay drops it from its journal; the other relay must not grow for that.
func TestAFleetThatMeetsAtTwoRelaysKeepsBothBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := newTally(memory.Config{}), newTally(memory.Config{})
		var fleet []*member
		for _, name := range []string{"d1", "d2", "d3"} {
			m := anchored(t, name, left)
			m.cfg.Relays = map[string]relay.Relay{"left": left, "right": right}
			fleet = append(fleet, m.start())
		}
		most, written := 0, 0
		for range 40 {
			for _, m := range fleet {
				for range 5 {
					write(t, m.Session, written)
					written++
				}
			}
			bubble.Pass(30 * time.Second)
			for _, m := range fleet {
				most = max(most, m.segments())
			}
		}
		if most == 0 || most > 16 {
			t.Errorf("a journal had %d segments at a time; want some, and it to stay flat", most)
		}
		bubble.Pass(time.Hour)
		for name, r := range map[string]*tally{"left": left, "right": right} {
			if kept := r.kept(t); kept > 160 {
				t.Errorf("the relay %s keeps %d of %d ops", name, kept, written)
			}
			t.Logf("%s: %d checkpoints, %d ops kept", name, r.of("put"), r.kept(t))
		}
		for name, r := range map[string]*tally{"left": left, "right": right} {
			cold := anchored(t, "cold-"+name, r).start()
			bubble.Pass(time.Minute)
			if want := fleet[0].Digest(); cold.Digest() != want || fleet[1].Digest() != want || fleet[2].Digest() != want {
				t.Errorf("the digests differ at %s", name)
			}
			cold.stop()
		}
		for _, m := range fleet {
			m.stop()
		}
	})
}
