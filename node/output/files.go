package output

import (
	"errors"
	"fmt"
	"io"
)

var (
	errSlow  = errors.New("the disk took nothing in time")
	errTotal = errors.New("the total limit is taken up by what is still being written")
)

// files is the record of an attempt while it is written. What is printed fills one file after the other; the first ones
// stay, and of the others the last ones. It belongs to one goroutine.
type files struct {
	s    *Store
	key  key
	rec  *record
	size int64 // of one file; 0: nothing is kept

	n     int            // the file that is written, or comes next
	file  io.WriteCloser // nil if there is none
	space int64          // in it

	lost int64 // not kept, and not noted yet
	all  int64 // not kept
	why  error // the first reason
}

func begin(s *Store, k key) *files {
	rec, limits := s.begin(k)
	f := &files{s: s, key: k, rec: rec, n: -1, size: limits.segment()}
	if f.size > 0 {
		f.failed(f.next()) // an empty file says that nothing was printed
	}
	return f
}

// lose notes bytes that are not kept.
func (f *files) lose(n int64, why error) {
	f.lost += n
	f.all += n
	f.failed(why)
}

// failed keeps the first thing that went wrong.
func (f *files) failed(err error) {
	if f.why == nil {
		f.why = err
	}
}

func (f *files) write(b []byte) {
	if f.size == 0 {
		return
	}
	err := f.note()
	if err == nil {
		var n int
		n, err = f.put(b)
		b = b[n:]
	}
	if err != nil {
		f.s.lost.Add(int64(len(b)))
		f.lose(int64(len(b)), err)
	}
}

// note writes into the record how much of it is missing here.
func (f *files) note() error {
	if f.lost == 0 {
		return nil
	}
	if _, err := f.put([]byte(notKept(f.lost, f.why))); err != nil {
		return err
	}
	f.lost = 0
	return nil
}

func (f *files) put(b []byte) (done int, err error) {
	for len(b) > 0 {
		if f.space == 0 || f.file == nil {
			if err := f.next(); err != nil {
				return done, err
			}
		}
		n, err := f.file.Write(b[:min(int64(len(b)), f.space)])
		done += n
		b = b[n:]
		f.space -= int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// next goes on to the next file. It is tried again by the next write if it fails.
func (f *files) next() error {
	if f.file != nil {
		err := f.file.Close()
		f.file = nil
		if err != nil {
			f.failed(err) // some of it may be missing: nobody can say how much
		}
	}
	n := f.n + 1
	if drop := n - (segments - heads); drop >= heads {
		if err := f.s.remove(f.s.path(f.key, drop)); err != nil && !gone(err) {
			return err
		}
		f.s.dropped(f.rec, drop, f.size)
	}
	if !f.s.reserve(f.rec, n, f.size) {
		return errTotal
	}
	file, err := f.s.create(f.s.path(f.key, n))
	if err != nil {
		f.s.dropped(f.rec, n, f.size)
		return err
	}
	f.n, f.file, f.space = n, file, f.size
	return nil
}

func (f *files) end() {
	if f.size > 0 {
		f.failed(f.note())
	}
	var unused int64
	if f.file != nil {
		f.failed(f.file.Close())
		unused = f.size - cost(f.size-f.space)
	}
	f.s.end(f.key, f.rec, unused)
	if f.why != nil {
		f.s.log.Warn("output not kept", "run", f.key.run, "attempt", f.key.attempt, "bytes", f.all, "err", f.why)
	}
}

func notKept(n int64, why error) string {
	return fmt.Sprintf("\n[syncnode: %d bytes could not be kept here: %v]\n", n, why)
}

func cut(n int64) string {
	return fmt.Sprintf("\n[syncnode: %d bytes left out here]\n", n)
}
