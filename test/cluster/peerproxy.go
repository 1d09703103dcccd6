package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Etcd's members talk over HTTP/1 connections of three kinds, told apart by the first request. A cut is
// one of messages, not of connections: from A to B nothing arrives, from B to A everything does.
//
//	first request           dialed by   carries messages
//	GET /raft/stream/…      the reader  to the dialer; connection is used for nothing else
//	POST /raft, /raft/…     the sender  from the dialer; the same connection may carry a probe
//	/version, /leases, …    the caller  a call: needs both directions
type peerKind int

const (
	peerStream peerKind = iota
	peerPost
	peerCall
)

// nobody is a dialer that could not be told.
const nobody = -1

// A peerNet is the proxies in front of the peer URLs and the cuts between members.
type peerNet struct {
	members []*member
	fronts  []*front

	mu     sync.Mutex
	closed bool
	cuts   map[[2]int]bool // {from, to}
	conns  map[*peerConn]struct{}
}

// A peerConn is one connection from a member to another.
type peerConn struct {
	from, to int
	kind     peerKind
	in, out  net.Conn // out is nil until dialed; both guarded by the net's lock
}

func newPeerNet(members []*member) (*peerNet, error) {
	n := &peerNet{members: members, cuts: make(map[[2]int]bool), conns: make(map[*peerConn]struct{})}
	for i := range members {
		f, err := newFront(func(in net.Conn) { n.serve(i, in) })
		if err != nil {
			n.close()
			return nil, err
		}
		n.fronts = append(n.fronts, f)
	}
	return n, nil
}

func (n *peerNet) url(i int) string { return n.fronts[i].url() }

// serve forwards a connection to member to, as long as no cut forbids it.
func (n *peerNet) serve(to int, in net.Conn) {
	defer abort(in)
	conn := &peerConn{to: to, in: in}
	if !n.add(conn, nobody, peerPost, false) { // so that close can end the wait for the first request
		return
	}
	defer n.remove(conn)

	head, from, kind, err := n.sniff(in)
	if err != nil || !n.add(conn, from, kind, true) {
		return
	}
	addr, _, ok := n.members[to].addrs()
	if !ok {
		return
	}
	out, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return
	}
	defer abort(out)
	if !n.join(conn, out) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(in, out)
		abort(in)
		abort(out)
	})
	if _, err := out.Write(head); err == nil {
		_, _ = io.Copy(out, in)
	}
	abort(in)
	abort(out)
	wg.Wait()
}

// sniff reads the head of the first request and says who sent it.
func (n *peerNet) sniff(in net.Conn) (head []byte, from int, kind peerKind, err error) {
	_ = in.SetReadDeadline(time.Now().Add(10 * time.Second))
	var raw bytes.Buffer
	req, err := http.ReadRequest(bufio.NewReaderSize(io.TeeReader(in, &raw), 16<<10))
	if err != nil {
		return nil, nobody, peerCall, fmt.Errorf("read the first request: %w", err)
	}
	_ = in.SetReadDeadline(time.Time{})
	switch path := req.URL.Path; {
	case strings.HasPrefix(path, "/raft/stream/"):
		kind = peerStream
	case path == "/raft" || strings.HasPrefix(path, "/raft/"):
		kind = peerPost
	default:
		kind = peerCall
	}
	return raw.Bytes(), n.dialer(req.Header.Get("X-Server-From"), in), kind, nil
}

// dialer finds the member that opened conn: by its header, else by asking the kernel.
func (n *peerNet) dialer(header string, conn net.Conn) int {
	var pids []int
	byPID := make(map[int]int)
	id, err := strconv.ParseUint(header, 16, 64)
	for i, m := range n.members {
		m.mu.Lock()
		if err == nil && m.id == id {
			m.mu.Unlock()
			return i
		}
		if m.proc != nil {
			pid := m.proc.cmd.Process.Pid
			pids, byPID[pid] = append(pids, pid), i
		}
		m.mu.Unlock()
	}
	if pid, ok := owner(conn, pids); ok {
		return byPID[pid]
	}
	return nobody
}

// add registers conn, or changes what is known of it, and says whether it may live.
func (n *peerNet) add(conn *peerConn, from int, kind peerKind, known bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	conn.from, conn.kind = from, kind
	if n.closed || known && n.blockedLocked(conn) {
		return false
	}
	n.conns[conn] = struct{}{}
	return true
}

// join adds the dialed side. A cut made since add has closed the dialing side already.
func (n *peerNet) join(conn *peerConn, out net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.blockedLocked(conn) {
		return false
	}
	conn.out = out
	return true
}

func (n *peerNet) remove(conn *peerConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, conn)
}

// blockedLocked says whether conn would carry what a cut forbids.
func (n *peerNet) blockedLocked(conn *peerConn) bool {
	if conn.from == nobody {
		for pair := range n.cuts {
			if pair[0] == conn.to || pair[1] == conn.to {
				return true
			}
		}
		return false
	}
	there, back := n.cuts[[2]int{conn.from, conn.to}], n.cuts[[2]int{conn.to, conn.from}]
	switch conn.kind {
	case peerStream:
		return back
	case peerPost:
		return there
	default:
		return there || back
	}
}

// cut forbids the given directions and ends the connections that use them.
func (n *peerNet) cut(pairs ...[2]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pair := range pairs {
		n.cuts[pair] = true
	}
	for conn := range n.conns {
		if n.blockedLocked(conn) {
			conn.abortLocked()
		}
	}
}

func (n *peerNet) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

func (conn *peerConn) abortLocked() {
	abort(conn.in)
	if conn.out != nil {
		abort(conn.out)
	}
}

func (n *peerNet) close() {
	n.mu.Lock()
	n.closed = true
	for conn := range n.conns {
		conn.abortLocked()
	}
	n.mu.Unlock()
	for _, f := range n.fronts {
		f.close()
	}
}
