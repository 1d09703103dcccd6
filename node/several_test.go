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
		written := writeForTwentyMinutes(t, fleet)
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
