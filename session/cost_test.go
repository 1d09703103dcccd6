package session_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// pushAll gives a relay all that an author wrote.
func pushAll(t testing.TB, r relay.Relay, a *relaytest.Author, from int) {
	t.Helper()
	for ops := a.Ops[from:]; len(ops) > 0; {
		n := min(len(ops), relay.MaxOps)
		if _, err := r.Push(t.Context(), a.Device, ops[:n]); err != nil {
			t.Fatal(err)
		}
		ops = ops[n:]
	}
}

// A bill is what something cost.
type bill struct {
	calls         int // of the relay
	written, read int64
	allocs        uint64
}

func (d *device) charge(r *relaytest.Faulty, what func()) bill {
	calls := func() int {
		n := 0
		for _, c := range r.Calls() {
			n += c
		}
		return n
	}
	var before, after runtime.MemStats
	c, w, rd := calls(), int64(0), int64(0)
	w, rd = d.disk.traffic()
	runtime.ReadMemStats(&before)
	what()
	runtime.ReadMemStats(&after)
	w2, rd2 := d.disk.traffic()
	return bill{calls() - c, w2 - w, rd2 - rd, after.Mallocs - before.Mallocs}
}

// holding is a device that holds own and foreign ops, half each, and its relay with an author who can write more.
func holding(t *testing.T, n int) (*device, *relaytest.Faulty, *relaytest.Author) {
	t.Helper()
	r, a, b := relaytest.NewFaulty(memory.New(memory.Config{})), relaytest.NewAuthor("a"), newDevice(t, "b")
	a.Write(t, n/2, 100)
	pushAll(t, r, a, 0)
	for left := n / 2; left > 0; left -= 100 {
		b.write(oplog.Routing, payloads(min(left, 100))...)
	}
	b.pump(r)
	b.pump(r)
	b.open()
	b.pump(r)
	return b, r, a
}

func TestAPumpCostsWhatIsNewHoweverMuchIsHeld(t *testing.T) {
	const k = 20
	cost := func(n int) (idle, busy bill) {
		b, r, a := holding(t, n)
		idle = b.charge(r, func() { b.pump(r) })
		a.Write(t, k, 100)
		pushAll(t, r, a, len(a.Ops)-k)
		b.write(oplog.Routing, payloads(k)...)
		busy = b.charge(r, func() {
			if rep := b.pump(r); rep.Pulled != k || rep.Pushed.Accepted != k {
				t.Errorf("report %+v", rep)
			}
		})
		return idle, busy
	}
	idleFew, busyFew := cost(400)
	idleMany, busyMany := cost(8000)
	t.Logf("idle: %+v and %+v; %d new: %+v and %+v", idleFew, idleMany, k, busyFew, busyMany)
	for _, idle := range []bill{idleFew, idleMany} {
		if idle.calls != 1 || idle.written != 0 || idle.read != 0 {
			t.Errorf("an idle pump costs %+v, expected one call and no byte", idle)
		}
	}
	if idleMany.allocs > 2*idleFew.allocs+200 {
		t.Errorf("an idle pump costs %d allocations, and %d with 20 times as much held", idleFew.allocs, idleMany.allocs)
	}
	if busyMany.calls != busyFew.calls || busyFew.calls > 4 || busyMany.written > busyFew.written*5/4 {
		t.Errorf("%d new ops cost %+v, and %+v with 20 times as much held", k, busyFew, busyMany)
	}
	if busyMany.read > 2*busyFew.read+256<<10 || busyMany.allocs > 2*busyFew.allocs+1000 {
		t.Errorf("%d new ops cost %+v, and %+v with 20 times as much held", k, busyFew, busyMany)
	}
}

func TestALookAtTheOracleCostsTheSameHoweverMuchIsHeld(t *testing.T) {
	cost := func(n int) float64 {
		d := newDevice(t, "a")
		var drafts []journal.Draft
		for i := range n {
			payload, err := oplog.Intent{RunID: fmt.Sprintf("run-%d", i), Agent: "agent", Epoch: 1, Status: oplog.StatusCommitted}.Payload()
			if err != nil {
				t.Fatal(err)
			}
			drafts = append(drafts, journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload})
		}
		if _, err := d.Append(t.Context(), drafts...); err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(50, func() {
			if _, ok := d.CommittedRun("agent", "run-7"); !ok {
				t.Error("unknown run")
			}
			if _, ok := d.CommittedRun("agent", "no-run"); ok {
				t.Error("known run")
			}
		})
	}
	if few, many := cost(20), cost(2000); many > few+1 {
		t.Errorf("a look costs %v allocations, and %v with 100 times as much held", few, many)
	}
}

// stalled is a relay that keeps each call waiting until it is released.
type stalled struct {
	relay.Relay
	entered chan string
	release chan struct{}
}

