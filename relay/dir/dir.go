// Package dir is the relay in a folder that devices share or synchronise: NFS, Syncthing, Dropbox and their like.
//
// # Guarantees
//
// Those of package relay, as far as a folder can give them. There is no lock and no file that two devices write: each
// device appends to its own segments, replaces its own small files and puts each checkpoint into a file of its own, so no synchroniser
// ever has two versions of a file to choose from. What Push accepted is on stable storage of this machine before it answers, read back and
// verified. A push writes the bytes of its ops and at most a few short lines. Nothing is ever cut off; what is replaced
// is the device's own small files, and an own segment after a sync that failed. What is removed is own segments of which every op was
// collected, own checkpoints that another superseded, both after Grace, and what is left of chains that are closed.
//
// Files may arrive late, in any order, in pieces and more than once: an op counts once it and all before it are
// there, and until then the chain ends before it. Whatever is no file of ours, or is damaged, stops nothing but the
// chain it belongs to; Report shows it. The folder always opens. Symbolic links are never followed, and nothing
// outside of the folder is touched.
//
// On one machine a push is a compare-and-set as package relay says, because appends to a file have an order. Not
// promised, because no folder can: that two machines which use one device id at the same time are told at once. The one
// that finds the other's ops in the folder gets a fork, and a handle that sees both branches shows it in Report. Nor
// that an ack, a role or a device is seen by others before its files arrived.
//
// # Checkpoints and collection
//
// The newest checkpoint is the one that covers all others, whoever put it. No folder can compare and set over devices, so of two that are
// put at the same time in two copies neither has to cover the other. Then each stays, a floor rises only to what both cover, so whoever
// began at either goes on, a further checkpoint has to cover both (relay.ErrBehind otherwise), and Checkpoint gives one of them, on every
// handle that sees both the same. A file that is half there or damaged counts as none; a floor that arrives before the checkpoint that
// covers it stops its own chain and no other, until that has come.
//
// A device collects its own chain only (relay.OwnCollector), judged by the rows and checkpoints that it sees: what it does not see yet
// can only keep ops, unless a device registered and its files have not arrived, which costs that device a start from the checkpoint. Two
// devices that both publish and collect before either has seen the other's files cannot be brought together any more, since each has
// only in its checkpoint what the other lacks: both are told so with every pump. Ops go by whole segments: below the floor none is given
// any more, and their bytes go with the segment that holds them.
//
// A chain that is closed while its device pushes to another copy ends where the checkpoint says: the device is told by its next push,
// and what it pushed in between does not count. A seed is a line of the seeding device's own checkpoint: a chain whose files reach less
// far begins behind it, and its owner notes that in its own folder with its next push.
//
// # Failure
//
// A folder that cannot be read or written gives relay.ErrNotSent, or relay.ErrIndeterminate once bytes may have been
// written; pushing again settles it, and the next push also closes what a crash left unfinished. A disk or quota
// that is full gives relay.ErrFull beside either. An own file that a newer release wrote, or something that has the
// name of a file that is needed, gives relay.ErrCorrupt and is left alone.
//
// # Concurrency
//
// A Relay may be used by several goroutines, and any number of processes may use one folder. Calls about one device
// wait for each other within a handle.
//
// The layout is described in docs/formats/relay-dir.md.
package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// Defaults of a Config.
const (
	DefaultSegmentBytes = 1 << 20
	DefaultPoll         = 2 * time.Second
)

// A Config describes a relay in a folder. Zero fields take their defaults.
type Config struct {
	Path         string           // of the folder; its parent has to be there
	Namespace    string           // keeps apart those that share Path, each in a folder inside; empty: Path is the relay's alone
	Existing     bool             // Open makes no folder; the error matches fs.ErrNotExist where none is
	FS           FS               // in place of Path; stays the caller's
	MaxBytes     int64            // of all segments and checkpoints of all devices; 0: as much as the disk takes
	SegmentBytes int64            // size from which on a segment is followed by a new one; DefaultSegmentBytes
	Poll         time.Duration    // between two looks of Hint; DefaultPoll
	Now          func() time.Time // time.Now; for the times in the roster, eviction and grace

	EvictAfter time.Duration // relay.EvictAfter; less than 0: never
	Grace      time.Duration // relay.Grace; less than 0: none
}

