package faultfs

import (
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/syncnode/syncnode/internal/durable"
)

// A File is an open file of a process.
type File struct {
	p             *Process
	n             *node
	name          string
	reads, writes bool
	closed        bool
}

var _ durable.File = (*File)(nil)

func (f *File) do(op string, changes, allowed bool, fn func() error, failed func(Fault)) error {
	return f.p.perform(op, f.name, changes, func() error {
		switch {
		case f.closed:
			return fs.ErrClosed
		case !allowed:
			return syscall.EBADF
		}
		return fn()
	}, failed)
}

// ReadAt implements durable.File.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.do("read", false, f.reads, func() error {
		if off < int64(len(f.n.live)) {
			n = copy(p, f.n.live[off:])
		}
		if n < len(p) {
			return io.EOF
		}
		return nil
	}, nil)
	return n, err
}

// WriteAt implements durable.File.
func (f *File) WriteAt(p []byte, off int64) (n int, err error) {
	return f.write(p, func() int { return int(off) })
}

// Write adds to the end of the file.
func (f *File) Write(p []byte) (int, error) {
	return f.write(p, func() int { return len(f.n.live) })
}

func (f *File) write(p []byte, at func() int) (n int, err error) {
	put := func(data []byte) {
		off := at()
		if len(data) > 0 {
			sector := (off + len(data) - 1) / Sector
			f.p.d.last = lastWrite{f.n, sector, sectorOf(f.n.live, sector)}
			f.n.write(data, off)
		}
		f.p.d.tick(f.n)
		n = len(data)
	}
	err = f.do("write", true, f.writes, func() error {
		put(p)
		return nil
	}, func(fault Fault) {
		if fault.Short {
			put(p[:len(p)/2])
		}
	})
	return n, err
}

// Truncate implements durable.File.
func (f *File) Truncate(size int64) error {
	return f.do("truncate", true, f.writes, func() error {
		f.n.resize(int(size))
		f.p.d.tick(f.n)
		return nil
	}, nil)
}

// Sync implements durable.File.
func (f *File) Sync() error {
	return f.do("sync", true, true, func() error {
		f.n.sync()
		return nil
	}, func(Fault) { f.n.dirty = nil })
}

// Size implements durable.File.
func (f *File) Size() (size int64, err error) {
	err = f.do("size", false, true, func() error {
		size = int64(len(f.n.live))
		return nil
	}, nil)
	return size, err
}

// Stat describes the file.
func (f *File) Stat() (info fs.FileInfo, err error) {
	err = f.do("size", false, true, func() error {
		info = infoOf(f.name, f.n)
		return nil
	}, nil)
	return info, err
}

// Close implements durable.File. It is no call: nothing of it can fail that matters.
func (f *File) Close() error {
	f.p.d.mu.Lock()
	defer f.p.d.mu.Unlock()
	f.closed = true
	return nil
}

// Stat is os.Lstat.
func (p *Process) Stat(name string) (info fs.FileInfo, err error) {
	err = p.do("stat", name, false, func() error {
		n, err := p.d.find(name)
		if err == nil {
			info = infoOf(name, n)
		}
		return err
	})
	return info, err
}

// List is os.ReadDir.
func (p *Process) List(name string) (list []fs.DirEntry, err error) {
	names, err := p.ReadDir(name)
	if err != nil {
		return nil, err
	}
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	for _, e := range names {
		if n, err := p.d.find(filepath.Join(name, e)); err == nil {
			list = append(list, fs.FileInfoToDirEntry(infoOf(e, n)))
		}
	}
	return list, nil
}

type info struct {
	name  string
	size  int64
	dir   bool
	mtime time.Time
}

func infoOf(name string, n *node) info {
	return info{filepath.Base(name), int64(len(n.live)), n.dir, time.Unix(0, n.mtime)}
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return i.mtime }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

// A lock is the flock of a file.
type lock struct {
	exclusive bool
	holders   []*Process
}

// release gives up what processes hold that were killed or closed.
func (l *lock) release() {
	l.holders = slices.DeleteFunc(l.holders, func(p *Process) bool { return p.dead })
}

type held struct {
	l    *lock
	p    *Process
	done bool
}

func (h *held) Close() error {
	h.p.d.mu.Lock()
	defer h.p.d.mu.Unlock()
	if !h.done && !h.p.dead {
		if i := slices.Index(h.l.holders, h.p); i >= 0 {
			h.l.holders = slices.Delete(h.l.holders, i, i+1)
		}
		h.p.d.freed.Broadcast()
	}
	h.done = true
	return nil
}

// TryLock implements durable.FS.
func (p *Process) TryLock(name string, exclusive bool) (closer io.Closer, ok bool, err error) {
	return p.lock(name, exclusive, false)
}

// Lock implements durable.FS.
func (p *Process) Lock(name string) (io.Closer, error) {
	closer, _, err := p.lock(name, true, true)
	return closer, err
}

func (p *Process) lock(name string, exclusive, wait bool) (closer io.Closer, ok bool, err error) {
	p.d.mu.Lock()
	_, err = p.d.find(name)
	p.d.mu.Unlock()
	creates := err != nil && exclusive
	err = p.do("lock", name, creates, func() error {
		dir, base, err := p.d.parent(name)
		if err != nil {
			return err
		}
		n := dir.entries[base]
		switch {
		case n == nil && !exclusive:
			return fs.ErrNotExist
		case n == nil:
			n = &node{}
			dir.change(entryOp{add: base, n: n})
		}
		if n.lock == nil {
			n.lock = &lock{}
		}
		for l := n.lock; ; {
			if len(l.holders) == 0 || !exclusive && !l.exclusive {
				l.exclusive, l.holders = exclusive, append(l.holders, p)
				p.held[l] = true
				closer, ok = &held{l: l, p: p}, true
				return nil
			}
			if !wait {
				return nil
			}
			p.d.freed.Wait()
			if p.dead {
				return ErrKilled
			}
		}
	})
	return closer, ok, err
}
