package dir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A chain is what a handle has verified of the segments of one device. An op counts wherever it stands in a segment
// whose base is not above it, if it continues what counted before; everything else in a segment is passed over. So
// bytes that are torn, damaged, repeated or of another device stop nothing but themselves, and a chain whose owner
// wrote the missing ops again goes on. One goroutine at a time uses a chain.
type chain struct {
	fs     FS
	device string

	segs     map[uint64]*segment
	bases    []uint64 // of segs, ascending
	verified *oplog.Chain
	floor    *oplog.Head // ops up to it do not count: they were collected; nil if none were
	marks    []mark
	ahead    uint64 // greatest seq of a good op above the head that was passed over; 0 if none
	names    []Oddity
	forks    []Fork
	lost     int             // how often ops were gone that had been there
	err      error           // why the device's segments could not be listed or read last time
	tainted  map[uint64]bool // segments of which a sync failed: what was written may never reach the disk
	stale    bool            // what was verified is not there any more: begin again
}

// A segment is how far one file has been judged.
type segment struct {
	base    uint64
	size    int64     // of the file when it was last looked at
	mtime   time.Time // then; a hint and nothing more
	young   bool      // it was so new then that a change since need not show
	end     int64     // all before it was judged; a group begins there
	tail    []byte    // the last bytes before end
	open    bool      // bytes after end do not end a line
	durable int64     // this handle has synced so much
	headed  bool
	newer   bool   // written by a newer release
	sealed  uint64 // from this seq on no later op counts; 0: not sealed
	low     oplog.Op
	hasLow  bool // low is the highest op at or below the head in the group
	moved   bool // changed since the last judgement of the whole chain

	bad, foreign, repeated int // lines
}

// A mark is a stretch of a segment in which ops of the chain stand, and the head before it.
type mark struct {
	base     uint64
	off, end int64
	first    uint64 // seq of its first op
	before   oplog.Head
	begun    bool // before is a head
}

const (
	stretch = 64 << 10 // bytes after which a new mark is set
	tailLen = 256
)

// errChanged means that a file is not the one that was judged, grown longer.
var errChanged = errors.New("changed where it was read before")

func newChain(fsys FS, device string) *chain {
	c := &chain{fs: fsys, device: device, tainted: map[uint64]bool{}}
	c.reset()
	return c
}

func (c *chain) reset() {
	c.segs, c.bases, c.marks = map[uint64]*segment{}, nil, nil
	c.verified, c.ahead, c.stale = oplog.NewChain(c.device), 0, false
	if c.floor != nil {
		c.verified = oplog.ResumeChain(c.device, *c.floor)
	}
}

// raise lets the chain begin behind a floor, if that is above the one before. What was verified above it stays.
func (c *chain) raise(floor *oplog.Head) {
	if floor == nil || c.floor != nil && floor.Seq <= c.floor.Seq {
		return
	}
	c.floor = floor
	if floor.Seq >= c.next() {
		c.reset()
	}
}

// collected reports whether an op lies at or below the floor.
func (c *chain) collected(seq uint64) bool { return c.floor != nil && seq <= c.floor.Seq }

func (c *chain) next() uint64 { return c.verified.NextSeq() }

// written reports whether a device wrote any of the segments, as far as they can be read.
func (c *chain) written() bool {
	if _, begun := c.verified.Head(); begun || c.err != nil && !errors.Is(c.err, errNotDirectory) {
		return true
	}
	for _, s := range c.segs {
		if s.headed || s.newer {
			return true
		}
	}
	return false
}

// stuck reports whether the next op is missing where it should stand: ops above it do, or the seal of a segment that
// was to hold it. A file that has not arrived yet leaves neither.
func (c *chain) stuck() bool {
	if c.ahead > 0 && c.ahead >= c.next() {
		return true
	}
	for _, base := range c.bases {
		if s := c.segs[base]; base <= c.next() && s.sealed > c.next() && s.end == s.size {
			return true
		}
	}
	return false
}

// refresh judges what is new. The chain begins behind floor, and behind seed if its files reach less far; both may be nil. After an
// error, which is also in c.err, what was verified before stays.
func (c *chain) refresh(floor, seed *oplog.Head) error {
	err := c.judgeNew(floor)
	if err == nil && seed != nil && seed.Seq >= c.next() {
		c.raise(seed)
		err = c.judgeNew(nil)
	}
	c.err = err
	return err
}

func (c *chain) judgeNew(floor *oplog.Head) error {
	c.raise(floor)
	head, begun := c.verified.Head()
	changed, err := c.pass()
	if err == nil && (c.stale || changed && c.stuck()) {
		c.reset()
		if _, err = c.pass(); err == nil && begun {
			c.compare(head)
		}
	}
	return err
}

