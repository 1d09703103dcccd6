package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// A ClientConfig says where a server is. Place, Prefix and Format are required.
type ClientConfig struct {
	// Place is http://HOST:PORT, https://HOST:PORT, with a path before the prefix if there is one, or unix:PATH.
	Place string
	// Prefix is the path under which the server's calls are.
	Prefix string
	// Client makes the requests; nil: one of its own. Redirects are never followed.
	Client *http.Client
	// TLS is for a client of its own.
	TLS *tls.Config
	// Token is asked for each call; nil: none. It is not sent in the clear to another host.
	Token func() (string, error)
	// Format is the version that is spoken.
	Format int
	// MaxAnswer bounds the first line of an answer, MaxTail what follows it, in bytes.
	MaxAnswer, MaxTail int64
}

// A Client calls one server.
type Client struct {
	cfg    ClientConfig
	base   *url.URL
	http   *http.Client
	traced bool // its transport tells when a connection was used
	own    *http.Transport
}

// Bounds of a client of its own. How long a call may last says its context.
const (
	dialTimeout   = 10 * time.Second
	silentTimeout = 90 * time.Second // between the end of the question and the first byte of its answer
)

// NewClient reports every mistake of cfg. It connects to nothing.
func NewClient(cfg ClientConfig) (*Client, error) {
	c := &Client{cfg: cfg, http: &http.Client{}}
	path, unix := strings.CutPrefix(cfg.Place, "unix:")
	var errs []error
	switch {
	case unix && path == "":
		errs = append(errs, errors.New("unix: without a path"))
	case unix:
		c.base = &url.URL{Scheme: "http", Host: "localhost"}
	default:
		base, err := url.Parse(cfg.Place)
		switch {
		case err != nil:
			errs = append(errs, errors.New("not a URL")) // its error would show what may be a password
		case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
			errs = append(errs, errors.New("want http://HOST, https://HOST or unix:PATH"))
		case base.User != nil, base.RawQuery != "", base.Fragment != "":
			errs = append(errs, errors.New("a URL with a user, a query or a fragment"))
		default:
			c.base = base
		}
	}
	if cfg.Client != nil {
		given := *cfg.Client
		c.http = &given
		_, plain := given.Transport.(*http.Transport)
		c.traced = plain || given.Transport == nil
		if cfg.TLS != nil || unix {
			errs = append(errs, errors.New("a client of one's own goes with neither TLS settings nor unix:PATH"))
		}
	} else {
		c.own = newTransport(cfg.TLS)
		if unix {
			c.own.Proxy = nil
			c.own.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
			}
		}
		c.http.Transport, c.traced = c.own, true
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("place %.200q: %w", shown(cfg.Place), err)
	}
	if cfg.Token != nil && c.base.Scheme == "http" && !unix && !loopback(c.base.Hostname()) {
		return nil, fmt.Errorf("place %s: a token is not sent to another host in the clear: use https", c.Place())
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.base = c.base.JoinPath(cfg.Prefix)
	return c, nil
}

func newTransport(cfg *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:        cfg,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  silentTimeout,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        45 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
}

