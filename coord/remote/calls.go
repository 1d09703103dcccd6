package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/wire"
)

// Acquire implements coord.LeaseCoordinator.
func (c *Coordinator) Acquire(ctx context.Context, req coord.Request) (coord.Lease, error) {
	if err := req.Check(); err != nil {
		return coord.Lease{}, err
	}
	ask := func(n numbered) any { return acquireAsk{n, request(req)} }
	return c.granted(ctx, "acquire", fmt.Sprintf("acquire %+v", req), req, ask)
}

// Steal implements coord.Steward.
func (c *Coordinator) Steal(ctx context.Context, t coord.Theft) (coord.Lease, error) {
	if err := t.Check(); err != nil {
		return coord.Lease{}, err
	}
	ask := func(n numbered) any { return stealAsk{n, theftOf(t)} }
	return c.granted(ctx, "steal", fmt.Sprintf("steal %+v", t), t.Request, ask)
}

func (c *Coordinator) granted(ctx context.Context, verb, key string, req coord.Request, ask func(numbered) any) (coord.Lease, error) {
	var answer leaseAnswer
	sent, err := c.grant(ctx, wire.Question{Verb: verb, Answer: &answer}, req.Agent, key, ask, func() error {
		return answer.Lease.granted(req.Agent, req.Device)
	})
	if err != nil {
		return coord.Lease{}, err
	}
	return answer.Lease.lease(sent), nil
}

// Start implements coord.Coordinator.
func (c *Coordinator) Start(ctx context.Context, req coord.Request, b coord.Begin) (coord.Lease, coord.Attempt, error) {
	b.Lease = coord.Lease{Agent: req.Agent, Device: req.Device}
	if err := errors.Join(req.Check(), b.Check()); err != nil {
		return coord.Lease{}, coord.Attempt{}, err
	}
	var answer startAnswer
	ask := func(n numbered) any { return startAsk{n, request(req), beginOf(b)} }
	sent, err := c.grant(ctx, wire.Question{Verb: "start", Answer: &answer}, req.Agent, "start "+b.Attempt+b.Request, ask, func() error {
		if err := answer.Lease.granted(req.Agent, req.Device); err != nil {
			return err
		}
		return opened(answer.Attempt, b, req.Device, answer.Lease.Epoch)
	})
	if err != nil {
		return coord.Lease{}, coord.Attempt{}, c.about(b.Run, err)
	}
	return answer.Lease.lease(sent), answer.Attempt, nil
}

// about makes a verdict about another run one of nothing: on some the caller takes the run for done.
func (c *Coordinator) about(run string, err error) error {
	v, ok := errors.AsType[*coord.VerdictError](err)
	if ok && v.Run != run || !ok && errors.Is(err, coord.ErrCommitted) {
		return fmt.Errorf("%w: %s gave a verdict that is not about run %s: %v", coord.ErrIndeterminate, c.c.Place(), run, err)
	}
	return err
}

// Renew implements coord.LeaseCoordinator.
func (c *Coordinator) Renew(ctx context.Context, agent, device string, epoch coord.Epoch, ttl time.Duration) (coord.Lease, error) {
	if err := coord.CheckClaim(agent, device, epoch, ttl); err != nil {
		return coord.Lease{}, err
	}
	if epoch == 0 {
		return coord.Lease{}, fmt.Errorf("%w: no grant has epoch 0", coord.ErrInvalid)
	}
	var answer leaseAnswer
	sent, err := c.claim(ctx, wire.Question{Verb: "renew", Answer: &answer}, claimAsk{Agent: agent, Device: device, Epoch: epoch, TTL: int64(ttl)}, func() error {
		if answer.Lease.Epoch != epoch {
			return fmt.Errorf("epoch %d renewed as %d", epoch, answer.Lease.Epoch)
		}
		return answer.Lease.granted(agent, device)
	})
	if err != nil {
		return coord.Lease{}, err
	}
	return answer.Lease.lease(sent), nil
}

// Release implements coord.LeaseCoordinator. Epoch 0 gives up what this process asked for at the server's coordinator. What a
// server that died had asked for may still be granted; nobody can begin under it, and it runs out within its TTL.
func (c *Coordinator) Release(ctx context.Context, agent, device string, epoch coord.Epoch) error {
	if err := coord.CheckClaim(agent, device, epoch, 0); err != nil {
		return err
	}
	if epoch == 0 {
		ask := func(n numbered) any { return giveUpAsk{n, agent, device} }
		_, err := c.grant(ctx, wire.Question{Verb: "give-up", Answer: &struct{}{}}, agent, "give up "+device, ask, nil)
		return err
	}
	_, err := c.claim(ctx, wire.Question{Verb: "release", Answer: &struct{}{}}, claimAsk{Agent: agent, Device: device, Epoch: epoch}, nil)
	return err
}

