// Package etcd is the coordinator on an etcd cluster.
//
// # Guarantees
//
// Those of package coord, for every process that uses the same namespace of the same cluster, as long as
// etcd keeps what it acknowledged. Safety rests on the compares of etcd's transactions alone: never on a
// clock, a watch, an expiry or a serializable read. Every write is one transaction that compares the
// revisions of what it rests on, and the values too, as a restored cluster hands revisions out again.
//
// Expiry is judged by etcd: a lease has expired once the liveness key of its process is gone. That key
// hangs on an etcd lease, one per process, device and TTL class, so that renewing any number of agents
// costs one keepalive and no proposal, and the end of a process one deletion. Trust in a lease counts
// from before the last good keepalive, or the grant, was sent. etcd restarts every TTL when its leader
// changes: a take-over then takes that much longer.
//
// # Failure
//
// A transaction whose answer is missing is sent again with the same content until it is answered or the
// caller's context ends; see propose for what each answer means. An Acquire, Steal or Renew whose context
// ends without an answer is given up in the background; a Start is kept until it is repeated, cancelled,
// or another request for its agent comes. What the end of etcd's disk space refuses matches
// coord.ErrFull; renewals, reads and releases go on. Messages name operation, agent and endpoints.
//
// # Concurrency
//
// A Coordinator may be used by several goroutines at once. It starts no goroutine that outlives Close.
//
// docs/formats/coord-etcd.md describes the keys and their values.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	multierror "github.com/hashicorp/go-multierror"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

// A Config describes a coordinator. Client and Namespace are required.
type Config struct {
	// Client is the way to the cluster, see Dial. It stays open when the coordinator closes.
	Client *clientv3.Client
	// Namespace separates fleets that share a cluster. All keys are under /syncnode/<namespace>/.
	Namespace string
	// Process describes this process beside its liveness and its leases.
	Process coord.Process
	// Dead reports whether the process of that liveness is proved dead; nil means that nothing is ever
	// proved. A wrong true lets two processes hold one epoch.
	Dead func(liveness string, p coord.Process) bool
	// Logger takes what nobody else would tell; nil discards it.
	Logger *slog.Logger
	// Attempt is how long a copy of a request is waited for before it is sent again: the first one a quarter of it,
	// each further one twice as long as the one before, up to eight times Attempt. 1 s if zero.
	Attempt time.Duration
	// Settle bounds what is settled in the background after the caller's context ended. 30 s if zero.
	Settle time.Duration
}

const defaultAttempt = time.Second

