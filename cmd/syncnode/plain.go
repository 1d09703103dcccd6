package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/syncnode/syncnode/internal/telling"
)

// plain is s as it may be shown to a person: on one line, and unable to move the cursor, clear the screen or turn the
// order of what is read. Reasons, names and notes come from others, and from whatever wrote the ledger; a tab stays.
func plain(s string) string {
	if !strings.ContainsFunc(s, misleads) {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if misleads(r) {
			fmt.Fprintf(&out, "\\u%04x", r)
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// told is a message as it may be shown.
func told(message string) string { return plain(telling.Text(message)) }

func misleads(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
}
