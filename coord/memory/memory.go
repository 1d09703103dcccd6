// Package memory is a coordinator in the memory of one program: for tests, and the plainest reading of the
// contract.
//
// # Guarantees
//
// All of package coord, between the processes of one [Store]. Time is Config.Now alone: nothing expires
// while it stands still. Nothing survives the program.
//
// # Failure
//
// A call whose context has ended, or whose process crashed or was closed, gives an error that matches
// coord.ErrNotSent. No call gives coord.ErrIndeterminate; coordtest.Faulty makes those.
//
// # Concurrency
//
// A store and its coordinators may be used by several goroutines at once; every call is one step.
package memory

import (
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// Config says what a store takes from outside. The zero Config is usable.
type Config struct {
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Dead tells whether the process behind a lease is proved dead, so that a later process of its device
	// may go on with its epoch; nil means that there is no proof.
	Dead func(coord.Lease) bool
}

// A Store is the ledger that its processes share.
type Store struct {
	now        func() time.Time
	dead       func(coord.Lease) bool
	generation string

	mu       sync.Mutex // guards all below
	agents   map[string]*agent
	lives    map[string]life // by liveness; absent when it is gone
	runs     map[coord.RunRef]coord.Entry
	recovery *coord.Gate
	offers   map[string]coord.Offer // by device
}

// A life is what a liveness has left.
type life struct {
	ends time.Time
	ttl  time.Duration
}

// An agent is what the store holds of one: guarded by Store.mu.
type agent struct {
	epoch  coord.Epoch
	holder *coord.Lease
	owner  string // the process that holds it
	paused *coord.Gate
}

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Store{now: cfg.Now, dead: cfg.Dead, generation: coord.NewNonce(),
		agents: map[string]*agent{}, lives: map[string]life{}, runs: map[coord.RunRef]coord.Entry{}, offers: map[string]coord.Offer{}}
}

// Process starts a process, of whatever device its requests name. p is shown beside its leases.
func (s *Store) Process(p coord.Process) *Coordinator {
	return &Coordinator{store: s, id: coord.NewNonce(), process: p}
}

// Expire ends a liveness before its time, as a backend does that lost it. Its process may bring it back.
func (s *Store) Expire(liveness string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lives, liveness)
}

// Elect begins the TTL of every liveness anew that has not run out, as etcd does when it elects a leader.
func (s *Store) Elect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for liveness, l := range s.lives {
		if s.aliveLocked(liveness) {
			s.lives[liveness] = life{s.now().Add(l.ttl), l.ttl}
		}
	}
}

func (s *Store) agentLocked(id string) *agent {
	a := s.agents[id]
	if a == nil {
		a = &agent{}
		s.agents[id] = a
	}
	return a
}

func (s *Store) aliveLocked(liveness string) bool {
	l, ok := s.lives[liveness]
	if ok && !s.now().Before(l.ends) {
		delete(s.lives, liveness)
		ok = false
	}
	return ok
}

// leaseLocked is the lease of an agent as Current shows it to the process reader.
func (s *Store) leaseLocked(id, reader string) (coord.Lease, bool) {
	a := s.agents[id]
	if a == nil || a.holder == nil {
		l := coord.Lease{Agent: id}
		if a != nil {
			l.Epoch = a.epoch
		}
		return l, false
	}
	l := *a.holder
	l.Expired = !s.aliveLocked(l.Liveness)
	if a.owner != reader {
		l.Sent = time.Time{}
	}
	return l, true
}

// factsLocked is what one step of the process c sees. run may be empty.
func (s *Store) factsLocked(c *Coordinator, id, run string) rules.Facts {
	f := rules.Facts{Recovery: s.recovery, Alive: s.aliveLocked, Self: c.owns}
	if a := s.agents[id]; a != nil {
		f.Epoch, f.Paused = a.epoch, a.paused
		f.Ours = a.holder != nil && a.owner == c.id
	}
	f.Holder, f.Held = s.leaseLocked(id, c.id)
	f.Entry, f.Found = s.runs[coord.RunRef{Agent: id, Run: run}]
	f.Entry.Agent, f.Entry.Run = id, run
	return f
}

func (s *Store) storeLocked(e coord.Entry) {
	s.runs[coord.RunRef{Agent: e.Agent, Run: e.Run}] = e
}
