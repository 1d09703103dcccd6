package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// A refusal is an answer of the guard itself.
type refusal struct {
	status                int
	kind, title, executed string
}

func (r *refusal) Error() string { return r.title }

func bad(format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, kind: "bad-call", title: fmt.Sprintf(format, args...), executed: "no"}
}

// Refuse answers that nothing was executed, and why: 412 for an error that matches ErrStale, 503 for any other of a Store. The
// key of the call may be used again. It is for a handler that asked its own Store and was refused, before it wrote anything.
func Refuse(w http.ResponseWriter, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		r = &refusal{status: http.StatusServiceUnavailable, kind: "store-unavailable", executed: "no",
			title: "The epoch could not be checked"}
		if errors.Is(err, ErrStale) {
			r = &refusal{status: http.StatusPreconditionFailed, kind: "stale-epoch", title: err.Error(), executed: "no"}
		}
	}
	body, _ := json.Marshal(map[string]any{ // strings and a number
		"type": "urn:syncnode:guard:" + r.kind, "title": r.title, "status": r.status, "executed": r.executed,
	})
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set(HeaderExecuted, r.executed)
	w.WriteHeader(r.status)
	_, _ = w.Write(append(body, '\n')) // nobody is left to be told
}
