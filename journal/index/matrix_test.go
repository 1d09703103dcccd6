package index_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/journal/index"
	"github.com/syncnode/syncnode/oplog"
)

// Facts of a life: what the index file held when it was synced, and own ops that were answered for.
type (
	indexFile struct{ data, copied []byte } // and its copy, if the journal was to be cut
	appended  struct{ op oplog.Op }
)

// ask brings the index up to date and gives what it says.
func ask(j *journal.Journal, x *index.Index) (out string, err error) {
	err = j.Share(ctx, func(tx *journal.Tx) error {
		v, err := x.Sync(tx)
		if err != nil {
			return err
		}
		defer v.Close()
		epoch, err := v.Epoch("agent")
		if err != nil {
			return err
		}
		out = fmt.Sprintln(epoch, v.Frontier(), v.Clock())
		for _, run := range []string{"run-1", "run-128", "run-200"} {
			records, err := v.Records(run)
			if err != nil {
				return err
			}
			out += fmt.Sprintln(records)
		}
		return nil
	})
	return out, err
}

func intents(t testing.TB, from, n int) (list []journal.Draft) {
	for i := range n {
		payload, err := intent(fmt.Sprint("run-", from+i), "a", oplog.StatusCommitted, uint64(from+i)).Payload()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload})
	}
	return list
}

// indexed is a journal with an index beside it. The index is a file of the real disk, and each of its transactions is synced: a loss of
// power leaves it as it was at any earlier sync, or the machine lost it, or it is damaged.
func indexed(t testing.TB) *faultfs.Scenario {
	base := t.TempDir()
	if fast, err := os.MkdirTemp("/dev/shm", "index-"); err == nil { // nothing of it depends on the real disk
		base = fast
		t.Cleanup(func() { _ = os.RemoveAll(fast) })
	}
	files, turn := 0, 0
	open := func(p *faultfs.Process) (*journal.Journal, error) {
		return journal.Open(ctx, journal.Config{Dir: "/data/journal", Device: self, Now: wall, SegmentBytes: 16 << 10, FS: p})
	}
	fresh := func() string {
		files++
		return filepath.Join(base, fmt.Sprint(files), "index.bolt")
	}
	opened := func(path string, f indexFile) (*index.Index, error) {
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		for name, data := range map[string][]byte{path: f.data, path + ".cut": f.copied} {
			if err == nil && data != nil {
				err = os.WriteFile(name, data, 0o600)
			}
		}
		return index.New(index.Config{Path: path, Now: wall}), err
	}
	synced := func(p *faultfs.Process, path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		copied, err := os.ReadFile(path + ".cut")
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		p.Disk().Note(indexFile{data, copied})
		return err
	}
	// cut begins the journal at its end, and drops what lies below, as a session does.
	cut := func(p *faultfs.Process, j *journal.Journal, x *index.Index, path string) error {
		err := j.Update(ctx, func(tx *journal.Tx) error {
			head, _ := tx.Head()
			heads := oplog.Heads{self: head}
			name := fmt.Sprintf("%064x", head.Seq)
			if before, ok, err := j.Cut(); err != nil || ok && before.Checkpoint == name {
				return err
			}
			if err := x.Keep(tx, index.Facts{Checkpoint: name, Heads: heads}); err != nil {
				return err
			}
			if err := synced(p, path); err != nil {
				return err
			}
			return tx.Cut(journal.Cut{Checkpoint: name, Heads: heads})
		})
		if err == nil {
			_, err = j.Compact(ctx)
		}
		return err
	}
	return &faultfs.Scenario{
		Seeds:  1,
		Sample: 5,
		Before: func(p *faultfs.Process) error {
			j, err := open(p)
			if err == nil { // so many that whoever reads them writes the file
				_, err = j.Append(ctx, intents(t, 0, 129)...)
			}
			return err
		},
		Life: func(p *faultfs.Process) error {
			var err error
			for try := range 3 {
				var j *journal.Journal
				if j, err = open(p); err != nil {
					continue
				}
				path := fresh()
				var x *index.Index
				var last indexFile // the machine still has the files of the process before
				for _, f := range p.Disk().Facts() {
					if f, ok := f.(indexFile); ok {
						last = f
					}
				}
				var cutNow journal.Cut
				var ok bool
				if cutNow, ok, err = j.Cut(); err != nil {
					continue
				} else if ok && cutNow.Checkpoint != "" && last.copied == nil {
					return errors.New("the journal was cut, and the index has no copy")
				} else if !ok {
					last = indexFile{copied: last.copied} // so that it is written anew
				}
				if x, err = opened(path, last); err != nil {
					return err
				}
				for i := 0; i < 2 && err == nil; i++ {
					if _, err = ask(j, x); err != nil {
						break
					}
					if err = synced(p, path); err != nil {
						return err
					}
					var ops []oplog.Op
					if ops, err = j.Append(ctx, intents(t, 200+10*try+i, 1)...); err == nil {
						p.Disk().Note(appended{ops[0]})
						err = cut(p, j, x, path)
					}
				}
				if err == nil {
					return nil
				}
			}
			return err
		},
		Check: func(d *faultfs.Disk, facts []any) error {
			j, err := open(d.Process())
			if err != nil {
				return err
			}
			cut, _, err := j.Cut()
			if err != nil {
				return err
			}
			states := []indexFile{{}}
			for _, f := range facts {
				switch f := f.(type) {
				case appended:
					if h, ok := cut.Heads[self]; ok && f.op.Seq <= h.Seq {
						continue
					}
					if op, ok, err := j.OpAt(f.op.Seq); err != nil || !ok || op.ID != f.op.ID {
						return fmt.Errorf("op %d was answered for: %v, %w", f.op.Seq, ok, err)
					}
				case indexFile:
					states = append(states, f)
				}
			}
			if n := len(states); n > 1 {
				last := states[n-1]
				torn := bytes.Clone(last.data)
				clear(torn[len(torn)/2:])
				states = []indexFile{{nil, last.copied}, last, {torn, last.copied}, {torn[:len(torn)/3], last.copied}, {states[1].data, last.copied}}
				if turn++; !faultfs.Full() { // of the three that are damaged or old one in turn
					states = []indexFile{states[0], states[1], states[2+turn%3]}
				}
			}
			want := ""
			for i, files := range states {
				x, err := opened(fresh(), files)
				if err != nil {
					return err
				}
				got, err := ask(j, x)
				if err != nil {
					return fmt.Errorf("state %d of the index: %w", i, err)
				}
				if i > 0 && got != want {
					return fmt.Errorf("state %d of the index says\n%s\nnot\n%s", i, got, want)
				}
				want = got
			}
			return nil
		},
	}
}

