package seal

import (
	"errors"
	"fmt"
)

// Why something was not opened.
var (
	// ErrNoKey means that the key is not in the file. Temporary: park, and try again when the keys were reloaded.
	ErrNoKey = errors.New("the key is missing")
	// ErrVersion means that a newer release sealed it. Temporary: park.
	ErrVersion = errors.New("sealed in a version that this release does not know")
	// ErrTampered means that it was cut, changed, put into another place, or not made with that key. Permanent: quarantine.
	ErrTampered = errors.New("the seal is broken")
	// ErrClear means that a payload is not sealed where the policy wants it to be. Permanent: quarantine.
	ErrClear = errors.New("not sealed where it has to be")
	// ErrNotSealed means that it is no envelope or sealed blob at all.
	ErrNotSealed = errors.New("not sealed")
)

// Why something was not sealed. Nothing was written.
var (
	// ErrTooLarge means that the envelope would exceed the limit of payloads: write less.
	ErrTooLarge = errors.New("too large to be sealed")
	// ErrLooksSealed means that a clear payload has the shape of an envelope, and no reader could tell: write another one.
	ErrLooksSealed = errors.New("clear payload in the shape of a sealed one")
	// ErrHeader means that a header names no legal place for something sealed. It is a mistake of the caller.
	ErrHeader = errors.New("no header to seal for")
	// ErrPolicy means that a policy is not legal.
	ErrPolicy = errors.New("seal policy")
)

// Why a key file is refused. What was loaded before stays in use.
var (
	// ErrKeyFile means that the content is not that of a key file: a person has to restore it from another member.
	ErrKeyFile = errors.New("not a legal key file")
	// ErrExposed means that others may read or write the file: `chmod 600` it, and rotate if they may have read it.
	ErrExposed = errors.New("key file is not its owner's alone")
	// ErrExists means that there is a file already; nothing was changed.
	ErrExists = errors.New("key file exists already")
)

// An OpenError says what was not opened and wraps why.
type OpenError struct {
	Header Header // as given, and perhaps hostile
	Key    string // id of the key that sealed it, if it names one
	Err    error  // ErrNoKey, ErrVersion, ErrTampered, ErrClear or ErrNotSealed
}

func (e *OpenError) Error() string {
	with := ""
	if e.Key != "" {
		with = ", key " + e.Key
	}
	return fmt.Sprintf("open %.140q/%d of scope %.140q%s: %v", e.Header.Device, e.Header.Seq, e.Header.Scope, with, e.Err)
}

func (e *OpenError) Unwrap() error { return e.Err }

// A BlobError says what is wrong with a sealed blob and wraps why.
type BlobError struct {
	Label Label
	Key   string // id of the key that sealed it, if it names one
	Chunk uint64 // from 0
	Err   error  // ErrNoKey, ErrVersion, ErrTampered or ErrNotSealed
}

func (e *BlobError) Error() string {
	with := ""
	if e.Key != "" {
		with = ", key " + e.Key
	}
	return fmt.Sprintf("open %.140q %.140q%s, chunk %d: %v", e.Label.Kind, e.Label.Name, with, e.Chunk, e.Err)
}

func (e *BlobError) Unwrap() error { return e.Err }

// A FileError says where a key file is wrong. It never shows what stands there. It matches ErrKeyFile.
type FileError struct {
	Line   int // from 1; 0 for the file as a whole
	Reason string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%v: %s", ErrKeyFile, e.Reason)
	}
	return fmt.Sprintf("%v: line %d %s", ErrKeyFile, e.Line, e.Reason)
}

func (e *FileError) Is(target error) bool { return target == ErrKeyFile }

// Temporary reports whether trying again, later or with other keys, can help against an error of this package.
func Temporary(err error) bool { return errors.Is(err, ErrNoKey) || errors.Is(err, ErrVersion) }
