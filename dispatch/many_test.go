package dispatch_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/bubble"
)

func TestFiftyDispatchersOfOneOccurrenceRunItOnce(t *testing.T) {
	for _, held := range []dispatch.IfHeld{dispatch.HeldSkip, dispatch.HeldWait, dispatch.HeldFail} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			w := &work{takes: time.Minute}
			books := []*book{newBook(), newBook(), newBook(), newBook(), newBook()}
			var all sync.WaitGroup
			for i := range 50 {
				h := newHostOver(t, s, fmt.Sprint("d", i%5), books[i%5])
				all.Go(func() {
					r := h.run(w, func(j *dispatch.Job) { j.IfHeld = held })
					if r.Code != 0 && (held != dispatch.HeldFail || r.Code != 110) {
						t.Errorf("got %+v", r)
					}
				})
			}
			all.Wait()
			if w.count() != 1 {
				t.Errorf("begun %d times", w.count())
			}
		})
	}
}

func TestFiftyOccurrencesThatWaitRunFiftyTimesOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		w := &work{takes: 3 * time.Second}
		books := []*book{newBook(), newBook(), newBook(), newBook(), newBook()}
		var all sync.WaitGroup
		for i := range 50 {
			h := newHostOver(t, s, fmt.Sprint("d", i%5), books[i%5])
			occ := fmt.Sprint("key:", i)
			all.Go(func() {
				r := h.run(w, func(j *dispatch.Job) { j.Occurrence, j.Run, j.IfHeld = occ, runID(occ), dispatch.HeldWait })
				wantCode(t, r, 0, dispatch.Yes, coord.RunCommitted)
			})
		}
		all.Wait()
		if w.count() != 50 || w.most != 1 {
			t.Errorf("begun %d times, %d at once", w.count(), w.most)
		}
		for i, e := range slices.Sorted(slices.Values(w.epochs)) {
			if e != coord.Epoch(i+1) {
				t.Fatalf("epochs are not dense: %v", w.epochs)
			}
		}
	})
}

func TestRunsOfOneDispatcherMayBeConcurrent(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memory.Store) {
		h := newHost(t, s, "a", func(c *dispatch.Config) { c.Book = nil })
		w := &work{takes: time.Minute}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { h.run(w) })
		}
		all.Wait()
		if w.count() != 1 {
			t.Errorf("begun %d times", w.count())
		}
	})
}

func TestAWaitSurvivesAShortOutage(t *testing.T) {
	for _, c := range []struct {
		outage time.Duration
		code   int
	}{{8 * time.Second, 0}, {time.Hour, 125}} {
		inBubble(t, func(t *testing.T, s *memory.Store) {
			a, b := newHost(t, s, "a"), newHost(t, s, "b")
			done := make(chan struct{})
			go func() {
				a.run(&work{takes: time.Minute}, func(j *dispatch.Job) { j.Occurrence, j.Run = "key:other", runID("key:other") })
				close(done)
			}()
			bubble.Pass(time.Second)
			time.AfterFunc(10*time.Second, func() {
				b.c.fail(failing(coord.ErrNotSent), nil)
				time.AfterFunc(c.outage, func() { b.c.fail(nil, nil) })
			})
			if r := b.run(&work{}, func(j *dispatch.Job) { j.IfHeld = dispatch.HeldWait }); r.Code != c.code {
				t.Errorf("got %+v", r)
			}
			<-done
			bubble.Pass(2 * time.Hour)
		})
	}
}
