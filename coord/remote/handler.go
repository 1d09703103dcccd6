package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/wire"
)

// A Call is what somebody asks of the coordinator.
type Call struct {
	// Verb is the call: one of Verbs.
	Verb string
	// Agent is what it is about, and Device for whom it acts; empty where it is none.
	Agent, Device string
}

// A Verb is a call that a handler answers, a POST to Prefix and its name.
type Verb struct {
	Name string
	// People: only people ask for it.
	People bool
}

// Verbs are all calls.
func Verbs() []Verb {
	return []Verb{
		{"open", false}, {"close", false}, {"acquire", false}, {"give-up", false}, {"renew", false}, {"release", false}, {"current", false},
		{"leases", false}, {"look", false}, {"list", false}, {"begin", false}, {"start", false}, {"cancel", false}, {"finish", false},
		{"complete", false}, {"recovery", false}, {"set-recovery", false}, // a device that finds its witness gone sets the gate
		{"steal", true}, {"evict", true}, {"pause", true}, {"resume", true}, {"resolve", true}, {"permit", true}, {"lift-recovery", true},
	}
}

// A HandlerConfig says what is served to whom. Open and Allow are required.
type HandlerConfig struct {
	// Open opens a coordinator for one more process, which is described by p. dead tells whether the liveness, which p's device
	// had, is proved dead.
	Open func(ctx context.Context, p coord.Process, dead func(liveness string) bool) (coord.Coordinator, error)
	// Allow decides whether who sent the request may make the call: an error is its reason, in words for the caller. It is
	// asked before anything is done. Without it nobody may make any call.
	Allow func(r *http.Request, c Call) error
	// Now is the clock by which the coordinators count trust; time.Now.
	Now func() time.Time
	// Silence ends the session of a process that was not heard of for so long; 0: twice the longest TTL. It must be above the
	// longest TTL: what is closed earlier could be another's before its holder stops trusting it.
	Silence time.Duration
	// MaxSessions is how many processes may call; 0: 1024.
	MaxSessions int
}

// A Handler serves coordinators. Make it with NewHandler.
type Handler struct {
	cfg  HandlerConfig
	wire wire.Handler

	mu       sync.Mutex
	sessions map[string]*session
	ended    map[string]time.Time // sessions that were closed, and when
}

// NewHandler serves coordinators. Only the last element of a request's path is looked at. A handler that is dropped closes
// nothing: what its processes hold runs out by itself, as it must, since they still trust in it.
func NewHandler(cfg HandlerConfig) *Handler {
	if cfg.Allow == nil {
		cfg.Allow = func(*http.Request, Call) error { return errors.New("this node serves its coordinator to nobody") }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Silence <= coord.MaxTTL {
		cfg.Silence = 2 * coord.MaxTTL
	}
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = 1024
	}
	h := &Handler{cfg: cfg, sessions: map[string]*session{}, ended: map[string]time.Time{}}
	h.wire = wire.Handler{Format: format, MaxAsk: maxHead, Refuse: refuse, Verbs: map[string]func(*wire.Call) (wire.Answer, error){
		"open": h.open, "close": h.close,
		"acquire": h.acquire, "steal": h.steal, "start": h.start, "give-up": h.giveUp,
		"renew": h.renew, "release": h.release, "current": h.current, "evict": h.evict, "leases": h.leases,
		"pause": h.pause, "resume": h.pause, "set-recovery": h.gate, "lift-recovery": h.gate, "recovery": h.recovery,
		"look": h.look, "list": h.list, "begin": h.begin, "cancel": h.cancel, "finish": h.finish, "complete": h.complete,
		"resolve": h.decide, "permit": h.decide,
	}}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.wire.ServeHTTP(w, r) }

func (h *Handler) allow(c *wire.Call, agent, device string) error {
	if err := h.cfg.Allow(c.Request, Call{Verb: c.Verb, Agent: agent, Device: device}); err != nil {
		return wire.Denied(err)
	}
	return nil
}

// errUnknownSession says that nothing was done, and that a new session has to be begun.
var errUnknownSession = wire.NewProblem(http.StatusGone, nameNoSession, "No such session",
	"this server knows no such session, nothing was done: it was restarted, or nothing was heard for too long", wire.No)

