package seal

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
)

// redacted is how a Secret looks in every output.
const redacted = "[redacted]"

// A Secret holds the bytes of a key. Every way of printing or encoding one gives "[redacted]". The bytes are behind a
// function, since fmt calls no methods on what lies in an unexported field, and follows pointers there for some verbs.
type Secret struct{ reveal func() []byte }

func newSecret(b []byte) Secret {
	b = slices.Clone(b)
	return Secret{func() []byte { return b }}
}

func (s Secret) bytes() []byte {
	if s.reveal == nil {
		return nil
	}
	return s.reveal()
}

// String is "[redacted]".
func (Secret) String() string { return redacted }

// GoString is "[redacted]".
func (Secret) GoString() string { return redacted }

// Format writes "[redacted]", whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText gives "[redacted]", also to JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue is "[redacted]".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
