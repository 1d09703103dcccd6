package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/recovery"
)

const agent = "job"

func runID(n int) string { return ident.RunID("test", agent, occurrence(n)) }

func occurrence(n int) string { return fmt.Sprintf("key:%d", n) }

// A world is a fleet whose ledger goes back: what was done is done in one store and remembered by the devices; then there is another store.
type world struct {
	t       testing.TB
	store   *memory.Store
	procs   map[string]*memory.Coordinator
	deeds   map[string][]coord.Deed // by device
	granted map[string]coord.Epoch
}

func newWorld(t testing.TB) *world {
	return &world{t: t, store: memory.New(memory.Config{}), procs: map[string]*memory.Coordinator{}, deeds: map[string][]coord.Deed{}, granted: map[string]coord.Epoch{}}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) proc(device string) *memory.Coordinator {
	if w.procs[device] == nil {
		w.procs[device] = w.store.Process(coord.Process{})
	}
	return w.procs[device]
}

// did lets a device run n to a state; Open is a process that is gone before it could say.
func (w *world) did(device string, n int, s coord.State) coord.Attempt {
	w.t.Helper()
	ctx := context.Background()
	b := coord.Begin{Run: runID(n), Occurrence: occurrence(n), Attempt: coord.NewNonce(), Request: coord.NewNonce(), RetryFailed: true}
	l, a, err := w.proc(device).Start(ctx, coord.Request{Agent: agent, Device: device, TTL: time.Minute}, b)
	w.must(err)
	o := coord.Outcome{Agent: agent, Run: b.Run, Occurrence: b.Occurrence, Attempt: a}
	w.granted[device] = l.Epoch
	if s == coord.Open {
		w.deeds[device] = append(w.deeds[device], coord.Deed{Author: device, Outcome: o})
		w.store.Expire(a.Liveness)
		return a
	}
	o.Attempt.State, o.Attempt.Cause, o.Attempt.Ended = s, coord.CauseExit, time.Now()
	w.deeds[device] = append(w.deeds[device], coord.Deed{Author: device, Outcome: o})
	finished, released := w.proc(device).Complete(ctx, o, l)
	w.must(errors.Join(finished, released))
	return o.Attempt
}

// back replaces the ledger by an empty one.
func (w *world) back() {
	w.store = memory.New(memory.Config{})
	clear(w.procs)
}

// memory is what the device remembers, and what it holds of its peers' logs.
func (w *world) memory(device string, peers ...string) book.Memory {
	m := book.Memory{Device: device, Epochs: map[string]coord.Grant{}, Peers: peers}
	for _, d := range append([]string{device}, peers...) {
		m.Deeds = append(m.Deeds, w.deeds[d]...)
		if g := (coord.Grant{Agent: agent, Device: d, Epoch: w.granted[d]}); g.Epoch > m.Epochs[agent].Epoch {
			m.Epochs[agent] = g
		}
	}
	return m
}

func (w *world) ledger() recovery.Ledger {
	return recovery.Ledger{Recoverer: w.proc("anybody"), Timeout: time.Minute}
}

func (w *world) gate() {
	w.t.Helper()
	_, err := w.ledger().RestartRecovery(context.Background(), coord.Gate{By: "ana", Reason: "restored"})
	w.must(err)
}

func (w *world) offer(m book.Memory) recovery.Report {
	w.t.Helper()
	r, err := recovery.Offer(context.Background(), w.ledger(), []string{m.Device}, []book.Memory{m})
	w.must(err)
	return r
}

func (w *world) state(n int) coord.RunState {
	w.t.Helper()
	v, err := w.ledger().Look(context.Background(), coord.Question{Agent: agent, Run: runID(n)})
	w.must(err)
	return v.State
}

func (w *world) standing() recovery.Standing {
	w.t.Helper()
	s, err := recovery.Look(context.Background(), w.ledger(), nil)
	w.must(err)
	return s
}

func TestWhatDevicesRememberIsInTheLedgerAgain(t *testing.T) {
	w := newWorld(t)
	w.did("a", 1, coord.Committed)
	w.did("b", 2, coord.Failed)
	w.did("a", 3, coord.Void)
	w.did("b", 4, coord.Open)
	last := max(w.granted["a"], w.granted["b"])
	w.back()
	w.gate()
	if r := w.offer(w.memory("a")); r != (recovery.Report{Attempts: 2, Written: 1, Raised: 1, Noted: true}) {
		t.Errorf("a offered %+v", r)
	}
	if r := w.offer(w.memory("b")); r != (recovery.Report{Attempts: 2, Written: 2, Doubts: 1, Raised: 1, Noted: true}) {
		t.Errorf("b offered %+v", r)
	}
	for n, want := range map[int]coord.RunState{1: coord.RunCommitted, 2: coord.RunFailed, 3: coord.RunFree, 4: coord.RunInDoubt} {
		if got := w.state(n); got != want {
			t.Errorf("run %d is %s, want %s", n, got, want)
		}
	}
	l, err := w.proc("c").Acquire(t.Context(), coord.Request{Agent: agent, Device: "c", TTL: time.Minute})
	if err != nil || l.Epoch != last+1 {
		t.Errorf("granted %d, %v, want %d", l.Epoch, err, last+1)
	}
	for _, m := range []book.Memory{w.memory("a"), w.memory("b")} {
		if r := w.offer(m); r.Written+r.Raised != 0 || !r.Noted {
			t.Errorf("offered again %+v", r)
		}
	}
}

