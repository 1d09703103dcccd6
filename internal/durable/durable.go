// Package durable is the file system as whatever must survive a crash sees it, and replaces small files so that a crash leaves
// the old or the new one, and nothing between.
//
// # Guarantees
//
// After Write returned nil the new content is on stable storage under its name. Replace makes the same change for
// readers on this machine, but a power loss may leave either content, or an empty file. After Dir returned nil the directory is
// there after any crash, also if an earlier process that made it was killed before it had synced.
//
// # Failure
//
// On an error the old content may stand or the new; repeating is safe.
//
// # Concurrency
//
// Callers may overlap; one of the contents wins whole.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write replaces a file of the operating system: see WriteTo.
func Write(name string, data []byte, perm fs.FileMode) error { return WriteTo(OS{}, name, data, perm) }

// WriteTo replaces a file: write a temporary one, sync, rename, sync the directory.
func WriteTo(fsys FS, name string, data []byte, perm fs.FileMode) error {
	if err := replace(fsys, name, data, perm, true); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// Replace is Write without the syncs, for what may be lost.
func Replace(name string, data []byte, perm fs.FileMode) error {
	return replace(OS{}, name, data, perm, false)
}

// ReadFrom reads a small file.
func ReadFrom(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// Dir makes a directory of the operating system: see DirIn.
func Dir(name string) error { return DirIn(OS{}, name) }

// DirIn makes a directory for its owner alone, with its parents, durably. One that is there may be the work of a process that was
// killed before it had synced; but whoever put anything into it had synced it before.
func DirIn(fsys FS, name string) error {
	there, err := fsys.Exists(name)
	if err != nil {
		return err
	}
	parent := filepath.Dir(name)
	if !there {
		if parent != name {
			if err := DirIn(fsys, parent); err != nil {
				return err
			}
		}
		if err := fsys.MkdirAll(name, 0o700); err != nil {
			return err
		}
		return fsys.SyncDir(parent)
	}
	names, err := fsys.ReadDir(name)
	if err == nil && len(names) > 0 || errors.Is(err, fs.ErrPermission) {
		return nil // not ours, or used before
	}
	if err != nil {
		return err
	}
	if err := fsys.SyncDir(parent); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil // whoever may not look into its parent did not make it
}

// SyncDir is that of the operating system.
func SyncDir(name string) error { return OS{}.SyncDir(name) }

// Lock is that of the operating system.
func Lock(name string) (io.Closer, error) { return OS{}.Lock(name) }

// replace writes a file beside name that no other caller has, and renames it.
func replace(fsys FS, name string, data []byte, perm fs.FileMode, sync bool) error {
	tmp, f, err := temporary(fsys, name, perm)
	if err != nil {
		return err
	}
	n, err := f.WriteAt(data, 0)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), fsys.Remove(tmp))
	}
	return nil
}

func temporary(fsys FS, name string, perm fs.FileMode) (string, File, error) {
	for {
		tmp := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%s.tmp-%016x", filepath.Base(name), rand.Uint64()))
		f, err := fsys.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if !errors.Is(err, fs.ErrExist) {
			return tmp, f, err
		}
	}
}
