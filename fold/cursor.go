package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/syncnode/syncnode/oplog"
)

// A cursor reads one line of fixed layout; after the first error it does nothing.
type cursor struct {
	b   []byte
	err error
}

var (
	errLayout  = errors.New("not in its one spelling")
	errOpID    = errors.New(`op id must be "op-" and 64 hex digits`)
	errInteger = errors.New("integer is not in its one spelling, or too great")
)

// fail notes the first error.
func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// end is the error of the line, every character of which must have been read, but for the closing brace.
func (c *cursor) end() error {
	c.expect("}")
	if len(c.b) > 0 {
		c.fail(errLayout)
	}
	if c.err != nil {
		return bad(c.err)
	}
	return nil
}

func (c *cursor) at(b byte) bool { return len(c.b) > 0 && c.b[0] == b }

func (c *cursor) expect(text string) {
	rest, ok := bytes.CutPrefix(c.b, []byte(text))
	if c.err != nil || !ok {
		c.fail(fmt.Errorf("%w: expected %s", errLayout, text))
		return
	}
	c.b = rest
}

// text reads up to the closing quote, and that. Its value has to be judged: nothing legal here needs an escape.
func (c *cursor) text() string {
	n := bytes.IndexByte(c.b, '"')
	if c.err != nil || n < 0 {
		c.fail(errLayout)
		return ""
	}
	text := string(c.b[:n])
	c.b = c.b[n+1:]
	return text
}

func (c *cursor) device() string {
	device := c.text()
	if c.err == nil {
		c.err = oplog.HLC{Device: device}.Check()
	}
	return device
}

func (c *cursor) opID() oplog.OpID {
	id := oplog.OpID(c.text())
	if !id.Valid() {
		c.fail(errOpID)
	}
	return id
}

func (c *cursor) integer(most uint64) uint64 {
	n := len(c.b) - len(bytes.TrimLeft(c.b, "0123456789"))
	digits := string(c.b[:n])
	v, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || v > most || n > 1 && strings.HasPrefix(digits, "0") {
		c.fail(errInteger)
		return 0
	}
	c.b = c.b[n:]
	return v
}

// stamp reads the wall, the counter, and what is between them.
func (c *cursor) stamp() (wallMS int64, counter uint32) {
	wallMS = int64(c.integer(oplog.MaxInt))
	c.expect(`,"counter":`)
	return wallMS, uint32(c.integer(1<<32 - 1))
}

// payload reads everything but the closing brace of the line.
func (c *cursor) payload() json.RawMessage {
	n := len(c.b) - 1
	if c.err != nil || n < 0 {
		c.fail(errLayout)
		return nil
	}
	payload := bytes.Clone(c.b[:n])
	c.b = c.b[n:]
	c.fail(oplog.CheckCanonical(payload))
	return payload
}
