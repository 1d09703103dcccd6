package session_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// bogus is an op id that nothing has.
func bogus(word string) oplog.OpID { return oplog.OpID("op-" + hashOf(word)) }

// A lieCase is a lie, and what a pump says while it is told, and no pump says of an honest relay. Nil: the lie shows nowhere, since it
// changes nothing; each pump is as with an honest one.
type lieCase struct {
	lie     func(store *memory.Relay) relaytest.Lie
	noticed func(rep session.Report, err error, st session.Status) bool
}

func unproved(_ session.Report, err error, _ session.Status) bool {
	return errors.Is(err, session.ErrUnproved)
}

// lacks says that the relay has not what it had, or answered for, of this device.
func lacks(rep session.Report, _ error, st session.Status) bool {
	return slices.Contains(rep.Behind, st.Device)
}

func quarantined(_ session.Report, _ error, st session.Status) bool { return len(st.Quarantined) > 0 }

var lies = map[string]lieCase{
	"it says that it holds less of others": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Hello: func(device string, i *relay.Info) {
				for d := range i.Heads {
					if d != device {
						delete(i.Heads, d)
					}
				}
			}}
		},
		func(rep session.Report, _ error, _ session.Status) bool { return len(rep.Behind) > 0 },
	},
	"it says that it holds more of others": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Hello: func(device string, i *relay.Info) {
				for d, p := range i.Heads {
					if d != device {
						i.Heads[d] = oplog.Pos{Seq: p.Seq + 9, ID: bogus("more")}
					}
				}
			}}
		},
		func(rep session.Report, _ error, _ session.Status) bool { return len(rep.Withheld) > 0 },
	},
	"it says that it has nothing of the own chain": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Hello: func(_ string, i *relay.Info) { i.Head, i.Known = oplog.Head{}, false }}
		},
		func(rep session.Report, _ error, _ session.Status) bool {
			return rep.Pushed.Duplicate > 0 || rep.Seeded != ""
		},
	},
	"it says that the own chain is another": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Hello: func(_ string, i *relay.Info) { i.Head.ID = bogus("fork") }}
		}, unproved,
	},
	"it says that the own chain is longer, and gives none of it": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Hello: func(_ string, i *relay.Info) { i.Head.Seq += 5; i.Head.ID = bogus("longer") }}
		},
		unproved,
	},
	"it calls each push a fork": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Refuse: func(ops []oplog.Op) error {
				return &relay.ForkError{Device: ops[0].Device, Seq: ops[0].Seq, Existing: bogus("x"), Got: ops[0].ID}
			}}
		},
		func(_ session.Report, err error, st session.Status) bool {
			return errors.Is(err, relay.ErrFork) && st.Frozen == nil
		},
	},
	"it calls each push a gap": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Refuse: func(ops []oplog.Op) error {
				return &relay.GapError{Device: ops[0].Device, Expected: 0, Found: ops[0].Seq}
			}}
		},
		func(_ session.Report, err error, _ session.Status) bool { return errors.Is(err, relay.ErrGap) },
	},
	"it answers for pushes that it drops": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Push: func([]oplog.Op) []oplog.Op { return nil }}
		},
		lacks,
	},
	"it keeps a part of each push": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Push: func(ops []oplog.Op) []oplog.Op { return ops[:len(ops)/2] }}
		},
		lacks,
	},
	"it gives another op of a peer": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Pull: func(p *relay.Page) {
				for i := range p.Ops {
					p.Ops[i].Prev = bogus("prev")
					p.Ops[i].ID = p.Ops[i].ComputeID()
				}
			}}
		}, quarantined,
	},
	"it repeats, reorders and mixes": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Pull: func(p *relay.Page) {
				p.Ops = append(p.Ops, p.Ops...)
				slices.Reverse(p.Ops)
			}}
		},
		nil, // each op is taken once, in its place
	},
	"it leaves ops out": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Pull: func(p *relay.Page) { p.Ops = p.Ops[min(1, len(p.Ops)):] }}
		},
		func(rep session.Report, _ error, st session.Status) bool {
			return len(st.Quarantined)+len(rep.Withheld) > 0
		},
	},
	"it gives nothing": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Pull: func(p *relay.Page) { *p = relay.Page{} }}
		},
		func(rep session.Report, _ error, _ session.Status) bool { return len(rep.Withheld) > 0 },
	},
	"it says that more was acked": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Hello: func(device string, i *relay.Info) {
				i.Acked = oplog.Frontier{}
				for d, p := range i.Heads {
					i.Acked[d] = oplog.Pos{Seq: p.Seq + 100, ID: bogus("acked")}
				}
			}}
		},
		func(rep session.Report, _ error, _ session.Status) bool { return len(rep.Behind) > 0 },
	},
	"it drops acks": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Ack: func(oplog.Frontier) oplog.Frontier { return nil }}
		},
		func(rep session.Report, _ error, _ session.Status) bool { // said again with each pump, also of one that does nothing else
			return rep.Acked && rep.Pulled == 0 && rep.Pushed == relay.Pushed{}
		},
	},
	"it is another one each time": {
		func(*memory.Relay) relaytest.Lie {
			n := 0
			return relaytest.Lie{Hello: func(_ string, i *relay.Info) { n++; i.Instance = fmt.Sprintf("%032x", n) }}
		},
		func(rep session.Report, _ error, _ session.Status) bool {
			return strings.HasPrefix(rep.Instance, "0000000000")
		},
	},
	"its generation rises each time": {
		func(*memory.Relay) relaytest.Lie {
			n := uint64(0)
			return relaytest.Lie{Hello: func(_ string, i *relay.Info) { n++; i.Generation = n }}
		},
		func(rep session.Report, _ error, _ session.Status) bool { return rep.Generation > 0 },
	},
	"it says that its floor is above everything": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Hello: func(_ string, i *relay.Info) {
				for d, p := range i.Heads {
					i.Floor[d] = oplog.Pos{Seq: p.Seq + 100, ID: bogus("floor")}
				}
			}}
		},
		nil, // pulls say what counts
	},
	"it forgets what it holds": {
		func(store *memory.Relay) relaytest.Lie {
			return relaytest.Lie{Hello: func(device string, i *relay.Info) {
				for d := range i.Heads {
					store.Forget(d, i.Heads[d].Seq)
				}
			}}
		},
		func(rep session.Report, _ error, _ session.Status) bool { return len(rep.Behind) > 0 },
	},
	"its roster says that everybody has everything": {
		func(*memory.Relay) relaytest.Lie {
			return relaytest.Lie{Roster: func(rows []relay.Member) {
				for i := range rows {
					for d, p := range rows[i].Acked {
						rows[i].Acked[d] = oplog.Pos{Seq: p.Seq + 100, ID: bogus("row")}
					}
				}
			}}
		},
		nil, // what the relay holds bounds it
	},
}

