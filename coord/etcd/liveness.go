package etcd

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
)

// A life is the liveness of this process for one device and TTL class: a key on an etcd lease.
type life struct {
	c          *Coordinator
	device, id string
	key, raw   string
	class      time.Duration

	opening gate // one revival or cold grant at a time

	mu      sync.Mutex
	lease   clientv3.LeaseID               // the one that the key is on, or shall be put on; 0 if none
	put     bool                           // the key was put on lease
	granted map[clientv3.LeaseID]time.Time // not seen dead: when the last good grant or keepalive was sent
	next    *round                         // not begun yet
	running bool                           // a goroutine runs rounds
}

// A round is one keepalive, shared by all that asked before it was sent.
type round struct {
	done chan struct{}
	err  error
}

// lifeOf returns the process's liveness for a TTL class; nil for TTL 0, which has none.
func (c *Coordinator) lifeOf(device string, class time.Duration) *life {
	id := c.id + "-" + strconv.Itoa(int(class/time.Second))
	key := c.keys.live(device, id)
	if class == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lives[key]
	if l == nil {
		l = &life{c: c, device: device, id: id, key: key, class: class, granted: map[clientv3.LeaseID]time.Time{}}
		l.raw = encode(liveValue{V: valueVersion, Process: c.process})
		l.opening.held = map[string]chan struct{}{}
		c.lives[key] = l
	}
	return l
}

// liveness is the id that an attempt under the lease bears: that of the lease, or one that no key ever has.
func (c *Coordinator) liveness(leaseLiveness string) string {
	if leaseLiveness == "" {
		return c.id + "-0"
	}
	return leaseLiveness
}

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
			if err := l.touch(ctx); err != nil {
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
	l.mu.Unlock()
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

// wasPut notes that the key was put on the lease.
func (l *life) wasPut(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease, l.put = id, true
}

// saw notes on which etcd lease the key was seen; 0 if it was not there. It is an error if that lease was
// never granted to this process.
func (l *life) saw(id clientv3.LeaseID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, own := l.granted[id]; own {
		l.lease, l.put = id, true
		return nil
	}
	l.put = false
	if id != 0 {
		return fmt.Errorf("liveness %s: %w: another process uses it", l.key, coord.ErrUnverifiable)
	}
	return nil
}

// died notes that the etcd lease does not exist any more.
func (l *life) died(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.granted, id)
	if l.lease == id {
		l.lease, l.put = 0, false
	}
}

// sentOn is when the last good grant or keepalive of the etcd lease was sent; false if it is not ours.
func (l *life) sentOn(id clientv3.LeaseID) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent, ok := l.granted[id]
	return sent, ok
}

// touch returns after a keepalive that was sent after the call. If the etcd lease turns out to be dead, that is no
// error: the life is then without a lease. Concurrent calls share a keepalive.
func (l *life) touch(ctx context.Context) error {
	l.mu.Lock()
	r := l.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		l.next = r
	}
	if !l.running {
		if !l.c.spawn(l.rounds) {
			l.next = nil
			l.mu.Unlock()
			return fmt.Errorf("renew: %w: the coordinator is closed", coord.ErrNotSent)
		}
		l.running = true
	}
	l.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("renew the liveness of device %s: %w: no answer from %s yet: %w", l.device, coord.ErrNotSent,
			strings.Join(l.c.client.Endpoints(), ","), context.Cause(ctx))
	}
}

// rounds runs the rounds that were asked for, one after another.
func (l *life) rounds() {
	for {
		l.mu.Lock()
		r, id := l.next, l.lease
		l.next = nil
		if r == nil {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if id != 0 {
			r.err = l.keepalive(l.c.base, id)
		}
		close(r.done)
	}
}

// keepalive renews the etcd lease, trying for a third of the TTL.
func (l *life) keepalive(ctx context.Context, id clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, l.class/3)
	defer cancel()
	t := l.c.tries("renew the liveness of device", l.device)
	t.wait = min(t.wait, l.class/9)
	for {
		if ctx.Err() != nil {
			return t.ended(ctx, false)
		}
		at := time.Now() // before asking
		var alive bool
		err := t.once(ctx, func(ctx context.Context) (err error) {
			alive, err = l.c.keepaliveOnce(ctx, id)
			return err
		})
		switch {
		case classify(err) == noLease, err == nil && !alive:
			l.died(id)
			return nil
		case err == nil:
			l.mu.Lock()
			if _, ok := l.granted[id]; ok {
				l.granted[id] = at
			}
			l.mu.Unlock()
			return nil
		case permanent(err):
			return fmt.Errorf("%s: %w: %w", t.name(), coord.ErrNotSent, err)
		}
		t.pause(ctx)
	}
}

// keepaliveOnce sends one keepalive and waits for its answer. The client's own loops without a pause, or
// hands answers over a channel that says nothing about when they were asked for.
func (c *Coordinator) keepaliveOnce(ctx context.Context, id clientv3.LeaseID) (alive bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.leases.LeaseKeepAlive(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil && err != io.EOF {
		return false, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return false, err
	}
	return resp.TTL > 0, nil
}

// revive puts the liveness key again after it was seen gone. Who holds by it has to be verified anew.
func (l *life) revive(ctx context.Context) error {
	end, err := l.opening.enter(ctx, l.id)
	if err != nil {
		return err
	}
	defer end()
	if _, ok := l.warm(); ok {
		return nil // another did
	}
	for {
		id, _, err := l.fresh(ctx)
		if err != nil {
			return err
		}
		ans, err := l.c.propose(ctx, proposal{
			what: "revive the liveness of device", agent: l.device,
			cmps: []clientv3.Cmp{gone(l.key)},
			puts: []clientv3.Op{clientv3.OpPut(l.key, l.raw, clientv3.WithLease(id))},
			gets: []string{l.key},
			ours: func(st state) bool { return st.on(l.key) == id },
		})
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", coord.ErrNotSent, err) // whatever became of it, no holder changed
		case ans.done:
			l.wasPut(id)
			return nil
		case ans.leaseGone:
			l.died(id)
		default:
			other := ans.st.on(l.key)
			if err := l.saw(other); err != nil {
				return err
			}
			l.c.revoke(ctx, l, id)
			if err := l.keepalive(ctx, other); err != nil {
				return err
			}
			if _, ok := l.warm(); ok {
				return nil
			}
		}
	}
}
