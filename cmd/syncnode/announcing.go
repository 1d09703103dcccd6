package main

import (
	"context"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/events"
	"github.com/syncnode/syncnode/node/work"
)

// An announcing runner has the watchers of a node hear of what it runs by itself, as they hear of what clients run.
type announcing struct {
	work.Runner
	ring *events.Ring
}

// Run implements work.Runner.
func (a announcing) Run(ctx context.Context, j dispatch.Job) dispatch.Result {
	e := events.Event{Kind: events.RunBegun, Agent: j.Agent, Run: j.Run, Occurrence: j.Occurrence}
	start := j.Effect
	j.Effect = dispatch.StartFunc(func(ctx context.Context, p dispatch.Permit) (dispatch.Effect, error) {
		eff, err := start.Start(ctx, p)
		if err == nil {
			e.Attempt, e.Epoch, e.State = p.Attempt, p.Epoch, string(coord.RunRunning)
			a.ring.Publish(e)
		}
		return eff, err
	})
	r := a.Runner.Run(ctx, j)
	if e.Attempt != "" { // it began
		e.Kind, e.State, e.Cause = events.RunEnded, string(r.State), r.Cause
		a.ring.Publish(e)
	}
	return r
}
