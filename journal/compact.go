package journal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// A Compaction says what was dropped.
type Compaction struct {
	Segments int
	Bytes    int64
}

// Compact drops the segments that lie entirely below the cut, oldest first. No segment is rewritten, and the last of a
// series always stays. The checkpoint that the cut names has to be good: it is all that is left of what is dropped. A
// crash or an error leaves some of it to the next call; repeating it is safe. Without a cut it does nothing. It reads what
// it may drop before it takes the lock.
func (j *Journal) Compact(ctx context.Context) (Compaction, error) {
	var done Compaction
	if j.cfg.ReadOnly {
		return done, ErrReadOnly
	}
	r, ok, err := j.readCut()
	if err != nil || !ok {
		return done, err
	}
	if err := j.settleCut(r.Checkpoint); err != nil {
		return done, fmt.Errorf("compact journal: %w", err)
	}
	cut := r.cut()
	var names []string
	for _, s := range []Series{Own, Peers} {
		list, err := j.droppable(s, &r, &cut)
		if err != nil {
			return done, fmt.Errorf("compact journal: %w", err)
		}
		names = append(names, list...)
	}
	if len(names) == 0 {
		return done, nil
	}
	err = j.update(ctx, true, func(*Tx) error {
		for _, name := range names {
			if err := j.drop(name, &done); err != nil {
				return fmt.Errorf("compact journal: %w", err)
			}
		}
		return nil
	})
	return done, err
}

// droppable names the segments at the beginning of a series that the cut covers.
func (j *Journal) droppable(s Series, r *cutRecord, cut *Cut) ([]string, error) {
	numbers, err := segments(j.cfg.FS, j.cfg.Dir, s)
	if err != nil {
		return nil, err
	}
	last := r.Peers
	if s == Own {
		last = r.Own
	}
	var names []string
	for i, n := range numbers {
		if i+1 == len(numbers) || n >= last {
			break
		}
		covered := false
		if s == Own {
			head, ok := cut.Heads[j.cfg.Device]
			covered = ok && numbers[i+1] <= head.Seq+1
		} else if covered, err = j.coveredSegment(n, numbers[i+1], cut); err != nil {
			return nil, err
		}
		if !covered {
			break
		}
		names = append(names, segmentName(s, n))
	}
	return names, nil
}

// coveredSegment reads a segment of peers until an op that is above the cut. next is the segment after it, where reading ends.
func (j *Journal) coveredSegment(number, next uint64, cut *Cut) (bool, error) {
	t := tail{exists: true, seg: next, at: position{series: Peers, device: j.cfg.Device}}
	r := reader{j: j, t: t, at: t.at}
	covered := true
	err := r.segment(number, 0, func(e Entry, _ error) bool {
		covered = cut.covers(e.Op)
		return covered
	})
	if errors.Is(err, errStopped) {
		err = nil
	}
	return covered && err == nil, err
}

// drop removes one segment. The directory is synced after each, so that what is left never has a hole.
func (j *Journal) drop(name string, done *Compaction) error {
	path := filepath.Join(j.cfg.Dir, name)
	there, err := j.cfg.FS.Exists(path)
	if err != nil || !there {
		return err
	}
	f, err := j.cfg.FS.OpenFile(path, 0, 0)
	if err != nil {
		return err
	}
	size, err := f.Size()
	_ = f.Close()
	if err != nil {
		return err
	}
	if err := j.cfg.FS.Remove(path); err != nil {
		return err
	}
	done.Segments++
	done.Bytes += size
	return j.cfg.FS.SyncDir(j.cfg.Dir)
}
