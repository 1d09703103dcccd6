package hold_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/node/hold"
)

const agent = "invoices"

// A process is one life of a node's table, at a store.
type process struct {
	t *testing.T
	*hold.Table
	c    *memory.Coordinator
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	fault coordtest.Fault
	lost  []string
}

func start(t *testing.T, s *memory.Store, device string) *process {
	t.Helper()
	p := &process{t: t, c: s.Process(coord.Process{Host: device}), done: make(chan struct{})}
	var err error
	p.Table, err = hold.New(hold.Config{Leases: coordtest.Faulty(p.c, p.plan), Device: device, Lost: func(agent string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lost = append(p.lost, agent)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	go func() {
		defer close(p.done)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return p
}

// plan loses answers, or what was asked.
func (p *process) plan(op string) coordtest.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == coordtest.After && op == "Release" {
		return coordtest.Before
	}
	return p.fault
}

func (p *process) fail(f coordtest.Fault) { p.mu.Lock(); defer p.mu.Unlock(); p.fault = f }

// heard is what was told to be lost.
func (p *process) heard() []string { p.mu.Lock(); defer p.mu.Unlock(); return slices.Clone(p.lost) }

// end stops the table in good order.
func (p *process) end() { p.stop(); <-p.done }

// crash ends it without a word.
func (p *process) crash() { p.c.Crash(); p.end() }

func (p *process) claim(run string) *hold.Hold {
	p.t.Helper()
	h, err := p.Claim(p.t.Context(), agent, run)
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

func holder(t *testing.T, s *memory.Store, agent string) (coord.Lease, bool) {
	t.Helper()
	l, held, err := s.Process(coord.Process{}).Current(context.Background(), agent)
	if err != nil {
		t.Fatal(err)
	}
	return l, held && !l.Expired
}

func inBubble(t *testing.T, cfg memory.Config, f func(t *testing.T, s *memory.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.New(cfg)) })
}

func TestAnAgentIsGivenToOneRunAtATime(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		p := start(t, s, "a")
		defer p.end()
		h := p.claim("first")
		_, err := p.Claim(t.Context(), agent, "second")
		busy, ok := errors.AsType[*hold.BusyError](err)
		if !ok || busy.Run != "first" {
			t.Fatalf("a second run got: %v", err)
		}
		h.Release()
		h.Release()
		next := p.claim("second")
		h.Release() // the first one's, late: it takes nothing from the second
		if _, err := p.Claim(t.Context(), agent, "third"); err == nil {
			t.Error("a repeated release freed another run's agent")
		}
		if next.Lease().Epoch != 1 {
			t.Errorf("epoch %d", next.Lease().Epoch)
		}
		next.Release()
	})
}

func TestAnAgentThatIsNotOwnedIsGivenBackTwoSecondsAfterItsLastRun(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		p := start(t, s, "a")
		defer p.end()
		p.claim("1").Release()
		bubble.Pass(hold.Linger / 2)
		p.claim("2").Release()
		bubble.Pass(hold.Linger - time.Millisecond)
		if l, held := holder(t, s, agent); !held || l.Epoch != 1 {
			t.Errorf("it was given back too early: %+v", l)
		}
		bubble.Pass(time.Millisecond)
		if l, held := holder(t, s, agent); held {
			t.Errorf("it is held still: %+v", l)
		}
		if all := p.Held(); len(all) != 0 {
			t.Errorf("held: %+v", all)
		}
		h := p.claim("3")
		if h.Lease().Epoch != 2 {
			t.Errorf("epoch %d", h.Lease().Epoch)
		}
		bubble.Pass(time.Hour)
		if h.Trusted() != nil || h.Context().Err() != nil {
			t.Errorf("a long run lost its lease: %v", h.Trusted())
		}
		h.Release()
	})
}

func TestAnOwnedAgentIsKeptWithoutARunUntilItIsHandedOver(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		p := start(t, s, "a")
		defer p.end()
		if err := p.Own(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		bubble.Pass(time.Hour)
		h := p.claim("1")
		if h.Lease().Epoch != 1 || h.Trusted() != nil {
			t.Errorf("got %+v, %v", h.Lease(), h.Trusted())
		}
		if err := p.Disown(t.Context(), agent); err != nil {
			t.Error(err)
		}
		bubble.Pass(time.Minute)
		if _, held := holder(t, s, agent); !held || h.Trusted() != nil {
			t.Error("the open run lost its lease")
		}
		h.Release()
		synctest.Wait()
		if _, held := holder(t, s, agent); held {
			t.Error("it was not handed over when its run ended")
		}
		if err := p.Own(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		if err := p.Disown(t.Context(), agent); err != nil {
			t.Error(err)
		}
		if _, held := holder(t, s, agent); held {
			t.Error("an idle one was not handed over at once")
		}
	})
}

