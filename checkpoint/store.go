package checkpoint

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/journal"
)

const (
	suffix     = ".checkpoint"
	tmpSuffix  = ".tmp"
	maxTrailer = 1024 // bytes of the last line of a file
	maxTries   = 1000 // temporary names, each left by a crash
)

// A trailer is the last line of a file, after the body.
type trailer struct {
	Hash Hash `json:"hash"`
	Meta
}

func (t trailer) bytes() []byte {
	b, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("checkpoint: a trailer that cannot be encoded: %v", err))
	}
	return append(b, '\n')
}

// A Store is a directory of checkpoints, one file each. Processes may share it.
type Store struct {
	FS  journal.FS // nil is journal.OS
	Dir string
	Log *slog.Logger // hears of every damaged checkpoint; nil discards
}

func (s *Store) fs() journal.FS {
	if s.FS == nil {
		return journal.OS{}
	}
	return s.FS
}

func (s *Store) path(h Hash) string { return filepath.Join(s.Dir, string(h)+suffix) }

// Save puts a checkpoint on stable storage: a temporary file, sync, rename, sync of the directory. One that is there already and is
// good is left as it is, with its Meta, unless only the new one is Sealed; a damaged one is replaced. After an error the old state stands, or the new; repeating is safe.
func (s *Store) Save(c *Checkpoint, meta Meta) error {
	if err := s.save(c, meta); err != nil {
		return fmt.Errorf("save checkpoint %.12s: %w", c.Hash, err)
	}
	return nil
}

func (s *Store) save(c *Checkpoint, meta Meta) error {
	if !meta.valid() {
		return errMeta
	}
	if err := durable.DirIn(s.fs(), s.Dir); err != nil {
		return err
	}
	there, err := s.fs().Exists(s.path(c.Hash))
	if err != nil {
		return err
	}
	if there {
		_, have, err := s.load(c.Hash)
		if err == nil && (have.Sealed || !meta.Sealed) {
			return s.fs().SyncDir(s.Dir) // a crash may have kept its author from doing so
		}
		if err != nil {
			s.logger().Error("a damaged checkpoint is replaced", "checkpoint", c.Hash, "error", err)
		}
	}
	tmp, err := s.write(c, meta)
	if err != nil {
		return err
	}
	if err := s.fs().Rename(tmp, s.path(c.Hash)); err != nil {
		return errors.Join(err, s.fs().Remove(tmp))
	}
	return s.fs().SyncDir(s.Dir)
}

var errMeta = errors.New("author must be a device's id, parent a hash or empty")

func (m Meta) valid() bool {
	return (m.Parent == "" || m.Parent.Valid()) && len(m.Author) <= 128 && strings.IndexFunc(m.Author, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0
}

// write writes and syncs a temporary file of its own, or leaves none.
func (s *Store) write(c *Checkpoint, meta Meta) (string, error) {
	name, f, err := s.create(c.Hash)
	if err != nil {
		return "", err
	}
	err = fill(f, c, meta)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, s.fs().Remove(name))
	}
	return name, nil
}

// create opens a file that nobody else has: two processes may save one checkpoint at once.
func (s *Store) create(h Hash) (string, journal.File, error) {
	for n := range maxTries {
		name := fmt.Sprintf("%s-%d%s", s.path(h), n, tmpSuffix)
		f, err := s.fs().OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return name, f, err
		}
	}
	return "", nil, fmt.Errorf("%d temporary files are in the way", maxTries)
}

