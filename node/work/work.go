// Package work begins what is due for the agents that a node owns, and says what was missed and why.
//
// # Guarantees
//
// Every occurrence of a schedule after the agent was first seen with it ends as committed, failed, in doubt or missed with a reason,
// whatever nodes crash and restart. The ledger alone lets one begin: this package offers, and does no more. What an earlier process or
// another node decided is not decided again: whoever takes an agent over asks the ledger for the newest occurrence that was
// begun, and the log for the newest that was missed, and never the clock. What is missed before an occurrence is on disk before that
// one is begun.
//
// A scheduled agent is decided over by the node that holds its lease, and that is the owner among the living nodes, see package
// owner. An idle agent whose owner is another node is handed over, one a second; a run is never interrupted for it. If somebody who is no
// such node holds the agent, the owner decides over what comes due meanwhile.
//
// A failed attempt is repeated as the configuration says, under the same lease. A run whose end is not known
// is looked at again for as long as it is among the last ones of its agent. A run of the schedule which a person permits to be repeated
// is begun again however old it is; if an occurrence was missed for it, the next one is begun before another such run.
//
// When the context of Run ends nothing new begins and idle agents are handed over at once; what runs has File.Drain to end, then it is
// stopped as its agent's grace says, and its outcome is recorded before Run returns. People are told of a run that failed, for half a minute
// at the most, when nobody makes another attempt of it; Run waits for that too.
//
// # Not promised
//
// Without a Log, what was missed is counted and told and not kept, and a first start is known to this process alone. A gap that goes on
// when a process dies is decided again by the next one. What the log of another node has and this one does not yet is decided again too:
// the record may be there twice; the ledger still lets an occurrence begin once.
//
// # Failure
//
// While the coordinator does not answer, nothing begins, and what came due waits within its window. What cannot be written to the log
// keeps the agent's next occurrence waiting as well. Both are told once, and tried again for ever.
//
// # Concurrency
//
// A Worker may be used by several goroutines at once. Run may be called once; it owns all its goroutines.
package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/schedule/due"
)

// Holds is a hold.Table, as a worker needs it.
type Holds interface {
	Claim(ctx context.Context, agent, run string) (*hold.Hold, error)
	Own(ctx context.Context, agent string) error
	Disown(ctx context.Context, agent string) error
}

// A Runner is the one path of a run: a dispatch.Dispatcher.
type Runner interface {
	Run(ctx context.Context, j dispatch.Job) dispatch.Result
}

// A Ledger tells what is known of runs.
type Ledger interface {
	Look(ctx context.Context, q coord.Question) (coord.View, error)
	List(ctx context.Context, f coord.Filter) (coord.Page, error)
}

// A Log keeps the records of package missed.
type Log interface {
	// Append returns when all are on stable storage.
	Append(ctx context.Context, payloads ...json.RawMessage) error
	// Records yields what this device knows, its own and what came from others.
	Records() iter.Seq[json.RawMessage]
}

// An Effect is what an agent of a file does.
type Effect struct {
	Start dispatch.Starter // nil: nothing, its runs are begun by clients alone
	Probe func(context.Context, dispatch.Permit) (happened, known bool, err error)
	// Failed tells of a run that failed and is not tried again; nil: nobody is told. It ends soon after its context does, half a minute later
	// at the latest, also when the node leaves.
	Failed func(context.Context, dispatch.Job, dispatch.Result)
}

// A Config says what a Worker works with.
type Config struct {
	Namespace, Device string // required
	Hold              Holds  // required; its Run gets the context that Run gets
	Dispatch          Runner // required
	Ledger            Ledger // required
	// Nodes reads the leases of all nodes. Required.
	Nodes func(context.Context) ([]coord.Lease, error)
	// Announce has the lease of this node say which agents it runs; nil: nobody is told.
	Announce func(note string)
	// Free returns when an agent may be free, as a hint; nil: it is asked once a second.
	Free func(ctx context.Context, agent string) error
	// Log is nil for what has no disk.
	Log Log
	// Effect says what an agent does. Required.
	Effect func(f *config.File, a config.Agent) Effect
	// Clock reads the clocks; nil: those of this host.
	Clock  func() due.Reading
	Logger *slog.Logger // nil discards
}

const (
	// look is the pause between two looks at which nodes are living.
	look = 500 * time.Millisecond
	// patience bounds one question to the coordinator.
	patience = 10 * time.Second
	// again is the pause after something failed, at first; longest is what it grows to.
	again   = time.Second
	longest = 5 * time.Minute
	// telling bounds how long people are told of one failure. Run waits for it.
	telling = 30 * time.Second
)

