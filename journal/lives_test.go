package journal_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// groupCommit is several appenders that share their groups.
func groupCommit(testing.TB) *faultfs.Scenario {
	return &faultfs.Scenario{Recover: openOnly, Check: intact, Life: func(p *faultfs.Process) error {
		const appenders = 3
		ways := make([]*liver, appenders)
		for i := range ways {
			ways[i] = live(p)
			ways[i].name += fmt.Sprintf("-%d", i)
		}
		done := make([]int, appenders)
		var err error
		for range 6 { // each time on a journal opened anew
			var j *journal.Journal
			if j, err = journal.Open(context.Background(), matrixConfig(p)); err != nil {
				continue
			}
			errs := make([]error, appenders)
			var wg sync.WaitGroup
			for i, l := range ways {
				wg.Go(func() {
					for done[i] < 2 && errs[i] == nil {
						list, ids := l.drafts(1 + i%2)
						var ops []oplog.Op
						ops, errs[i] = j.Append(context.Background(), list...)
						l.note(ops, ids, errs[i])
						if errs[i] == nil {
							done[i]++
						}
					}
				})
			}
			wg.Wait()
			if err = errors.Join(errs...); err == nil {
				return nil
			}
		}
		return err
	}}
}

func TestMatrixOfGroupCommit(t *testing.T) { runMatrix(t, groupCommit(t)) }

// cutAndCompact begins a journal at one checkpoint, then at another, and drops what lies below.
func cutAndCompact(t testing.TB) *faultfs.Scenario {
	var own, peers []oplog.Op
	return &faultfs.Scenario{
		Sample:  2,
		Recover: openOnly,
		Check:   intact,
		Before: func(p *faultfs.Process) (err error) {
			j, err := journal.Open(context.Background(), matrixConfig(p))
			if err != nil {
				return err
			}
			if own, err = j.Append(context.Background(), drafts(0, 2)...); err != nil {
				return err
			}
			for i := range 4 {
				ops, err := j.Append(context.Background(), drafts(10*i, 2)...)
				if err != nil {
					return err
				}
				own = append(own, ops...)
			}
			peers = peerOps(t, "host-2", 10)
			appendPeers(t, j, peers...)
			return j.Close()
		},
		Life: func(p *faultfs.Process) error {
			l := live(p)
			p.Disk().Note(answered{own})
			p.Disk().Note(received{peers})
			for i, c := range []journal.Cut{cutAt(hashes[0], own[5], peers[6]), cutAt(hashes[1], own[8], peers[8])} {
				if err := l.do(func(j *journal.Journal) error {
					err := cut(j, c)
					if errors.Is(err, journal.ErrBehind) {
						return nil // an earlier life went further
					}
					if err == nil {
						p.Disk().Note(cutAtOp{c})
					}
					return err
				}); err != nil {
					return err
				}
				if i == 1 {
					l.j = nil // as another process finds it
				}
				if err := l.do(func(j *journal.Journal) error {
					_, err := j.Compact(context.Background())
					return err
				}); err != nil {
					return err
				}
				if err := l.append(1); err != nil {
					return err
				}
			}
			return l.show()
		},
	}
}

func TestMatrixOfCutAndCompaction(t *testing.T) { runMatrix(t, cutAndCompact(t)) }

// Facts of the reissue.
type (
	frozenAt struct{}
	reissued struct{}
)

// frozenAndReissued freezes the id of a journal and writes what nobody else has again under another.
func frozenAndReissued(testing.TB) *faultfs.Scenario {
	var old []oplog.Op
	const first = 2
	from := func(p *faultfs.Process) (*journal.Journal, error) {
		cfg := matrixConfig(p)
		cfg.Device, cfg.Dir = "host-0", "/data/cluster/old"
		return journal.Open(context.Background(), cfg)
	}
	again := func(p *faultfs.Process, to *journal.Journal) error {
		src, err := from(p)
		if err == nil {
			_, err = to.Reissue(context.Background(), src, same)
		}
		return err
	}
	return &faultfs.Scenario{
		Recover: openOnly,
		Before: func(p *faultfs.Process) error {
			j, err := from(p)
			if err == nil {
				old, err = j.Append(context.Background(), drafts(100, 6)...)
			}
			return err
		},
		Life: func(p *faultfs.Process) error {
			var err error
			for range 4 {
				var j *journal.Journal
				if j, err = from(p); err == nil {
					err = j.Freeze(context.Background(), journal.Frozen{First: first, Fork: true, Own: headOf(old[5]).Pos(), Relay: headOf(old[2]).Pos()})
				}
				if err == nil {
					p.Disk().Note(frozenAt{})
					break
				}
			}
			if err != nil {
				return err
			}
			l := live(p)
			if err := l.append(1); err != nil {
				return err
			}
			if err := l.do(func(j *journal.Journal) error { return again(p, j) }); err != nil {
				return err
			}
			p.Disk().Note(reissued{})
			return l.append(1)
		},
		Check: func(d *faultfs.Disk, facts []any) error {
			p := d.Process()
			src, err := from(p)
			if err != nil {
				return err
			}
			_, frozen, err := src.Frozen()
			if err != nil {
				return err
			}
			told, done := false, false
			for _, f := range facts {
				_, is := f.(frozenAt)
				told = told || is
				_, is = f.(reissued)
				done = done || is
			}
			if told && !frozen {
				return errors.New("the id was frozen, and is not any more")
			}
			if frozen && !done {
				j, err := journal.Open(context.Background(), matrixConfig(p))
				if err == nil {
					err = again(p, j)
				}
				if err != nil {
					return fmt.Errorf("write again what is missing: %w", err)
				}
			}
			if frozen {
				if err := once(p, old[first:]); err != nil {
					return err
				}
			}
			return intact(d, facts)
		},
	}
}

