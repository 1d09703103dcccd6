package fold

import (
	"bytes"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// maxShapes bounds what a hostile author can make the table of shapes grow to; payloads beyond it are kept as they are.
const maxShapes = 4096

// A shape is what the payloads of many intents have in common. What is left of each is the values of its fields.
type shape struct {
	text   string // its name in the table
	raw    bool   // the payload is kept as it is
	fields []field
}

type field struct {
	key  string
	kind byte
	size int    // of a kindHex, in bytes
	text string // of a kindLiteral, as spelled
}

// How the value of a field is kept.
const (
	kindLiteral = 'l' // in the shape
	kindPrev    = 'p' // as in the slot before
	kindAgent   = 'a' // the agent's name
	kindRun     = 'r' // the run's id
	kindUint    = 'u' // an integer
	kindHex     = 'h' // lower-case hex
	kindText    = 's' // text without escapes
	kindSecond  = 't' // an instant in whole seconds, as the distance from the stamp
	kindInstant = 'n' // an instant in nanoseconds, the same
	kindAt      = 'o' // "at:" and an instant in whole seconds
)

// shapes is the table of shapes of one state.
type shapes struct {
	byText map[string]int
	all    []*shape
}

// A member of an object, as spelled.
type member struct{ key, value string }

// A setting is what values may refer to.
type setting struct {
	agent, run string
	wallMS     int64
	prev       []member // of the slot before
}

// split takes a plain object apart: no nesting, no escapes, keys of lower-case letters and underscores. It reports
// false for anything else.
func split(dst []member, payload string) ([]member, bool) {
	rest, ok := strings.CutPrefix(payload, `{"`)
	for ok {
		n := strings.IndexByte(rest, '"')
		if n <= 0 || strings.Trim(rest[:n], "abcdefghijklmnopqrstuvwxyz_") != "" || !strings.HasPrefix(rest[n:], `":`) {
			return dst, false
		}
		key := rest[:n]
		rest = rest[n+2:]
		end := valueEnd(rest)
		if end <= 0 {
			return dst, false
		}
		dst = append(dst, member{key, rest[:end]})
		rest = rest[end:]
		if rest == "}" {
			return dst, true
		}
		rest, ok = strings.CutPrefix(rest, `,"`)
	}
	return dst, false
}

// valueEnd is the length of the simple value that text begins with, or 0.
func valueEnd(text string) int {
	if strings.HasPrefix(text, `"`) {
		n := strings.IndexAny(text[1:], `"\`)
		if n < 0 || text[1+n] == '\\' {
			return 0
		}
		return n + 2
	}
	n := strings.IndexAny(text, `,}`)
	if n <= 0 || strings.ContainsAny(text[:n], `{["`) {
		return 0
	}
	return n
}

// appendValue chooses how a value is kept. It appends the choice to name, which becomes the name of the shape, and
// what is not in the shape to buf.
func appendValue(name, buf []byte, m member, in *setting) (_, _ []byte) {
	name = append(append(name, m.key...), ' ')
	for _, p := range in.prev {
		if p == m {
			return append(name, kindPrev, '\n'), buf
		}
	}
	text, isText := strings.CutPrefix(m.value, `"`)
	text = strings.TrimSuffix(text, `"`)
	switch {
	case !isText && isInteger(m.value):
		n, _ := strconv.ParseUint(m.value, 10, 64)
		return append(name, kindUint, '\n'), binary.AppendUvarint(buf, n)
	case !isText || len(text) < 24 && (m.key == "status" || m.key == "cause" || m.key == "signal"):
		return append(append(append(name, kindLiteral), m.value...), '\n'), buf
	case text == in.agent:
		return append(name, kindAgent, '\n'), buf
	case text == in.run:
		return append(name, kindRun, '\n'), buf
	case isHex(text):
		buf, _ = hex.AppendDecode(buf, []byte(text))
		return append(strconv.AppendInt(append(name, kindHex), int64(len(text)/2), 10), '\n'), buf
	}
	if kind, n, ok := readInstant(text, in.wallMS); ok {
		return append(name, kind, '\n'), binary.AppendVarint(buf, n)
	}
	buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	return append(name, kindText, '\n'), buf
}

func isInteger(s string) bool {
	return len(s) <= 16 && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

func isHex(s string) bool {
	return len(s)%2 == 0 && len(s) >= 8 && len(s) <= 128 && strings.Trim(s, "0123456789abcdef") == ""
}

// readInstant reads an instant that is spelled as we spell it, as its distance from a stamp.
func readInstant(text string, wallMS int64) (kind byte, n int64, ok bool) {
	plain, at := strings.CutPrefix(text, "at:")
	if len(plain) < len("2006-01-02T15:04:05Z") || plain[4] != '-' || plain[len(plain)-1] != 'Z' {
		return 0, 0, false
	}
	t, err := time.Parse(time.RFC3339Nano, plain)
	if err != nil || t.Year() < 1970 || t.Year() > 2200 || wallMS > 1<<43 || t.Format(time.RFC3339Nano) != plain {
		return 0, 0, false
	}
	switch whole := t.Nanosecond() == 0; {
	case at && whole:
		return kindAt, t.Unix() - wallMS/1000, true
	case at:
		return 0, 0, false
	case whole:
		return kindSecond, t.Unix() - wallMS/1000, true
	}
	return kindInstant, t.UnixNano() - wallMS*1e6, true
}

// intern gives the number of the shape of that name, false if the table is full.
func (s *shapes) intern(name []byte) (int, bool) {
	if i, ok := s.byText[string(name)]; ok {
		return i, true
	}
	if len(s.all) >= maxShapes {
		return 0, false
	}
	if s.byText == nil {
		s.byText = map[string]int{}
	}
	i := len(s.all)
	s.all = append(s.all, parseShape(string(name)))
	s.byText[s.all[i].text] = i
	return i, true
}

func parseShape(name string) *shape {
	sh := &shape{text: name, raw: name == "raw"}
	for line := range strings.Lines(name) {
		key, how, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			break
		}
		f := field{key: key, kind: how[0]}
		switch f.kind {
		case kindLiteral:
			f.text = how[1:]
		case kindHex:
			f.size, _ = strconv.Atoi(how[1:])
		}
		sh.fields = append(sh.fields, f)
	}
	return sh
}

// appendPayload puts a payload into buf: the number of its shape and the values.
func (s *shapes) appendPayload(buf, payload []byte, in *setting) []byte {
	if len(s.all) == 0 {
		s.intern([]byte("raw")) // number 0
	}
	members, plain := split(nil, string(payload))
	if plain {
		var name, values []byte
		for _, m := range members {
			name, values = appendValue(name, values, m, in)
		}
		if i, ok := s.intern(name); ok {
			out := append(binary.AppendUvarint(buf, uint64(i)), values...)
			again := reader{b: out[len(buf):]}
			if back, _ := s.payload(&again, in); bytes.Equal(back, payload) {
				in.prev = members
				return out
			}
		}
	}
	in.prev = nil
	buf = binary.AppendUvarint(buf, 0)
	return append(binary.AppendUvarint(buf, uint64(len(payload))), payload...)
}

// payload reads back what appendPayload wrote, and the members that the next payload may refer to.
func (s *shapes) payload(r *reader, in *setting) ([]byte, []member) {
	sh := s.all[r.uvarint()]
	if sh.raw {
		return bytes.Clone(r.take(int(r.uvarint()))), nil
	}
	members := make([]member, len(sh.fields))
	size := 2
	for i, f := range sh.fields {
		members[i] = member{f.key, value(r, f, in)}
		size += len(f.key) + len(members[i].value) + 4
	}
	out := make([]byte, 0, size)
	for i, m := range members {
		out = append(out, "{,"[min(i, 1)], '"')
		out = append(append(append(out, m.key...), '"', ':'), m.value...)
	}
	return append(out, '}'), members
}

// value is the value of a field, as spelled.
func value(r *reader, f field, in *setting) string {
	switch f.kind {
	case kindLiteral:
		return f.text
	case kindPrev:
		for _, p := range in.prev {
			if p.key == f.key {
				return p.value
			}
		}
		return ""
	case kindUint:
		return strconv.FormatUint(r.uvarint(), 10)
	}
	return `"` + text(r, f, in) + `"`
}

func text(r *reader, f field, in *setting) string {
	switch f.kind {
	case kindAgent:
		return in.agent
	case kindRun:
		return in.run
	case kindHex:
		return hex.EncodeToString(r.take(f.size))
	case kindSecond, kindAt:
		t := time.Unix(r.varint()+in.wallMS/1000, 0).UTC().Format(time.RFC3339Nano)
		if f.kind == kindAt {
			return "at:" + t
		}
		return t
	case kindInstant:
		return time.Unix(0, r.varint()+in.wallMS*1e6).UTC().Format(time.RFC3339Nano)
	}
	return string(r.take(int(r.uvarint())))
}

// A reader reads what this package wrote into the arena.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.b = r.b[n:]
	return v
}

var runText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

const (
	runPrefix = "r1-"
	runBytes  = 32
)

// appendRun keeps a run id: 0 and its 32 bytes, or the length of any other text plus 1, and the text.
func appendRun(buf []byte, id string) []byte {
	if code, ok := strings.CutPrefix(id, runPrefix); ok && runText.EncodedLen(runBytes) == len(code) {
		if raw, err := runText.DecodeString(code); err == nil && runText.EncodeToString(raw) == code {
			return append(append(buf, 0), raw...)
		}
	}
	return append(binary.AppendUvarint(buf, uint64(len(id))+1), id...)
}

// takeRun reads the bytes that stand for a run id, to be compared as they are.
func (r *reader) takeRun() []byte {
	start := r.b
	n := int(r.uvarint())
	if n == 0 {
		n = runBytes + 1
	}
	r.take(n - 1)
	return start[:len(start)-len(r.b)]
}

// runID is the run id that takeRun's bytes stand for.
func runID(kept []byte) string {
	if kept[0] == 0 {
		return runPrefix + runText.EncodeToString(kept[1:])
	}
	r := reader{b: kept}
	r.uvarint()
	return string(r.b)
}
