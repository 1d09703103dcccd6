package work_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/node/missed"
	"github.com/syncnode/syncnode/node/owner"
	"github.com/syncnode/syncnode/node/work"
	"github.com/syncnode/syncnode/schedule/due"
	"github.com/syncnode/syncnode/test/cluster"
)

func TestMain(m *testing.M) {
	cluster.RunMember()
	goleak.VerifyTestMain(m)
}

const namespace = "test"

func runID(agent string, at time.Time) string {
	return ident.RunID(namespace, agent, ident.AtOccurrence(at))
}

// parse reads a file of agents; every one gets a command, which no test runs.
func parse(t *testing.T, text string) *config.File {
	t.Helper()
	f, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A world is a store, and the disks and effects of some devices.
type world struct {
	t     *testing.T
	store *memory.Store
	begin time.Time

	mu      sync.Mutex
	disks   map[string]*disk
	effects map[string][]effect // by run id: what was begun
	takes   time.Duration       // how long an effect takes
	telling time.Duration       // how long it takes to tell people
	deaf    bool                // effects do not end when they are told to
	happens bool                // what a probe says of an effect
	exit    func(p dispatch.Permit) int
	fresh   map[string]bool // livenesses of processes that are there
	proof   bool            // a dead process can be proved to be dead
}

type effect struct {
	device string
	at     time.Time
	epoch  coord.Epoch
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, disks: map[string]*disk{}, effects: map[string][]effect{}, fresh: map[string]bool{}, takes: time.Second, begin: time.Now()}
	w.store = memory.New(memory.Config{Dead: func(l coord.Lease) bool { return w.dead(l.Liveness, l.Process) }})
	return w
}

func (w *world) dead(_ string, p coord.Process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proof && !w.fresh[p.Boot]
}

// count is how often the effect of a run was begun.
func (w *world) count(run string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.effects[run])
}

// A disk is what survives a crash of a device: its records, and its journal.
type disk struct {
	mu      sync.Mutex
	records []json.RawMessage
	log     []coord.Outcome
	settled map[string]bool
	floor   map[string]coord.Epoch
}

func (w *world) disk(device string) *disk {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.disks[device]
	if d == nil {
		d = &disk{settled: map[string]bool{}, floor: map[string]coord.Epoch{}}
		w.disks[device] = d
	}
	return d
}

var errCrashed = errors.New("the process crashed")

// A life is one process of a device's node.
type life struct {
	w      *world
	device string
	name   string
	disk   *disk
	c      *memory.Coordinator
	d      *dispatch.Dispatcher
	table  *hold.Table
	*work.Worker
	stop context.CancelFunc
	done chan struct{}
	log  *slog.Logger

	mu      sync.Mutex
	crashed chan struct{}
	steps   int
	crashAt int // at which step; 0: none
	fault   coordtest.Fault
	ahead   time.Duration // of the wall clock
	lists   func()        // is called before each List of the worker; nil: nothing
	told    strings.Builder
}

type settings struct {
	crashAt int
	ahead   time.Duration
	noLog   bool
	fault   coordtest.Fault
}

