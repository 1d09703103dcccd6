package fold

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/syncnode/syncnode/oplog"
)

// ErrVersion means that a state was folded under other rules. Fold the ops anew, or look for an older checkpoint.
var ErrVersion = errors.New("fold: state of another version")

// ErrState means that a text is not a state as [State.WriteTo] writes it. No part of it is to be used.
var ErrState = errors.New("fold: not a state")

// A StateError says at which line, from 1, and why a text is no state. It matches ErrState and wraps the reason.
type StateError struct {
	Line int
	Err  error
}

func (e *StateError) Error() string        { return fmt.Sprintf("fold: state, line %d: %v", e.Line, e.Err) }
func (e *StateError) Unwrap() error        { return e.Err }
func (e *StateError) Is(target error) bool { return target == ErrState }

var (
	errOrder     = errors.New("out of order")
	errScopes    = errors.New("scope is not in the header")
	errUncovered = errors.New("author is neither a device nor closed, or its stamp is beyond the chain's")
	errMore      = errors.New("text after the last record")
	errLong      = errors.New("line too long")
	errReopened  = errors.New("device is both open and closed")
)

// maxHeaderLine bounds the first line, which names the scopes.
const maxHeaderLine = 1 << 20

// Load reads a state that [State.WriteTo] wrote, and fails with [*StateError], ErrVersion or the reader's error. It
// accepts exactly what WriteTo can write, so that writing again gives the same bytes. The state has the same digests and
// views, and goes on: the next op of a device is the one after its head.
//
// A line is bounded; what a hostile text makes Load hold is of the order of the text's length.
func Load(r io.Reader) (*State, error) {
	l := &loader{in: bufio.NewReaderSize(r, 1<<16), s: New()}
	if err := l.located(l.load()); err != nil {
		return nil, err
	}
	return l.s, nil
}

// LoadHeads reads only the part of a state before its records: scopes, heads and closed chains. The rest is not checked.
func LoadHeads(r io.Reader) (scopes []oplog.Scope, heads, closed oplog.Heads, err error) {
	l := &loader{in: bufio.NewReader(r), s: New()}
	_, err = l.begin()
	if err = l.located(err); err != nil {
		return nil, nil, nil, err
	}
	return l.s.Scopes(), l.s.heads, l.s.closed, nil
}

// A lineError is about the text, and not about reading it.
type lineError struct{ err error }

func (e *lineError) Error() string { return e.err.Error() }

func bad(err error) error { return &lineError{err} }

// located says at which line a lineError is.
func (l *loader) located(err error) error {
	if e, ok := errors.AsType[*lineError](err); ok {
		return &StateError{l.n, e.err}
	}
	return err
}

type loader struct {
	in   *bufio.Reader
	s    *State
	n    int // lines read
	last Record
	// The run that is being read, to be packed when it is complete.
	agent, run string
	slots      []*slot
}

// line is the next line without its end, valid until the next call.
func (l *loader) line(most int) (cursor, error) {
	l.n++
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line)+len(part) > most+1 {
			return cursor{}, bad(errLong)
		}
		switch {
		case err == nil && line == nil:
			return cursor{b: part[:len(part)-1]}, nil
		case err == nil:
			line = append(line, part...)
			return cursor{b: line[:len(line)-1]}, nil
		case errors.Is(err, io.EOF):
			return cursor{}, bad(io.ErrUnexpectedEOF)
		case !errors.Is(err, bufio.ErrBufferFull):
			return cursor{}, fmt.Errorf("read a state: %w", err)
		}
		line = append(line, part...)
	}
}

func (l *loader) load() error {
	records, err := l.begin()
	if err != nil {
		return err
	}
	for range records {
		if err := l.record(); err != nil {
			return err
		}
	}
	l.endRun()
	l.n++
	switch _, err := l.in.ReadByte(); {
	case err == nil:
		return bad(errMore)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("read a state: %w", err)
	}
	return nil
}

// begin reads what is before the records, and how many there are.
func (l *loader) begin() (records uint64, err error) {
	c, err := l.line(maxHeaderLine)
	if err != nil {
		return 0, err
	}
	c.expect(`{"fold":`)
	if v := c.integer(oplog.MaxInt); c.err == nil && v != Version {
		return 0, fmt.Errorf("%w: it has version %d, this release knows %d", ErrVersion, v, Version)
	}
	c.expect(`,"scopes":[`)
	l.scopes(&c)
	c.expect(`],"devices":`)
	devices := c.integer(oplog.MaxInt)
	c.expect(`,"closed":`)
	closed := c.integer(oplog.MaxInt)
	c.expect(`,"records":`)
	records = c.integer(oplog.MaxInt)
	if err := c.end(); err != nil {
		return 0, err
	}
	if err := l.heads(headField, devices, l.s.heads, nil); err != nil {
		return 0, err
	}
	return records, l.heads(closedField, closed, l.s.closed, l.s.heads)
}

