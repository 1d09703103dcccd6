// Package output keeps what commands print, on the node's disk and within limits.
//
// # Guarantees
//
// Of each attempt at most Limits.PerRun bytes are kept: the first half and the last, what lies between is cut and counted.
// Of all attempts together at most Limits.Total bytes are kept, by blocks of 4 KiB as a disk counts them: before more is
// written the attempts that were written to longest ago go, whole; one that is still being written to stays.
//
// Standard output and standard error of a command come into one record, in the order of their arrival, if both are given
// the same [Writer]. Memory is bounded: some 200 KiB for each attempt that is being written, however much is printed.
//
// A disk that is full, failing or hanging never fails who prints, and holds it up for Config.Patience at most, once for as
// long as the disk hangs. What could not be kept is counted, told in the log, and noted in the record as soon as that
// can be written again.
//
// Files are for their owner alone (0600 in a 0700 directory), and are plain text as it was printed. They survive a
// restart and a kill.
//
// # Not promised
//
// That what was printed survives a loss of power: nothing is synced. It is a help for people, and no record of what a run
// did.
//
// # Failure
//
// A [Writer] has no errors. A [Dir] says what is missing or cannot be read.
//
// # Concurrency
//
// A Store may be used by several goroutines; one Store at a time writes to a directory. A Dir reads beside it, from any
// process.
package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// MinPerRun is the least that may be kept of an attempt, unless it is nothing.
const MinPerRun = segments * block

const (
	segments = 8    // in the files of an attempt that prints much
	heads    = 4    // of them are its beginning
	block    = 4096 // what files are counted by
)

// Limits say how much is kept, in bytes. Where one of them is 0 nothing is.
type Limits struct{ PerRun, Total int64 }

func (l Limits) check() error {
	switch {
	case l.PerRun < 0 || l.Total < 0:
		return errors.New("output: a limit is negative")
	case l.PerRun != 0 && l.PerRun < MinPerRun:
		return fmt.Errorf("output: %d bytes per run are less than the least, %d", l.PerRun, MinPerRun)
	case l.PerRun > l.Total:
		return fmt.Errorf("output: %d bytes per run are more than %d in total", l.PerRun, l.Total)
	}
	return nil
}

// segment is the size of one file: whole blocks.
func (l Limits) segment() int64 { return l.PerRun / segments / block * block }

// A Config says where output is kept.
type Config struct {
	Dir    string // made if it is not there; whatever else is in it stays
	Limits Limits
	// Patience is how long a disk that takes nothing may hold up who prints; 0: DefaultPatience.
	Patience time.Duration
	Logger   *slog.Logger // nil: silent
}

// A Store keeps output.
type Store struct {
	Dir      // reads what is kept
	log      *slog.Logger
	create   func(path string) (io.WriteCloser, error)
	remove   func(path string) error
	patience time.Duration

	lost atomic.Int64

	mu     sync.Mutex
	limits Limits
	kept   map[key]*record
	total  int64 // what the records cost
}

// A key names the record of an attempt.
type key struct{ run, attempt string }

// A record is what is known of an attempt's files.
type record struct {
	cost  int64     // what they take, or may take until their writer is done
	last  time.Time // when they were written to, about
	files []int     // the numbers of its files
	open  bool      // somebody writes
	gone  bool      // it is not in the books any more
}

// New returns a store over a directory, and removes what is there beyond the limits.
func New(cfg Config) (*Store, error) {
	if err := cfg.Limits.check(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	s := &Store{Dir: Dir(cfg.Dir), log: cfg.Logger, create: create, remove: os.Remove, patience: cfg.Patience, limits: cfg.Limits, kept: map[key]*record{}}
	if err := s.scan(); err != nil {
		return nil, err
	}
	s.makeRoom(0, nil, 0)
	return s, nil
}

// Limit sets other limits, for attempts that begin from now on and for all together.
func (s *Store) Limit(l Limits) error {
	if err := l.check(); err != nil {
		return err
	}
	s.mu.Lock()
	s.limits = l
	s.mu.Unlock()
	s.makeRoom(0, nil, 0)
	return nil
}

// Stats are figures of a store.
type Stats struct {
	Attempts int   // of which something is kept
	Bytes    int64 // that they take, or may take until their writers are done
	Lost     int64 // bytes that could not be kept since the start; those that were cut are not among them
}

// Stats gives the figures of now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Attempts: len(s.kept), Bytes: s.total, Lost: s.lost.Load()}
}

