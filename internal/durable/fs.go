package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// An FS is what whatever must survive a crash needs of a file system. Errors for a missing file match fs.ErrNotExist. OS is the
// real one; internal/faultfs has one that crashes and fails as told.
type FS interface {
	// OpenFile is os.OpenFile.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// ReadDir gives the names in a directory, sorted.
	ReadDir(name string) ([]string, error)
	// Exists reports whether there is a file of that name.
	Exists(name string) (bool, error)
	// MkdirAll is os.MkdirAll. It promises nothing about stable storage; DirIn does.
	MkdirAll(name string, perm fs.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir returns when the entries of the directory are on stable storage.
	SyncDir(name string) error
	// TryLock takes the advisory lock of a file, which it makes if exclusive; closing the result gives it
	// back. It reports false if another holds it. It never waits.
	TryLock(name string, exclusive bool) (io.Closer, bool, error)
	// Lock takes the exclusive lock of a file, which it makes, and waits for as long as another holds it.
	Lock(name string) (io.Closer, error)
}

// A File is an open file of an FS. Writes go to explicit offsets.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Size() (int64, error)
}

// OS is the file system of the operating system.
type OS struct{}

var _ FS = OS{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// OpenFile implements FS.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Exists implements FS.
func (OS) Exists(name string) (bool, error) {
	_, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// MkdirAll implements FS.
func (OS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// SyncDir implements FS. File systems that cannot sync a directory are taken at their word.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// TryLock implements FS with flock, which belongs to the open file: closing another descriptor of the same file
// in this process does not give it back.
func (OS) TryLock(name string, exclusive bool) (io.Closer, bool, error) {
	flag, how := os.O_RDONLY, syscall.LOCK_SH
	if exclusive {
		flag, how = os.O_RDWR|os.O_CREATE, syscall.LOCK_EX
	}
	f, err := flock(name, flag, how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return f, err == nil, err
}

// Lock implements FS. It is for steps of a few milliseconds.
func (OS) Lock(name string) (io.Closer, error) {
	return flock(name, os.O_RDWR|os.O_CREATE, syscall.LOCK_EX)
}

func flock(name string, flag, how int) (io.Closer, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(&fs.PathError{Op: "flock", Path: name, Err: err}, f.Close())
		}
	}
}
