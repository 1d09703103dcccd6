package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/faultfs"
)

// A savedFact is that Save answered for a checkpoint, a prunedFact that Prune did that kept it.
type (
	savedFact  struct{ hash checkpoint.Hash }
	prunedFact struct{ hash checkpoint.Hash }
)

// saveAndPrune saves one checkpoint after the other and prunes those before. Each is named by a cut before the others go: here, by the fact.
func saveAndPrune(t testing.TB) *faultfs.Scenario {
	const dir = "/data/checkpoints"
	older, newer := checkpoint.Of(folded(sample(t).ops[:2])), sampled(t)
	store := func(p *faultfs.Process) *checkpoint.Store { return &checkpoint.Store{FS: p, Dir: dir} }
	return &faultfs.Scenario{
		Recover: func(p *faultfs.Process) error {
			_, err := store(p).List()
			return err
		},
		Life: func(p *faultfs.Process) error {
			for _, c := range []*checkpoint.Checkpoint{older, newer} {
				for _, step := range []func() error{
					func() error {
						err := store(p).Save(c, checkpoint.Meta{Author: "host-1"})
						if err == nil {
							p.Disk().Note(savedFact{c.Hash})
						}
						return err
					},
					func() error {
						err := store(p).Prune(c.Hash)
						if err == nil {
							p.Disk().Note(prunedFact{c.Hash})
						}
						return err
					},
				} {
					var err error
					for range 3 {
						if err = step(); err == nil {
							break
						}
					}
					if err != nil {
						return err
					}
				}
			}
			return nil
		},
		Check: func(d *faultfs.Disk, facts []any) error {
			s := store(d.Process())
			var last checkpoint.Hash
			for _, f := range facts {
				if f, ok := f.(savedFact); ok {
					last = f.hash
				}
			}
			if last != "" {
				if _, _, err := s.Load(last); err != nil {
					return fmt.Errorf("answered for: %w", err)
				}
			}
			list, err := s.List()
			if err != nil {
				return err
			}
			for _, h := range list {
				if _, _, err := s.Load(h); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("half of a checkpoint has its name: %w", err)
				}
			}
			if found, err := s.Newest(nil); err == nil && len(found.Skipped) > 0 || err != nil && len(list) > 0 {
				return fmt.Errorf("newest: %v, %w", found.Skipped, err)
			}
			if err := errors.Join(s.Save(newer, checkpoint.Meta{}), s.Prune(newer.Hash)); err != nil {
				return fmt.Errorf("saving and pruning again: %w", err)
			}
			if names, err := d.Process().ReadDir(dir); err != nil || len(names) != 1 {
				return fmt.Errorf("left after pruning: %v, %w", names, err)
			}
			_, _, err = (&checkpoint.Store{FS: d.After(faultfs.Nothing).Process(), Dir: dir}).Load(newer.Hash)
			return err
		},
	}
}

func TestMatrixOfSavedCheckpoints(t *testing.T) {
	s := saveAndPrune(t)
	var sum faultfs.Tally
	for _, pass := range []func() (faultfs.Tally, error){s.Crashes, s.Faults, s.Kills} {
		tally, err := pass()
		sum.Add(tally)
		if err != nil {
			t.Error(err)
		}
	}
	t.Log(sum)
}

func TestTheMatrixMissesEachSyncOfACheckpointThatIsLeftOut(t *testing.T) {
	if err := saveAndPrune(t).Needs("sync .tmp", "syncdir /data/checkpoints"); err != nil {
		t.Error(err)
	}
}
