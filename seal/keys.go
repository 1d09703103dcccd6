package seal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/syncnode/syncnode/internal/durable"
)

// A KeyInfo is what may be shown of a key.
type KeyInfo struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Seals   bool      `json:"seals"` // it is the newest; the others only open
}

// Keys are the keys of one file. The last one seals, all of them open. A nil *Keys has none.
type Keys struct {
	path string

	mu   sync.Mutex
	keys []sealKey // replaced as a whole
}

// Open reads a key file. If there is none, the result has no keys until a Reload finds one. It fails with ErrExposed if
// group or others may read or write the file or it is another user's, with ErrKeyFile if its content is not legal, and
// refuses symbolic links.
func Open(path string) (*Keys, error) {
	k := &Keys{path: path}
	keys, _, err := readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	k.keys = keys
	return k, nil
}

// Reload reads the file again and reports whether its keys are others now. If it fails, also because the file is gone, the
// keys stay as they were; without any, a missing file is no failure. After a change, try again what was parked.
func (k *Keys) Reload() (changed bool, err error) {
	keys, _, err := readFile(k.path)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && len(k.keys) == 0 {
			err = nil
		}
		return false, err
	}
	same := slices.EqualFunc(k.keys, keys, func(a, b sealKey) bool { return a.id == b.id })
	k.keys = keys
	return !same, nil
}

// List describes the keys in the order of the file.
func (k *Keys) List() []KeyInfo {
	keys := k.snapshot()
	out := make([]KeyInfo, len(keys))
	for i, key := range keys {
		out[i] = KeyInfo{ID: key.id, Created: key.created, Seals: i == len(keys)-1}
	}
	return out
}

func (k *Keys) snapshot() []sealKey {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys
}

func (k *Keys) newest() (sealKey, bool) {
	keys := k.snapshot()
	if len(keys) == 0 {
		return sealKey{}, false
	}
	return keys[len(keys)-1], true
}

func (k *Keys) find(id string) (sealKey, bool) {
	for _, key := range k.snapshot() {
		if key.id == id {
			return key, true
		}
	}
	return sealKey{}, false
}

// Generate makes a key file with one key, created now, durably and for its owner alone. The folder must be there. It fails
// with ErrExists if anything has that name.
func Generate(path string, now time.Time) (KeyInfo, error) { return generate(path, now, rand.Reader) }

// Rotate adds a key, created now, that seals from now on; the ones before still open. Comments stay. It fails like Open,
// with fs.ErrNotExist if there is no file, and with ErrExposed if the file is another user's: a crash leaves the file
// before or the file after.
func Rotate(path string, now time.Time) (KeyInfo, error) { return rotate(path, now, rand.Reader) }

func generate(path string, now time.Time, random io.Reader) (KeyInfo, error) {
	lock, err := durable.Lock(lockName(path))
	if err != nil {
		return KeyInfo{}, fmt.Errorf("generate a seal key: %w", err)
	}
	defer lock.Close()
	if _, err := os.Lstat(path); err == nil {
		return KeyInfo{}, fmt.Errorf("%w: %s", ErrExists, path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return KeyInfo{}, fmt.Errorf("generate a seal key: %w", err)
	}
	key, err := drawKey(now, random)
	if err != nil {
		return KeyInfo{}, err
	}
	return key.info(), writeFile(path, newFile(key))
}

func rotate(path string, now time.Time, random io.Reader) (KeyInfo, error) {
	if _, err := os.Lstat(path); err != nil { // before a lock file is made
		return KeyInfo{}, fmt.Errorf("rotate seal keys: %w", err)
	}
	lock, err := durable.Lock(lockName(path))
	if err != nil {
		return KeyInfo{}, fmt.Errorf("rotate seal keys: %w", err)
	}
	defer lock.Close()
	_, text, err := readFile(path)
	if err != nil {
		return KeyInfo{}, err
	}
	if err := ownFile(path); err != nil {
		return KeyInfo{}, err
	}
	key, err := drawKey(now, random)
	if err != nil {
		return KeyInfo{}, err
	}
	text = append(text, key.line()...)
	if _, err := parseFile(text); err != nil { // too long: nobody could read it
		return KeyInfo{}, err
	}
	return key.info(), writeFile(path, text)
}

func lockName(path string) string { return path + ".lock" }

func (k sealKey) info() KeyInfo { return KeyInfo{ID: k.id, Created: k.created, Seals: true} }

func drawKey(now time.Time, random io.Reader) (sealKey, error) {
	secret := make([]byte, keyBytes)
	if _, err := io.ReadFull(random, secret); err != nil {
		return sealKey{}, fmt.Errorf("seal: no random key: %w", err)
	}
	return newKey(secret, now), nil
}

func writeFile(path string, text []byte) error {
	if err := durable.Write(path, text, 0o600); err != nil {
		return fmt.Errorf("write seal keys: %w", err)
	}
	return nil
}

// readFile opens and judges the file that is then read, so that nothing can be put in between.
func readFile(path string) ([]sealKey, []byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, nil, fmt.Errorf("%w: %s is a symbolic link", ErrExposed, path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read seal keys: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read seal keys: %w", err)
	}
	if err := judge(path, info); err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read seal keys: %w", err)
	}
	keys, err := parseFile(text)
	if err != nil {
		return nil, nil, fmt.Errorf("read seal keys %s: %w", path, err)
	}
	return keys, text, nil
}

// judge refuses a file that is not its owner's alone. The owner is this user, or root.
func judge(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is no regular file", ErrExposed, path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: %s has mode %04o, must be 0600 (chmod 600)", ErrExposed, path, info.Mode().Perm())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d, this is user %d", ErrExposed, path, st.Uid, os.Geteuid())
	}
	return nil
}

// ownFile refuses to replace another user's file, who could not read the new one.
func ownFile(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("rotate seal keys: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d: rotate as that user", ErrExposed, path, st.Uid)
	}
	return nil
}
