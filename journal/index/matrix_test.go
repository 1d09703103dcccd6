package index_test

import (
	"fmt"
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
	indexFile struct{ data []byte }
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
	files := 0
	open := func(p *faultfs.Process) (*journal.Journal, error) {
		return journal.Open(ctx, journal.Config{Dir: "/data/journal", Device: self, Now: wall, FS: p})
	}
	fresh := func() string {
		files++
		return filepath.Join(base, fmt.Sprint(files), "index.bolt")
	}
	opened := func(path string, data []byte) (*index.Index, error) {
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil && data != nil {
			err = os.WriteFile(path, data, 0o600)
		}
		return index.New(index.Config{Path: path, Now: wall}), err
	}
	return &faultfs.Scenario{
		Seeds: 1,
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
				if x, err = opened(path, nil); err != nil {
					return err
				}
				for i := 0; i < 2 && err == nil; i++ {
					if _, err = ask(j, x); err != nil {
						break
					}
					var data []byte
					if data, err = os.ReadFile(path); err != nil {
						return err
					}
					p.Disk().Note(indexFile{data})
					var ops []oplog.Op
					if ops, err = j.Append(ctx, intents(t, 200+10*try+i, 1)...); err == nil {
						p.Disk().Note(appended{ops[0]})
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
			states := [][]byte{nil}
			for _, f := range facts {
				switch f := f.(type) {
				case appended:
					if op, ok, err := j.OpAt(f.op.Seq); err != nil || !ok || op.ID != f.op.ID {
						return fmt.Errorf("op %d was answered for: %v, %w", f.op.Seq, ok, err)
					}
				case indexFile:
					states = append(states, f.data)
				}
			}
			if n := len(states); n > 1 {
				torn := append([]byte(nil), states[n-1]...)
				clear(torn[len(torn)/2:])
				states = append(states[:1], states[n-1], torn, torn[:len(torn)/3])
			}
			want := ""
			for i, data := range states {
				x, err := opened(fresh(), data)
				if err != nil {
					return err
				}
				got, err := ask(j, x)
				if err != nil {
					return fmt.Errorf("state %d of the index: %w", i, err)
				}
				if i > 0 && got != want {
					return fmt.Errorf("state %d of the index says\\n%s\\nnot\\n%s", i, got, want)
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
	for _, pass := range []func() (faultfs.Tally, error){s.Crashes, s.Kills} {
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
