package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/oplog"
)

// follow moves t to the end of its series. The process that wrote what it finds may have died before its own sync: t
// is loose from the last group on, since a group is only written once the one before is on stable storage.
func (j *Journal) follow(t tail) (tail, error) {
	s := t.at.series
	fresh := false
	if dropped, err := j.dropped(t); err != nil {
		return t, err
	} else if dropped {
		t = tail{at: position{series: s, device: j.cfg.Device}}
	}
	if !t.exists {
		numbers, err := segments(j.cfg.FS, j.cfg.Dir, s)
		if err != nil || len(numbers) == 0 {
			return t, err
		}
		if err := j.rooted(s, numbers[0]); err != nil {
			return t, err
		}
		if t, err = j.enter(t, numbers[len(numbers)-1]); err != nil {
			return t, err
		}
		fresh = true
	}
	for {
		if err := j.followFile(&t, fresh); err != nil {
			return t, err
		}
		next := nextSegment(t)
		if next == t.seg { // an own segment without a record: nothing can come after it
			return t, nil
		}
		more, err := j.cfg.FS.Exists(j.path(s, next))
		if err != nil || !more {
			return t, err
		}
		if t, err = j.enter(t, next); err != nil {
			return t, err
		}
		fresh = true
	}
}

// rooted refuses a series that begins with a later segment than the first, unless a cut says that what is before may be gone. A cut is on
// the disk before anything is dropped under it, so it is read after the segments were listed.
func (j *Journal) rooted(s Series, first uint64) error {
	if first == 0 {
		return nil
	}
	r, ok, err := j.readCut()
	if err != nil {
		return err
	}
	from := r.Peers
	if s == Own {
		from = r.Own
	}
	if ok && first <= from {
		return nil
	}
	return fmt.Errorf("%w: %s is the first segment, and no %s says that those before it may be gone: put it or them back from a backup, or keep this directory and give the device another",
		ErrLost, segmentName(s, first), cutName)
}

// dropped reports whether another process has gone on to a later segment than t's and compacted t's away.
func (j *Journal) dropped(t tail) (bool, error) {
	if !t.exists {
		return false, nil
	}
	if there, err := j.cfg.FS.Exists(j.path(t.at.series, t.seg)); err != nil || there {
		return false, err
	}
	r, ok, err := j.readCut()
	last := r.Peers
	if t.at.series == Own {
		last = r.Own
	}
	return ok && t.seg < last, err
}

// nextSegment is the number of the segment that follows the end of t.
func nextSegment(t tail) uint64 {
	if t.at.series == Own {
		return t.at.next()
	}
	if !t.exists {
		return 0
	}
	return t.seg + 1
}

// enter moves t to the start of a segment, which has to continue what t knows.
func (j *Journal) enter(t tail, number uint64) (tail, error) {
	s := t.at.series
	f, err := j.openSegment(s, number)
	if err != nil {
		return t, err
	}
	defer f.Close()
	name := segmentName(s, number)
	h, size, err := readHeader(f, name, s, number, j.cfg.Device)
	if err != nil {
		return t, err
	}
	head, has := h.head()
	if t.exists && (has != t.at.has || head.ID != t.at.head.ID || head.HLC != t.at.head.HLC) {
		return t, &CorruptError{File: name, Seq: t.at.next(), Err: fmt.Errorf("segment continues %q (%v), the one before ends with %q (%v)", head.ID, head.HLC, t.at.head.ID, t.at.head.HLC)}
	}
	t.exists, t.seg, t.end, t.loose = true, number, size, nil // a segment is made once the one before is synced
	t.at.head, t.at.has = head, has
	return t, nil
}

// followFile moves t to the end of its segment.
func (j *Journal) followFile(t *tail, fresh bool) error {
	f, err := j.openSegment(t.at.series, t.seg)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("size of segment: %w", err)
	}
	name := segmentName(t.at.series, t.seg)
	switch {
	case size < t.end:
		return fmt.Errorf("%w: %s has %d bytes and had %d", ErrLost, name, size, t.end)
	case size == t.end && !fresh:
		return nil
	}
	sc, err := scanTail(f, name, t.end, size, t.at)
	if err != nil {
		return err
	}
	if j.cfg.ReadOnly {
		t.end, t.at = sc.closed, sc.at
		return nil
	}
	first := tail{exists: true, seg: t.seg, end: sc.group, at: sc.groupAt}
	if !sc.clean() {
		if err := j.repair(f, *t, name, &sc); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			j.markUnsynced(first, false)
			return j.poison(fmt.Errorf("sync %s: %w", name, err))
		}
	}
	if sc.closed == t.end && fresh { // no record yet: its maker may have died before it synced the directory
		if err := j.cfg.FS.SyncDir(j.cfg.Dir); err != nil {
			return j.poison(fmt.Errorf("sync %s: %w", j.cfg.Dir, err))
		}
	} else if sc.closed > sc.group {
		t.loose = &first
	}
	t.end, t.at = sc.closed, sc.at
	return nil
}