func fill(f journal.File, c *Checkpoint, meta Meta) error {
	w := bufio.NewWriterSize(io.NewOffsetWriter(f, 0), 1<<18)
	if _, err := c.WriteTo(w); err != nil {
		return err
	}
	if _, err := w.Write(trailer{c.Hash, meta}.bytes()); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// Load reads a checkpoint and checks all of it: ErrUnreadable, ErrHash, ErrDigest, ErrName. One that is not there is fs.ErrNotExist.
func (s *Store) Load(h Hash) (*Checkpoint, Meta, error) {
	c, meta, err := s.load(h)
	if err != nil {
		return nil, Meta{}, fmt.Errorf("load checkpoint %.12s: %w", h, err)
	}
	return c, meta, nil
}

func (s *Store) load(h Hash) (c *Checkpoint, meta Meta, err error) {
	err = s.read(h, func(body io.Reader, t trailer) error {
		if c, err = Decode(body, t.Hash); err != nil {
			return err
		}
		if t.Hash != h {
			return &MismatchError{Kind: ErrName, Want: string(h), Got: string(t.Hash)}
		}
		meta = t.Meta
		return nil
	})
	if err != nil {
		return nil, Meta{}, err
	}
	return c, meta, nil
}

// Header reads the header of a checkpoint without its records, and without checking that they are whole.
func (s *Store) Header(h Hash) (header Header, meta Meta, err error) {
	err = s.read(h, func(body io.Reader, t trailer) error {
		meta = t.Meta
		header, err = DecodeHeader(body, h)
		return err
	})
	if err != nil {
		return Header{}, Meta{}, fmt.Errorf("read header of checkpoint %.12s: %w", h, err)
	}
	return header, meta, nil
}

// read opens a file and shows its body and its trailer.
func (s *Store) read(h Hash, show func(io.Reader, trailer) error) error {
	if !h.Valid() {
		return fmt.Errorf("%w: not a hash", ErrName)
	}
	f, err := s.fs().OpenFile(s.path(h), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	t, size, err := readTrailer(f)
	if err == nil {
		err = show(io.NewSectionReader(f, 0, size), t)
	}
	return errors.Join(err, f.Close())
}

// readTrailer reads the last line, and says where the body ends.
func readTrailer(f journal.File) (t trailer, body int64, err error) {
	size, err := f.Size()
	if err != nil {
		return t, 0, err
	}
	end := make([]byte, min(size, maxTrailer))
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil && !errors.Is(err, io.EOF) {
		return t, 0, err
	}
	cut := bytes.LastIndexByte(end[:max(0, len(end)-1)], '\n') + 1
	line := end[cut:]
	if json.Unmarshal(line, &t) != nil || !bytes.Equal(t.bytes(), line) || !t.Hash.Valid() || !t.valid() {
		return t, 0, fmt.Errorf("%w: it does not end as one", ErrUnreadable)
	}
	return t, size - int64(len(line)), nil
}

// List gives the names of the checkpoints in the directory, in bytewise order. A directory that is not there is empty. Files of other
// names are ignored.
func (s *Store) List() ([]Hash, error) {
	there, err := s.fs().Exists(s.Dir)
	if err != nil || !there {
		return nil, err
	}
	names, err := s.fs().ReadDir(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var out []Hash
	for _, name := range names {
		if h, ok := strings.CutSuffix(name, suffix); ok && Hash(h).Valid() {
			out = append(out, Hash(h))
		}
	}
	slices.Sort(out)
	return out, nil
}

// A Found is a checkpoint and what had to be passed over to find it.
type Found struct {
	*Checkpoint
	Meta    Meta
	Skipped map[Hash]error // damaged, or refused by the caller; they still lie there
}

// Newest loads the checkpoint that covers most, of those that are good and that usable accepts (nil accepts all). A damaged one is passed
// over, which is logged as an error and reported in Skipped; usable has to make sure that what an older one does not cover is still held.
// ErrNone if none is left; Skipped is filled then too.
func (s *Store) Newest(usable func(*Header) error) (Found, error) {
	found := Found{Skipped: map[Hash]error{}}
	hashes, err := s.List()
	if err != nil {
		return found, err
	}
	skip := func(h Hash, err error) {
		found.Skipped[h] = err
		s.logger().Error("checkpoint cannot be used, looking for an older one", "checkpoint", h, "error", err)
	}
	var headers []Header
	for _, h := range hashes {
		header, _, err := s.Header(h)
		if err != nil {
			skip(h, err)
			continue
		}
		headers = append(headers, header)
	}
	slices.SortStableFunc(headers, func(a, b Header) int { return cmp.Compare(b.covered(), a.covered()) })
	for _, header := range headers {
		if usable != nil {
			if err := usable(&header); err != nil {
				found.Skipped[header.Hash] = err
				continue
			}
		}
		c, meta, err := s.Load(header.Hash)
		if err != nil {
			skip(header.Hash, err)
			continue
		}
		found.Checkpoint, found.Meta = c, meta
		return found, nil
	}
	return found, fmt.Errorf("%w in %s", ErrNone, s.Dir)
}

// covered is how many ops a checkpoint covers.
func (h *Header) covered() (n uint64) {
	for _, head := range h.Heads {
		n += head.Seq + 1
	}
	for _, head := range h.Closed {
		n += head.Seq + 1
	}
	return n
}

// Prune removes every checkpoint but those named, and temporary files. First it loads each of those named; if one is damaged or
// missing it removes nothing and fails. A Save of another process that is under way may fail for it, and can be repeated.
func (s *Store) Prune(keep ...Hash) error {
	if len(keep) == 0 {
		return errors.New("prune checkpoints: none is to be kept")
	}
	for _, h := range keep {
		if _, _, err := s.Load(h); err != nil {
			return fmt.Errorf("prune checkpoints: nothing was removed: %w", err)
		}
	}
	names, err := s.fs().ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	for _, name := range names {
		h, whole := strings.CutSuffix(name, suffix)
		tmp := strings.Contains(name, suffix+"-") && strings.HasSuffix(name, tmpSuffix)
		if tmp || whole && Hash(h).Valid() && !slices.Contains(keep, Hash(h)) {
			if err := s.fs().Remove(filepath.Join(s.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("prune checkpoints: %w", err)
			}
		}
	}
	return nil
}

func (s *Store) logger() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}
