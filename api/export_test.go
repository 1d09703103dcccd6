package api

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
)

// OverSocket is a request that its owner sends over the socket.
func OverSocket(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{unix: true, known: true, uid: os.Geteuid()}))
}

// OverSocketAs is one of somebody else.
func OverSocketAs(r *http.Request, uid int) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{unix: true, known: true, uid: uid}))
}

// OverLoopback is a request from this host by TCP.
func OverLoopback(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{loopback: true}))
}

// Limits are what clients may take.
type Limits = limits

// Within is a server whose limits are changed.
func Within(cfg Config, change func(*Limits)) *Server {
	most := usual
	change(&most)
	return within(cfg, most)
}

// ListenWithin opens an address as the server's limits are.
func (s *Server) ListenWithin(a Address, sec Security) (*Listener, error) {
	return listen(a, sec, s.most.Connections)
}

// Routes are all patterns with their roles.
func (s *Server) Routes() map[string]Role {
	all := map[string]Role{}
	for p, r := range s.table.routes {
		all[p] = r.role
	}
	return all
}

// Bare puts a handler where huma puts them, without a role.
func (s *Server) Bare(pattern string, h http.HandlerFunc) { s.table.HandleFunc(pattern, h) }

// Behind puts a handler behind the table.
func (s *Server) Behind(pattern string, h http.HandlerFunc) { s.table.mux.HandleFunc(pattern, h) }

// Document is the OpenAPI document.
func (s *Server) Document() []byte { return s.document() }

// Operations are the method and path of every operation that the document shows.
func (s *Server) Operations() []string {
	var all []string
	for path, item := range s.huma.OpenAPI().Paths {
		for method := range operations(item) {
			all = append(all, method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

// Kinds are the types of problems.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Fill takes all places for requests until it is undone.
func (s *Server) Fill() (undo func()) {
	for range cap(s.busy) {
		s.busy <- struct{}{}
	}
	return func() {
		for range cap(s.busy) {
			<-s.busy
		}
	}
}
