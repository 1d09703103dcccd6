// Package session is one device's part of the shared record: its journal, the state folded from it, and the
// exchange with a relay.
//
// # Guarantees
//
// Memory equals journal: an op reaches the folded state only once it is on stable storage, and what Append
// returned is in both. A sequence number is never given twice. What other processes append to the same directory
// is picked up by the next call that looks.
//
// A pump takes its steps in one order, each of which may be repeated after a crash: what is own is on stable
// storage before it is pushed, what was pulled is verified before it is journaled and on stable storage before it
// is folded, and only what is folded is acked. A chain that does not verify is quarantined with its reason, from
// the op on that is bad; every other chain goes on. Ops stamped more than five minutes ahead of Now are journaled
// and wait: they are folded and acked when their time has come, but a commit among them is known at once.
//
// Before it pushes, a pump compares its own head with the relay's. A relay that is behind is offered again what
// it lacks, and if a part of that is only in a checkpoint here, the relay is first seeded with that, so that one that is new, was emptied
// or put back from an older copy gets going by the pumps of its devices. A relay that holds own ops which the journal does not have, in
// its chain or covered by its checkpoint, freezes the id: nothing is pushed any more, nothing is lost, and every pump says so. The call
// that finds it out, be it Pump, Publish, Rebase or Restore, notes it durably before it returns, or fails with the reason beside ErrFrozen,
// and then a later pump finds it out again. Under a new id Reissue writes again what no relay has.
//
// A person may let a chain of another device go on across a break, or be folded before the time that it is stamped with
// (journal.Accept); the next pump takes that in. Such a stamp still moves nobody's clock.
//
// A checkpoint may stand for the beginning of the journal. Publish makes one of what every replica has folded, gives it to the relay,
// and only then begins the journal at it and drops what lies below. Rebase takes the relay's newest one, and so does a pump that asks
// for ops which were collected: it is compared with what the held ops give as long as they are held, it has to cover what this device
// has in its own checkpoint, and whatever it does not cover, own ops that were never pushed among it, stays and goes on. So state, and
// not history, bounds disk and memory.
//
// Where the seal's policy says so, payloads are sealed when their op has its place, and so is every checkpoint that leaves the device
// and holds, or may hold, what was sealed: a relay never gets such content clear. What is folded is the content, so devices with equal
// folded frontiers have equal digests, whatever keys they have. An op that cannot be opened is held, pushed on and verified like any
// other; nothing of its chain is folded or acked from there on, so nothing of it is collected; commits behind it are known at once; and
// every other chain goes on. If a key is missing it is tried again once the key file has it. A payload that is clear where the policy
// seals is treated like one that does not open, unless the policy accepts it. Intents are never sealed.
//
// With k new ops over any number held a pump costs O(k), an idle one O(devices), a look at CommittedRun O(1).
//
// Not promised: that CommittedRun knows what other devices did since the last pump. It can veto and never permit;
// only the ledger lets an effect begin.
//
// # Failure
//
// An error of Append or RecordIntent that matches journal.ErrNotWritten or journal.ErrBusy left nothing behind,
// and the session goes on. After journal.ErrPoisoned the journal and the session have to be opened again. An error
// of Pump, Publish or Rebase is that of one of its steps; the call may be repeated, and what was done before stands. [*FrozenError]
// needs a new identity for this device. Errors of package seal: without the key nothing was written or given away. A checkpoint that is refused (*checkpoint.DisputedError, *checkpoint.BehindError,
// *oplog.ForkError) changed nothing, and a person has to look.
//
// # Concurrency
//
// A Session may be used by several goroutines. One pump runs at a time. No lock is held while a relay is asked, so
// a slow relay never delays an append.
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
)

// A Holder tells who holds an agent's lease. The wiring adapts a coordinator to it.
type Holder interface {
	// Current is the device and epoch of the lease, from a linearizable read; false if nobody holds it.
	Current(ctx context.Context, agent string) (device string, epoch uint64, held bool, err error)
}

// A Config describes a session. Device and Journal are required.
type Config struct {
	Device  string
	Journal *journal.Journal // of that device; stays the caller's
	// Coordinator is asked by RecordIntentIfCurrent; nil makes that fail.
	Coordinator Holder
	// Role is what the session registers as: relay.Replica unless it is relay.Writer, which never pulls.
	Role relay.Role
	// Checkpoints is where checkpoints lie; nil keeps every op, and refuses a journal that begins at a checkpoint.
	Checkpoints *checkpoint.Store
	// BeforeCut hears, under the journal's lock, of what is about to be only in a checkpoint, so that whatever else is derived
	// from the journal can make itself durable. An error calls the cut off. Nil: nothing else is.
	BeforeCut func(tx *journal.Tx, f Facts) error
	// Seal seals what its policy says, and opens what is sealed. Nil has no keys and seals nothing.
	Seal *seal.Sealer
	// Now decides which ops wait for their time; nil is time.Now.
	Now    func() time.Time
	Logger *slog.Logger // nil discards
}

