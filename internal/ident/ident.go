// Package ident spells the names that every part of syncnode agrees on: ids of agents, devices and
// namespaces, occurrences, and the run id derived from them.
//
// # Guarantees
//
// Check is the only rule for an id; whatever crosses an edge (flag, file, request, key, op) goes through it.
// RunID is a pure function: two hosts that name the same occurrence of the same agent in the same namespace
// get the same run id, in every release; the bytes hashed are versioned and held by a golden file.
//
// # Failure
//
// Errors match [ErrInvalid] and say which rule was broken. They quote at most 64 bytes of what was given.
//
// # Concurrency
//
// All functions are pure.
package ident

import (
	"errors"
	"fmt"
)

// MaxLen is the greatest length of an id in bytes.
const MaxLen = 128

// ErrInvalid means the text is not a legal id or occurrence. The caller must choose another text.
var ErrInvalid = errors.New("invalid name")

// An Error says what was wrong with which text. It matches [ErrInvalid].
type Error struct {
	Kind   string // "agent", "device", "namespace", "occurrence", …
	Text   string // as given; may be hostile
	Reason string
}

func (e *Error) Error() string {
	const most = 64
	if len(e.Text) > most {
		return fmt.Sprintf("%s %q…: %s", e.Kind, e.Text[:most], e.Reason)
	}
	return fmt.Sprintf("%s %q: %s", e.Kind, e.Text, e.Reason)
}

// Is reports whether target is ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// Check returns nil if s is a legal id, [A-Za-z0-9][A-Za-z0-9._-]{0,127}, and an [*Error] naming kind if not.
// A legal id is safe as a path element, as part of a key, and inside JSON without escaping.
func Check(kind, s string) error {
	switch {
	case s == "":
		return &Error{kind, s, "must not be empty"}
	case len(s) > MaxLen:
		return &Error{kind, s, fmt.Sprintf("is %d bytes long, at most %d are allowed", len(s), MaxLen)}
	case !alnum(s[0]):
		return &Error{kind, s, "must begin with a letter A-Z, a-z or a digit"}
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !alnum(c) && c != '.' && c != '_' && c != '-' {
			return &Error{kind, s, fmt.Sprintf("has %q at byte %d; allowed are A-Z a-z 0-9 . _ -", s[i:i+1], i)}
		}
	}
	return nil
}

func alnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
