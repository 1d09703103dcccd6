package oplog

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// AppendLine appends the op as its one line of JSON, without a newline, and returns the extended buffer. The order
// of fields is fixed and the payload's bytes are embedded as they are. The op must come from New or ParseLine or
// have passed Check.
func (op Op) AppendLine(dst []byte) []byte {
	dst = append(dst, `{"op_id":"`...)
	dst = append(dst, op.ID...)
	dst = append(dst, `","device_id":"`...)
	dst = append(dst, op.Device...)
	dst = append(dst, `","seq":`...)
	dst = strconv.AppendUint(dst, op.Seq, 10)
	if op.Prev != "" {
		dst = append(dst, `,"prev":"`...)
		dst = append(dst, op.Prev...)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"hlc":{"wall_ms":`...)
	dst = strconv.AppendInt(dst, op.HLC.WallMS, 10)
	dst = append(dst, `,"counter":`...)
	dst = strconv.AppendUint(dst, uint64(op.HLC.Counter), 10)
	dst = append(dst, `,"device_id":"`...)
	dst = append(dst, op.HLC.Device...)
	dst = append(dst, `"},"scope":"`...)
	dst = append(dst, op.Scope...)
	dst = append(dst, `","surface":"`...)
	dst = append(dst, op.Surface...)
	dst = append(dst, `","payload":`...)
	dst = append(dst, op.Payload...)
	return append(dst, '}')
}

// ParseLine reads a line without its newline. It accepts exactly what AppendLine writes for an op with legal
// fields and refuses everything else with [*CanonError], [*SizeError] or [*FieldError]. It does not verify the
// id, nor that the stamp names the op's device: [Op.Check] and [Chain.Admit] do. The op shares no memory with line.
func ParseLine(line []byte) (Op, error) {
	if len(line) > MaxLine {
		return Op{}, &SizeError{What: "line", Size: len(line), Max: MaxLine}
	}
	l := lineReader{scanner: scanner{b: line, strict: true}}
	op := l.op()
	if l.err != nil {
		return Op{}, l.err
	}
	if err := op.checkFields(); err != nil {
		return Op{}, err
	}
	return op, nil
}

// A lineReader reads the fixed layout of a line; after the first error it does nothing.
type lineReader struct {
	scanner
	err error
}

func (l *lineReader) op() Op {
	var op Op
	l.expect(`{"op_id":"`)
	op.ID = l.id()
	l.expect(`,"device_id":"`)
	op.Device = l.text()
	l.expect(`,"seq":`)
	op.Seq = l.integer(MaxInt)
	if l.skip(`,"prev":"`) {
		op.Prev = l.id()
	}
	l.expect(`,"hlc":{"wall_ms":`)
	op.HLC.WallMS = int64(l.integer(MaxInt))
	l.expect(`,"counter":`)
	op.HLC.Counter = uint32(l.integer(1<<32 - 1))
	l.expect(`,"device_id":"`)
	if op.HLC.Device = l.text(); op.HLC.Device == op.Device {
		op.HLC.Device = op.Device // one string instead of two
	}
	l.expect(`},"scope":"`)
	op.Scope = Scope(l.text())
	l.expect(`,"surface":"`)
	op.Surface = Surface(l.text())
	l.expect(`,"payload":`)
	op.Payload = l.payload()
	if l.err == nil && l.skip(`,"key":`) {
		l.err = &FieldError{Field: "key", Err: errReserved}
	}
	if l.err == nil && l.skip(`,"sig":`) {
		l.err = &FieldError{Field: "sig", Err: errReserved}
	}
	l.expect(`}`)
	if l.err == nil && l.i != len(l.b) {
		l.err = l.fail(ErrSyntax, l.i, "text after the op")
	}
	return op
}

func (l *lineReader) skip(text string) bool {
	if l.err != nil || !bytes.HasPrefix(l.b[l.i:], []byte(text)) {
		return false
	}
	l.i += len(text)
	return true
}

func (l *lineReader) expect(text string) {
	if !l.skip(text) && l.err == nil {
		l.err = l.fail(ErrSpelling, l.i, "expected "+text)
	}
}

// text reads up to the closing quote. Its value is judged by checkFields, which allows nothing that needs an escape.
func (l *lineReader) text() string {
	if l.err != nil {
		return ""
	}
	n := bytes.IndexByte(l.b[l.i:], '"')
	if n < 0 {
		l.err = l.fail(ErrSyntax, l.i, "string without an end")
		return ""
	}
	s := string(l.b[l.i : l.i+n])
	l.i += n + 1
	return s
}

func (l *lineReader) id() OpID {
	at := l.i
	id := OpID(l.text())
	if l.err == nil && !id.Valid() {
		l.err = l.fail(ErrSpelling, at, `expected "op-" and 64 hex digits`)
	}
	return id
}

func (l *lineReader) integer(most uint64) uint64 {
	if l.err != nil {
		return 0
	}
	start := l.i
	if !l.digits() {
		l.err = l.fail(ErrSpelling, start, "expected an integer")
		return 0
	}
	v, err := strconv.ParseUint(string(l.b[start:l.i]), 10, 64)
	switch {
	case err != nil || v > most:
		l.err = l.fail(ErrNumber, start, "")
	case l.b[start] == '0' && l.i > start+1:
		l.err = l.fail(ErrSpelling, start, "leading zero")
	}
	return v
}

func (l *lineReader) payload() json.RawMessage {
	if l.err != nil {
		return nil
	}
	start := l.i
	if err := l.value(); err != nil {
		l.err = err
		return nil
	}
	if n := l.i - start; n > MaxPayload {
		l.err = &SizeError{What: "payload", Size: n, Max: MaxPayload}
		return nil
	}
	return bytes.Clone(l.b[start:l.i])
}
