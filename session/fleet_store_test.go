package session_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/memory"
)

// A store is what a relay keeps, and can be lost or put back from an older copy.
type store interface {
	relay.Relay
	relay.Collector
	relay.Looker
	copied() store
	setGeneration(uint64)
}

// An inMemory store is a relay in memory.
type inMemory struct{ *memory.Relay }

func (s inMemory) copied() store          { return inMemory{s.Copy()} }
func (s inMemory) setGeneration(n uint64) { s.SetGeneration(n) }

// A shared folder is a relay in a folder that every device opens for itself.
type shared struct {
	w       *world
	disk    *faultfs.Disk
	handles map[string]*dir.Relay
}

var _ store = (*shared)(nil)

func newShared(w *world, disk *faultfs.Disk) *shared {
	return &shared{w: w, disk: disk, handles: map[string]*dir.Relay{}}
}

// A folder is a simulated disk, seen as one.
type folder struct{ *faultfs.Process }

func (f folder) Open(name string, flag int) (dir.File, error) {
	file, err := f.Process.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return file, nil
}
func (f folder) ReadDir(name string) ([]fs.DirEntry, error) { return f.List(name) }
func (folder) Close() error                                 { return nil }

// of is the handle of a device.
func (s *shared) of(device string) *dir.Relay {
	if s.handles[device] == nil {
		r, err := dir.Open(dir.Config{FS: folder{s.disk.Process()}, SegmentBytes: 1500, Grace: -1, Now: s.w.wall.Now, Poll: time.Hour})
		if err != nil {
			s.w.t.Fatal(err)
		}
		s.handles[device] = r
	}
	return s.handles[device]
}

func (s *shared) Hello(c ctx, device string) (relay.Info, error) {
	return s.of(device).Hello(c, device)
}
func (s *shared) Push(c ctx, device string, ops []oplog.Op) (relay.Pushed, error) {
	return s.of(device).Push(c, device, ops)
}
func (s *shared) Pull(c ctx, device string, want relay.Want) (relay.Page, error) {
	return s.of(device).Pull(c, device, want)
}
func (s *shared) Ack(c ctx, device string, folded oplog.Frontier) error {
	return s.of(device).Ack(c, device, folded)
}
func (s *shared) Register(c ctx, device string, role relay.Role) error {
	return s.of(device).Register(c, device, role)
}
func (s *shared) PutCheckpoint(c ctx, device string, cp relay.Checkpoint) error {
	return s.of(device).PutCheckpoint(c, device, cp)
}
func (s *shared) Seed(c ctx, device string, cp relay.Checkpoint, heads oplog.Heads) error {
	return s.of(device).Seed(c, device, cp, heads)
}
func (s *shared) Roster(c ctx) ([]relay.Member, error) { return s.of("").Roster(c) }
func (s *shared) Look(c ctx) (relay.Info, error)       { return s.of("").Look(c) }
func (s *shared) Checkpoint(c ctx) (relay.Checkpoint, bool, error) {
	return s.of("").Checkpoint(c)
}

// CollectsOwn implements relay.OwnCollector.
func (s *shared) CollectsOwn() {}

// Collect lets every device collect its own chain, one after the other.
func (s *shared) Collect(c ctx) (done relay.Collection, err error) {
	for _, device := range slices.Sorted(maps.Keys(s.handles)) {
		var failed error
		if done, failed = s.handles[device].Collect(c); failed != nil {
			err = errors.Join(err, fmt.Errorf("collect for %q: %w", device, failed))
		}
	}
	return done, err
}

func (s *shared) copied() store { return newShared(s.w, s.disk.Clone()) }

func (s *shared) setGeneration(n uint64) {
	f, err := s.disk.Process().Open("generation.txt", os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err == nil {
		_, err = fmt.Fprint(f, n>>11) // below 2^53
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.w.t.Fatal(err)
	}
}
