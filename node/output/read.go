package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Dir is a directory in which a Store keeps output, for reading.
type Dir string

// An Info says what is kept of an attempt.
type Info struct {
	Run     string
	Attempt string    // or the name that the Writer was given
	Kept    int64     // bytes
	Cut     int64     // bytes that were printed between the first half and the last, and are not kept
	Last    time.Time // when it was written to
}

// ErrNone means that nothing is kept under that name: it printed elsewhere, or it was removed to make room.
var ErrNone = errors.New("no output is kept here")

// List tells what is kept of a run, the oldest attempt first.
func (d Dir) List(run string) ([]Info, error) {
	files, err := d.files()
	if err != nil {
		return nil, err
	}
	var all []Info
	for _, of := range grouped(files) {
		if of[0].run == run {
			all = append(all, infoOf(of))
		}
	}
	slices.SortStableFunc(all, func(a, b Info) int { return a.Last.Compare(b.Last) })
	return all, nil
}

// Open opens what is kept of an attempt: as it was printed, with a line where something is left out. It may be used while
// the attempt prints, and ends where the record ends then.
func (d Dir) Open(run, attempt string) (*Record, error) {
	all, err := d.files()
	if err != nil {
		return nil, err
	}
	var of []file
	for _, f := range all {
		if f.key == (key{run, attempt}) {
			of = append(of, f)
		}
	}
	if len(of) == 0 {
		return nil, fmt.Errorf("attempt %s of run %s: %w", attempt, run, ErrNone)
	}
	r := &Record{}
	from := make([]io.Reader, 0, 2*len(of))
	next, size := 0, of[0].size // each but the last is as long as the first
	for _, f := range of {
		in, err := os.Open(d.path(f.key, f.n))
		if gone(err) {
			continue // its writer went on meanwhile
		}
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("output: %w", err)
		}
		r.files = append(r.files, in)
		if f.n > next {
			from = append(from, strings.NewReader(cut(int64(f.n-next)*size)))
		}
		from = append(from, in)
		next = f.n + 1
	}
	r.Reader = io.MultiReader(from...)
	return r, nil
}

// A Record reads what is kept of an attempt.
type Record struct {
	io.Reader
	files []*os.File
}

// Close ends the reading.
func (r *Record) Close() error {
	var all []error
	for _, f := range r.files {
		all = append(all, f.Close())
	}
	return errors.Join(all...)
}

// A file is one of an attempt's.
type file struct {
	key
	n    int
	size int64
	at   time.Time
}

// names are those of our files: run, attempt or another name of the run's, number.
var names = regexp.MustCompile(`^(r1-[a-z2-7]+)\.([0-9a-z-]+)\.([0-9]{6,})$`)

func (d Dir) path(k key, n int) string {
	return filepath.Join(string(d), fmt.Sprintf("%s.%s.%06d", k.run, k.attempt, n))
}

// files are all that are there, by attempt and number.
func (d Dir) files() ([]file, error) {
	entries, err := os.ReadDir(string(d))
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	var all []file
	for _, e := range entries {
		part := names.FindStringSubmatch(e.Name())
		if part == nil {
			continue
		}
		n, err := strconv.Atoi(part[3])
		info, statErr := e.Info()
		if err != nil || statErr != nil || !info.Mode().IsRegular() {
			continue // gone meanwhile, or not ours
		}
		all = append(all, file{key{part[1], part[2]}, n, info.Size(), info.ModTime()})
	}
	slices.SortFunc(all, func(a, b file) int {
		if c := strings.Compare(a.run+"."+a.attempt, b.run+"."+b.attempt); c != 0 {
			return c
		}
		return a.n - b.n
	})
	return all, nil
}

// grouped puts the files of one attempt together.
func grouped(all []file) (by [][]file) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].key == all[0].key {
			n++
		}
		by, all = append(by, all[:n]), all[n:]
	}
	return by
}

func infoOf(of []file) Info {
	i := Info{Run: of[0].run, Attempt: of[0].attempt}
	next := 0
	for _, f := range of {
		i.Kept += f.size
		i.Cut += int64(f.n-next) * of[0].size
		next = f.n + 1
		if f.at.After(i.Last) {
			i.Last = f.at
		}
	}
	return i
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
