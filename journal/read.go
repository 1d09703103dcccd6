package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"

	"github.com/syncnode/syncnode/oplog"
)

// A Cursor is a place between two records of a series. The zero Cursor is its beginning.
type Cursor struct {
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"` // 0: before the first record of the segment
}

// An Entry is an op and the place after it.
type Entry struct {
	Op   oplog.Op
	Next Cursor
}

// Own yields the ops of the own chain from that seq on, to the end as it was when the loop began. Each is verified
// against the one before. The last thing it yields is its error, if there is one: [ErrCorrupt], [ErrLost], an I/O
// error, or [ErrAnchored] if ops from that seq on were dropped. The first op is found in logarithmic time.
func (j *Journal) Own(from uint64) iter.Seq2[oplog.Op, error] {
	return func(yield func(oplog.Op, error) bool) {
		at, err := j.seek(from)
		if err != nil {
			yield(oplog.Op{}, err)
			return
		}
		for e, err := range j.read(Own, at) {
			if err == nil && e.Op.Seq < from {
				continue
			}
			if !yield(e.Op, err) {
				return
			}
		}
	}
}

// Peers yields the ops of other devices from the cursor on, in the order in which they were appended.
func (j *Journal) Peers(from Cursor) iter.Seq2[Entry, error] { return j.Read(Peers, from) }

// OpAt is the op of the own chain at seq, and false if the chain does not reach so far. ErrAnchored if it was dropped. It
// costs the logarithm of a segment.
func (j *Journal) OpAt(seq uint64) (oplog.Op, bool, error) {
	if head, ok := j.Head(); !ok || seq > head.Seq {
		return oplog.Op{}, false, nil
	}
	for op, err := range j.Own(seq) {
		if err != nil {
			return oplog.Op{}, false, err
		}
		return op, op.Seq == seq, nil
	}
	return oplog.Op{}, false, fmt.Errorf("%w: op %d", ErrLost, seq)
}

// End is the place after the last record that this object knows.
func (j *Journal) End(s Series) Cursor {
	t := j.tailOf(s)
	return Cursor{Segment: t.seg, Offset: t.end}
}

func (j *Journal) tailOf(s Series) tail {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s == Own {
		return j.own
	}
	return j.peers
}

// Read yields the entries of a series from the cursor on, to the end as it was when the loop began. The last thing it
// yields is its error. A cursor that lies beyond the end is ErrLost, and one that lies before what is kept ErrAnchored; so
// is the zero Cursor as soon as there is a cut, since nothing may be concluded from what is kept alone.
func (j *Journal) Read(s Series, from Cursor) iter.Seq2[Entry, error] {
	if from == (Cursor{}) {
		return j.Kept("", s)
	}
	return j.read(s, from)
}

// Kept yields the entries of a series that are kept, from the first. The caller has to hold the checkpoint that the
// journal begins at, and names it; "" if there is none. Otherwise it yields an [*AnchorError] and nothing else. What the
// checkpoint covers may be among the entries.
func (j *Journal) Kept(checkpoint string, s Series) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		first, err := j.firstKept(checkpoint, s)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for e, err := range j.read(s, first) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// firstKept is the beginning of what is kept of a series.
func (j *Journal) firstKept(checkpoint string, s Series) (Cursor, error) {
	cut, _, err := j.readCut()
	if err != nil {
		return Cursor{}, err
	}
	if cut.Checkpoint != checkpoint {
		return Cursor{}, &AnchorError{Checkpoint: cut.Checkpoint, Given: checkpoint}
	}
	if !j.tailOf(s).exists {
		return Cursor{}, nil
	}
	numbers, err := segments(j.cfg.FS, j.cfg.Dir, s)
	if err != nil || len(numbers) == 0 || cut.Checkpoint == "" {
		return Cursor{}, err // without a cut the series begins at 0, or was damaged
	}
	return Cursor{Segment: numbers[0]}, nil
}

func (j *Journal) read(s Series, from Cursor) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		t := j.tailOf(s)
		if from.Segment > t.seg || from.Segment == t.seg && from.Offset > t.end {
			yield(Entry{}, fmt.Errorf("%w: place %v of the series %s is beyond its end", ErrLost, from, s))
			return
		}
		if !t.exists {
			return
		}
		r := reader{j: j, t: t, at: position{series: s, device: j.cfg.Device}}
		if err := r.run(from, yield); err != nil {
			yield(Entry{}, err)
		}
	}
}