// A Session is open on the journal of one device. Make it with Open; there is nothing to close.
type Session struct {
	cfg Config
	log *slog.Logger

	pumping chan struct{} // one token: the pump that runs
	reading chan struct{} // one token: who moves the cursors below forward, reading the journal

	peersAt journal.Cursor // guarded by reading: everything before is in memory

	mu          sync.Mutex        // guards the fields below; never held across I/O
	base        checkpoint.Header // what the journal's beginning is in; zero if it has all
	cut         string            // the checkpoint that the journal names, as this session knows; empty if it begins with the first ops
	state       *fold.State
	held        oplog.Frontier          // journaled and verified
	ownNext     uint64                  // everything of the own chain before is in memory
	chains      map[string]*oplog.Chain // of the others: verified and journaled
	parked      map[string][]oplog.Op   // in order; not folded because of their stamp, or of one before them
	stopped     map[string]*stop        // chains with an op that cannot be read: held beyond it, and not folded
	quarantined map[source]*Quarantine
	accepted    []journal.Acceptance      // decisions of people
	acked       map[string]oplog.Frontier // by relay instance: what this process knows to be acked there
	answered    map[string]oplog.Pos      // by relay instance: the last own op that it had, or answered a push for
	unheld      map[string]oplog.Frontier // by relay instance: what was folded here when the relay did not hold it
	covered     map[string]string         // by relay instance: its checkpoint of which no closed chain is lacking here
	frozen      *FrozenError
	keysErr     error                      // why the key file could not be read the last time
	inside      map[string]checkpoint.Hash // by name at a relay: the checkpoint that is sealed in it, as far as this process has seen
}

// A source is a chain as one relay gives it.
type source struct{ instance, device string }

// Open reads the journal of cfg.Device and folds it, on top of the checkpoint that it begins at. If that one is damaged it is made
// again from an older one and the ops that are still held. It fails with a mistake in cfg, an error of package journal, or a
// [*CheckpointError] if the checkpoint is lost: Restore fetches it.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	if err := check(&cfg); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	var err error
	for range 3 { // another process may cut the journal meanwhile
		s := newSession(cfg)
		if err = s.load(); err == nil {
			err = s.loadFrozen()
		}
		if err == nil {
			if err = s.Refresh(ctx); err == nil {
				return s, nil
			}
		}
		if !errors.Is(err, journal.ErrAnchored) {
			break
		}
	}
	return nil, fmt.Errorf("open session: %w", err)
}

func newSession(cfg Config) *Session {
	return &Session{
		cfg:         cfg,
		log:         cfg.Logger.With("device", cfg.Device),
		pumping:     make(chan struct{}, 1),
		reading:     make(chan struct{}, 1),
		state:       fold.New(),
		held:        oplog.Frontier{},
		chains:      map[string]*oplog.Chain{},
		parked:      map[string][]oplog.Op{},
		stopped:     map[string]*stop{},
		quarantined: map[source]*Quarantine{},
		acked:       map[string]oplog.Frontier{},
		answered:    map[string]oplog.Pos{},
		unheld:      map[string]oplog.Frontier{},
		covered:     map[string]string{},
		inside:      map[string]checkpoint.Hash{},
	}
}

func check(cfg *Config) error {
	var errs []error
	switch {
	case cfg.Journal == nil:
		errs = append(errs, errors.New("no journal"))
	case cfg.Journal.Device() != cfg.Device:
		errs = append(errs, fmt.Errorf("the journal is that of device %q, not %q", cfg.Journal.Device(), cfg.Device))
	}
	if cfg.Role == "" {
		cfg.Role = relay.Replica
	}
	if err := relay.CheckRole(cfg.Role); err != nil {
		errs = append(errs, err)
	}
	if cfg.Seal == nil {
		var err error
		if cfg.Seal, err = seal.New(seal.Config{}); err != nil {
			errs = append(errs, err)
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// Device is whose session it is.
func (s *Session) Device() string { return s.cfg.Device }

// Refresh takes in what other processes appended to the journal, looks whether the keys have changed, and folds what waited for its
// time or its key.
func (s *Session) Refresh(ctx context.Context) error {
	if err := s.cfg.Journal.Refresh(ctx); err != nil {
		return err
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	if _, err := s.reopen(ctx); err != nil {
		return err
	}
	s.unpark()
	return nil
}

// Digest identifies the folded state: equal folded frontiers give equal digests on every device.
func (s *Session) Digest() fold.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Digest()
}

// HeldFrontier is what is journaled, ops that wait for their time included.
func (s *Session) HeldFrontier() oplog.Frontier {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.Clone()
}

// FoldedFrontier is what the state is the fold of, and what is acked.
func (s *Session) FoldedFrontier() oplog.Frontier {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Frontier()
}

// CommittedRun reports whether any op here says that the run committed, also one that waits for its time.
func (s *Session) CommittedRun(agent, run string) (fold.IntentRecord, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.CommittedRun(agent, run)
}

// View calls read with the folded state. No op is folded meanwhile, so read must be short; it must not keep the
// state or call the session.
func (s *Session) View(read func(*fold.State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read(s.state)
}
