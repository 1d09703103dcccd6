package session_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// anchored are devices that all begin at a checkpoint, over a relay that collected what it covers, and the relay as it was yesterday:
// before the last checkpoint, after one before.
func anchoredFleet(t *testing.T, names ...string) (r, yesterday *memory.Relay, devices []*device) {
	t.Helper()
	r, devices = collecting(), newFleet(t, names...)
	for round := range 3 {
		if round == 2 {
			yesterday = r.Copy()
		}
		for _, d := range devices {
			d.some(20)
		}
		pumpAll(r, devices...)
		for _, d := range devices {
			d.publish(r)
		}
		pumpAll(r, devices...)
		collect(t, r)
	}
	return r, yesterday, devices
}

func TestARelayThatLostItsStoreGetsGoingByThePumpsOfItsDevices(t *testing.T) {
	losses := map[string]func(r, yesterday *memory.Relay) *memory.Relay{
		"emptied":   func(_, _ *memory.Relay) *memory.Relay { return collecting() },
		"yesterday": func(_, yesterday *memory.Relay) *memory.Relay { return yesterday },
		"yesterday, and its generation raised": func(_, yesterday *memory.Relay) *memory.Relay {
			yesterday.SetGeneration(1)
			return yesterday
		},
		"its newest ops forgotten": func(r, _ *memory.Relay) *memory.Relay {
			for _, name := range []string{"a", "b", "c"} {
				r.Forget(name, 0)
			}
			return r
		},
	}
	for name, loss := range losses {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}} {
			t.Run(name, func(t *testing.T) {
				before, yesterday, devices := anchoredFleet(t, "a", "b", "c")
				late := newSmall(t, "late") // not anchored
				late.some(8)
				late.pump(before)
				for _, d := range append(devices, late) {
					d.some(6) // never pushed before the loss
				}
				devices[2].pump(before) // and these are only in its journal and in the lost store
				r := loss(before, yesterday)
				seeded := 0
				for range 2 {
					for _, i := range order {
						if rep := devices[i].pump(r); rep.Seeded != "" {
							seeded++
						}
					}
				}
				late.pump(r)
				if name != "its newest ops forgotten" && seeded == 0 {
					t.Error("nobody says that the relay was seeded")
				}
				all := append(slices.Clone(devices), late)
				pumpAll(r, all...)
				same(t, all...)
				for _, d := range all {
					if got, want := all[0].FoldedFrontier()[d.name], d.HeldFrontier()[d.name]; got != want {
						t.Errorf("%s has written up to %v, everybody has %v", d.name, want, got)
					}
					if d.Status().Frozen != nil || len(d.Status().Quarantined) > 0 {
						t.Errorf("%s: %+v", d.name, d.Status())
					}
					d.verify()
				}
				cold := newSmall(t, "cold")
				pumpAll(r, append(all, cold)...)
				all = append(all, cold)
				for range 2 { // and it goes on as ever
					for _, d := range all {
						d.some(5)
					}
					pumpAll(r, all...)
					devices[1].publish(r)
					collect(t, r)
				}
				pumpAll(r, all...)
				same(t, all...)
			})
		}
	}
}

func TestASecondRelayIsSeededAndGoesOnBesideTheFirst(t *testing.T) {
	first, _, devices := anchoredFleet(t, "a", "b", "c")
	second := collecting()
	if rep := devices[1].pump(second); rep.Seeded == "" || rep.Pushed.Accepted == 0 && devices[1].HeldFrontier()["b"].Seq > 59 {
		t.Errorf("report %+v", rep)
	}
	for range 3 {
		for i, d := range devices {
			d.some(5)
			d.pump([]relay.Relay{first, second}[i%2]) // each is the way between some of them
		}
		pumpAll(first, devices...)
		pumpAll(second, devices...)
		devices[0].publish(first)
		devices[0].publish(second)
		collect(t, first)
		collect(t, second)
	}
	for _, r := range []*memory.Relay{first, second} {
		pumpAll(r, devices...)
		info, err := r.Hello(t.Context(), "asks")
		if err != nil || !info.Heads.Equal(devices[0].HeldFrontier()) {
			t.Errorf("a relay has %v, the devices %v; %v", info.Heads, devices[0].HeldFrontier(), err)
		}
	}
	same(t, devices...)
}

func TestWhatOnlyACheckpointHasOfADeviceThatIsGoneReachesANewRelay(t *testing.T) {
	r := collecting()
	a, gone := newSmall(t, "a"), newSmall(t, "gone")
	a.some(3) // all of a's own ops stay in its journal, so that it never seeds for its own sake
	gone.some(30)
	pumpAll(r, a, gone)
	a.publish(r)
	fresh := collecting()
	a.pump(fresh)
	a.publish(fresh)
	cold := newSmall(t, "cold")
	pumpAll(fresh, a, cold)
	same(t, a, cold)
	if cold.FoldedFrontier()["gone"] != a.FoldedFrontier()["gone"] {
		t.Errorf("it has %v", cold.FoldedFrontier())
	}
}

