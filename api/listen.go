package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// An Address is where a server listens.
type Address struct {
	// Unix is the path of a socket; empty for TCP.
	Unix string
	// TCP is HOST:PORT.
	TCP string
}

// ParseAddress reads unix:PATH or HOST:PORT.
func ParseAddress(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		path = strings.TrimPrefix(path, "//") // unix:///run/x.sock is a usual spelling
		if path == "" || len(path) > MaxSocketPath {
			return Address{}, fmt.Errorf("socket path %q must have 1 to %d bytes", path, MaxSocketPath)
		}
		return Address{Unix: path}, nil
	}
	if _, _, err := net.SplitHostPort(s); err != nil {
		return Address{}, fmt.Errorf("%q: want unix:PATH or HOST:PORT: %w", s, err)
	}
	return Address{TCP: s}, nil
}

// MaxSocketPath is what the kernel takes as the path of a socket.
const MaxSocketPath = 107

func (a Address) String() string {
	if a.Unix != "" {
		return "unix:" + a.Unix
	}
	return a.TCP
}

// Loopback reports whether only this host can reach the address. A name is taken for what it is, not for what it means
// today.
func (a Address) Loopback() bool {
	host, _, _ := net.SplitHostPort(a.TCP)
	ip := net.ParseIP(host)
	return a.Unix != "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// Security is what protects addresses that others can reach.
type Security struct {
	TLS    *tls.Config // nil: plain HTTP
	Tokens bool        // there are tokens
}

// mutual reports whether clients have to show a certificate, or may instead of a token.
func (s Security) mutual() bool {
	return s.TLS != nil && (s.TLS.ClientAuth == tls.RequireAndVerifyClientCert || s.TLS.ClientAuth == tls.VerifyClientCertIfGiven)
}

// ErrExposed means that anybody on the network could have used the API.
var ErrExposed = errors.New("without --tokens or --tls-client-ca everybody who can reach it could run and decide")

// A Listener is an open address.
type Listener struct {
	net.Listener
	addr     Address
	loopback bool // only this host reaches it
	mutual   bool // clients may show certificates: then they have to, or a token
}

// Listen opens an address. A socket has mode 0600 from its first moment, and one that a dead process left is replaced.
func Listen(a Address, sec Security) (*Listener, error) { return listen(a, sec, usual.Connections) }

func listen(a Address, sec Security, connections int) (*Listener, error) {
	if a.Unix != "" {
		l, err := listenUnix(a.Unix)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", a, err)
		}
		return &Listener{Listener: netutil.LimitListener(l, connections), addr: a}, nil
	}
	if !a.Loopback() && !sec.Tokens && !sec.mutual() {
		return nil, fmt.Errorf("listen on %s: %w", a, ErrExposed)
	}
	l, err := net.Listen("tcp", a.TCP)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", a, err)
	}
	if ip := l.Addr().(*net.TCPAddr).IP; a.Loopback() && !ip.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("listen on %s: it is the address %s, which others can reach", a, ip)
	}
	l = netutil.LimitListener(l, connections)
	if sec.TLS != nil {
		l = tls.NewListener(l, sec.TLS)
	}
	return &Listener{Listener: l, addr: a, loopback: a.Loopback(), mutual: sec.mutual()}, nil
}

func listenUnix(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// It is made under another name in a directory of our own, and moved when its mode is right: nobody can connect
	// between.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	if len(made) > MaxSocketPath {
		return nil, fmt.Errorf("the directory's name is too long for a socket in it: give --listen unix:PATH with a shorter one")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &socket{Listener: l, path: path, info: stat(path)}, nil
}

// removeStale refuses to take the place of a living server, or of what is no socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("there is something that is no socket")
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return errors.New("another process listens there: is the node running already?")
	} else if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// A socket is removed when it is closed, if it is still there.
type socket struct {
	net.Listener
	path string
	info os.FileInfo
}

// A user is the other end of a socket as an address: wrappers of a connection hand it on.
type user struct {
	net.Addr
	uid   int
	known bool
}

// A userConn knows its user.
type userConn struct {
	net.Conn
	user user
}

func (c userConn) RemoteAddr() net.Addr { return c.user }

// Accept asks the kernel who is at the other end.
func (s *socket) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	u := user{Addr: c.RemoteAddr()}
	u.uid, u.known = uidOf(c)
	return userConn{c, u}, nil
}

func (s *socket) Close() error {
	if now := stat(s.path); now != nil && s.info != nil && os.SameFile(now, s.info) {
		os.Remove(s.path)
	}
	return s.Listener.Close()
}

func stat(path string) os.FileInfo {
	info, err := os.Lstat(path)
	if err != nil {
		return nil
	}
	return info
}

// A peer is what is known of the other end of a connection.
type peer struct {
	unix, loopback bool
	mutual         bool
	known          bool // uid is
	uid            int
}

type peerKey struct{}

func peerOf(ctx context.Context) peer {
	p, _ := ctx.Value(peerKey{}).(peer)
	return p
}

func (l *Listener) peer(c net.Conn) peer {
	p := peer{unix: l.addr.Unix != "", loopback: l.loopback, mutual: l.mutual}
	if u, ok := c.RemoteAddr().(user); ok {
		p.uid, p.known = u.uid, u.known
	}
	return p
}

// Serve answers on all listeners until ctx ends. Then it waits a little for what is under way.
func (s *Server) Serve(ctx context.Context, listeners ...*Listener) error {
	all, ctx := errgroup.WithContext(ctx)
	servers := make([]*http.Server, len(listeners))
	for i, l := range listeners {
		servers[i] = &http.Server{
			Handler: s, ReadHeaderTimeout: s.most.HeaderTime, ReadTimeout: s.most.Request, IdleTimeout: s.most.Idle, MaxHeaderBytes: s.most.Header,
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, peerKey{}, l.peer(c))
			},
			ErrorLog: log.New(debugLog{s.log}, "", 0),
		}
		all.Go(func() error {
			if err := servers[i].Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", l.addr, err)
			}
			return nil
		})
	}
	stop := context.AfterFunc(ctx, func() { s.shut(servers) })
	err := all.Wait()
	if !stop() {
		s.shut(servers) // it may be under way: wait for it
	}
	return err
}

// lastAnswer is how long requests that are under way may take when the server ends.
const lastAnswer = 5 * time.Second

func (s *Server) shut(servers []*http.Server) {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswer)
	defer cancel()
	for _, srv := range servers {
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
	}
}

// debugLog is where the server of the standard library complains about clients.
type debugLog struct{ log *slog.Logger }

func (d debugLog) Write(b []byte) (int, error) {
	d.log.Debug("http", "said", strings.TrimSpace(string(b)))
	return len(b), nil
}
