package journal

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/syncnode/syncnode/oplog"
)

// A group gathers the changes of concurrent callers, so that they share one write and one sync.
type group struct {
	mu      sync.Mutex
	queue   []*waiter
	running bool // a goroutine serves the queue
	ctx     context.Context
	cancel  context.CancelFunc
	serving sync.WaitGroup
}

// A waiter is one call of Share.
type waiter struct {
	fn   func(*Tx) error
	err  error
	done chan struct{}
}

func (g *group) init() { g.ctx, g.cancel = context.WithCancel(context.Background()) }

func (g *group) stop() {
	g.mu.Lock()
	g.cancel()
	g.mu.Unlock()
	g.serving.Wait()
}

// take empties the queue.
func (g *group) take() []*waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.queue
	g.queue = nil
	return out
}

// leave removes w from the queue and reports whether it was still there: then nothing of it was written.
func (g *group) leave(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, w)
	if i < 0 {
		return false
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	return true
}

// Append adds ops to the own chain and returns them when they are on stable storage. It is Share with Tx.Append.
func (j *Journal) Append(ctx context.Context, drafts ...Draft) ([]oplog.Op, error) {
	var ops []oplog.Op
	err := j.Share(ctx, func(tx *Tx) (err error) {
		ops, err = tx.Append(drafts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ops, nil
}

// Share is Update for changes that may share their group: concurrent calls are written and synced together. fn sees
// in tx what earlier ones of the same group appended; if it fails, what it appended itself is dropped and the others
// go on. fn runs on another goroutine. If ctx ends before fn began, the answer matches ErrBusy and nothing happened; a
// change that began is waited for. What others wrote is synced only where fn appends; who shows it to others calls Refresh.
func (j *Journal) Share(ctx context.Context, fn func(*Tx) error) error {
	if err := j.usable(); err != nil {
		return err
	}
	w := &waiter{fn: fn, done: make(chan struct{})}
	g := &j.group
	g.mu.Lock()
	if g.ctx.Err() != nil {
		g.mu.Unlock()
		return ErrClosed
	}
	g.queue = append(g.queue, w)
	if !g.running {
		g.running = true
		g.serving.Add(1)
		go j.serve()
	}
	g.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		if g.leave(w) {
			return busy(ctx, j.cfg.Dir)
		}
		<-w.done
	}
	return w.err
}

// serve writes groups until the queue is empty.
func (j *Journal) serve() {
	g := &j.group
	defer g.serving.Done()
	for {
		g.mu.Lock()
		if len(g.queue) == 0 {
			g.running = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		j.serveGroup()
	}
}

// serveGroup takes the queue under the lock, so that a caller who gave up before is not in it.
func (j *Journal) serveGroup() {
	var taken []*waiter
	err := j.update(j.group.ctx, false, func(tx *Tx) error {
		taken = j.group.take()
		for _, w := range taken {
			w.err = tx.try(w.fn)
		}
		return nil
	})
	if taken == nil {
		taken = j.group.take()
	}
	if errors.Is(err, ErrBusy) {
		err = ErrClosed // the group's own context ends with Close alone
	}
	for _, w := range taken {
		if w.err == nil {
			w.err = err
		}
		close(w.done)
	}
}
