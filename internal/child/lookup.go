package child

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lookup finds the file to execute as execvp(3) does: it goes on past what cannot be executed, and says so
// if nothing better came.
func lookup(s Spec) (string, error) {
	if err := checkDir(s.Dir); err != nil {
		return "", &StartError{Path: s.Path, Err: err}
	}
	if s.Path == "" {
		return "", &StartError{Path: `""`, Kind: ErrNotFound}
	}
	if strings.Contains(s.Path, "/") {
		return s.Path, examine(s.Path, inDir(s.Dir, s.Path))
	}
	var unfit error
	for _, dir := range filepath.SplitList(searchPath(s.Env)) {
		if dir == "" {
			dir = "."
		}
		path := dir + "/" + s.Path
		err := examine(s.Path, inDir(s.Dir, path))
		if err == nil {
			return path, nil
		}
		hidden := errors.Is(err, fs.ErrPermission) // a directory of PATH that we may not search says nothing
		if unfit == nil && !hidden && errors.Is(err, ErrNotExecutable) {
			unfit = err
		}
	}
	if unfit != nil {
		return "", unfit
	}
	return "", &StartError{Path: s.Path, Kind: ErrNotFound}
}

func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR}
	}
	return err
}

// inDir is path as the child will see it from its working directory.
func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// searchPath is the last PATH of the child's environment.
func searchPath(env []string) string {
	if env == nil {
		env = os.Environ()
	}
	path := "/bin:/usr/bin"
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = value
		}
	}
	return path
}

// examine judges what can be told without executing the file; the kernel has the last word.
func examine(name, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &StartError{Path: name, Kind: ErrNotFound, Err: cause(err)}
	case err != nil:
		return &StartError{Path: name, Kind: ErrNotExecutable, Err: cause(err)}
	case info.IsDir():
		return &StartError{Path: name, Kind: ErrNotExecutable, Err: errors.New("it is a directory")}
	case !info.Mode().IsRegular():
		return &StartError{Path: name, Kind: ErrNotExecutable, Err: errors.New("it is not a regular file")}
	case info.Mode()&0o111 == 0, errors.Is(unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS), unix.EACCES):
		return &StartError{Path: name, Kind: ErrNotExecutable, Err: errors.New("no permission to execute it")}
	}
	return nil
}

// startError says what the kernel's refusal of an existing file means.
func startError(name, path string, err error) *StartError {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return &StartError{Path: name, Err: err}
	}
	switch errno {
	case syscall.ENOEXEC:
		err = noted("neither a program of this machine nor a script whose first line is #! and its interpreter", errno)
	case syscall.ENOENT:
		if _, gone := os.Stat(path); gone != nil {
			return &StartError{Path: name, Kind: ErrNotFound, Err: errno}
		}
		err = noted("the interpreter it names is not there", errno)
	case syscall.E2BIG, syscall.EACCES, syscall.EPERM, syscall.ETXTBSY, syscall.ELOOP, syscall.ENOTDIR, syscall.EISDIR, syscall.EINVAL:
		err = errno
	default:
		return &StartError{Path: name, Err: cause(err)}
	}
	return &StartError{Path: name, Kind: ErrNotExecutable, Err: err}
}

type notedError struct {
	note string
	err  error
}

func noted(note string, err error) error { return &notedError{note, err} }

func (e *notedError) Error() string { return e.note }
func (e *notedError) Unwrap() error { return e.err }

func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
