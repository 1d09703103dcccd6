// Package api is HTTP before a node: JSON for clients that are the effect of a run, for programs that watch, and for
// people who decide.
//
// # Guarantees
//
// Every refusal is a problem (RFC 9457) of a stable type that says whether the effect of the run in question happened:
// executed no, maybe or yes. The end of an attempt that is refused is never no unless it tells so itself, and is told again. A
// request that is refused before the node saw it changed nothing. A request that is repeated
// gets the same answer, as packages node/claim and coord promise.
//
// A route without a role is neither taken nor served. Who may not do what they ask for learns nothing but that. Tokens are compared by
// their SHA-256, each in constant time; the owner of the socket may do everything; on a TCP address of this host without
// tokens anybody here may look and run, and nobody may decide.
//
// Bodies have at most 1 MiB, no unknown or repeated field, and no great depth; a query has no unknown parameter.
// Connections, requests at one time and the time of each are bounded; what only reads is refused ReadTime after the etcd
// of the node fell silent. Host and Origin are checked, so that a browser cannot be made to speak for its user. A watcher
// that does not read is dropped.
//
// The server answers /livez and /readyz from its first moment; everything that needs the node is "not now" (503, nothing
// was begun) until Attach.
//
// # Concurrency
//
// A Server may be used by several goroutines at once.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/singleflight"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/node/claim"
	"github.com/syncnode/syncnode/node/events"
)

// A Ledger is what the API asks about runs and agents. A coord.Coordinator has it.
type Ledger interface {
	Look(ctx context.Context, q coord.Question) (coord.View, error)
	List(ctx context.Context, f coord.Filter) (coord.Page, error)
	Resolve(ctx context.Context, r coord.Resolution) (coord.View, error)
	Permit(ctx context.Context, r coord.Resolution) (coord.View, error)
	Leases(ctx context.Context) ([]coord.Lease, error)
	Pause(ctx context.Context, agent string, g coord.Gate) error
	Resume(ctx context.Context, agent string) error
}

// An Agent is what the node's configuration says of one.
type Agent struct {
	Agent    string    `json:"agent"`
	Schedule string    `json:"schedule,omitempty"`
	TZ       string    `json:"tz,omitempty"`
	Next     time.Time `json:"next,omitzero" doc:"When it is due next"`
	Owner    string    `json:"owner,omitempty" doc:"The device whose node begins what is due"`
	Open     bool      `json:"open" doc:"Whether this node has a run of it"`
	Missing  *Gap      `json:"missing,omitempty" doc:"The gap of missed occurrences that is open: it grows, and is in no log yet"`
}

// A Gap is a row of occurrences that were not begun, for one reason.
type Gap struct {
	Reason  string    `json:"reason"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"`
	AtLeast bool      `json:"at_least,omitempty" doc:"There are more than count"`
}

// A Triggered is a run that was asked for beside the schedule.
type Triggered struct{ Agent, Run, Occurrence string }

// A Node is what is behind the API.
type Node struct {
	Device, Namespace, Generation string
	// Endpoints are those of the etcd; empty for the embedded one.
	Endpoints []string
	Desk      *claim.Desk
	Ledger    Ledger
	// Probe asks the etcd whether it answers.
	Probe func(ctx context.Context) error
	// Agents lists the agents of the configuration; nil: there are none.
	Agents func() []Agent
	// Trigger has an agent of the configuration run once more; occurrence may be empty. Nil: nothing is configured.
	Trigger func(ctx context.Context, agent, occurrence string) (Triggered, error)
	// Reload reads the configuration again and takes it, whole or not at all. Nil: there is none.
	Reload func(ctx context.Context) (Reloaded, error)
	// Mounted are the handlers of Config.Mounts, by pattern.
	Mounted map[string]http.Handler
}

// A Mount is a route that is served by a handler of the node.
type Mount struct {
	Pattern string // of http.ServeMux, with the method
	Role    Role
	MaxBody int64 // 0: MaxBody
	Stream  bool  // it has no time limit; its handler bounds its writes
}

// A Config describes a Server. Every field may be left out.
type Config struct {
	Version string
	Tokens  *Tokens // nil: callers are known by socket, certificate or address
	// Hosts are further names that Host may have.
	Hosts  []string
	Events *events.Ring // nil: there is nothing to watch
	Mounts []Mount
	// Metrics answers GET /metrics, also while there is no node; nil: there are none.
	Metrics http.Handler
	// Answered, if not nil, is told of each request that was answered: the pattern of its route, empty if it is for none, its status,
	// and how long it took, 0 for a stream. It must not wait.
	Answered func(pattern string, status int, took time.Duration)
	Logger   *slog.Logger // nil: silent
}