func (cfg *Config) check() error {
	var errs *multierror.Error
	if cfg.Client == nil {
		errs = multierror.Append(errs, errors.New("no client"))
	}
	if err := ident.Check("namespace", cfg.Namespace); err != nil {
		errs = multierror.Append(errs, err)
	}
	if cfg.Attempt < 0 || cfg.Settle < 0 {
		errs = multierror.Append(errs, fmt.Errorf("negative time: attempt %s, settle %s", cfg.Attempt, cfg.Settle))
	}
	if err := oneLine(errs); err != nil {
		return fmt.Errorf("coord/etcd: %w: %w", coord.ErrInvalid, err)
	}
	if cfg.Attempt == 0 {
		cfg.Attempt = defaultAttempt
	}
	if cfg.Settle == 0 {
		cfg.Settle = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// A Coordinator is a process's part in the coordination of a namespace. Make one with Open.
type Coordinator struct {
	client  *clientv3.Client
	leases  etcdserverpb.LeaseClient
	keys    layout
	id      string // drawn at Open; every liveness of this process begins with it
	process coord.Process
	dead    func(string, coord.Process) bool
	log     *slog.Logger
	attempt time.Duration
	budget  time.Duration // of settling in the background

	generation string
	writers    gate // one writer per agent

	base context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	meta    string               // what the meta key is known to hold
	lives   map[string]*life     // by liveness key
	grants  map[string]*grant    // by agent
	left    map[string]*bid      // by agent: asked for and not settled
	begins  map[string]state     // by attempt: what a begin that is not settled compared
	entries map[string]state     // by attempt: what a begin left in the ledger
	hints   map[string]agentHint // by agent
}

// An agentHint spares a second read; it is never relied on.
type agentHint struct {
	live  string // the liveness key that the holder named last
	depth int    // how deep the agent's buckets are split
	full  bool   // there are buckets
}

var _ coord.Coordinator = (*Coordinator)(nil)

// Open joins the namespace, and creates it if nobody did before. It reports every mistake of cfg at
// once. The namespace's generation is fixed from here on: another one gives coord.ErrGeneration.
func Open(ctx context.Context, cfg Config) (*Coordinator, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Coordinator{
		client: cfg.Client, leases: clientv3.RetryLeaseClient(cfg.Client), keys: newLayout(cfg.Namespace),
		id: coord.NewNonce(), process: cfg.Process, dead: cfg.Dead, attempt: cfg.Attempt, budget: cfg.Settle,
		writers: gate{held: map[string]chan struct{}{}},
		lives:   map[string]*life{}, grants: map[string]*grant{}, left: map[string]*bid{},
		begins: map[string]state{}, entries: map[string]state{}, hints: map[string]agentHint{},
	}
	c.log = cfg.Logger.With("namespace", cfg.Namespace)
	c.base, c.stop = context.WithCancel(context.Background())
	if err := c.join(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// join reads the meta key, or creates it.
func (c *Coordinator) join(ctx context.Context) error {
	key := c.keys.meta()
	st, err := c.read(ctx, "open namespace", "", []string{key})
	if err != nil {
		return err
	}
	if !st.has(key) {
		raw := encode(metaValue{V: valueVersion, Format: valueVersion, Generation: coord.NewNonce()})
		ans, err := c.propose(ctx, proposal{
			what: "create namespace", cmps: st.unchanged(key), puts: []clientv3.Op{clientv3.OpPut(key, raw)},
			gets: []string{key}, both: true,
			ours: func(st state) bool { return st.has(key) },
		})
		if err != nil {
			return err
		}
		st = ans.st
	}
	meta, _, err := get[metaValue](st, key)
	if err != nil {
		return fmt.Errorf("open namespace: %w: %w", coord.ErrNotSent, err)
	}
	c.generation, c.meta = meta.Generation, string(st.kvs[key].Value)
	return nil
}

// Generation implements coord.Coordinator.
func (c *Coordinator) Generation() string { return c.generation }

// Liveness is the beginning of every liveness id of this process; what names the process's lock file.
func (c *Coordinator) Liveness() string { return c.id }

// checkMeta compares the generation that was read with the one of Open.
func (c *Coordinator) checkMeta(st state) error {
	key := c.keys.meta()
	if !st.knows(key) {
		return nil
	}
	meta, ok, err := get[metaValue](st, key)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: %s is gone, it had %s", coord.ErrGeneration, key, c.generation)
	case meta.Generation != c.generation:
		return fmt.Errorf("%w: %s has %s now, it had %s", coord.ErrGeneration, key, meta.Generation, c.generation)
	}
	c.mu.Lock()
	c.meta = string(st.kvs[key].Value)
	c.mu.Unlock()
	return nil
}

// sameMeta compares that the ledger is that of Open.
func (c *Coordinator) sameMeta() clientv3.Cmp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clientv3.Compare(clientv3.Value(c.keys.meta()), "=", c.meta)
}

// mine reports whether the liveness is one of this process.
func (c *Coordinator) mine(liveness string) bool { return strings.HasPrefix(liveness, c.id+"-") }

// A gate lets one goroutine per name through at a time.
type gate struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when it is given up
}

// enter waits for its turn and returns what ends it.
func (g *gate) enter(ctx context.Context, name string) (leave func(), err error) {
	for {
		g.mu.Lock()
		busy, ok := g.held[name]
		if !ok {
			mine := make(chan struct{})
			g.held[name] = mine
			g.mu.Unlock()
			return func() {
				g.mu.Lock()
				delete(g.held, name)
				g.mu.Unlock()
				close(mine)
			}, nil
		}
		g.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: agent %s: another request of this process is not settled: %w", coord.ErrNotSent, name, context.Cause(ctx))
		}
	}
}
