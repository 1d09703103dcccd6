package cluster

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"sync"
)

// A clientConn is one connection of a client to a member through a proxy.
type clientConn struct {
	p  *ClientProxy
	m  *member
	in net.Conn

	// wmu orders what goes to the member. It is taken before the proxy's lock.
	wmu    sync.Mutex
	toward *bufio.Writer
	queue  []frame // held back; while there are any, no later request passes them

	// The rest is guarded by the proxy's lock.
	out     net.Conn            // nil until dialed
	dead    bool                // both sides are closed
	lost    mode                // the greatest mode by which bytes have vanished
	methods map[uint32]string   // of the open streams
	held    map[uint32]int      // whole requests in queue by stream, 0 for a part of one
	awaited map[uint32]struct{} // streams that were released and are not answered
}

// A verdict is what happens to a frame.
type verdict int

const (
	forward verdict = iota
	swallow
	keep
	finish // swallow, and end the connection
)

func (p *ClientProxy) serve(m *member, in net.Conn) {
	conn := &clientConn{p: p, m: m, in: in,
		methods: make(map[uint32]string), held: make(map[uint32]int), awaited: make(map[uint32]struct{})}
	defer conn.end()
	switch p.admit(conn) {
	case modeCut:
		return
	case modeBlackhole:
		_, _ = io.Copy(io.Discard, in)
		return
	}
	requests := &frameReader{r: bufio.NewReaderSize(in, 32<<10)}
	var err error
	if requests.http2, err = sniffPreface(requests.r); err != nil {
		return
	}
	_, addr, ok := m.addrs()
	if !ok {
		return
	}
	out, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return
	}
	if !conn.join(out) {
		abort(out)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		conn.pumpReplies(&frameReader{r: bufio.NewReaderSize(out, 32<<10), http2: requests.http2})
		conn.end()
	})
	conn.pumpRequests(requests)
	conn.linger()
	conn.end()
	wg.Wait()
}

// admit registers a new connection and returns the mode it meets.
func (p *ClientProxy) admit(conn *clientConn) mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	mode := p.modeLocked(conn.m)
	if p.closed || mode == modeCut {
		return modeCut
	}
	if mode == modeBlackhole {
		conn.lost = mode
	}
	p.conns[conn] = struct{}{}
	return mode
}

// join adds the dialed side, unless the connection was ended meanwhile.
func (conn *clientConn) join(out net.Conn) bool {
	conn.p.mu.Lock()
	defer conn.p.mu.Unlock()
	if conn.dead {
		return false
	}
	conn.out, conn.toward = out, bufio.NewWriterSize(out, 32<<10)
	return true
}

// end closes both sides and forgets the connection.
func (conn *clientConn) end() {
	p := conn.p
	p.mu.Lock()
	defer p.mu.Unlock()
	conn.abortLocked()
	delete(p.conns, conn)
	for _, n := range conn.held {
		p.held -= n
	}
	clear(conn.held)
	if d := p.drop; d != nil && d.conn == conn && !d.done {
		d.done, d.err = true, errNoAnswer
	}
	p.notifyLocked()
}

func (conn *clientConn) abortLocked() {
	conn.dead = true
	abort(conn.in)
	if conn.out != nil {
		abort(conn.out)
	}
}

// pumpRequests forwards what the client says until it says no more.
func (conn *clientConn) pumpRequests(r *frameReader) {
	if r.http2 {
		conn.wmu.Lock()
		_, _ = conn.toward.WriteString(preface)
		conn.wmu.Unlock()
	}
	methods := newMethodReader()
	for {
		f, err := r.next()
		if err != nil && len(f.raw) == 0 {
			return
		}
		method, begins := methods.read(f)
		if !begins || f.typ == 0xff {
			method = ""
		}
		if err := conn.request(f, method, r.r.Buffered() == 0); err != nil {
			return
		}
	}
}

// request disposes of one frame from the client. A method means that f begins a call of it.
func (conn *clientConn) request(f frame, method string, flush bool) error {
	conn.wmu.Lock()
	defer conn.wmu.Unlock()
	var err error
	switch conn.judgeRequest(f, method) {
	case keep:
		conn.queue = append(conn.queue, f)
	case forward:
		_, err = conn.toward.Write(f.raw)
	}
	if flush && err == nil {
		err = conn.toward.Flush()
	}
	return err
}

