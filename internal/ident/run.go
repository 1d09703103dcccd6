package ident

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxOccurrenceKey is the greatest length of a caller's occurrence text in bytes.
const MaxOccurrenceKey = 255

const (
	runFormat = "syncnode/run/v1"
	runPrefix = "r1-"
	runHash   = 52 // base32 of 32 bytes without padding

	keyPrefix = "key:"
	atPrefix  = "at:"
)

var runText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// RunID is the name of one occurrence of one agent: "r1-" and 52 characters of lower-case base32, 55 in all.
// It is the SHA-256 of four fields, each preceded by its length as 8 bytes big-endian: the text
// "syncnode/run/v1", the namespace, the agent, and the occurrence as [KeyOccurrence] or [AtOccurrence] gives it.
// The arguments must have passed [Check] and [CheckOccurrence].
func RunID(namespace, agent, occurrence string) string {
	var b []byte
	for _, field := range [...]string{runFormat, namespace, agent, occurrence} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(field)))
		b = append(b, field...)
	}
	sum := sha256.Sum256(b)
	return runPrefix + runText.EncodeToString(sum[:])
}

// CheckRunID returns nil if s has the form of a run id.
func CheckRunID(s string) error {
	hash, ok := strings.CutPrefix(s, runPrefix)
	if !ok || len(hash) != runHash || strings.Trim(hash, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return &Error{"run id", s, `must be "r1-" and 52 characters a-z 2-7`}
	}
	return nil
}

// KeyOccurrence is the occurrence named by a caller's own text: "key:" and the text, which is
// 1 to 255 bytes of UTF-8 without control characters.
func KeyOccurrence(text string) (string, error) {
	switch {
	case text == "":
		return "", &Error{"occurrence", text, "must not be empty"}
	case len(text) > MaxOccurrenceKey:
		return "", &Error{"occurrence", text, "is longer than 255 bytes"}
	case !utf8.ValidString(text):
		return "", &Error{"occurrence", text, "is not valid UTF-8"}
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		return "", &Error{"occurrence", text, "has a control character"}
	}
	return keyPrefix + text, nil
}

// AtOccurrence is the occurrence named by an instant: "at:" and the instant in UTC as RFC 3339, with a
// fraction only if it has one. The zone that t is given in makes no difference.
func AtOccurrence(t time.Time) string {
	return atPrefix + t.UTC().Format(time.RFC3339Nano)
}

// CheckOccurrence returns nil if s is what KeyOccurrence or AtOccurrence gives.
func CheckOccurrence(s string) error {
	if text, ok := strings.CutPrefix(s, keyPrefix); ok {
		_, err := KeyOccurrence(text)
		return err
	}
	if text, ok := strings.CutPrefix(s, atPrefix); ok {
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil && AtOccurrence(t) == s {
			return nil
		}
		return &Error{"occurrence", s, "is not an RFC 3339 instant in UTC in its shortest form"}
	}
	return &Error{"occurrence", s, `must begin with "key:" or "at:"`}
}

// OccurrenceText is what a person calls the occurrence: the caller's text, or the RFC 3339 instant.
func OccurrenceText(occurrence string) string {
	if text, ok := strings.CutPrefix(occurrence, keyPrefix); ok {
		return text
	}
	return strings.TrimPrefix(occurrence, atPrefix)
}
