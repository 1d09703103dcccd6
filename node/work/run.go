package work

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/schedule/due"
)

// A performance is one run of an agent, with all its attempts.
type performance struct {
	w      *Worker
	slot   *slot
	agent  config.Agent
	job    dispatch.Job
	at     time.Time // the occurrence; zero: it was triggered, and is none of the schedule's as far as is known
	effect Effect
	notes  []due.Missed // to be on disk before it begins

	tried   int             // failed attempts that were made before the last one
	once    bool            // a person permits it: the ledger may count attempts of before
	claimed func(error)     // hears whether the agent was free for it; may be nil
	begun   bool            // the loop's
	result  dispatch.Result // of the last attempt
	failed  error           // why nothing was asked of the dispatcher
}

func (w *Worker) performance(s *slot, occurrence string, at time.Time) *performance {
	a := s.agent
	p := &performance{w: w, slot: s, agent: a, at: at, effect: w.cfg.Effect(w.file, a)}
	p.job = dispatch.Job{
		Agent: a.ID, Occurrence: occurrence, Run: w.runID(a.ID, occurrence),
		TTL: a.TTL, Timeout: a.Timeout, Grace: a.Grace, OnDoubt: a.OnDoubt, OnLost: a.OnLost, IfFailed: a.IfFailed, Probe: p.effect.Probe,
	}
	p.job.Effect = dispatch.StartFunc(p.start)
	return p
}

// begin offers an occurrence that is due to the ledger.
func (w *Worker) begin(s *slot, now due.Reading, at time.Time) {
	w.miss(s, s.due.Before(now, at))
	w.launch(w.performance(s, ident.AtOccurrence(at), at))
}

// launch has a run performed. Nothing is decided over the agent until it has begun, or did not.
func (w *Worker) launch(p *performance) {
	s := p.slot
	p.notes, s.notes = s.notes, nil
	s.busy, s.run = true, p.job.Run
	w.open++
	w.spawn(func() {
		p.perform()
		w.post(func() {
			w.ended(p)
			w.tellFailure(p)
		})
	})
}

// tellFailure has people told of a run that failed for good. They are told after the drain too: its time is its own.
func (w *Worker) tellFailure(p *performance) {
	f := p.effect.Failed
	if f == nil || p.result.Ran != dispatch.Yes || p.result.State != coord.RunFailed || w.madeLater(p) {
		return
	}
	w.open++
	w.spawn(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), telling, errors.New("it took too long"))
		defer cancel()
		f(ctx, p.job, p.result)
		w.post(func() { w.open-- })
	})
}

// madeLater says of a run that failed that it has attempts left, and that somebody makes them: this node when it looks at the run again,
// or whoever decides over the agent next, if nothing later was begun or missed. The loop has heard of its end.
func (w *Worker) madeLater(p *performance) bool {
	s := p.slot
	if p.once || p.at.IsZero() || s.agent.Schedule == nil || !attemptsLeft(s.agent.Retry, p.tried+1, p.result.Cause, p.result.ExitCode) {
		return false
	}
	if s.due != nil {
		return slices.Contains(s.unsure, unsure{at: p.at})
	}
	_, ok := instantOf(s.agent, p.job.Occurrence)
	return ok && p.at.Equal(s.newest)
}

// start is the effect as the dispatcher sees it: the loop hears that it began.
func (p *performance) start(ctx context.Context, permit dispatch.Permit) (dispatch.Effect, error) {
	if p.w.leaving.Load() {
		return nil, hold.ErrLeaving
	}
	e, err := p.effect.Start.Start(ctx, permit)
	if err == nil {
		p.w.post(func() { p.w.started(p) })
	}
	return e, err
}

// perform records what was missed before, claims the agent, and makes as many attempts as the agent's configuration says.
func (p *performance) perform() {
	w := p.w
	h, err := p.claim()
	if p.claimed != nil {
		p.claimed(err)
	}
	if err != nil {
		p.failed = err
		return
	}
	p.job.Held = h
	backoff := p.agent.Retry.Backoff
	for ; ; p.tried++ {
		p.result = w.cfg.Dispatch.Run(w.base, p.job)
		if p.tried >= p.agent.Retry.Count || !repeats(p.agent.Retry, p.result) || h.Trusted() != nil {
			break
		}
		w.log.Info("run is repeated after a pause", "agent", p.agent.ID, "run", p.job.Run, "attempts", p.tried+1, "pause_ms", backoff.Milliseconds())
		if !w.pauses(backoff) {
			break
		}
		backoff = min(2*backoff, p.agent.Retry.BackoffMax)
		p.job.IfFailed = dispatch.FailedRetry
	}
	if p.result.Left {
		h.Abandon()
	} else {
		h.Release()
	}
}

