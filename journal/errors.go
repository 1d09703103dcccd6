package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt: bytes that had been on stable storage are damaged. Nothing was changed; a person has to decide.
	ErrCorrupt = errors.New("journal: damaged")
	// ErrLost: the journal holds less than it once did. Writing on would give a sequence number twice.
	ErrLost = errors.New("journal: acknowledged records are missing")
	// ErrVersion: a newer release wrote it. It is left alone.
	ErrVersion = errors.New("journal: unknown format version")
	// ErrDevice: the journal belongs to another device.
	ErrDevice = errors.New("journal: of another device")
	// ErrPoisoned: a sync failed, and what is on the disk is unknown. Close the journal and open it again.
	ErrPoisoned = errors.New("journal: must be reopened")
	// ErrNotWritten: the write failed and was undone; nothing of it will be read back. It may be tried again.
	ErrNotWritten = errors.New("journal: not written")
	// ErrBusy: another process held the lock for as long as the caller would wait. Nothing happened.
	ErrBusy = errors.New("journal: locked by another process")
	// ErrReadOnly: the journal was opened for reading.
	ErrReadOnly = errors.New("journal: opened read-only")
	// ErrAnchored: the beginning of the journal is only in a checkpoint. Load that one, and read on from it.
	ErrAnchored = errors.New("journal: begins at a checkpoint")
	// ErrBehind: the cut would go back, or to one side. Nothing happened.
	ErrBehind = errors.New("journal: cut does not cover the one before")
	// ErrRetired: the checkpoint has closed the own chain for ever. The device needs a new id.
	ErrRetired = errors.New("journal: the own chain is closed")
	// ErrClosed: the journal was closed. Nothing happened.
	ErrClosed = errors.New("journal: closed")
)

// A CorruptError says where the damage begins. It matches ErrCorrupt.
type CorruptError struct {
	File   string
	Offset int64
	Seq    uint64 // own segments: the sequence number expected there; 0 in others
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d, expected seq %d: %v", e.File, e.Offset, e.Seq, e.Err)
}
func (e *CorruptError) Unwrap() error        { return e.Err }
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// A VersionError names the version found. It matches ErrVersion.
type VersionError struct {
	File string
	Have int
}

func (e *VersionError) Error() string {
	what := "it is damaged"
	if e.Have > formatVersion {
		what = "a newer release wrote it: upgrade this one"
	}
	return fmt.Sprintf("%s has format version %d, this release knows %d: %s", e.File, e.Have, formatVersion, what)
}
func (e *VersionError) Is(target error) bool { return target == ErrVersion }

// A DeviceError names both devices. It matches ErrDevice.
type DeviceError struct{ File, Have, Want string }

func (e *DeviceError) Error() string {
	return fmt.Sprintf("%s belongs to device %q, not %q", e.File, e.Have, e.Want)
}
func (e *DeviceError) Is(target error) bool { return target == ErrDevice }

// A PoisonError carries the first failure. It matches ErrPoisoned.
type PoisonError struct{ Err error }

func (e *PoisonError) Error() string        { return fmt.Sprintf("%v: %v", ErrPoisoned, e.Err) }
func (e *PoisonError) Unwrap() error        { return e.Err }
func (e *PoisonError) Is(target error) bool { return target == ErrPoisoned }

// An AnchorError names the checkpoint that the journal begins at, and the one that the caller had; empty if none. It
// matches ErrAnchored.
type AnchorError struct{ Checkpoint, Given string }

func (e *AnchorError) Error() string {
	if e.Given == "" {
		return fmt.Sprintf("the journal begins at checkpoint %s, without which it must not be read", e.Checkpoint)
	}
	return fmt.Sprintf("the journal begins at checkpoint %s, not at %s", e.Checkpoint, e.Given)
}
func (e *AnchorError) Is(target error) bool { return target == ErrAnchored }