func TestARestartWithinTheTTLKeepsTheEpochOnlyWithProofOfDeath(t *testing.T) {
	for _, proof := range []bool{true, false} {
		dead := func(coord.Lease) bool { return proof }
		inBubble(t, memory.Config{Dead: dead}, func(t *testing.T, s *memory.Store) {
			p := start(t, s, "a")
			if err := p.Own(t.Context(), agent); err != nil {
				t.Fatal(err)
			}
			bubble.Pass(time.Minute)
			p.crash()
			p = start(t, s, "a")
			defer p.end()
			err := p.Own(t.Context(), agent)
			if proof {
				if l, held := holder(t, s, agent); err != nil || !held || l.Epoch != 1 {
					t.Errorf("with proof: %v, %+v", err, l)
				}
				return
			}
			if !errors.Is(err, coord.ErrHeld) {
				t.Fatalf("without proof: %v", err)
			}
			bubble.Pass(coord.DefaultTTL)
			if err := p.Own(t.Context(), agent); err != nil {
				t.Fatal(err)
			}
			if l, _ := holder(t, s, agent); l.Epoch != 2 {
				t.Errorf("without proof it went on with epoch %d", l.Epoch)
			}
		})
	}
}

func TestALeaseThatNobodyTookGoesOnAfterAnOutage(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		p := start(t, s, "a")
		defer p.end()
		if err := p.Own(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		h := p.claim("1")
		p.fail(coordtest.Before)
		bubble.Pass(10 * coord.DefaultTTL)
		if h.Trusted() == nil || !errors.Is(context.Cause(h.Context()), coord.ErrUnverifiable) {
			t.Errorf("it is trusted in an outage: %v, %v", h.Trusted(), context.Cause(h.Context()))
		}
		if err := p.Own(t.Context(), agent); !errors.Is(err, coord.ErrNotSent) {
			t.Errorf("own in an outage: %v", err)
		}
		p.fail(coordtest.Fine)
		bubble.Pass(2 * time.Second)
		if l := h.Lease(); h.Trusted() != nil || l.Epoch != 1 || time.Since(l.Sent) > 2*time.Second {
			t.Errorf("not held again: %v, %+v", h.Trusted(), l)
		}
		if h.Context().Err() == nil {
			t.Error("what was told to stop is told to go on")
		}
		h.Release()
		bubble.Pass(time.Minute)
		if l, held := holder(t, s, agent); !held || l.Epoch != 1 {
			t.Errorf("it is not owned any more: %+v", l)
		}
	})
}

func TestALeaseThatWasTakenIsNotTakenBack(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		a, b := start(t, s, "a"), start(t, s, "b")
		defer a.end()
		defer b.end()
		if err := a.Own(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		h := a.claim("1")
		a.fail(coordtest.Before)
		bubble.Pass(2 * coord.DefaultTTL)
		if err := b.Own(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		a.fail(coordtest.Fine)
		bubble.Pass(time.Minute)
		if lost := a.heard(); !slices.Equal(lost, []string{agent}) {
			t.Errorf("told to be lost: %q, want it once", lost)
		}
		if l, _ := holder(t, s, agent); l.Device != "b" || l.Epoch != 2 {
			t.Errorf("holder: %+v", l)
		}
		if !errors.Is(h.Trusted(), coord.ErrLost) || h.Lease().Epoch != 1 {
			t.Errorf("the loser believes: %v, %+v", h.Trusted(), h.Lease())
		}
		if _, err := a.Claim(t.Context(), agent, "2"); err == nil {
			t.Error("a second run beside the one that goes on")
		}
		h.Release()
		if _, err := a.Claim(t.Context(), agent, "2"); !errors.Is(err, coord.ErrHeld) {
			t.Errorf("the loser's next claim: %v", err)
		}
		if all := a.Held(); len(all) != 0 {
			t.Errorf("the loser holds: %+v", all)
		}
	})
}

func TestWhoLeavesKeepsWhatRunsAndGivesBackTheRestAtOnce(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		p := start(t, s, "a")
		for _, id := range []string{agent, "idle"} {
			if err := p.Own(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		h := p.claim("1")
		p.stop()
		synctest.Wait()
		if _, held := holder(t, s, "idle"); held {
			t.Error("an idle agent is held by a node that leaves")
		}
		if _, err := p.Claim(t.Context(), "other", "2"); !errors.Is(err, hold.ErrLeaving) {
			t.Errorf("a claim of a node that leaves: %v", err)
		}
		if err := p.Own(t.Context(), "idle"); !errors.Is(err, hold.ErrLeaving) {
			t.Errorf("own of a node that leaves: %v", err)
		}
		bubble.Pass(time.Hour)
		if _, held := holder(t, s, agent); !held || h.Trusted() != nil {
			t.Error("what runs lost its lease")
		}
		h.Release()
		<-p.done
		if _, held := holder(t, s, agent); held {
			t.Error("not given back at the end")
		}
	})
}

