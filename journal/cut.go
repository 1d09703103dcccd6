package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
)

const cutName = "CUT.json"

// A Cut says which checkpoint stands for the beginning of a journal: for every op up to the heads that it covers.
type Cut struct {
	Checkpoint string      // its hash: 64 lower-case hex digits
	Heads      oplog.Heads // the last op that it covers of each chain that may go on
	Closed     oplog.Heads // and of each that may not
}

// head is the last covered op of a device.
func (c *Cut) head(device string) (oplog.Head, bool) {
	h, ok := c.Heads[device]
	if !ok {
		h, ok = c.Closed[device]
	}
	return h, ok
}

// covers reports whether the op is below the cut.
func (c *Cut) covers(op oplog.Op) bool {
	h, ok := c.head(op.Device)
	return ok && op.Seq <= h.Seq
}

// A cutRecord is a Cut as it stands on the disk. Own and Peers are the last segments of both series when it was made:
// only those before them may be dropped, since whatever else follows the series had read that far.
type cutRecord struct {
	V          int                `json:"v"`
	Device     string             `json:"device"`
	Checkpoint string             `json:"checkpoint"`
	Own        uint64             `json:"own"`
	Peers      uint64             `json:"peers"`
	Heads      map[string]cutHead `json:"heads"`
	Closed     map[string]cutHead `json:"closed,omitempty"`
}

type cutHead struct {
	Seq     uint64     `json:"seq"`
	ID      oplog.OpID `json:"op_id"`
	WallMS  int64      `json:"wall_ms"`
	Counter uint32     `json:"counter"`
}

func toRecord(heads oplog.Heads) map[string]cutHead {
	out := make(map[string]cutHead, len(heads))
	for device, h := range heads {
		out[device] = cutHead{h.Seq, h.ID, h.HLC.WallMS, h.HLC.Counter}
	}
	return out
}

func fromRecord(heads map[string]cutHead) oplog.Heads {
	out := make(oplog.Heads, len(heads))
	for device, h := range heads {
		out[device] = oplog.Head{Seq: h.Seq, ID: h.ID, HLC: oplog.HLC{WallMS: h.WallMS, Counter: h.Counter, Device: device}}
	}
	return out
}

func (r *cutRecord) cut() Cut {
	return Cut{Checkpoint: r.Checkpoint, Heads: fromRecord(r.Heads), Closed: fromRecord(r.Closed)}
}

func (r *cutRecord) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("journal: a cut that cannot be encoded: %v", err))
	}
	return append(b, '\n')
}

// check refuses what no journal can begin with.
func (c *Cut) check() error {
	if len(c.Checkpoint) != 64 || !hex(c.Checkpoint) {
		return fmt.Errorf("%q is no hash of a checkpoint", c.Checkpoint)
	}
	for _, heads := range []oplog.Heads{c.Heads, c.Closed} {
		for device, h := range heads {
			if err := ident.Check("device", device); err != nil {
				return err
			}
			if err := h.HLC.Check(); err != nil || h.HLC.Device != device || !h.ID.Valid() || h.Seq > oplog.MaxInt {
				return fmt.Errorf("head of %s is none: seq %d, %q, %v", device, h.Seq, h.ID, h.HLC)
			}
		}
	}
	for device := range c.Closed {
		if _, both := c.Heads[device]; both {
			return fmt.Errorf("device %s is open and closed", device)
		}
	}
	return nil
}

func hex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// decodeCut reads a cut in its one spelling.
func decodeCut(data []byte, device string) (cutRecord, error) {
	corrupt := func(err error) (cutRecord, error) { return cutRecord{}, &CorruptError{File: cutName, Err: err} }
	var tag struct{ V int }
	if err := json.Unmarshal(data, &tag); err != nil {
		return corrupt(err)
	}
	if tag.V != formatVersion {
		return cutRecord{}, &VersionError{File: cutName, Have: tag.V}
	}
	var r cutRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return corrupt(err)
	}
	if !bytes.Equal(r.encode(), data) {
		return corrupt(errors.New("not in its one spelling"))
	}
	if device != "" && r.Device != device {
		return cutRecord{}, &DeviceError{File: cutName, Have: r.Device, Want: device}
	}
	c := r.cut()
	if err := c.check(); err != nil {
		return corrupt(err)
	}
	return r, nil
}

// readCut reads what is on the disk now: another process may have cut the journal meanwhile.
func (j *Journal) readCut() (cutRecord, bool, error) {
	data, err := j.readFile(cutName)
	if errors.Is(err, fs.ErrNotExist) {
		return cutRecord{}, false, nil
	}
	if err != nil {
		return cutRecord{}, false, fmt.Errorf("read %s: %w", cutName, err)
	}
	r, err := decodeCut(data, j.cfg.Device)
	return r, err == nil, err
}

// Cut is the cut that the journal begins at, as it is on the disk now; false if it begins with the first ops. It is on stable storage:
// whoever wrote it may have been killed before it had synced, and what rests on the cut must not outlive it.
func (j *Journal) Cut() (Cut, bool, error) {
	r, ok, err := j.readCut()
	if err != nil || !ok {
		return Cut{}, false, err
	}
	if err := j.settleCut(r.Checkpoint); err != nil {
		return Cut{}, false, err
	}
	return r.cut(), true, nil
}

// settleCut syncs the name of the cut to that checkpoint, if this object has not yet.
func (j *Journal) settleCut(checkpoint string) error {
	if j.cfg.ReadOnly {
		return nil
	}
	j.mu.Lock()
	settled := j.settledCut == checkpoint
	j.mu.Unlock()
	if settled {
		return nil
	}
	if err := j.cfg.FS.SyncDir(j.cfg.Dir); err != nil {
		return fmt.Errorf("sync %s: %w", cutName, err)
	}
	j.mu.Lock()
	j.settledCut = checkpoint
	j.mu.Unlock()
	return nil
}

