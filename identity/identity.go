// Package identity says which device this is, and which clusters it has seen.
//
// # Guarantees
//
// A data directory on one machine has one device id, whatever process asks first, and several at once get the same. A
// directory that was copied, moved, or came with a clone of the machine gets a new id, an incarnation, and a notice that
// says why: one id too many costs a line in a list, one too few costs data. Old ids are kept in the file. Renew does the same for an
// id that must not be used any more, because its log was restored from a copy or has parted from the one that others know.
// Read only looks.
//
// Clusters remembers which generation was seen behind which endpoints, so that a data directory is not used by mistake
// against a ledger that was replaced.
//
// Not promised: that a clone is noticed which has the same path and the same machine id, or where the machine has no id.
// An id given by hand is taken as it is.
//
// # Failure
//
// [ErrCorrupt]: a file is not what this package writes; a person decides, nothing was changed. *[MismatchError]: another
// generation. Other errors are those of the file system.
//
// # Concurrency
//
// All functions may be called by several goroutines and processes at once.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/internal/proc"
)

const (
	fileName      = "device.json"
	lockName      = "device.lock"
	formatVersion = 1
)

// ErrCorrupt: a file of the data directory cannot be read as what it is.
var ErrCorrupt = errors.New("identity: damaged file")

// ErrGiven: the id was given by hand, and a person has to give another. Nothing was changed.
var ErrGiven = errors.New("identity: id given by hand cannot be renewed")

// Options of Open. The zero value is right for programs.
type Options struct {
	// Device is an id given by hand; it is used as it is and nothing is written.
	Device string
	// MachineID is the machine's id; empty takes that of /etc/machine-id, where there is one.
	MachineID string
	// Host begins a new id; empty takes the host's name.
	Host string
	// FS is the file system of the data directory; nil is that of the operating system.
	FS durable.FS
}

func (o *Options) fs() durable.FS {
	if o.FS == nil {
		return durable.OS{}
	}
	return o.FS
}

// An Identity is who this data directory is on this machine.
type Identity struct {
	Device string
	// Incarnation counts the ids that this directory has had, from 1; 0 for an id given by hand.
	Incarnation int
	// Previous are the ids it had before, oldest first. Their journals are kept and not written.
	Previous []string
	// Notice, if not empty, tells a person why a new id was made just now.
	Notice string
	// Dir is the one name of the data directory.
	Dir string
}

// device is the content of the file.
type device struct {
	V           int      `json:"v"`
	Device      string   `json:"device"`
	Incarnation int      `json:"incarnation"`
	Dir         string   `json:"dir"`
	Machine     string   `json:"machine,omitempty"` // hash of the machine id
	Previous    []string `json:"previous,omitempty"`
}

// Open reads who this is, and makes directory and id if there is none.
func Open(dataDir string, o Options) (Identity, error) {
	if o.Device != "" {
		if err := ident.Check("device", o.Device); err != nil {
			return Identity{}, err
		}
	}
	if err := durable.DirIn(o.fs(), dataDir); err != nil {
		return Identity{}, fmt.Errorf("make data directory: %w", err)
	}
	dir, err := proc.Canonical(dataDir)
	if err != nil {
		return Identity{}, fmt.Errorf("name of the data directory: %w", err)
	}
	if o.Device != "" {
		return Identity{Device: o.Device, Dir: dir}, nil
	}
	machine := machineHash(o.MachineID)
	have, found, err := read(o.fs(), dir)
	if err != nil {
		return Identity{}, err
	}
	if found && why(have, dir, machine) == "" {
		return have.settled(o.fs(), dir)
	}
	return settle(o.fs(), dir, machine, o.Host)
}

// Read says who wrote in this directory last, and changes nothing, also where Open would make a new id: Notice says so then. The error
// matches fs.ErrNotExist if there is no id yet.
func Read(dataDir string, o Options) (Identity, error) {
	dir, err := proc.Canonical(dataDir)
	if err != nil {
		return Identity{}, fmt.Errorf("name of the data directory: %w", err)
	}
	have, found, err := read(o.fs(), dir)
	if err != nil {
		return Identity{}, err
	}
	if !found {
		return Identity{}, fmt.Errorf("read identity: %w", &fs.PathError{Op: "open", Path: filepath.Join(dir, fileName), Err: fs.ErrNotExist})
	}
	notice := ""
	if reason := why(have, dir, machineHash(o.MachineID)); reason != "" {
		notice = fmt.Sprintf("%s: this is what device %s has left here; whoever writes here next gets a new id", reason, have.Device)
	}
	return have.identity(dir, notice), nil
}

// settled is the identity as it was found, once it is durable: whoever wrote it may have been killed before it had synced.
func (d device) settled(fsys durable.FS, dir string) (Identity, error) {
	if err := fsys.SyncDir(dir); err != nil {
		return Identity{}, fmt.Errorf("sync identity: %w", err)
	}
	return d.identity(dir, ""), nil
}

