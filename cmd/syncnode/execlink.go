package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
)

// A link is the lease of a run as its wrapper knows it from a node that keeps it: it is trusted as long as the last answer
// of the node allows, counted from before the question was sent, on the wall clock and on the monotonic one.
type link struct {
	c       *nodeClient
	path    string // of the run
	attempt string
	drain   func() // the node goes down in good order: the command is to stop

	ctx    context.Context // ends when the command may have to stop
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	st    api.Standing
	begun coord.Lease // Sent is that of st
}

var _ dispatch.Held = (*link)(nil)

func newLink(c *nodeClient, path string, st api.Standing, sent time.Time, drain func()) *link {
	l := &link{c: c, path: path, attempt: st.Attempt, drain: drain}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.heard(st, sent)
	return l
}

// heard takes an answer to what was sent then.
func (l *link) heard(st api.Standing, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ttl := time.Duration(st.TTL) * time.Millisecond
	// The lease's own Sent on this clock: the node's answer gives the instant of the stop, two thirds after it.
	lease := coord.Lease{Agent: st.Agent, Epoch: coord.Epoch(st.Epoch), TTL: ttl, Sent: sent.Add(time.Duration(st.StopAfter)*time.Millisecond - ttl*2/3)}
	if l.begun.Sent.IsZero() || lease.Sent.After(l.begun.Sent) {
		l.st, l.begun = st, lease
	}
}

// Context implements dispatch.Held.
func (l *link) Context() context.Context { return l.ctx }

// Lease implements dispatch.Held. A clock that stood still while the host slept makes the lease no younger.
func (l *link) Lease() coord.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, now := l.begun, time.Now()
	if slept := now.Round(0).Sub(lease.Sent.Round(0)) - now.Sub(lease.Sent); slept > 0 {
		lease.Sent = lease.Sent.Add(-slept)
	}
	return lease
}

// Trusted implements dispatch.Held.
func (l *link) Trusted() error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	if lease := l.Lease(); !time.Now().Before(dispatch.StopAt(lease)) {
		return fmt.Errorf("the node was not heard of since %s: %w", lease.Sent.UTC().Format(time.RFC3339), coord.ErrUnverifiable)
	}
	return nil
}

// beat says that the wrapper is there until ctx ends.
func (l *link) beat(ctx context.Context) {
	for {
		l.mu.Lock()
		pause := max(time.Duration(l.st.Heartbeat)*time.Millisecond, 100*time.Millisecond)
		l.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if !time.Now().Before(dispatch.StopAt(l.Lease())) {
			l.cancel(l.Trusted()) // the timers of a host that slept are late
		}
		sent := time.Now()
		ask, cancel := context.WithTimeout(ctx, 2*pause)
		var st api.Standing
		_, _, err := l.c.do(ask, "POST", l.path+"/heartbeat", map[string]any{"attempt": l.attempt}, &st)
		cancel()
		switch name := problemName(err); {
		case err == nil && st.Stop && st.Cause == coord.CauseDrain:
			l.heard(st, sent)
			l.drain()
		case err == nil && st.Stop:
			l.cancel(fmt.Errorf("the node says so: %w", coord.ErrUnverifiable))
		case err == nil:
			l.heard(st, sent)
		case name == "claim-unknown":
			l.cancel(fmt.Errorf("the node does not know the attempt any more: %w", coord.ErrLost))
		}
	}
}

// check asks the ledger, through the node, whether the command may still act.
func (l *link) check(ctx context.Context) error {
	if err := l.Trusted(); err != nil {
		return err
	}
	sent := time.Now()
	var st api.Standing
	if _, _, err := l.c.do(ctx, "POST", l.path+"/check", map[string]any{"attempt": l.attempt}, &st); err != nil {
		return err
	}
	l.heard(st, sent)
	if st.Stop {
		return errors.New("the node says to stop")
	}
	return l.Trusted()
}