func TestWhatOnlyAPeerRemembersIsADoubtUntilItsDeviceSays(t *testing.T) {
	w := newWorld(t)
	w.did("a", 1, coord.Committed)
	w.did("a", 2, coord.Failed)
	w.did("a", 3, coord.Void)
	w.back()
	w.gate()
	if r := w.offer(w.memory("b", "a")); r.Written != 2 || r.Doubts != 2 || r.Raised != 1 {
		t.Errorf("b offered %+v", r)
	}
	if one, two, three := w.state(1), w.state(2), w.state(3); one != coord.RunInDoubt || two != coord.RunInDoubt || three != coord.RunFree {
		t.Errorf("the runs are %s, %s, %s", one, two, three)
	}
	w.offer(w.memory("a"))
	if one, two := w.state(1), w.state(2); one != coord.RunCommitted || two != coord.RunFailed {
		t.Errorf("once its device has offered the runs are %s, %s", one, two)
	}
}

// The ledger holds the attempt as open, as it was when the copy was made.
func TestAPeersLogEndsAnAttemptThatTheLedgerHolds(t *testing.T) {
	w := newWorld(t)
	b := coord.Begin{Run: runID(1), Occurrence: occurrence(1), Attempt: coord.NewNonce(), Request: coord.NewNonce()}
	_, a, err := w.proc("a").Start(t.Context(), coord.Request{Agent: agent, Device: "a", TTL: time.Minute}, b)
	w.must(err)
	a.State, a.Ended = coord.Committed, time.Now()
	w.deeds["a"] = []coord.Deed{{Author: "a", Outcome: coord.Outcome{Agent: agent, Run: b.Run, Attempt: a}}}
	w.offer(w.memory("b", "a"))
	if got := w.state(1); got != coord.RunCommitted {
		t.Errorf("the run is %s", got)
	}
}

func TestSomebodyElsesOpinionIsNoWord(t *testing.T) {
	w := newWorld(t)
	w.did("a", 1, coord.Committed)
	m := w.memory("b", "a")
	m.Deeds[0].Author = "b"
	w.back()
	gap, err := recovery.Find(t.Context(), w.ledger(), []book.Memory{m})
	if err != nil || len(gap.Attempts) != 0 {
		t.Errorf("gap %+v, %v", gap, err)
	}
}

func TestFindWritesNothingAndSaysWhatAnOfferWouldWrite(t *testing.T) {
	w := newWorld(t)
	w.did("a", 1, coord.Committed)
	w.did("a", 2, coord.Open)
	w.back()
	for range 2 {
		gap, err := recovery.Find(t.Context(), w.ledger(), []book.Memory{w.memory("a")})
		w.must(err)
		if len(gap.Attempts) != 2 || gap.Attempts[0].Kind != recovery.Lost || gap.Attempts[1].Kind != recovery.Doubt ||
			len(gap.Epochs) != 1 || gap.Epochs[0].Epoch != w.granted["a"] || gap.Epochs[0].Stored != 0 || gap.Empty() {
			t.Errorf("gap %+v", gap)
		}
	}
}

func TestADeviceThatHasNotOfferedIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.did("a", 1, coord.Committed)
	w.did("b", 2, coord.Committed)
	w.did("pod.x", 3, coord.Committed)
	w.gate()
	w.must(w.ledger().Offer(t.Context(), coord.Offer{Device: "new"}))
	if got := w.standing().Waiting(); !slices.Equal(got, []string{"a", "b", "new"}) {
		t.Errorf("waiting for %v", got)
	}
	w.offer(w.memory("a", "far"))
	if got := w.standing().Waiting("new"); !slices.Equal(got, []string{"b", "far"}) {
		t.Errorf("waiting for %v, want b, and far whom a has heard of", got)
	}
	w.offer(w.memory("b"))
	w.offer(w.memory("far"))
	w.offer(w.memory("new"))
	if got := w.standing().Waiting(); len(got) != 0 {
		t.Errorf("waiting for %v", got)
	}
	w.gate() // once more
	if got := w.standing().Waiting(); !slices.Equal(got, []string{"a", "b", "far", "new"}) {
		t.Errorf("in another recovery waiting for %v", got)
	}
	if set, owes, err := recovery.Owes(t.Context(), w.ledger(), "a"); !set || !owes || err != nil {
		t.Errorf("a owes: %v, %v, %v", set, owes, err)
	}
}

func TestAnOfferWithoutAGateIsNotNoted(t *testing.T) {
	w := newWorld(t)
	w.did("a", 1, coord.Committed)
	if r := w.offer(w.memory("a")); r.Noted || r.Attempts != 1 {
		t.Errorf("offered %+v", r)
	}
	if set, owes, err := recovery.Owes(t.Context(), w.ledger(), "a"); set || owes || err != nil {
		t.Errorf("owes: %v, %v, %v", set, owes, err)
	}
}

