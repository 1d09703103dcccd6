// Package index answers in constant time what a run needs to know of a journal: the highest epoch of an agent, the
// records of a run, the outcomes that the ledger may lack, the last runs that it has, the clock and the frontier.
//
// # Guarantees
//
// The index is a function of the journal: one that was made anew, brought forward in any steps, or shared by
// several processes gives the same answers. It is rebuilt when it is missing, behind, of another version or
// unreadable. Sync costs what was appended since, and at most a fixed part of the journal more.
//
// Before the journal begins at a checkpoint, Keep makes the index durable, with a copy beside it: the ops below can never be read
// again. So no checkpoint is loaded to use the index, unless both are lost.
//
// The file index.bolt holds the index up to some place in the journal, and each transaction in it is synced, so that a power
// loss leaves an older index and never a mixed one; and never one that has seen what the journal lost. What came after that place is kept in memory, and read again from the
// journal by the next process; it moves into the file once it is more than [flushOps] ops.
//
// Not promised: that damage inside the file that is no crash's doing is always seen. Every value has a checksum, but a
// key that cannot be found any more looks as if it had never been.
//
// # Failure
//
// journal.ErrLost: the index has seen ops of the own chain that the journal does not hold, or holds others at their
// place. Writing on would use their sequence numbers twice; a person restores the journal, or removes the index and
// takes a new device id. Other errors are those of the journal. A failure to write the file is logged and otherwise ignored.
//
// # Concurrency
//
// An Index and its View may only be used while the journal's lock is held: inside journal.Update or journal.Share.
package index

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

const (
	flushOps   = 128     // a process that had to read more than this from the journal writes the file
	keepOps    = 2048    // a process that goes on writes the file after as many
	rebuildOps = 1 << 15 // ops per transaction of a rebuild
)

// A Config says which index. Path is required.
type Config struct {
	Path string
	Now  func() time.Time // nil is time.Now; only decides what is parked
	Log  *slog.Logger     // nil discards
	// Facts gives the facts of the checkpoint that the journal begins at, all of its intents included. It is only called if the
	// index and its copy are lost; nil makes that an error that matches journal.ErrAnchored.
	Facts func(checkpoint string) (Facts, error)
}

// An Index is the index of one journal, in one process.
type Index struct {
	cfg   Config
	store store
	raw   []byte // the encoded state in the file that the one in memory goes on from; nil if there was no file
	state *state
	fresh int         // ops applied that are not in the file
	tx    *journal.Tx // the change under way
}

// New returns an index that has read nothing yet.
func New(cfg Config) *Index {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Index{cfg: cfg, store: store{path: cfg.Path, dirty: map[string][]byte{}}}
}

// Sync brings the index up to the end of the journal. The View is valid until Close, inside the same change.
func (x *Index) Sync(tx *journal.Tx) (*View, error) {
	x.tx = tx
	err := x.sync(tx.Journal())
	if errors.Is(err, errUnreadable) {
		err = x.rebuild(tx.Journal(), err)
	}
	if err != nil {
		x.store.close()
		return nil, err
	}
	return &View{x: x, tx: tx}, nil
}

// rebuild starts from an empty index.
func (x *Index) rebuild(j *journal.Journal, cause error) error {
	x.cfg.Log.Warn("index is made anew", "file", x.cfg.Path, "cause", cause)
	if err := x.store.discard(); err != nil {
		return err
	}
	x.state, x.raw = nil, nil
	if err := x.recover(j); err != nil {
		return err
	}
	return x.bring(j, true)
}

func (x *Index) sync(j *journal.Journal) error {
	raw, err := x.store.open()
	if err != nil {
		return err
	}
	loaded := false
	if x.state == nil || !bytes.Equal(raw, x.raw) {
		if err := x.load(j, raw); err != nil {
			return err
		}
		loaded = true
	}
	if stale, err := x.state.stale(j); err != nil {
		return err
	} else if stale {
		return fmt.Errorf("%w: the journal begins at another checkpoint", errUnreadable)
	}
	return x.bring(j, loaded)
}

