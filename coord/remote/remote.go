// Package remote is a coordinator behind HTTP: a [Coordinator] is the client, and a [Handler] serves any other to it.
//
// # Guarantees
//
// Those of package coord, as far as the coordinator behind the handler keeps them. A process that calls has a session at
// the handler, and with it a coordinator of its own there: livenesses, handles and nonces are that coordinator's, so two
// processes share nothing, whatever device they name. Every verdict arrives as the same sentinel and type with its facts.
// An answer counts only if it is whole, known in every field, that of this very call, and possible for what was asked: a
// lease of the agent and device that asked, an open attempt with the caller's own nonces. All else is no permission.
//
// Trust counts from before the question was sent, on this process's clock, less what the server's coordinator had already
// counted when it arrived. No instant is compared with another machine's. A request that was not answered is settled by
// repeating it: the coordinator behind decides about attempts by their nonces, and a grant is numbered in its session and made
// once, however often and late copies of it arrive.
//
// A liveness lives by the renewals that its holder asks for, and by nothing else. A process that falls silent loses its
// leases when their TTL has passed, as with any coordinator; its session ends after HandlerConfig.Silence. When the server dies or
// restarts, all its sessions are gone: what their processes held cannot be renewed, runs out within its TTL, and runs that
// are open by then are in doubt until their device says how they ended. The client goes on in a new session by
// itself, with new grants. A restarted *client* keeps its epochs with proof that its predecessor is dead (Config.Dead), for which the
// server takes the word of who may act for the device.
//
// Who may do what is decided by HandlerConfig.Allow, before anything is done. Without it nobody may.
//
// # Failure
//
// ErrNotSent: no connection was had, or what stands before the coordinator refused the call ([ErrDenied] if it is not
// allowed, [*FormatError] if the two ends speak no common format), or a read was not answered. ErrIndeterminate: the question may
// have arrived and no answer that counts came back. ErrGeneration: the server has another ledger than when the coordinator was opened.
//
// # Concurrency
//
// A Coordinator and a Handler may be used by several goroutines at once. Requests for grants of one agent go one after another.
// Neither starts a goroutine that outlives a call, but for the Handler's Run.
//
// The bytes are described in docs/formats/remote.md.
package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/wire"
)

// Prefix is the path under which a node serves its coordinator.
const Prefix = "/v1/coord/"

// format is the version of the calls that this release speaks.
const format = 1

// Limits in bytes.
const (
	maxHead = 1 << 20  // the first line of a question and of an answer, and each line of a list
	maxList = 64 << 20 // all lines of a list
)

// A Config says where a coordinator is served, and who calls. URL is required.
type Config struct {
	// URL is http://HOST:PORT, https://HOST:PORT or unix:PATH; Prefix is added.
	URL string
	// Client makes the requests; nil: one of its own, with TLS as its settings.
	Client *http.Client
	TLS    *tls.Config
	// Token is asked for each call, so that it may change; nil: none. It is not sent in the clear to another host.
	Token func() (string, error)
	// Process describes this process beside its livenesses and leases.
	Process coord.Process
	// Dead reports whether the process of that liveness is proved dead; nil means that nothing is ever proved. A wrong true
	// lets two processes hold one epoch.
	Dead func(liveness string, p coord.Process) bool
}

// A Coordinator is a process's part in a ledger that another process serves. Make one with Open.
type Coordinator struct {
	c          *wire.Client
	process    coord.Process
	dead       func(string, coord.Process) bool
	generation string

	opening chan struct{} // one place: who opens a session has it

	mu      sync.Mutex
	closed  bool
	session string            // "" if there is none
	grants  map[string]*grant // by agent; of this session
}

// A grant is the last request for a lease of an agent.
type grant struct {
	turn chan struct{} // one place: who asks has it, and may touch the rest

	session string
	n       uint64    // its number in the session
	from    uint64    // the first number whose answer is not known, itself included
	open    bool      // its own is not
	key     string    // what was asked
	sent    time.Time // before the first copy was sent
}

var _ coord.Coordinator = (*Coordinator)(nil)

// Open begins a session. Its error matches coord.ErrInvalid and names every mistake of cfg, or is that of a read.
func Open(ctx context.Context, cfg Config) (*Coordinator, error) {
	client, err := wire.NewClient(wire.ClientConfig{
		Place: cfg.URL, Prefix: Prefix, Client: cfg.Client, TLS: cfg.TLS, Token: cfg.Token,
		Format: format, MaxAnswer: maxHead, MaxTail: maxList,
	})
	if err != nil {
		return nil, fmt.Errorf("coord/remote: %w: %w", coord.ErrInvalid, err)
	}
	c := &Coordinator{c: client, process: cfg.Process, dead: cfg.Dead, opening: make(chan struct{}, 1), grants: map[string]*grant{}}
	if _, err := c.enter(ctx, ""); err != nil {
		return nil, err
	}
	return c, nil
}

// Generation implements coord.Coordinator.
func (c *Coordinator) Generation() string { return c.generation }

// errSettled is in every verdict about a numbered request that is final: the number will never be carried out again.
var errSettled = errors.New("settled")