// judgeRequest is called with wmu held.
func (conn *clientConn) judgeRequest(f frame, method string) verdict {
	p := conn.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.modeLocked(conn.m) >= modeBlackhole {
		conn.lost = modeBlackhole
		return swallow
	}
	if method != "" {
		conn.methods[f.stream] = method
		if d := p.drop; d != nil && d.conn == nil && d.wants(method) {
			d.conn, d.stream, d.method = conn, f.stream, method
		}
	}
	if f.typ == frameReset {
		return conn.judgeResetLocked(f)
	}
	if f.message() && (p.hold || len(conn.queue) > 0) {
		n := conn.held[f.stream]
		if f.ends() || f.typ == frameData && streaming(conn.methods[f.stream]) {
			n++
			p.held++
		}
		conn.held[f.stream] = n
		p.notifyLocked()
		return keep
	}
	return forward
}

// judgeResetLocked decides on a client that gives a request up: not if it is held, being delivered or
// chosen for a lost reply, for it could be taken back before it takes effect.
func (conn *clientConn) judgeResetLocked(f frame) verdict {
	_, held := conn.held[f.stream]
	_, awaited := conn.awaited[f.stream]
	d := conn.p.drop
	if held || awaited || d != nil && d.conn == conn && d.stream == f.stream {
		return swallow
	}
	delete(conn.methods, f.stream)
	return forward
}

func (d *drop) wants(method string) bool {
	if len(d.methods) == 0 {
		return !streaming(method)
	}
	return slices.Contains(d.methods, method)
}

// deliver sends the held frames.
func (conn *clientConn) deliver() {
	conn.wmu.Lock()
	defer conn.wmu.Unlock()
	if len(conn.queue) == 0 {
		return
	}
	p := conn.p
	p.mu.Lock()
	for stream, n := range conn.held {
		conn.awaited[stream] = struct{}{}
		p.held -= n
	}
	clear(conn.held)
	p.mu.Unlock()
	for _, f := range conn.queue {
		_, _ = conn.toward.Write(f.raw) // its error stays with the writer
	}
	conn.queue = nil
	_ = conn.toward.Flush() // on an error the replies end too, and so does the connection
}

// linger keeps the connection to the member when the client has gone and left held requests, or one
// whose reply is to be lost.
func (conn *clientConn) linger() {
	_ = conn.p.wait(context.Background(), func() bool {
		d := conn.p.drop
		dropping := d != nil && d.conn == conn && !d.done
		return conn.dead || len(conn.held) == 0 && len(conn.awaited) == 0 && !dropping
	})
}

// pumpReplies forwards what the member says until it says no more, also to nobody while linger needs it.
func (conn *clientConn) pumpReplies(r *frameReader) {
	w := bufio.NewWriterSize(conn.in, 32<<10)
	for {
		f, err := r.next()
		if err != nil && len(f.raw) == 0 {
			return
		}
		switch conn.judgeReply(f) {
		case finish:
			return
		case forward:
			_, _ = w.Write(f.raw)
		}
		if r.r.Buffered() == 0 {
			_ = w.Flush()
		}
	}
}

func (conn *clientConn) judgeReply(f frame) verdict {
	p := conn.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.message() || f.typ == frameReset {
		if _, ok := conn.awaited[f.stream]; ok {
			delete(conn.awaited, f.stream)
			p.notifyLocked()
		}
	}
	if f.ends() {
		delete(conn.methods, f.stream)
	}
	if d := p.drop; d != nil && d.conn == conn {
		if f.stream == d.stream && (f.ends() || f.typ == frameData && streaming(d.method)) {
			d.done = true
			p.notifyLocked()
			return finish
		}
		return swallow
	}
	if p.modeLocked(conn.m) >= modeBlackholeReplies {
		conn.lost = max(conn.lost, modeBlackholeReplies)
		return swallow
	}
	return forward
}
