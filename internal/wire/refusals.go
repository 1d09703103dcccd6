package wire

import (
	"errors"
	"fmt"
	"slices"
)

// A FormatError says that the two ends speak no common format: the older one has to be upgraded. Nothing happened and
// nothing was run; it matches NotSent.
type FormatError struct {
	Spoken  int   // by this release
	Offered []int // by the server
	NotSent error // the sentinel of the package that called, for what never happened
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("the server speaks the formats %v and this release speaks %d, nothing happened and nothing was run: upgrade the older of the two", e.Offered, e.Spoken)
}

func (e *FormatError) Unwrap() error { return e.NotSent }

// A Refusal is a no of the contract that is served: the sentinel that a caller can act on, and how it crosses the wire.
type Refusal struct {
	Name   string
	Err    error
	Status int
	Title  string
}

// Refusals are all that a contract has, the most telling first: the first that an error matches names its problem. The
// last is that of an outcome that is not known. There is at least one.
type Refusals []Refusal

func (rs Refusals) unknown() Refusal { return rs[len(rs)-1] }

// Of gives the first refusal that err matches, and the names of the others. An error that matches none does not say
// whether anything happened: it is the last refusal.
func (rs Refusals) Of(err error) (first Refusal, also []string) {
	for _, r := range rs {
		switch {
		case !errors.Is(err, r.Err):
		case first.Err == nil:
			first = r
		default:
			also = append(also, r.Name)
		}
	}
	if first.Err == nil {
		first = rs.unknown()
	}
	return first, also
}

// Problem makes a problem of an error of the contract; prefix is before the name in its type. Nothing was done, unless
// err says that it may have been.
func (rs Refusals) Problem(prefix string, err error, detail string) *Problem {
	first, also := rs.Of(err)
	executed := No
	if unknown := rs.unknown().Name; first.Name == unknown || slices.Contains(also, unknown) {
		executed = Maybe
	}
	p := NewProblem(first.Status, prefix+first.Name, first.Title, detail, executed)
	p.Is = also
	return p
}

// Errors are the sentinels with these names. It fails if one is not in the table.
func (rs Refusals) Errors(names ...string) ([]error, error) {
	var errs []error
	for _, n := range names {
		i := slices.IndexFunc(rs, func(r Refusal) bool { return r.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("an answer of another kind, %.40q", n)
		}
		errs = append(errs, rs[i].Err)
	}
	return errs, nil
}

// Refused gives what p says of the call, and its error if it is a problem that every [Handler] has, whatever it serves:
// who asks may not, another format is spoken, or the question cannot be read; else nil. notSent and invalid are the
// sentinels of the package that called.
func (c *Client) Refused(verb string, p *Problem, notSent, invalid error) (text string, err error) {
	text = fmt.Sprintf("%s at %s: %s", verb, c.Place(), Bounded(p.Error()))
	switch p.Name() {
	case nameDenied:
		err = &Said{Text: text, Is: []error{ErrDenied, notSent}}
	case nameFormat:
		err = fmt.Errorf("%s at %s: %w", verb, c.Place(), &FormatError{Spoken: c.cfg.Format, Offered: p.Formats, NotSent: notSent})
	case nameMalformed:
		err = &Said{Text: text, Is: []error{invalid}}
	}
	return text, err
}
