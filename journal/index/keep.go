package index

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// Facts are what a checkpoint says that the journal may never have held.
type Facts struct {
	Checkpoint string      // its hash
	Heads      oplog.Heads // the last op of every chain that it covers
	// Intents are the covered intents that matter still, in any order, with seq and prev unknown. Nil: the journal had them all.
	Intents iter.Seq[oplog.Op]
}

// Keep makes the index durable before the journal begins at a checkpoint, inside the change that cuts it: what is dropped then can
// never be read again. It takes in what the journal lacks of the facts, writes the file, and beside it a copy, from which the index
// is made anew if the file is lost. If it fails the journal must not be cut. It costs the size of the index.
func (x *Index) Keep(tx *journal.Tx, f Facts) error {
	j := tx.Journal()
	v, err := x.Sync(tx)
	if err != nil {
		return fmt.Errorf("keep index: %w", err)
	}
	defer v.Close()
	before, _, err := j.Cut()
	if err != nil {
		return fmt.Errorf("keep index: %w", err)
	}
	if err := x.absorb(f, false); err != nil {
		return fmt.Errorf("keep index: %w", err)
	}
	x.state.Cut, x.state.Before = f.Checkpoint, before.Checkpoint
	if err := x.flush(); err != nil {
		return fmt.Errorf("keep index: %w", err)
	}
	if x.fresh > 0 {
		return fmt.Errorf("keep index: %w", errNotWritten)
	}
	if err := x.store.copyTo(x.copyPath()); err != nil {
		return fmt.Errorf("keep index: %w", err)
	}
	return nil
}

var errNotWritten = errors.New("the file was not written")

func (x *Index) copyPath() string { return x.cfg.Path + ".cut" }

// absorb takes facts in. whole: nothing of them is in the index; then own intents get sequence numbers as late as they can have been
// given, so that what is unsettled is rather told once too often.
func (x *Index) absorb(f Facts, whole bool) error {
	st := x.state
	var own []oplog.Op
	if f.Intents != nil {
		for op := range f.Intents {
			if op.Device == st.Device {
				own = append(own, op)
				continue
			}
			if err := x.absorbOp(op); err != nil {
				return err
			}
		}
	}
	if head, ok := f.Heads[st.Device]; ok && whole {
		slices.SortFunc(own, func(a, b oplog.Op) int { return cmp.Or(a.HLC.Compare(b.HLC), cmp.Compare(a.ID, b.ID)) })
		for i, op := range own {
			op.Seq = head.Seq - min(head.Seq, uint64(len(own)-1-i))
			if err := x.absorbOp(op); err != nil {
				return err
			}
		}
	}
	for device, head := range f.Heads {
		if have, ok := st.Frontier[device]; ok && have.Seq >= head.Seq {
			continue
		}
		st.Frontier[device] = head
		if device != st.Device {
			st.observe(head.HLC, x.cfg.Now().UnixMilli())
		}
	}
	x.fresh++ // the file has to be written
	return nil
}

func (x *Index) absorbOp(op oplog.Op) error {
	d := ReadDetail(op.Payload)
	if d.tooLong() {
		return nil
	}
	x.fresh++
	return x.state.applyIntent(&x.store, op, d)
}

// stale reports whether the journal begins at a checkpoint whose facts the index does not have.
func (s *state) stale(j *journal.Journal) (bool, error) {
	cut, ok, err := j.Cut()
	return ok && cut.Checkpoint != s.Cut && cut.Checkpoint != s.Before, err
}

// recover gives an index that was lost its beginning again, if the journal does not reach back so far: from the copy, else from what the
// caller knows of the checkpoint.
func (x *Index) recover(j *journal.Journal) error {
	cut, ok, err := j.Cut()
	if err != nil || !ok {
		return err
	}
	copied, copyErr := readGood(x.copyPath(), x.cfg.Path)
	if copied {
		raw, err := x.store.open()
		if err == nil {
			err = x.load(j, raw)
		}
		stale := false
		if err == nil {
			stale, err = x.state.stale(j)
		}
		switch {
		case err == nil && !stale:
			return nil
		case err != nil && !errors.Is(err, errUnreadable):
			return err
		}
		copyErr = errors.Join(err, fmt.Errorf("it is of checkpoint %s", x.stateCut()))
	}
	if err := x.store.discard(); err != nil {
		return err
	}
	lost := fmt.Errorf("the index is lost, and so is its copy (%v): %w", copyErr, &journal.AnchorError{Checkpoint: cut.Checkpoint})
	if x.cfg.Facts == nil {
		return lost
	}
	f, err := x.cfg.Facts(cut.Checkpoint)
	if err != nil {
		return errors.Join(lost, err)
	}
	if err := x.load(j, nil); err != nil {
		return err
	}
	x.state.Cut = cut.Checkpoint
	if err := x.absorb(f, true); err != nil {
		return err
	}
	return x.flush()
}

func (x *Index) stateCut() string {
	if x.state == nil {
		return ""
	}
	return x.state.Cut
}

// readGood puts a copy in place of the file; false if there is none.
func readGood(from, to string) (bool, error) {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err != nil {
		return false, err
	}
	err = replaceFile(to, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	return err == nil, err
}

// copyTo writes a copy of the file and syncs it.
func (s *store) copyTo(name string) error {
	if s.db == nil {
		return errNotWritten
	}
	return guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			return replaceFile(name, func(w io.Writer) error {
				_, err := tx.WriteTo(w)
				return err
			})
		})
	})
}

// replaceFile makes a file whole or not at all.
func replaceFile(name string, write func(io.Writer) error) error {
	tmp := name + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, name); err != nil {
		return err
	}
	return journal.OS{}.SyncDir(filepath.Dir(name))
}