// claim makes a call about a lease that this device holds. Refused because an earlier process of the device has it, it is
// made again with the proof that that process is dead, if there is one.
func (c *Coordinator) claim(ctx context.Context, q wire.Question, ask claimAsk, check func() error) (sent time.Time, err error) {
	send := func() error {
		return c.call(ctx, q, false, func(session string) any {
			sent, ask.Session = time.Now(), session // before it is sent
			return ask
		}, check)
	}
	err = send()
	if c.dead == nil || !errors.Is(err, coord.ErrHeld) && !errors.Is(err, coord.ErrLost) {
		return sent, err
	}
	l, held, now := c.Current(ctx, ask.Agent)
	if now != nil || !held || l.Device != ask.Device || l.Epoch != ask.Epoch || l.Liveness == "" || !c.dead(l.Liveness, l.Process) {
		return sent, err
	}
	ask.Dead = l.Liveness
	return sent, send()
}

// Current implements coord.LeaseCoordinator.
func (c *Coordinator) Current(ctx context.Context, agent string) (coord.Lease, bool, error) {
	if err := coord.CheckAgent(agent); err != nil {
		return coord.Lease{}, false, err
	}
	var answer leaseAnswer
	var sent time.Time
	err := c.call(ctx, wire.Question{Verb: "current", Answer: &answer}, true, func(session string) any {
		sent = time.Now()
		return agentAsk{Session: session, Agent: agent}
	}, func() error {
		if answer.Held != (answer.Lease.Device != "") {
			return errors.New("held by nobody, or not held by somebody")
		}
		return answer.Lease.check(agent)
	})
	if err != nil {
		return coord.Lease{}, false, err
	}
	return answer.Lease.lease(sent), answer.Held, nil
}

// Evict implements coord.Steward.
func (c *Coordinator) Evict(ctx context.Context, t coord.Theft) error {
	if err := t.Check(); err != nil {
		return err
	}
	return c.tell(ctx, "evict", func(session string) any { return evictAsk{session, theftOf(t)} })
}

// tell makes a call that changes something and gives nothing.
func (c *Coordinator) tell(ctx context.Context, verb string, ask func(session string) any) error {
	return c.call(ctx, wire.Question{Verb: verb, Answer: &struct{}{}}, false, ask, nil)
}

// Leases implements coord.Steward.
func (c *Coordinator) Leases(ctx context.Context) ([]coord.Lease, error) {
	var answer listAnswer
	var all []coord.Lease
	q := wire.Question{Verb: "leases", Answer: &answer, Read: func(t *wire.Tail) error {
		all = nil
		return readLines(t, answer.Lines, func(l lease) error {
			if l.Device == "" || len(all) > 0 && all[len(all)-1].Agent >= l.Agent {
				return errors.New("leases out of order, or of nobody")
			}
			all = append(all, l.lease(time.Time{}))
			return l.check(l.Agent)
		})
	}}
	if err := c.call(ctx, q, true, func(session string) any { return sessionAsk{session} }, nil); err != nil {
		return nil, err
	}
	return all, nil
}

// Pause implements coord.Steward.
func (c *Coordinator) Pause(ctx context.Context, agent string, g coord.Gate) error {
	if err := errors.Join(coord.CheckAgent(agent), g.Check()); err != nil {
		return err
	}
	return c.tell(ctx, "pause", func(session string) any { return agentAsk{session, agent, &g} })
}

// Resume implements coord.Steward.
func (c *Coordinator) Resume(ctx context.Context, agent string) error {
	if err := coord.CheckAgent(agent); err != nil {
		return err
	}
	return c.tell(ctx, "resume", func(session string) any { return agentAsk{Session: session, Agent: agent} })
}

// SetRecovery implements coord.Steward.
func (c *Coordinator) SetRecovery(ctx context.Context, g coord.Gate) error {
	return c.gate(ctx, "set-recovery", g)
}

// LiftRecovery implements coord.Steward.
func (c *Coordinator) LiftRecovery(ctx context.Context, g coord.Gate) error {
	return c.gate(ctx, "lift-recovery", g)
}

func (c *Coordinator) gate(ctx context.Context, verb string, g coord.Gate) error {
	if err := g.Check(); err != nil {
		return err
	}
	return c.tell(ctx, verb, func(session string) any { return gateAsk{session, g} })
}

// Recovery implements coord.Steward.
func (c *Coordinator) Recovery(ctx context.Context) (coord.Gate, bool, error) {
	var answer gateAnswer
	err := c.call(ctx, wire.Question{Verb: "recovery", Answer: &answer}, true, func(session string) any { return sessionAsk{session} }, nil)
	if err != nil || answer.Gate == nil {
		return coord.Gate{}, false, err
	}
	return *answer.Gate, true, nil
}

// Look implements coord.Ledger.
func (c *Coordinator) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	if err := q.Check(); err != nil {
		return coord.View{}, err
	}
	var witnesses []runRef
	for _, w := range q.Witnesses {
		witnesses = append(witnesses, runRef(w))
	}
	var answer viewAnswer
	err := c.call(ctx, wire.Question{Verb: "look", Answer: &answer}, true, func(session string) any {
		return lookAsk{session, q.Agent, q.Run, witnesses}
	}, func() error {
		for _, w := range q.Witnesses {
			if _, asked := answer.View.Witness[w.Run]; !asked {
				return fmt.Errorf("no word about the witness %s", w.Run)
			}
		}
		return answer.View.check(q.Agent, q.Run)
	})
	if err != nil {
		return coord.View{}, err
	}
	return answer.View.view(), nil
}

