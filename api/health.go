package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// probeTime bounds the question whether the etcd answers.
const probeTime = 5 * time.Second

type healthOut struct {
	Body struct {
		Status  string `json:"status" enum:"ok"`
		Node    string `json:"node" enum:"serving,starting" doc:"Whether there is a node behind the API"`
		Backend string `json:"backend,omitempty" enum:"ok" doc:"With backend=1: the etcd answers"`
	}
}

type nodeOut struct {
	Body NodeInfo
}

// A NodeInfo says which node answers.
type NodeInfo struct {
	Device     string   `json:"device"`
	Namespace  string   `json:"namespace"`
	Generation string   `json:"generation" doc:"Which ledger it is"`
	Endpoints  []string `json:"endpoints" doc:"Of its etcd; none for the embedded one"`
	Version    string   `json:"version"`
	Now        string   `json:"now" format:"date-time"`
}

func (s *Server) health() {
	open := func(op huma.Operation, h func(ctx context.Context, in *struct {
		Backend bool `query:"backend" doc:"Ask the etcd too"`
	}) (*healthOut, error)) {
		operate(s, route{role: Open}, op, h)
	}
	live := func(context.Context, *struct {
		Backend bool `query:"backend" doc:"Ask the etcd too"`
	}) (*healthOut, error) {
		out := &healthOut{}
		out.Body.Status, out.Body.Node = "ok", "starting"
		if a, ok := s.enter(); ok {
			a.users.Done()
			out.Body.Node = "serving"
		}
		return out, nil
	}
	open(huma.Operation{OperationID: "livez", Method: http.MethodGet, Path: "/livez", Summary: "whether the process answers", Tags: []string{"health"}}, live)
	open(huma.Operation{OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: []string{"health"},
		Summary: "whether the API answers; with backend=1 also whether there is a node and its etcd answers"},
		func(ctx context.Context, in *struct {
			Backend bool `query:"backend" doc:"Ask the etcd too"`
		}) (*healthOut, error) {
			out, err := live(ctx, in)
			if err == nil && in.Backend {
				err = s.askBackend()
				out.Body.Backend = "ok"
			}
			if err != nil {
				return nil, s.problemOf(ctx, err)
			}
			return out, nil
		})
	add(s, Observe, huma.Operation{OperationID: "node", Method: http.MethodGet, Path: "/v1/node", Summary: "which node this is", Tags: []string{"nodes"}},
		func(_ context.Context, n *Node, _ *struct{}) (*nodeOut, error) {
			return &nodeOut{Body: NodeInfo{Device: n.Device, Namespace: n.Namespace, Generation: n.Generation, Endpoints: slices.Concat([]string{}, n.Endpoints),
				Version: s.cfg.Version, Now: time.Now().UTC().Format(time.RFC3339Nano)}}, nil
		})
	s.plain("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json")
		_, _ = w.Write(s.document())
	})
	s.plain("GET /problems/{type}", explain)
}

// plain serves an open page that is no operation.
func (s *Server) plain(pattern string, h http.HandlerFunc) {
	s.table.handle(pattern, route{role: Open}, h)
}

// askBackend has the etcd asked once for all who ask at the same moment: anybody may, and they have no places. Whoever goes away
// ends it for nobody.
func (s *Server) askBackend() error {
	a, ok := s.enter()
	if !ok {
		return problem("unavailable", "the node is starting or going down")
	}
	defer a.users.Done()
	_, err, _ := a.look.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(a.ctx, probeTime)
		defer cancel()
		return nil, a.Probe(ctx)
	})
	if err != nil {
		s.log.Debug("etcd does not answer", "err", err)
		return problem("unavailable", "the etcd of the node does not answer") // why is not for everybody
	}
	return nil
}

// document is the OpenAPI document.
func (s *Server) document() []byte {
	b, err := s.huma.OpenAPI().MarshalJSON()
	if err != nil {
		panic(errors.Join(errors.New("api: the document of our own operations has no JSON form"), err))
	}
	return b
}

// explain is the page of a type of problem.
func explain(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("type")
	k, ok := kinds[name]
	if !ok {
		problem("not-found", "there is no such type of problem").write(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	lines := []string{name, "", k.title, "status: " + http.StatusText(k.status), "executed: " + string(k.executed), "", k.text, ""}
	_, _ = w.Write([]byte(strings.Join(lines, "\n")))
}
