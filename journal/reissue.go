package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/syncnode/syncnode/oplog"
)

const (
	frozenName   = "FROZEN.json"
	reissuedName = "REISSUED.json"
	maxPass      = 1000 // ops
)

// ErrNotFrozen: the journal has no note that its id is frozen, so nothing of it may be written again under another.
var ErrNotFrozen = errors.New("journal: the id is not frozen")

// A Frozen says that the id of a journal must not be used for pushing any more, and which of its ops nobody else has.
type Frozen struct {
	First      uint64    // the first own op that no relay has; at most the end of the chain
	Fork       bool      // the relay's chain goes another way from First on; otherwise this journal is an older copy
	Earlier    bool      // of a fork: the relay's branch was written before the own one, as that of a device before it was restored
	Own, Relay oplog.Pos // the heads of both when it was noticed; an empty id if there was none
}

type frozenRecord struct {
	V       int        `json:"v"`
	Device  string     `json:"device"`
	First   uint64     `json:"first"`
	Fork    bool       `json:"fork"`
	Earlier bool       `json:"earlier,omitempty"`
	Own     *oplog.Pos `json:"own,omitempty"`
	Relay   *oplog.Pos `json:"relay,omitempty"`
}

// Freeze notes durably that the id is frozen. The first note stays. Appending goes on as before: what is running still has to record
// how it ends, and Reissue finds that too.
func (j *Journal) Freeze(ctx context.Context, f Frozen) error {
	return j.Update(ctx, func(*Tx) error {
		if j.cfg.ReadOnly {
			return ErrReadOnly
		}
		if _, ok, err := j.Frozen(); err != nil {
			return err
		} else if ok {
			return j.cfg.FS.SyncDir(j.cfg.Dir) // whoever wrote it may have been killed before
		}
		r := frozenRecord{V: formatVersion, Device: j.cfg.Device, First: f.First, Fork: f.Fork, Earlier: f.Earlier}
		if f.Own.ID != "" {
			r.Own = &f.Own
		}
		if f.Relay.ID != "" {
			r.Relay = &f.Relay
		}
		return j.writeFile(frozenName, encodeLine(r))
	})
}

// Frozen is the note of Freeze; false if there is none.
func (j *Journal) Frozen() (Frozen, bool, error) {
	var r frozenRecord
	ok, err := j.readNote(frozenName, &r, func() (int, string) { return r.V, r.Device })
	if err != nil || !ok {
		return Frozen{}, false, err
	}
	f := Frozen{First: r.First, Fork: r.Fork, Earlier: r.Earlier}
	if r.Own != nil {
		f.Own = *r.Own
	}
	if r.Relay != nil {
		f.Relay = *r.Relay
	}
	return f, true, nil
}

// A Pass says that the own ops First to Last of the device From were written again in this journal, from seq At on. End is the id of
// the last of them here; empty if an earlier release wrote the note.
type Pass struct {
	From  string     `json:"from"`
	First uint64     `json:"first"`
	Last  uint64     `json:"last"`
	At    uint64     `json:"at"`
	End   oplog.OpID `json:"end,omitempty"`
}

type passesRecord struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	Passes []Pass `json:"passes"`
}

// Passes is which ops of earlier ids stand in this journal, and where. The last one may not have been written to its end.
func (j *Journal) Passes() ([]Pass, error) {
	var r passesRecord
	_, err := j.readNote(reissuedName, &r, func() (int, string) { return r.V, r.Device })
	return r.Passes, err
}

