package dir_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/relay/dir"
)

var errDisk = errors.New("injected fault")

// A disk is the real folder behind a cache: it knows what was synced, counts, and fails as told. A file that a sync
// failed for never gets durable again, as on disks whose pages are dropped after an error.
type disk struct {
	dir.FS
	root string

	failAt int   // the how many-th changing call fails, from 1; 0: none
	err    error // with this
	crash  bool  // and everything after it, too
	torn   bool  // a failing write leaves half of its bytes

	beforeWrite func() // called once, before the next write

	calls, wrote, read, syncs int
	dead                      bool
	size                      map[string]int64 // of files that were written, as far as synced
	spoiled                   map[string]bool  // a sync failed
	unnamed                   map[string]bool  // names whose directory was not synced since
}

func newDisk(t testing.TB, root string) *disk {
	t.Helper()
	real, err := dir.OpenFS(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { real.Close() })
	return &disk{FS: real, root: root, err: errDisk, size: map[string]int64{}, spoiled: map[string]bool{}, unnamed: map[string]bool{}}
}

// change is asked before each call that changes something.
func (d *disk) change() error {
	if d.dead {
		return d.err
	}
	if d.calls++; d.calls == d.failAt {
		d.dead = d.crash
		return d.err
	}
	return nil
}

func (d *disk) Open(name string, flag int) (dir.File, error) {
	if d.dead {
		return nil, d.err
	}
	_, err := d.Stat(name)
	if created := errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0; created {
		if err := d.change(); err != nil {
			return nil, err
		}
		d.unnamed[name], d.size[name] = true, 0
	}
	f, err := d.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	if _, known := d.size[name]; !known {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		d.size[name] = info.Size()
	}
	return &diskFile{File: f, d: d, name: name}, nil
}

func (d *disk) Mkdir(name string) error {
	if err := d.change(); err != nil {
		return err
	}
	err := d.FS.Mkdir(name)
	if err == nil {
		d.unnamed[name] = true
	}
	return err
}

func (d *disk) Rename(from, to string) error {
	if err := d.change(); err != nil {
		return err
	}
	if err := d.FS.Rename(from, to); err != nil {
		return err
	}
	d.size[to], d.spoiled[to] = d.size[from], d.spoiled[from]
	delete(d.size, from)
	delete(d.unnamed, from)
	return nil
}

func (d *disk) Remove(name string) error {
	if err := d.change(); err != nil {
		return err
	}
	delete(d.size, name)
	return d.FS.Remove(name)
}

func (d *disk) SyncDir(name string) error {
	if err := d.change(); err != nil {
		return err
	}
	for n := range d.unnamed {
		if path.Dir(n) == name {
			delete(d.unnamed, n)
		}
	}
	return nil
}

// lose makes the folder what it is after a power loss in which nothing survives that was not synced.
func (d *disk) lose(t testing.TB) {
	t.Helper()
	for name, size := range d.size {
		file := filepath.Join(d.root, name)
		if info, err := os.Stat(file); err == nil && info.Size() > size {
			if err := os.Truncate(file, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range d.unnamed {
		if err := os.RemoveAll(filepath.Join(d.root, name)); err != nil {
			t.Fatal(err)
		}
	}
}

type diskFile struct {
	dir.File
	d    *disk
	name string
}

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.d.read += n
	return n, err
}

func (f *diskFile) Write(p []byte) (int, error) {
	if hook := f.d.beforeWrite; hook != nil && strings.HasSuffix(f.name, ".jsonl") {
		f.d.beforeWrite = nil
		hook()
	}
	if err := f.d.change(); err != nil {
		if f.d.torn {
			n, _ := f.File.Write(p[:len(p)/2])
			return n, err
		}
		return 0, err
	}
	n, err := f.File.Write(p)
	if strings.HasSuffix(f.name, ".jsonl") {
		f.d.wrote += n
	}
	return n, err
}

// Sync does nothing to the real disk: what lose would take is all that a test can see of it.
func (f *diskFile) Sync() error {
	if err := f.d.change(); err != nil {
		f.d.spoiled[f.name] = true
		return err
	}
	f.d.syncs++
	if f.d.spoiled[f.name] {
		return nil // and yet what failed before is not on the disk
	}
	info, err := f.Stat()
	f.d.size[f.name] = info.Size()
	return err
}
