package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/syncnode/syncnode/internal/wire"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A Call is what somebody asks of the relay.
type Call struct {
	// Verb is the call: one of Verbs.
	Verb string
	// Device is for whom it acts; empty for a call that acts for none: look, roster, hint, checkpoint, collect.
	Device string
}

// Verbs are the calls that a handler answers, each a POST to Prefix and its name.
func Verbs() []string {
	return []string{"hello", "look", "push", "pull", "ack", "register", "roster", "hint", "put-checkpoint", "seed", "checkpoint", "collect"}
}

// A HandlerConfig says what is served to whom. Both fields are required.
type HandlerConfig struct {
	Relay relay.Relay
	// Allow decides whether who sent the request may make the call: an error is its reason, in words for the caller. It is
	// asked before anything is done, and before what follows the question is read. Without it nobody may make any call.
	Allow func(r *http.Request, c Call) error
}

// NewHandler serves a relay. Only the last element of a request's path is looked at; the server's time limits must leave a
// call 30 s.
func NewHandler(cfg HandlerConfig) http.Handler {
	if cfg.Allow == nil {
		cfg.Allow = func(*http.Request, Call) error { return errors.New("this node serves its relay to nobody") }
	}
	h := &handler{cfg}
	w := &wire.Handler{
		Format: format, MaxAsk: maxHead, MaxTail: relay.MaxCheckpoint,
		Refuse: func(err error) *wire.Problem { return refuse(err, nil) },
	}
	w.Verbs = map[string]func(*wire.Call) (wire.Answer, error){
		"hello": h.hello, "look": h.look, "push": h.push, "pull": h.pull, "ack": h.ack, "register": h.register, "roster": h.roster, "hint": h.hint,
		"put-checkpoint": h.put, "seed": h.put, "checkpoint": h.checkpoint, "collect": h.collect,
	}
	return w
}

type handler struct{ HandlerConfig }

// allow asks whether the call may be made for the device.
func (h *handler) allow(c *wire.Call, device string) error {
	if err := h.Allow(c.Request, Call{Verb: c.Verb, Device: device}); err != nil {
		return wire.Denied(err)
	}
	return nil
}

// begin reads a question that nothing follows. device gives whom it acts for, once it is read.
func (h *handler) begin(c *wire.Call, ask any, device *string) error {
	if err := c.Ask(ask); err != nil {
		return err
	}
	return h.acts(c, device)
}

// acts checks the device and asks whether the call may be made for it.
func (h *handler) acts(c *wire.Call, device *string) error {
	if device == nil {
		return h.allow(c, "")
	}
	if err := relay.CheckDevice(*device); err != nil {
		return err
	}
	return h.allow(c, *device)
}

// done is the answer of a call that gives nothing.
func done(err error) (wire.Answer, error) { return wire.Answer{Body: struct{}{}}, err }

func (h *handler) hello(c *wire.Call) (wire.Answer, error) {
	var ask deviceAsk
	if err := h.begin(c, &ask, &ask.Device); err != nil {
		return wire.Answer{}, err
	}
	info, err := h.Relay.Hello(c.Context(), ask.Device)
	return wire.Answer{Body: infoOf(info)}, err
}

func (h *handler) look(c *wire.Call) (wire.Answer, error) {
	if err := h.begin(c, &struct{}{}, nil); err != nil {
		return wire.Answer{}, err
	}
	looker, ok := h.Relay.(relay.Looker)
	if !ok {
		return wire.Answer{}, errNoLooker
	}
	info, err := looker.Look(c.Context())
	return wire.Answer{Body: infoOf(info)}, err
}

func (h *handler) push(c *wire.Call) (wire.Answer, error) {
	var ask pushAsk
	if err := c.Head(&ask); err != nil {
		return wire.Answer{}, err
	}
	if err := h.acts(c, &ask.Device); err != nil {
		return wire.Answer{}, err
	}
	ops, err := readOps(c.Tail, ask.Ops)
	if err != nil {
		return wire.Answer{}, wire.Malformed(err)
	}
	if err := c.End(); err != nil {
		return wire.Answer{}, err
	}
	pushed, err := h.Relay.Push(c.Context(), ask.Device, ops)
	if err != nil {
		return wire.Answer{}, refuse(err, &pushed)
	}
	return wire.Answer{Body: pushedAnswer(pushed)}, nil
}

func (h *handler) pull(c *wire.Call) (wire.Answer, error) {
	var ask pullAsk
	if err := h.begin(c, &ask, &ask.Device); err != nil {
		return wire.Answer{}, err
	}
	page, err := h.Relay.Pull(c.Context(), ask.Device, relay.Want{Held: ask.Held, Skip: ask.Skip, MaxBytes: ask.MaxBytes})
	if err != nil {
		return wire.Answer{}, err
	}
	return wire.Answer{Body: pageOf(page), Tail: func(w io.Writer) error { return writeOps(w, page.Ops) }}, nil
}