// bring applies what the journal holds beyond the index.
func (x *Index) bring(j *journal.Journal, loaded bool) error {
	if x.state == nil {
		if err := x.load(j, nil); err != nil {
			return err
		}
	}
	now := x.cfg.Now().UnixMilli()
	if err := x.catchUp(j, journal.Own, &x.state.Own, &x.state.OwnID, now); err != nil {
		return err
	}
	if err := x.catchUp(j, journal.Peers, &x.state.Peers, &x.state.PeersID, now); err != nil {
		return err
	}
	x.state.due(now)
	if x.fresh >= keepOps || loaded && x.fresh >= flushOps {
		return x.flush()
	}
	return nil
}

// load takes the state of the file, or an empty one.
func (x *Index) load(j *journal.Journal, raw []byte) error {
	x.store.dirty, x.fresh, x.raw, x.state = map[string][]byte{}, 0, nil, nil
	st := newState(j.Device())
	if raw != nil {
		*st = state{}
		if err := json.Unmarshal(raw, st); err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		if st.V != formatVersion || st.Device != j.Device() || st.Frontier == nil {
			return fmt.Errorf("%w: version %d, device %q", errUnreadable, st.V, st.Device)
		}
		if err := check(j, st); err != nil {
			return err
		}
	}
	x.raw, x.state = raw, st
	return nil
}

// check verifies that the journal holds what the index has seen, at the same place.
func check(j *journal.Journal, st *state) error {
	id, ok, err := j.Before(journal.Own, st.Own)
	if err != nil {
		return err
	}
	if !ok || id != st.OwnID {
		return judge(j, st)
	}
	if id, ok, err = j.Before(journal.Peers, st.Peers); err != nil {
		return err
	}
	if !ok || id != st.PeersID {
		return fmt.Errorf("%w: the peers' ops are not where they were", errUnreadable)
	}
	return nil
}

