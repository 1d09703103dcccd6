package dir

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// maxStored is the most bytes of a checkpoint file that are read: the body and the line before it.
const maxStored = relay.MaxCheckpoint + maxSmall

// A shelf is what a handle has judged of the checkpoint files of all devices. Whoever is in uses it alone; nobody who is in enters a
// device.
type shelf struct {
	turn  chan struct{}
	files map[string]*stored // by path
	ended oplog.Frontier     // closed chains that this handle has seen; a file that vanishes opens none again
}

// A stored checkpoint is a file, as far as it was judged.
type stored struct {
	device string // in whose folder it lies
	path   string
	size   int64
	mtime  time.Time // a hint and nothing more
	young  bool      // see segment
	line   checkpointLine
	err    error // why it does not count; nil if it is whole
}

// about is the checkpoint without its body.
func (s *stored) about() relay.Checkpoint {
	return relay.Checkpoint{Hash: s.line.Hash, Author: s.line.Author, Frontier: s.line.Frontier, Closed: s.line.Closed}
}

// before orders what covers the same: the one that was put later comes first.
func (s *stored) before(o *stored) int {
	return cmp.Or(cmp.Compare(o.line.N, s.line.N), strings.Compare(s.line.Hash, o.line.Hash), strings.Compare(s.path, o.path))
}

// books are what all checkpoint files together say.
type books struct {
	whole  []*stored // best first
	best   []*stored // of those, the ones that no other dominates
	broken []*stored // files that do not count
	closed oplog.Frontier
	seeds  oplog.Heads // where chains begin whose own files reach less far
	next   uint64      // the number of the next put
	odd    []Oddity
}

// newest is what Checkpoint gives; nil if there is none.
func (b *books) newest() *stored {
	if len(b.best) == 0 {
		return nil
	}
	return b.best[0]
}

func (b *books) seed(device string) *oplog.Head {
	if h, ok := b.seeds[device]; ok {
		return &h
	}
	return nil
}

// common is what every one of the best covers. Of two that were put at the same time in two copies of the folder neither covers the other:
// then nothing goes that one of them lacks, until one covers both.
func (b *books) common() *relay.Checkpoint {
	if len(b.best) == 0 {
		return nil
	}
	c := b.best[0].about()
	c.Frontier, c.Closed = c.Frontier.Clone(), c.Closed.Clone()
	for _, s := range b.best[1:] {
		for _, f := range []struct{ into, from oplog.Frontier }{{c.Frontier, s.line.Frontier}, {c.Closed, s.line.Closed}} {
			for d, p := range f.into {
				switch q, ok := f.from[d]; {
				case !ok:
					delete(f.into, d)
				case q.Seq < p.Seq:
					f.into[d] = q
				}
			}
		}
	}
	return &c
}

// books judges the checkpoint files that changed, or all of them if fresh.
func (r *Relay) books(ctx context.Context, fresh bool) (*books, error) {
	s := &r.shelf
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, alive(ctx)
	}
	defer func() { s.turn <- struct{}{} }()
	return r.booksIn(ctx, fresh)
}

// booksIn is books for who is in the shelf.
func (r *Relay) booksIn(ctx context.Context, fresh bool) (*books, error) {
	names, _, err := r.devices()
	if err != nil {
		return nil, err
	}
	s, out, found := &r.shelf, &books{}, map[string]bool{}
	for _, device := range names {
		if err := alive(ctx); err != nil {
			return nil, err
		}
		if err := r.judgeShelf(device, fresh, out, found); err != nil {
			return nil, r.unsent("read the checkpoints", err)
		}
	}
	for path, f := range s.files {
		switch {
		case !found[path]:
			delete(s.files, path)
		case f.err != nil:
			out.broken = append(out.broken, f)
			out.odd = append(out.odd, Oddity{Path: path, Reason: f.err.Error()})
		default:
			out.whole = append(out.whole, f)
			relay.Join(s.ended, f.line.Closed)
		}
	}
	out.judge(s.ended.Clone())
	return out, nil
}

// judge compares the whole files with each other.
func (b *books) judge(ended oplog.Frontier) {
	slices.SortFunc(b.whole, (*stored).before)
	slices.SortFunc(b.broken, (*stored).before)
	b.closed, b.seeds = ended, oplog.Heads{}
	for _, s := range b.whole {
		b.next = max(b.next, s.line.N)
		if !slices.ContainsFunc(b.whole, func(o *stored) bool { return o.dominates(s) && !s.dominates(o) }) {
			b.best = append(b.best, s)
		}
		for d, h := range s.line.Seeds {
			if old, ok := b.seeds[d]; !ok || old.Seq < h.Seq {
				b.seeds[d] = h.head(d)
			}
		}
	}
	b.next = min(b.next+1, oplog.MaxInt)
}

// dominates reports whether s covers and has closed all that o does.
func (s *stored) dominates(o *stored) bool {
	for d := range o.line.Closed {
		if _, ok := s.line.Closed[d]; !ok {
			return false
		}
	}
	return s.about().All().Dominates(o.about().All())
}

