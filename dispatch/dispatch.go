// Package dispatch is the one path of a run: look, acquire and begin, effect, outcome.
//
// # Guarantees
//
// Run starts the effect of a job at most once, and only after the coordinator recorded an open attempt for it and,
// if there is a Book, the pending intent is on stable storage. Whatever fails before that means that nothing ran, and
// the attempt is closed as void; a failure is never a permission. A run that was committed, is running or
// is in doubt is not begun, except where the job's policies say so.
//
// An effect that was begun under a lease ends before that lease can end, unless OnLost is keep: it is told to stop at
// two thirds of the granted TTL after the last good renewal was sent, and killed before the whole of it is over. When
// somebody took the lease, it is told at once. An effect that was stopped and whose end was seen is failed, with
// the reason as its cause, whatever code it ended with; one that ended well before the stop reached it is committed.
//
// A run may begin under a lease that its caller keeps, see Job.Held: the same holds for its effect, and the lease stays
// with the caller.
//
// The outcome is written into the journal first and into the ledger then. If the ledger cannot take it within
// Config.RecordTimeout, the next Run or Settle of this device does it.
//
// The journal is used for single records only, and nothing of it is locked while an effect runs or the
// coordinator is asked.
//
// Not promised: that an effect which was told to stop obeys before the lease ends on a host that stands still; that an
// effect which detached itself from its starter is stopped.
//
// # Failure
//
// Run always returns a Result and never an error; its message says "was not run", "was run" or "may have run".
// Where it cannot say for sure that an attempt is closed, it says that the attempt may be recorded as open.
//
// # Concurrency
//
// A Dispatcher may be used by several goroutines at once, also for one agent and one run. Run blocks until the effect
// has ended and its outcome was recorded or given up; cancelling its context stops the effect in good order.
package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/fence"
	"github.com/syncnode/syncnode/internal/ident"
)

const (
	// DefaultBackendTimeout is how long a silent coordinator is waited for before the effect starts.
	DefaultBackendTimeout = 10 * time.Second
	// DefaultRecordTimeout is how long Run tries to bring an outcome into the ledger.
	DefaultRecordTimeout = 10 * time.Second
)

// A Config says what a Dispatcher works with. Zero fields take their defaults.
type Config struct {
	Coordinator coord.Coordinator // required
	// Device is the holder of the leases, and the device of the Book. Required.
	Device string
	// Book is the device's journal; nil if it has none: then the ledger is the only record. An outcome that the ledger does not take is
	// offered again as long as this Dispatcher lives, and is lost with it: nobody is told that it stands anywhere.
	Book Book
	// Dead proves that the process behind a liveness of this device is dead. Nil proves nothing.
	Dead func(liveness string, p coord.Process) bool
	// Guard is asked before each answer to Permit.Fence, see fence.Config.
	Guard  func(ctx context.Context, l coord.Lease) error
	Logger *slog.Logger // nil: silent
	// Ended, if not nil, is told each result of Run before Run returns it, and how long the effect ran: 0 if it did not. It must not
	// wait.
	Ended func(j Job, r Result, ran time.Duration)

	BackendTimeout time.Duration // 0: DefaultBackendTimeout
	RecordTimeout  time.Duration // 0: DefaultRecordTimeout
}

// A Dispatcher runs jobs for one device.
type Dispatcher struct {
	cfg     Config
	fence   *fence.Fence
	journal bool    // there is a Book
	memory  *noBook // of what no Book has: doubts; all without one

	mu      sync.Mutex
	active  map[string]bool // attempts that a Run of this Dispatcher is busy with
	lives   map[string]bool // livenesses of this process under which it began attempts: one for each class of TTL
	owed    map[debt]bool   // leases to be given back
	brokeAt string          // the attempt whose outcome could not be written when outcomes were last
}

// New returns a Dispatcher.
func New(cfg Config) (*Dispatcher, error) {
	d := &Dispatcher{journal: cfg.Book != nil, memory: &noBook{}, active: map[string]bool{}, lives: map[string]bool{}, owed: map[debt]bool{}}
	if !d.journal {
		cfg.Book = d.memory
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.BackendTimeout = orElse(cfg.BackendTimeout, DefaultBackendTimeout)
	cfg.RecordTimeout = orElse(cfg.RecordTimeout, DefaultRecordTimeout)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d.cfg = cfg
	var err error
	d.fence, err = fence.New(fence.Config{
		Attempts: cfg.Coordinator, Device: cfg.Device, Dead: cfg.Dead, Void: d.void, Guard: cfg.Guard,
	})
	return d, err
}

func (c Config) check() error {
	var all []error
	if c.Coordinator == nil {
		all = append(all, errors.New("dispatch: a coordinator is required"))
	}
	if c.BackendTimeout < 0 || c.RecordTimeout < 0 {
		all = append(all, errors.New("dispatch: a timeout is negative"))
	}
	return errors.Join(append(all, ident.Check("device", c.Device))...)
}

// Run runs the job, or says why not.
func (d *Dispatcher) Run(ctx context.Context, j Job) Result {
	j, err := j.withDefaults()
	if err == nil && j.Effect == nil {
		err = errors.New("no effect was given")
	}
	r := d.newRun(j)
	if err != nil {
		return r.notRun(err)
	}
	res := r.log(r.run(ctx))
	if d.cfg.Ended != nil {
		d.cfg.Ended(j, res, r.ran)
	}
	return res
}

// DryRun says what Run would do now: code 0 if it would start the effect, else the code it would give. It writes
// nothing anywhere.
func (d *Dispatcher) DryRun(ctx context.Context, j Job) Result {
	j, err := j.withDefaults()
	r := d.newRun(j)
	if err != nil {
		return r.notRun(err)
	}
	return r.dry(ctx)
}

// A run is one call of Run. It belongs to one goroutine.
type run struct {
	d   *Dispatcher
	job Job

	standing Standing
	settled  bool       // outcomes of the journal were offered to the ledger once
	view     coord.View // what the last verdict rests on

	begin   coord.Begin   // what was asked of the ledger
	lease   coord.Lease   // as granted
	attempt coord.Attempt // as begun
	ran     time.Duration // of the effect; 0 if it was not started
}

func (d *Dispatcher) newRun(j Job) *run { return &run{d: d, job: j} }

func (r *run) log(res Result) Result {
	level := slog.LevelInfo
	if res.State == coord.RunInDoubt || res.Unsettled {
		level = slog.LevelError
	}
	r.d.cfg.Logger.Log(context.Background(), level, "run ended", "agent", r.job.Agent, "run", r.job.Run, "attempt", res.Attempt,
		"epoch", uint64(res.Epoch), "code", res.Code, "ran", string(res.Ran), "state", string(res.State), "cause", res.Cause)
	return res
}

// void leaves the attempts alone that this process is busy with, whatever was proved of it.
func (d *Dispatcher) void(ctx context.Context, agent, run string, a coord.Attempt) (bool, error) {
	if d.busyWith(a.ID) {
		return false, nil
	}
	return d.cfg.Book.Void(ctx, agent, run, a)
}

func (d *Dispatcher) claim(attempt string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if on {
		d.active[attempt] = true
	} else {
		delete(d.active, attempt)
	}
}

// began notes whose attempt it is.
func (d *Dispatcher) began(a coord.Attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.Liveness != "" {
		d.lives[a.Liveness] = true
	}
}

func (d *Dispatcher) busyWith(attempt string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.active[attempt]
}
