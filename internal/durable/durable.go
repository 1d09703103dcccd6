// Package durable replaces small files so that a crash leaves the old or the new one, and nothing between.
//
// # Guarantees
//
// After Write returned nil the new content is on stable storage under its name. Replace makes the same change for
// readers on this machine, but a power loss may leave either content, or an empty file.
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
	"os"
	"path/filepath"
	"syscall"
)

// Write replaces a file: write a temporary one, sync, rename, sync the directory.
func Write(name string, data []byte, perm fs.FileMode) error {
	tmp, err := temporary(name, data, perm, true)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, name); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return SyncDir(filepath.Dir(name))
}

// Replace is Write without the syncs, for what may be lost.
func Replace(name string, data []byte, perm fs.FileMode) error {
	tmp, err := temporary(name, data, perm, false)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, name); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// Dir makes a directory for its owner alone, with its parents, durably.
func Dir(name string) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	if err := os.MkdirAll(name, 0o700); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(name))
}

// SyncDir returns when the entries of a directory are on stable storage. File systems that cannot do that are taken at
// their word.
func SyncDir(name string) error {
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

// Lock takes the advisory lock of a file, which it makes, and waits for as long as another process holds it. Closing
// the result gives it back. It is for steps of a few milliseconds.
func Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(&fs.PathError{Op: "flock", Path: name, Err: err}, f.Close())
		}
	}
}

// temporary writes a file beside name that no other caller has.
func temporary(name string, data []byte, perm fs.FileMode, sync bool) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".tmp-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}
