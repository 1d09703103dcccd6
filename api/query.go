package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// closeQueries has every operation know the query parameters of the document, and no others: a mistyped filter would list everything.
func (s *Server) closeQueries() {
	for path, item := range s.huma.OpenAPI().Paths {
		for method, op := range operations(item) {
			rt := s.table.routes[method+" "+path]
			rt.closed = true
			for _, p := range op.Parameters {
				if p.In == "query" {
					rt.query = append(rt.query, p.Name)
				}
			}
			slices.Sort(rt.query)
			s.table.routes[method+" "+path] = rt
		}
	}
}

// operations are those of a path, by method.
func operations(item *huma.PathItem) map[string]*huma.Operation {
	all := map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodDelete: item.Delete, http.MethodPatch: item.Patch}
	maps.DeleteFunc(all, func(_ string, op *huma.Operation) bool { return op == nil })
	return all
}

// queried refuses a query that cannot be read, or has what the operation does not know. Nothing of a value is repeated.
func (rt route) queried(raw string) *Problem {
	if !rt.closed {
		return nil
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return problem("invalid-request", "the query of the URL cannot be read: parameters are NAME=VALUE, joined by &, and what is not a letter or a digit is written as %%XX")
	}
	known := "this operation takes none"
	if len(rt.query) > 0 {
		known = "this operation knows " + strings.Join(rt.query, ", ")
	}
	var wrong []Wrong
	for name := range query {
		if !slices.Contains(rt.query, name) {
			wrong = append(wrong, Wrong{Message: "unknown parameter; " + known, Location: "query." + short(name)})
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.SortFunc(wrong, func(a, b Wrong) int { return strings.Compare(a.Location, b.Location) })
	p := problem("invalid-request", "there is no parameter %q; %s", strings.TrimPrefix(wrong[0].Location, "query."), known)
	p.Errors = wrong
	return p
}

// short is a name that somebody else chose, as far as it is repeated.
func short(name string) string {
	if r := []rune(name); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return name
}
