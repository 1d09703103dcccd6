package remote

import (
	"errors"
	"io"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/wire"
)

// The calls that carry no number: each is settled by the coordinator itself, or does no harm when it comes late. A begin that
// was refused is remembered by the id of its call.

// within reads a question and gives the session that it names.
func within[A any](h *Handler, c *wire.Call, names func(A) (session, agent, device string)) (ask A, s *session, err error) {
	if err := c.Ask(&ask); err != nil {
		return ask, nil, err
	}
	id, agent, device := names(ask)
	s, err = h.sessionOf(c, id, agent, device)
	return ask, s, err
}

// done is the answer of a call that gives nothing.
func done(err error) (wire.Answer, error) { return wire.Answer{Body: struct{}{}}, err }

func (a claimAsk) names() (session, agent, device string)   { return a.Session, a.Agent, a.Device }
func (a agentAsk) names() (session, agent, device string)   { return a.Session, a.Agent, "" }
func (a sessionAsk) names() (session, agent, device string) { return a.Session, "", "" }
func (a gateAsk) names() (session, agent, device string)    { return a.Session, "", "" }
func (a lookAsk) names() (session, agent, device string)    { return a.Session, a.Agent, "" }
func (a evictAsk) names() (session, agent, device string) {
	return a.Session, a.Theft.Request.Agent, a.Theft.Request.Device
}
func (a beginAsk) names() (session, agent, device string) {
	return a.Session, a.Begin.Lease.Agent, a.Begin.Lease.Device
}
func (a finishAsk) names() (session, agent, device string) {
	return a.Session, a.Outcome.Agent, a.Outcome.Attempt.Device
}
func (a completeAsk) names() (session, agent, device string) {
	return a.Session, a.Outcome.Agent, a.Outcome.Attempt.Device
}
func (a decideAsk) names() (session, agent, device string) { return a.Session, a.Resolution.Agent, "" }
func (a listAsk) names() (session, agent, device string) {
	return a.Session, a.Filter.Agent, a.Filter.Device
}

func (h *Handler) renew(c *wire.Call) (wire.Answer, error) {
	arrived := h.cfg.Now()
	ask, s, err := within(h, c, claimAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	s.proved(ask.Dead)
	l, err := s.Renew(c.Context(), ask.Agent, ask.Device, ask.Epoch, time.Duration(ask.TTL))
	return wire.Answer{Body: leaseAnswer{Lease: leaseOf(l, arrived)}}, err
}

func (h *Handler) release(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, claimAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	if ask.Epoch == 0 {
		return wire.Answer{}, wire.Malformed(errors.New("no epoch: what is given up without one is numbered"))
	}
	s.proved(ask.Dead)
	return done(s.Release(c.Context(), ask.Agent, ask.Device, ask.Epoch))
}

func (h *Handler) current(c *wire.Call) (wire.Answer, error) {
	arrived := h.cfg.Now()
	ask, s, err := within(h, c, agentAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	l, held, err := s.Current(c.Context(), ask.Agent)
	return wire.Answer{Body: leaseAnswer{leaseOf(l, arrived), held}}, err
}

func (h *Handler) evict(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, evictAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	return done(s.Evict(c.Context(), ask.Theft.theft()))
}

func (h *Handler) leases(c *wire.Call) (wire.Answer, error) {
	_, s, err := within(h, c, sessionAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	all, err := s.Leases(c.Context())
	lines := make([]lease, 0, len(all))
	for _, l := range all {
		lines = append(lines, leaseOf(l, time.Time{}))
	}
	return listed(lines, "", err)
}

// listed is an answer of lines.
func listed[T any](lines []T, next string, err error) (wire.Answer, error) {
	return wire.Answer{Body: listAnswer{len(lines), next}, Tail: func(w io.Writer) error { return writeLines(w, lines) }}, err
}

// pause answers pause and resume.
func (h *Handler) pause(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, agentAsk.names)
	switch {
	case err != nil:
		return wire.Answer{}, err
	case c.Verb == "resume":
		return done(s.Resume(c.Context(), ask.Agent))
	case ask.Gate == nil:
		return wire.Answer{}, wire.Malformed(errors.New("who pauses it, and why"))
	}
	return done(s.Pause(c.Context(), ask.Agent, *ask.Gate))
}

// gate answers set-recovery and lift-recovery.
func (h *Handler) gate(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, gateAsk.names)
	switch {
	case err != nil:
		return wire.Answer{}, err
	case c.Verb == "set-recovery":
		return done(s.SetRecovery(c.Context(), ask.Gate))
	}
	return done(s.LiftRecovery(c.Context(), ask.Gate))
}

func (h *Handler) recovery(c *wire.Call) (wire.Answer, error) {
	_, s, err := within(h, c, sessionAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	g, set, err := s.Recovery(c.Context())
	if !set {
		return wire.Answer{Body: gateAnswer{}}, err
	}
	return wire.Answer{Body: gateAnswer{&g}}, err
}

func (h *Handler) look(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, lookAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	q := coord.Question{Agent: ask.Agent, Run: ask.Run}
	for _, w := range ask.Witnesses {
		q.Witnesses = append(q.Witnesses, coord.RunRef(w))
	}
	v, err := s.Look(c.Context(), q)
	return wire.Answer{Body: viewAnswer{viewOf(v)}}, err
}

func (h *Handler) list(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, listAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	page, err := s.List(c.Context(), coord.Filter(ask.Filter))
	lines := make([]view, 0, len(page.Views))
	for _, v := range page.Views {
		lines = append(lines, viewOf(v))
	}
	for _, u := range page.Unreadable {
		lines = append(lines, view{Entry: entry{Agent: u.Agent, Run: u.Run}, State: coord.RunFree, Unreadable: u.Reason})
	}
	return listed(lines, page.Next, err)
}

func (h *Handler) begin(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, beginAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	a, err := s.begin(c.Context(), c.ID, ask.Begin.begin())
	return wire.Answer{Body: attemptAnswer{a}}, err
}

func (h *Handler) cancel(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, beginAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	return done(s.Cancel(c.Context(), ask.Begin.begin()))
}

func (h *Handler) finish(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, finishAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	return done(s.Finish(c.Context(), coord.Outcome(ask.Outcome)))
}

func (h *Handler) complete(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, completeAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	if err := h.allow(c, ask.Lease.Agent, ask.Lease.Device); err != nil { // which may be another's
		return wire.Answer{}, err
	}
	finished, released := s.Complete(c.Context(), coord.Outcome(ask.Outcome), ask.Lease.lease(time.Time{}))
	return wire.Answer{Body: completeAnswer{verdictOf(finished), verdictOf(released)}}, nil
}

// decide answers resolve and permit.
func (h *Handler) decide(c *wire.Call) (wire.Answer, error) {
	ask, s, err := within(h, c, decideAsk.names)
	if err != nil {
		return wire.Answer{}, err
	}
	decide := s.Resolve
	if c.Verb == "permit" {
		decide = s.Permit
	}
	v, err := decide(c.Context(), coord.Resolution(ask.Resolution))
	return wire.Answer{Body: viewAnswer{viewOf(v)}}, err
}
