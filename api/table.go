package api

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// A route is how requests for one pattern are treated.
type route struct {
	role    Role
	maxBody int64
	raw     bool // the body is not JSON, and its handler reads it
	stream  bool
	needs   bool     // the node
	query   []string // the parameters that an operation knows
	closed  bool     // it knows no others
	// tells is what a body says of the effect; nil: the route tells no end.
	tells func(body []byte) Executed
}

// A table has all routes and their handlers. It takes none without a role, and finds none that it did not take.
type table struct {
	mux    *http.ServeMux
	routes map[string]route // by pattern
}

// handle serves a route.
func (t *table) handle(pattern string, rt route, h http.HandlerFunc) {
	t.routes[pattern] = rt
	t.HandleFunc(pattern, h)
}

// operate serves an operation of the document.
func operate[I, O any](s *Server, rt route, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	s.describe(&op, rt.role)
	s.table.routes[op.Method+" "+op.Path] = rt
	huma.Register(s.huma, op, h)
}

// HandleFunc is where huma puts the handler of an operation. The route is there before.
func (t *table) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	if rt := t.routes[pattern]; rt.role != Open && !slices.Contains(roles, rt.role) {
		panic(fmt.Sprintf("api: %s has no role", pattern))
	}
	t.mux.HandleFunc(pattern, h)
}

// ServeHTTP runs the handler of a request that was let through.
func (t *table) ServeHTTP(w http.ResponseWriter, r *http.Request) { t.mux.ServeHTTP(w, r) }

// patternOf is the pattern of a request's route; empty if there is none. Nothing has two names: the mux would redirect a path that is
// written otherwise, and a client might not send its POST again, or send it elsewhere.
func (t *table) patternOf(r *http.Request) string {
	if p := r.URL.EscapedPath(); p != path.Clean(p) {
		return ""
	}
	_, pattern := t.mux.Handler(r)
	if _, known := t.routes[pattern]; !known {
		return ""
	}
	return pattern
}

// methods are all that a route may be for.
var methods = []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut}

// allowed are the methods that the path of the request has routes for. Nothing is run.
func (t *table) allowed(r *http.Request) []string {
	return slices.DeleteFunc(slices.Clone(methods), func(method string) bool {
		other := *r
		other.Method = method
		return t.patternOf(&other) == ""
	})
}
