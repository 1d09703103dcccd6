// Package remote is a relay behind HTTP: a [Relay] is the client, and [NewHandler] serves any other relay to it.
//
// # Guarantees
//
// Those of package relay, as far as the relay behind the handler keeps them. Every answer that a caller can act on
// arrives as the same sentinel and the same type, with its facts. An answer counts only if it is whole, known in every
// field, possible for what was asked, and that of this very call: another server, a proxy's page or half an answer is
// ErrIndeterminate and never a fork, a gap or a permission. What the server says the ops are is not proof; whoever pulls
// verifies them, as with any relay.
//
// Who may act for which device is decided by HandlerConfig.Allow, before anything is done. Without it nobody may.
//
// # Failure
//
// ErrNotSent: no connection was had, or what stands before the relay refused the call ([ErrDenied] if it is not allowed,
// [*FormatError] if the two ends do not speak the same format). ErrIndeterminate: the question may have arrived and no
// answer that counts came back. Each call may be repeated. A collector's call to a relay that is none is ErrInvalid.
//
// # Concurrency
//
// A Relay and a Handler may be used by several goroutines at once. Neither starts one that outlives a call.
//
// # Limits
//
// All frontiers of one call together are at most 8 MiB of JSON, a roster is at most 64 MiB. A hint is a call that the
// server holds for at most 25 s; the client asks again.
//
// The bytes are described in docs/formats/remote.md.
package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/syncnode/syncnode/internal/wire"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// Prefix is the path under which a node serves its relay.
const Prefix = "/v1/relay/"

// format is the version of the calls that this release speaks.
const format = 1

// Limits in bytes.
const (
	maxHead   = 8 << 20 // the first line of a question and of an answer
	maxRoster = 64 << 20
	maxHint   = 25 * time.Second
)

// A Config says where a relay is served. URL is required.
type Config struct {
	// URL is http://HOST:PORT, https://HOST:PORT or unix:PATH; Prefix is added.
	URL string
	// Client makes the requests; nil: one of its own, with TLS as its settings.
	Client *http.Client
	TLS    *tls.Config
	// Token is asked for each call, so that it may change; nil: none. It is not sent in the clear to another host.
	Token func() (string, error)
}

// A Relay is a relay that another process serves. Make it with New.
type Relay struct{ c *wire.Client }

var (
	_ relay.Relay     = (*Relay)(nil)
	_ relay.Hinter    = (*Relay)(nil)
	_ relay.Looker    = (*Relay)(nil)
	_ relay.Collector = (*Relay)(nil)
)

// New returns a relay and connects to nothing. Its error matches relay.ErrInvalid and names every mistake of cfg.
func New(cfg Config) (*Relay, error) {
	c, err := wire.NewClient(wire.ClientConfig{
		Place: cfg.URL, Prefix: Prefix, Client: cfg.Client, TLS: cfg.TLS, Token: cfg.Token,
		Format: format, MaxAnswer: maxHead, MaxTail: maxRoster,
	})
	if err != nil {
		return nil, &relay.InvalidError{Err: fmt.Errorf("remote relay: %w", err)}
	}
	return &Relay{c}, nil
}

// Close closes idle connections.
func (r *Relay) Close() { r.c.Close() }

// call makes a call and checks its answer; check may be nil.
func (r *Relay) call(ctx context.Context, q wire.Question, check func() error) error {
	err := r.c.Do(ctx, q)
	if err == nil && check != nil {
		if err = check(); err != nil {
			return r.impossible(q.Verb, err)
		}
	}
	return r.translate(q.Verb, err)
}

// impossible is an answer that no relay gives to what was asked. It matches nothing that the answer claims.
func (r *Relay) impossible(verb string, err error) error {
	return fmt.Errorf("%s at %s: %w: an answer that cannot be: %v", verb, r.c.Place(), relay.ErrIndeterminate, err)
}

// Hello implements relay.Relay.
func (r *Relay) Hello(ctx context.Context, device string) (relay.Info, error) {
	if err := relay.CheckDevice(device); err != nil {
		return relay.Info{}, err
	}
	var answer infoAnswer
	err := r.call(ctx, wire.Question{Verb: "hello", Ask: deviceAsk{device}, Answer: &answer}, answer.check)
	if err != nil {
		return relay.Info{}, err
	}
	return answer.info(), nil
}

// Look implements relay.Looker. A relay that cannot be looked at without a trace is ErrInvalid.
func (r *Relay) Look(ctx context.Context) (relay.Info, error) {
	var answer infoAnswer
	err := r.call(ctx, wire.Question{Verb: "look", Ask: struct{}{}, Answer: &answer}, answer.checkStore)
	if err != nil {
		return relay.Info{}, err
	}
	return answer.info(), nil
}

// Push implements relay.Relay. An op that no chain can take is refused here, after the ops before it were pushed.
func (r *Relay) Push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	if err := relay.CheckPush(device, ops); err != nil {
		return relay.Pushed{}, err
	}
	for i, op := range ops {
		if err := op.Check(); err != nil {
			bad := &relay.BadOpError{Device: op.Device, Seq: op.Seq, Err: err}
			if i == 0 {
				return relay.Pushed{}, bad
			}
			done, err := r.push(ctx, device, ops[:i])
			if err == nil {
				err = bad
			}
			return done, err
		}
	}
	return r.push(ctx, device, ops)
}

