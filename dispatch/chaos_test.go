package dispatch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
)

// With the default policies an effect is begun at most once, whatever fails and in whatever order; and what the ledger says in
// the end is what happened.
func TestWhateverFailsAnEffectIsBegunAtMostOnce(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 20
	}
	base := rand.Uint64()
	for i := range seeds {
		seed := base + uint64(i)
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *memory.Store) { chaos(t, s, seed) })
		}) {
			return
		}
	}
}

// dice are rolled by several goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func chaos(t *testing.T, s *memory.Store, seed uint64) {
	d := &dice{r: rand.New(rand.NewPCG(seed, 1))}
	occs := []string{"key:1", "key:2", "key:3"}
	effects := map[string]*work{}
	for i, occ := range occs {
		effects[occ] = &work{takes: time.Duration(d.roll(20)) * time.Second, stubborn: d.roll(3) == 0, exit: i % 2}
	}
	books := []*book{newBook(), newBook(), newBook()}
	var all sync.WaitGroup
	for i := range 12 {
		h := newHostOver(t, s, fmt.Sprint("d", i%3), books[i%3], dead)
		h.c.fail(d.faults(coord.ErrNotSent, coord.ErrIndeterminate), d.faults(coord.ErrIndeterminate))
		var crashed atomic.Bool // its calls and writes go nowhere from then on
		h.book.fails = func(string) error {
			if crashed.Load() || d.roll(20) == 0 {
				return errors.New("disk")
			}
			return nil
		}
		dies, when := d.roll(3) == 0, time.Duration(d.roll(30000))*time.Millisecond
		occ, held := occs[d.roll(3)], []dispatch.IfHeld{dispatch.HeldSkip, dispatch.HeldWait}[d.roll(2)]
		lost := []dispatch.OnLost{dispatch.LostStop, dispatch.LostKeep}[d.roll(2)]
		late := time.Duration(d.roll(30)) * time.Second
		stall, span := time.Duration(d.roll(40))*time.Second, time.Duration(d.roll(20))*time.Second
		all.Go(func() {
			time.Sleep(late)
			if dies {
				time.AfterFunc(when, func() { crashed.Store(true); h.memory().Crash() })
			}
			time.AfterFunc(stall, func() { time.AfterFunc(span, h.c.freeze()) })
			h.run(effects[occ], func(j *dispatch.Job) {
				j.Occurrence, j.Run, j.IfHeld, j.HeldWait, j.OnLost, j.TTL = occ, runID(occ), held, time.Minute, lost, 5*time.Second
			})
		})
	}
	all.Wait()
	bubble.Pass(time.Hour)
	for i := range 3 {
		later := newHostOver(t, s, fmt.Sprint("d", i), books[i], dead)
		for _, occ := range occs {
			later.run(effects[occ], func(j *dispatch.Job) { j.Occurrence, j.Run = occ, runID(occ) })
		}
		if _, err := newHostOver(t, s, fmt.Sprint("d", i), books[i]).d.Settle(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for occ, w := range effects {
		v := newHost(t, s, "judge").view(occ)
		if w.count() > 1 {
			t.Errorf("%s was begun %d times: %+v", occ, w.count(), v.Entry.Attempts)
		}
		if w.count() == 0 && (v.State == coord.RunCommitted || v.State == coord.RunFailed) {
			t.Errorf("%s never ran, and the ledger says %s", occ, v.State)
		}
		if w.count() == 1 && v.State == coord.RunFree {
			t.Errorf("%s ran, and the ledger says it is free: %+v", occ, v.Entry.Attempts)
		}
	}
}

// faults fail one call in ten.
func (d *dice) faults(kinds ...error) func(string) error {
	return func(op string) error {
		if d.roll(10) == 0 {
			return fmt.Errorf("%s: %w", op, kinds[d.roll(len(kinds))])
		}
		return nil
	}
}
