package checkpoint_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/journal"
)

var errCrash = errors.New("the machine is gone")

// A disk is a file system in memory that knows what is on stable storage, and what a loss of power would take.
type disk struct {
	live, durable map[string]*inode // by path; durable: the entries that were synced
	calls         int
	fail          func(call int, what string) error // asked before each call that changes something
	short         bool                              // a failing write leaves half of it
}

type inode struct{ data, synced []byte }

func newDisk() *disk { return &disk{live: map[string]*inode{}, durable: map[string]*inode{}} }

func (d *disk) check(what string) error {
	d.calls++
	if d.fail == nil {
		return nil
	}
	return d.fail(d.calls, what)
}

// What a crash leaves of what was not synced.
const (
	nothing = iota
	everything
	entriesOnly // names, but not what is in the files
	dataOnly    // what is in the files, but not names
	halves      // every file is cut within what was not synced
	crashes
)

func (d *disk) crash(how int) *disk {
	after := newDisk()
	names := d.durable
	if how == everything || how == entriesOnly || how == halves {
		names = d.live
	}
	for name, n := range names {
		data := n.synced
		switch how {
		case everything, dataOnly:
			data = n.data
		case halves:
			data = n.data[:len(n.synced)+max(0, len(n.data)-len(n.synced))/2]
		}
		after.live[name] = &inode{bytes.Clone(data), bytes.Clone(data)}
	}
	after.durable = maps.Clone(after.live)
	return after
}

func (d *disk) OpenFile(name string, flag int, _ fs.FileMode) (journal.File, error) {
	n, ok := d.live[name]
	if flag&os.O_CREATE != 0 && (!ok || flag&os.O_EXCL == 0) {
		if err := d.check("create"); err != nil {
			return nil, err
		}
	}
	switch {
	case ok && flag&os.O_EXCL != 0:
		return nil, fs.ErrExist
	case !ok && flag&os.O_CREATE == 0:
		return nil, fs.ErrNotExist
	case !ok:
		n = &inode{}
		d.live[name] = n
	}
	return &diskFile{d, n}, nil
}

func (d *disk) ReadDir(dir string) ([]string, error) {
	var out []string
	for name := range d.live {
		if filepath.Dir(name) == dir {
			out = append(out, filepath.Base(name))
		}
	}
	slices.Sort(out)
	return out, nil
}

func (d *disk) Exists(name string) (bool, error) {
	for known := range d.live {
		if known == name || strings.HasPrefix(known, name+"/") {
			return true, nil
		}
	}
	return false, nil
}

func (d *disk) MkdirAll(string, fs.FileMode) error { return d.check("mkdir") }

func (d *disk) Rename(from, to string) error {
	if err := d.check("rename"); err != nil {
		return err
	}
	n, ok := d.live[from]
	if !ok {
		return fs.ErrNotExist
	}
	delete(d.live, from)
	d.live[to] = n
	return nil
}

func (d *disk) Remove(name string) error {
	if err := d.check("remove"); err != nil {
		return err
	}
	delete(d.live, name)
	return nil
}

func (d *disk) SyncDir(string) error {
	if err := d.check("syncdir"); err != nil {
		return err
	}
	d.durable = maps.Clone(d.live)
	return nil
}

func (d *disk) TryLock(string, bool) (io.Closer, bool, error) { panic("no locks here") }

func (d *disk) Lock(string) (io.Closer, error) { panic("no locks here") }

type diskFile struct {
	d *disk
	n *inode
}

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.n.data).ReadAt(p, off)
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.d.check("write")
	if err != nil {
		if !f.d.short {
			return 0, err
		}
		p = p[:len(p)/2]
	}
	if end := int(off) + len(p); end > len(f.n.data) {
		f.n.data = append(f.n.data, make([]byte, end-len(f.n.data))...)
	}
	return copy(f.n.data[off:], p), err
}

func (f *diskFile) Truncate(size int64) error { panic("nothing is truncated") }
func (f *diskFile) Size() (int64, error)      { return int64(len(f.n.data)), nil }

func (f *diskFile) Sync() error {
	if err := f.d.check("sync"); err != nil {
		return err
	}
	f.n.synced = bytes.Clone(f.n.data)
	return nil
}

func (f *diskFile) Close() error { return f.d.check("close") }
