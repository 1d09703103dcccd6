package journal_test

import (
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/syncnode/syncnode/journal"
)

// faulty is the real file system with calls counted and some of them failing.
type faulty struct {
	journal.OS
	calls, read, syncs atomic.Int64
	// fail is asked before each call that changes something: "write", "sync", "truncate", "rename", "remove", "syncdir",
	// "create". An error is returned in place of the call.
	fail func(call, name string) error
	// short cuts a write to so many bytes, if it is not negative.
	short func(name string, n int) int
	// fast does not wait for the real disk.
	fast bool
}

func (f *faulty) check(call, name string) error {
	f.calls.Add(1)
	if f.fail == nil {
		return nil
	}
	return f.fail(call, filepath.Base(name))
}

func (f *faulty) OpenFile(name string, flag int, perm fs.FileMode) (journal.File, error) {
	call := "open"
	if strings.HasSuffix(name, ".tmp") {
		call = "create"
	}
	if err := f.check(call, name); err != nil {
		return nil, err
	}
	file, err := f.OS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f, name: filepath.Base(name)}, nil
}

func (f *faulty) ReadDir(name string) ([]string, error) {
	f.calls.Add(1)
	return f.OS.ReadDir(name)
}

func (f *faulty) Rename(from, to string) error {
	if err := f.check("rename", to); err != nil {
		return err
	}
	return f.OS.Rename(from, to)
}

func (f *faulty) Remove(name string) error {
	if err := f.check("remove", name); err != nil {
		return err
	}
	return f.OS.Remove(name)
}

func (f *faulty) SyncDir(name string) error {
	if err := f.check("syncdir", name); err != nil {
		return err
	}
	if f.fast {
		return nil
	}
	return f.OS.SyncDir(name)
}

type faultyFile struct {
	journal.File
	fs   *faulty
	name string
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.fs.calls.Add(1)
	f.fs.read.Add(int64(n))
	return n, err
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.short != nil {
		if n := f.fs.short(f.name, len(p)); n >= 0 {
			n, err := f.File.WriteAt(p[:n], off)
			if err == nil {
				err = io.ErrShortWrite
			}
			return n, err
		}
	}
	if err := f.fs.check("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.fs.check("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Sync() error {
	f.fs.syncs.Add(1)
	if err := f.fs.check("sync", f.name); err != nil {
		return err
	}
	if f.fs.fast {
		return nil
	}
	return f.File.Sync()
}
