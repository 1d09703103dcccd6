package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/syncnode/syncnode/node/events"
)

// beat is how often a stream with nothing to say shows that it is there.
const beat = 15 * time.Second

func (s *Server) eventRoutes() {
	if s.cfg.Events == nil {
		s.cfg.Events = events.New()
	}
	op := huma.Operation{OperationID: "events", Method: http.MethodGet, Path: "/v1/events", Tags: []string{"events"},
		Summary: "what changes at this node, as server-sent events",
		Description: "Each event has an id; a watcher that comes back gives the last one as Last-Event-ID and hears what it missed. " +
			"The event gap says that some are lost: the watcher was away too long, or the node was restarted; lists tell how things are. " +
			"A watcher that does not read is dropped.",
		Parameters: []*huma.Param{
			{Name: "Last-Event-ID", In: "header", Schema: &huma.Schema{Type: "string"}, Description: "The id of the last event that was seen"},
			{Name: "agent", In: "query", Schema: &huma.Schema{Type: "string"}, Description: "Only events of this agent"}},
		Responses: map[string]*huma.Response{"200": {Description: "A stream", Content: map[string]*huma.MediaType{"text/event-stream": {
			Schema: s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[events.Event](), true, "Event")}}}}}
	s.describe(&op, Observe)
	op.Errors = nil
	s.huma.OpenAPI().AddOperation(&op)
	s.table.handle("GET /v1/events", route{role: Observe, stream: true, needs: true}, s.stream)
}

// A watcher is one stream.
type watcher struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	may   func(events.Event) bool
	ring  *events.Ring
	where events.Cursor
	write time.Duration // bounds each
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	caller, agent := CallerOf(r.Context()), r.URL.Query().Get("agent")
	out := &watcher{w: w, rc: http.NewResponseController(w), write: s.most.Write, ring: s.cfg.Events, where: s.cfg.Events.Now(), may: func(e events.Event) bool {
		return (agent == "" || e.Agent == agent) && caller.MayAgent(e.Agent)
	}}
	w.Header().Set("Content-Type", "text/event-stream")
	_ = out.rc.SetReadDeadline(time.Time{}) // a test's writer has none
	first := []byte(": watching\n\n")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var gap bool
		if out.where, gap = s.cfg.Events.Find(last); gap {
			first = out.gap()
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.live, cancel)() // a server that ends does not wait for its watchers
	for err := out.send(first); err == nil && ctx.Err() == nil; {
		err = out.next(ctx)
	}
}

// next sends what is new, or after a while that there is nothing. An error ends the stream.
func (o *watcher) next(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, beat)
	defer cancel()
	got, after, whole, err := o.ring.Wait(wait, o.where)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return o.send([]byte(":\n\n"))
	case !whole:
		_ = o.send(o.gap())
		return errTooSlow
	}
	var b bytes.Buffer
	for i, e := range got {
		if o.may(e) {
			fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: %s\n", o.ring.ID(o.where+events.Cursor(i)+1), e.Kind, encode(e)) // encode ends the line
		}
	}
	o.where = after
	if b.Len() == 0 {
		return nil
	}
	return o.send(b.Bytes())
}

var errTooSlow = fmt.Errorf("api: the watcher reads too slowly")

func (o *watcher) gap() []byte {
	return []byte("event: gap\ndata: {\"kind\":\"gap\"}\n\n")
}

func (o *watcher) send(b []byte) error {
	_ = o.rc.SetWriteDeadline(time.Now().Add(o.write)) // a test's writer has none
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.rc.Flush()
}