func (h *handler) ack(c *wire.Call) (wire.Answer, error) {
	var ask ackAsk
	if err := h.begin(c, &ask, &ask.Device); err != nil {
		return wire.Answer{}, err
	}
	return done(h.Relay.Ack(c.Context(), ask.Device, ask.Folded))
}

func (h *handler) register(c *wire.Call) (wire.Answer, error) {
	var ask registerAsk
	if err := h.begin(c, &ask, &ask.Device); err != nil {
		return wire.Answer{}, err
	}
	return done(h.Relay.Register(c.Context(), ask.Device, ask.Role))
}

func (h *handler) roster(c *wire.Call) (wire.Answer, error) {
	if err := h.begin(c, &struct{}{}, nil); err != nil {
		return wire.Answer{}, err
	}
	roster, err := h.Relay.Roster(c.Context())
	if err != nil {
		return wire.Answer{}, err
	}
	return wire.Answer{Body: rosterAnswer{len(roster)}, Tail: func(w io.Writer) error {
		for _, m := range roster {
			if err := wire.WriteLine(w, memberLine(m)); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// hint waits as long as it was asked to, within bounds. Not having heard anything is an answer.
func (h *handler) hint(c *wire.Call) (wire.Answer, error) {
	var ask hintAsk
	if err := h.begin(c, &ask, nil); err != nil {
		return wire.Answer{}, err
	}
	if err := relay.CheckFrontier(ask.Known); err != nil {
		return wire.Answer{}, err
	}
	hinter, ok := h.Relay.(relay.Hinter)
	if !ok {
		return wire.Answer{Body: hintAnswer{Never: true}}, nil
	}
	wait := min(max(time.Duration(ask.WaitMS)*time.Millisecond, 0), maxHint)
	if ask.WaitMS > maxHint.Milliseconds() {
		wait = maxHint
	}
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	err := hinter.Hint(ctx, ask.Known)
	if err != nil && ctx.Err() == nil {
		return wire.Answer{}, err
	}
	return wire.Answer{Body: hintAnswer{Moved: err == nil}}, nil
}

var (
	errNoCollector = &relay.InvalidError{Err: errors.New("the relay that is served keeps no checkpoints")}
	errNoLooker    = &relay.InvalidError{Err: errors.New("the relay that is served cannot be looked at without a trace")}
)

func (h *handler) collector() (relay.Collector, error) {
	if c, ok := h.Relay.(relay.Collector); ok {
		return c, nil
	}
	return nil, errNoCollector
}

// put answers put-checkpoint and seed.
func (h *handler) put(c *wire.Call) (wire.Answer, error) {
	var ask putAsk
	if err := c.Head(&ask); err != nil {
		return wire.Answer{}, err
	}
	if err := h.acts(c, &ask.Device); err != nil {
		return wire.Answer{}, err
	}
	store, err := h.collector()
	if err != nil {
		return wire.Answer{}, err
	}
	body, err := ask.Checkpoint.read(c.Tail)
	if err != nil {
		return wire.Answer{}, wire.Malformed(err)
	}
	if err := c.End(); err != nil {
		return wire.Answer{}, err
	}
	point := ask.Checkpoint.checkpoint(body)
	if c.Verb == "put-checkpoint" {
		return done(store.PutCheckpoint(c.Context(), ask.Device, point))
	}
	heads := oplog.Heads{}
	for d, head := range ask.Heads {
		if err := head.check(); err != nil {
			return wire.Answer{}, wire.Malformed(err)
		}
		heads[d] = oplog.Head(head)
	}
	return done(store.Seed(c.Context(), ask.Device, point, heads))
}

func (h *handler) checkpoint(c *wire.Call) (wire.Answer, error) {
	if err := h.begin(c, &struct{}{}, nil); err != nil {
		return wire.Answer{}, err
	}
	store, err := h.collector()
	if err != nil {
		return wire.Answer{}, err
	}
	point, ok, err := store.Checkpoint(c.Context())
	if err != nil || !ok {
		return wire.Answer{Body: checkpointAnswer{}}, err
	}
	head := checkpointOf(point)
	return wire.Answer{Body: checkpointAnswer{&head}, Tail: func(w io.Writer) error {
		_, err := w.Write(point.Body)
		return err
	}}, nil
}

func (h *handler) collect(c *wire.Call) (wire.Answer, error) {
	if err := h.begin(c, &struct{}{}, nil); err != nil {
		return wire.Answer{}, err
	}
	store, err := h.collector()
	if err != nil {
		return wire.Answer{}, err
	}
	collection, err := store.Collect(c.Context())
	return wire.Answer{Body: collectionOf(collection)}, err
}
