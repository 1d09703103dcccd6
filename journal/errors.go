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
	return fmt.Sprintf("%s has format version %d, this release knows %d", e.File, e.Have, formatVersion)
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