// A reader walks the segments of a series.
type reader struct {
	j     *Journal
	t     tail // where to stop
	at    position
	known bool // at is the op before the next one
}

var errStopped = errors.New("stopped")

func (r *reader) run(from Cursor, yield func(Entry, error) bool) error {
	numbers, err := segments(r.j.cfg.FS, r.j.cfg.Dir, r.t.at.series)
	if err != nil {
		return err
	}
	first := slices.IndexFunc(numbers, func(n uint64) bool { return n >= from.Segment })
	if first < 0 || numbers[first] != from.Segment {
		return r.j.below("", "segment "+segmentName(r.t.at.series, from.Segment))
	}
	for _, n := range numbers[first:] {
		if n > r.t.seg {
			break
		}
		offset := int64(0)
		if n == from.Segment {
			offset = from.Offset
		}
		if err := r.segment(n, offset, yield); err != nil {
			if errors.Is(err, errStopped) {
				return nil
			}
			return err
		}
	}
	if r.t.at.has && r.known && r.at.head.ID != r.t.at.head.ID {
		return fmt.Errorf("%w: the series %s ends with %s, not %s", ErrLost, r.t.at.series, r.at.head.ID, r.t.at.head.ID)
	}
	return nil
}

// segment yields the entries of one segment.
func (r *reader) segment(number uint64, offset int64, yield func(Entry, error) bool) error {
	s := r.t.at.series
	name := segmentName(s, number)
	f, err := r.j.cfg.FS.OpenFile(r.j.path(s, number), 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return r.j.below("", "segment "+name) // dropped while this was reading
	}
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer f.Close()
	h, size, err := readHeader(f, name, s, number, r.j.cfg.Device)
	if err != nil {
		return err
	}
	if offset < size {
		if err := r.enter(name, h); err != nil {
			return err
		}
		offset = size
	}
	limit := r.t.end
	if number != r.t.seg {
		if limit, err = f.Size(); err != nil {
			return fmt.Errorf("size of %s: %w", name, err)
		}
	}
	return r.lines(f, name, number, offset, limit, yield)
}

// enter checks that a segment continues what was read before.
func (r *reader) enter(name string, h header) error {
	head, has := h.head()
	if r.known && (has != r.at.has || head.ID != r.at.head.ID || head.HLC != r.at.head.HLC) {
		return &CorruptError{File: name, Seq: r.at.next(), Err: fmt.Errorf("segment continues %q (%v), the one before ends with %q (%v)", head.ID, head.HLC, r.at.head.ID, r.at.head.HLC)}
	}
	r.at.head, r.at.has, r.known = head, has, true
	return nil
}

// lines yields the records between two offsets, which have to be whole groups.
func (r *reader) lines(f File, name string, number uint64, offset, limit int64, yield func(Entry, error) bool) error {
	in := bufio.NewReaderSize(io.NewSectionReader(f, offset, limit-offset), int(min(tailChunk, limit-offset)))
	records := 0
	for offset < limit {
		corrupt := func(err error) error {
			return &CorruptError{File: name, Offset: offset, Seq: r.at.next(), Err: err}
		}
		line, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, bufio.ErrBufferFull):
			return corrupt(errNoEnd)
		case err != nil:
			return fmt.Errorf("read %s: %w", name, err)
		}
		next := offset + int64(len(line)) + 1
		if len(line) == 0 {
			offset, records = next, 0
			continue
		}
		op, err := r.at.parse(line)
		if err == nil {
			if !r.known { // the first one read; nothing is known of those before
				r.at.head, r.at.has, r.known = oplog.Head{Seq: op.Seq - 1, ID: op.Prev, HLC: oplog.HLC{WallMS: -1}}, op.Prev != "", true
			}
			err = r.at.follow(op)
		}
		if err != nil {
			return corrupt(err)
		}
		offset, records = next, records+1
		if !yield(Entry{Op: op, Next: Cursor{Segment: number, Offset: offset}}, nil) {
			return errStopped
		}
	}
	if records > 0 {
		return &CorruptError{File: name, Offset: offset, Seq: r.at.next(), Err: errors.New("the last group has no end")}
	}
	return nil
}

