package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

var (
	bucketName = []byte("index/v1")
	stateKey   = "state"
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// errUnreadable: the file is not what this package wrote. It is made anew.
var errUnreadable = errors.New("index: unreadable")

// A store is the file with changes on top that are not in it yet.
type store struct {
	path  string
	db    *bbolt.DB // read-only; nil if there is no file, or between calls
	dirty map[string][]byte
}

// guard turns a panic over damaged pages, or a fault in a truncated map, into errUnreadable.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errUnreadable, r)
		}
	}()
	return fn()
}

// The journal's lock is held, so nobody else has the file for long.
const openWait = 10 * time.Second

// open opens the file for reading if there is one, and returns the encoded state; nil if there is no file.
func (s *store) open() (raw []byte, err error) {
	err = guard(func() error {
		if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		db, err := bbolt.Open(s.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openWait})
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		s.db = db
		raw, err = s.fromFile(stateKey)
		if err == nil && raw == nil {
			err = fmt.Errorf("%w: no state", errUnreadable)
		}
		return err
	})
	return raw, err
}

func (s *store) close() {
	if s.db != nil {
		_ = guard(s.db.Close)
		s.db = nil
	}
}

// discard removes the file and every change on top.
func (s *store) discard() error {
	s.close()
	s.dirty = map[string][]byte{}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove index: %w", err)
	}
	return nil
}

func (s *store) get(key string) ([]byte, error) {
	if v, ok := s.dirty[key]; ok {
		return v, nil
	}
	var out []byte
	err := guard(func() (err error) {
		out, err = s.fromFile(key)
		return err
	})
	return out, err
}

func (s *store) put(key string, value []byte) { s.dirty[key] = value }

func (s *store) fromFile(key string) (out []byte, err error) {
	if s.db == nil {
		return nil, nil
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketName)
		if b == nil {
			return fmt.Errorf("%w: no bucket", errUnreadable)
		}
		v := b.Get([]byte(key))
		if v == nil {
			return nil
		}
		if len(v) < 4 || binary.BigEndian.Uint32(v) != sum(key, v[4:]) {
			return fmt.Errorf("%w: checksum of %q", errUnreadable, key)
		}
		out = slices.Clone(v[4:])
		return nil
	})
	return out, err
}

func sum(key string, value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, value)
}

// flush moves the changes and the state into the file, in one synced transaction, and opens it for reading again.
func (s *store) flush(state []byte) error {
	s.close()
	err := guard(func() error {
		db, err := bbolt.Open(s.path, 0o600, &bbolt.Options{Timeout: openWait, FreelistType: bbolt.FreelistMapType})
		if err != nil {
			return err
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketName)
			if err != nil {
				return err
			}
			for _, key := range slices.Sorted(maps.Keys(s.dirty)) {
				if err := write(b, key, s.dirty[key]); err != nil {
					return err
				}
			}
			return write(b, stateKey, state)
		})
		return errors.Join(err, db.Close())
	})
	if err != nil {
		return err
	}
	s.dirty = map[string][]byte{}
	_, err = s.open()
	return err
}

func write(b *bbolt.Bucket, key string, value []byte) error {
	if value == nil {
		return b.Delete([]byte(key))
	}
	return b.Put([]byte(key), append(binary.BigEndian.AppendUint32(nil, sum(key, value)), value...))
}