// pass lists the segments and judges their new bytes. It reports whether there were any.
func (c *chain) pass() (changed bool, err error) {
	if err := c.list(); err != nil || c.stale {
		return false, err
	}
	for _, base := range c.bases {
		if base > c.next() {
			break
		}
		s := c.segs[base]
		switch err := c.look(s); {
		case errors.Is(err, errChanged):
			c.stale = true
			return true, nil
		case err != nil:
			return changed, fmt.Errorf("segment %s of %s: %w", segmentName(base), c.device, err)
		}
		changed, s.moved = changed || s.moved, false
	}
	return changed, nil
}

// compare notes what became of the head that was there before everything was judged anew.
func (c *chain) compare(head oplog.Head) {
	if c.next() <= head.Seq {
		c.lost++
		return
	}
	if ops, err := c.read(head.Seq, 1); err == nil && ops[0].ID != head.ID {
		c.fork(head.Seq, ops[0].ID, head.ID)
	}
}

// list brings segs up to date with the names in the folder.
func (c *chain) list() error {
	dir := segmentDir(c.device)
	entries, err := c.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err = nil, nil
	}
	if err != nil {
		return err
	}
	c.names = c.names[:0]
	found := make(map[uint64]bool, len(entries))
	for _, e := range entries {
		base, ok := segmentBase(e.Name())
		if !ok || !e.Type().IsRegular() {
			c.names = append(c.names, Oddity{Path: path.Join(dir, e.Name()), Reason: nameReason(e, ok)})
			continue
		}
		found[base] = true
		if c.segs[base] == nil {
			c.segs[base] = &segment{base: base}
			i, _ := slices.BinarySearch(c.bases, base)
			c.bases = slices.Insert(c.bases, i, base)
		}
	}
	for _, base := range slices.Clone(c.bases) {
		if found[base] {
			continue
		}
		if s := c.segs[base]; s.sealed > 0 && c.collected(s.sealed-1) {
			c.marks = slices.DeleteFunc(c.marks, func(m mark) bool { return m.base == base }) // collected
		} else if s.end > 0 {
			c.stale = true
		}
		delete(c.segs, base)
		c.bases = slices.DeleteFunc(c.bases, func(b uint64) bool { return b == base })
	}
	return nil
}

// look judges the new bytes of a segment, if it has any.
func (c *chain) look(s *segment) error {
	if s.sealed > 0 && c.next() >= s.sealed && s.end == s.size {
		return nil // complete
	}
	name := segmentFile(c.device, s.base)
	info, err := c.fs.Stat(name)
	if err != nil {
		return gone(err)
	}
	if !s.mtime.IsZero() && !s.young && info.Size() == s.size && info.ModTime().Equal(s.mtime) {
		return nil
	}
	now := time.Now()
	f, err := c.fs.Open(name, os.O_RDONLY)
	if err != nil {
		return gone(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return err
	}
	if info.Size() < s.end {
		return errChanged
	}
	data, err := readRange(f, s.end-int64(len(s.tail)), min(info.Size(), maxSegment))
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(data, s.tail) {
		return errChanged
	}
	s.size, s.mtime, s.young, s.moved = info.Size(), info.ModTime(), young(info, now), true
	c.judge(s, data, len(s.tail))
	return nil
}

// clockTick is the coarsest clock of a file system, that of FAT.
const clockTick = 2 * time.Second

// young reports whether a file that was looked at may change without another time of change: it changed within the tick before now.
func young(info fs.FileInfo, now time.Time) bool {
	return now.Sub(info.ModTime()).Abs() < clockTick
}

// gone makes a file that vanished after it was listed one that changed.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) {
		return errChanged
	}
	return err
}

// judge goes through the complete groups in data[pos:], which begins at s.end.
func (c *chain) judge(s *segment, data []byte, pos int) {
	closed := pos
	for closed < len(data) && data[closed] == '\n' {
		closed++
	}
	if i := bytes.LastIndex(data[closed:], []byte("\n\n")); i >= 0 {
		closed += i + 2
	}
	start := s.end - int64(pos) // of data in the file
	for pos < closed {
		n := bytes.IndexByte(data[pos:closed], '\n') // there is one: data[:closed] ends with it
		if n == 0 {
			c.settleLow(s)
		} else {
			c.line(s, data[pos:pos+n], start+int64(pos))
		}
		pos += n + 1
	}
	s.end = start + int64(closed)
	s.tail = bytes.Clone(data[max(0, closed-tailLen):closed])
	s.open = len(data) > closed && data[len(data)-1] != '\n'
}

// line judges a line that stands at off.
func (c *chain) line(s *segment, line []byte, off int64) {
	if bytes.HasPrefix(line, headerMark) {
		c.header(s, line)
		return
	}
	if !s.headed || s.newer {
		s.bad++
		return
	}
	op, err := oplog.ParseLine(line)
	if err == nil {
		err = op.Check()
	}
	switch {
	case err != nil:
		s.bad++
	case op.Device != c.device:
		s.foreign++
	case s.sealed > 0 && op.Seq >= s.sealed:
		s.repeated++
	case c.collected(op.Seq):
		if op.Seq == c.floor.Seq && op.ID != c.floor.ID {
			c.fork(op.Seq, c.floor.ID, op.ID)
		}
	case op.Seq > c.next():
		c.ahead = max(c.ahead, op.Seq)
	case op.Seq < c.next():
		s.repeated++
		if !s.hasLow || op.Seq > s.low.Seq {
			s.low, s.hasLow = op, true
		}
	default:
		c.admit(s, op, off, off+int64(len(line))+1)
	}
}

