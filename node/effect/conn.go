package effect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// ConnectTime is how long the connection of a request may take.
const ConnectTime = 10 * time.Second

// MaxHeader bounds the headers of an answer, in bytes.
const MaxHeader = 64 << 10

// A conn is the one connection of a request. It knows whether a byte of the request may have left.
type conn struct {
	net.Conn                // what the request is written to
	sent     *atomic.Bool   // of what is on the wire
	used     atomic.Bool    // the connection was given to the transport
	http     http.Transport // that has this connection and no other
}

// connect makes the connection to the server of a URL, with TLS where the URL says so. Nothing of a request is sent.
func connect(ctx context.Context, u *url.URL, roots *x509.CertPool) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ConnectTime, fmt.Errorf("no connection within %s", ConnectTime))
	defer cancel()
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, whyOf(ctx, err)
	}
	wire := &wire{Conn: raw}
	c := &conn{Conn: wire, sent: &wire.sent}
	if u.Scheme == "https" {
		secure := tls.Client(wire, &tls.Config{ServerName: u.Hostname(), RootCAs: roots, NextProtos: []string{"http/1.1"}})
		if err := secure.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, whyOf(ctx, fmt.Errorf("TLS: %w", err))
		}
		c.Conn = secure
	}
	wire.sent.Store(false) // what was written until now was no request
	dial := func(context.Context, string, string) (net.Conn, error) {
		if c.used.Swap(true) {
			return nil, errors.New("the request was sent once already")
		}
		return c.Conn, nil
	}
	c.http = http.Transport{
		DialContext: dial, DialTLSContext: dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: MaxHeader,
	}
	return c, nil
}

// whyOf is the cause of a context that is over, else the error.
func whyOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// A wire knows whether anything that was written to it may have left.
type wire struct {
	net.Conn
	sent atomic.Bool
}

func (w *wire) Write(b []byte) (int, error) {
	before := w.sent.Swap(true)
	n, err := w.Conn.Write(b)
	if n == 0 && err != nil {
		w.sent.Store(before)
	}
	return n, err
}
