package cluster

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds a proxy's dial to a member on this machine.
const dialTimeout = 5 * time.Second

// A front is the listening side of a proxy. It hands each connection to a goroutine that it waits for.
type front struct {
	ln net.Listener
	wg sync.WaitGroup
}

func newFront(handle func(net.Conn)) (*front, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cluster: proxy: %w", err)
	}
	f := &front{ln: ln}
	f.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			f.wg.Go(func() { handle(conn) })
		}
	})
	return f, nil
}

func (f *front) url() string { return "http://" + f.ln.Addr().String() }

// close ends the listener and waits for the handlers, whose connections the owner has to close.
func (f *front) close() {
	_ = f.ln.Close()
	f.wg.Wait()
}

// abort closes a connection with a reset, so that the other side learns of it at once.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
