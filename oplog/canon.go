package oplog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gowebpki/jcs"
)

// Canonical returns the RFC 8785 form of v: of the JSON text if v is a []byte or a json.RawMessage, else of what
// encoding/json makes of v.
//
// It refuses, with a [*CanonError] or [*SizeError], what readers could read differently or could not hold:
// duplicate keys, bad UTF-8 (also inside Go strings), lone surrogates, numbers whose magnitude is beyond 2^53-1,
// more than [MaxDepth] nested containers, more than [MaxPayload] bytes before or after. Fractions are allowed, in
// the shortest spelling of the nearest float64; who needs exact ones writes scaled integers or text. Unicode is
// never normalised.
func Canonical(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return canonicalText(v)
	case json.RawMessage:
		return canonicalText(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCanon, err)
	}
	if i := replacedUTF8(text); i >= 0 {
		return nil, &CanonError{Kind: ErrUTF8, Offset: -1, Detail: "in a Go string"}
	}
	return canonicalText(text)
}

// replacedUTF8 finds the escape that encoding/json writes for a byte that is not UTF-8. A genuine U+FFFD in a Go
// string is written as itself.
func replacedUTF8(text []byte) int {
	const mark = `\ufffd`
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(mark))
		if i < 0 {
			return -1
		}
		i += from
		before := len(text[:i]) - len(bytes.TrimRight(text[:i], `\`))
		if before%2 == 0 {
			return i
		}
		from = i + len(mark)
	}
}

func canonicalText(text []byte) ([]byte, error) {
	if len(text) > MaxPayload {
		return nil, &SizeError{What: "payload", Size: len(text), Max: MaxPayload}
	}
	if CheckCanonical(text) == nil {
		return bytes.Clone(text), nil
	}
	s := scanner{b: text}
	if err := s.document(); err != nil {
		return nil, err
	}
	out, err := jcs.Transform(text)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "Duplicate key"):
		return nil, &CanonError{Kind: ErrDuplicateKey, Offset: -1, Detail: strings.TrimPrefix(err.Error(), "Duplicate key: ")}
	case err != nil:
		return nil, &CanonError{Kind: ErrSyntax, Offset: -1, Detail: err.Error()}
	case len(out) > MaxPayload:
		return nil, &SizeError{What: "payload", Size: len(out), Max: MaxPayload}
	}
	return out, nil
}

// CheckCanonical returns nil exactly if text is a JSON text that [Canonical] accepts and gives back unchanged.
// It allocates nothing for ordinary payloads.
func CheckCanonical(text []byte) error {
	if len(text) > MaxPayload {
		return &SizeError{What: "payload", Size: len(text), Max: MaxPayload}
	}
	s := scanner{b: text, strict: true}
	return s.document()
}