// settle syncs what others wrote.
func (j *Journal) settle() error {
	for _, s := range []Series{Own, Peers} {
		t := j.tailOf(s)
		if t.loose == nil {
			continue
		}
		if err := j.settleTail(&t); err != nil {
			return err
		}
		j.setTail(t)
	}
	return nil
}

func (j *Journal) settleTail(t *tail) error {
	f, err := j.openSegment(t.at.series, t.seg)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		j.markUnsynced(t.from(), false)
		return j.poison(fmt.Errorf("sync %s: %w", segmentName(t.at.series, t.seg), err))
	}
	t.loose = nil
	return nil
}

// repair cuts what a crash tore, keeps it aside, and closes the last group. A segment that has a successor was
// whole when that was made: there it is damage.
func (j *Journal) repair(f File, t tail, name string, sc *scanned) error {
	numbers, err := segments(j.cfg.FS, j.cfg.Dir, t.at.series)
	if err != nil {
		return err
	}
	if n := len(numbers); n > 0 && numbers[n-1] > t.seg {
		return &CorruptError{File: name, Offset: sc.good, Seq: sc.goodAt.next(), Err: errors.New("the last group is not whole, and there is a later segment")}
	}
	if sc.torn {
		aside, err := j.keepAside(f, sc.good, sc.tornSize)
		if err != nil {
			return fmt.Errorf("keep the torn end of %s aside: %w", name, err)
		}
		if err := f.Truncate(sc.good); err != nil {
			return fmt.Errorf("cut the torn end of %s: %w", name, err)
		}
		j.cfg.Log.Warn("cut a torn end off the journal", "file", name, "offset", sc.good, "bytes", sc.tornSize,
			"kept", aside, "cause", sc.tornWhy)
	}
	if sc.good > sc.closed {
		if _, err := f.WriteAt([]byte("\n"), sc.good); err != nil {
			return fmt.Errorf("close the last group of %s: %w", name, err)
		}
		sc.good++
		sc.closed, sc.at = sc.good, sc.goodAt
	}
	return nil
}

// keepAside copies bytes of f into a new file torn-N.bin and syncs it, unless the last such file holds just them.
func (j *Journal) keepAside(f File, offset, size int64) (string, error) {
	cut := make([]byte, size)
	if _, err := f.ReadAt(cut, offset); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	names, err := j.cfg.FS.ReadDir(j.cfg.Dir)
	if err != nil {
		return "", err
	}
	last := 0
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(name, "torn-%d.bin", &n); err == nil && name == tornName(n) {
			last = max(last, n)
		}
	}
	name := tornName(last)
	if last > 0 {
		if have, err := j.readFile(name); err == nil && bytes.Equal(have, cut) {
			return name, nil
		}
	}
	name = tornName(last + 1)
	return name, j.writeFile(name, cut)
}

func tornName(n int) string { return fmt.Sprintf("torn-%d.bin", n) }

// readFile reads a small file of the directory.
func (j *Journal) readFile(name string) ([]byte, error) {
	return durable.ReadFrom(j.cfg.FS, filepath.Join(j.cfg.Dir, name))
}

// writeFile makes a file whole or not at all: write, sync, rename, sync the directory.
func (j *Journal) writeFile(name string, data []byte) error {
	tmp := filepath.Join(j.cfg.Dir, name+".tmp")
	f, err := j.cfg.FS.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	n, err := f.WriteAt(data, 0)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, j.cfg.FS.Remove(tmp))
	}
	if err := j.cfg.FS.Rename(tmp, filepath.Join(j.cfg.Dir, name)); err != nil {
		return err
	}
	return j.cfg.FS.SyncDir(j.cfg.Dir)
}

