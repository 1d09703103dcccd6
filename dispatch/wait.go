package dispatch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/syncnode/syncnode/coord"
)

const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
	// rewatch bounds one wait for a hint: hints may be lost.
	rewatch = 30 * time.Second
)

// An awaiter is a coordinator that can tell when an agent becomes free. It is a hint: it may come late or for nothing.
type awaiter interface {
	AwaitFree(ctx context.Context, agent string) error
}

// A waiter waits for a busy agent, until the job's time is over. It belongs to one goroutine.
type waiter struct {
	agent    string
	hint     awaiter   // nil: poll
	until    time.Time // zero: as long as the context lasts
	patience time.Duration

	on     bool      // it was waited
	broken time.Time // when the coordinator was first unreachable since it last answered; zero: it answers
	pause  time.Duration
}

func newWaiter(cfg Config, j Job) *waiter {
	w := &waiter{agent: j.Agent, pause: firstPause, patience: cfg.BackendTimeout}
	w.hint, _ = coord.LeaseCoordinator(cfg.Coordinator).(awaiter)
	if j.HeldWait > 0 {
		w.until = time.Now().Add(j.HeldWait)
	}
	return w
}

// bridges says whether a round that failed is no reason to give up: somebody who waits for hours survives a change of
// leader. It is, once the coordinator was away for as long as a start would wait.
func (w *waiter) bridges(err error) bool {
	if !w.on || !isOutage(err) {
		w.broken = time.Time{}
		return false
	}
	if w.broken.IsZero() {
		w.broken = time.Now()
	}
	return time.Since(w.broken) < w.patience
}

// wait returns when it is time to look again: true; or when the time or ctx is over: false. The end of the time is looked at
// once more.
func (w *waiter) wait(ctx context.Context) bool {
	w.on = true
	left := rewatch
	if !w.until.IsZero() {
		left = min(left, time.Until(w.until))
	}
	if left <= 0 {
		return false
	}
	began := time.Now()
	if w.hint != nil {
		hint, cancel := context.WithTimeout(ctx, left)
		err := w.hint.AwaitFree(hint, w.agent)
		cancel()
		if err == nil && time.Since(began) > w.pause {
			w.pause = firstPause // it was worth waiting
		}
	}
	w.sleep(ctx, left-time.Since(began))
	return ctx.Err() == nil
}

// sleep lets a little time pass, so that many who wait do not come all at once, nor one of them all the time.
func (w *waiter) sleep(ctx context.Context, most time.Duration) {
	d := w.pause/2 + rand.N(w.pause)
	w.pause = min(2*w.pause, mostPause)
	sleep(ctx, min(d, most))
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
