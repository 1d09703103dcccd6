package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// maxToken is the longest token that is looked at.
const maxToken = 512

// ServeHTTP lets a request through to its route if it is one of ours, from who may send it, and of a size that is
// bounded. Each step refuses before the next looks.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Answered != nil {
		noted := &seen{ResponseWriter: w}
		defer s.answered(noted, s.table.patternOf(r), time.Now())
		w = noted
	}
	s.guard(w, r)
}

func (s *Server) guard(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(w, r)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	rt, known := s.table.routes[s.table.patternOf(r)]
	if rt.tells != nil {
		r = r.WithContext(withTold(r.Context(), Maybe)) // until its body is read
	}
	if p := s.fromUs(r); p != nil {
		p.refuse(w, r)
		return
	}
	caller, p := s.authenticate(r)
	switch {
	case known && rt.role == Open:
	case p != nil:
		p.refuse(w, r)
		return
	case !known:
		s.unknown(w, r)
		return
	case !caller.May(rt.role):
		problem("forbidden", "%s has not the role %s", caller.Name, rt.role).refuse(w, r)
		return
	}
	r = r.WithContext(withCaller(r.Context(), caller))
	s.limited(w, r, rt)
}

func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	switch {
	case v == nil:
	case v == http.ErrAbortHandler:
		panic(v)
	default:
		s.log.Error("request panicked", "route", r.Pattern, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		problem("internal", "see the log of the node").write(w)
	}
}

// limited bounds what a request may take.
func (s *Server) limited(w http.ResponseWriter, r *http.Request, rt route) {
	places := s.busy
	if rt.stream {
		places = s.watch
	}
	if rt.role != Open {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			problem("too-many-requests", "%d are under way", cap(places)).refuse(w, r)
			return
		}
	}
	p := rt.queried(r.URL.RawQuery)
	if p == nil {
		p = bounded(w, r, rt, s.most.Body)
	}
	if p != nil {
		p.refuse(w, r)
		return
	}
	ctx := r.Context()
	if !rt.stream {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.most.Request)
		defer cancel()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.most.Request + s.most.Write)) // a test's writer has none
	}
	if rt.needs {
		a, ok := s.enter()
		if !ok {
			problem("unavailable", "the node is starting or going down").refuse(w, r)
			return
		}
		defer a.users.Done()
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(context.WithValue(ctx, nodeKey{}, a.Node))
		defer cancel(nil)
		defer context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })()
	}
	s.table.ServeHTTP(w, r.WithContext(ctx))
}

// bounded reads the body of a route of ours, and has that of a mounted one bounded.
func bounded(w http.ResponseWriter, r *http.Request, rt route, within time.Duration) *Problem {
	rc := http.NewResponseController(w)
	under := w
	if noted, ok := w.(*seen); ok {
		under = noted.ResponseWriter // it ends the connection of who sends too much
	}
	r.Body = http.MaxBytesReader(under, r.Body, rt.maxBody)
	if rt.raw {
		return nil
	}
	_ = rc.SetReadDeadline(time.Now().Add(within)) // a test's writer has none
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{}) // else it stands: the answer does not wait for what is missing
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return problem("too-large", "the body is larger than %d bytes", rt.maxBody)
	}
	if err != nil {
		return problem("too-slow", "the body did not arrive: %v", err)
	}
	if len(body) > 0 {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return problem("media-type", "Content-Type is %.64q", r.Header.Get("Content-Type"))
		}
		if err := checkJSON(body); err != nil {
			return problem("invalid-request", "%v", err)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if rt.tells != nil {
		*r = *r.WithContext(withTold(r.Context(), rt.tells(body)))
	}
	return nil
}

// unknown answers what no route is for.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	if allowed := s.table.allowed(r); len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		problem("method-not-allowed", "%s is not for %s", r.URL.Path, r.Method).write(w)
		return
	}
	problem("not-found", "there is no route %s", r.URL.Path).write(w)
}

// fromUs refuses what a browser was made to send by a page of somebody else.
func (s *Server) fromUs(r *http.Request) *Problem {
	on := peerOf(r.Context())
	if on.unix {
		return nil // no browser speaks to a socket
	}
	if !s.hostAllowed(r.Host, on) {
		return problem("wrong-host", "Host %.64q is not a name of this node", r.Host)
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	if o := r.Header.Get("Origin"); o != "" && o != scheme+r.Host {
		return problem("wrong-host", "Origin %.64q is another site", o)
	}
	return nil
}

// hostAllowed: an address cannot be made to mean another host, a name can.
func (s *Server) hostAllowed(host string, on peer) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if slices.ContainsFunc(s.cfg.Hosts, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	ip := net.ParseIP(host)
	if on.loopback {
		return host == "localhost" || ip != nil && ip.IsLoopback()
	}
	return ip != nil
}

// authenticate says who sent the request.
func (s *Server) authenticate(r *http.Request) (Caller, *Problem) {
	on := peerOf(r.Context())
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if s.cfg.Tokens != nil && strings.EqualFold(scheme, "Bearer") && len(token) <= maxToken {
			if c, ok := s.cfg.Tokens.byToken(token); ok {
				return c, nil
			}
		}
		return Caller{}, problem("unauthenticated", "the token is not one of this node's")
	}
	if on.unix && on.known && (on.uid == os.Geteuid() || on.uid == 0) {
		c := everything("owner", roles...)
		c.Owner = true
		return c, nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert := r.TLS.VerifiedChains[0][0]
		if s.cfg.Tokens == nil {
			return everything(strings.Join(certNames(cert), ","), roles...), nil
		}
		if c, ok := s.cfg.Tokens.byCert(cert); ok {
			return c, nil
		}
		return Caller{}, problem("unauthenticated", "no line of the token file names the certificate")
	}
	if on.loopback && !on.mutual && s.cfg.Tokens == nil {
		return everything("loopback", Observe, Execute), nil
	}
	return Caller{}, problem("unauthenticated", "a token or a certificate is required here")
}
