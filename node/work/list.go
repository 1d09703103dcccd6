package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/node/missed"
	"github.com/syncnode/syncnode/node/owner"
)

var (
	// ErrUnknown means that the configuration has no such agent.
	ErrUnknown = errors.New("work: no such agent in this node's configuration")
	// ErrNothing means that the agent has neither a command nor a request: its runs are begun by clients.
	ErrNothing = errors.New("work: the agent has nothing to run")
)

// Trigger begins a run of an agent of the file, once the agent is free for it, and returns the run's id; it does not wait for its
// end. occurrence is `key:TEXT` or `at:INSTANT`; empty makes a new one. The error is one of this package or
// of hold.Table.Claim: nothing was begun then. What the ledger says of the run (done, paused, in doubt) comes after, in the log.
func (w *Worker) Trigger(ctx context.Context, agent, occurrence string) (run string, err error) {
	if occurrence == "" {
		occurrence = NewOccurrence(time.Now())
	}
	if err := errors.Join(ident.Check("agent", agent), ident.CheckOccurrence(occurrence)); err != nil {
		return "", fmt.Errorf("trigger: %w", err)
	}
	for {
		claimed := make(chan error, 1)
		if err = w.ask(ctx, func() { run = w.trigger(agent, occurrence, claimed) }); err == nil {
			select {
			case err = <-claimed:
			case <-ctx.Done():
				err = fmt.Errorf("%w: it is not known yet whether the agent is free: %w", coord.ErrIndeterminate, context.Cause(ctx))
			}
		}
		if !errors.Is(err, errLooking) {
			break
		}
		sleep(ctx, again/10)
	}
	if err != nil {
		return run, fmt.Errorf("trigger agent %s: %w", agent, err)
	}
	return run, nil
}

// NewOccurrence names an occurrence that nobody named before.
func NewOccurrence(now time.Time) string {
	return "key:trigger-" + now.UTC().Format("20060102T150405Z") + "-" + coord.NewNonce()[:8]
}

// errLooking means that the agent is looked at in this moment.
var errLooking = fmt.Errorf("%w: the agent is being looked at, or moved", coord.ErrNotSent)

func (w *Worker) trigger(agent, occurrence string, claimed chan error) string {
	s := w.slots[agent]
	switch {
	case w.leaving.Load():
		claimed <- hold.ErrLeaving
	case s == nil || s.gone:
		claimed <- ErrUnknown
	case s.run != "":
		claimed <- &hold.BusyError{Agent: agent, Run: s.run}
	case s.busy || s.moving:
		claimed <- errLooking
	default:
		p := w.performance(s, occurrence, time.Time{})
		if p.effect.Start == nil {
			claimed <- ErrNothing
			return ""
		}
		p.claimed = func(err error) { claimed <- err }
		w.launch(p)
		return p.job.Run
	}
	return ""
}

// An Agent is what a list shows of an agent of the file.
type Agent struct {
	ID        string
	Scheduled bool
	Next      time.Time // the occurrence that comes next if nothing hinders it; zero if there is none
	Owner     string    // the device of the node that owns it; empty if it has no schedule, or that is not known yet
	Held      bool      // by this node
	Run       string    // the run that has it on this node
	Paused    bool      // as far as this node knows
	Open      *missed.Gap
}

// Agents lists the agents of the file, by id.
func (w *Worker) Agents(ctx context.Context) ([]Agent, error) {
	var all []Agent
	err := w.ask(ctx, func() {
		for id, s := range w.slots {
			if !s.gone {
				all = append(all, w.shown(id, s))
			}
		}
	})
	slices.SortFunc(all, func(a, b Agent) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

func (w *Worker) shown(id string, s *slot) Agent {
	a := Agent{ID: id, Scheduled: s.agent.Schedule != nil, Held: s.held, Run: s.run, Paused: s.paused}
	if !a.Scheduled {
		return a
	}
	a.Owner = owner.Of(id, w.same)
	if s.due == nil {
		a.Next, _ = s.agent.Schedule.Next(w.cfg.Clock().Wall)
		return a
	}
	a.Next, _ = s.due.Next()
	if m, ok := s.due.Open(); ok {
		a.Open = &missed.Gap{Agent: id, Missed: m}
	}
	return a
}
