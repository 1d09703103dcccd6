package coord

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// KeepOptions tunes a Keeper. Zero fields take their defaults.
type KeepOptions struct {
	// Margin is how long before Sent+TTL trust ends: for a timer that fires late and a clock that runs a
	// little fast. Default: TTL/10, at most 500 ms.
	Margin time.Duration
	// Retry is the pause after a renewal that failed. Default: TTL/15, at most 1 s.
	Retry time.Duration

	wall func() time.Time // the wall clock, which may jump
}

// A Keeper renews one lease and knows how long it can be trusted.
//
// It renews a third of the TTL after the last good renewal was sent. A try lasts at most a third of the
// TTL, and after one that failed there is a pause. Trust ends at Sent+TTL less the margin, whatever a
// renewal does at that moment; until then failures touch nothing.
//
// When wall clock and monotonic clock part, the host was suspended or its clock was set: Trusted says no
// until a renewal, sent at once, succeeded. The context ends only if that takes longer than a third of the TTL.
//
// All methods may be called from several goroutines.
type Keeper struct {
	c      LeaseCoordinator
	opts   KeepOptions
	ttl    time.Duration
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when run returned
	hurry  chan struct{} // asks run to renew at once; one place

	mu     sync.Mutex
	lease  Lease         // with the Sent of the last good renewal
	trust  time.Time     // when trust ends
	timer  *time.Timer   // fires then
	apart  time.Duration // wall clock less monotonic clock, as it was when last looked at
	start  time.Time     // origin of the monotonic clock
	jumped bool          // the clocks parted, and no renewal succeeded since
	failed error         // why the last renewal failed; nil if it did not
}

// tolerance is how far wall clock and monotonic clock may part between two looks: clocks are slewed.
const tolerance = 500 * time.Millisecond

// Keep renews l through c until Stop is called, ctx ends, or the lease can no longer be trusted. A lease
// with TTL 0 cannot be trusted at all.
func Keep(ctx context.Context, c LeaseCoordinator, l Lease, opts KeepOptions) *Keeper {
	if opts.Margin <= 0 {
		opts.Margin = min(l.TTL/10, 500*time.Millisecond)
	}
	if opts.Retry <= 0 {
		opts.Retry = min(l.TTL/15, time.Second)
	}
	if opts.wall == nil {
		opts.wall = func() time.Time { return time.Now().Round(0) }
	}
	k := &Keeper{c: c, opts: opts, ttl: l.TTL, done: make(chan struct{}), hurry: make(chan struct{}, 1), lease: l, start: time.Now()}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.mu.Lock()
	k.apart = k.apartNow()
	k.trust = l.Sent.Add(l.TTL - opts.Margin)
	k.timer = time.AfterFunc(time.Until(k.trust), k.expire)
	k.mu.Unlock()
	go k.run(l.Sent.Add(l.TTL / 3))
	return k
}

// Context ends with the lease. Its cause matches ErrLost, ErrUnverifiable or, after Stop or Release,
// ErrReleased; if the context given to Keep ended first, it is that one's.
func (k *Keeper) Context() context.Context { return k.ctx }

// Lease returns the lease as last renewed.
func (k *Keeper) Lease() Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease
}

// Sent is the local time before the last good renewal was sent.
func (k *Keeper) Sent() time.Time { return k.Lease().Sent }

// Trusted is nil while the lease can be trusted: to be asked right before an effect. Otherwise the error
// is the cause of the context, or matches ErrUnverifiable while a renewal has to succeed first.
func (k *Keeper) Trusted() error {
	k.look()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.ctx.Err() != nil:
		return context.Cause(k.ctx)
	case k.jumped:
		return fmt.Errorf("%w: the clock jumped, and no renewal succeeded since", ErrUnverifiable)
	case !time.Now().Before(k.trust):
		return k.unverifiableLocked()
	}
	return nil
}

// Stop ends the renewals and waits for the one under way. The lease is not given back.
func (k *Keeper) Stop() {
	k.cancel(ErrReleased)
	<-k.done
}

// Release stops and gives the lease back.
func (k *Keeper) Release(ctx context.Context) error {
	k.Stop()
	l := k.Lease()
	return k.c.Release(ctx, l.Agent, l.Device, l.Epoch)
}

// run renews at next, and so on, until the context ends.
func (k *Keeper) run(next time.Time) {
	defer close(k.done)
	defer k.timer.Stop()
	for k.sleep(next) {
		next = k.renew()
	}
}

// sleep waits until then, or less if the clocks part. It is false once the context ended.
func (k *Keeper) sleep(until time.Time) bool {
	for {
		left := time.Until(until)
		if left <= 0 {
			return k.ctx.Err() == nil
		}
		wait := time.NewTimer(min(left, k.ttl/6+1))
		select {
		case <-k.ctx.Done():
			wait.Stop()
			return false
		case <-k.hurry:
			wait.Stop()
			return true
		case <-wait.C:
			k.look()
		}
	}
}

// renew tries once and says when to try again.
func (k *Keeper) renew() (next time.Time) {
	k.look()
	select {
	case <-k.hurry: // this is the renewal it asks for
	default:
	}
	l := k.Lease()
	at := time.Now() // before asking
	attempt, cancel := context.WithDeadlineCause(k.ctx, at.Add(k.ttl/3), errSlow)
	defer cancel()
	r, err := k.c.Renew(attempt, l.Agent, l.Device, l.Epoch, k.ttl)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.failed = err
		if errors.Is(err, ErrLost) || errors.Is(err, ErrHeld) {
			k.cancel(fmt.Errorf("%w: %w", ErrLost, err))
		}
		return time.Now().Add(k.opts.Retry)
	}
	if r.Sent.IsZero() {
		r.Sent = at
	}
	k.lease, k.failed = r, nil
	if !r.Sent.Before(at) {
		k.jumped = false // it was sent after the jump was seen
	}
	if !k.jumped {
		k.trustLocked(r.Sent.Add(k.ttl - k.opts.Margin))
	}
	return later(r.Sent.Add(k.ttl/3), time.Now().Add(k.opts.Retry))
}

var errSlow = errors.New("the renewal took longer than a third of the ttl")

// look notices that the clocks parted. Then a renewal has to succeed within a third of the TTL.
func (k *Keeper) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	apart := k.apartNow()
	moved := apart - k.apart
	k.apart = apart
	if moved < tolerance && moved > -tolerance {
		return
	}
	k.jumped = true
	if soon := time.Now().Add(k.ttl / 3); soon.Before(k.trust) {
		k.trustLocked(soon)
	}
	select {
	case k.hurry <- struct{}{}:
	default: // it is asked already
	}
}

func (k *Keeper) apartNow() time.Duration {
	mono := time.Since(k.start)
	return k.opts.wall().Sub(k.start.Round(0)) - mono
}

func (k *Keeper) trustLocked(until time.Time) {
	k.trust = until
	k.timer.Reset(time.Until(until))
}

// expire ends the context unless trust was prolonged meanwhile.
func (k *Keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := time.Until(k.trust); left > 0 {
		k.timer.Reset(left)
		return
	}
	k.cancel(k.unverifiableLocked())
}

func (k *Keeper) unverifiableLocked() error {
	why := k.failed
	if why == nil {
		why = errors.New("no answer yet")
		if k.ttl == 0 {
			why = errors.New("its ttl is 0")
		}
	}
	return fmt.Errorf("agent %s at epoch %d, last renewed at %s: %w: %w", k.lease.Agent, k.lease.Epoch,
		k.lease.Sent.UTC().Format(time.RFC3339Nano), ErrUnverifiable, why)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
