package api

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// metricsRoute serves the figures of the node. They name agents, so a caller who is bound to some does not get them.
func (s *Server) metricsRoute() {
	if s.cfg.Metrics == nil {
		return
	}
	s.table.handle("GET /metrics", route{role: Observe, maxBody: MaxBody}, func(w http.ResponseWriter, r *http.Request) {
		if c := CallerOf(r.Context()); !slices.Contains(c.Agents, "*") {
			problem("forbidden", "%s is bound to some agents, and metrics are of all", c.Name).write(w)
			return
		}
		s.cfg.Metrics.ServeHTTP(w, r)
	})
}

// Patterns are the routes that are served, with their methods.
func (s *Server) Patterns() []string { return slices.Sorted(maps.Keys(s.table.routes)) }

// A seen is a response whose status is noted.
type seen struct {
	http.ResponseWriter
	status int
}

func (w *seen) WriteHeader(status int) {
	if w.status < 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *seen) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// answered tells of a request that was answered, for the route of this pattern.
func (s *Server) answered(w *seen, pattern string, began time.Time) {
	took := max(time.Since(began), 1)
	if s.table.routes[pattern].stream {
		took = 0
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	s.cfg.Answered(pattern, w.status, took)
}
