package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
)

// A pulse is a liveness to put a grant on.
type pulse struct {
	l     *life
	lease clientv3.LeaseID
	sent  time.Time
	cold  bool   // the key is not there yet: the grant has to put it
	end   func() // ends the exclusive use of a cold one
}

// pulse finds a liveness that has two thirds of its time left at least, granting an etcd lease if it must.
func (l *life) pulse(ctx context.Context) (pulse, error) {
	for {
		if p, ok := l.warm(); ok {
			if time.Since(p.sent) < l.class/3 {
				return p, nil
			}
			if _, err := l.touch(ctx, ""); err != nil {
				// A round has a bound of its own, which a change of etcd's leader may outlast; the caller's counts.
				if errors.Is(err, context.DeadlineExceeded) && l.c.breathe(ctx) {
					continue
				}
				return pulse{}, err
			}
			if p, ok := l.warm(); ok {
				return p, nil
			}
			continue
		}
		end, err := l.opening.enter(ctx, l.id)
		if err != nil {
			return pulse{}, err
		}
		if _, ok := l.warm(); ok {
			end()
			continue
		}
		id, sent, err := l.fresh(ctx)
		if err != nil {
			end()
			return pulse{}, err
		}
		return pulse{l: l, lease: id, sent: sent, cold: true, end: end}, nil
	}
}

// breathe waits a little before the next try; false if there is none, since ctx or the coordinator ended.
func (c *Coordinator) breathe(ctx context.Context) bool {
	timer := time.NewTimer(50*time.Millisecond + rand.N(50*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-c.base.Done():
	}
	return false
}

func (l *life) warm() (pulse, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return pulse{l: l, lease: l.lease, sent: l.granted[l.lease], end: func() {}}, l.put && l.lease != 0
}

// fresh returns an etcd lease for a key that is not there: the one at hand if it is young, or a new one.
func (l *life) fresh(ctx context.Context) (clientv3.LeaseID, time.Time, error) {
	l.mu.Lock()
	id, sent := l.lease, l.granted[l.lease]
	l.mu.Unlock()
	if id != 0 && time.Since(sent) < l.class/3 {
		return id, sent, nil
	}
	id, sent, err := l.grant(ctx)
	if err == nil {
		l.mu.Lock()
		l.lease, l.put = id, false
		l.mu.Unlock()
	}
	return id, sent, err
}

// grant asks for an etcd lease under an id of our own, so that a repeated request makes no second one.
func (l *life) grant(ctx context.Context) (clientv3.LeaseID, time.Time, error) {
	t := l.c.tries("open the liveness of device", l.device)
	req := &etcdserverpb.LeaseGrantRequest{ID: rand.Int64N(1<<62) + 1<<62, TTL: int64(l.class / time.Second)}
	id, first := clientv3.LeaseID(req.ID), time.Now()
	l.mu.Lock()
	l.granted[id] = first
	l.pruneLocked()
	l.mu.Unlock()
	if l.c.base.Err() != nil { // else Close finds it
		return 0, first, fmt.Errorf("%s: %w: the coordinator is closed", t.name(), coord.ErrNotSent)
	}
	for {
		if ctx.Err() != nil {
			return 0, first, t.ended(ctx, false)
		}
		err := t.once(ctx, func(ctx context.Context) error {
			_, err := l.c.leases.LeaseGrant(ctx, req)
			return err
		})
		switch class := classify(err); {
		case class == answered, class == leaseExists:
			return id, first, nil
		case class == noSpace:
			return 0, first, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrFull, err)
		case permanent(err):
			return 0, first, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrNotSent, err)
		}
		t.pause(ctx)
	}
}
