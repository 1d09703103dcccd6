package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/node/claim"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/effect"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/node/missed"
	"github.com/syncnode/syncnode/node/output"
	"github.com/syncnode/syncnode/node/owner"
	"github.com/syncnode/syncnode/node/work"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/session"
)

// readClock reads the clocks that schedules go by.
var readClock = work.Clock

// A configured is the file that says what this node runs, which may become another while it works.
type configured struct {
	path string // empty: there is none, and nothing is run
	log  *slog.Logger

	turn sync.Mutex // of who takes a file, or begins to work by it

	mu     sync.Mutex // guards the rest
	file   *config.File
	worker *work.Worker // nil: none works now
	output *output.Store
	taken  func(*config.File) // told of each file that is taken; nil: nobody is
}

// now is the file as it was taken last.
func (c *configured) now() *config.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file
}

// ttl is that of an agent's lease; 0 if the file does not say.
func (c *configured) ttl(agent string) time.Duration {
	a, _ := c.now().Agent(agent)
	return a.TTL
}

// works notes who works by the file.
func (c *configured) works(w *work.Worker, out *output.Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.worker, c.output = w, out
}

// watch takes the file anew at each HUP. A file with mistakes is told, and changes nothing.
func (c *configured) watch(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-hup:
			// What came of it is in the log.
			if _, err := c.reload(ctx); errors.Is(err, hold.ErrLeaving) {
				time.AfterFunc(again, func() { // the device may get a new id, and work on
					select {
					case hup <- syscall.SIGHUP:
					default: // there is another
					}
				})
			}
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the file again and takes it, or says why not: with an error nothing was changed.
func (c *configured) reload(ctx context.Context) (api.Reloaded, error) {
	done := api.Reloaded{File: c.path}
	if c.path == "" {
		c.log.Warn("there is no --config to read again")
		return done, nil
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	const not = "the configuration was not taken: the one of before goes on"
	f, err := config.Load(c.path)
	if err != nil {
		c.log.Error(not, "file", c.path, "err", err)
		return done, &api.ConfigError{File: c.path, Mistakes: strings.Split(err.Error(), "\n")}
	}
	if err := c.take(ctx, f); err != nil {
		c.log.Error(not, "file", c.path, "err", err)
		return done, err
	}
	done.Agents = len(f.Agents)
	c.log.Info("configuration taken", "file", c.path, "agents", done.Agents)
	return done, nil
}

// take has the worker go by a file, and then everything else; with an error nothing does.
func (c *configured) take(ctx context.Context, f *config.File) error {
	c.mu.Lock()
	was, w, out := c.file, c.worker, c.output
	c.file = f // what the worker begins at once goes by it
	c.mu.Unlock()
	if w != nil {
		if err := w.Reload(ctx, f); err != nil {
			c.mu.Lock()
			c.file = was
			c.mu.Unlock()
			return err
		}
	}
	c.mu.Lock()
	if c.taken != nil {
		c.taken(f)
	}
	c.mu.Unlock()
	if out != nil {
		if err := out.Limit(output.Limits(f.Output)); err != nil {
			c.log.Error("the limits of output were not taken", "err", err)
		}
	}
	return nil
}

// worker is what does the work of the configuration, under the device's present id; nil without a configuration.
func (s *serving) worker(sess *session.Session, d *dispatch.Dispatcher, n *node.Node, holds *hold.Table) (*work.Worker, error) {
	be, c := s.be, s.conf
	if c.path == "" {
		return nil, nil
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	f := c.now()
	out, err := output.New(output.Config{Dir: outputDir(be.local.dir), Limits: output.Limits(f.Output), Logger: s.log})
	if err != nil {
		return nil, err
	}
	w, err := work.New(work.Config{
		Namespace: be.flags.namespace, Device: be.device, Hold: holds, Dispatch: announcing{d, s.door.events}, Ledger: be.coordinator,
		Nodes:    func(ctx context.Context) ([]coord.Lease, error) { return be.coordinator.LeasesOf(ctx, owner.Prefix) },
		Announce: n.Announce, Free: be.coordinator.AwaitFree, Log: scheduleLog{sess}, Clock: readClock, Logger: s.log,
		Effect: func(f *config.File, a config.Agent) work.Effect {
			deps := effect.Deps{Path: f.Path, Output: out, Logger: s.log}
			e := work.Effect{Start: effect.For(a, deps), Probe: effect.Probe(a, deps)}
			if len(a.Failure.Command) > 0 || a.Failure.Webhook != "" {
				e.Failed = func(ctx context.Context, j dispatch.Job, r dispatch.Result) {
					if err := effect.Notify(ctx, a, deps, effect.NoticeOf(j, r, be.device)); err != nil {
						s.log.Warn("on_failure: nobody could be told", "agent", a.ID, "run", j.Run, "err", err)
					}
				}
			}
			return e
		},
	}, f)
	if err == nil {
		c.works(w, out)
	}
	return w, err
}

// scheduleLog keeps the records of schedules in the device's log.
type scheduleLog struct{ session *session.Session }

// Append implements work.Log.
func (l scheduleLog) Append(ctx context.Context, payloads ...json.RawMessage) error {
	var drafts []journal.Draft
	for _, p := range payloads {
		drafts = append(drafts, journal.Draft{Scope: oplog.Personal, Surface: missed.Surface, Payload: p})
	}
	_, err := l.session.Append(ctx, drafts...)
	return err
}

// Records implements work.Log.
func (l scheduleLog) Records() iter.Seq[json.RawMessage] {
	var all []json.RawMessage
	l.session.View(func(st *fold.State) {
		for r := range st.Records(missed.Surface) {
			all = append(all, r.Payload)
		}
	})
	return func(yield func(json.RawMessage) bool) {
		for _, p := range all {
			if !yield(p) {
				return
			}
		}
	}
}

// again is the pause before a file is taken once more that nobody was there to take.
const again = time.Second

// asked bounds a question of the API to the worker.
const asked = 5 * time.Second

// agentsOf lists what the node runs, for the API.
func agentsOf(w *work.Worker, conf *configured) []api.Agent {
	ctx, cancel := context.WithTimeout(context.Background(), asked)
	defer cancel()
	all, err := w.Agents(ctx)
	if err != nil {
		return nil
	}
	f := conf.now()
	rows := make([]api.Agent, 0, len(all))
	for _, a := range all {
		row := api.Agent{Agent: a.ID, Next: a.Next.UTC(), Owner: a.Owner, Open: a.Run != ""}
		if a.Next.IsZero() {
			row.Next = time.Time{}
		}
		if g := a.Open; g != nil {
			row.Missing = &api.Gap{Reason: string(g.Reason), First: g.First.UTC(), Last: g.Last.UTC(), Count: g.Count, AtLeast: g.AtLeast}
		}
		if c, ok := f.Agent(a.ID); ok && c.Schedule != nil {
			row.Schedule, row.TZ = c.Schedule.Spec().String(), c.Schedule.Zone().String()
		}
		rows = append(rows, row)
	}
	return rows
}

// trigger begins a run of an agent of the configuration, for the API.
func trigger(ctx context.Context, w *work.Worker, device, agent, occurrence string) (api.Triggered, error) {
	if occurrence == "" {
		occurrence = work.NewOccurrence(time.Now())
	}
	run, err := w.Trigger(ctx, agent, occurrence)
	busy, ok := errors.AsType[*hold.BusyError](err)
	switch {
	case ok:
		return api.Triggered{}, &claim.BusyError{Agent: agent, Run: busy.Run, Asked: run, Device: device}
	case errors.Is(err, hold.ErrLeaving):
		return api.Triggered{}, claim.ErrDraining
	case errors.Is(err, work.ErrUnknown), errors.Is(err, work.ErrNothing):
		return api.Triggered{}, fmt.Errorf("%w: %w", api.ErrNotConfigured, err)
	case err != nil:
		return api.Triggered{}, err
	}
	return api.Triggered{Agent: agent, Run: run, Occurrence: occurrence}, nil
}
