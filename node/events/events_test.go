package events

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
)

func publish(r *Ring, from, n int) {
	for i := range n {
		r.Publish(Event{Kind: RunEnded, Run: fmt.Sprint(from + i)})
	}
}

func TestAReaderSeesEveryEventOnceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		c := r.Now()
		seen := make(chan string, 3*Size)
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			for {
				got, after, whole, err := r.Wait(ctx, c)
				if err != nil {
					return
				}
				if !whole {
					t.Error("a reader that keeps up is told of a gap")
					return
				}
				c = after
				for _, e := range got {
					seen <- e.Run
				}
			}
		}()
		for i := range 6 {
			publish(r, i*Size/2, Size/2)
			synctest.Wait()
		}
		cancel()
		<-done
		close(seen)
		i := 0
		for run := range seen {
			if run != fmt.Sprint(i) {
				t.Fatalf("event %d is %s", i, run)
			}
			i++
		}
		if i != 3*Size {
			t.Errorf("%d events seen of %d", i, 3*Size)
		}
	})
}

func TestAReaderThatIsTooFarBehindIsToldOfTheGap(t *testing.T) {
	r := New()
	publish(r, 0, 3)
	id := r.ID(2)
	if c, gap := r.Find(id); gap || c != 2 {
		t.Errorf("id %s found at %d, gap %v", id, c, gap)
	}
	publish(r, 3, Size)
	if _, _, whole, _ := r.Wait(t.Context(), 2); whole {
		t.Error("lost events were not told")
	}
	c, gap := r.Find(id)
	if !gap {
		t.Error("a gap after an id was not told")
	}
	got, _, whole, err := r.Wait(t.Context(), c)
	if err != nil || !whole || len(got) != Size || got[0].Run != "3" {
		t.Errorf("after a gap: %d events, whole %v, %v", len(got), whole, err)
	}
}

func TestAnIdOfAnotherLifeIsAGap(t *testing.T) {
	was, now := New(), New()
	publish(was, 0, 5)
	publish(now, 0, 9)
	for _, id := range []string{was.ID(5), "", "x", now.ID(10), now.life + "-x"} {
		if _, gap := now.Find(id); !gap {
			t.Errorf("id %q is taken for a place of this life", id)
		}
	}
}
