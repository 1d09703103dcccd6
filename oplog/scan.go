package oplog

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// A scanner reads JSON text once, without recursion deeper than MaxDepth. Strict, it accepts the RFC 8785
// spelling only: no blanks, keys in order, no needless escape, numbers in their shortest form. Lenient, it
// accepts any JSON within our limits, but leaves duplicate keys to the caller.
type scanner struct {
	b      []byte
	i      int
	depth  int
	strict bool
}

func (s *scanner) fail(kind error, at int, detail string) error {
	return &CanonError{Kind: kind, Offset: at, Detail: detail}
}

// document reads one value that fills the whole text.
func (s *scanner) document() error {
	s.blanks()
	if err := s.value(); err != nil {
		return err
	}
	s.blanks()
	if s.i != len(s.b) {
		return s.fail(ErrSyntax, s.i, "text after the value")
	}
	return nil
}

func (s *scanner) blanks() {
	for !s.strict && s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek is the next byte, or 0 at the end; a 0 byte is legal nowhere.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.i >= len(s.b) {
		return false
	}
	s.i++
	return true
}

func (s *scanner) value() error {
	switch c := s.peek(); {
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array()
	case c == '"':
		_, err := s.str()
		return err
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	return s.fail(ErrSyntax, s.i, "no value")
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		return s.fail(ErrSyntax, s.i, "no value")
	}
	s.i += len(word)
	return nil
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > MaxDepth {
		return s.fail(ErrDepth, s.i, "")
	}
	s.i++
	s.blanks()
	return nil
}

// object reads an object and shows each member, as spelled, to visit if that is not nil.
func (s *scanner) object(visit func(key, value []byte)) error {
	if err := s.enter(); err != nil {
		return err
	}
	var last []byte
	for first := true; ; first = false {
		if first && s.take('}') {
			break
		}
		at := s.i
		key, err := s.member(visit)
		if err != nil {
			return err
		}
		if s.strict && !first {
			if c := compareKeys(last, key); c == 0 {
				return s.fail(ErrDuplicateKey, at, string(key))
			} else if c > 0 {
				return s.fail(ErrSpelling, at, "keys out of order")
			}
		}
		last = key
		if s.take('}') {
			break
		}
		if !s.take(',') {
			return s.fail(ErrSyntax, s.i, "expected , or }")
		}
		s.blanks()
	}
	s.depth--
	return nil
}

func (s *scanner) member(visit func(key, value []byte)) ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail(ErrSyntax, s.i, "expected a key")
	}
	key, err := s.str()
	if err != nil {
		return nil, err
	}
	s.blanks()
	if !s.take(':') {
		return nil, s.fail(ErrSyntax, s.i, "expected :")
	}
	s.blanks()
	at := s.i
	if err := s.value(); err != nil {
		return nil, err
	}
	if visit != nil {
		visit(key, s.b[at:s.i])
	}
	s.blanks()
	return key, nil
}

func (s *scanner) array() error {
	if err := s.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		if first && s.take(']') {
			break
		}
		if err := s.value(); err != nil {
			return err
		}
		s.blanks()
		if s.take(']') {
			break
		}
		if !s.take(',') {
			return s.fail(ErrSyntax, s.i, "expected , or ]")
		}
		s.blanks()
	}
	s.depth--
	return nil
}

// str reads a string and returns what is between its quotes, as spelled.
func (s *scanner) str() ([]byte, error) {
	s.i++
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, s.fail(ErrSyntax, s.i, "control character in a string")
		case c < utf8.RuneSelf:
			s.i++
		default:
			r, n := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && n <= 1 {
				return nil, s.fail(ErrUTF8, s.i, "")
			}
			s.i += n
		}
	}
	return nil, s.fail(ErrSyntax, s.i, "string without an end")
}

func (s *scanner) escape() error {
	at := s.i
	s.i += 2
	if s.i > len(s.b) {
		return s.fail(ErrSyntax, at, "string without an end")
	}
	switch c := s.b[s.i-1]; c {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return nil
	case '/':
		if s.strict {
			return s.fail(ErrSpelling, at, "needless escape")
		}
		return nil
	case 'u':
		return s.unicode(at)
	}
	return s.fail(ErrSyntax, at, "unknown escape")
}