// scan learns what earlier processes left.
func (s *Store) scan() error {
	files, err := s.files()
	for _, f := range files {
		r := s.kept[f.key]
		if r == nil {
			r = &record{}
			s.kept[f.key] = r
		}
		r.files = append(r.files, f.n)
		r.cost += cost(f.size)
		s.total += cost(f.size)
		if f.at.After(r.last) {
			r.last = f.at
		}
	}
	return err
}

// cost is what a file takes on the disk: an empty one counts too, since there are only so many files.
func cost(size int64) int64 { return max(1, (size+block-1)/block) * block }

// begin opens the record of an attempt, and forgets an earlier one of that name.
func (s *Store) begin(k key) (*record, Limits) {
	s.mu.Lock()
	old := s.kept[k]
	if old != nil {
		s.forgetLocked(k)
	}
	r := &record{open: true, last: time.Now()}
	s.kept[k] = r
	l := s.limits
	s.mu.Unlock()
	if old != nil {
		s.removeFiles(k, old.files)
	}
	return r, l
}

// reserve takes n bytes of the total for one more file of a record, and makes room for them. It is false if all that is
// kept is still being written, or another record has the name now.
func (s *Store) reserve(r *record, file int, n int64) bool { return s.makeRoom(n, r, file) }

// dropped gives back what a file took that is gone.
func (s *Store) dropped(r *record, file int, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(r.files, file); at >= 0 && !r.gone {
		r.files = slices.Delete(r.files, at, at+1)
		r.cost -= n
		s.total -= n
	}
}

// end gives back what was reserved for a record's last file and not used. Nobody writes any more.
func (s *Store) end(k key, r *record, unused int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.gone {
		return
	}
	r.open, r.last = false, time.Now()
	r.cost -= unused
	s.total -= unused
	if len(r.files) == 0 {
		s.forgetLocked(k)
	}
}

// makeRoom removes the oldest records until n more bytes fit, and gives them to r for a file if there is an r. It is false if
// that does not come about.
func (s *Store) makeRoom(n int64, r *record, file int) bool {
	for {
		k, files, ok := s.victim(n, r, file)
		if !ok || files == nil {
			return ok
		}
		s.removeFiles(k, files)
	}
}

// victim takes the oldest record out of the books, unless n bytes fit as it is; it is not ok if there is none to take.
func (s *Store) victim(n int64, r *record, file int) (k key, files []int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r != nil && r.gone {
		return k, nil, false
	}
	if s.total+n <= s.limits.Total {
		if r != nil {
			r.files, r.last = append(r.files, file), time.Now()
			r.cost += n
			s.total += n
		}
		return k, nil, true
	}
	var oldest *record
	for at, r := range s.kept {
		if !r.open && (oldest == nil || r.last.Before(oldest.last)) {
			k, oldest = at, r
		}
	}
	if oldest == nil {
		return k, nil, false
	}
	s.forgetLocked(k)
	return k, oldest.files, true
}

func (s *Store) forgetLocked(k key) {
	s.total -= s.kept[k].cost
	s.kept[k].gone = true
	delete(s.kept, k)
}

func (s *Store) removeFiles(k key, files []int) {
	for _, n := range files {
		if err := s.remove(s.path(k, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("output not removed", "run", k.run, "attempt", k.attempt, "err", err)
		}
	}
}

// create makes a file that is not there, and its directory if somebody took that away.
func create(path string) (io.WriteCloser, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, flags, 0o600)
		}
	}
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return f, nil
}
