package fold

import (
	"bufio"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/syncnode/syncnode/oplog"
)

// Version is the version of the rules by which ops are folded, and of the digest's bytes. A state that was folded under
// another version is not this one's: fold the ops anew.
const Version = 1

// WriteTo writes the state as lines of JSON: the same bytes for the same ops and closed chains, whatever the order in
// which they came. Parked ops are no part of it. It holds no more than a line in memory, and the ids of the runs of one agent.
//
// The ops must have been verified. docs/formats/checkpoint.md has the bytes; [Load] reads them.
func (s *State) WriteTo(w io.Writer) (int64, error) {
	out := &writer{w: bufio.NewWriterSize(w, 1<<16)}
	out.line(s.appendHeader(out.buf[:0]))
	for _, device := range s.heads.Devices() {
		out.line(appendHead(out.buf[:0], headField, device, s.heads[device]))
	}
	for _, device := range s.closed.Devices() {
		out.line(appendHead(out.buf[:0], closedField, device, s.closed[device]))
	}
	s.records(func(rec *Record) bool {
		out.line(appendRecord(out.buf[:0], rec))
		return out.err == nil
	})
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.n, out.err
}

// A writer counts what it writes and stops at the first error.
type writer struct {
	w   *bufio.Writer
	buf []byte // the last line, to be used again
	n   int64
	err error
}

func (w *writer) line(b []byte) {
	w.buf = append(b, '\n')
	if w.err != nil {
		return
	}
	n, err := w.w.Write(w.buf)
	w.n, w.err = w.n+int64(n), err
}

// records shows the winner of each leaf, in the order of the lines, until yield returns false.
func (s *State) records(yield func(*Record) bool) {
	surfaces := slices.AppendSeq(slices.Collect(maps.Keys(s.keyed)), maps.Keys(s.events))
	if len(s.agents) > 0 {
		surfaces = append(surfaces, oplog.Intents)
	}
	slices.Sort(surfaces)
	more := true
	show := func(rec *Record) bool { more = more && yield(rec); return more }
	for _, surface := range surfaces {
		switch tier, _ := surface.Tier(); tier {
		case oplog.TierEvents:
			s.events[surface].each(show)
		case oplog.TierIntents:
			s.intents(show)
		default:
			for _, key := range slices.Sorted(maps.Keys(s.keyed[surface])) {
				if !show(s.keyed[surface][key]) {
					return
				}
			}
		}
		if !more {
			return
		}
	}
}

func (s *State) intents(yield func(*Record) bool) {
	for _, agent := range s.Agents() {
		for _, id := range s.Runs(agent) {
			for _, sl := range s.run(agent, id).slots {
				if !yield(sl.rec) {
					return
				}
			}
		}
	}
}

// The beginnings of lines.
const (
	headField   = `{"device_id":"`
	closedField = `{"closed_id":"`
)

func (s *State) appendHeader(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"fold":`...), Version, 10)
	b = append(b, `,"scopes":[`...)
	for i, scope := range s.Scopes() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), scope...), '"')
	}
	b = strconv.AppendInt(append(b, `],"devices":`...), int64(len(s.heads)), 10)
	b = strconv.AppendInt(append(b, `,"closed":`...), int64(len(s.closed)), 10)
	b = strconv.AppendUint(append(b, `,"records":`...), s.tree.leaves, 10)
	return append(b, '}')
}

func appendHead(b []byte, field, device string, h oplog.Head) []byte {
	b = append(append(b, field...), device...)
	b = strconv.AppendUint(append(b, `","seq":`...), h.Seq, 10)
	b = append(append(b, `,"op_id":"`...), h.ID...)
	b = strconv.AppendInt(append(b, `","wall_ms":`...), h.HLC.WallMS, 10)
	b = strconv.AppendUint(append(b, `,"counter":`...), uint64(h.HLC.Counter), 10)
	return append(b, '}')
}

func appendRecord(b []byte, rec *Record) []byte {
	b = append(append(b, `{"surface":"`...), rec.Surface...)
	b = append(append(b, `","device_id":"`...), rec.HLC.Device...)
	b = strconv.AppendInt(append(b, `","wall_ms":`...), rec.HLC.WallMS, 10)
	b = strconv.AppendUint(append(b, `,"counter":`...), uint64(rec.HLC.Counter), 10)
	b = append(append(b, `,"op_id":"`...), rec.ID...)
	b = append(append(b, `","scope":"`...), rec.Scope...)
	b = append(append(b, `","payload":`...), rec.Payload...)
	return append(b, '}')
}
