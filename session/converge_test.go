package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
)

func TestTwoDevicesConvergeOnEveryTier(t *testing.T) {
	r := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	a.write(oplog.Knowledge, `{"id":"k1","text":"first"}`)
	b.wall.add(time.Second)
	b.write(oplog.Knowledge, `{"id":"k1","text":"second"}`, `{"id":"k2"}`)
	same := `{"latency_ms":12,"route":"x"}`
	a.write(oplog.Routing, same, same)
	b.write(oplog.Routing, same)
	a.write(oplog.DeclAgent, `{"id":"agent","model":"old"}`)
	b.write(oplog.DeclAgent, `{"id":"agent","model":"new"}`)
	a.write(oplog.Registry("tools"), `{"id":"t","v":1}`)
	intent(t, a, "run-1", 1, oplog.StatusCommitted)
	for _, d := range []*device{a, b, a} {
		d.pump(r)
	}
	converged(t, a, b)
	for _, d := range []*device{a, b} {
		d.View(func(s *fold.State) {
			if n := count(s, oplog.Routing); n != 3 {
				t.Errorf("%s has %d observations, expected 3: identical ones are not one", d.name, n)
			}
			if rec, _ := s.Get(oplog.Knowledge, "id:k1"); !strings.Contains(string(rec.Payload), "first") {
				t.Errorf("%s: set tier has %s, expected the earliest", d.name, rec.Payload)
			}
			if rec, _ := s.Get(oplog.DeclAgent, "id:agent"); !strings.Contains(string(rec.Payload), "new") {
				t.Errorf("%s: register has %s, expected the latest", d.name, rec.Payload)
			}
		})
		if _, ok := d.CommittedRun("agent", "run-1"); !ok {
			t.Errorf("%s does not know the commit", d.name)
		}
	}
	// a's record is the later one now
	b.wall.add(time.Second)
	a.wall.add(2 * time.Second)
	a.write(oplog.DeclAgent, `{"id":"agent","model":"newest"}`)
	a.pump(r)
	b.pump(r)
	a.pump(r)
	converged(t, a, b)
	t.Run("an extra pump does nothing", func(t *testing.T) {
		for _, d := range []*device{a, b} {
			before, _ := d.disk.traffic()
			digest := d.Digest()
			rep := d.pump(r)
			after, _ := d.disk.traffic()
			if rep.Pushed != (relay.Pushed{}) || rep.Pulled != 0 || rep.Acked || rep.More || before != after || digest != d.Digest() {
				t.Errorf("%s: %+v, %d bytes written", d.name, rep, after-before)
			}
		}
		converged(t, a, b)
	})
}

func count(s *fold.State, surface oplog.Surface) int {
	n := 0
	for range s.Events(surface) {
		n++
	}
	return n
}

func intent(t *testing.T, d *device, run string, epoch uint64, status string) (oplog.Op, bool) {
	t.Helper()
	op, ok, err := d.RecordIntent(t.Context(), oplog.Intent{
		RunID: run, Agent: "agent", Epoch: epoch, Status: status, Attempt: fmt.Sprintf("%s-%d", d.name, epoch),
	})
	if err != nil {
		t.Fatalf("%s: record %s of %s: %v", d.name, status, run, err)
	}
	return op, ok
}

func TestAPartitionedZombieThatCommitsLateLosesEverywhere(t *testing.T) {
	r := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	intent(t, a, "run", 1, oplog.StatusPending)
	a.pump(r)
	b.pump(r)
	intent(t, b, "run", 2, oplog.StatusPending)
	intent(t, b, "run", 2, oplog.StatusCommitted)
	b.pump(r)
	a.wall.add(time.Minute) // the zombie's commit has the later clock
	if _, ok := intent(t, a, "run", 1, oplog.StatusCommitted); !ok {
		t.Fatal("a commit is a fact and has to be recorded")
	}
	for _, d := range []*device{a, b, a} {
		d.pump(r)
	}
	converged(t, a, b)
	for _, d := range []*device{a, b} {
		d.View(func(s *fold.State) {
			rec, ok := s.CommittedRun("agent", "run")
			run, held := s.Run("agent", "run")
			if !ok || rec.Epoch != 2 || rec.HLC.Device != "b" || !held || run.ID != rec.ID {
				t.Errorf("%s keeps %+v and shows %+v, expected the commit of epoch 2 in both", d.name, rec, run)
			}
			if runs := s.Runs("agent"); !slices.Equal(runs, []string{"run"}) {
				t.Errorf("%s has the records %v, expected one", d.name, runs)
			}
		})
	}
}

func TestAPendingAfterACommitIsANoOp(t *testing.T) {
	r := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	intent(t, a, "run", 1, oplog.StatusCommitted)
	a.pump(r)
	b.pump(r)
	for _, status := range []string{oplog.StatusPending, oplog.StatusFailed} {
		for _, d := range []*device{a, b} {
			before := len(d.lines())
			if _, ok := intent(t, d, "run", 2, status); ok || len(d.lines()) != before {
				t.Errorf("%s recorded %s for a committed run", d.name, status)
			}
		}
	}
	if _, ok := intent(t, b, "run", 2, oplog.StatusCommitted); !ok {
		t.Error("a second commit is a fact and was not recorded")
	}
	t.Run("also when another process recorded the commit", func(t *testing.T) {
		other := a.journal()
		payload, err := oplog.Intent{RunID: "run-2", Agent: "agent", Epoch: 1, Status: oplog.StatusCommitted}.Payload()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload}); err != nil {
			t.Fatal(err)
		}
		if _, ok := intent(t, a, "run-2", 1, oplog.StatusPending); ok {
			t.Error("a pending was recorded behind another process's commit")
		}
	})
}

