// Package proc proves that a process is dead: each process holds a lock file for its life.
//
// # Guarantees
//
// While a process that called Open lives and has not closed its Lock, Dead is false for its id: the file is never seen
// under its name without its lock, and the kernel gives the lock back when the process ends and not before. Dead is true
// only if, on this very boot and in this very directory, the file is there and nobody holds it.
//
// A missing file proves nothing: it may be another directory, or a process that ended in good order and said so itself.
// Neither does another boot, or a lock that is held only while a file is being written.
//
// # Failure
//
// Every doubt and every error is "not proved".
//
// # Concurrency
//
// All functions may be called at any time by any process. flock is only known to work on local file systems.
package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/ident"
)

const (
	folder = "proc"
	suffix = ".lock"
)

// A Lock is held for the life of the process.
type Lock struct {
	file *os.File
	path string
}

// content is for people, and for Sweep.
type content struct {
	V    int    `json:"v"`
	PID  int    `json:"pid"`
	Boot string `json:"boot"`
}

func path(dir, id string) string { return filepath.Join(dir, folder, id+suffix) }

// Open makes and takes the lock file of a process under the data directory. The id is drawn anew by each process: an
// id that was used before is an error.
func Open(dir, id string) (*Lock, error) {
	if err := ident.Check("liveness", id); err != nil {
		return nil, fmt.Errorf("lifetime lock: %w", err)
	}
	if err := durable.Dir(filepath.Join(dir, folder)); err != nil {
		return nil, fmt.Errorf("lifetime lock: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Join(dir, folder), ".new-*")
	if err != nil {
		return nil, fmt.Errorf("lifetime lock: %w", err)
	}
	l := &Lock{file: tmp, path: path(dir, id)}
	if err := l.publish(); err != nil {
		return nil, errors.Join(fmt.Errorf("lifetime lock: %w", err), os.Remove(tmp.Name()), tmp.Close())
	}
	return l, nil
}

// publish takes the lock first and shows the file under its name after.
func (l *Lock) publish() error {
	if err := flock(l.file, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	text, err := json.Marshal(content{V: 1, PID: os.Getpid(), Boot: BootID()})
	if err != nil {
		return err
	}
	if _, err := l.file.Write(append(text, '\n')); err != nil {
		return err
	}
	if err := os.Link(l.file.Name(), l.path); err != nil {
		return err
	}
	return os.Remove(l.file.Name())
}

// Close says that the process is done with everything it held. The file is removed: from now on it proves nothing.
func (l *Lock) Close() error {
	return errors.Join(os.Remove(l.path), l.file.Close())
}

// Dead reports whether it is proved that the process with that id is dead. dir is the data directory and boot the boot id,
// both as that process told them; the caller has seen that dir is its own directory.
func Dead(dir, id, boot string) bool {
	if boot == "" || boot != BootID() || ident.Check("liveness", id) != nil {
		return false
	}
	return free(path(dir, id))
}

// free reports whether the file is there and nobody holds its lock. Several may ask at once.
func free(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return flock(f, syscall.LOCK_SH|syscall.LOCK_NB) == nil
}

// Sweep removes lock files of earlier boots, which prove nothing any more.
func Sweep(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep lifetime locks: %w", err)
	}
	boot := BootID()
	var errs []error
	for _, e := range entries {
		name := filepath.Join(dir, folder, e.Name())
		if boot == "" || !strings.HasSuffix(name, suffix) {
			continue
		}
		var c content
		text, err := os.ReadFile(name)
		if err != nil || json.Unmarshal(text, &c) != nil || c.Boot == "" || c.Boot == boot || !free(name) {
			continue
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// BootID identifies the boot of this machine; empty where the system does not tell, and then nothing is ever proved.
func BootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Canonical is the one name of a directory: absolute, without symbolic links. The directory must be there.
func Canonical(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