func (c *chain) header(s *segment, line []byte) {
	h, err := parseHeader(line, c.device, s.base)
	switch {
	case errors.Is(err, errVersion):
		s.newer = true
	case err != nil:
		s.bad++
	default:
		s.headed = true
		if h.Next > 0 && (s.sealed == 0 || h.Next < s.sealed) {
			s.sealed = h.Next
		}
	}
}

// admit makes op the head if it continues the chain.
func (c *chain) admit(s *segment, op oplog.Op, off, end int64) {
	before, begun := c.verified.Head()
	if _, err := c.verified.Admit(op, op.HLC.WallMS); err != nil { // a relay parks nothing
		if fork, ok := errors.AsType[*oplog.ForkError](err); ok {
			c.fork(fork.Seq, fork.Have, fork.Got)
			return
		}
		s.bad++
		return
	}
	if n := len(c.marks); n > 0 {
		if m := &c.marks[n-1]; m.base == s.base && m.end <= off && end-m.off <= stretch {
			m.end = end
			return
		}
	}
	c.marks = append(c.marks, mark{base: s.base, off: off, end: end, first: op.Seq, before: before, begun: begun})
}

// settleLow compares the highest op of a group that stands at or below the head with the one that counts. The ops of
// a group are one branch, so this one shows whether it is another.
func (c *chain) settleLow(s *segment) {
	if !s.hasLow {
		return
	}
	s.hasLow = false
	if ops, err := c.read(s.low.Seq, 1); err == nil && ops[0].ID != s.low.ID {
		c.fork(s.low.Seq, ops[0].ID, s.low.ID)
	}
	s.low = oplog.Op{}
}

// fork notes that two ops were seen at one seq, once for each pair.
func (c *chain) fork(seq uint64, counts, other oplog.OpID) {
	f := Fork{Device: c.device, Seq: seq, Counts: counts, Other: other}
	if len(c.forks) < maxNoted && !slices.Contains(c.forks, f) {
		c.forks = append(c.forks, f)
	}
}

// read gives ops from a seq on, at least one, and not much more than room bytes of them. It verifies them again. An
// error matches relay.ErrCorrupt.
func (c *chain) read(from uint64, room int) ([]oplog.Op, error) {
	i, found := slices.BinarySearchFunc(c.marks, from, func(m mark, seq uint64) int {
		switch {
		case m.first < seq:
			return -1
		case m.first > seq:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i < 0 || from >= c.next() || c.collected(from) {
		return nil, fmt.Errorf("%w: op %s/%d is not in the folder", relay.ErrCorrupt, c.device, from)
	}
	var ops []oplog.Op
	for ; i < len(c.marks) && (len(ops) == 0 || room > 0); i++ {
		more, err := c.readMark(c.marks[i], from)
		ops = append(ops, more...)
		for _, op := range more {
			room -= relay.LineLen(op)
		}
		if err != nil {
			c.stale = true // the next refresh begins again
			if len(ops) > 0 {
				return ops, nil // what is good first; the next read meets the damage
			}
			return nil, fmt.Errorf("%w: segment %s: %w", relay.ErrCorrupt, segmentFile(c.device, c.marks[i].base), err)
		}
	}
	return ops, nil
}

// readMark gives the ops of a stretch from a seq on, which were counted when it was judged.
func (c *chain) readMark(m mark, from uint64) ([]oplog.Op, error) {
	f, err := c.fs.Open(segmentFile(c.device, m.base), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readRange(f, m.off, m.end)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) < m.end-m.off {
		return nil, errChanged
	}
	verified := oplog.NewChain(c.device)
	if m.begun {
		verified = oplog.ResumeChain(c.device, m.before)
	}
	var ops []oplog.Op
	last := m.first
	for line := range bytes.Lines(data) {
		op, err := oplog.ParseLine(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || op.Seq != verified.NextSeq() {
			continue
		}
		if _, err := verified.Admit(op, op.HLC.WallMS); err != nil {
			continue
		}
		if last = op.Seq; op.Seq >= from {
			ops = append(ops, op)
		}
	}
	if head, ok := verified.Head(); !ok || last != c.lastOf(m) || head.Seq != last {
		return ops, errChanged
	}
	return ops, nil
}

// lastOf is the seq of the last op of a stretch.
func (c *chain) lastOf(m mark) uint64 {
	i, _ := slices.BinarySearchFunc(c.marks, m.first, func(m mark, seq uint64) int {
		return int(int64(m.first) - int64(seq))
	})
	if i+1 < len(c.marks) {
		return c.marks[i+1].first - 1
	}
	return c.next() - 1
}