// judge says whether the own chain lost what the index has seen, or only stands elsewhere.
func judge(j *journal.Journal, st *state) error {
	head, seen := st.Frontier[st.Device]
	if !seen {
		return fmt.Errorf("%w: a place without an op", errUnreadable)
	}
	op, found, err := j.OpAt(head.Seq)
	if errors.Is(err, journal.ErrAnchored) {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if err != nil {
		return err
	}
	if !found || op.ID != head.ID {
		return fmt.Errorf("%w: the index has seen op %d as %s, the journal has %q there", journal.ErrLost, head.Seq, head.ID, op.ID)
	}
	return fmt.Errorf("%w: the own ops are not where they were", errUnreadable)
}

func (x *Index) catchUp(j *journal.Journal, s journal.Series, at *journal.Cursor, id *oplog.OpID, now int64) error {
	if *at == j.End(s) {
		return nil
	}
	entries := j.Read(s, *at)
	if *at == (journal.Cursor{}) {
		cut, _, err := j.Cut()
		if err != nil {
			return err
		}
		entries = j.Kept(cut.Checkpoint, s) // the index has the facts of it
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		if have, ok := x.state.Frontier[e.Op.Device]; ok && e.Op.Seq <= have.Seq {
			*at, *id = e.Next, e.Op.ID
			continue // a checkpoint told of it
		}
		if err := x.state.apply(&x.store, e.Op, now); err != nil {
			return err
		}
		*at, *id = e.Next, e.Op.ID
		if x.fresh++; x.fresh%rebuildOps == 0 {
			if err := x.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes the file, once all that it has seen is on stable storage. The index in memory goes on without it, if what lies under it can
// still be read.
func (x *Index) flush() error {
	if err := x.tx.Settle(); err != nil {
		return err
	}
	raw, err := json.Marshal(x.state)
	if err == nil {
		err = x.store.flush(raw)
	}
	if err == nil {
		x.raw, x.fresh = raw, 0
		return nil
	}
	x.cfg.Log.Warn("index file was not written", "file", x.cfg.Path, "cause", err)
	x.store.close()
	under, err := x.store.open()
	if err != nil {
		return err
	}
	if !bytes.Equal(under, x.raw) {
		return fmt.Errorf("%w: changed by a failed write", errUnreadable)
	}
	return nil
}

// A View is the index at the end of the journal, inside one change. It does not show what that change appends.
type View struct {
	x  *Index
	tx *journal.Tx
}

// Close ends the use of the file.
func (v *View) Close() { v.x.store.close() }

// again runs fn, and once more over an index made anew if the file cannot be read.
func (v *View) again(fn func() error) error {
	err := fn()
	if errors.Is(err, errUnreadable) {
		if err = v.x.rebuild(v.tx.Journal(), err); err == nil {
			err = fn()
		}
	}
	return err
}

// Epoch is the highest epoch of an agent in any op of the journal; 0 if there is none.
func (v *View) Epoch(agent string) (epoch uint64, err error) {
	err = v.again(func() error {
		value, err := v.x.store.get(epochKey(agent))
		if len(value) == 8 {
			epoch = binary.BigEndian.Uint64(value)
		}
		return err
	})
	return epoch, err
}

// Records are what the journal says about a run: one per author and attempt, ordered by author and seq.
func (v *View) Records(run string) (list []Record, err error) {
	err = v.again(func() error {
		list, err = recordsOf(&v.x.store, run)
		return err
	})
	return list, err
}

// Known is what a caller knows to be in the ledger beyond what the journal says.
type Known struct {
	Next     uint64          // every own outcome below this seq
	Attempts map[string]bool // and those of these attempts
}

func (k Known) has(o open) bool { return o.Seq < k.Next || k.Attempts[o.Attempt] }

// Unsettled are the own outcomes that neither the journal nor k knows to be in the ledger, oldest first, at most limit.
func (v *View) Unsettled(k Known, limit int) (list []Outcome, err error) {
	err = v.again(func() error {
		list = nil
		for _, o := range v.x.state.Open {
			if len(list) == limit {
				break
			}
			if k.has(o) {
				continue
			}
			value, err := v.x.store.get(openKey(o.Seq))
			if err != nil {
				return err
			}
			var out Outcome
			if err := json.Unmarshal(value, &out); err != nil {
				return fmt.Errorf("%w: outcome %d: %w", errUnreadable, o.Seq, err)
			}
			list = append(list, out)
		}
		return nil
	})
	return list, err
}

// Settled brings k up to date: the lowest own seq that may not be in the ledger, and the attempts above it that are.
func (v *View) Settled(k Known) Known {
	out := Known{Attempts: map[string]bool{}}
	if head, ok := v.x.state.Frontier[v.x.state.Device]; ok {
		out.Next = head.Seq + 1
	}
	for i := len(v.x.state.Open) - 1; i >= 0; i-- {
		o := v.x.state.Open[i]
		switch {
		case !k.has(o):
			out.Next = o.Seq
		case o.Attempt != "":
			out.Attempts[o.Attempt] = true
		}
	}
	for _, o := range v.x.state.Open {
		if o.Seq < out.Next {
			delete(out.Attempts, o.Attempt)
		}
	}
	return out
}

// Witnesses are the last two runs that the ledger has from this device, newest first.
func (v *View) Witnesses(k Known) []Witness {
	list := v.x.state.Witness
	for _, o := range v.x.state.Open {
		if k.has(o) {
			list = addWitness(list, o)
		}
	}
	return list
}

// Frontier has the last op of every device in the journal, the own one included.
func (v *View) Frontier() map[string]oplog.Head { return maps.Clone(v.x.state.Frontier) }

// Clock is the greatest stamp of a peer that is not parked.
func (v *View) Clock() oplog.HLC { return v.x.state.Clock }
