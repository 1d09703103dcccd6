package remote

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/internal/wire"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// ErrDenied: who asks may not act for this device, or not ask this. Nothing happened; it comes with relay.ErrNotSent.
var ErrDenied = wire.ErrDenied

// A FormatError says that the two ends speak no common format: the older one has to be upgraded. Spoken is what this
// release speaks, Offered what the server does. Nothing happened; it also matches relay.ErrNotSent.
type FormatError = wire.FormatError

// prefix is before the names of refusals in problems.
const prefix = "relay-"

// refusals are all answers that a caller can act on, the most telling first.
var refusals = wire.Refusals{
	{Name: "fork", Err: relay.ErrFork, Status: http.StatusConflict, Title: "Another op is there"},
	{Name: "closed", Err: relay.ErrClosed, Status: http.StatusConflict, Title: "The chain is closed"},
	{Name: "gap", Err: relay.ErrGap, Status: http.StatusConflict, Title: "Ops are missing before"},
	{Name: "foreign", Err: relay.ErrForeign, Status: http.StatusForbidden, Title: "Not the device's own chain"},
	{Name: "bad-op", Err: relay.ErrBadOp, Status: http.StatusUnprocessableEntity, Title: "The op can never be part of the chain"},
	{Name: "size", Err: relay.ErrSize, Status: http.StatusRequestEntityTooLarge, Title: "Too large"},
	{Name: "full", Err: relay.ErrFull, Status: http.StatusInsufficientStorage, Title: "The relay is full"},
	{Name: "frontier-truncated", Err: relay.ErrFrontierTruncated, Status: http.StatusGone, Title: "History was collected"},
	{Name: "behind", Err: relay.ErrBehind, Status: http.StatusConflict, Title: "Behind the newest checkpoint"},
	{Name: "contradiction", Err: relay.ErrContradiction, Status: http.StatusConflict, Title: "The checkpoint contradicts a chain"},
	{Name: "not-stable", Err: relay.ErrNotStable, Status: http.StatusConflict, Title: "Not stable yet"},
	{Name: "corrupt", Err: relay.ErrCorrupt, Status: http.StatusInternalServerError, Title: "The relay's store is damaged"},
	{Name: "invalid", Err: relay.ErrInvalid, Status: http.StatusBadRequest, Title: "Invalid"},
	{Name: "not-sent", Err: relay.ErrNotSent, Status: http.StatusServiceUnavailable, Title: "Nothing happened"},
	{Name: "indeterminate", Err: relay.ErrIndeterminate, Status: http.StatusServiceUnavailable, Title: "Outcome unknown"},
}

// facts are what the errors carry: one field each, all left out but one.
type facts struct {
	Pushed        *pushedAnswer  `json:"pushed,omitempty"` // of a push, beside its error
	Fork          *forkFacts     `json:"fork,omitempty"`
	Closed        *closedFacts   `json:"closed,omitempty"`
	Gap           *gapFacts      `json:"gap,omitempty"`
	Foreign       *foreignFacts  `json:"foreign,omitempty"`
	BadOp         *badOpFacts    `json:"bad_op,omitempty"`
	Size          *sizeFacts     `json:"size,omitempty"`
	Full          *fullFacts     `json:"full,omitempty"`
	Truncated     *truncFacts    `json:"frontier_truncated,omitempty"`
	Behind        *behindFacts   `json:"behind,omitempty"`
	Contradiction *contraFacts   `json:"contradiction,omitempty"`
	NotStable     *unstableFacts `json:"not_stable,omitempty"`
}

type (
	forkFacts struct {
		Device   string     `json:"device"`
		Seq      uint64     `json:"seq"`
		Existing oplog.OpID `json:"existing"`
		Got      oplog.OpID `json:"got"`
	}
	closedFacts struct {
		Device string    `json:"device"`
		Last   oplog.Pos `json:"last"`
	}
	gapFacts struct {
		Device   string `json:"device"`
		Expected uint64 `json:"expected"`
		Found    uint64 `json:"found"`
	}
	foreignFacts struct {
		Device   string `json:"device"`
		OpDevice string `json:"op_device"`
	}
	badOpFacts struct {
		Device string      `json:"device"`
		Seq    uint64      `json:"seq"`
		Clock  *clockFacts `json:"clock,omitempty"`
		Why    string      `json:"why"`
	}
	clockFacts struct {
		Device string    `json:"device"`
		Seq    uint64    `json:"seq"`
		Before oplog.HLC `json:"before"`
		Got    oplog.HLC `json:"got"`
	}
	sizeFacts struct {
		What string `json:"what"`
		Size int    `json:"size"`
		Max  int    `json:"max"`
	}
	fullFacts struct {
		Used int64 `json:"used"`
		Need int64 `json:"need"`
		Max  int64 `json:"max"`
	}
	truncFacts struct {
		Device string         `json:"device"`
		Held   uint64         `json:"held"`
		Floor  oplog.Frontier `json:"floor"`
	}
	behindFacts struct {
		Held    string `json:"held"`
		Offered string `json:"offered"`
	}
	contraFacts struct {
		Device string    `json:"device"`
		Got    oplog.Pos `json:"got"`
		Held   oplog.Pos `json:"held"`
		Why    string    `json:"why"`
	}
	unstableFacts struct {
		Device string `json:"device"`
		Reason reason `json:"reason"`
	}
)

