package remote

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/wire"
)

// ErrDenied: who asks may not. Nothing happened; it comes with coord.ErrNotSent.
var ErrDenied = wire.ErrDenied

// A FormatError says that the two ends speak no common format: the older one has to be upgraded. Spoken is what this
// release speaks, Offered what the server does. Nothing happened; it also matches coord.ErrNotSent.
type FormatError = wire.FormatError

// prefix is before the names of refusals in problems.
const prefix = "coord-"

// refusals are all answers that a caller can act on, the most telling first.
var refusals = wire.Refusals{
	{Name: "held", Err: coord.ErrHeld, Status: http.StatusConflict, Title: "Held"},
	{Name: "lost", Err: coord.ErrLost, Status: http.StatusConflict, Title: "Lease lost"},
	{Name: "floor", Err: coord.ErrFloor, Status: http.StatusUnprocessableEntity, Title: "Floor refused"},
	{Name: "input", Err: coord.ErrInput, Status: http.StatusUnprocessableEntity, Title: "Another input was recorded"},
	{Name: "committed", Err: coord.ErrCommitted, Status: http.StatusConflict, Title: "Already committed"},
	{Name: "in-doubt", Err: coord.ErrInDoubt, Status: http.StatusConflict, Title: "In doubt"},
	{Name: "attempt-closed", Err: coord.ErrClosed, Status: http.StatusConflict, Title: "The attempt is closed"},
	{Name: "not-held", Err: coord.ErrNotHeld, Status: http.StatusPreconditionFailed, Title: "Not the holder"},
	{Name: "stale-epoch", Err: coord.ErrStale, Status: http.StatusPreconditionFailed, Title: "Stale epoch"},
	{Name: "recovery", Err: coord.ErrRecovery, Status: http.StatusConflict, Title: "The recovery gate is set"},
	{Name: "paused", Err: coord.ErrPaused, Status: http.StatusConflict, Title: "The agent is paused"},
	{Name: "in-progress", Err: coord.ErrInProgress, Status: http.StatusConflict, Title: "In progress"},
	{Name: "failed", Err: coord.ErrFailed, Status: http.StatusConflict, Title: "Failed before"},
	{Name: "moved", Err: coord.ErrMoved, Status: http.StatusConflict, Title: "The entry is not what was judged"},
	{Name: "not-found", Err: coord.ErrNotFound, Status: http.StatusNotFound, Title: "No such run"},
	{Name: "full", Err: coord.ErrFull, Status: http.StatusInsufficientStorage, Title: "The backend is out of space"},
	{Name: "generation", Err: coord.ErrGeneration, Status: http.StatusConflict, Title: "Another generation"},
	{Name: "unverifiable", Err: coord.ErrUnverifiable, Status: http.StatusServiceUnavailable, Title: "Cannot be verified"},
	{Name: "invalid", Err: coord.ErrInvalid, Status: http.StatusBadRequest, Title: "Invalid"},
	{Name: "not-sent", Err: coord.ErrNotSent, Status: http.StatusServiceUnavailable, Title: "Nothing happened"},
	{Name: "indeterminate", Err: coord.ErrIndeterminate, Status: http.StatusServiceUnavailable, Title: "Outcome unknown"},
}

// nameNoSession is the problem of a session that is not known.
const nameNoSession = "no-such-session"

// facts are what the errors carry: of the typed ones one field each.
type facts struct {
	Settled bool          `json:"settled,omitempty"` // of a numbered request: it will never be carried out again
	Held    *lease        `json:"held,omitempty"`
	Lost    *lostFacts    `json:"lost,omitempty"`
	Floor   *floorFacts   `json:"floor,omitempty"`
	Input   *inputFacts   `json:"input,omitempty"`
	Verdict *verdictFacts `json:"verdict,omitempty"`
	Holder  *holderFacts  `json:"holder,omitempty"`
	Gate    *gateFacts    `json:"gate,omitempty"`
	Moved   *view         `json:"moved,omitempty"`
}

type (
	lostFacts struct {
		Agent   string      `json:"agent"`
		Claimed coord.Epoch `json:"claimed"`
		Current coord.Epoch `json:"current"`
		Holder  string      `json:"holder"`
	}
	floorFacts struct {
		Agent  string      `json:"agent"`
		Floor  coord.Epoch `json:"floor"`
		Stored coord.Epoch `json:"stored"`
	}
	inputFacts struct {
		Run      string `json:"run"`
		Recorded string `json:"recorded"`
		Given    string `json:"given"`
	}
	verdictFacts struct {
		Run      string        `json:"run"`
		Attempt  coord.Attempt `json:"attempt"`
		Packed   bool          `json:"packed,omitempty"`
		Disputed bool          `json:"disputed,omitempty"`
	}
	holderFacts struct {
		Agent   string      `json:"agent"`
		Claimed coord.Epoch `json:"claimed"`
		Holder  lease       `json:"holder"`
	}
	gateFacts struct {
		Agent string     `json:"agent"`
		Gate  coord.Gate `json:"gate"`
	}
)

// A verdict is an error as it crosses the wire: in a problem, and within the answer of complete.
type verdict struct {
	Name   string   `json:"name"`
	Is     []string `json:"is,omitempty"`
	Detail string   `json:"detail"`
	Facts  facts    `json:"facts"`
}

// verdictOf spells an error.
func verdictOf(err error) *verdict {
	if err == nil {
		return nil
	}
	first, also := refusals.Of(err)
	v := &verdict{Name: first.Name, Is: also, Detail: wire.Bounded(err.Error())}
	v.Facts.put(err)
	return v
}