func (w *world) start(device string, f *config.File, s settings) *life {
	w.t.Helper()
	l := &life{w: w, device: device, disk: w.disk(device), done: make(chan struct{}), crashed: make(chan struct{}), crashAt: s.crashAt, ahead: s.ahead, fault: s.fault}
	l.name = fmt.Sprint(device, " ", time.Now().UnixNano())
	w.mu.Lock()
	w.fresh[l.name] = true
	w.mu.Unlock()
	l.log = slog.New(slog.NewTextHandler(lines{l}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l.c = w.store.Process(coord.Process{Host: device, Boot: l.name})
	c := coordtest.Faulty(l.c, l.plan)
	var err error
	l.d, err = dispatch.New(dispatch.Config{Coordinator: c, Device: device, Book: l, Dead: w.dead})
	must(w.t, err)
	l.table, err = hold.New(hold.Config{Leases: c, Device: device, Floor: func(_ context.Context, agent string) (coord.Epoch, error) {
		st, err := l.Standing(context.Background(), agent, "")
		return st.Floor, err
	}, TTL: func(agent string) time.Duration { a, _ := f.Agent(agent); return a.TTL }})
	must(w.t, err)
	cfg := work.Config{
		Namespace: namespace, Device: device, Hold: l.table, Dispatch: l.d, Ledger: ledger{c, l}, Clock: l.clock, Log: records{l}, Logger: l.log,
		Nodes:    func(ctx context.Context) ([]coord.Lease, error) { return w.nodes(ctx, l) },
		Announce: l.announce,
		Effect: func(*config.File, config.Agent) work.Effect {
			return work.Effect{Start: dispatch.StartFunc(l.effect), Probe: l.probe, Failed: func(ctx context.Context, j dispatch.Job, _ dispatch.Result) { l.tell(ctx, j.Run) }}
		},
	}
	if s.noLog {
		cfg.Log = nil
	}
	l.Worker, err = work.New(cfg, f)
	must(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go func() {
		defer close(l.done)
		var all sync.WaitGroup
		all.Go(func() { must(w.t, l.table.Run(ctx)) })
		all.Go(func() { must(w.t, l.Run(ctx)) })
		all.Go(func() { l.settle(ctx) })
		all.Wait()
	}()
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// settle is what a node does beside: the lease of the node, and what earlier processes left.
func (l *life) settle(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = l.d.Settle(ctx)
		select {
		case <-time.After(30 * time.Second):
		case <-ctx.Done():
		}
	}
}

// announce takes the lease of the node anew, and keeps it for the life of the process. The note is changed in one step here.
func (l *life) announce(note string) {
	ctx := context.Background()
	agent := owner.Agent(l.device)
	if cur, held, err := l.c.Current(ctx, agent); err == nil && held {
		_, _ = l.c.Renew(ctx, agent, l.device, cur.Epoch, 0)
		_ = l.c.Release(ctx, agent, l.device, cur.Epoch)
	}
	lease, err := l.c.Acquire(ctx, coord.Request{Agent: agent, Device: l.device, TTL: coord.DefaultTTL, Note: note})
	if err != nil {
		return
	}
	go func() {
		k := coord.Keep(ctx, l.c, lease, coord.KeepOptions{})
		select {
		case <-l.crashed:
		case <-l.done:
		case <-k.Context().Done():
		}
		k.Stop()
	}()
}

func (w *world) nodes(ctx context.Context, l *life) ([]coord.Lease, error) {
	if l.plan("Leases") == coordtest.Before {
		return nil, coord.ErrNotSent
	}
	return l.c.LeasesOf(ctx, owner.Prefix)
}

// end stops the process in good order.
func (l *life) end() {
	l.stop()
	<-l.done
	_ = l.c.Close(context.Background())
}

// crash ends it at once: nothing of it is asked, written or done any more.
func (l *life) crash() {
	l.die()
	l.end()
}

func (l *life) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.crashed:
		return
	default:
	}
	close(l.crashed)
	l.c.Crash()
	l.w.mu.Lock()
	delete(l.w.fresh, l.name)
	l.w.mu.Unlock()
	l.stop()
}

func (l *life) isCrashed() bool {
	select {
	case <-l.crashed:
		return true
	default:
		return false
	}
}

// step counts what the process does to the world, and crashes it before what the test chose.
func (l *life) step() error {
	l.mu.Lock()
	l.steps++
	now := l.steps == l.crashAt
	l.mu.Unlock()
	if now {
		l.die()
	}
	if l.isCrashed() {
		return errCrashed
	}
	return nil
}

func (l *life) plan(op string) coordtest.Fault {
	if op != "Renew" && op != "Leases" && op != "Current" && op != "List" {
		_ = l.step()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

func (l *life) fail(f coordtest.Fault) { l.mu.Lock(); defer l.mu.Unlock(); l.fault = f }

// A ledger is that of a worker, whose questions a test can keep waiting.
type ledger struct {
	work.Ledger
	l *life
}

func (g ledger) List(ctx context.Context, f coord.Filter) (coord.Page, error) {
	g.l.mu.Lock()
	lists := g.l.lists
	g.l.mu.Unlock()
	if lists != nil {
		lists()
	}
	return g.Ledger.List(ctx, f)
}

// onList has each List of the worker wait for f first; nil: for nothing.
func (l *life) onList(f func()) { l.mu.Lock(); defer l.mu.Unlock(); l.lists = f }

func (l *life) clock() due.Reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	return due.Reading{Wall: time.Now().Add(l.ahead).Round(0), Boot: time.Since(l.w.begin)}
}

// putClock sets how far the wall clock is ahead.
func (l *life) putClock(ahead time.Duration) { l.mu.Lock(); defer l.mu.Unlock(); l.ahead = ahead }

// A running effect ends by itself, or when it is stopped; it dies with its process.
type running struct {
	once sync.Once
	done chan struct{}
	end  dispatch.Ended
	deaf bool
}

func (l *life) effect(_ context.Context, p dispatch.Permit) (dispatch.Effect, error) {
	if err := l.step(); err != nil {
		return nil, err
	}
	w := l.w
	w.mu.Lock()
	w.effects[p.Run] = append(w.effects[p.Run], effect{l.device, time.Now(), p.Epoch})
	exit := 0
	if w.exit != nil {
		exit = w.exit(p)
	}
	takes := w.takes // exit may have set it
	e := &running{done: make(chan struct{}), deaf: w.deaf}
	w.mu.Unlock()
	if err := l.step(); err != nil {
		e.over(dispatch.Ended{ExitCode: -1, Signal: 9})
		return e, nil
	}
	timer := time.AfterFunc(takes, func() { e.over(dispatch.Ended{ExitCode: exit}) })
	go func() {
		select {
		case <-l.crashed:
			e.over(dispatch.Ended{ExitCode: -1, Signal: 9})
		case <-e.done:
		}
		timer.Stop()
	}()
	return e, nil
}

func (e *running) over(end dispatch.Ended) { e.once.Do(func() { e.end = end; close(e.done) }) }
func (e *running) Stop(cause error) {
	if !e.deaf {
		e.over(dispatch.Ended{ExitCode: -1, Signal: 15, Stopped: cause})
	}
}
func (e *running) Kill(cause error)      { e.over(dispatch.Ended{ExitCode: -1, Signal: 9, Stopped: cause}) }
func (e *running) Done() <-chan struct{} { return e.done }
func (e *running) Ended() dispatch.Ended { return e.end }

// lines keeps what a process told.
type lines struct{ l *life }

func (t lines) Write(b []byte) (int, error) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	return t.l.told.Write(b)
}

func (l *life) probe(context.Context, dispatch.Permit) (happened, known bool, err error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.happens, true, nil
}

// tell tells people of a run that failed.
func (l *life) tell(ctx context.Context, run string) {
	l.w.mu.Lock()
	takes := l.w.telling
	l.w.mu.Unlock()
	select {
	case <-time.After(takes):
		l.log.Info("people were told", "run", run)
	case <-ctx.Done():
		l.log.Info("people could not be told", "run", run, "err", context.Cause(ctx))
	}
}

// tells is how often it told people.
func (l *life) tells() int { return strings.Count(l.said(), `"people were told"`) }

func (l *life) said() string { l.mu.Lock(); defer l.mu.Unlock(); return l.told.String() }

// records is the log of a device.
type records struct{ l *life }

func (r records) Append(_ context.Context, payloads ...json.RawMessage) error {
	if err := r.l.step(); err != nil {
		return err
	}
	r.l.disk.mu.Lock()
	defer r.l.disk.mu.Unlock()
	r.l.disk.records = append(r.l.disk.records, payloads...)
	return nil
}

func (r records) Records() iter.Seq[json.RawMessage] {
	r.l.disk.mu.Lock()
	defer r.l.disk.mu.Unlock()
	return slices.Values(slices.Clone(r.l.disk.records))
}

// gaps are what a device recorded as missed.
func (w *world) gaps(device string) []missed.Gap {
	var all []missed.Gap
	d := w.disk(device)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, payload := range d.records {
		if g, _ := missed.Parse(payload); g != nil {
			all = append(all, *g)
		}
	}
	return all
}

// The journal of a device, as dispatch uses it.

func (l *life) page(do func(d *disk)) error {
	if err := l.step(); err != nil {
		return err
	}
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	do(l.disk)
	return nil
}

func (d *disk) has(id string, s coord.State) bool {
	return slices.ContainsFunc(d.log, func(o coord.Outcome) bool { return o.Attempt.ID == id && o.Attempt.State == s })
}

func (l *life) Standing(_ context.Context, agent, run string) (s dispatch.Standing, err error) {
	err = l.page(func(d *disk) {
		s.Floor = d.floor[agent]
		if n := len(d.log); n > 0 {
			s.At = coord.Position{Next: uint64(n), Head: fmt.Sprint("op", n)}
		}
		for _, o := range d.log {
			if o.Attempt.State != coord.Open && !d.settled[o.Attempt.ID] {
				s.Unsettled = append(s.Unsettled, o)
			}
			if o.Agent == agent && o.Run == run {
				s.Records = append(s.Records, coord.Record{Run: run, Attempt: o.Attempt.ID, Device: o.Attempt.Device, Author: o.Attempt.Device,
					Epoch: o.Attempt.Epoch, State: o.Attempt.State, Cause: o.Attempt.Cause, Exit: o.Attempt.Exit})
			}
		}
	})
	return s, err
}

func (l *life) Pending(_ context.Context, o coord.Outcome) (err error) {
	if e := l.page(func(d *disk) {
		if d.has(o.Attempt.ID, coord.Void) {
			err = dispatch.ErrVoided
			return
		}
		d.log = append(d.log, o)
	}); e != nil {
		return e
	}
	return err
}

func (l *life) Outcome(_ context.Context, o coord.Outcome) error {
	return l.page(func(d *disk) { d.log = append(d.log, o) })
}

func (l *life) Settled(_ context.Context, ids ...string) error {
	return l.page(func(d *disk) {
		for _, id := range ids {
			d.settled[id] = true
		}
	})
}

func (l *life) Granted(_ context.Context, agent string, e coord.Epoch) error {
	return l.page(func(d *disk) { d.floor[agent] = max(d.floor[agent], e) })
}

func (l *life) Void(_ context.Context, agent, run string, a coord.Attempt) (proved bool, err error) {
	err = l.page(func(d *disk) {
		if proved = a.At.Next <= uint64(len(d.log)) && !d.has(a.ID, coord.Open); proved {
			a.State, a.Cause = coord.Void, coord.CauseNever
			d.log = append(d.log, coord.Outcome{Agent: agent, Run: run, Attempt: a})
		}
	})
	return proved, err
}

// view is what the ledger says of an occurrence.
func (w *world) view(agent string, at time.Time) coord.View {
	w.t.Helper()
	v, err := w.store.Process(coord.Process{}).Look(context.Background(), coord.Question{Agent: agent, Run: runID(agent, at)})
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// ends says how an occurrence ended: states of the ledger, and reasons for which devices missed it.
func (w *world) ends(agent string, at time.Time) (all []string) {
	if v := w.view(agent, at); v.State != coord.RunFree {
		all = append(all, string(v.State))
	}
	w.mu.Lock()
	devices := make([]string, 0, len(w.disks))
	for d := range w.disks {
		devices = append(devices, d)
	}
	w.mu.Unlock()
	for _, d := range devices {
		for _, g := range w.gaps(d) {
			if g.Agent == agent && !at.Before(g.First) && !at.After(g.Last) {
				all = append(all, string(g.Reason))
			}
		}
	}
	return all
}

// inBubble runs f at a time of the bubble that is a whole minute.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

// everyOccurrence holds what is true of each occurrence of an agent that comes due each minute, from first up to last: it ended, and no
// effect was begun twice. exactly says that no process died: then it ended in one way only.
func (w *world) everyOccurrence(agent string, first, last time.Time, exactly bool) (ends map[string]int) {
	w.t.Helper()
	ends = map[string]int{}
	for at := first; !at.After(last); at = at.Add(time.Minute) {
		all := w.ends(agent, at)
		switch n := w.count(runID(agent, at)); {
		case len(all) == 0:
			w.t.Errorf("%s: it neither began nor was missed", at.UTC())
		case n > 1:
			w.t.Errorf("%s: %d effects", at.UTC(), n)
		case exactly && len(all) != 1:
			w.t.Errorf("%s: it ended as %v", at.UTC(), all)
		}
		for _, e := range all {
			ends[e]++
		}
	}
	return ends
}

// firstSeen is the first occurrence after an agent was seen by any device, by what is on disk.
func (w *world) firstSeen(agent string) time.Time {
	first := time.Now()
	for _, device := range []string{"a", "b", "c"} {
		d := w.disk(device)
		d.mu.Lock()
		for _, payload := range d.records {
			if _, s := missed.Parse(payload); s != nil && s.Agent == agent && s.At.Before(first) {
				first = s.At
			}
		}
		d.mu.Unlock()
	}
	return first.Truncate(time.Minute).Add(time.Minute)
}