// Begin implements coord.Ledger.
func (c *Coordinator) Begin(ctx context.Context, b coord.Begin) (coord.Attempt, error) {
	if err := b.Check(); err != nil {
		return coord.Attempt{}, err
	}
	var answer attemptAnswer
	err := c.call(ctx, wire.Question{Verb: "begin", Answer: &answer}, false, func(session string) any { return beginAsk{session, beginOf(b)} }, func() error {
		return opened(answer.Attempt, b, b.Lease.Device, b.Lease.Epoch)
	})
	if err != nil {
		return coord.Attempt{}, c.about(b.Run, err)
	}
	return answer.Attempt, nil
}

// Cancel implements coord.Ledger.
func (c *Coordinator) Cancel(ctx context.Context, b coord.Begin) error {
	if err := b.Check(); err != nil {
		return err
	}
	return c.tell(ctx, "cancel", func(session string) any { return beginAsk{session, beginOf(b)} })
}

// Finish implements coord.Ledger.
func (c *Coordinator) Finish(ctx context.Context, o coord.Outcome) error {
	if err := o.Check(); err != nil {
		return err
	}
	return c.tell(ctx, "finish", func(session string) any { return finishAsk{session, outcome(o)} })
}

// Complete implements coord.Coordinator.
func (c *Coordinator) Complete(ctx context.Context, o coord.Outcome, l coord.Lease) (finished, released error) {
	wrong, claim := o.Check(), coord.CheckClaim(l.Agent, l.Device, l.Epoch, 0)
	if wrong != nil || claim != nil {
		if wrong == nil {
			return c.Finish(ctx, o), claim
		}
		return wrong, claim
	}
	var answer completeAnswer
	var verdicts [2]error
	err := c.call(ctx, wire.Question{Verb: "complete", Answer: &answer}, false, func(session string) any {
		return completeAsk{session, outcome(o), leaseOf(l, time.Time{})}
	}, func() error {
		for i, v := range []*verdict{answer.Finished, answer.Released} {
			if verdicts[i] = nil; v == nil {
				continue
			}
			said, err := v.error(fmt.Sprintf("complete at %s: %s", c.c.Place(), wire.Bounded(v.Detail)))
			if err != nil {
				return err
			}
			verdicts[i] = said
		}
		return nil
	})
	if err != nil {
		return err, err
	}
	return verdicts[0], verdicts[1]
}

// Resolve implements coord.Ledger.
func (c *Coordinator) Resolve(ctx context.Context, r coord.Resolution) (coord.View, error) {
	return c.decide(ctx, "resolve", r, r.Check())
}

// Permit implements coord.Ledger.
func (c *Coordinator) Permit(ctx context.Context, r coord.Resolution) (coord.View, error) {
	return c.decide(ctx, "permit", r, r.CheckPermit())
}

func (c *Coordinator) decide(ctx context.Context, verb string, r coord.Resolution, wrong error) (coord.View, error) {
	if wrong != nil {
		return coord.View{}, wrong
	}
	var answer viewAnswer
	err := c.call(ctx, wire.Question{Verb: verb, Answer: &answer}, false, func(session string) any {
		return decideAsk{session, resolution(r)}
	}, func() error { return answer.View.check(r.Agent, r.Run) })
	if err != nil {
		return coord.View{}, err
	}
	return answer.View.view(), nil
}

// List implements coord.Ledger.
func (c *Coordinator) List(ctx context.Context, f coord.Filter) (coord.Page, error) {
	if err := f.Check(); err != nil {
		return coord.Page{}, err
	}
	var answer listAnswer
	var page coord.Page
	q := wire.Question{Verb: "list", Answer: &answer, Read: func(t *wire.Tail) error {
		page = coord.Page{}
		if answer.Lines > coord.MaxPage {
			return fmt.Errorf("%d runs on a page, at most %d are allowed", answer.Lines, coord.MaxPage)
		}
		return readLines(t, answer.Lines, func(v view) error {
			if v.Unreadable != "" {
				u := coord.UnreadableRun{Agent: v.Entry.Agent, Run: v.Entry.Run, Reason: v.Unreadable}
				page.Unreadable = append(page.Unreadable, u)
				return coord.Question{Agent: u.Agent, Run: u.Run}.Check()
			}
			page.Views = append(page.Views, v.view())
			return v.check("", "")
		})
	}}
	err := c.call(ctx, q, true, func(session string) any { return listAsk{session, filter(f)} }, func() error {
		return coord.Filter{After: answer.Next}.Check()
	})
	if err != nil {
		return coord.Page{}, err
	}
	page.Next = answer.Next
	return page, nil
}
