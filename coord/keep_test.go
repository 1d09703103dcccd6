package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/bubble"
)

// line stands between a keeper and its coordinator: it counts renewals and can be cut.
type line struct {
	coord.LeaseCoordinator

	mu     sync.Mutex
	cut    bool // renewals get no answer until their context ends
	deaf   bool // and not even then, until release is closed
	heal   chan struct{}
	sends  []time.Time
	answer error // what a renewal gets instead of an answer
}

func (l *line) set(change func(*line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

func (l *line) Renew(ctx context.Context, agent, device string, epoch coord.Epoch, ttl time.Duration) (coord.Lease, error) {
	l.mu.Lock()
	l.sends = append(l.sends, time.Now())
	cut, deaf, heal, answer := l.cut, l.deaf, l.heal, l.answer
	l.mu.Unlock()
	if deaf {
		<-heal
	}
	if cut {
		<-ctx.Done()
		return coord.Lease{}, fmt.Errorf("%w: %w", coord.ErrIndeterminate, context.Cause(ctx))
	}
	if answer != nil {
		return coord.Lease{}, answer
	}
	return l.LeaseCoordinator.Renew(ctx, agent, device, epoch, ttl)
}

func (l *line) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sends)
}

const ttl = coord.DefaultTTL

// kept starts a keeper of a lease with the default TTL in a bubble.
func kept(t *testing.T, opts coord.KeepOptions) (*memory.Store, *line, *coord.Keeper) {
	t.Helper()
	store := memory.New(memory.Config{})
	c := store.Process(coord.Process{})
	l, err := c.Acquire(t.Context(), coord.Request{Agent: "a", Device: "d1", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	cable := &line{LeaseCoordinator: c, heal: make(chan struct{})}
	return store, cable, coord.Keep(t.Context(), cable, l, opts)
}

func steal(t *testing.T, store *memory.Store, want error) {
	t.Helper()
	_, err := store.Process(coord.Process{}).Acquire(t.Context(), coord.Request{Agent: "a", Device: "d2", TTL: ttl})
	if !errors.Is(err, want) {
		t.Fatalf("acquire by another: got %v, want %v", err, want)
	}
}

func ended(t *testing.T, k *coord.Keeper, want error) {
	t.Helper()
	if k.Context().Err() == nil || !errors.Is(context.Cause(k.Context()), want) {
		t.Fatalf("context: %v, cause %v, want %v", k.Context().Err(), context.Cause(k.Context()), want)
	}
	if err := k.Trusted(); !errors.Is(err, want) {
		t.Errorf("Trusted() = %v, want %v", err, want)
	}
}

func trusted(t *testing.T, k *coord.Keeper) {
	t.Helper()
	if err := k.Trusted(); err != nil || k.Context().Err() != nil {
		t.Fatalf("Trusted() = %v, context %v", err, context.Cause(k.Context()))
	}
}

func TestAKeptLeaseIsRenewedEveryThirdOfItsTTLAndNeverExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cable, k := kept(t, coord.KeepOptions{})
		begun := k.Sent()
		for range 20 {
			bubble.Pass(ttl)
			trusted(t, k)
			steal(t, store, coord.ErrHeld)
		}
		k.Stop()
		for i, at := range cable.sends {
			if want := begun.Add(time.Duration(i+1) * ttl / 3); !at.Equal(want) {
				t.Fatalf("renewal %d at %s, want %s", i, at.Sub(begun), want.Sub(begun))
			}
		}
		if n := cable.count(); n < 59 || n > 60 {
			t.Errorf("%d renewals in 20 TTLs", n)
		}
		if k.Sent() != cable.sends[len(cable.sends)-1] || k.Lease().Epoch != 1 {
			t.Errorf("lease %+v", k.Lease())
		}
	})
}

func TestAStolenLeaseEndsTheContextAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _, k := kept(t, coord.KeepOptions{})
		store.Expire(k.Lease().Liveness)
		steal(t, store, nil)
		<-k.Context().Done()
		ended(t, k, coord.ErrLost)
		if lost, ok := errors.AsType[*coord.LostError](context.Cause(k.Context())); !ok || lost.Current != 2 {
			t.Errorf("cause %v does not say who holds it", context.Cause(k.Context()))
		}
		if since := time.Since(k.Sent()); since > ttl/3 {
			t.Errorf("noticed after %s", since)
		}
		k.Stop()
	})
}

func TestAnUnreachableCoordinatorEndsTheContextBeforeAnotherCanHold(t *testing.T) {
	for name, spoil := range map[string]func(*line){
		"no answer":               func(l *line) { l.cut = true },
		"deaf to its own context": func(l *line) { l.deaf = true },
		"refused":                 func(l *line) { l.answer = coord.ErrNotSent },
		"invalid":                 func(l *line) { l.answer = coord.ErrInvalid },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, cable, k := kept(t, coord.KeepOptions{})
				bubble.Pass(ttl)
				sent := k.Sent()
				cable.set(spoil)
				<-k.Context().Done()
				if at := time.Since(sent); at >= ttl || at < ttl-time.Second {
					t.Errorf("ended %s after the last good send", at)
				}
				ended(t, k, coord.ErrUnverifiable)
				steal(t, store, coord.ErrHeld)
				close(cable.heal)
				k.Stop()
				bubble.Pass(time.Until(sent.Add(ttl + ttl/3)))
				steal(t, store, nil)
			})
		})
	}
}

func TestTheCauseNamesWhyTheLastRenewalFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cable, k := kept(t, coord.KeepOptions{})
		full := errors.New("the disk is full")
		cable.set(func(l *line) { l.answer = full })
		<-k.Context().Done()
		ended(t, k, full)
		ended(t, k, coord.ErrUnverifiable)
		k.Stop()
	})
}

func TestAShortStallTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cable, k := kept(t, coord.KeepOptions{})
		for range 5 {
			bubble.Pass(ttl/3 - time.Millisecond)
			cable.set(func(l *line) { l.cut = true })
			bubble.Pass(ttl / 3)
			cable.set(func(l *line) { l.cut = false })
			trusted(t, k)
			bubble.Pass(ttl/3 + 2*time.Millisecond)
			trusted(t, k)
		}
		k.Stop()
	})
}

func TestATryIsBoundedAndFollowedByAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cable, k := kept(t, coord.KeepOptions{Retry: time.Second})
		begun := k.Sent()
		cable.set(func(l *line) { l.cut = true })
		<-k.Context().Done()
		k.Stop()
		want := []time.Duration{ttl / 3, 2*ttl/3 + time.Second}
		for i, at := range cable.sends {
			if i >= len(want) || at.Sub(begun) != want[i] {
				t.Fatalf("try %d at %s, want %v", i, at.Sub(begun), want)
			}
		}
	})
}

func TestStopEndsTheContextAsReleasedAndKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cable, k := kept(t, coord.KeepOptions{})
		k.Stop()
		k.Stop()
		ended(t, k, coord.ErrReleased)
		steal(t, store, coord.ErrHeld)
		bubble.Pass(ttl)
		if cable.count() != 0 {
			t.Error("renewed after Stop")
		}
		steal(t, store, nil)
	})
}

func TestReleaseHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _, k := kept(t, coord.KeepOptions{})
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended(t, k, coord.ErrReleased)
		steal(t, store, nil)
	})
}

func TestTheCallersContextEndsTheKeeperWithItsOwnCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Config{})
		c := store.Process(coord.Process{})
		l, err := c.Acquire(t.Context(), coord.Request{Agent: "a", Device: "d1", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		k := coord.Keep(ctx, c, l, coord.KeepOptions{})
		down := errors.New("going down")
		cancel(down)
		ended(t, k, down)
		k.Stop()
	})
}

func TestALeaseWithoutTTLIsNeverTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.New(memory.Config{}).Process(coord.Process{})
		l, err := c.Acquire(t.Context(), coord.Request{Agent: "a", Device: "d1"})
		if err != nil {
			t.Fatal(err)
		}
		k := coord.Keep(t.Context(), c, l, coord.KeepOptions{})
		<-k.Context().Done()
		ended(t, k, coord.ErrUnverifiable)
		k.Stop()
	})
}

func TestALeaseThatIsOldAlreadyIsTrustedFromItsSendingOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.New(memory.Config{}).Process(coord.Process{})
		l, err := c.Acquire(t.Context(), coord.Request{Agent: "a", Device: "d1", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		bubble.Pass(ttl - ttl/10)
		cable := &line{LeaseCoordinator: c, cut: true}
		k := coord.Keep(t.Context(), cable, l, coord.KeepOptions{})
		trusted(t, k)
		<-k.Context().Done()
		if at := time.Since(l.Sent); at >= ttl {
			t.Errorf("ended %s after it was sent", at)
		}
		k.Stop()
	})
}

// wall is a wall clock that can be set.
type wall struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (w *wall) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Round(0).Add(w.ahead)
}

func (w *wall) jump(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
}

func TestAClockJumpVoidsTrustUntilARenewalSucceedsAndStopsNobody(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, time.Second} {
		t.Run(jump.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w wall
				_, cable, k := kept(t, coord.KeepOptions{}.WithWall(w.now))
				bubble.Pass(time.Second)
				before := cable.count()
				w.jump(jump)
				if err := k.Trusted(); !errors.Is(err, coord.ErrUnverifiable) || k.Context().Err() != nil {
					t.Fatalf("Trusted() = %v, context %v", err, context.Cause(k.Context()))
				}
				synctest.Wait()
				if cable.count() != before+1 {
					t.Errorf("%d renewals at once, want 1", cable.count()-before)
				}
				trusted(t, k)
				bubble.Pass(3 * ttl)
				trusted(t, k)
				k.Stop()
			})
		})
	}
}

func TestASuspendIsNoticedWithoutBeingAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wall
		store, _, k := kept(t, coord.KeepOptions{}.WithWall(w.now))
		store.Expire(k.Lease().Liveness) // the host slept past its TTL
		steal(t, store, nil)
		w.jump(time.Hour)
		asleep := time.Now()
		<-k.Context().Done()
		ended(t, k, coord.ErrLost)
		if took := time.Since(asleep); took > ttl/6+time.Second {
			t.Errorf("noticed after %s", took)
		}
		k.Stop()
	})
}

func TestAfterAJumpARenewalHasToSucceedWithinAThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wall
		_, cable, k := kept(t, coord.KeepOptions{}.WithWall(w.now))
		cable.set(func(l *line) { l.cut = true })
		w.jump(time.Hour)
		_ = k.Trusted()
		jumped := time.Now()
		<-k.Context().Done()
		ended(t, k, coord.ErrUnverifiable)
		if took := time.Since(jumped); took > ttl/3 {
			t.Errorf("ended %s after the jump", took)
		}
		k.Stop()
	})
}

func TestASlewedClockIsNoJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wall
		_, cable, k := kept(t, coord.KeepOptions{}.WithWall(w.now))
		for range 3000 {
			bubble.Pass(100 * time.Millisecond)
			w.jump(time.Millisecond)
			trusted(t, k)
		}
		if n := cable.count(); n > 60 {
			t.Errorf("%d renewals in 20 TTLs", n)
		}
		k.Stop()
	})
}