type holderFunc func(ctx context.Context, agent string) (string, uint64, bool, error)

func (f holderFunc) Current(ctx context.Context, agent string) (string, uint64, bool, error) {
	return f(ctx, agent)
}

func TestAGatedWriteAfterLossRecordsNothing(t *testing.T) {
	a := newDevice(t, "a")
	down := errors.New("unreachable")
	in := oplog.Intent{RunID: "run", Agent: "agent", Epoch: 1, Status: oplog.StatusCommitted}
	for _, c := range []struct {
		name   string
		device string
		epoch  uint64
		held   bool
		err    error
		want   bool
	}{
		{"stolen", "b", 2, true, nil, false},
		{"own again at a newer epoch", "a", 2, true, nil, false},
		{"another's at this epoch", "b", 1, true, nil, false},
		{"released", "", 1, false, nil, false},
		{"was held before", "a", 1, false, nil, false},
		{"unreachable", "a", 1, true, down, false},
		{"held", "a", 1, true, nil, true},
	} {
		a.holder = holderFunc(func(context.Context, string) (string, uint64, bool, error) {
			return c.device, c.epoch, c.held, c.err
		})
		a.open()
		before := len(a.lines())
		_, ok, err := a.RecordIntentIfCurrent(t.Context(), in)
		if ok != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: recorded %v, %v", c.name, ok, err)
		}
		if _, known := a.CommittedRun("agent", "run"); known != c.want || len(a.lines()) > before != c.want {
			t.Errorf("%s: in memory %v, on disk %v", c.name, known, len(a.lines()) > before)
		}
	}
}

func TestAnotherProcessOfTheDeviceIsPickedUp(t *testing.T) {
	r := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	a.write(oplog.Knowledge, `{"id":"0"}`)
	other := a.journal()
	draft := func(id string) journal.Draft {
		return journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: []byte(`{"id":"` + id + `"}`)}
	}
	if _, err := other.Append(t.Context(), draft("1"), draft("2")); err != nil {
		t.Fatal(err)
	}
	if ops := a.write(oplog.Knowledge, `{"id":"3"}`); ops[0].Seq != 3 {
		t.Errorf("seq %d, expected 3", ops[0].Seq)
	}
	a.sameAsDisk()
	if _, err := other.Append(t.Context(), draft("4")); err != nil {
		t.Fatal(err)
	}
	if rep := a.pump(r); rep.Pushed.Accepted != 5 {
		t.Errorf("pushed %+v, expected 5", rep.Pushed)
	}
	b.pump(r)
	converged(t, a, b)

	// a second session on the same directory pulls and pushes beside the first
	twin := *a
	twin.open()
	b.write(oplog.Knowledge, `{"id":"b"}`)
	b.pump(r)
	twin.write(oplog.Knowledge, `{"id":"twin"}`)
	twin.pump(r)
	a.pump(r)
	b.pump(r)
	converged(t, a, &twin, b)
}

func TestConvergenceUnderRandomFaultsAndCrashes(t *testing.T) {
	for seed := range thorough.Of(uint64(12), 4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomExchange(t, seed) })
	}
}

func randomExchange(t *testing.T, seed uint64) {
	rnd := newRand(seed)
	store := memory.New(memory.Config{})
	r := relaytest.NewFaulty(smallPages{store})
	faults := []relaytest.Fault{relaytest.None, relaytest.None, relaytest.None, relaytest.Before, relaytest.After,
		relaytest.Twice, relaytest.Delayed, relaytest.Again, relaytest.Reversed, relaytest.Holed}
	r.Plan(func(relaytest.Call) relaytest.Fault { return faults[rnd.IntN(len(faults))] })
	var devices []*device
	for _, name := range []string{"a", "b", "c"} {
		devices = append(devices, newDevice(t, name))
	}
	acknowledged := 0
	for range 120 {
		d := devices[rnd.IntN(len(devices))]
		d.wall.add(time.Duration(rnd.IntN(1000)) * time.Millisecond)
		failEvery := 0
		if rnd.IntN(4) == 0 {
			failEvery = 1 + rnd.IntN(3)
		}
		calls := 0
		d.disk.failing(func(op, _ string) error {
			if calls++; op == "write" && failEvery > 0 && calls%failEvery == 0 {
				return errDisk
			}
			return nil
		})
		switch rnd.IntN(6) {
		case 0:
			d.disk.failing(nil)
			d.open()
		case 1, 2:
			payload := fmt.Sprintf(`{"id":"%d"}`, rnd.IntN(40))
			surface := []oplog.Surface{oplog.Knowledge, oplog.Routing, oplog.DeclAgent}[rnd.IntN(3)]
			_, err := d.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: surface, Payload: []byte(payload)})
			switch {
			case err == nil:
				acknowledged++
			case !errors.Is(err, journal.ErrNotWritten):
				t.Fatalf("append: %v", err)
			}
		default:
			_, err := d.Pump(t.Context(), r)
			if err != nil && !errors.Is(err, relaytest.ErrInjected) && !errors.Is(err, journal.ErrNotWritten) {
				t.Fatalf("pump: %v", err)
			}
		}
		d.sameAsDisk()
	}
	for _, d := range append(devices, devices...) {
		d.disk.failing(nil)
		d.pump(store)
	}
	converged(t, devices...)
	total := 0
	for _, p := range devices[0].FoldedFrontier() {
		total += int(p.Seq) + 1
	}
	if total != acknowledged {
		t.Errorf("%d ops are folded everywhere, %d were acknowledged", total, acknowledged)
	}
}
