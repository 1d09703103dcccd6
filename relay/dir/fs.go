package dir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/syncnode/syncnode/internal/durable"
)

// An FS is the folder, seen from its root. Names are slash-separated and relative; none leads out of the root.
// Errors for a missing file match fs.ErrNotExist.
type FS interface {
	// Open opens a regular file. It follows no symbolic link in the last element and never waits.
	Open(name string, flag int) (File, error)
	// ReadDir lists a directory by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat describes what bears the name, a link as a link.
	Stat(name string) (fs.FileInfo, error)
	Mkdir(name string) error
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir returns when the entries of the directory are on stable storage.
	SyncDir(name string) error
	Close() error
}

// A File is an open file. Write goes to its end.
type File interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Sync() error
	Stat() (fs.FileInfo, error)
}

// errNotRegular means that a name does not stand for a regular file, or no longer the one that was looked at.
var errNotRegular = errors.New("not a regular file")

var errNotDirectory = errors.New("not a directory")

// rooted is an FS of the operating system.
type rooted struct{ root *os.Root }

// OpenFS returns the folder of that name as the operating system has it; whoever opened it closes it. It makes the
// folder if it is missing, durably. Its parent has to be there: a mount that is not mounted is no folder.
func OpenFS(name string) (FS, error) {
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := durable.Dir(name); err != nil {
		return nil, err
	}
	return findFS(name)
}

// findFS is OpenFS of a folder that has to be there.
func findFS(name string) (FS, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return rooted{root}, nil
}

// makeShared makes a folder that several relays share, as OpenFS makes one.
func makeShared(name string) error {
	root, err := OpenFS(name)
	if err != nil {
		return err
	}
	return root.(rooted).root.Close()
}

func (r rooted) Open(name string, flag int) (File, error) {
	before, err := r.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
	case err != nil:
		return nil, err
	case !before.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: name, Err: errNotRegular}
	}
	f, err := r.root.OpenFile(name, flag|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := r.same(f, name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// same refuses a file that was reached through a link put in place after the first look.
func (r rooted) same(f *os.File, name string) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := r.root.Lstat(name)
	if err != nil {
		return err
	}
	if !named.Mode().IsRegular() || !os.SameFile(opened, named) {
		return &fs.PathError{Op: "open", Path: name, Err: errNotRegular}
	}
	return nil
}

func (r rooted) ReadDir(name string) ([]fs.DirEntry, error) {
	info, err := r.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "list", Path: name, Err: errNotDirectory}
	}
	return fs.ReadDir(r.root.FS(), name)
}

func (r rooted) Stat(name string) (fs.FileInfo, error) { return r.root.Lstat(name) }
func (r rooted) Mkdir(name string) error               { return r.root.Mkdir(name, 0o700) }
func (r rooted) Rename(from, to string) error          { return r.root.Rename(from, to) }
func (r rooted) Remove(name string) error              { return r.root.Remove(name) }
func (r rooted) Close() error                          { return r.root.Close() }

// SyncDir implements FS. File systems that cannot sync a directory are taken at their word.
func (r rooted) SyncDir(name string) error {
	d, err := r.root.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// readSmall reads a whole file of at most most bytes.
func readSmall(fsys FS, name string, most int64) ([]byte, error) {
	f, err := fsys.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%d bytes, at most %d are read", info.Size(), most)}
	}
	return readRange(f, 0, info.Size())
}

// readRange reads from one offset up to another, or less if the file ends before.
func readRange(f File, from, to int64) ([]byte, error) {
	buf := make([]byte, to-from)
	n, err := f.ReadAt(buf, from)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buf[:n], err
}

// replace puts a file in the place of another, durably: a temporary one beside it, sync, rename, sync of the directory.
func replace(fsys FS, name string, data []byte) error {
	tmp := path.Join(path.Dir(name), "."+path.Base(name)+"."+nonce()[:12]+tmpSuffix)
	f, err := fsys.Open(tmp, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, fsys.Remove(tmp))
	}
	return fsys.SyncDir(path.Dir(name))
}

// makeDirs makes a directory and its parents, durably. One that is there may be the work of a process that was killed before it had
// synced; but whoever put anything into it had synced it before.
func makeDirs(fsys FS, name string) error {
	if name == "." {
		return nil
	}
	info, err := fsys.Stat(name)
	switch {
	case err == nil && info.IsDir():
		entries, err := fsys.ReadDir(name)
		if err != nil || len(entries) > 0 {
			return err
		}
		return fsys.SyncDir(path.Dir(name))
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: name, Err: errors.New("something that is no directory is in the way")}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := makeDirs(fsys, path.Dir(name)); err != nil {
		return err
	}
	if err := fsys.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}