// The process lives on, and its other agents keep its liveness: what is not given back would be held for ever.
func TestALeaseIsGivenBackHoweverOftenThatHasToBeAskedFor(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		p := start(t, s, "a")
		defer p.end()
		if err := p.Own(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		h := p.claim("1")
		p.fail(coordtest.Before)
		h.Release()
		bubble.Pass(coord.DefaultTTL * 10)
		p.fail(coordtest.Fine)
		bubble.Pass(3 * time.Second)
		if l, held := holder(t, s, agent); held {
			t.Errorf("still held: %+v", l)
		}
		if _, held := holder(t, s, "other"); !held {
			t.Error("the other agent was not held again")
		}
	})
}

func TestAClaimThatIsNotAnsweredHoldsNothingInTheEnd(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		p := start(t, s, "a")
		defer p.end()
		p.fail(coordtest.After)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Claim(ctx, agent, "1"); !errors.Is(err, coord.ErrIndeterminate) {
			t.Fatalf("got %v", err)
		}
		if _, held := holder(t, s, agent); !held {
			t.Fatal("it was not granted: nothing is shown")
		}
		p.fail(coordtest.Fine)
		bubble.Pass(2 * time.Second)
		if l, held := holder(t, s, agent); held {
			t.Errorf("still held: %+v", l)
		}
		p.claim("2").Release()
	})
}

func TestAnAgentWhoseEffectIsStillThereIsNotGivenBack(t *testing.T) {
	inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
		p := start(t, s, "a")
		p.claim("1").Abandon()
		bubble.Pass(time.Hour)
		if _, held := holder(t, s, agent); !held || !p.Left() {
			t.Error("the lease was not kept")
		}
		if _, err := p.Claim(t.Context(), agent, "2"); err == nil {
			t.Error("another run beside what is left")
		}
		p.end()
		if l, _, _ := s.Process(coord.Process{}).Current(t.Context(), agent); l.Device != "a" {
			t.Error("the lease was given back")
		}
	})
}

// Whatever fails, no two runs ever hold an agent at once under leases that both are trusted, and in the end nothing is held.
func TestNoTwoRunsHoldAnAgentAtOnceWhateverFails(t *testing.T) {
	for range 8 {
		seed := rand.Uint64()
		inBubble(t, memory.Config{}, func(t *testing.T, s *memory.Store) {
			var mu sync.Mutex
			rnd := rand.New(rand.NewPCG(seed, 0))
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
			open := map[string]map[*hold.Hold]bool{"x": {}, "y": {}}
			nodes := []*process{start(t, s, "a"), start(t, s, "b"), start(t, s, "c")}
			var all sync.WaitGroup
			for i := range 12 {
				p := nodes[i%3]
				all.Go(func() {
					for range 40 {
						id := []string{"x", "y"}[roll(2)]
						time.Sleep(time.Duration(roll(8000)) * time.Millisecond) // bubble time, a part of the history: when it asks
						switch roll(6) {
						case 0:
							ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
							_ = p.Own(ctx, id)
							cancel()
							continue
						case 1:
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							_ = p.Disown(ctx, id)
							cancel()
							continue
						case 2:
							p.fail([]coordtest.Fault{coordtest.Fine, coordtest.Fine, coordtest.Before, coordtest.After}[roll(4)])
							continue
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(roll(3000))*time.Millisecond)
						h, err := p.Claim(ctx, id, fmt.Sprint("run ", i))
						cancel()
						if err != nil {
							continue
						}
						mu.Lock()
						for other := range open[id] {
							if other.Trusted() == nil && h.Trusted() == nil {
								t.Errorf("seed %d: two runs hold %s: epochs %d and %d", seed, id, other.Lease().Epoch, h.Lease().Epoch)
							}
						}
						open[id][h] = true
						mu.Unlock()
						time.Sleep(time.Duration(roll(4000)) * time.Millisecond) // and how long its run lasts
						mu.Lock()
						delete(open[id], h)
						mu.Unlock()
						h.Release()
					}
				})
			}
			all.Wait()
			for _, p := range nodes {
				p.fail(coordtest.Fine)
				p.end()
			}
			for _, id := range []string{"x", "y"} {
				if l, held := holder(t, s, id); held {
					t.Errorf("seed %d: %s is held in the end: %+v", seed, id, l)
				}
			}
		})
	}
}