// observeCut takes the stamps of the cut into the clock, and checks that the own chain reaches so far.
func (j *Journal) observeCut() error {
	r, ok, err := j.readCut()
	if err != nil || !ok {
		return err
	}
	c := r.cut()
	if err := j.holdsOwn(&c); err != nil {
		return err
	}
	j.observeHeads(&c, j.Observe)
	return nil
}

// observeHeads shows the stamps of a cut to a clock, but for those that are still ahead: an op that was accepted in spite of its stamp
// must not move the clock there.
func (j *Journal) observeHeads(c *Cut, observe func(oplog.HLC)) {
	now := j.cfg.Now().UnixMilli()
	for _, heads := range []oplog.Heads{c.Heads, c.Closed} {
		for _, h := range heads {
			if oplog.Future(oplog.Op{HLC: h.HLC}, now) == nil {
				observe(h.HLC)
			}
		}
	}
}

// holdsOwn checks that the own chain goes at least as far as the cut says.
func (j *Journal) holdsOwn(c *Cut) error {
	want, ok := c.head(j.cfg.Device)
	if !ok {
		return nil
	}
	switch have, ok := j.Head(); {
	case !ok:
		return fmt.Errorf("%w: checkpoint %s covers own op %d and the journal has none", ErrLost, c.Checkpoint, want.Seq)
	case have.Seq < want.Seq:
		return fmt.Errorf("%w: checkpoint %s covers own op %d and the journal ends at %d", ErrLost, c.Checkpoint, want.Seq, have.Seq)
	case have.Seq == want.Seq && have.ID != want.ID:
		return &oplog.ForkError{Device: j.cfg.Device, Seq: want.Seq, Have: have.ID, Got: want.ID}
	}
	return nil
}

// Cut makes the checkpoint stand for the beginning of the journal. It is on stable storage when Cut returns, whatever
// becomes of the change; the checkpoint has to be so before. Nothing is dropped yet: Compact does that. Repeating it is
// safe. It fails with [ErrBehind] if the new cut does not cover what the present one does, *oplog.ForkError if the
// journal holds another own op at the cut, [ErrLost] if it does not reach so far, [ErrRetired] if it would close the
// own chain.
func (tx *Tx) Cut(c Cut) error {
	j := tx.j
	if j.cfg.ReadOnly {
		return ErrReadOnly
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("cut journal: %w", err)
	}
	if _, closed := c.Closed[j.cfg.Device]; closed {
		return fmt.Errorf("cut journal: %w", ErrRetired)
	}
	old, have, err := j.readCut()
	if err != nil {
		return fmt.Errorf("cut journal: %w", err)
	}
	before := old.cut()
	if have {
		if err := c.follows(&before); err != nil {
			return fmt.Errorf("cut journal: %w", err)
		}
	}
	if err := j.provesOwn(&c, &before); err != nil {
		return fmt.Errorf("cut journal: %w", err)
	}
	if err := j.settle(); err != nil {
		return err
	}
	r := cutRecord{V: formatVersion, Device: j.cfg.Device, Checkpoint: c.Checkpoint, Own: j.tailOf(Own).seg, Peers: j.tailOf(Peers).seg,
		Heads: toRecord(c.Heads), Closed: toRecord(c.Closed)}
	if err := j.writeFile(cutName, r.encode()); err != nil {
		return fmt.Errorf("cut journal: %w", err)
	}
	j.mu.Lock()
	j.settledCut = c.Checkpoint
	j.mu.Unlock()
	j.observeHeads(&c, tx.Observe)
	return nil
}

// follows is nil if c covers all that before covers.
func (c *Cut) follows(before *Cut) error {
	for _, heads := range []oplog.Heads{before.Heads, before.Closed} {
		for device, old := range heads {
			h, ok := c.head(device)
			switch _, stays := c.Closed[device]; {
			case !ok || h.Seq < old.Seq:
				return fmt.Errorf("%w: checkpoint %s covers op %d of %s, %s does not", ErrBehind, before.Checkpoint, old.Seq, device, c.Checkpoint)
			case h.Seq == old.Seq && h.ID != old.ID:
				return &oplog.ForkError{Device: device, Seq: h.Seq, Have: old.ID, Got: h.ID}
			case !stays && before.Closed[device].ID != "":
				return fmt.Errorf("%w: checkpoint %s has closed %s, %s has not", ErrBehind, before.Checkpoint, device, c.Checkpoint)
			}
		}
	}
	return nil
}

// provesOwn checks that the own chain holds the op at the cut.
func (j *Journal) provesOwn(c, before *Cut) error {
	if err := j.holdsOwn(c); err != nil {
		return err
	}
	want, ok := c.Heads[j.cfg.Device]
	if !ok || before.Heads[j.cfg.Device] == want {
		return nil
	}
	op, ok, err := j.OpAt(want.Seq)
	switch {
	case err != nil:
		return err
	case !ok || op.ID != want.ID:
		return &oplog.ForkError{Device: j.cfg.Device, Seq: want.Seq, Have: op.ID, Got: want.ID}
	}
	return nil
}

// below is the error for a place that is not kept: an *AnchorError if there is a cut, else ErrLost.
func (j *Journal) below(given, what string) error {
	r, ok, err := j.readCut()
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: %s", ErrLost, what)
	}
	return &AnchorError{Checkpoint: r.Checkpoint, Given: given}
}