// readLine is the next line without its newline; bufio.ErrBufferFull if it is longer than any record.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) && len(long) <= oplog.MaxLine {
		line, err = in.ReadSlice('\n')
		long = append(long, line...)
	}
	if err != nil {
		return nil, err
	}
	return long[:len(long)-1], nil
}

// Before is the id of the last op of the series before the cursor; empty if there is none. False if there is no
// such place, or none of a record's end.
func (j *Journal) Before(s Series, c Cursor) (oplog.OpID, bool, error) {
	t := j.tailOf(s)
	if c == (Cursor{}) {
		return "", true, nil
	}
	if !t.exists || c.Segment > t.seg || c.Segment == t.seg && c.Offset > t.end {
		return "", false, nil
	}
	f, err := j.cfg.FS.OpenFile(j.path(s, c.Segment), 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("open segment: %w", err)
	}
	defer f.Close()
	h, size, err := readHeader(f, segmentName(s, c.Segment), s, c.Segment, j.cfg.Device)
	if err != nil {
		return "", false, err
	}
	if c.Offset <= size {
		return h.Prev, c.Offset == size || c.Offset == 0, nil
	}
	return opBefore(f, position{series: s, device: j.cfg.Device}, size, c.Offset)
}

// opBefore reads the record that ends at offset, or before the blank line that does.
func opBefore(f File, p position, low, offset int64) (oplog.OpID, bool, error) {
	for n := int64(4096); ; n *= 8 {
		start := max(low, offset-n)
		buf := make([]byte, offset-start)
		if _, err := f.ReadAt(buf, start); errors.Is(err, io.EOF) {
			return "", false, nil
		} else if err != nil {
			return "", false, err
		}
		if buf[len(buf)-1] != '\n' {
			return "", false, nil
		}
		text := bytes.TrimRight(buf, "\n")
		from := bytes.LastIndexByte(text, '\n')
		if from < 0 && start > low && n < 2*oplog.MaxLine {
			continue
		}
		op, err := p.parse(text[from+1:])
		return op.ID, err == nil, nil
	}
}

// seek finds a place in the own chain at or shortly before the op with that seq.
func (j *Journal) seek(seq uint64) (Cursor, error) {
	t := j.tailOf(Own)
	if !t.exists {
		return Cursor{}, nil
	}
	numbers, err := segments(j.cfg.FS, j.cfg.Dir, Own)
	if err != nil {
		return Cursor{}, err
	}
	i, found := slices.BinarySearch(numbers, seq)
	if !found {
		i--
	}
	if i < 0 {
		return Cursor{}, j.below("", fmt.Sprintf("op %d is before the first segment", seq))
	}
	for i > 0 && numbers[i] > t.seg {
		i--
	}
	c := Cursor{Segment: numbers[i]}
	f, err := j.cfg.FS.OpenFile(j.path(Own, c.Segment), 0, 0)
	if err != nil {
		return Cursor{}, fmt.Errorf("open segment: %w", err)
	}
	defer f.Close()
	limit := t.end
	if c.Segment != t.seg {
		if limit, err = f.Size(); err != nil {
			return Cursor{}, err
		}
	}
	c.Offset, err = j.bisect(f, limit, seq)
	return c, err
}

// bisect finds the start of a record at or before seq, within a chunk of it. 0 stands for the first record. What
// it cannot read it leaves to the reader to judge.
func (j *Journal) bisect(f File, limit int64, seq uint64) (int64, error) {
	p := position{series: Own, device: j.cfg.Device}
	low, high := int64(0), limit
	buf := make([]byte, tailChunk/4)
	for high-low > tailChunk/4 {
		mid := low + (high-low)/2
		n, err := f.ReadAt(buf[:min(int64(len(buf)), high-mid)], mid)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read segment: %w", err)
		}
		at, op, ok := firstRecord(p, buf[:n])
		switch {
		case !ok:
			high = mid
		case op.Seq <= seq:
			low = mid + int64(at)
		default:
			high = mid
		}
	}
	return low, nil
}

// firstRecord finds the first line in buf that begins after a newline and is a record.
func firstRecord(p position, buf []byte) (int, oplog.Op, bool) {
	for i := bytes.IndexByte(buf, '\n'); i >= 0; {
		i++
		n := bytes.IndexByte(buf[i:], '\n')
		if n < 0 {
			break
		}
		if op, err := p.parse(buf[i : i+n]); err == nil {
			return i, op, true
		}
		i += n
	}
	return 0, oplog.Op{}, false
}
