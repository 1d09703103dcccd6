// Package journal keeps the ops of one device on disk: its own chain, and the ops it has of others.
//
// # Guarantees
//
// What Append or Update returned without an error is on stable storage and is read back, whatever is killed or
// loses power after. Sequence numbers of the own chain are given once, in order and without holes, also by several
// processes over one directory: the lock is taken before anything is read, and each change begins with what others
// have appended. A group of ops is written and synced at once. A change that failed leaves nothing behind, or says
// that the journal must be reopened.
//
// Opening reads the last group of each series and not more; its cost does not grow with the journal. Bytes are cut
// only from the last group, where a crash can have torn them, and are kept aside in a file torn-N.bin. Damage
// before that is never repaired and never skipped: it is refused where it is read. Recovery writes nothing on a
// clean journal, and repeating it changes nothing.
//
// A checkpoint may stand for the beginning of a journal: first it is made durable, then the cut that names it ([Tx.Cut]),
// and only then are segments dropped that lie entirely below ([Journal.Compact]). From the cut on, nobody reads the
// journal from its beginning without naming that checkpoint. Writing on, the end of the chain and a look-up of a kept op
// need no checkpoint and cost the same as before.
//
// Not promised: that a journal whose end was cut off exactly between two groups is noticed (the index notices
// if it had seen more; so does the ledger, by the witness), and that the two series change together: when a change
// writes both and fails, the peers' part may stand. A group torn by a crash keeps its good records.
// Nor that a failed sync is known to the next process if this one could not leave its note, died, and the machine goes on with
// what it has in its caches.
//
// # Failure
//
// [ErrNotWritten], [ErrBusy] and [ErrClosed]: nothing happened. [ErrPoisoned]: a sync failed; this object does nothing more,
// and the next Open copies what was not synced into a new segment before it goes on. [ErrCorrupt], [ErrLost],
// [ErrVersion], [ErrDevice]: nothing was touched; a person decides. [ErrAnchored]: read with the checkpoint named.
//
// # Concurrency
//
// A Journal may be used by several goroutines, and its directory by several processes of one machine. No lock is
// held between calls. Inside the function given to Update, no Append or Update of the same directory may be called.
// flock is only known to work on local file systems.
package journal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
)

const (
	lockName            = "LOCK"
	defaultSegmentBytes = 16 << 20
)

// A Config says which journal. Dir and Device are required.
type Config struct {
	Dir    string
	Device string
	// Now is the wall clock for stamps; nil is time.Now.
	Now func() time.Time
	// SegmentBytes is the size from which on a new segment is begun; 0 is 16 MiB.
	SegmentBytes int64
	// ReadOnly repairs nothing, makes nothing and shows whole groups only.
	ReadOnly bool
	// Log hears of repairs; nil discards.
	Log *slog.Logger
	// FS is the file system; nil is OS.
	FS FS
}

// A Journal is an open journal. It holds no lock and no file between calls.
type Journal struct {
	cfg  Config
	turn chan struct{} // holds one token: at most one change at a time in this process

	mu     sync.Mutex // guards the fields below; never held across I/O
	own    tail
	peers  tail
	clock  oplog.Clock
	broken error // sticky
	closed bool
	// settledCut is the checkpoint of the cut that this object knows to be on stable storage.
	settledCut string
	appended   chan struct{} // closed, and replaced, when this object has written own ops

	group group
}

// A tail is where a series ends, as this object knows it.
type tail struct {
	exists bool // there is a segment
	seg    uint64
	end    int64 // end of its last complete group
	at     position
	// loose, if not nil, is the place from which on another process wrote what it may not have synced.
	loose *tail
}

// from is the place from which on bytes may not be on stable storage, if nothing is done about it.
func (t tail) from() tail {
	if t.loose != nil {
		return *t.loose
	}
	return t
}

