// Package wire carries one call over HTTP: a question in JSON goes there, and an answer or a problem comes back.
//
// # Guarantees
//
// An answer is given to the caller only if it is the answer to this very call: it has the media type, the format
// number and the call's own id, every field of it is known, and nothing follows it that was not expected. Both sides
// bound what they read before they read it. Whatever else comes back, from another server, from a proxy, cut off or
// too long, is [ErrUnknown], however it looks.
//
// # Failure
//
// A [*Problem] is the server's no. [ErrUnsent] is given only where it is proved that no byte of the question reached
// a server, or where what stands before the server said in a problem of its own that nothing was executed. Everything
// else is ErrUnknown: it may have been carried out, or may still be.
//
// # Concurrency
//
// A Client and a Handler may be used by several goroutines at once.
//
// docs/formats/remote.md describes the bytes.
package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Media types.
const (
	// MediaType is that of every question and every answer: one line of JSON, and what follows it.
	MediaType = "application/vnd.syncnode+jsonl"
	// ProblemType is that of every refusal (RFC 9457).
	ProblemType = "application/problem+json"
)

// maxProblem bounds a problem; what is longer was not made by this package.
const maxProblem = 1 << 20

// How a call ended, if not with an answer or a *Problem.
var (
	// ErrUnsent: nothing happened, and nothing will.
	ErrUnsent = errors.New("not sent")
	// ErrDenied: who asks may not. It comes with ErrUnsent.
	ErrDenied = errors.New("not allowed")
	// ErrUnknown: it may have happened, or may still.
	ErrUnknown = errors.New("no answer that can be relied on")
)

// errBody is in every error about bytes that are not what they should be.
var errBody = errors.New("malformed")

// An envelope is the first line of a question and of an answer.
type envelope struct {
	V      int             `json:"v"`
	ID     string          `json:"id"` // 32 lower-case hex digits, drawn for the call
	Ask    json.RawMessage `json:"ask,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

// Executed says of a refused call whether anything was done.
type Executed string

const (
	No    Executed = "no"
	Maybe Executed = "maybe"
	Yes   Executed = "yes"
)

// The names of problems that every Handler has.
const (
	nameDenied    = "denied"
	nameFormat    = "format" // its V is what the server speaks
	nameMalformed = "malformed"
)

// typePrefix is before the name in a problem's type.
const typePrefix = "urn:syncnode:problem:"

// A Problem is a refusal. It is an error whose text is Detail.
type Problem struct {
	Type     string   `json:"type"` // "urn:syncnode:problem:" and the name of its kind
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Executed Executed `json:"executed,omitempty"`

	V  int    `json:"v,omitempty"`
	ID string `json:"id,omitempty"` // of the call
	// Is names further answers that this one is at the same time.
	Is []string `json:"is,omitempty"`
	// Facts are what the kind says more.
	Facts json.RawMessage `json:"facts,omitempty"`
	// Formats are what the server speaks, in a problem about the format.
	Formats []int `json:"formats,omitempty"`
}

func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// NewProblem makes a problem of this kind.
func NewProblem(status int, name, title, detail string, executed Executed) *Problem {
	return &Problem{Type: typePrefix + name, Title: title, Status: status, Detail: clip(detail), Executed: executed}
}

// Name is the kind of the problem; empty if it is none of ours.
func (p *Problem) Name() string {
	if len(p.Type) > len(typePrefix) && p.Type[:len(typePrefix)] == typePrefix {
		return p.Type[len(typePrefix):]
	}
	return ""
}

// clip bounds a text for people.
func clip(s string) string {
	const most = 4096
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// Decode reads one JSON value strictly: an unknown field, a wrong type or bytes after it are errors.
func Decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errBody, err)
	}
	if _, more := d.Token(); more != io.EOF {
		return fmt.Errorf("%w: bytes after the value", errBody)
	}
	return nil
}

// encode spells a value on one line, its newline included. Texts keep their bytes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// WriteLine writes a value and a newline.
func WriteLine(w io.Writer, v any) error {
	line, err := encode(v)
	if err != nil {
		return err
	}
	_, err = w.Write(line)
	return err
}

// raw is encode without the newline.
func raw(v any) (json.RawMessage, error) {
	b, err := encode(v)
	return bytes.TrimSuffix(b, []byte("\n")), err
}

// Facts spells what a problem says more. It panics if v cannot be spelled, which is a mistake of ours.
func Facts(v any) json.RawMessage {
	b, err := raw(v)
	if err != nil {
		panic(fmt.Sprintf("wire: %T: %v", v, err))
	}
	return b
}

// A Tail is what follows the first line: read it to its end.
type Tail struct {
	r    *bufio.Reader
	left int64 // bytes that may still be read
}

// errLong means that more follows than may.
var errLong = fmt.Errorf("%w: longer than allowed", errBody)

// Line reads a line of at most most bytes, without its newline. A line that does not end is an error. The bytes are
// the caller's until the next call.
func (t *Tail) Line(most int) ([]byte, error) {
	line, err := readLine(t.r, min(int64(most), t.left))
	t.left -= int64(len(line)) + 1
	return line, err
}

// Bytes reads exactly n bytes.
func (t *Tail) Bytes(n int) ([]byte, error) {
	if int64(n) > t.left {
		return nil, errLong
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(t.r, b); err != nil {
		return nil, fmt.Errorf("%w: it ends too early: %w", errBody, err)
	}
	t.left -= int64(n)
	return b, nil
}

// end checks that nothing more follows.
func (t *Tail) end() error {
	switch _, err := t.r.ReadByte(); {
	case err == io.EOF:
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: bytes after the end", errBody)
}

// readLine reads up to a newline, which counts, and fails if there is none within most bytes and one.
func readLine(r *bufio.Reader, most int64) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if int64(len(line)+len(part)) > most+1 {
			return nil, errLong
		}
		switch {
		case err == nil && line == nil:
			return part[:len(part)-1], nil
		case err == nil:
			line = append(line, part...)
			return line[:len(line)-1], nil
		case err == bufio.ErrBufferFull:
			line = append(line, part...)
		case err == io.EOF:
			return nil, fmt.Errorf("%w: it ends too early", errBody)
		default:
			return nil, fmt.Errorf("%w: it ends too early: %w", errBody, err)
		}
	}
}

func isID(s string) bool {
	if len(s) != 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// A Said is an error in the words of the server that matches what the server's own error matched.
type Said struct {
	Text string
	Is   []error // sentinels and typed errors
}

func (e *Said) Error() string   { return e.Text }
func (e *Said) Unwrap() []error { return e.Is }

// Bounded is a text of others, cut to what a message can bear.
func Bounded(s string) string {
	const most = 1000
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