// sessionOf is the session of a call that may be made.
func (h *Handler) sessionOf(c *wire.Call, id, agent, device string) (*session, error) {
	if err := h.allow(c, agent, device); err != nil {
		return nil, err
	}
	h.mu.Lock()
	s := h.sessions[id]
	h.mu.Unlock()
	if s == nil {
		return nil, errUnknownSession
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	return s, nil
}

func (h *Handler) open(c *wire.Call) (wire.Answer, error) {
	var ask openAsk
	if err := c.Ask(&ask); err != nil {
		return wire.Answer{}, err
	}
	if err := (&openAnswer{ask.Session}).check(); err != nil {
		return wire.Answer{}, wire.Malformed(errors.New("a session has an id of 32 lower-case hex digits"))
	}
	if err := h.allow(c, "", ""); err != nil {
		return wire.Answer{}, err
	}
	h.sweep(c.Context())
	h.mu.Lock()
	s, full := h.sessions[ask.Session], len(h.sessions) >= h.cfg.MaxSessions
	_, ended := h.ended[ask.Session]
	h.mu.Unlock()
	switch {
	case ended: // this is a late copy
		return wire.Answer{}, errUnknownSession
	case s != nil:
		return wire.Answer{Body: openAnswer{s.Generation()}}, nil
	case full:
		return wire.Answer{}, fmt.Errorf("%w: %d processes have a session here, and no more may", coord.ErrNotSent, h.cfg.MaxSessions)
	}
	s = &session{heard: time.Now(), slots: map[string]*slot{}, dead: map[string]bool{}}
	var err error
	if s.Coordinator, err = h.cfg.Open(c.Context(), ask.Process, s.isDead); err != nil {
		return wire.Answer{}, err
	}
	h.mu.Lock()
	if other := h.sessions[ask.Session]; other == nil {
		h.sessions[ask.Session] = s
	} else { // another copy of this question was faster
		defer s.Close(context.WithoutCancel(c.Context()))
		s = other
	}
	h.mu.Unlock()
	return wire.Answer{Body: openAnswer{s.Generation()}}, nil
}

// sweep ends sessions that nobody was heard of for too long. What they held has run out.
func (h *Handler) sweep(ctx context.Context) {
	now := time.Now()
	var silent []*session
	h.mu.Lock()
	for id, s := range h.sessions {
		s.mu.Lock()
		gone := now.Sub(s.heard) > h.cfg.Silence
		s.mu.Unlock()
		if gone && len(silent) < 16 {
			silent = append(silent, s)
			delete(h.sessions, id)
			h.ended[id] = now
		}
	}
	for id, at := range h.ended {
		if now.Sub(at) > h.cfg.Silence {
			delete(h.ended, id)
		}
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, s := range silent {
		_ = s.Close(ctx) // it has run out anyway
	}
}

// Sessions is how many processes have one.
func (h *Handler) Sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

func (h *Handler) close(c *wire.Call) (wire.Answer, error) {
	var ask sessionAsk
	if err := c.Ask(&ask); err != nil {
		return wire.Answer{}, err
	}
	s, err := h.sessionOf(c, ask.Session, "", "")
	if err != nil {
		return wire.Answer{}, err
	}
	if err := s.Close(c.Context()); err != nil {
		return wire.Answer{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, ask.Session)
	h.ended[ask.Session] = time.Now()
	return wire.Answer{Body: struct{}{}}, nil
}

// grant carries a numbered request out.
func (h *Handler) grant(c *wire.Call, num numbered, d deed) (lease, error) {
	arrived := h.cfg.Now()
	s, err := h.sessionOf(c, num.Session, d.agent, d.device)
	if err != nil {
		return lease{}, err
	}
	given, settled, err := s.numbered(c.Context(), c.ID, num, d, arrived)
	if err != nil {
		return lease{}, refuseNumbered(err, settled)
	}
	return given, nil
}

func (h *Handler) acquire(c *wire.Call) (wire.Answer, error) {
	var ask acquireAsk
	if err := c.Ask(&ask); err != nil {
		return wire.Answer{}, err
	}
	req := coord.Request(ask.Request)
	l, err := h.grant(c, ask.numbered, deed{agent: req.Agent, device: req.Device, do: func(ctx context.Context, at coord.Coordinator) (coord.Lease, error) {
		return at.Acquire(ctx, req)
	}})
	return wire.Answer{Body: leaseAnswer{Lease: l}}, err
}

func (h *Handler) steal(c *wire.Call) (wire.Answer, error) {
	var ask stealAsk
	if err := c.Ask(&ask); err != nil {
		return wire.Answer{}, err
	}
	t := ask.Theft.theft()
	l, err := h.grant(c, ask.numbered, deed{agent: t.Agent, device: t.Device, do: func(ctx context.Context, at coord.Coordinator) (coord.Lease, error) {
		return at.Steal(ctx, t)
	}})
	return wire.Answer{Body: leaseAnswer{Lease: l}}, err
}

func (h *Handler) start(c *wire.Call) (wire.Answer, error) {
	var ask startAsk
	if err := c.Ask(&ask); err != nil {
		return wire.Answer{}, err
	}
	var attempt coord.Attempt
	req := coord.Request(ask.Request)
	l, err := h.grant(c, ask.numbered, deed{agent: req.Agent, device: req.Device, settles: true, do: func(ctx context.Context, at coord.Coordinator) (l coord.Lease, err error) {
		l, attempt, err = at.Start(ctx, req, ask.Begin.begin())
		return l, err
	}})
	return wire.Answer{Body: startAnswer{l, attempt}}, err
}

func (h *Handler) giveUp(c *wire.Call) (wire.Answer, error) {
	var ask giveUpAsk
	if err := c.Ask(&ask); err != nil {
		return wire.Answer{}, err
	}
	_, err := h.grant(c, ask.numbered, deed{agent: ask.Agent, device: ask.Device, do: func(ctx context.Context, at coord.Coordinator) (coord.Lease, error) {
		return coord.Lease{}, at.Release(ctx, ask.Agent, ask.Device, 0)
	}})
	return wire.Answer{Body: struct{}{}}, err
}
