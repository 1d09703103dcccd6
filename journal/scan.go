package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/syncnode/syncnode/oplog"
)

// A position is the state of a scan: the last op before it.
type position struct {
	series Series
	device string
	head   oplog.Head
	has    bool // false: there is no op before
}

// next is the seq that the next op of an own chain has.
func (p *position) next() uint64 {
	if !p.has || p.series != Own {
		return 0
	}
	return p.head.Seq + 1
}

var (
	errNoEnd      = errors.New("line without an end")
	errEmptyGroup = errors.New("blank line without records before it")
)

// parse reads one line and verifies all that the line itself proves.
func (p *position) parse(line []byte) (oplog.Op, error) {
	op, err := oplog.ParseLine(line)
	if err != nil {
		return oplog.Op{}, err
	}
	if err := op.Check(); err != nil {
		return oplog.Op{}, err
	}
	if (op.Device == p.device) != (p.series == Own) {
		return oplog.Op{}, fmt.Errorf("op of device %q in the series %s of %q", op.Device, p.series, p.device)
	}
	return op, nil
}

// follow makes op the last one if it continues the chain. The chains of peers are the caller's to verify.
func (p *position) follow(op oplog.Op) error {
	if p.series == Own {
		switch {
		case op.Seq != p.next():
			return &oplog.GapError{Device: p.device, Expected: p.next(), Found: op.Seq}
		case p.has && op.Prev != p.head.ID:
			return &oplog.ForkError{Device: p.device, Seq: p.head.Seq, Have: p.head.ID, Got: op.Prev}
		case p.has && op.HLC.Compare(p.head.HLC) <= 0:
			return &oplog.ClockError{Device: p.device, Seq: op.Seq, Before: p.head.HLC, Got: op.HLC}
		}
	}
	p.head, p.has = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}, true
	return nil
}

// A scanned is what a scan of the end of a segment found. Offsets are those of the file.
type scanned struct {
	group    int64    // start of the last group that has a good record
	groupAt  position // before it
	closed   int64    // end of the last complete group
	at       position // there
	good     int64    // end of the last good record; more than closed if the last group has no blank line
	goodAt   position // there
	torn     bool     // bytes after good are no records and may be cut
	tornWhy  error
	tornSize int64
}

// clean reports whether the segment ends with a complete group.
func (s *scanned) clean() bool { return !s.torn && s.good == s.closed }

// scan reads data, the end of the segment file from offset on, where a group begins and from describes what was
// before. A record that is whole but does not continue the chain, and any damage that a later group proves to
// have been durable, is a *CorruptError.
func scan(file string, data []byte, offset int64, from position) (scanned, error) {
	out := scanned{group: offset, groupAt: from, closed: offset, at: from, good: offset, goodAt: from}
	cur, pos, inGroup := from, 0, 0
	bad := func(err error) (scanned, error) {
		if provenLater(&cur, data[pos:]) {
			return out, &CorruptError{File: file, Offset: offset + int64(pos), Seq: cur.next(), Err: err}
		}
		out.torn, out.tornWhy, out.tornSize = true, err, int64(len(data)-pos)
		return out, nil
	}
	for pos < len(data) {
		n := bytes.IndexByte(data[pos:], '\n')
		switch {
		case n < 0:
			return bad(errNoEnd)
		case n == 0 && inGroup == 0:
			return bad(errEmptyGroup)
		case n == 0:
			pos, inGroup = pos+1, 0
			out.closed, out.at = offset+int64(pos), cur
			out.good = out.closed
			continue
		}
		op, err := cur.parse(data[pos : pos+n])
		if err != nil {
			return bad(err)
		}
		if inGroup == 0 {
			out.group, out.groupAt = offset+int64(pos), cur
		}
		if err := cur.follow(op); err != nil {
			return out, &CorruptError{File: file, Offset: offset + int64(pos), Seq: cur.next(), Err: err}
		}
		pos, inGroup = pos+n+1, inGroup+1
		out.good, out.goodAt = offset+int64(pos), cur
	}
	return out, nil
}

// provenLater reports whether a whole record stands after a blank line in data. A group is only written once
// the one before is on stable storage, so whatever is damaged before that blank line was not torn by a crash.
func provenLater(p *position, data []byte) bool {
	if len(data) == 0 || data[0] != '\n' {
		blank := bytes.Index(data, []byte("\n\n"))
		if blank < 0 {
			return false
		}
		data = data[blank+2:]
	}
	for {
		n := bytes.IndexByte(data, '\n')
		if n < 0 {
			return false
		}
		if _, err := p.parse(data[:n]); err == nil {
			return true
		}
		data = data[n+1:]
	}
}

const tailChunk = 64 << 10

// scanTail scans the end of a segment of size bytes, from an offset at or after low on, where a group begins and
// at describes what was before. It reads the last group, and little more. Damage before that is not seen.
func scanTail(f File, file string, low, size int64, at position) (scanned, error) {
	for n := int64(tailChunk); ; n *= 4 {
		start := max(low, size-n)
		buf := make([]byte, size-start)
		if _, err := f.ReadAt(buf, start); err != nil && !errors.Is(err, io.EOF) {
			return scanned{}, fmt.Errorf("read %s: %w", file, err)
		}
		if start == low {
			return scan(file, buf, low, at)
		}
		i, from, err := lastProven(file, buf, start, at)
		if err != nil {
			return scanned{}, err
		}
		if i >= 0 {
			return scan(file, buf[i:], start+int64(i), from)
		}
	}
}

// lastProven finds the last group in buf that begins with a whole record, and what was before it. -1: not in buf.
func lastProven(file string, buf []byte, start int64, p position) (int, position, error) {
	for end := len(buf); ; {
		b := bytes.LastIndex(buf[:end], []byte("\n\n"))
		if b < 0 {
			return -1, p, nil
		}
		i := b + 2
		end = b + 1
		n := bytes.IndexByte(buf[i:], '\n')
		if n <= 0 {
			continue
		}
		first, err := p.parse(buf[i : i+n])
		if err != nil {
			continue
		}
		before := bytes.LastIndexByte(buf[:b], '\n')
		if before < 0 {
			return -1, p, nil
		}
		op, err := p.parse(buf[before+1 : b])
		if err != nil {
			return -1, p, &CorruptError{File: file, Offset: start + int64(before+1), Seq: before1(p, first), Err: err}
		}
		p.head, p.has = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}, true
		return i, p, nil
	}
}

// before1 is the seq before that of op, for an own chain.
func before1(p position, op oplog.Op) uint64 {
	if p.series != Own || op.Seq == 0 {
		return 0
	}
	return op.Seq - 1
}