func TestARefusedEpochKeepsNothingElseBackAndTheOfferIsNotNoted(t *testing.T) {
	w := newWorld(t)
	w.did("a", 1, coord.Committed)
	m := w.memory("a")
	m.Epochs[agent] = coord.Grant{Agent: agent, Device: "a", Epoch: coord.MaxFloorJump + 9}
	m.Epochs["zz"] = coord.Grant{Agent: "zz", Device: "a", Epoch: 5}
	w.back()
	w.gate()
	r, err := recovery.Offer(t.Context(), w.ledger(), []string{"a"}, []book.Memory{m})
	if !errors.Is(err, coord.ErrFloor) || r.Noted || r.Raised != 1 || r.Written != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if got := w.standing().Waiting(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("waiting for %v", got)
	}
}

// failingLedger fails a call after so many.
type failingLedger struct {
	coord.Recoverer
	left int
}

func (f *failingLedger) Recreate(ctx context.Context, o coord.Outcome) (bool, error) {
	if f.left--; f.left < 0 {
		return false, coord.ErrNotSent
	}
	return f.Recoverer.Recreate(ctx, o)
}

func TestAnOfferThatBreaksOffIsNotNotedAndGoesOnWhenRepeated(t *testing.T) {
	w := newWorld(t)
	for n := range 5 {
		w.did("a", n, coord.Committed)
	}
	w.back()
	w.gate()
	l := w.ledger()
	l.Recoverer = &failingLedger{l.Recoverer, 3}
	r, err := recovery.Offer(t.Context(), l, []string{"a"}, []book.Memory{w.memory("a")})
	if !errors.Is(err, coord.ErrNotSent) || r.Noted || r.Written != 3 {
		t.Errorf("got %+v, %v", r, err)
	}
	if got := w.standing().Waiting(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("waiting for %v", got)
	}
	if r := w.offer(w.memory("a")); r.Written != 2 || !r.Noted {
		t.Errorf("then %+v", r)
	}
}

// Whatever was done, whatever the ledger still knows, in whatever order devices offer, some of them twice.
func TestAfterAllHaveOfferedNothingCommittedIsFreeAndNoEpochIsGivenAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		devices := []string{"a", "b", "c"}
		states := map[int]coord.State{}
		act := func(n int) {
			switch s := states[n]; s {
			case coord.Open, coord.Committed: // no attempt over it
			default:
				states[n] = rapid.SampledFrom([]coord.State{coord.Open, coord.Void, coord.Failed, coord.Committed}).Draw(rt, "state")
				w.did(rapid.SampledFrom(devices).Draw(rt, "device"), n, states[n])
				w.store.Expire(w.holderOf())
			}
		}
		for range rapid.IntRange(0, 12).Draw(rt, "acts") {
			act(rapid.IntRange(0, 4).Draw(rt, "run"))
		}
		deeds, granted := w.deeds, w.granted
		w.back()
		// What the copy still knows is the beginning of what was done.
		w.deeds, w.granted = map[string][]coord.Deed{}, map[string]coord.Epoch{}
		w.must(replay(w, deeds, rapid.IntRange(0, 12).Draw(rt, "kept")))
		w.deeds, w.granted = deeds, granted
		w.gate()
		order := append(slices.Clone(devices), rapid.SliceOfN(rapid.SampledFrom(devices), 0, 3).Draw(rt, "again")...)
		for _, d := range rapid.Permutation(order).Draw(rt, "order") {
			w.offer(w.memory(d, rapid.SliceOfDistinct(rapid.SampledFrom(devices), rapid.ID).Draw(rt, "peers of "+d)...))
		}
		highest := coord.Epoch(0)
		for _, e := range granted {
			highest = max(highest, e)
		}
		for n, s := range states {
			got := w.state(n)
			if s == coord.Committed && got != coord.RunCommitted || s == coord.Open && got != coord.RunInDoubt || s == coord.Failed && got == coord.RunFree {
				rt.Fatalf("run %d ended as %s and is %s", n, s, got)
			}
		}
		if waits := w.standing().Waiting(); len(waits) > 0 {
			rt.Fatalf("waiting for %v", waits)
		}
		l, _, err := w.ledger().Current(context.Background(), agent)
		if err != nil || l.Epoch < highest {
			rt.Fatalf("the epoch is %d, %v, and %d was granted", l.Epoch, err, highest)
		}
	})
}

// holderOf is the liveness of the lease that an open attempt left behind.
func (w *world) holderOf() string {
	l, _, err := w.proc("anybody").Current(context.Background(), agent)
	w.must(err)
	return l.Liveness
}

// replay lets the store know of the first n commits again.
func replay(w *world, deeds map[string][]coord.Deed, n int) error {
	for _, d := range []string{"a", "b", "c"} {
		for _, deed := range deeds[d] {
			if n--; n < 0 {
				return nil
			}
			if deed.Attempt.State == coord.Committed {
				if err := w.proc(d).Finish(context.Background(), deed.Outcome); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