// Open opens the journal of a device and makes the directory if there is none. It recovers what a crash left,
// and waits for the lock until ctx ends (ErrBusy). What it shows at first may be the unsynced work of a process that was
// killed; Refresh syncs it, and so does the next change.
func Open(ctx context.Context, cfg Config) (*Journal, error) {
	if err := ident.Check("device", cfg.Device); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if cfg.Dir == "" {
		return nil, fmt.Errorf("open journal: no directory given")
	}
	fill(&cfg)
	j := &Journal{cfg: cfg, turn: make(chan struct{}, 1), clock: *oplog.NewClock(cfg.Device), appended: make(chan struct{})}
	j.own.at = position{series: Own, device: cfg.Device}
	j.peers.at = position{series: Peers, device: cfg.Device}
	j.group.init()
	if err := j.makeDir(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	unlock, err := j.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := j.refresh(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := j.observeCut(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return j, nil
}

func fill(cfg *Config) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.SegmentBytes <= 0 {
		cfg.SegmentBytes = defaultSegmentBytes
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.FS == nil {
		cfg.FS = OS{}
	}
}

func (j *Journal) makeDir() error {
	if j.cfg.ReadOnly {
		return nil
	}
	return durable.DirIn(j.cfg.FS, j.cfg.Dir)
}

// Dir is the directory of the journal, Device whose it is.
func (j *Journal) Dir() string    { return j.cfg.Dir }
func (j *Journal) Device() string { return j.cfg.Device }

// Head is the last op of the own chain as far as this object has looked; false if there is none.
func (j *Journal) Head() (oplog.Head, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.own.at.head, j.own.at.has
}

// Appended is closed once this object has next written to the own chain, also when another did so through it; what other processes write
// closes nothing. Whoever takes it before a look at the journal misses no op.
func (j *Journal) Appended() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appended
}

// Observe makes every later stamp be after h. Observe only what is verified, durable and not parked.
func (j *Journal) Observe(h oplog.HLC) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clock.Observe(h)
}

// Close lets no further change begin and returns when the last one ended.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.group.stop()
	j.turn <- struct{}{}
	<-j.turn
	return nil
}

// Update makes one change: it takes the lock, looks at what others appended, runs fn, and writes and syncs what fn
// appended to tx. If fn returns an error nothing is written and Update returns that error. ctx bounds the wait for
// the lock only. tx must not be used after fn returned. After Update returned nil, all that this object shows is on
// stable storage, also what others wrote.
func (j *Journal) Update(ctx context.Context, fn func(tx *Tx) error) error {
	return j.update(ctx, true, fn)
}

// update is Update, which settles what others wrote only if asked to.
func (j *Journal) update(ctx context.Context, settle bool, fn func(tx *Tx) error) error {
	select {
	case j.turn <- struct{}{}:
	case <-ctx.Done():
		return busy(ctx, j.cfg.Dir)
	}
	defer func() { <-j.turn }()
	if err := j.usable(); err != nil {
		return err
	}
	unlock, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := j.refresh(); err != nil {
		return err
	}
	tx := j.begin()
	if err := fn(tx); err != nil {
		return err
	}
	if err := j.commit(tx); err != nil || !settle {
		return err
	}
	return j.settle()
}

// Refresh looks at what other processes appended, and syncs it. It is Update without a change.
func (j *Journal) Refresh(ctx context.Context) error {
	return j.Update(ctx, func(*Tx) error { return nil })
}

func (j *Journal) usable() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	return j.broken
}

// poison makes every later call fail with the first error.
func (j *Journal) poison(err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil {
		j.broken = &PoisonError{Err: err}
	}
	return j.broken
}

// lock takes the directory's lock. A reader shares it, and goes without where there is no lock file.
func (j *Journal) lock(ctx context.Context) (func(), error) {
	name := filepath.Join(j.cfg.Dir, lockName)
	if j.cfg.ReadOnly {
		if ok, err := j.cfg.FS.Exists(name); err != nil || !ok {
			return func() {}, err
		}
	}
	var held io.Closer
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		h, ok, err := j.cfg.FS.TryLock(name, !j.cfg.ReadOnly)
		if err != nil {
			return nil, fmt.Errorf("lock journal: %w", err)
		}
		if ok {
			held = h
			break
		}
		pause := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, busy(ctx, j.cfg.Dir)
		}
	}
	return func() { _ = held.Close() }, nil
}

func busy(ctx context.Context, dir string) error {
	return fmt.Errorf("%w: %s: %w", ErrBusy, dir, context.Cause(ctx))
}

// refresh brings the view up to what is on disk, and repairs what a crash left. The lock is held.
func (j *Journal) refresh() error {
	if !j.cfg.ReadOnly {
		if err := j.settleUnsynced(); err != nil {
			return err
		}
	}
	j.mu.Lock()
	own, peers := j.own, j.peers
	j.mu.Unlock()
	own, err := j.follow(own)
	if err != nil {
		return err
	}
	if peers, err = j.follow(peers); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.own, j.peers = own, peers
	if own.at.has {
		j.clock.Observe(own.at.head.HLC)
	}
	return nil
}

func (j *Journal) path(s Series, number uint64) string {
	return filepath.Join(j.cfg.Dir, segmentName(s, number))
}

func (j *Journal) openSegment(s Series, number uint64) (File, error) {
	flag := os.O_RDWR
	if j.cfg.ReadOnly {
		flag = os.O_RDONLY
	}
	f, err := j.cfg.FS.OpenFile(j.path(s, number), flag, 0)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	return f, nil
}