func (l *loader) scopes(c *cursor) {
	last := oplog.Scope("")
	for i := 0; c.err == nil && !c.at(']'); i++ {
		if i > 0 {
			c.expect(",")
		}
		c.expect(`"`)
		scope := oplog.Scope(c.text())
		if c.err == nil {
			c.fail(scope.Check())
		}
		if scope <= last {
			c.fail(errOrder)
		}
		l.s.scopes[scope], last = true, scope
	}
}

func (l *loader) heads(field string, n uint64, into, not oplog.Heads) error {
	last := ""
	for range n {
		c, err := l.line(1024)
		if err != nil {
			return err
		}
		c.expect(field)
		device := c.device()
		h := oplog.Head{HLC: oplog.HLC{Device: device}}
		c.expect(`,"seq":`)
		h.Seq = c.integer(oplog.MaxInt)
		c.expect(`,"op_id":"`)
		h.ID = c.opID()
		c.expect(`,"wall_ms":`)
		h.HLC.WallMS, h.HLC.Counter = c.stamp()
		if device <= last {
			c.fail(errOrder)
		}
		if _, ok := not[device]; ok {
			c.fail(errReopened)
		}
		if err := c.end(); err != nil {
			return err
		}
		into[device], last = h, device
	}
	return nil
}

func (l *loader) record() error {
	c, err := l.line(oplog.MaxLine)
	if err != nil {
		return err
	}
	rec := &Record{}
	c.expect(`{"surface":"`)
	rec.Surface = oplog.Surface(c.text())
	c.expect(`,"device_id":"`)
	rec.HLC.Device = c.device()
	c.expect(`,"wall_ms":`)
	rec.HLC.WallMS, rec.HLC.Counter = c.stamp()
	c.expect(`,"op_id":"`)
	rec.ID = c.opID()
	c.expect(`,"scope":"`)
	rec.Scope = oplog.Scope(c.text())
	c.expect(`,"payload":`)
	rec.Payload = c.payload()
	if err := c.end(); err != nil {
		return err
	}
	return l.take(rec)
}

// take puts a record in its place, which must be after that of the record before.
func (l *loader) take(rec *Record) error {
	tier, err := rec.Surface.Tier()
	switch {
	case err != nil:
		return bad(err)
	case !l.s.scopes[rec.Scope]:
		return bad(errScopes)
	case !l.covered(rec):
		return bad(errUncovered)
	case rec.Surface < l.last.Surface:
		return bad(errOrder)
	case rec.Surface > l.last.Surface:
		l.endRun()
		l.last = Record{}
	}
	first := l.last.Surface == ""
	switch tier {
	case oplog.TierEvents:
		if !first && rec.compare(&l.last) <= 0 {
			return bad(errOrder)
		}
		l.s.foldEvent(rec)
	case oplog.TierIntents:
		if err := l.intent(rec); err != nil {
			return err
		}
	default:
		if rec.Key = oplog.StableKey(rec.Payload); !first && rec.Key <= l.last.Key {
			return bad(errOrder)
		}
		l.s.foldKeyed(rec, func(*Record) bool { return false })
	}
	l.last = *rec
	l.last.Payload = nil
	return nil
}

// covered reports whether the record can be of an op at or below the head of its author.
func (l *loader) covered(rec *Record) bool {
	head, ok := l.s.heads[rec.HLC.Device]
	if !ok {
		head, ok = l.s.closed[rec.HLC.Device]
	}
	c := rec.HLC.Compare(head.HLC)
	return ok && (c < 0 || c == 0 && rec.ID == head.ID)
}

func (l *loader) intent(rec *Record) error {
	in := oplog.ReadIntent(rec.Payload)
	sl := newSlot(rec, in)
	same := len(l.slots) > 0 && in.Agent == l.agent && in.RunID == l.run
	switch {
	case same && l.slots[len(l.slots)-1].compareKey(sl) >= 0:
		return bad(errOrder)
	case !same && len(l.slots) > 0 && !(l.agent < in.Agent || l.agent == in.Agent && l.run < in.RunID):
		return bad(errOrder)
	case !same:
		l.endRun()
		l.agent, l.run = in.Agent, in.RunID
	}
	l.slots = append(l.slots, sl)
	a := l.s.agent(in.Agent)
	a.epoch = max(a.epoch, in.Epoch)
	return nil
}

// endRun takes in the run that was read.
func (l *loader) endRun() {
	if len(l.slots) == 0 {
		return
	}
	a, r := l.s.agent(l.agent), newRun(slices.Clone(l.slots))
	l.slots = l.slots[:0]
	a.live[l.run] = r
	if r.committed != nil {
		l.s.pack(l.agent, a, l.run, r)
	}
	if a.live[l.run] != nil {
		for _, sl := range r.slots {
			l.s.tree.put(sl.rec, sl.parts(l.agent, l.run)...)
		}
	}
}
