package etcd

import (
	"context"
	"fmt"
	"io"
	"slices"
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
	seen    int64                          // the revision at which the two were seen
	granted map[clientv3.LeaseID]time.Time // not known dead: when the last good grant or keepalive was sent
	next    *round                         // not begun yet
	running bool                           // a goroutine runs rounds
}

// A round is one keepalive and then a read of what its agents hold, shared by all that asked before it was sent.
type round struct {
	agents []string
	done   chan struct{} // closed when the rest can be read

	err   error
	lease clientv3.LeaseID // the one that was renewed; 0 if there was none, or it is dead
	sent  time.Time        // before the keepalive that was answered
	read  map[string]state // by agent: its lease, the liveness key and meta at one revision
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

// pruneLocked forgets the oldest etcd leases that were found dead by no more than a keepalive.
func (l *life) pruneLocked() {
	const most = 32
	for len(l.granted) > most {
		oldest := clientv3.LeaseID(0)
		for id, sent := range l.granted {
			if id != l.lease && (oldest == 0 || sent.Before(l.granted[oldest])) {
				oldest = id
			}
		}
		delete(l.granted, oldest)
	}
}

// wasPut notes that the key was put on the lease, at a revision.
func (l *life) wasPut(id clientv3.LeaseID, rev int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease, l.put, l.seen = id, true, max(l.seen, rev)
}

// saw notes on which etcd lease the key was in a state that was read. It is an error if that lease was never granted
// to this process. What was read before something newer is known tells nothing.
func (l *life) saw(st state) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !st.knows(l.key) || st.rev < l.seen {
		return nil
	}
	l.seen = st.rev
	id := st.on(l.key)
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

// doubt notes that a keepalive found no such etcd lease. A member that does not know yet that another leads may say
// so of a lease that is alive, so that only a read tells.
func (l *life) doubt(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == id {
		l.lease, l.put = 0, false
	}
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

// touch returns after a round that began after the call. If the etcd lease turns out to be dead, that is no error:
// the life is then without one. agent is verified too unless it is empty.
func (l *life) touch(ctx context.Context, agent string) (*round, error) {
	l.mu.Lock()
	r := l.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		l.next = r
	}
	if agent != "" {
		r.agents = append(r.agents, agent)
	}
	if !l.running {
		if !l.c.spawn(l.rounds) {
			l.next = nil
			l.mu.Unlock()
			return nil, fmt.Errorf("renew: %w: the coordinator is closed", coord.ErrNotSent)
		}
		l.running = true
	}
	l.mu.Unlock()
	select {
	case <-r.done:
		return r, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("renew the liveness of device %s: %w: no answer from %s yet: %w", l.device, coord.ErrNotSent,
			strings.Join(l.c.client.Endpoints(), ","), context.Cause(ctx))
	}
}

// rounds runs the rounds that were asked for, one after another.
func (l *life) rounds() {
	for {
		l.mu.Lock()
		r := l.next
		l.next = nil
		if r == nil {
			l.running = false
			l.mu.Unlock()
			return
		}
		r.lease = l.lease
		l.mu.Unlock()
		r.err = l.round(r)
		close(r.done)
	}
}

// round renews the etcd lease and reads what the round's agents hold.
func (l *life) round(r *round) (err error) {
	if r.lease != 0 {
		if r.sent, err = l.keepalive(l.c.base, r.lease); err != nil {
			return err
		}
		if r.sent.IsZero() {
			r.lease = 0
		}
	}
	ctx, cancel := context.WithTimeout(l.c.base, l.class/3)
	defer cancel()
	r.read = make(map[string]state, len(r.agents))
	for batch := range slices.Chunk(unique(r.agents), (readBatch-2)/2) {
		keys := []string{l.key, l.c.keys.meta()}
		for _, agent := range batch {
			keys = append(keys, l.c.keys.epoch(agent), l.c.keys.holder(agent))
		}
		st, err := l.c.read(ctx, "renew", batch[0], keys)
		if err != nil {
			return err
		}
		for _, agent := range batch {
			r.read[agent] = st
		}
	}
	return nil
}

// keepalive renews the etcd lease, trying for a third of the TTL. sent is before the keepalive that was answered; zero
// if the etcd lease is dead.
func (l *life) keepalive(ctx context.Context, id clientv3.LeaseID) (sent time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.class/3)
	defer cancel()
	t := l.c.tries("renew the liveness of device", l.device)
	t.wait = min(t.wait, l.class/9)
	for {
		if ctx.Err() != nil {
			return sent, t.ended(ctx, false)
		}
		at := time.Now() // before asking
		var alive bool
		err := t.once(ctx, func(ctx context.Context) (err error) {
			alive, err = l.c.keepaliveOnce(ctx, id)
			return err
		})
		switch {
		case classify(err) == noLease, err == nil && !alive:
			l.doubt(id)
			return sent, nil
		case err == nil:
			l.mu.Lock()
			if _, ok := l.granted[id]; ok {
				l.granted[id] = at
			}
			l.mu.Unlock()
			return at, nil
		case permanent(err):
			return sent, fmt.Errorf("%s: %w: %w", t.name(), coord.ErrNotSent, err)
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
			l.wasPut(id, ans.st.rev)
			return nil
		case ans.leaseGone:
			l.died(id)
		default:
			if err := l.saw(ans.st); err != nil {
				return err
			}
			l.c.revoke(ctx, l, id) // the key is on an earlier etcd lease of ours
			if _, err := l.keepalive(ctx, ans.st.on(l.key)); err != nil {
				return err
			}
			if _, ok := l.warm(); ok {
				return nil
			}
		}
	}
}