// once checks that each op stands in the journal once, under its own id.
func once(p *faultfs.Process, ops []oplog.Op) error {
	f, err := look(matrixConfig(p))
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, op := range f.own {
		count[string(op.Payload)]++
	}
	for _, op := range ops {
		if n := count[string(op.Payload)]; n != 1 {
			return fmt.Errorf("the old op %d was written again %d times", op.Seq, n)
		}
	}
	return nil
}

func TestMatrixOfAFrozenIDWhoseOpsAreWrittenAgain(t *testing.T) { runMatrix(t, frozenAndReissued(t)) }

// Each sync of the journal is there for a reason that the matrix sees.
func TestTheMatrixMissesEachSyncOfTheJournalThatIsLeftOut(t *testing.T) {
	if err := appendAndRoll(t).Needs("sync own-0000000000000000.jsonl", "sync peers-", "syncdir /data/cluster/journal", "syncdir /data/cluster"); err != nil {
		t.Error(err)
	}
	if err := groupCommit(t).Needs("sync own-", "syncdir journal"); err != nil {
		t.Error(err)
	}
	if err := cutAndCompact(t).Needs("sync CUT.json", "syncdir journal", "sync own-"); err != nil {
		t.Error(err)
	}
	if err := frozenAndReissued(t).Needs("sync FROZEN.json", "sync REISSUED.json", "syncdir old"); err != nil {
		t.Error(err)
	}
}

// failSyncDir lets syncs of the journal's directory fail once that file was renamed, as if the process had been killed there.
func failSyncDir(d *faultfs.Disk, after string) {
	renamed := false
	d.Arm(func(c faultfs.Call) faultfs.Fault {
		renamed = renamed || c.Op == "rename" && strings.HasSuffix(c.Name, after)
		if renamed && c.Op == "syncdir" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
}

func TestAFreezeThatFindsItsNoteMakesItDurable(t *testing.T) {
	d := faultfs.New()
	ops := appendOps(t, open(t, matrixConfig(d.Process())), 0, 2)
	note := journal.Frozen{First: 1, Own: headOf(ops[1]).Pos(), Relay: headOf(ops[0]).Pos()}
	failSyncDir(d, "FROZEN.json")
	if err := open(t, matrixConfig(d.Process())).Freeze(t.Context(), note); err == nil {
		t.Fatal("the sync fails, and Freeze says nothing")
	}
	d.Arm(nil)
	if err := open(t, matrixConfig(d.Process())).Freeze(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := open(t, matrixConfig(d.After(faultfs.Nothing).Process())).Frozen(); !ok || err != nil {
		t.Errorf("after a loss of power: %v, %v", ok, err)
	}
}

func TestACutThatItsAuthorDidNotSyncIsDurableBeforeAnythingRestsOnIt(t *testing.T) {
	for what, rest := range map[string]func(j *journal.Journal) error{
		"read":      func(j *journal.Journal) error { _, _, err := j.Cut(); return err },
		"compacted": func(j *journal.Journal) error { _, err := j.Compact(t.Context()); return err },
	} {
		d := faultfs.New()
		j, own, peers := history(t, matrixConfig(d.Process()))
		failSyncDir(d, "CUT.json")
		if err := cut(j, cutAt(hashes[0], own[9], peers[9])); err == nil {
			t.Fatal("the sync fails, and Cut says nothing")
		}
		d.Arm(nil)
		if err := rest(open(t, matrixConfig(d.Process()))); err != nil {
			t.Fatal(err)
		}
		if have, ok, err := open(t, matrixConfig(d.After(faultfs.Nothing).Process())).Cut(); !ok || err != nil || have.Checkpoint != hashes[0] {
			t.Errorf("%s, and after a loss of power: %v, %v", what, ok, err)
		}
	}
}

// A tail that was not synced is cut off its old segment for good before its copy stands in the next one: it must not come back there.
func TestAMoveThatWasInterruptedCutsDurablyBeforeItGoesOn(t *testing.T) {
	d := faultfs.New()
	j := open(t, matrixConfig(d.Process()))
	appendOps(t, j, 0, 2)
	var calls []string
	failing := func(fails func(c faultfs.Call) bool) {
		calls = nil
		d.Arm(func(c faultfs.Call) faultfs.Fault {
			if c.Changes {
				calls = append(calls, c.Op+" "+filepath.Base(c.Name))
			}
			if fails(c) {
				return faultfs.Fault{Err: syscall.EIO}
			}
			return faultfs.Fault{}
		})
	}
	const segment = "own-0000000000000000.jsonl"
	ownSync := func(c faultfs.Call) bool { return c.Op == "sync" && strings.HasSuffix(c.Name, segment) }
	failing(ownSync)
	if _, err := j.Append(t.Context(), draft(2)); !errors.Is(err, journal.ErrPoisoned) {
		t.Fatal(err)
	}
	failing(ownSync) // and once more after the tail was cut
	if _, err := journal.Open(t.Context(), matrixConfig(d.Process())); err == nil {
		t.Fatal("a sync fails, and nothing is said")
	}
	failing(func(faultfs.Call) bool { return false })
	if got := mustOwn(t, open(t, matrixConfig(d.Process()))); len(got) != 3 {
		t.Errorf("%d ops", len(got))
	}
	if cut, moved := slices.Index(calls, "sync "+segment), slices.Index(calls, "rename own-0000000000000002.jsonl"); cut < 0 || moved < cut {
		t.Errorf("the cut is not synced before the copy takes its place: %q", calls)
	}
}
