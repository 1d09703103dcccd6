package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/syncnode/syncnode/oplog"
)

// A Draft is an op of the own chain before it has its place.
type Draft struct {
	Scope   oplog.Scope
	Surface oplog.Surface
	Payload []byte // JSON; the op holds its canonical form
	// Finish, if not nil, gives the payload in place of Payload once the place of the op is known, for what has to be bound to it. It
	// runs under the journal's lock, so it must be quick and must not use the journal. If it fails, nothing of the call is written.
	Finish func(Place) ([]byte, error)
	// Same goes with a Finish that gives other bytes each time: it reports whether an op of that scope and surface says what this
	// draft says. Only Reissue asks, after a crash.
	Same func(oplog.Op) (bool, error)
}

// A Place is where an own op will stand: its whole header.
type Place struct {
	Device  string
	Seq     uint64
	Prev    oplog.OpID // empty at seq 0
	HLC     oplog.HLC
	Scope   oplog.Scope
	Surface oplog.Surface
}

// at is the op that the draft becomes at a place.
func (d Draft) at(p Place) (oplog.Op, error) {
	payload := d.Payload
	if d.Finish != nil {
		var err error
		if payload, err = d.Finish(p); err != nil {
			return oplog.Op{}, err
		}
	}
	return oplog.New(p.Device, p.Seq, p.Prev, p.HLC, p.Scope, p.Surface, payload)
}

// became reports whether op is what the draft became.
func (d Draft) became(op oplog.Op) (bool, error) {
	if op.Scope != d.Scope || op.Surface != d.Surface {
		return false, nil
	}
	if d.Same != nil {
		return d.Same(op)
	}
	again, err := d.at(Place{op.Device, op.Seq, op.Prev, op.HLC, op.Scope, op.Surface})
	return err == nil && again.ID == op.ID, err
}

// A Tx is one change, inside Update.
type Tx struct {
	j          *Journal
	own, peers position
	clock      oplog.Clock
	ownBuf     []byte
	peersBuf   []byte
	appended   []oplog.Op
}

func (j *Journal) begin() *Tx {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &Tx{j: j, own: j.own.at, peers: j.peers.at, clock: j.clock}
}

// Journal is the journal under change; reading from it shows what was committed before this change.
func (tx *Tx) Journal() *Journal { return tx.j }

// Head is the last op of the own chain, those of this change included; false if there is none.
func (tx *Tx) Head() (oplog.Head, bool) { return tx.own.head, tx.own.has }

// Settle syncs what others wrote, so that whatever is derived from what the journal shows does not outlive it. Update does so by itself
// at its end; a failure poisons the journal.
func (tx *Tx) Settle() error { return tx.j.settle() }

// Appended are the own ops that this change has appended so far. They are not committed yet.
func (tx *Tx) Appended() []oplog.Op { return tx.appended }

// try runs fn and takes back what it appended if it fails.
func (tx *Tx) try(fn func(*Tx) error) error {
	before := *tx
	err := fn(tx)
	if err != nil {
		*tx = before
	}
	return err
}

// Observe makes every later stamp be after h. It stands even if the change fails.
func (tx *Tx) Observe(h oplog.HLC) {
	tx.j.Observe(h)
	tx.clock.Observe(h)
}

// Append adds ops to the own chain: sequence number, link and stamp are given here. If one draft is refused, none is
// added. They are on stable storage once Update returned nil.
func (tx *Tx) Append(drafts ...Draft) ([]oplog.Op, error) {
	if tx.j.cfg.ReadOnly {
		return nil, ErrReadOnly
	}
	at, clock := tx.own, tx.clock
	now := tx.j.cfg.Now().UnixMilli()
	ops := make([]oplog.Op, 0, len(drafts))
	for _, d := range drafts {
		op, err := d.at(Place{tx.j.cfg.Device, at.next(), at.head.ID, clock.Tick(now), d.Scope, d.Surface})
		if err != nil {
			return nil, fmt.Errorf("append to journal: %w", err)
		}
		if err := at.follow(op); err != nil {
			panic(fmt.Sprintf("journal: own op does not continue the chain: %v", err))
		}
		ops = append(ops, op)
	}
	for _, op := range ops {
		tx.ownBuf = append(op.AppendLine(tx.ownBuf), '\n')
	}
	tx.own, tx.clock = at, clock
	tx.appended = append(tx.appended, ops...)
	return ops, nil
}