// newSegment makes the segment that follows t and moves t into it.
func (j *Journal) newSegment(t tail) (tail, error) {
	h := headerAfter(t, j.cfg.Device)
	b := h.bytes()
	name := segmentName(h.Series, h.Base)
	if err := j.writeFile(name, b); err != nil {
		err = fmt.Errorf("begin segment %s: %w", name, err)
		if there, lookErr := j.cfg.FS.Exists(filepath.Join(j.cfg.Dir, name)); there || lookErr != nil {
			return t, j.poison(err) // it stands, but perhaps only in memory
		}
		return t, fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	t.exists, t.seg, t.end = true, h.Base, int64(len(b))
	return t, nil
}

func headerAfter(t tail, device string) header {
	h := header{Journal: formatName, V: formatVersion, Series: t.at.series, Device: device, Base: nextSegment(t)}
	if t.at.has {
		stamp := t.at.head.HLC
		h.Prev, h.HLC = t.at.head.ID, &stamp
	}
	return h
}

const unsyncedName = "UNSYNCED.json"

// An unsynced says from where on a segment may not be on the disk although it is read back: its sync failed. The
// note need not survive the machine, since the bytes it warns of do not either.
type unsynced struct {
	V      int        `json:"v"`
	Series Series     `json:"series"`
	Seg    uint64     `json:"segment"`
	End    int64      `json:"end"`
	Seq    uint64     `json:"seq"`
	Prev   oplog.OpID `json:"prev,omitempty"`
	HLC    *oplog.HLC `json:"hlc,omitempty"`
}

// markUnsynced leaves the note for whoever opens the journal next. If even that fails, it cuts the bytes off if they are the caller's
// own, which nobody was answered for; those of others may have been synced and answered for long ago.
func (j *Journal) markUnsynced(t tail, own bool) {
	u := unsynced{V: formatVersion, Series: t.at.series, Seg: t.seg, End: t.end}
	if t.at.has {
		stamp := t.at.head.HLC
		u.Seq, u.Prev, u.HLC = t.at.head.Seq, t.at.head.ID, &stamp
	}
	if err := j.writeFile(unsyncedName, encodeNote(u)); err == nil {
		return
	}
	if ok, err := j.cfg.FS.Exists(filepath.Join(j.cfg.Dir, unsyncedName)); ok && err == nil {
		return // written, only not synced
	}
	if !own {
		return
	}
	if f, err := j.openSegment(t.at.series, t.seg); err == nil {
		_ = f.Truncate(t.end)
		_ = f.Close()
	}
}

// settleUnsynced does what a note of markUnsynced asks for: the bytes after End go into a new segment, which is synced
// before they are cut from the old one.
func (j *Journal) settleUnsynced() error {
	data, err := j.readFile(unsyncedName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", unsyncedName, err)
	}
	if u, ok := decodeNote(data); ok {
		if err := j.moveUnsynced(u); err != nil {
			return fmt.Errorf("move what was not synced into a new segment: %w", err)
		}
	}
	if err := j.cfg.FS.Remove(filepath.Join(j.cfg.Dir, unsyncedName)); err != nil {
		return err
	}
	return j.cfg.FS.SyncDir(j.cfg.Dir)
}

func (j *Journal) moveUnsynced(u unsynced) error {
	f, err := j.openSegment(u.Series, u.Seg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	t := tail{exists: true, seg: u.Seg, end: u.End, at: position{series: u.Series, device: j.cfg.Device}}
	if u.Prev != "" && u.HLC != nil {
		t.at.head, t.at.has = oplog.Head{Seq: u.Seq, ID: u.Prev, HLC: *u.HLC}, true
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size <= u.End { // it was cut, perhaps not durably
		if err := f.Sync(); err != nil {
			return err
		}
		return j.plant(headerAfter(t, j.cfg.Device))
	}
	buf := make([]byte, size-u.End)
	if _, err := f.ReadAt(buf, u.End); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	sc, err := scan(segmentName(u.Series, u.Seg), buf, u.End, t.at)
	if err != nil {
		return err
	}
	return j.replant(f, t, buf, &sc)
}

// replant writes the good records of buf into the segment after t, and cuts them from f.
func (j *Journal) replant(f File, t tail, buf []byte, sc *scanned) error {
	good := buf[:sc.good-t.end]
	if sc.good > sc.closed {
		good = append(bytes.Clone(good), '\n')
	}
	h := headerAfter(t, j.cfg.Device)
	if !t.at.has {
		h.Base = t.seg // the series begins with what was not synced
	}
	name := segmentName(h.Series, h.Base)
	if h.Base == t.seg { // the old segment holds nothing before: the new one takes its place
		return j.writeFile(name, append(h.bytes(), good...))
	}
	// The copy is on stable storage under another name before the original is cut, and becomes part of the series
	// only after: the same records never stand in it twice. The note is removed last, so that a crash between is made good.
	if len(good) > 0 {
		if err := j.writeFile(stagedName, append(h.bytes(), good...)); err != nil {
			return err
		}
	}
	if err := errors.Join(f.Truncate(t.end), f.Sync()); err != nil {
		return err
	}
	if len(good) == 0 {
		return nil
	}
	j.cfg.Log.Warn("copied records whose sync had failed into a new segment", "file", name, "bytes", len(good))
	return j.plant(h)
}

// stagedName is a segment that is whole and not part of its series yet.
const stagedName = "replant.jsonl"

// plant makes the staged segment part of the series, if there is one that begins with h.
func (j *Journal) plant(h header) error {
	staged, err := j.readFile(stagedName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !bytes.HasPrefix(staged, h.bytes()) {
		return err
	}
	if err := j.cfg.FS.Rename(filepath.Join(j.cfg.Dir, stagedName), j.path(h.Series, h.Base)); err != nil {
		return err
	}
	return j.cfg.FS.SyncDir(j.cfg.Dir)
}