func TestMatrixOfTheIndex(t *testing.T) {
	s := indexed(t)
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

func TestTheMatrixMissesTheSyncsUnderTheIndexThatAreLeftOut(t *testing.T) {
	s := indexed(t)
	s.Lie = func(c faultfs.Call) bool { return c.Op == "sync" && filepath.Ext(c.Name) == ".jsonl" }
	if _, err := s.Kills(); err == nil {
		t.Error("without the syncs of the journal every check still holds")
	}
}

// A process was killed before it had synced its op, and the next one writes the index. After a loss of power the op is gone: an index
// that had seen it would refuse the journal for ever.
func TestTheIndexFileHoldsNothingThatIsNotDurable(t *testing.T) {
	d := faultfs.New()
	open := func(p *faultfs.Process) *journal.Journal {
		j, err := journal.Open(ctx, journal.Config{Dir: "/data/journal", Device: self, Now: wall, FS: p})
		must(t, err)
		return j
	}
	_, err := open(d.Process()).Append(ctx, intents(t, 0, 129)...)
	must(t, err)
	killed := d.Process()
	j := open(killed)
	d.Record()
	_, err = j.Append(ctx, intents(t, 129, 1)...)
	must(t, err)
	for _, image := range d.Images() { // as it was right before each sync
		path := filepath.Join(t.TempDir(), "index.bolt")
		if _, err := ask(open(image.Disk.Process()), index.New(index.Config{Path: path, Now: wall})); err != nil {
			t.Fatal(err)
		}
		after := open(image.Disk.After(faultfs.Nothing).Process())
		if _, err := ask(after, index.New(index.Config{Path: path, Now: wall})); err != nil {
			t.Errorf("%s: %v", image.What, err)
		}
	}
}