// shown is the place without what may be a password.
func shown(place string) string {
	scheme, rest, ok := strings.Cut(place, "://")
	if at := strings.LastIndex(rest, "@"); ok && at >= 0 {
		return scheme + "://…" + rest[at:]
	}
	return place
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Place is where the server is, for messages.
func (c *Client) Place() string { return shown(c.cfg.Place) }

// Close closes the connections that nobody uses. The client may be used afterwards.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// A Question is one call.
type Question struct {
	Verb string
	Ask  any
	// Tail follows the question.
	Tail []byte
	// Answer is where the answer is put.
	Answer any
	// Read takes what follows the answer; nil: nothing may follow.
	Read func(*Tail) error
}

// Do makes the call. Its error is a *Problem with the id of the call, or matches ErrUnsent or ErrUnknown; then neither
// Answer nor what Read made may be used.
func (c *Client) Do(ctx context.Context, q Question) error {
	if ctx.Err() != nil {
		return c.failed(ctx, q, ErrUnsent, ctx.Err())
	}
	id := newID()
	req, used, err := c.request(ctx, q, id)
	if err != nil {
		return c.failed(ctx, q, ErrUnsent, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if c.unsent(err, used) {
			return c.failed(ctx, q, ErrUnsent, err)
		}
		return c.failed(ctx, q, ErrUnknown, err)
	}
	defer resp.Body.Close()
	if err := c.read(resp, q, id); err != nil {
		if problem, ok := err.(*Problem); ok {
			return problem
		}
		if errors.Is(err, ErrUnsent) {
			return c.failed(ctx, q, ErrUnsent, err)
		}
		return c.failed(ctx, q, ErrUnknown, err)
	}
	return nil
}

// failed names call, place and cause.
func (c *Client) failed(ctx context.Context, q Question, kind, err error) error {
	if e, ok := err.(*url.Error); ok {
		err = e.Err // it would show the URL again
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if errors.Is(err, kind) {
		return fmt.Errorf("%s at %s: %w", q.Verb, c.Place(), err)
	}
	return fmt.Errorf("%s at %s: %w: %w", q.Verb, c.Place(), kind, err)
}

// request builds the request, and a mark that is set once a connection was had for it.
func (c *Client) request(ctx context.Context, q Question, id string) (*http.Request, *atomic.Bool, error) {
	ask, err := raw(q.Ask)
	if err != nil {
		return nil, nil, err
	}
	line, err := encode(envelope{V: c.cfg.Format, ID: id, Ask: ask})
	if err != nil {
		return nil, nil, err
	}
	used := &atomic.Bool{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { used.Store(true) }})
	body := io.MultiReader(bytes.NewReader(line), bytes.NewReader(q.Tail))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(q.Verb).String(), io.NopCloser(body))
	if err != nil {
		return nil, nil, err
	}
	req.ContentLength = int64(len(line) + len(q.Tail))
	req.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(line), bytes.NewReader(q.Tail))), nil
	}
	req.Header.Set("Content-Type", MediaType)
	req.Header.Set("Accept", MediaType+", "+ProblemType)
	req.Header.Set("Accept-Encoding", "identity")
	return req, used, c.identify(req)
}

// identify says who asks.
func (c *Client) identify(req *http.Request) error {
	req.Header.Set("User-Agent", "syncnode")
	if c.cfg.Token == nil {
		return nil
	}
	token, err := c.cfg.Token()
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// unsent reports whether an error of the transport proves that no byte of the question reached a server.
func (c *Client) unsent(err error, used *atomic.Bool) bool {
	if c.traced {
		return !used.Load()
	}
	dial, _ := errors.AsType[*net.OpError](err)
	return dial != nil && dial.Op == "dial"
}

// read judges the response. Its error is a *Problem that answers this call, or matches ErrUnsent, or says what is
// wrong.
func (c *Client) read(resp *http.Response, q Question, id string) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == ProblemType:
		return c.problem(resp, id)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("answered with status %d and no problem of ours: not a syncnode, or a proxy before it", resp.StatusCode)
	case kind != MediaType:
		return fmt.Errorf("answered with content type %.80q, not %s: not a syncnode", kind, MediaType)
	}
	body := bufio.NewReaderSize(io.LimitReader(resp.Body, c.cfg.MaxAnswer+c.cfg.MaxTail+2), 16<<10)
	line, err := readLine(body, c.cfg.MaxAnswer)
	if err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	var e envelope
	if err := Decode(line, &e); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	switch {
	case e.V != c.cfg.Format:
		return fmt.Errorf("the answer has format %d, this release speaks %d", e.V, c.cfg.Format)
	case e.ID != id:
		return errors.New("the answer is that of another call")
	}
	if err := Decode(e.Answer, q.Answer); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	tail := &Tail{r: body, left: c.cfg.MaxTail}
	if q.Read != nil {
		if err := q.Read(tail); err != nil {
			return fmt.Errorf("what follows the answer: %w", err)
		}
	}
	if err := tail.end(); err != nil {
		return fmt.Errorf("what follows the answer: %w", err)
	}
	return nil
}

func (c *Client) problem(resp *http.Response, id string) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem+1))
	if err != nil || len(text) > maxProblem {
		return fmt.Errorf("a problem that cannot be read: %w", errors.Join(err, errBody))
	}
	p, err := parseProblem(text)
	switch {
	case err != nil:
		return err
	case p.ID == id && (p.V == c.cfg.Format || p.Name() == nameFormat) && p.Name() != "":
		return p
	case p.Executed == No && p.ID == "" && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
		return fmt.Errorf("%w: %w, status %d: %.400s", ErrUnsent, ErrDenied, resp.StatusCode, p.Error())
	case p.Executed == No && p.ID == "" && before(resp.StatusCode):
		return fmt.Errorf("%w, status %d: %.400s", ErrUnsent, resp.StatusCode, p.Error())
	}
	return fmt.Errorf("status %d: %.400s", resp.StatusCode, p.Error())
}

// before reports whether a status may come from what stands before a server: who may, how much, and where.
func before(status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusMisdirectedRequest,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}

func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