func (p *performance) claim() (*hold.Hold, error) {
	w := p.w
	if err := w.record(p.agent.ID, p.notes); err != nil {
		return nil, err
	}
	p.notes = nil
	ctx, cancel := context.WithTimeout(w.calls, patience)
	defer cancel()
	return w.cfg.Hold.Claim(ctx, p.agent.ID, p.job.Run)
}

// pauses lets a time go by. It is false if the node leaves meanwhile.
func (w *Worker) pauses(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !w.leaving.Load()
	case <-w.left:
		return false
	}
}

// repeats says whether an attempt that ended so is repeated.
func repeats(r config.Retry, res dispatch.Result) bool {
	if res.Ran != dispatch.Yes || res.State != coord.RunFailed || res.Unsettled {
		return false
	}
	return repeatable(r, res.Cause, res.ExitCode)
}

func repeatable(r config.Retry, cause string, exit int) bool {
	switch cause {
	case coord.CauseExit:
		return len(r.ExitCodes) == 0 || slices.Contains(r.ExitCodes, exit)
	case coord.CauseSignal, coord.CauseTimeout:
		return len(r.ExitCodes) == 0
	}
	return false // drained, lost
}

// started hears that an effect began.
func (w *Worker) started(p *performance) {
	s := p.slot
	if p.begun {
		return // another attempt of it
	}
	p.begun, s.busy, s.fails, s.wait, s.next = true, false, 0, 0, 0
	w.decided(s, p.at)
}

// decided tells the agent's schedule that an occurrence is on record as begun.
func (w *Worker) decided(s *slot, at time.Time) {
	if at.IsZero() {
		return
	}
	s.decided(at)
	if s.due != nil {
		if !at.Before(s.beside) {
			s.beside = time.Time{}
		}
		w.miss(s, s.due.Begun(at))
	}
}

// ended hears what became of a run.
func (w *Worker) ended(p *performance) {
	s, now := p.slot, w.cfg.Clock()
	w.open--
	s.busy, s.next = false, 0
	if !p.result.Left {
		s.run = ""
	}
	s.notes = append(p.notes, s.notes...)
	switch r := p.result; {
	case p.failed != nil:
		w.notClaimed(p, now)
	case p.begun:
		w.doubt(s, p.at, r.State)
	case onRecord(r):
		s.fails = 0
		w.decided(s, p.at)
		w.doubt(s, p.at, r.State)
	case errors.Is(r.Err, coord.ErrPaused):
		s.paused = !p.at.IsZero()
	case errors.Is(r.Err, coord.ErrNotHeld), errors.Is(r.Err, coord.ErrStale), errors.Is(r.Err, coord.ErrHeld):
		w.unheld(s, now)
	case errors.Is(r.Err, hold.ErrLeaving):
	case r.Cause == coord.CauseStart:
		w.tell(p, slog.LevelError, "run could not be started", r.Err)
		s.later(now, longest)
	default:
		w.tell(p, slog.LevelWarn, "run was not begun; it is tried again within its window", r.Err)
		s.later(now, 5*again)
	}
}

// tell logs a trouble of an agent once, until a start succeeds.
func (w *Worker) tell(p *performance, level slog.Level, what string, err error) {
	if p.slot.fails > 0 {
		level = slog.LevelDebug
	}
	w.log.Log(context.Background(), level, what, "agent", p.agent.ID, "run", p.job.Run, "err", err)
}

// onRecord says that the ledger knows the run as begun, by whomever.
func onRecord(r dispatch.Result) bool {
	return r.Ran == dispatch.Yes || r.Code == dispatch.ExitOK || r.Code == dispatch.ExitFailed || r.Code == dispatch.ExitInDoubt || errors.Is(r.Err, coord.ErrInput)
}

// notClaimed hears that a run was not even offered to the ledger.
func (w *Worker) notClaimed(p *performance, now due.Reading) {
	s := p.slot
	busy, ours := errors.AsType[*hold.BusyError](p.failed)
	switch {
	case ours: // a client's run
		w.log.Debug("agent is busy on this node", "agent", p.agent.ID, "run", busy.Run)
		s.later(now, 5*again)
	case errors.Is(p.failed, coord.ErrHeld):
		w.unheld(s, now)
	case errors.Is(p.failed, hold.ErrLeaving):
	default:
		if p.claimed == nil {
			w.tell(p, slog.LevelWarn, "run was not begun; it is tried again within its window", p.failed)
		}
		s.later(now, 5*again)
	}
}

// unheld notes that somebody else has the agent; whoever tends it finds out who.
func (w *Worker) unheld(s *slot, now due.Reading) {
	s.held = false
	if s.tending != nil {
		select {
		case s.tending.poke <- struct{}{}:
		default:
		}
	}
	s.later(now, 5*again)
}