// errNoSession means that the server does not know the session: nothing was done.
var errNoSession = errors.New("the server does not know this session")

// enter returns the session. If it is still gone, which is what the caller found, a new one is begun.
func (c *Coordinator) enter(ctx context.Context, gone string) (string, error) {
	for {
		c.mu.Lock()
		session, closed := c.session, c.closed
		c.mu.Unlock()
		switch {
		case closed:
			return "", fmt.Errorf("%w: the coordinator is closed", coord.ErrNotSent)
		case session != "" && session != gone:
			return session, nil
		}
		select {
		case c.opening <- struct{}{}:
		case <-ctx.Done():
			return "", fmt.Errorf("open a session at %s: %w: %w", c.c.Place(), coord.ErrNotSent, context.Cause(ctx))
		}
		c.mu.Lock()
		again := c.session != session
		c.mu.Unlock()
		if again { // another did
			<-c.opening
			continue
		}
		err := c.open(ctx)
		<-c.opening
		if err != nil {
			return "", err
		}
	}
}

// open begins a session; its caller has the turn.
func (c *Coordinator) open(ctx context.Context) error {
	session := coord.NewNonce()
	var answer openAnswer
	q := wire.Question{Verb: "open", Ask: openAsk{session, c.process}, Answer: &answer}
	if err := c.do(ctx, q, true, answer.check); err != nil {
		return err
	}
	if c.generation != "" && answer.Generation != c.generation {
		return fmt.Errorf("%w: %s has %s now, it had %s", coord.ErrGeneration, c.c.Place(), answer.Generation, c.generation)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation, c.session = answer.Generation, session
	return nil
}

// do makes a call. A read that was not answered did nothing. check judges the answer; nil: nothing to judge.
func (c *Coordinator) do(ctx context.Context, q wire.Question, reads bool, check func() error) error {
	err := c.c.Do(ctx, q)
	if err == nil && check != nil {
		if err = check(); err != nil {
			err = fmt.Errorf("%s at %s: %w: an answer that cannot be: %v", q.Verb, c.c.Place(), wire.ErrUnknown, err)
		}
	}
	return c.translate(q.Verb, reads, err)
}

// call makes a call within the session, and in a new one if that is gone. ask spells the question for a session.
func (c *Coordinator) call(ctx context.Context, q wire.Question, reads bool, ask func(session string) any, check func() error) error {
	gone := ""
	for range 3 {
		session, err := c.enter(ctx, gone)
		if err != nil {
			return err
		}
		q.Ask = ask(session)
		if err = c.do(ctx, q, reads, check); !errors.Is(err, errNoSession) {
			return err
		}
		gone = session
	}
	return fmt.Errorf("%s at %s: %w: sessions end as soon as they begin", q.Verb, c.c.Place(), coord.ErrNotSent)
}

// Close implements coord.Coordinator. It may be repeated.
func (c *Coordinator) Close(ctx context.Context) error {
	c.mu.Lock()
	session := c.session
	c.closed = true
	c.mu.Unlock()
	defer c.c.Close()
	if session == "" {
		return nil
	}
	err := c.do(ctx, wire.Question{Verb: "close", Ask: sessionAsk{session}, Answer: &struct{}{}}, false, nil)
	if err == nil || errors.Is(err, errNoSession) {
		c.mu.Lock()
		c.session = ""
		c.mu.Unlock()
		return nil
	}
	return err
}

// turnOf waits for the turn of an agent.
func (c *Coordinator) turnOf(ctx context.Context, agent string) (*grant, error) {
	c.mu.Lock()
	g := c.grants[agent]
	if g == nil {
		g = &grant{turn: make(chan struct{}, 1)}
		c.grants[agent] = g
	}
	c.mu.Unlock()
	if ctx.Err() == nil {
		select {
		case g.turn <- struct{}{}:
			return g, nil
		case <-ctx.Done():
		}
	}
	return nil, fmt.Errorf("agent %s: %w: another request of this process is not settled: %w", agent, coord.ErrNotSent, context.Cause(ctx))
}

// grant asks for a lease, or gives up what was asked for. The same key again is the same request as long as its answer is
// not known. sent is before the first copy of it was sent.
func (c *Coordinator) grant(ctx context.Context, q wire.Question, agent, key string, ask func(numbered) any, check func() error) (sent time.Time, err error) {
	g, err := c.turnOf(ctx, agent)
	if err != nil {
		return sent, err
	}
	defer func() { <-g.turn }()
	spell := func(session string) any {
		switch {
		case g.session != session: // what another session was asked for is its own
			*g = grant{turn: g.turn, session: session, n: 1, from: 1, open: true, key: key, sent: time.Now()}
		case !g.open:
			g.n, g.from, g.open, g.key, g.sent = g.n+1, g.n+1, true, key, time.Now()
		case g.key != key:
			g.n, g.key, g.sent = g.n+1, key, time.Now()
		}
		return ask(numbered{Session: session, N: g.n, From: g.from})
	}
	err = c.call(ctx, q, false, spell, check)
	if err == nil || errors.Is(err, errSettled) {
		g.open = false
	}
	return g.sent, err
}
