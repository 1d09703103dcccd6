// Package client runs things through a node: it claims a run at the node's API, asks the fence, keeps the claim while
// the effect works, and tells how it ended.
//
// # Guarantees
//
// The function given to [Client.Run] is called at most once, and only after the node's fence said yes to this very
// request. Its context ends when the node tells the client to stop, and when the node was not heard of for so long that
// the right to act is about to run out: a function that obeys it is gone before the lease can be another's. Deadlines are
// spans from before the question was sent, by this process's clock.
//
// After nil the run is told as committed, after an error as failed, and telling is repeated until the node has it or
// Config.Tell is over; also until the lease has ended, while the node answers that a former process of its device may be
// busy with it. Hand Permit.Epoch to the resource, so that it can refuse an older one; the effect cannot be stopped once
// it is on its way.
//
// Not promised: that a function which ignores its context stops.
//
// # Failure
//
// Every error is an [*Error], which says by Executed whether the effect of the run happened, by this call or another: no, maybe, or
// yes. Name tells the kinds apart, as docs/operations.md lists them.
//
// # Concurrency
//
// A Client may be used by several goroutines at once. Run has waited for its goroutines when it returns.
package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/syncnode/syncnode/internal/wire"
)

// Executed says whether the effect of a run happened.
type Executed string

const (
	No    Executed = "no"
	Maybe Executed = "maybe"
	Yes   Executed = "yes"
)

// An Error is every answer that is not what was asked for, and every failure to get one.
type Error struct {
	// Executed says whether the effect of the run happened, as far as it is known. After No the same may be asked again.
	Executed Executed
	// Name is the kind of the node's refusal, as "run-in-progress"; empty if the node did not answer.
	Name   string
	Status int
	Detail string
	// Run, Agent, Attempt, Epoch and State are what the refusal is about.
	Run, Agent, Attempt string
	Epoch               uint64
	State, Cause        string
	// Holder is the device that has the agent.
	Holder string
	// RetryAfter is how long the node asks to wait; 0 if it does not say.
	RetryAfter time.Duration
	// Err is why there was no answer, or what the effect returned.
	Err error
}

func (e *Error) Error() string {
	text := e.Detail
	if e.Err != nil {
		text = e.Err.Error()
	}
	return fmt.Sprintf("syncnode: %s (executed: %s)", text, e.Executed)
}
func (e *Error) Unwrap() error { return e.Err }

var (
	// ErrNotSent is in errors of requests that reached no node: nothing was done.
	ErrNotSent = wire.ErrUnsent
	// ErrNoAnswer is in errors of requests that may have been carried out.
	ErrNoAnswer = wire.ErrUnknown
	// ErrNothingHappened, returned by an effect, says that nothing happened at all: the run is free again.
	ErrNothingHappened = errors.New("nothing happened")
	// ErrEndUnknown, returned by an effect, says that its end cannot be learned: the run is in doubt.
	ErrEndUnknown = errors.New("the end of the effect cannot be learned")
)

// A Config says where a node is. URL is required.
type Config struct {
	// URL is unix:PATH, which is <data-dir>/node.sock unless the node was told otherwise, http://HOST:PORT or https://HOST:PORT.
	URL string
	// Client makes the requests; nil: one of its own, with TLS as its settings.
	Client *http.Client
	TLS    *tls.Config
	// Token is asked for each request, so that it may change; nil: none. It is not sent in the clear to another host.
	Token func() (string, error)
	// Tell is how long the end of a run is told again while the node does not answer, also after the context ended. 0: 30 s.
	// A node that answers with "run-in-progress" is told for as long, and at least until the lease of the attempt has ended.
	Tell time.Duration
}