func (s stalled) wait(call string) {
	s.entered <- call
	<-s.release
}

func (s stalled) Hello(ctx context.Context, device string) (relay.Info, error) {
	s.wait("hello")
	return s.Relay.Hello(ctx, device)
}

func (s stalled) Push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	s.wait("push")
	return s.Relay.Push(ctx, device, ops)
}

func (s stalled) Pull(ctx context.Context, device string, want relay.Want) (relay.Page, error) {
	s.wait("pull")
	return s.Relay.Pull(ctx, device, want)
}

func (s stalled) Ack(ctx context.Context, device string, folded oplog.Frontier) error {
	s.wait("ack")
	return s.Relay.Ack(ctx, device, folded)
}

func TestASilentRelayDelaysNoAppend(t *testing.T) {
	store, author := memory.New(memory.Config{}), relaytest.NewAuthor("author")
	author.Write(t, 3, 50)
	pushAll(t, store, author, 0)
	a, b := newDevice(t, "a"), newDevice(t, "b")
	a.write(oplog.Knowledge, `{"id":"first"}`)
	r := stalled{store, make(chan string), make(chan struct{})}
	done := make(chan error, 1)
	go func() { _, err := a.Pump(t.Context(), r); done <- err }()
	for _, want := range []string{"hello", "push", "pull", "ack"} {
		if got := <-r.entered; got != want {
			t.Fatalf("the pump calls %s, expected %s", got, want)
		}
		a.write(oplog.Knowledge, `{"id":"during `+want+`"}`) // returns while the relay is silent
		intent(t, a, "run-"+want, 1, oplog.StatusPending)
		if _, ok := a.CommittedRun("agent", "run"); ok {
			t.Error("unknown run is known")
		}
		a.Digest()
		r.release <- struct{}{}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, d := range []*device{a, b, a} {
		d.pump(store)
	}
	converged(t, a, b)
}

func TestASecondPumpWaitsAndCanBeGivenUp(t *testing.T) {
	a := newDevice(t, "a")
	r := stalled{memory.New(memory.Config{}), make(chan string), make(chan struct{})}
	done := make(chan error, 1)
	go func() { _, err := a.Pump(t.Context(), r); done <- err }()
	<-r.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Pump(ctx, r); err == nil {
		t.Error("two pumps at once")
	}
	close(r.release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAppendsPumpsAndReadsAtTheSameTime(t *testing.T) {
	r := memory.New(memory.Config{})
	devices := []*device{newDevice(t, "a"), newDevice(t, "b")}
	var wg sync.WaitGroup
	for _, d := range devices {
		for g := range 3 {
			wg.Go(func() {
				for i := range 15 {
					draft := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: fmt.Appendf(nil, `{"id":"%s-%d-%d"}`, d.name, g, i)}
					if _, err := d.Append(t.Context(), draft); err != nil {
						t.Errorf("append: %v", err)
					}
				}
			})
		}
		wg.Go(func() {
			for range 15 {
				if _, err := d.Pump(t.Context(), r); err != nil {
					t.Errorf("pump: %v", err)
				}
				d.Digest()
				d.Status()
			}
		})
	}
	wg.Wait()
	for _, d := range append(devices, devices...) {
		d.pump(r)
	}
	converged(t, devices...)
	if n := devices[0].FoldedFrontier()["b"].Seq; n != 44 {
		t.Errorf("folded b up to %d, expected 44", n)
	}
}

func TestAMistakeInTheConfigIsRefused(t *testing.T) {
	a := newDevice(t, "a")
	for name, cfg := range map[string]session.Config{
		"no journal":           {Device: "a"},
		"another's journal":    {Device: "b", Journal: a.journal()},
		"a role of that sort":  {Device: "a", Journal: a.journal(), Role: relay.Seen},
		"a role of no meaning": {Device: "a", Journal: a.journal(), Role: "boss"},
	} {
		if _, err := session.Open(t.Context(), cfg); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func TestAWriterPushesAndNeverPulls(t *testing.T) {
	store := memory.New(memory.Config{})
	a, b := newDevice(t, "a"), newDevice(t, "b")
	b.write(oplog.Knowledge, `{"id":"b"}`)
	b.pump(store)
	s, err := session.Open(t.Context(), session.Config{Device: "a", Journal: a.journal(), Role: relay.Writer})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
	r := relaytest.NewFaulty(store)
	if rep, err := s.Pump(t.Context(), r); err != nil || rep.Pushed.Accepted != 1 {
		t.Errorf("report %+v, %v", rep, err)
	}
	if calls := r.Calls(); calls["pull"] != 0 || calls["ack"] != 0 {
		t.Errorf("calls %v", calls)
	}
	if info, err := store.Hello(t.Context(), "a"); err != nil || info.Role != relay.Writer {
		t.Errorf("role %s, %v", info.Role, err)
	}
}