// A Server answers requests.
type Server struct {
	cfg   Config
	most  limits
	log   *slog.Logger
	table *table
	huma  huma.API
	busy  chan struct{}   // a place for each request
	watch chan struct{}   // a place for each watcher
	live  context.Context // ends when streams have to end
	end   context.CancelFunc

	mu   sync.Mutex
	node *attached // nil: none
}

// An attached is a node as requests use it.
type attached struct {
	*Node
	ctx    context.Context // ends when the node is detached
	cancel context.CancelCauseFunc
	users  sync.WaitGroup
	look   singleflight.Group // at the backend
}

// errDetached ends requests whose node goes.
var errDetached = errors.New("api: the node is going down")

var setup sync.Once

// New returns a Server.
func New(cfg Config) *Server { return within(cfg, usual) }

// within returns a Server with limits.
func within(cfg Config, most limits) *Server {
	setup.Do(func() { // huma has these for the whole program
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError { return ofHuma(status, msg, errs...) }
		huma.NewErrorWithContext = func(hc huma.Context, status int, msg string, errs ...error) huma.StatusError {
			return ofHuma(status, msg, errs...).of(hc.Context())
		}
		huma.ValidateStrictCasing = true
	})
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, most: most, log: cfg.Logger, table: &table{http.NewServeMux(), map[string]route{}},
		busy: make(chan struct{}, most.Requests), watch: make(chan struct{}, most.Watchers)}
	s.live, s.end = context.WithCancel(context.Background())
	hc := huma.DefaultConfig("syncnode", cfg.Version)
	hc.Info.Description = "Runs that begin at most once: claim, fence, act, commit. docs/operations.md, section The API, says how."
	hc.DocsPath, hc.SchemasPath, hc.OpenAPIPath, hc.CreateHooks = "", "", "", nil
	hc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}, "mtls": {Type: "mutualTLS"}}
	s.huma = humago.New(s.table, hc)
	s.health()
	s.runRoutes()
	s.agentRoutes()
	s.listRoutes()
	s.configRoutes()
	s.eventRoutes()
	s.metricsRoute()
	for _, m := range cfg.Mounts {
		s.mount(m)
	}
	s.closeQueries()
	return s
}

// Attach has requests answered by n until detach is called, which ends those that are under way and waits for them.
func (s *Server) Attach(n *Node) (detach func()) {
	a := &attached{Node: n}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	s.mu.Lock()
	s.node = a
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		if s.node == a {
			s.node = nil
		}
		s.mu.Unlock()
		a.cancel(errDetached)
		a.users.Wait()
	}
}

// enter is the node for one request, and what ends the use of it.
func (s *Server) enter() (*attached, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return nil, false
	}
	s.node.users.Add(1)
	return s.node, true
}

type nodeKey struct{}

func nodeOf(ctx context.Context) *Node {
	n, _ := ctx.Value(nodeKey{}).(*Node)
	return n
}

// add registers an operation that the node answers.
func add[I, O any](s *Server, role Role, op huma.Operation, h func(context.Context, *Node, *I) (*O, error)) {
	operate(s, route{role: role, maxBody: MaxBody, needs: true, tells: tells[op.OperationID]}, op, func(ctx context.Context, in *I) (*O, error) {
		n := nodeOf(ctx)
		answer := func(ctx context.Context) (*O, error) { return h(ctx, n, in) }
		var out *O
		var err error
		if op.Method == http.MethodGet {
			out, err = reading(ctx, n, answer)
		} else {
			out, err = answer(ctx)
		}
		if err != nil {
			return nil, s.problemOf(ctx, err)
		}
		return out, nil
	})
}

func (s *Server) describe(op *huma.Operation, role Role) {
	op.MaxBodyBytes, op.BodyReadTimeout = MaxBody, -1 // the guard has read it
	op.Errors = append([]int{400, 401, 403, 429, 503}, op.Errors...)
	op.Extensions = map[string]any{"x-role": role}
	if role != Open {
		op.Security = []map[string][]string{{"bearer": {}}, {"mtls": {}}}
	}
}

func (s *Server) problemOf(ctx context.Context, err error) *Problem {
	if errors.Is(context.Cause(ctx), errDetached) && errors.Is(err, context.Canceled) {
		err = errors.Join(errDetached, err)
	}
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError {
		s.log.Error("request failed", "err", err)
	}
	return p.of(ctx)
}

// mount serves a handler of the node.
func (s *Server) mount(m Mount) {
	most := m.MaxBody
	if most == 0 {
		most = MaxBody
	}
	s.table.handle(m.Pattern, route{role: m.Role, maxBody: most, raw: true, stream: m.Stream, needs: true}, func(w http.ResponseWriter, r *http.Request) {
		h := nodeOf(r.Context()).Mounted[m.Pattern]
		if h == nil {
			NotThere(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// NotThere is the answer to a request for what this node does not serve.
func NotThere(w http.ResponseWriter, r *http.Request) {
	problem("not-found", "this node does not serve %s", r.URL.Path).write(w)
}
