package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// An Error is one mistake in a file. It matches [ErrInvalid].
type Error struct {
	File         string
	Line, Column int    // from 1; 0 if it is about the whole
	Key          string // such as agents.report.timeout; empty if it is about the whole
	Reason       string
	Hint         string // what to write instead; may be empty
}

func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&s, ":%d:%d", e.Line, e.Column)
	}
	if e.Key != "" {
		s.WriteString(": " + e.Key)
	}
	s.WriteString(": " + e.Reason)
	if e.Hint != "" {
		s.WriteString("; " + e.Hint)
	}
	return s.String()
}

// Is reports whether target is ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// most is how many mistakes are told. Then reading stops: a hostile file is not worth more.
const most = 100

// mistakes are those of one file.
type mistakes struct {
	file  string
	found []*Error
}

func (m *mistakes) full() bool { return len(m.found) >= most }

func (m *mistakes) add(line, column int, key, reason, hint string) {
	if m.full() {
		return
	}
	m.found = append(m.found, &Error{m.file, line, column, key, reason, hint})
}

// err is all of them as one error, in the order of the file, or nil.
func (m *mistakes) err() error {
	if len(m.found) == 0 {
		return nil
	}
	slices.SortStableFunc(m.found, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	all := &multierror.Error{ErrorFormat: func(errs []error) string {
		lines := make([]string, 0, len(errs)+1)
		for _, e := range errs {
			lines = append(lines, e.Error())
		}
		if m.full() {
			lines = append(lines, fmt.Sprintf("%s: after %d mistakes the rest was not looked at", m.file, most))
		}
		return strings.Join(lines, "\n")
	}}
	for _, e := range m.found {
		all = multierror.Append(all, e)
	}
	return all
}

// short is text of a file as it may be quoted: it may be hostile, and long.
func short(s string) string {
	const most = 64
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%q…", string(r[:most]))
	}
	return fmt.Sprintf("%q", s)
}