func TestADeviceThatWentBackIsToldByASeedOfAnother(t *testing.T) {
	_, _, devices := anchoredFleet(t, "a", "b")
	a, b := devices[0], devices[1]
	// Another journal under the id of a, which lost what b's checkpoint covers.
	back := newSmall(t, "a")
	back.some(3)
	fresh := collecting()
	if rep := b.pump(fresh); rep.Seeded == "" {
		t.Fatalf("report %+v", rep)
	}
	if _, err := back.Pump(t.Context(), fresh); !errors.Is(err, session.ErrFrozen) && !errors.Is(err, relay.ErrFrontierTruncated) {
		t.Errorf("pump of a device that went back: %v", err)
	}
	if back.Status().Frozen == nil {
		t.Error("it is not frozen")
	}
	if rep := a.pump(fresh); rep.Pushed.Duplicate != 0 || a.Status().Frozen != nil {
		t.Errorf("the honest one: %+v, %+v", rep, a.Status())
	}
	a.some(2)
	pumpAll(fresh, a, b)
	same(t, a, b)
}

func TestAFrozenDeviceNeverSeeds(t *testing.T) {
	_, _, devices := anchoredFleet(t, "a", "b")
	a, clash, twin := devices[0], collecting(), relaytest.NewAuthor("a")
	twin.Write(t, 100, 40)
	pushAll(t, clash, twin, 0)
	if _, err := a.Pump(t.Context(), clash); !errors.Is(err, session.ErrFrozen) {
		t.Fatalf("not frozen: %v", err)
	}
	fresh := collecting()
	rep, err := a.Pump(t.Context(), fresh)
	info, helloErr := fresh.Hello(t.Context(), "asks")
	if !errors.Is(err, session.ErrFrozen) || rep.Seeded != "" || helloErr != nil || len(info.Heads) > 0 || info.Checkpoint != "" {
		t.Errorf("a frozen device gave the relay %+v: %+v, %v", info, rep, err)
	}
}

func TestASeedOverAnotherBranchIsRefusedAndTold(t *testing.T) {
	_, _, devices := anchoredFleet(t, "a", "b")
	a, b := devices[0], devices[1]
	fresh := collecting()
	twin := relaytest.NewAuthor("b") // wrote under the id of b what b never had, and more than b's checkpoint of it
	twin.Write(t, 100, 40)
	pushAll(t, fresh, twin, 0)
	digest := a.Digest()
	rep, err := a.Pump(t.Context(), fresh)
	if !errors.Is(err, session.ErrRelayBehind) || !errors.Is(err, relay.ErrContradiction) || rep.Seeded != "" {
		t.Errorf("%+v, %v", rep, err)
	}
	if _, err := b.Pump(t.Context(), fresh); !errors.Is(err, session.ErrFrozen) && b.Status().Frozen == nil {
		t.Errorf("the owner: %v", err)
	}
	if a.Digest() != digest || a.Status().Frozen != nil {
		t.Error("the other one is hurt")
	}
}

func TestARelayThatKeepsNoCheckpointsSaysThatItCannotBeSeeded(t *testing.T) {
	_, _, devices := anchoredFleet(t, "a", "b")
	plain := relaytest.NewFaulty(collecting()) // no relay.Collector
	if _, err := devices[0].Pump(t.Context(), plain); !errors.Is(err, session.ErrRelayBehind) || !errors.Is(err, session.ErrNoCheckpoints) {
		t.Errorf("got %v", err)
	}
}

func TestASeedThatWasInterruptedIsTakenUpByTheNextPump(t *testing.T) {
	for _, fault := range []relaytest.Fault{relaytest.Before, relaytest.After} {
		for _, call := range []string{"seed", "hello", "push"} {
			_, _, devices := anchoredFleet(t, "a", "b")
			fresh := collecting()
			r := relaytest.NewFaultyCollector(fresh)
			failed := false
			r.Plan(func(c relaytest.Call) relaytest.Fault {
				if c.Name == call && !failed && (c.Name != "hello" || c.N == 2) {
					failed = true
					return fault
				}
				return relaytest.None
			})
			devices[0].some(4)
			if _, err := devices[0].Pump(t.Context(), r); !errors.Is(err, relaytest.ErrInjected) {
				t.Fatalf("%s: %v", call, err)
			}
			for _, d := range devices {
				if _, err := d.Pump(t.Context(), r); err != nil {
					t.Fatalf("%s: %v", call, err)
				}
			}
			pumpAll(fresh, devices...)
			same(t, devices...)
		}
	}
}

// A store that is changed in the middle of a pump: what the pump knows is of the one before.
func TestARelayThatBecomesAnotherStoreWhileItIsSeededIsBegunAnew(t *testing.T) {
	_, _, devices := anchoredFleet(t, "a", "b")
	liar := relaytest.NewLiar(collecting())
	liar.Tell(lies["it is another one each time"].lie(nil))
	if rep, err := devices[0].Pump(t.Context(), liar); !errors.Is(err, relay.ErrNotSent) || rep.Seeded == "" || rep.Acked {
		t.Errorf("%+v, %v", rep, err)
	}
	for range 2 {
		for _, d := range devices {
			d.pump(liar)
		}
	}
	same(t, devices...)
}