// put fills in f what err carries.
func (f *facts) put(err error) {
	if e, ok := errors.AsType[*relay.ForkError](err); ok {
		f.Fork = (*forkFacts)(e)
	} else if e, ok := errors.AsType[*relay.ClosedError](err); ok {
		f.Closed = (*closedFacts)(e)
	} else if e, ok := errors.AsType[*relay.GapError](err); ok {
		f.Gap = (*gapFacts)(e)
	} else if e, ok := errors.AsType[*relay.ForeignError](err); ok {
		f.Foreign = &foreignFacts{e.Device, wire.Bounded(e.OpDevice)}
	} else if e, ok := errors.AsType[*relay.BadOpError](err); ok {
		f.BadOp = &badOpFacts{Device: e.Device, Seq: e.Seq, Why: wire.Bounded(e.Err.Error())}
		if clock, ok := errors.AsType[*oplog.ClockError](e.Err); ok {
			f.BadOp.Clock = (*clockFacts)(clock)
		}
	} else if e, ok := errors.AsType[*relay.SizeError](err); ok {
		f.Size = (*sizeFacts)(e)
	} else if e, ok := errors.AsType[*relay.FullError](err); ok {
		f.Full = (*fullFacts)(e)
	} else if e, ok := errors.AsType[*relay.FrontierTruncatedError](err); ok {
		f.Truncated = (*truncFacts)(e)
	} else if e, ok := errors.AsType[*relay.BehindError](err); ok {
		f.Behind = (*behindFacts)(e)
	} else if e, ok := errors.AsType[*relay.ContradictionError](err); ok {
		f.Contradiction = (*contraFacts)(e)
	} else if e, ok := errors.AsType[*relay.NotStableError](err); ok {
		f.NotStable = &unstableFacts{e.Device, reason(e.Reason)}
	}
}

// error is the typed error of the named answer; nil if the facts are missing. What cannot be is an error of its own.
func (f *facts) error(name string) (typed, impossible error) {
	switch {
	case name == "fork" && f.Fork != nil:
		if !f.Fork.Existing.Valid() || !f.Fork.Got.Valid() || f.Fork.Existing == f.Fork.Got {
			return nil, errors.New("a fork of no two ops")
		}
		return (*relay.ForkError)(f.Fork), relay.CheckDevice(f.Fork.Device)
	case name == "closed" && f.Closed != nil:
		return (*relay.ClosedError)(f.Closed), relay.CheckFrontier(oplog.Frontier{f.Closed.Device: f.Closed.Last})
	case name == "gap" && f.Gap != nil:
		return (*relay.GapError)(f.Gap), errors.Join(relay.CheckDevice(f.Gap.Device), checkSeq(f.Gap.Expected), checkSeq(f.Gap.Found))
	case name == "foreign" && f.Foreign != nil:
		return (*relay.ForeignError)(f.Foreign), relay.CheckDevice(f.Foreign.Device)
	case name == "bad-op" && f.BadOp != nil:
		e := &relay.BadOpError{Device: f.BadOp.Device, Seq: f.BadOp.Seq, Err: errors.New(wire.Bounded(f.BadOp.Why))}
		if f.BadOp.Clock != nil {
			e.Err = (*oplog.ClockError)(f.BadOp.Clock)
		}
		return e, errors.Join(relay.CheckDevice(e.Device), checkSeq(e.Seq))
	case name == "size" && f.Size != nil:
		f.Size.What = wire.Bounded(f.Size.What)
		return (*relay.SizeError)(f.Size), nil
	case name == "full" && f.Full != nil:
		return (*relay.FullError)(f.Full), nil
	case name == "frontier-truncated" && f.Truncated != nil:
		return (*relay.FrontierTruncatedError)(f.Truncated), errors.Join(relay.CheckDevice(f.Truncated.Device), relay.CheckFrontier(f.Truncated.Floor))
	case name == "behind" && f.Behind != nil:
		return (*relay.BehindError)(f.Behind), nil
	case name == "contradiction" && f.Contradiction != nil:
		f.Contradiction.Why = wire.Bounded(f.Contradiction.Why)
		return (*relay.ContradictionError)(f.Contradiction), relay.CheckDevice(f.Contradiction.Device)
	case name == "not-stable" && f.NotStable != nil:
		return &relay.NotStableError{Device: f.NotStable.Device, Reason: relay.Reason(f.NotStable.Reason)}, errors.Join(relay.CheckDevice(f.NotStable.Device), f.NotStable.Reason.check())
	}
	return nil, nil
}