// A Relay is a handle to the folder. Make it with Open. What it verified it remembers, so that a call reads only what
// is new; the first one reads everything.
type Relay struct {
	fs       FS
	owned    bool // fs is closed by Close
	where    string
	maxBytes int64
	roll     int64
	poll     time.Duration
	now      func() time.Time
	evict    time.Duration
	grace    time.Duration
	shelf    shelf

	mu    sync.Mutex
	known map[string]*device
}

var (
	_ relay.Relay        = (*Relay)(nil)
	_ relay.Hinter       = (*Relay)(nil)
	_ relay.Looker       = (*Relay)(nil)
	_ relay.OwnCollector = (*Relay)(nil)
)

// Open returns a handle to the relay in a folder, which is made if it is missing and need not be there. It reads nothing yet.
func Open(cfg Config) (*Relay, error) {
	r := &Relay{fs: cfg.FS, where: cfg.Path, maxBytes: cfg.MaxBytes, roll: cfg.SegmentBytes, poll: cfg.Poll, now: cfg.Now,
		evict: cfg.EvictAfter, grace: cmp.Or(cfg.Grace, relay.Grace), known: map[string]*device{},
		shelf: shelf{turn: make(chan struct{}, 1), files: map[string]*stored{}, ended: oplog.Frontier{}}}
	r.shelf.turn <- struct{}{}
	if r.roll <= 0 {
		r.roll = DefaultSegmentBytes
	}
	r.roll = min(r.roll, maxSegment/4)
	if r.maxBytes > 0 { // whole segments are collected: many of them have to fit
		r.roll = min(r.roll, max(r.maxBytes/32, 1<<10))
	}
	if r.poll <= 0 {
		r.poll = DefaultPoll
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.fs != nil {
		return r, nil
	}
	if cfg.Path == "" {
		return nil, &relay.InvalidError{Err: errors.New("no folder given")}
	}
	r.where = filepath.Clean(cfg.Path)
	if cfg.Namespace != "" {
		if !cfg.Existing {
			if err := makeShared(r.where); err != nil {
				return nil, fmt.Errorf("open relay folder %s: %w: %w", r.where, relay.ErrNotSent, err)
			}
		}
		r.where = filepath.Join(r.where, namespaceFolder(cfg.Namespace))
	}
	open := OpenFS
	if cfg.Existing {
		open = findFS
	}
	root, err := open(r.where)
	if err != nil {
		return nil, fmt.Errorf("open relay folder %s: %w: %w", r.where, relay.ErrNotSent, err)
	}
	r.fs, r.owned = root, true
	return r, nil
}

// Close gives back the handle. No call may be under way.
func (r *Relay) Close() error {
	if !r.owned {
		return nil
	}
	return r.fs.Close()
}

// Hello implements relay.Relay. The instance is the least that any device has noted, so it changes at most when
// folders that began apart are brought together.
func (r *Relay) Hello(ctx context.Context, name string) (relay.Info, error) {
	if err := begin(ctx, name); err != nil {
		return relay.Info{}, err
	}
	d, err := r.act(ctx, name)
	if err != nil {
		return relay.Info{}, err
	}
	row := d.row()
	acked := row.acked.Clone()
	d.leave()
	info, v, err := r.info(ctx, row.beat.Instance)
	if err != nil {
		return relay.Info{}, err
	}
	info.Role, info.Acked = row.role, acked // with chains that are gone, until a collection forgets them, so that nobody acks them each time
	if row.mend {
		info.Role = relay.Seen // so that it registers again
	}
	info.Head, info.Known = v.heads[name]
	return info, nil
}

// Look implements relay.Looker.
func (r *Relay) Look(ctx context.Context) (relay.Info, error) {
	if err := alive(ctx); err != nil {
		return relay.Info{}, err
	}
	info, _, err := r.info(ctx, "")
	return info, err
}

// info is what is the same for every device. instance is one that is known; empty if none is.
func (r *Relay) info(ctx context.Context, instance string) (relay.Info, *view, error) {
	instance, err := r.instance(ctx, instance)
	if err != nil {
		return relay.Info{}, nil, err
	}
	v, err := r.look(ctx, false)
	if err != nil {
		return relay.Info{}, nil, err
	}
	info := relay.Info{Instance: instance, Generation: r.generation(), Heads: v.heads.Frontier(), Floor: v.floor}
	if s := v.books.newest(); s != nil {
		info.Checkpoint = s.line.Hash
	} else if len(v.books.broken) > 0 {
		info.Checkpoint = v.books.broken[0].line.Hash // whoever fetches it is told
	}
	return info, v, nil
}

// Pull implements relay.Relay.
func (r *Relay) Pull(ctx context.Context, name string, want relay.Want) (relay.Page, error) {
	if err := begin(ctx, name); err != nil {
		return relay.Page{}, err
	}
	if err := relay.CheckFrontier(want.Held); err != nil {
		return relay.Page{}, err
	}
	v, err := r.look(ctx, false)
	if err != nil {
		return relay.Page{}, err
	}
	broken := v.unarrived(&want)
	if err := relay.CheckClosed(want, v.heads.Frontier(), v.books.closed); err != nil {
		return relay.Page{}, err
	}
	wanted, err := relay.Needs(name, want, v.heads.Frontier(), v.floor)
	if err != nil {
		return relay.Page{}, err
	}
	page, err := relay.Fill(wanted, want.MaxBytes, func(of string, from uint64, room int) ([]oplog.Op, error) {
		d := r.device(of)
		if err := d.enter(ctx); err != nil {
			return nil, err
		}
		defer d.leave()
		return d.chain.read(from, room)
	})
	if err != nil {
		return relay.Page{}, err
	}
	for d, b := range broken {
		if want.Held.Next(d) == b.next {
			if page.Broken == nil {
				page.Broken = map[string]error{}
			}
			page.Broken[d] = b.err
		}
	}
	return page, nil
}

// Hint implements relay.Hinter by looking now and then.
func (r *Relay) Hint(ctx context.Context, known oplog.Frontier) error {
	tick := time.NewTicker(r.poll)
	defer tick.Stop()
	for {
		v, err := r.look(ctx, false)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case !v.heads.Frontier().Equal(known):
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// generation is the number in generation.txt, which a person writes who put an older copy of the folder back.
func (r *Relay) generation() uint64 {
	data, err := readSmall(r.fs, generationFile, 64)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 53)
	if err != nil {
		return 0
	}
	return n
}

func begin(ctx context.Context, device string) error {
	if err := alive(ctx); err != nil {
		return err
	}
	return relay.CheckDevice(device)
}

func alive(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	err := ctx.Err()
	if c := context.Cause(ctx); !errors.Is(err, c) {
		return fmt.Errorf("%w: %w: %w", relay.ErrNotSent, err, c)
	}
	return fmt.Errorf("%w: %w", relay.ErrNotSent, err)
}

func (r *Relay) unsent(what string, err error) error {
	return fmt.Errorf("%s in %s: %w: %w", what, r.where, relay.ErrNotSent, err)
}

// unknown wraps the failure of a replacement: either content may stand.
func (r *Relay) unknown(what string, err error) error {
	return fmt.Errorf("%s in %s: %w: %w", what, r.where, relay.ErrIndeterminate, err)
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