// A Client uses one node.
type Client struct {
	wire *wire.Client
	tell time.Duration
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 1 << 20

// New reports every mistake of cfg. It connects to nothing.
func New(cfg Config) (*Client, error) {
	c, err := wire.NewClient(wire.ClientConfig{Place: cfg.URL, Client: cfg.Client, TLS: cfg.TLS, Token: cfg.Token, MaxAnswer: maxAnswer})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if cfg.Tell <= 0 {
		cfg.Tell = 30 * time.Second
	}
	return &Client{c, cfg.Tell}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.wire.Close() }

// problem is the node's refusal.
type problem struct {
	Type, Title, Detail          string
	Executed                     Executed
	Run                          string `json:"run_id"`
	Agent, Attempt, State, Cause string
	Epoch                        uint64
	Holder                       struct{ Device string }
}

// post asks and reads the answer into out. unanswered is what Executed is when nobody knows whether it was carried out.
func (c *Client) post(ctx context.Context, path string, unanswered Executed, in, out any) (http.Header, error) {
	reply, err := c.wire.JSON(ctx, http.MethodPost, path, in)
	if err != nil {
		if errors.Is(err, wire.ErrUnsent) {
			unanswered = No
		}
		return nil, &Error{Executed: unanswered, Err: err}
	}
	strange := func(why string) error {
		return &Error{Executed: unanswered, Status: reply.Status, Err: fmt.Errorf("POST %s at %s: %w: status %d, %s", path, c.wire.Place(), ErrNoAnswer, reply.Status, why)}
	}
	switch {
	case reply.Kind == wire.ProblemType:
		var p problem
		if err := json.Unmarshal(reply.Body, &p); err != nil || !strings.HasPrefix(p.Type, "/problems/") {
			return nil, strange("a problem of no node")
		}
		e := &Error{Executed: p.Executed, Name: strings.TrimPrefix(p.Type, "/problems/"), Status: reply.Status, Detail: wire.Bounded(p.Title + ": " + p.Detail), Run: p.Run, Agent: p.Agent,
			Attempt: p.Attempt, Epoch: p.Epoch, State: p.State, Cause: p.Cause, Holder: p.Holder.Device}
		if e.Executed != No && e.Executed != Yes {
			e.Executed = Maybe
		}
		if s, err := strconv.Atoi(reply.Header.Get("Retry-After")); err == nil && s > 0 && s < 1e6 {
			e.RetryAfter = time.Duration(s) * time.Second
		}
		return nil, e
	case reply.Status != http.StatusOK && reply.Status != http.StatusCreated, reply.Kind != "application/json":
		return nil, strange("not a node, or a proxy before it")
	}
	if err := json.Unmarshal(reply.Body, out); err != nil {
		return nil, strange("not what a node answers")
	}
	return reply.Header, nil
}

// An Ask is what is to be run, and what may be done about what was.
type Ask struct {
	// Agent is what must not run in parallel, Occurrence which firing of its work: the same text is the same run for ever.
	Agent, Occurrence string
	// InputDigest is the lower-case hex SHA-256 of the input; the same occurrence with another one is refused.
	InputDigest string
	// RetryFailed runs it also if it failed before.
	RetryFailed bool
	// RetryDoubt runs it also if an earlier try may have happened: for effects that may happen twice.
	RetryDoubt bool
}

// A Claim is a reservation of the agent. Nothing is begun.
type Claim struct {
	Run        string `json:"run_id"`
	Agent      string `json:"agent"`
	Occurrence string `json:"occurrence"`
	Device     string `json:"device"`
	Epoch      uint64 `json:"epoch"`
	ID         string `json:"claim"`
	State      string `json:"state"`
	Attempt    string `json:"attempt"`
	Result     string `json:"result"`
	// Replayed: the run is committed, and Result is what was told then. There is nothing to do.
	Replayed bool `json:"-"`
}

// Claim reserves the agent for a run. request is a text of the caller's: a repeat with the same one gets the same claim.
func (c *Client) Claim(ctx context.Context, ask Ask, request string) (Claim, error) {
	in := map[string]any{"agent": ask.Agent, "occurrence": ask.Occurrence, "request": request}
	if ask.InputDigest != "" {
		in["input_digest"] = ask.InputDigest
	}
	if ask.RetryFailed {
		in["if_failed"] = "retry"
	}
	if ask.RetryDoubt {
		in["on_doubt"] = "retry"
	}
	var got Claim
	header, err := c.post(ctx, "/v1/runs", No, in, &got) // a claim begins nothing
	if err != nil {
		return Claim{}, err
	}
	got.Replayed = header.Get("Syncnode-Replayed") == "true"
	if got.Agent != ask.Agent || got.Run == "" || got.Replayed != (got.State == "committed") || !got.Replayed && (got.ID == "" || got.Epoch == 0) {
		return Claim{}, &Error{Executed: No, Err: fmt.Errorf("claim at %s: %w: an answer about something else", c.wire.Place(), ErrNoAnswer)}
	}
	return got, nil
}

// A Standing says how long the effect may go on.
type Standing struct {
	Run     string `json:"run_id"`
	Attempt string `json:"attempt"`
	Epoch   uint64 `json:"epoch"`
	ValidMS int64  `json:"valid_ms"`
	StopMS  int64  `json:"stop_after_ms"`
	BeatMS  int64  `json:"heartbeat_ms"`
	TTLMS   int64  `json:"ttl_ms"` // how long the lease outlives whoever renews it
	Stop    bool   `json:"stop"`
	Cause   string `json:"cause"`
	// StopAt and Deadline are when to begin to stop, and when to be gone, unless a later answer says more.
	StopAt   time.Time `json:"-"`
	Deadline time.Time `json:"-"`
}

func (s *Standing) from(sent time.Time) {
	s.StopAt, s.Deadline = sent.Add(span(s.StopMS)), sent.Add(span(s.ValidMS))
}

func (s *Standing) ttl() time.Duration { return span(s.TTLMS) }

// span is no more than a day, whatever was answered.
func span(ms int64) time.Duration {
	return min(max(time.Duration(ms), 0), 24*time.Hour/time.Millisecond) * time.Millisecond
}

// Fence begins the run. Only a nil error permits to act. request is a random text of the caller's, at least 8 bytes: only a
// repeat with the same one hears yes again.
func (c *Client) Fence(ctx context.Context, claim Claim, request string) (Standing, error) {
	var got Standing
	sent := time.Now() // before asking
	_, err := c.post(ctx, runPath(claim.Run, "fence"), Maybe, map[string]any{"claim": claim.ID, "request": request}, &got)
	if err != nil {
		return Standing{}, err
	}
	if got.Run != claim.Run || got.Attempt == "" || got.Epoch == 0 {
		return Standing{}, &Error{Executed: Maybe, Run: claim.Run, Err: fmt.Errorf("fence at %s: %w: an answer about something else", c.wire.Place(), ErrNoAnswer)}
	}
	got.from(sent)
	return got, nil
}

// Heartbeat says that the effect is at work, and hears how long it may go on.
func (c *Client) Heartbeat(ctx context.Context, run, attempt string) (Standing, error) {
	var got Standing
	sent := time.Now() // before asking
	_, err := c.post(ctx, runPath(run, "heartbeat"), Maybe, map[string]any{"attempt": attempt}, &got)
	if err != nil {
		return Standing{}, err
	}
	if got.Run != run || got.Attempt != attempt {
		return Standing{}, &Error{Executed: Maybe, Run: run, Err: fmt.Errorf("heartbeat at %s: %w: an answer about something else", c.wire.Place(), ErrNoAnswer)}
	}
	got.from(sent)
	return got, nil
}

// An End is how an attempt ended. It may be told again.
type End struct {
	Run, Agent, Attempt string
	Committed           bool
	Result              string // at most 1 KiB for whoever asks for this run again
	// Of an end that is no commit: Ran is No if nothing happened, Maybe if its end cannot be learned, else Yes.
	Ran      Executed
	Cause    string // exit, signal, timeout, lost or drain
	ExitCode int
}

// executed is what the end tells of the effect.
func (e End) executed() Executed {
	if e.Committed || e.Ran == "" {
		return Yes
	}
	return e.Ran
}

// End tells how an attempt ended, and gives the state of the run. An end that was not taken makes nothing undone: of such an error
// Executed is what the end tells.
func (c *Client) End(ctx context.Context, e End) (state string, err error) {
	in := map[string]any{"attempt": e.Attempt, "agent": e.Agent}
	if e.Result != "" {
		in["result"] = e.Result
	}
	verb := "commit"
	if !e.Committed {
		verb = "fail"
		if e.Ran != "" {
			in["ran"] = e.Ran
		}
		if e.Cause != "" {
			in["cause"] = e.Cause
		}
		if e.ExitCode != 0 {
			in["exit_code"] = e.ExitCode
		}
	}
	var got struct {
		Run     string `json:"run_id"`
		Attempt string `json:"attempt"`
		State   string `json:"state"`
	}
	if _, err := c.post(ctx, runPath(e.Run, verb), Maybe, in, &got); err != nil {
		if refused, ok := errors.AsType[*Error](err); ok && refused.Executed == No {
			refused.Executed = e.executed()
		}
		return "", err
	}
	if got.Run != e.Run || got.Attempt != e.Attempt {
		return "", &Error{Executed: Maybe, Run: e.Run, Err: fmt.Errorf("%s at %s: %w: an answer about something else", verb, c.wire.Place(), ErrNoAnswer)}
	}
	return got.State, nil
}

func runPath(run, verb string) string { return "/v1/runs/" + url.PathEscape(run) + "/" + verb }

// random is a text that nobody else says.
func random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