// Reissue writes the own ops of a frozen journal that nobody else has again, as new ops of this one, each as again makes it. It may
// be repeated, also after a crash, and then writes what is still missing: nothing twice, and in the end nothing too little. It says
// how many it wrote. It fails with [ErrNotFrozen], an error of either journal, or that of again.
func (j *Journal) Reissue(ctx context.Context, from *Journal, again func(oplog.Op) (Draft, error)) (int, error) {
	if err := from.Refresh(ctx); err != nil {
		return 0, err
	}
	note, ok, err := from.Frozen()
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", ErrNotFrozen, from.Device())
	}
	for written := 0; ; {
		n := 0
		if err == nil {
			err = j.Update(ctx, func(tx *Tx) (err error) {
				n, err = tx.reissue(from, note.First, again)
				return err
			})
		}
		if written += n; err != nil || n == 0 {
			if err != nil {
				err = fmt.Errorf("write ops of %s again: %w", from.Device(), err)
			}
			return written, err
		}
	}
}

func (tx *Tx) reissue(from *Journal, first uint64, again func(oplog.Op) (Draft, error)) (int, error) {
	passes, err := tx.j.Passes()
	if err != nil {
		return 0, err
	}
	for i := len(passes) - 1; i >= 0; i-- { // only the last can be incomplete
		if p := &passes[i]; p.From == from.Device() {
			done, err := tx.j.passed(from, *p, again)
			if err != nil {
				return 0, err
			}
			first = p.First + done
			switch {
			case done == 0:
				passes = append(passes[:i], passes[i+1:]...)
			case first <= p.Last: // cut short by a crash
				p.Last, p.End = first-1, ""
			}
			break
		}
	}
	var drafts []Draft
	for op, err := range from.Own(first) {
		if err != nil {
			return 0, err
		}
		d, err := again(op)
		if err != nil {
			return 0, fmt.Errorf("op %d: %w", op.Seq, err)
		}
		if drafts = append(drafts, d); len(drafts) == maxPass {
			break
		}
	}
	if len(drafts) == 0 {
		return 0, nil
	}
	pass := Pass{From: from.Device(), First: first, Last: first + uint64(len(drafts)) - 1, At: tx.own.next()}
	ops, err := tx.Append(drafts...)
	if err != nil {
		return 0, err
	}
	pass.End = ops[len(ops)-1].ID
	// Before they are written the note says where they will stand: the lock is held, so nobody else takes the place.
	note := passesRecord{V: formatVersion, Device: tx.j.cfg.Device, Passes: append(passes, pass)}
	return len(drafts), tx.j.writeFile(reissuedName, encodeLine(note))
}

// passed is how many ops of a pass stand where its note says.
func (j *Journal) passed(from *Journal, p Pass, again func(oplog.Op) (Draft, error)) (uint64, error) {
	if last, ok, err := j.OpAt(p.At + p.Last - p.First); err == nil && ok && last.ID == p.End {
		return p.Last - p.First + 1, nil // an id covers all that came before
	}
	n := uint64(0)
	for op, err := range from.Own(p.First) {
		if err != nil {
			return 0, err
		}
		if op.Seq > p.Last {
			break
		}
		here, ok, err := j.OpAt(p.At + n)
		if errors.Is(err, ErrAnchored) {
			return p.Last - p.First + 1, nil // below the cut: it was done long ago
		}
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		d, err := again(op)
		if err != nil {
			return 0, err
		}
		if same, err := d.became(here); err != nil || !same {
			return n, err
		}
		n++
	}
	return n, nil
}

func encodeLine(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("journal: a note that cannot be encoded: %v", err))
	}
	return append(b, '\n')
}

// readNote reads a small file in its one spelling.
func (j *Journal) readNote(name string, into any, tag func() (int, string)) (bool, error) {
	data, err := j.readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, &CorruptError{File: name, Err: err}
	}
	switch v, device := tag(); {
	case v != formatVersion:
		return false, &VersionError{File: name, Have: v}
	case !bytes.Equal(encodeLine(into), data):
		return false, &CorruptError{File: name, Err: errors.New("not in its one spelling")}
	case device != j.cfg.Device:
		return false, &DeviceError{File: name, Have: device, Want: j.cfg.Device}
	}
	return true, nil
}