func (r *Relay) push(ctx context.Context, device string, ops []oplog.Op) (relay.Pushed, error) {
	var tail []byte
	for _, op := range ops {
		tail = append(op.AppendLine(tail), '\n')
	}
	var answer pushedAnswer
	q := wire.Question{Verb: "push", Ask: pushAsk{device, len(ops)}, Tail: tail, Answer: &answer}
	err := r.call(ctx, q, func() error { return answer.check(len(ops)) })
	if err == nil {
		return answer.pushed(), nil
	}
	refused, ok := errors.AsType[*refusal](err)
	if !ok {
		return relay.Pushed{}, err
	}
	if err := refused.fits(device, ops); err != nil {
		return relay.Pushed{}, r.impossible("push", err)
	}
	return refused.pushed, err
}

// Pull implements relay.Relay.
func (r *Relay) Pull(ctx context.Context, device string, want relay.Want) (relay.Page, error) {
	if err := relay.CheckDevice(device); err != nil {
		return relay.Page{}, err
	}
	if err := relay.CheckFrontier(want.Held); err != nil {
		return relay.Page{}, err
	}
	var answer pageAnswer
	var ops []oplog.Op
	q := wire.Question{Verb: "pull", Ask: pullAsk{device, want.Held, want.Skip, want.MaxBytes}, Answer: &answer, Read: func(t *wire.Tail) (err error) {
		ops, err = readOps(t, answer.Ops)
		return err
	}}
	if err := r.call(ctx, q, answer.check); err != nil {
		return relay.Page{}, err
	}
	return answer.page(ops), nil
}

// Ack implements relay.Relay.
func (r *Relay) Ack(ctx context.Context, device string, folded oplog.Frontier) error {
	if err := relay.CheckDevice(device); err != nil {
		return err
	}
	if err := relay.CheckFrontier(folded); err != nil {
		return err
	}
	return r.call(ctx, wire.Question{Verb: "ack", Ask: ackAsk{device, folded}, Answer: &struct{}{}}, nil)
}

// Register implements relay.Relay.
func (r *Relay) Register(ctx context.Context, device string, role relay.Role) error {
	if err := relay.CheckDevice(device); err != nil {
		return err
	}
	if err := relay.CheckRole(role); err != nil {
		return err
	}
	return r.call(ctx, wire.Question{Verb: "register", Ask: registerAsk{device, role}, Answer: &struct{}{}}, nil)
}

// Roster implements relay.Relay.
func (r *Relay) Roster(ctx context.Context) ([]relay.Member, error) {
	var answer rosterAnswer
	var roster []relay.Member
	q := wire.Question{Verb: "roster", Ask: struct{}{}, Answer: &answer, Read: func(t *wire.Tail) (err error) {
		roster, err = readRoster(t, answer.Members)
		return err
	}}
	if err := r.call(ctx, q, nil); err != nil {
		return nil, err
	}
	return roster, nil
}

// Hint implements relay.Hinter.
func (r *Relay) Hint(ctx context.Context, known oplog.Frontier) error {
	for {
		wait := maxHint
		if end, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(end)), 0)
		}
		var answer hintAnswer
		err := r.call(ctx, wire.Question{Verb: "hint", Ask: hintAsk{known, wait.Milliseconds()}, Answer: &answer}, nil)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil || answer.Moved:
			return err
		case answer.Never:
			<-ctx.Done() // it is no Hinter: as good as one that never tells
			return context.Cause(ctx)
		}
	}
}

// PutCheckpoint implements relay.Collector.
func (r *Relay) PutCheckpoint(ctx context.Context, device string, c relay.Checkpoint) error {
	if err := relay.CheckCheckpoint(device, &c); err != nil {
		return err
	}
	ask := putAsk{device, checkpointOf(c), nil}
	return r.call(ctx, wire.Question{Verb: "put-checkpoint", Ask: ask, Tail: c.Body, Answer: &struct{}{}}, nil)
}

// Seed implements relay.Collector.
func (r *Relay) Seed(ctx context.Context, device string, c relay.Checkpoint, heads oplog.Heads) error {
	if err := relay.CheckSeed(device, &c, heads); err != nil {
		return err
	}
	ask := putAsk{device, checkpointOf(c), headsOf(heads)}
	return r.call(ctx, wire.Question{Verb: "seed", Ask: ask, Tail: c.Body, Answer: &struct{}{}}, nil)
}

// Checkpoint implements relay.Collector.
func (r *Relay) Checkpoint(ctx context.Context) (relay.Checkpoint, bool, error) {
	var answer checkpointAnswer
	var body []byte
	q := wire.Question{Verb: "checkpoint", Ask: struct{}{}, Answer: &answer, Read: func(t *wire.Tail) (err error) {
		body, err = answer.body(t)
		return err
	}}
	if err := r.call(ctx, q, nil); err != nil || answer.Checkpoint == nil {
		return relay.Checkpoint{}, false, err
	}
	c := answer.Checkpoint.checkpoint(body)
	if c.Author == "" {
		return relay.Checkpoint{}, false, r.impossible(q.Verb, errors.New("a checkpoint without an author"))
	}
	if err := relay.CheckCheckpoint(c.Author, &c); err != nil {
		return relay.Checkpoint{}, false, r.impossible(q.Verb, err)
	}
	return c, true, nil
}

// Collect implements relay.Collector. It collects what the relay that is served collects.
func (r *Relay) Collect(ctx context.Context) (relay.Collection, error) {
	var answer collectionAnswer
	if err := r.call(ctx, wire.Question{Verb: "collect", Ask: struct{}{}, Answer: &answer}, answer.check); err != nil {
		return relay.Collection{}, err
	}
	return answer.collection(), nil
}