func checkSeq(seq uint64) error {
	if seq > oplog.MaxInt+1 {
		return fmt.Errorf("seq %d", seq)
	}
	return nil
}

// refuse makes a problem of an error of the relay that is served. pushed is nil but for a push.
func refuse(err error, pushed *relay.Pushed) *wire.Problem {
	p := refusals.Problem(prefix, err, err.Error())
	if pushed != nil && pushed.Accepted > 0 {
		p.Executed = wire.Maybe
	}
	var f facts
	f.put(err)
	if pushed != nil {
		f.Pushed = (*pushedAnswer)(pushed)
	}
	p.Facts = wire.Facts(f)
	return p
}

// A refusal is what the server refused: the error that its relay gave.
type refusal struct {
	wire.Said
	pushed relay.Pushed
	typed  error
}

// translate makes the error of a call into one of package relay.
func (r *Relay) translate(verb string, err error) error {
	var p *wire.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return r.refused(verb, p)
	case errors.Is(err, wire.ErrUnsent):
		return fmt.Errorf("%w: %w", relay.ErrNotSent, err)
	}
	return fmt.Errorf("%w: %w", relay.ErrIndeterminate, err)
}

// refused reads a problem that answers the call.
func (r *Relay) refused(verb string, p *wire.Problem) error {
	text, err := r.c.Refused(verb, p, relay.ErrNotSent, relay.ErrInvalid)
	if err != nil {
		return err
	}
	name, ours := strings.CutPrefix(p.Name(), prefix)
	var f facts
	if !ours || p.Facts == nil {
		return r.impossible(verb, fmt.Errorf("a problem of another kind: %s", text))
	}
	if err := wire.Decode(p.Facts, &f); err != nil {
		return r.impossible(verb, err)
	}
	typed, err := f.error(name)
	if err != nil {
		return r.impossible(verb, err)
	}
	names := append([]string{name}, p.Is...)
	is, err := refusals.Errors(names...)
	if err != nil {
		return r.impossible(verb, fmt.Errorf("%w: %s", err, text))
	}
	for i, sentinel := range is {
		if final(sentinel) && !errors.Is(typed, sentinel) {
			return r.impossible(verb, fmt.Errorf("a %s without its facts: %s", names[i], text))
		}
	}
	e := &refusal{Said: wire.Said{Text: text, Is: is}}
	if typed != nil {
		e.typed, e.Is = typed, append(e.Is, typed)
	}
	if f.Pushed != nil {
		e.pushed = f.Pushed.pushed()
	}
	return e
}

// final reports whether a device gives its id up on this answer, so that it has to come with its facts.
func final(sentinel error) bool { return sentinel == relay.ErrFork || sentinel == relay.ErrClosed }

// fits checks that a refused push is about what was pushed.
func (e *refusal) fits(device string, ops []oplog.Op) error {
	counted := pushedAnswer(e.pushed)
	if err := counted.check(len(ops)); err != nil {
		return err
	}
	about := device
	switch typed := e.typed.(type) {
	case *relay.ForkError:
		pushed := func(op oplog.Op) bool {
			return op.Seq == typed.Seq && op.ID == typed.Got || op.Seq == typed.Seq+1 && op.Prev == typed.Got
		}
		if !slices.ContainsFunc(ops, pushed) {
			return fmt.Errorf("a fork off what was not pushed: %w", typed)
		}
		about = typed.Device
	case *relay.ClosedError:
		about = typed.Device
	case *relay.GapError:
		about = typed.Device
	case *relay.BadOpError:
		about = typed.Device
	}
	if about != device {
		return fmt.Errorf("a push of %s, and an answer about %s", device, about)
	}
	return nil
}