// put fills in f what err carries.
func (f *facts) put(err error) {
	if e, ok := errors.AsType[*coord.HeldError](err); ok {
		l := leaseOf(e.Holder, time.Time{})
		f.Held = &l
	} else if e, ok := errors.AsType[*coord.LostError](err); ok {
		f.Lost = (*lostFacts)(e)
	} else if e, ok := errors.AsType[*coord.FloorError](err); ok {
		f.Floor = (*floorFacts)(e)
	} else if e, ok := errors.AsType[*coord.InputError](err); ok {
		f.Input = (*inputFacts)(e)
	} else if e, ok := errors.AsType[*coord.VerdictError](err); ok {
		f.Verdict = &verdictFacts{e.Run, e.Attempt, e.Packed, e.Disputed}
	} else if e, ok := errors.AsType[*coord.HolderError](err); ok {
		f.Holder = &holderFacts{e.Agent, e.Claimed, leaseOf(e.Holder, time.Time{})}
	} else if e, ok := errors.AsType[*coord.GateError](err); ok {
		f.Gate = &gateFacts{e.Agent, e.Gate}
	} else if e, ok := errors.AsType[*coord.MovedError](err); ok {
		v := viewOf(e.View)
		f.Moved = &v
	}
}

// error is the typed error of the named answer; nil if the facts are missing. What cannot be is an error of its own.
func (f *facts) error(name string, kind error) (typed, impossible error) {
	switch name {
	case "held":
		if f.Held == nil {
			return nil, errors.New("held by nobody")
		}
		return &coord.HeldError{Holder: f.Held.lease(time.Time{})}, f.Held.check(f.Held.Agent)
	case "lost":
		if f.Lost != nil {
			return (*coord.LostError)(f.Lost), coord.CheckAgent(f.Lost.Agent)
		}
	case "floor":
		if f.Floor != nil {
			return (*coord.FloorError)(f.Floor), nil
		}
	case "input":
		if f.Input != nil {
			return (*coord.InputError)(f.Input), nil
		}
	case "committed", "in-doubt", "attempt-closed", "in-progress", "failed":
		if v := f.Verdict; v != nil {
			return &coord.VerdictError{Kind: kind, Run: v.Run, Attempt: v.Attempt, Packed: v.Packed, Disputed: v.Disputed}, nil
		}
	case "not-held", "stale-epoch":
		if h := f.Holder; h != nil {
			e := &coord.HolderError{Kind: kind, Agent: h.Agent, Claimed: h.Claimed, Holder: h.Holder.lease(time.Time{})}
			return e, coord.CheckAgent(h.Agent)
		}
	case "recovery", "paused":
		if g := f.Gate; g != nil {
			return &coord.GateError{Kind: kind, Agent: g.Agent, Gate: g.Gate}, nil
		}
	case "moved":
		if f.Moved == nil { // a gate that is another
			return nil, nil
		}
		return &coord.MovedError{View: f.Moved.view()}, f.Moved.check("", "")
	}
	return nil, nil
}

// error is the error that was spelled. text is what it says.
func (v *verdict) error(text string) (error, error) {
	is, err := refusals.Errors(append([]string{v.Name}, v.Is...)...)
	if err != nil {
		return nil, err
	}
	e := &wire.Said{Text: text, Is: is}
	typed, err := v.Facts.error(v.Name, is[0])
	if err != nil {
		return nil, err
	}
	if typed != nil {
		e.Is = append(e.Is, typed)
	}
	if v.Facts.Settled {
		e.Is = append(e.Is, errSettled)
	}
	return e, nil
}

// refuse makes a problem of an error of the coordinator that is served.
func refuse(err error) *wire.Problem { return refuseNumbered(err, false) }

func refuseNumbered(err error, settled bool) *wire.Problem {
	v := verdictOf(err)
	v.Facts.Settled = settled
	p := refusals.Problem(prefix, err, v.Detail)
	p.Facts = wire.Facts(v.Facts)
	return p
}

// translate makes the error of a call into one of package coord.
func (c *Coordinator) translate(verb string, reads bool, err error) error {
	var p *wire.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		err = c.refused(verb, p)
		if !errors.Is(err, wire.ErrUnknown) {
			return err
		}
	case errors.Is(err, wire.ErrUnsent):
		return fmt.Errorf("%w: %w", coord.ErrNotSent, err)
	}
	if reads { // which does nothing
		return fmt.Errorf("%w: %w", coord.ErrNotSent, err)
	}
	return fmt.Errorf("%w: %w", coord.ErrIndeterminate, err)
}

// refused reads a problem that answers the call. One that cannot be matches wire.ErrUnknown.
func (c *Coordinator) refused(verb string, p *wire.Problem) error {
	text, err := c.c.Refused(verb, p, coord.ErrNotSent, coord.ErrInvalid)
	switch {
	case err != nil:
		return err
	case p.Name() == nameNoSession:
		return &wire.Said{Text: text, Is: []error{errNoSession, coord.ErrNotSent}}
	}
	name, ours := strings.CutPrefix(p.Name(), prefix)
	v := verdict{Name: name, Is: p.Is}
	err = errors.New("a problem of another kind")
	if ours && p.Facts != nil {
		err = wire.Decode(p.Facts, &v.Facts)
	}
	if err == nil {
		var said error
		if said, err = v.error(text); err == nil {
			return said
		}
	}
	return fmt.Errorf("%w: %v: %s", wire.ErrUnknown, err, text)
}