// AppendPeers adds ops of other devices, in the order given. The caller has verified that each continues its chain;
// here each is checked for itself, and none is added if one is refused.
func (tx *Tx) AppendPeers(ops ...oplog.Op) error {
	if tx.j.cfg.ReadOnly {
		return ErrReadOnly
	}
	for _, op := range ops {
		if err := op.Check(); err != nil {
			return fmt.Errorf("append peer's op to journal: %w", err)
		}
		if op.Device == tx.j.cfg.Device {
			return &oplog.ForeignError{Field: "device_id", Want: "another device", Got: op.Device}
		}
	}
	for _, op := range ops {
		tx.peersBuf = append(op.AppendLine(tx.peersBuf), '\n')
		if err := tx.peers.follow(op); err != nil {
			return err
		}
	}
	return nil
}

// commit writes and syncs what tx holds: one group in each series.
func (j *Journal) commit(tx *Tx) error {
	if len(tx.peersBuf) > 0 {
		t, err := j.writeGroup(j.tailOf(Peers), append(tx.peersBuf, '\n'), tx.peers)
		if err != nil {
			return err
		}
		j.setTail(t)
	}
	if len(tx.ownBuf) > 0 {
		t, err := j.writeGroup(j.tailOf(Own), append(tx.ownBuf, '\n'), tx.own)
		if err != nil {
			return err
		}
		j.setTail(t)
		j.mu.Lock()
		j.clock.Observe(tx.clock.Last())
		close(j.appended)
		j.appended = make(chan struct{})
		j.mu.Unlock()
	}
	return nil
}

func (j *Journal) setTail(t tail) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t.at.series == Own {
		j.own = t
	} else {
		j.peers = t
	}
}

// writeGroup appends one group after t and returns the new end. What is before is synced first: recovery rests on that.
func (j *Journal) writeGroup(t tail, group []byte, at position) (tail, error) {
	if t.loose != nil {
		if err := j.settleTail(&t); err != nil {
			return t, err
		}
	}
	if !t.exists || t.end >= j.cfg.SegmentBytes && nextSegment(t) != t.seg {
		next, err := j.newSegment(t)
		if err != nil {
			return t, err
		}
		t = next
	}
	f, err := j.openSegment(t.at.series, t.seg)
	if err != nil {
		return t, fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	defer f.Close()
	n, err := f.WriteAt(group, t.end)
	if err == nil && n < len(group) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return t, j.undo(f, t, err)
	}
	if err := f.Sync(); err != nil {
		j.markUnsynced(t, true)
		return t, j.poison(fmt.Errorf("sync %s: %w", segmentName(t.at.series, t.seg), err))
	}
	t.end += int64(len(group))
	t.at, t.loose = at, nil
	return t, nil
}

// undo removes what a failed write left, so that nothing of it can be read back later.
func (j *Journal) undo(f File, t tail, cause error) error {
	if err := errors.Join(f.Truncate(t.end), f.Sync()); err != nil {
		j.markUnsynced(t, true)
		return j.poison(fmt.Errorf("undo a failed write (%w): %w", cause, err))
	}
	return fmt.Errorf("%w: %w", ErrNotWritten, cause)
}

func encodeNote(u unsynced) []byte {
	b, err := json.Marshal(u)
	if err != nil {
		panic(fmt.Sprintf("journal: a note that cannot be encoded: %v", err))
	}
	return append(b, '\n')
}

func decodeNote(data []byte) (unsynced, bool) {
	var u unsynced
	err := json.Unmarshal(data, &u)
	return u, err == nil && u.V == formatVersion && u.End > 0 && (u.Series == Own || u.Series == Peers)
}