// judgeShelf looks at the checkpoint files in the folder of one device.
func (r *Relay) judgeShelf(device string, fresh bool, out *books, found map[string]bool) error {
	dir := deviceFile(device, checkpointsDir)
	entries, err := r.fs.ReadDir(dir)
	if err != nil {
		if _, statErr := r.fs.Stat(dir); statErr == nil || !errors.Is(err, fs.ErrNotExist) {
			out.odd = append(out.odd, Oddity{Path: dir, Reason: err.Error()})
		}
		return nil
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		hash, ok := checkpointHash(e.Name())
		if !ok || !e.Type().IsRegular() {
			out.odd = append(out.odd, Oddity{Path: name, Reason: nameReason(e, ok)})
			continue
		}
		info, err := r.fs.Stat(name)
		if err != nil {
			continue // it went meanwhile
		}
		found[name] = true
		if f := r.shelf.files[name]; f != nil && !fresh && !f.young && f.size == info.Size() && f.mtime.Equal(info.ModTime()) {
			continue
		}
		f := &stored{device: device, path: name, size: info.Size(), mtime: info.ModTime(), young: young(info, time.Now())}
		f.line.Hash = hash // of one that cannot be read its name is all there is
		_, f.err = f.read(r.fs)
		r.shelf.files[name] = f
	}
	return nil
}

var errHalf = errors.New("half there, or damaged: it does not give its hash")

// read reads the file and gives its body, which is whole if there is no error.
func (s *stored) read(fsys FS) ([]byte, error) {
	data, err := readSmall(fsys, s.path, maxStored)
	if err != nil {
		return nil, err
	}
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		return nil, errHalf
	}
	line, err := decode[checkpointLine](data[:end], s.device)
	if err != nil {
		return nil, err
	}
	body, hash := data[end+1:], s.line.Hash
	if line.Hash != hash || !(relay.Checkpoint{Hash: hash, Body: body}).Whole() {
		return nil, errHalf
	}
	s.line = line
	return body, nil
}

// checkpointLine is the first line of a checkpoint file; the body is what follows.
type checkpointLine struct {
	V        int                `json:"v"`
	Device   string             `json:"device"`
	N        uint64             `json:"n"` // greater than that of any the device saw when it put this one
	PutMS    int64              `json:"put_ms"`
	Hash     string             `json:"hash"`
	Author   string             `json:"author"`
	Frontier oplog.Frontier     `json:"frontier"`
	Closed   oplog.Frontier     `json:"closed,omitempty"`
	Seeds    map[string]posTime `json:"seeds,omitempty"`
}

// posTime is the last op of a chain with its stamp.
type posTime struct {
	Seq     uint64     `json:"seq"`
	ID      oplog.OpID `json:"op_id"`
	WallMS  int64      `json:"wall_ms"`
	Counter uint32     `json:"counter"`
}

func (p posTime) head(device string) oplog.Head {
	return oplog.Head{Seq: p.Seq, ID: p.ID, HLC: oplog.HLC{WallMS: p.WallMS, Counter: p.Counter, Device: device}}
}

func posTimeOf(h oplog.Head) posTime {
	return posTime{Seq: h.Seq, ID: h.ID, WallMS: h.HLC.WallMS, Counter: h.HLC.Counter}
}

func (p posTime) pos() oplog.Pos { return oplog.Pos{Seq: p.Seq, ID: p.ID} }

func (c checkpointLine) check(device string) error {
	seeds := oplog.Frontier{}
	for d, h := range c.Seeds {
		seeds[d] = h.pos()
	}
	for _, f := range []oplog.Frontier{c.Frontier, c.Closed, seeds} {
		if err := relay.CheckFrontier(f); err != nil {
			return err
		}
	}
	if err := relay.CheckDevice(c.Author); err != nil {
		return err
	}
	if c.N > oplog.MaxInt {
		return fmt.Errorf("number %d", c.N)
	}
	return checkValue(c.V, c.Device, device)
}

// checkpointName is the name of the file of a checkpoint.
func checkpointName(hash string) string { return hash + ".bin" }

// checkpointHash reads a name as checkpointName writes it.
func checkpointHash(name string) (string, bool) {
	hash, ok := strings.CutSuffix(name, ".bin")
	raw, err := hex.DecodeString(hash)
	return hash, ok && err == nil && len(raw) == 32 && strings.ToLower(hash) == hash
}

// write puts a checkpoint into the folder of a device.
func (s *stored) write(fsys FS, body []byte) error {
	line, err := json.Marshal(s.line)
	if err != nil {
		return err
	}
	return replace(fsys, s.path, append(append(line, '\n'), body...))
}

// drop removes a checkpoint file; that it is gone already is no error.
func (s *stored) drop(fsys FS) error {
	if err := fsys.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsys.SyncDir(path.Dir(s.path))
}
