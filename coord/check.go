package coord

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/syncnode/syncnode/internal/ident"
)

// Limits of the free texts, in bytes.
const (
	MaxNote   = 128
	MaxBy     = 128
	MaxReason = 1024
	MaxResult = 1024
	MaxPage   = 1000 // entries on a page
)

// Every request is checked before anything is sent, by the implementation that is asked. The errors match
// ErrInvalid and name all that is wrong.

// Check reports what is wrong with the request.
func (r Request) Check() error {
	_, ttl := Granted(r.TTL)
	return invalid("request", ident.Check("agent", r.Agent), ident.Check("device", r.Device), ttl,
		number("floor", uint64(r.Floor)), text("note", r.Note, MaxNote))
}

// CheckClaim reports what is wrong with the arguments of Renew or Release. Epoch 0 is for Release alone.
func CheckClaim(agent, device string, epoch Epoch, ttl time.Duration) error {
	_, err := Granted(ttl)
	return invalid("claim", ident.Check("agent", agent), ident.Check("device", device), number("epoch", uint64(epoch)), err)
}

// CheckAgent reports whether agent is no legal id.
func CheckAgent(agent string) error { return invalid("agent", ident.Check("agent", agent)) }

// Check reports what is wrong with the decision.
func (t Theft) Check() error {
	return invalid("theft", t.Request.Check(), number("epoch", uint64(t.Epoch)), who(t.By, t.Reason))
}

// Check reports what is wrong with the gate.
func (g Gate) Check() error {
	errs := []error{who(g.By, g.Reason)}
	if g.ID != "" {
		errs = append(errs, nonce("gate", g.ID))
	}
	return invalid("gate", errs...)
}

// Check reports what is wrong with the question.
func (q Question) Check() error {
	errs := []error{run(q.Agent, q.Run)}
	for _, w := range q.Witnesses {
		errs = append(errs, run(w.Agent, w.Run))
	}
	return invalid("question", errs...)
}

// Check reports what is wrong with the request; for Start, the lease is that of no one and agent and
// device are those of the Request.
func (b Begin) Check() error {
	errs := []error{run(b.Lease.Agent, b.Run), ident.Check("device", b.Lease.Device), occurrence(b.Occurrence), digest(b.Input),
		nonce("attempt", b.Attempt), nonce("request", b.Request), number("epoch", uint64(b.Lease.Epoch)), b.At.check()}
	if b.Retry != "" {
		errs = append(errs, nonce("retry", b.Retry))
	}
	if b.Retry == b.Attempt && b.Retry != "" {
		errs = append(errs, errors.New("an attempt cannot retry itself"))
	}
	return invalid("begin", errs...)
}

// Check reports what is wrong with the outcome.
func (o Outcome) Check() error {
	a := o.Attempt
	errs := []error{run(o.Agent, o.Run), occurrence(o.Occurrence), digest(o.Input), nonce("attempt", a.ID),
		ident.Check("device", a.Device), number("epoch", uint64(a.Epoch)), a.At.check(),
		text("result", a.Result, MaxResult), text("by", a.By, MaxBy), text("reason", a.Reason, MaxReason), text("cause", a.Cause, MaxNote)}
	switch {
	case a.State == Void, a.State == Failed, a.State == Committed, a.State == Open && a.Abandoned:
	default:
		errs = append(errs, fmt.Errorf("an outcome cannot be %q", a.State))
	}
	return invalid("outcome", errs...)
}

// Check reports what is wrong with the decision of Resolve.
func (r Resolution) Check() error {
	var as error
	if r.As != Committed && r.As != Void {
		as = fmt.Errorf("an attempt is resolved as %s or %s, not %q", Committed, Void, r.As)
	}
	var from error
	switch r.From {
	case "", Open, Failed, Void:
	default:
		from = fmt.Errorf("a %q attempt cannot be resolved", r.From)
	}
	return invalid("resolution", run(r.Agent, r.Run), nonce("attempt", r.Attempt), as, from, who(r.By, r.Reason))
}

// CheckPermit reports what is wrong with the decision of Permit.
func (r Resolution) CheckPermit() error {
	return invalid("permission", run(r.Agent, r.Run), nonce("attempt", r.Attempt), who(r.By, r.Reason))
}

// Check reports what is wrong with the filter.
func (f Filter) Check() error {
	var errs []error
	if f.Agent != "" {
		errs = append(errs, ident.Check("agent", f.Agent))
	}
	if f.Device != "" {
		errs = append(errs, ident.Check("device", f.Device))
	}
	if f.Limit < 0 || f.Limit > MaxPage {
		errs = append(errs, fmt.Errorf("limit %d is not between 0 and %d", f.Limit, MaxPage))
	}
	if f.After != "" {
		agent, id, _ := strings.Cut(f.After, "/")
		errs = append(errs, run(agent, id))
	}
	return invalid("filter", errs...)
}

func (p Position) check() error {
	if (p.Next == 0) != (p.Head == "") {
		return fmt.Errorf("position %d has head %q", p.Next, p.Head)
	}
	return errors.Join(number("position", p.Next), text("head", p.Head, MaxNote))
}

func invalid(what string, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, what, err)
	}
	return nil
}

func run(agent, id string) error {
	return errors.Join(ident.Check("agent", agent), ident.Check("run", id))
}

func occurrence(s string) error {
	if s == "" {
		return nil
	}
	return ident.CheckOccurrence(s)
}

func who(by, reason string) error {
	errs := []error{text("by", by, MaxBy), text("reason", reason, MaxReason)}
	if by == "" {
		errs = append(errs, errors.New("who decides is missing"))
	}
	if reason == "" {
		errs = append(errs, errors.New("the reason is missing"))
	}
	return errors.Join(errs...)
}

func number(kind string, n uint64) error {
	if n > uint64(MaxEpoch) {
		return fmt.Errorf("%s %d is above %d", kind, n, MaxEpoch)
	}
	return nil
}

func text(kind, s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("%s is %d bytes long, at most %d are allowed", kind, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not valid UTF-8", kind)
	}
	return nil
}

func digest(s string) error {
	if s == "" || len(s) == 64 && lowerHex(s) {
		return nil
	}
	return fmt.Errorf("input digest must be 64 lower-case hex digits, not %.70q", s)
}

func nonce(kind, s string) error {
	if len(s) == 32 && lowerHex(s) {
		return nil
	}
	return fmt.Errorf("%s must be 32 lower-case hex digits, not %.40q", kind, s)
}

func lowerHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
