package fence

import (
	"context"
	"fmt"
	"slices"

	"github.com/syncnode/syncnode/coord"
)

// judge gives the verdict on a view. With settled the ledger was told something, and has to be looked at again.
func (f *Fence) judge(ctx context.Context, a Ask, v coord.View) (settled bool, state coord.RunState, verdict, err error) {
	if v.Found && !v.Entry.Packed && v.Entry.Input != a.Input {
		return false, v.State, &coord.InputError{Run: a.Run, Recorded: v.Entry.Input, Given: a.Input}, nil
	}
	v.Entry.Agent, v.Entry.Run = a.Agent, a.Run
	if !v.Found {
		v.Entry.Occurrence, v.Entry.Input = a.Occurrence, a.Input
	}
	never, err := f.neverStarted(ctx, a, v)
	if err != nil {
		return false, v.State, nil, err
	}
	j := coord.Judge(v, a.Records, coord.Facts{Device: f.cfg.Device, NeverStarted: never})
	if len(j.Repairs) == 0 || a.ReadOnly {
		return false, j.State, verdictOf(a, v, j), nil
	}
	for _, r := range j.Repairs {
		if err := f.cfg.Attempts.Finish(ctx, r.Outcome); err != nil {
			return false, v.State, nil, fmt.Errorf("settle run %s: %s attempt %s: %w", a.Run, r.Kind, r.Outcome.Attempt.ID, err)
		}
	}
	return true, j.State, verdictOf(a, v, j), nil
}

// neverStarted finds own attempts in doubt that are proved never to have started; each is void in the journal before it
// is named here.
func (f *Fence) neverStarted(ctx context.Context, a Ask, v coord.View) (ids []string, err error) {
	if f.cfg.Dead == nil || f.cfg.Void == nil || a.ReadOnly {
		return nil, nil
	}
	for _, at := range v.Entry.Attempts {
		recorded := slices.ContainsFunc(a.Records, func(r coord.Record) bool { return r.Run == a.Run && r.Attempt == at.ID })
		if at.State != coord.Open || at.Device != f.cfg.Device || at.Liveness == "" || recorded || at.Running(alive(v)) {
			continue
		}
		var p coord.Process
		if v.Holder.Liveness == at.Liveness {
			p = v.Holder.Process
		}
		if !f.cfg.Dead(at.Liveness, p) {
			continue
		}
		proved, err := f.cfg.Void(ctx, a.Agent, a.Run, at)
		if err != nil {
			return nil, fmt.Errorf("settle run %s: void attempt %s in the journal: %w", a.Run, at.ID, err)
		}
		if proved {
			ids = append(ids, at.ID)
		}
	}
	return ids, nil
}

// verdictOf is in the order of Begin: what was recorded, the gates, what is open, what failed.
func verdictOf(a Ask, v coord.View, j coord.Judgement) error {
	no := func(kind error) error {
		return &coord.VerdictError{Kind: kind, Run: a.Run, Attempt: j.Attempt, Disputed: j.Disputed,
			Packed: v.Entry.Packed && kind == coord.ErrCommitted}
	}
	if j.State == coord.RunCommitted {
		return no(coord.ErrCommitted)
	}
	if gate := gates(a.Agent, v); gate != nil {
		return gate
	}
	switch j.State {
	case coord.RunRunning:
		return no(coord.ErrInProgress)
	case coord.RunInDoubt:
		return no(coord.ErrInDoubt)
	case coord.RunFailed:
		if !a.RetryFailed {
			return no(coord.ErrFailed)
		}
	}
	return nil
}

func alive(v coord.View) func(string) bool { return func(l string) bool { return v.Alive[l] } }
