package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// A mode is what happens to a client's bytes. Where two apply, the greater one wins.
type mode int32

const (
	modePass             mode = iota
	modeBlackholeReplies      // the member hears, the client does not
	modeBlackhole
	modeCut
)

// A ClientProxy is one client's own way to the members, with an endpoint for each, so that one client
// can be cut off while others go on. It understands enough of HTTP/2 to tell requests apart.
type ClientProxy struct {
	c      *Cluster
	fronts []*front

	mu      sync.Mutex // guards the rest, and the fields of conns that say so
	closed  bool
	mode    mode
	hold    bool
	held    int // whole requests that are held
	drop    *drop
	conns   map[*clientConn]struct{}
	changed chan struct{} // closed and replaced whenever something changes that somebody may wait for
}

// A drop is the order to lose one reply. All fields are guarded by the proxy's lock.
type drop struct {
	methods []string    // empty: any unary method
	conn    *clientConn // nil until a request was chosen
	stream  uint32
	method  string
	done    bool
	err     error
}

// NewClientProxy adds a way to the members. It ends with the cluster, or on its Close.
func (c *Cluster) NewClientProxy() (*ClientProxy, error) { return c.addProxy() }

func (c *Cluster) addProxy() (*ClientProxy, error) {
	p := &ClientProxy{c: c, conns: make(map[*clientConn]struct{}), changed: make(chan struct{})}
	for _, m := range c.members {
		f, err := newFront(func(in net.Conn) { p.serve(m, in) })
		if err != nil {
			p.Close()
			return nil, err
		}
		p.fronts = append(p.fronts, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
		p.Close()
		return nil, errClosed
	default:
	}
	c.proxies = append(slices.Clip(c.proxies), p)
	return p, nil
}

// Endpoints returns p's client URLs, one per member, in the members' order.
func (p *ClientProxy) Endpoints() []string {
	urls := make([]string, len(p.fronts))
	for i, f := range p.fronts {
		urls[i] = f.url()
	}
	return urls
}

// Close ends p and its connections. It may be called more than once.
func (p *ClientProxy) Close() {
	p.mu.Lock()
	p.closed = true
	for conn := range p.conns {
		conn.abortLocked()
	}
	p.notifyLocked()
	p.mu.Unlock()
	for _, f := range p.fronts {
		f.close()
	}
}

// Cut resets p's connections and every new one, until Heal.
func (p *ClientProxy) Cut() { p.setMode(modeCut) }

// Blackhole makes the bytes of both directions vanish while connections stay open, until Heal. New
// connections are accepted and never answered.
func (p *ClientProxy) Blackhole() { p.setMode(modeBlackhole) }

// BlackholeReplies lets the members hear the client and makes all they say vanish, until Heal.
func (p *ClientProxy) BlackholeReplies() { p.setMode(modeBlackholeReplies) }

// Heal undoes Cut, Blackhole, BlackholeReplies and a DropNextReply that has not chosen its request.
// Connections that have lost bytes are reset, as they could not go on.
func (p *ClientProxy) Heal() {
	p.mu.Lock()
	if p.drop != nil && p.drop.conn == nil {
		p.drop = nil
	}
	p.mu.Unlock()
	p.setMode(modePass)
}

func (p *ClientProxy) setMode(mode mode) {
	p.mu.Lock()
	p.mode = mode
	p.mu.Unlock()
	p.enforce()
}

// enforce ends the connections that the modes in force do not allow.
func (p *ClientProxy) enforce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if mode := p.modeLocked(conn.m); mode == modeCut || mode < conn.lost {
			conn.abortLocked()
		}
	}
	p.notifyLocked()
}

func (p *ClientProxy) modeLocked(m *member) mode { return max(p.mode, mode(m.gate.Load())) }

// DropNextReply chooses the next unary request that starts on p, of one of the given methods ("Txn",
// "Put", "LeaseGrant") or of any. The member gets the request whole and answers it; from the request on
// nothing that the member says on that connection reaches the client, and when the answer is complete
// the connection is reset. So the request took effect as far as the member is concerned, and its
// client sees an error without knowing. A streaming method is chosen only if it is named; its first
// message counts as the answer. A new call replaces an order that has not chosen its request yet.
func (p *ClientProxy) DropNextReply(methods ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = &drop{methods: slices.Clone(methods)}
}

// WaitDropped waits until the reply that the last DropNextReply asked for was lost. It fails if the
// connection ended before the member's answer, so that nothing is known.
func (p *ClientProxy) WaitDropped(ctx context.Context) error {
	p.mu.Lock()
	d := p.drop
	p.mu.Unlock()
	if d == nil {
		return errors.New("cluster: wait for a dropped reply: none was ordered")
	}
	err := p.wait(ctx, func() bool { return d.done })
	if err != nil {
		return fmt.Errorf("cluster: wait for a dropped reply: %w", err)
	}
	return d.err
}

// HoldRequests keeps back the requests that p's client makes from now on, and its messages on open
// streams, until Release. The connection itself stays alive, and replies pass. A client that gives a
// held request up does not take it back. A connection's requests are limited to the 64 KiB that HTTP/2
// lets a client send unasked.
func (p *ClientProxy) HoldRequests() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = true
}

// WaitHeld waits until at least n whole requests are held.
func (p *ClientProxy) WaitHeld(ctx context.Context, n int) error {
	if err := p.wait(ctx, func() bool { return p.held >= n }); err != nil {
		return fmt.Errorf("cluster: wait for %d held requests: %w", n, err)
	}
	return nil
}

// Release delivers the held requests in order, also those whose client has gone, and lets new ones
// pass. It returns when the members have answered them all, and fails if a connection to a member
// broke before.
func (p *ClientProxy) Release(ctx context.Context) error {
	p.mu.Lock()
	p.hold = false
	var conns []*clientConn
	for conn := range p.conns {
		conns = append(conns, conn)
	}
	p.mu.Unlock()
	for _, conn := range conns {
		conn.deliver()
	}
	err := p.wait(ctx, func() bool {
		return !slices.ContainsFunc(conns, func(conn *clientConn) bool { return len(conn.awaited) > 0 && !conn.dead })
	})
	if err != nil {
		return fmt.Errorf("cluster: release held requests: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if len(conn.awaited) > 0 {
			return fmt.Errorf("cluster: release held requests: %d were not answered by member %d", len(conn.awaited), conn.m.index)
		}
	}
	return nil
}

// wait waits until f, called with the lock held, is true.
func (p *ClientProxy) wait(ctx context.Context, f func() bool) error {
	for {
		p.mu.Lock()
		ok, closed, changed := f(), p.closed, p.changed
		p.mu.Unlock()
		switch {
		case ok:
			return nil
		case closed:
			return errClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *ClientProxy) notifyLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}
