package journal_test

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/syncnode/syncnode/journal"
)

// memory is a file system without a disk, for tests that open a journal many thousand times. It counts what is read.
type memory struct {
	mu    sync.Mutex
	files map[string][]byte
	held  map[string]bool
	calls int
	read  int
}

var _ journal.FS = (*memory)(nil)

func newMemory() *memory { return &memory{files: map[string][]byte{}, held: map[string]bool{}} }

// clone is a copy to do harm to.
func (m *memory) clone() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{files: maps.Clone(m.files), held: map[string]bool{}}
}

func (m *memory) enter() func() {
	m.mu.Lock()
	m.calls++
	return m.mu.Unlock
}

func missing(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

func (m *memory) OpenFile(name string, flag int, _ fs.FileMode) (journal.File, error) {
	defer m.enter()()
	data, ok := m.files[name]
	if !ok && flag&os.O_CREATE == 0 {
		return nil, missing("open", name)
	}
	if !ok || flag&os.O_TRUNC != 0 {
		data = nil
	}
	m.files[name] = data
	return &memoryFile{m: m, name: name}, nil
}

func (m *memory) ReadDir(dir string) ([]string, error) {
	defer m.enter()()
	var names []string
	for name := range m.files {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *memory) Exists(name string) (bool, error) {
	defer m.enter()()
	_, ok := m.files[name]
	return ok, nil
}

func (m *memory) MkdirAll(string, fs.FileMode) error { return nil }
func (m *memory) SyncDir(string) error               { return nil }

func (m *memory) Rename(from, to string) error {
	defer m.enter()()
	data, ok := m.files[from]
	if !ok {
		return missing("rename", from)
	}
	delete(m.files, from)
	m.files[to] = data
	return nil
}

func (m *memory) Remove(name string) error {
	defer m.enter()()
	if _, ok := m.files[name]; !ok {
		return missing("remove", name)
	}
	delete(m.files, name)
	return nil
}

func (m *memory) TryLock(name string, _ bool) (io.Closer, bool, error) {
	defer m.enter()()
	if m.held[name] {
		return nil, false, nil
	}
	m.held[name] = true
	return memoryLock{m, name}, true, nil
}

func (m *memory) Lock(string) (io.Closer, error) { panic("nobody waits for a lock here") }

type memoryLock struct {
	m    *memory
	name string
}

func (l memoryLock) Close() error {
	defer l.m.enter()()
	delete(l.m.held, l.name)
	return nil
}

type memoryFile struct {
	m    *memory
	name string
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	defer f.m.enter()()
	data := f.m.files[f.name]
	if off >= int64(len(data)) {
		return 0, io.EOF
	}
	n := copy(p, data[off:])
	f.m.read += n
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	defer f.m.enter()()
	data := f.m.files[f.name]
	if off == int64(len(data)) { // a clone has its own length: what is beyond it, it never sees
		f.m.files[f.name] = append(data[:off:off], p...)
		return len(p), nil
	}
	data = slices.Clone(data)
	if grow := off + int64(len(p)) - int64(len(data)); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[off:], p)
	f.m.files[f.name] = data
	return len(p), nil
}

func (f *memoryFile) Truncate(size int64) error {
	defer f.m.enter()()
	f.m.files[f.name] = slices.Clone(f.m.files[f.name][:size])
	return nil
}

func (f *memoryFile) Size() (int64, error) {
	defer f.m.enter()()
	return int64(len(f.m.files[f.name])), nil
}

func (f *memoryFile) Sync() error  { return nil }
func (f *memoryFile) Close() error { return nil }
