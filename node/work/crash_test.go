package work_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/internal/bubble"
)

// A process that dies between any two steps loses no occurrence and begins none twice.
func TestACrashBetweenAnyTwoStepsLosesNoOccurrenceAndBeginsNoneTwice(t *testing.T) {
	for _, proof := range []bool{true, false} {
		for step := 1; ; step++ {
			over := false
			inBubble(t, func(t *testing.T, w *world) {
				w.proof = proof
				f := parse(t, file(""))
				l := w.start("a", f, settings{crashAt: step})
				bubble.Pass(4*time.Minute + 30*time.Second)
				if over = !l.isCrashed(); over {
					l.end()
					return
				}
				l.end()
				bubble.Pass(7 * time.Second)
				again := w.start("a", f, settings{})
				bubble.Pass(6 * time.Minute)
				again.end()
				ends := w.everyOccurrence("report", w.firstSeen("report"), w.begin.Add(10*time.Minute), false)
				if ends["committed"] < 6 {
					t.Errorf("crash at step %d, proof %v: %v\n%s", step, proof, ends, again.said())
				}
				if t.Failed() {
					t.Fatalf("crash at step %d, proof %v:\n%s\n%s", step, proof, l.said(), again.said())
				}
			})
			if over {
				if step < 30 {
					t.Errorf("only %d steps", step)
				}
				break
			}
			if t.Failed() {
				return
			}
		}
	}
}

const severalAgents = `
version: 1
defaults: { ttl: 5s }
agents:
  report: { schedule: "@every 1m", command: [/bin/report] }
  mail: { schedule: "@every 1m", command: [/bin/mail], catchup: all, catchup_limit: 10 }
  crm: { schedule: "@every 1m", command: [/bin/crm], overlap: queue }
  sync: { schedule: "@every 1m", command: [/bin/sync], catchup: none }
`

// Nodes come, die, are cut off and come back as chance wants it.
func TestWhateverNodesComeAndGoNoOccurrenceIsLostOrBegunTwice(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		inBubble(t, func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			w.proof = rnd.IntN(2) == 0
			w.takes = time.Duration(rnd.IntN(90)) * time.Second
			f := parse(t, severalAgents)
			devices := []string{"a", "b", "c"}
			lives := map[string]*life{}
			for _, d := range devices {
				lives[d] = w.start(d, f, settings{})
			}
			for range 40 {
				bubble.Pass(time.Duration(rnd.IntN(60_000)) * time.Millisecond)
				d := devices[rnd.IntN(3)]
				l := lives[d]
				switch rnd.IntN(6) {
				case 0, 1:
					if l != nil {
						l.crash()
						lives[d] = nil
					}
				case 2:
					if l != nil {
						l.end()
						lives[d] = nil
					}
				case 3:
					if l != nil {
						l.fail(coordtest.Before)
					}
				default:
					if l == nil {
						lives[d] = w.start(d, f, settings{})
					} else {
						l.fail(coordtest.Fine)
					}
				}
			}
			for _, d := range devices {
				if lives[d] == nil {
					lives[d] = w.start(d, f, settings{})
				}
				lives[d].fail(coordtest.Fine)
			}
			w.mu.Lock()
			w.takes = time.Second // or some would wait still
			w.mu.Unlock()
			bubble.Pass(10 * time.Minute)
			last := time.Now().Add(-3 * time.Minute).Truncate(time.Minute)
			for _, d := range devices {
				lives[d].end()
			}
			for _, agent := range []string{"report", "mail", "crm", "sync"} {
				ends := w.everyOccurrence(agent, w.begin.Add(time.Minute), last, false)
				t.Logf("seed %d: %s: %v", seed, agent, ends)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

// The bound is the longer of the TTLs of the node's own lease and of its agents' leases, once more for each change of the coordinator's leader,
// and two seconds. The worst case is tried: the last renewals arrive at the moment of the death, and each change comes a moment before the end.
func TestADeadNodesAgentsAreTakenWithinItsTTLOnceMoreForEachNewLeaderAndTwoSeconds(t *testing.T) {
	for _, ttl := range []string{"5s", "30s"} {
		longest, err := time.ParseDuration(ttl)
		must(t, err)
		longest = max(longest, coord.DefaultTTL) // that of the node's own lease
		for changes := range 3 {
			inBubble(t, func(t *testing.T, w *world) {
				f := parse(t, strings.ReplaceAll(severalAgents, "ttl: 5s", "ttl: "+ttl))
				lives := map[string]*life{}
				for _, d := range []string{"a", "b", "c"} {
					lives[d] = w.start(d, f, settings{})
				}
				bubble.Pass(90 * time.Second)
				devices := map[string]bool{}
				for _, l := range w.leases() {
					devices[l.Device] = true
				}
				victim := w.leases()[0].Device
				w.store.Elect()
				lives[victim].die() // at this instant: crash would wait for its goroutines
				const moment = time.Millisecond
				for range changes {
					bubble.Pass(longest - moment)
					w.store.Elect()
				}
				bubble.Pass(longest - moment)
				had := 0
				for _, l := range w.leases() {
					if l.Device == victim {
						had++
					}
				}
				if had == 0 || len(devices) < 2 {
					t.Errorf("ttl %s, %d changes: a moment before the end %s has %d agents, of %v", ttl, changes, victim, had, devices)
				}
				bubble.Pass(moment + 2*time.Second)
				for _, l := range w.leases() {
					if l.Device == victim || l.Expired {
						t.Errorf("ttl %s, %d changes: %s is not taken: %+v", ttl, changes, l.Agent, l)
					}
				}
				bubble.Pass(5 * time.Minute)
				for _, l := range lives {
					l.end()
				}
				w.everyOccurrence("report", w.begin.Add(time.Minute), w.begin.Add(6*time.Minute), false)
			})
		}
	}
}

// leases are those of agents.
func (w *world) leases() []coord.Lease {
	var all []coord.Lease
	for _, id := range []string{"report", "mail", "crm", "sync"} {
		l, held, err := w.store.Process(coord.Process{}).Current(w.t.Context(), id)
		if err != nil || !held {
			w.t.Errorf("%s is held by nobody (%v)", id, err)
			continue
		}
		all = append(all, l)
	}
	return all
}