// A Worker does a node's scheduled and triggered work.
type Worker struct {
	cfg Config
	log *slog.Logger

	events  chan func() // to be run by the loop, which owns what is not said to be guarded
	done    chan struct{}
	leaving atomic.Bool
	shares  atomic.Bool   // the file has scheduled agents
	left    chan struct{} // closed when leaving becomes true
	base    context.Context
	cancel  context.CancelCauseFunc // of base: the runs
	calls   context.Context         // of what is asked beside the runs
	hangUp  context.CancelFunc
	all     sync.WaitGroup

	// The loop's.
	file   *config.File
	rate   *due.Rate
	slots  map[string]*slot
	last   due.Reading
	note   string
	same   []string        // the living nodes that run the same agents
	living map[string]bool // all living nodes that run any
	seen   bool            // the log knows since when each agent has its schedule
	open   int             // runs and records that Run waits for
	moveAt time.Duration   // no agent is moved before; on the boot-time clock

	searching bool          // for permitted runs
	searchAt  time.Duration // no search begins before; on the boot-time clock

	mu     sync.Mutex // guards the rest
	known  records
	missed map[string]map[due.Reason]int
}

// New returns a worker for a file that was read.
func New(cfg Config, f *config.File) (*Worker, error) {
	if cfg.Namespace == "" || cfg.Device == "" || cfg.Hold == nil || cfg.Dispatch == nil || cfg.Ledger == nil || cfg.Nodes == nil || cfg.Effect == nil {
		return nil, errors.New("work: namespace, device, holds, dispatcher, ledger, nodes and effects are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = Clock
	}
	if cfg.Announce == nil {
		cfg.Announce = func(string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Worker{
		cfg: cfg, log: cfg.Logger, events: make(chan func()), done: make(chan struct{}), left: make(chan struct{}),
		slots: map[string]*slot{}, living: map[string]bool{}, missed: map[string]map[due.Reason]int{}, rate: &due.Rate{},
	}
	w.base, w.cancel = context.WithCancelCause(context.Background())
	w.calls, w.hangUp = context.WithCancel(context.Background())
	w.last, w.file = cfg.Clock(), f
	w.searchAt = w.last.Boot + permitsFirst
	return w, nil
}

// Run works until ctx ends and what runs has ended.
func (w *Worker) Run(ctx context.Context) error {
	defer w.cancel(nil)
	w.apply(w.file)
	w.spawn(w.watchNodes)
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	for stop != nil || w.open > 0 {
		select {
		case f := <-w.events:
			f()
		case <-stop:
			stop = nil
			w.leave()
		case <-timer.C:
		}
		timer.Reset(w.turn())
	}
	w.hangUp()
	close(w.done)
	w.all.Wait()
	return nil
}

// spawn runs f beside the loop, which waits for it when all is over.
func (w *Worker) spawn(f func()) { w.all.Go(f) }

// post has the loop do something. It is not done if the loop has ended.
func (w *Worker) post(f func()) {
	select {
	case w.events <- f:
	case <-w.done:
	}
}

// ask has the loop do something, and waits for it.
func (w *Worker) ask(ctx context.Context, f func()) error {
	ready := make(chan struct{})
	select {
	case w.events <- func() { f(); close(ready) }:
		<-ready
		return nil
	case <-w.done:
		return hold.ErrLeaving
	case <-ctx.Done():
		return fmt.Errorf("the worker does not answer: %w", context.Cause(ctx))
	}
}

// Reload takes another file in place of the one there was. What runs goes on as it was begun. With an error it was not taken: the worker
// leaves (hold.ErrLeaving), or ctx ended before.
func (w *Worker) Reload(ctx context.Context, f *config.File) error {
	left := false
	if err := w.ask(ctx, func() {
		if left = w.leaving.Load(); !left {
			w.apply(f)
		}
	}); err != nil {
		return err
	}
	if left {
		return hold.ErrLeaving
	}
	return nil
}

// leave begins nothing any more, hands over what is idle, and gives what runs its time.
func (w *Worker) leave() {
	w.leaving.Store(true)
	close(w.left)
	w.cfg.Announce(idleNote)
	for _, s := range w.slots {
		w.forget(s)
		s.untend()
		w.flush(s)
	}
	if w.open > 0 {
		w.log.Info("waiting for what runs", "open", w.open, "drain_ms", w.file.Drain.Milliseconds())
	}
	w.spawn(func() {
		t := time.NewTimer(w.file.Drain)
		defer t.Stop()
		select {
		case <-t.C:
			w.cancel(dispatch.ErrDrain)
		case <-w.done:
		}
	})
}

// turn does what is due, and says when to look again at the latest.
func (w *Worker) turn() time.Duration {
	now := w.cfg.Clock()
	stepped := now.Stepped(w.last)
	w.last = now
	jumped := stepped > time.Second || stepped < -time.Second
	if jumped {
		w.log.Info("the wall clock was set", "by_ms", stepped.Milliseconds())
	}
	next := due.MaxWait
	if !w.leaving.Load() {
		next = min(next, w.move(now), w.search(now))
	}
	for _, s := range w.slots {
		if jumped || s.next <= now.Boot {
			w.visit(s, now)
		}
		next = min(next, max(s.next-now.Boot, 0))
	}
	return next
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