func (d device) identity(dir, notice string) Identity {
	return Identity{Device: d.Device, Incarnation: d.Incarnation, Previous: d.Previous, Notice: notice, Dir: dir}
}

// settle makes a first or a new id, under a lock: another process may just have done so.
func settle(fsys durable.FS, dir, machine, host string) (Identity, error) {
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return Identity{}, fmt.Errorf("lock identity: %w", err)
	}
	defer lock.Close()
	have, found, err := read(fsys, dir)
	if err != nil {
		return Identity{}, err
	}
	reason := ""
	if found {
		if reason = why(have, dir, machine); reason == "" {
			return have.settled(fsys, dir)
		}
	}
	return write(fsys, have, found, reason, dir, machine, host)
}

// Renew gives a new id to a data directory whose id must not be used any more, for the reason given. If the id was replaced before it
// changes nothing and gives the present one, without a notice. It fails with [ErrGiven] for an id given by hand.
func Renew(dataDir, frozen, reason string, o Options) (Identity, error) {
	if o.Device != "" {
		return Identity{}, fmt.Errorf("%w: %s", ErrGiven, o.Device)
	}
	dir, err := proc.Canonical(dataDir)
	if err != nil {
		return Identity{}, fmt.Errorf("name of the data directory: %w", err)
	}
	lock, err := o.fs().Lock(filepath.Join(dir, lockName))
	if err != nil {
		return Identity{}, fmt.Errorf("lock identity: %w", err)
	}
	defer lock.Close()
	have, found, err := read(o.fs(), dir)
	switch {
	case err != nil:
		return Identity{}, err
	case slices.Contains(have.Previous, frozen):
		return have.settled(o.fs(), dir)
	case !found || have.Device != frozen:
		return Identity{}, fmt.Errorf("renew identity: the data directory is device %q and was never %q", have.Device, frozen)
	}
	return write(o.fs(), have, true, reason, dir, machineHash(o.MachineID), o.Host)
}

// write makes the id after have. The lock is held.
func write(fsys durable.FS, have device, found bool, reason, dir, machine, host string) (Identity, error) {
	next := device{V: formatVersion, Device: newID(host), Incarnation: have.Incarnation + 1, Dir: dir, Machine: machine}
	notice := ""
	if found {
		next.Previous = append(have.Previous, have.Device)
		notice = fmt.Sprintf("%s: this was device %s and is %s from now on; the earlier journal is kept and not written", reason, have.Device, next.Device)
	}
	text, err := json.Marshal(next)
	if err != nil {
		return Identity{}, fmt.Errorf("write identity: %w", err)
	}
	if err := durable.WriteTo(fsys, filepath.Join(dir, fileName), append(text, '\n'), 0o600); err != nil {
		return Identity{}, fmt.Errorf("write identity: %w", err)
	}
	return next.identity(dir, notice), nil
}

// why says why the id of the file is not ours, or nothing.
func why(d device, dir, machine string) string {
	switch {
	case d.Dir != dir:
		return fmt.Sprintf("the data directory was copied or moved from %s to %s", d.Dir, dir)
	case d.Machine != "" && machine != "" && d.Machine != machine:
		return "the data directory came from another machine, or the machine was cloned"
	}
	return ""
}

func read(fsys durable.FS, dir string) (device, bool, error) {
	name := filepath.Join(dir, fileName)
	text, err := durable.ReadFrom(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return device{}, false, nil
	}
	if err != nil {
		return device{}, false, fmt.Errorf("read identity: %w", err)
	}
	var d device
	if err := json.Unmarshal(text, &d); err != nil {
		return device{}, false, fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	if d.V != formatVersion {
		return device{}, false, fmt.Errorf("%w: %s has version %d, this release knows %d", ErrCorrupt, name, d.V, formatVersion)
	}
	if err := ident.Check("device", d.Device); err != nil || d.Incarnation < 1 || d.Dir == "" {
		return device{}, false, fmt.Errorf("%w: %s names no device", ErrCorrupt, name)
	}
	return d, true, nil
}

// machineHash hides the machine's id, which is nobody else's business; empty where there is none.
func machineHash(id string) string {
	if id == "" {
		text, err := os.ReadFile("/etc/machine-id")
		if err != nil {
			return ""
		}
		id = strings.TrimSpace(string(text))
	}
	if id == "" || id == "uninitialized" {
		return ""
	}
	sum := sha256.Sum256([]byte("syncnode/machine/v1\x00" + id))
	return hex.EncodeToString(sum[:])
}

// newID is the host's name, as far as it may stand in an id, and 8 random hex digits.
func newID(host string) string {
	if host == "" {
		host, _ = os.Hostname() // without a name the id is no worse
	}
	var name strings.Builder
	for _, c := range strings.ToLower(host) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' && name.Len() > 0 {
			name.WriteRune(c)
		}
		if c == '.' || name.Len() == 40 {
			break
		}
	}
	text := strings.TrimRight(name.String(), "-")
	if text == "" {
		text = "device"
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return text + "-" + hex.EncodeToString(b[:])
}