// TestNoLieOfARelayLosesWhatWasAcknowledgedOrReplacesAnOp tells each lie to a fleet, part of which begins at a checkpoint, while it writes and
// publishes, and then the truth.
func TestNoLieOfARelayLosesWhatWasAcknowledgedOrReplacesAnOp(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(lies)) {
		t.Run(name, func(t *testing.T) {
			c, told := lies[name], false
			tellAFleet(t, c.lie, func(rep session.Report, err error, st session.Status) {
				switch {
				case c.noticed != nil:
					told = told || c.noticed(rep, err, st)
				case err != nil || rep.Refused > 0 || len(rep.Behind)+len(rep.Withheld)+len(st.Quarantined) > 0:
					t.Errorf("it changed something: %v, %+v, %+v", err, rep, st)
				}
			})
			if c.noticed != nil && !told {
				t.Error("nobody noticed")
			}
		})
	}
}

func TestNothingThatGivesALieAwayIsSeenOfAnHonestRelay(t *testing.T) {
	honest := func(*memory.Relay) relaytest.Lie { return relaytest.Lie{} }
	tellAFleet(t, honest, func(rep session.Report, err error, st session.Status) {
		for name, c := range lies {
			if c.noticed != nil && c.noticed(rep, err, st) {
				t.Errorf("%s notices %q: %v, %+v", st.Device, name, err, rep)
			}
		}
	})
}

// tellAFleet has a fleet write, publish and pump while it is lied to, then rest, then hear the truth. pumped hears of each pump until then.
func tellAFleet(t *testing.T, lie func(*memory.Relay) relaytest.Lie, pumped func(session.Report, error, session.Status)) {
	t.Helper()
	store := collecting()
	liar := relaytest.NewLiar(store)
	devices := newFleet(t, "a", "b", "c")
	a, b := devices[0], devices[1]
	written := map[oplog.OpID]string{}
	write := func() {
		for _, d := range devices {
			for _, op := range d.some(4) {
				written[op.ID] = fmt.Sprintf("%s/%d", op.Device, op.Seq)
			}
		}
	}
	write()
	write()
	pumpAll(liar, devices...)
	a.publish(liar)
	pumpAll(liar, devices...)
	collect(t, store)
	ids := map[string]oplog.OpID{} // by device and seq, as any relay or journal showed it
	look := func() {
		for _, d := range devices {
			for device, p := range d.HeldFrontier() {
				key := fmt.Sprintf("%s/%d", device, p.Seq)
				if old, ok := ids[key]; ok && old != p.ID {
					t.Fatalf("%s was %s and is %s for %s", key, old, p.ID, d.name)
				}
				ids[key] = p.ID
			}
		}
	}
	liar.Tell(lie(store))
	const writing, resting = 4, 2
	for round := range writing + resting {
		if round < writing {
			write()
		}
		for _, d := range devices {
			rep, err := d.Pump(t.Context(), liar)
			pumped(rep, err, d.Status())
			if d.Status().Frozen != nil {
				t.Fatalf("%s is frozen by it: %v", d.name, err)
			}
			look()
		}
		if round < writing {
			_, _ = b.Publish(t.Context(), liar) // may fail while it lies
		}
	}
	liar.Tell(relaytest.Lie{})
	for _, d := range devices {
		d.wall.add(time.Hour) // quarantines are over
	}
	for range 3 {
		pumpAll(liar, devices...)
	}
	look()
	same(t, devices...)
	for _, d := range devices {
		if own := d.HeldFrontier()[d.name]; own.Seq != 23 || !a.FoldedFrontier().Covers(d.name, 23) || written[own.ID] == "" {
			t.Errorf("%s has written up to %v, a has %v", d.name, own, a.FoldedFrontier()[d.name])
		}
		d.verify()
	}
	cold := newSmall(t, "cold")
	pumpAll(liar, append(devices, cold)...)
	same(t, a, cold)
}

func TestARelayThatIsAnotherOneEachTimeIsNotRemembered(t *testing.T) {
	liar := relaytest.NewLiar(collecting())
	liar.Tell(lies["it is another one each time"].lie(nil))
	a, b := newSmall(t, "a"), newSmall(t, "b")
	a.some(4)
	for range 40 {
		a.pump(liar)
		if rep := b.pump(liar); len(rep.Behind) > 0 {
			t.Fatalf("said to have lost %v", rep.Behind)
		}
	}
	same(t, a, b)
}