// unicode reads the digits after \u, and the second half of a pair.
func (s *scanner) unicode(at int) error {
	unit, ok := s.hex4()
	switch {
	case !ok:
		return s.fail(ErrSyntax, at, "bad \\u escape")
	case s.strict && !strictEscape(unit, s.b[at+2:s.i]):
		if utf16.IsSurrogate(rune(unit)) {
			break // what it is decides whether it is wrong or only misspelled
		}
		return s.fail(ErrSpelling, at, "needless escape")
	}
	if !utf16.IsSurrogate(rune(unit)) {
		return nil
	}
	if unit >= 0xdc00 || !bytes.HasPrefix(s.b[s.i:], []byte(`\u`)) {
		return s.fail(ErrSurrogate, at, "")
	}
	s.i += 2
	low, ok := s.hex4()
	if !ok || low < 0xdc00 || low > 0xdfff {
		return s.fail(ErrSurrogate, at, "")
	}
	if s.strict {
		return s.fail(ErrSpelling, at, "needless escape")
	}
	return nil
}

func (s *scanner) hex4() (uint16, bool) {
	if s.i+4 > len(s.b) {
		return 0, false
	}
	var v uint16
	for _, c := range s.b[s.i : s.i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint16(c)
	}
	s.i += 4
	return v, true
}

// strictEscape reports whether RFC 8785 writes the unit as \u with these digits: control characters that have no
// short escape, in lower case.
func strictEscape(unit uint16, digits []byte) bool {
	if unit >= 0x20 || bytes.ContainsAny(digits, "ABCDEF") {
		return false
	}
	switch unit {
	case '\b', '\t', '\n', '\f', '\r':
		return false
	}
	return true
}

func (s *scanner) number() error {
	start := s.i
	s.take('-')
	integer := s.i
	if !s.digits() || s.b[integer] == '0' && s.i > integer+1 {
		return s.fail(ErrSyntax, start, "bad number")
	}
	whole := true
	if s.take('.') {
		whole = false
		if !s.digits() {
			return s.fail(ErrSyntax, start, "bad number")
		}
	}
	if s.take('e') || s.take('E') {
		whole = false
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return s.fail(ErrSyntax, start, "bad number")
		}
	}
	if whole && s.i-integer < 16 && (s.b[start] != '-' || s.b[integer] != '0') {
		return nil // below 10^15, and spelled as RFC 8785 has it
	}
	return s.judge(start)
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

// judge looks at the value of the number that was just read.
func (s *scanner) judge(start int) error {
	text := string(s.b[start:s.i])
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f > MaxInt || f < -MaxInt {
		return s.fail(ErrNumber, start, "")
	}
	if !s.strict {
		return nil
	}
	if shortest, err := jcs.NumberToJSON(f); err != nil || shortest != text {
		return s.fail(ErrSpelling, start, "number in a long form")
	}
	return nil
}

// compareKeys orders two keys, as RFC 8785 spells them, by their UTF-16 code units. That is the order of bytes
// unless an escape or a character from U+E000 on is involved.
func compareKeys(a, b []byte) int {
	if plainKey(a) && plainKey(b) {
		return bytes.Compare(a, b)
	}
	x, y := utf16.Encode([]rune(unquote(a))), utf16.Encode([]rune(unquote(b)))
	for i := 0; i < len(x) && i < len(y); i++ {
		if x[i] != y[i] {
			return int(x[i]) - int(y[i])
		}
	}
	return len(x) - len(y)
}

func plainKey(k []byte) bool {
	for _, c := range k {
		if c == '\\' || c >= 0xee {
			return false
		}
	}
	return true
}

// unquote is the text of a string in RFC 8785 spelling, given what is between its quotes.
func unquote(spelled []byte) string {
	if bytes.IndexByte(spelled, '\\') < 0 {
		return string(spelled)
	}
	out := make([]byte, 0, len(spelled))
	for i := 0; i < len(spelled); i++ {
		if spelled[i] != '\\' {
			out = append(out, spelled[i])
			continue
		}
		i++
		switch c := spelled[i]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			s := scanner{b: spelled, i: i + 1}
			unit, _ := s.hex4()
			out = append(out, byte(unit)) // a control character: below 0x20
			i += 4
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

// members shows each member of a canonical object to visit, keys and values as spelled. It reports false, and may
// have shown some, if text is anything else.
func members(text []byte, visit func(key, value []byte)) bool {
	if len(text) > MaxPayload || len(text) == 0 || text[0] != '{' {
		return false
	}
	s := scanner{b: text, strict: true}
	return s.object(visit) == nil && s.i == len(text)
}
