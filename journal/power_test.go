package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/syncnode/syncnode/journal"
)

var errGone = errors.New("the machine is gone")

// A powered is a file system in memory that knows what is on stable storage: what was synced of files, and which entries of directories.
// It is used by one goroutine at a time.
type powered struct {
	live, durable map[string]*poweredNode
	left          int // changes until the machine is gone; negative: it never is
}

type poweredNode struct{ data, synced []byte }

func newPowered() *powered {
	return &powered{live: map[string]*poweredNode{}, durable: map[string]*poweredNode{}, left: -1}
}

func (p *powered) change() error {
	if p.left == 0 {
		return errGone
	}
	if p.left > 0 {
		p.left--
	}
	return nil
}

// lose is what is there after the power came back: of each entry and of each file either what was synced or what was not, as pick says.
func (p *powered) lose(pick func() bool) *powered {
	after := newPowered()
	names := map[string]bool{}
	for name := range p.live {
		names[name] = true
	}
	for name := range p.durable {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := p.durable[name]
		if p.live[name] != n && pick() {
			n = p.live[name]
		}
		if n == nil {
			continue
		}
		data := n.synced
		if pick() {
			data = n.data
		}
		after.live[name] = &poweredNode{bytes.Clone(data), bytes.Clone(data)}
	}
	after.durable = maps.Clone(after.live)
	return after
}

func (p *powered) OpenFile(name string, flag int, _ fs.FileMode) (journal.File, error) {
	n, ok := p.live[name]
	if !ok && flag&os.O_CREATE == 0 {
		return nil, missing("open", name)
	}
	if !ok || flag&os.O_TRUNC != 0 {
		if err := p.change(); err != nil {
			return nil, err
		}
	}
	if !ok {
		n = &poweredNode{}
		p.live[name] = n
	}
	if flag&os.O_TRUNC != 0 {
		n.data = nil
	}
	return &poweredFile{p, n}, nil
}

func (p *powered) ReadDir(dir string) ([]string, error) {
	var out []string
	for name := range p.live {
		if filepath.Dir(name) == dir {
			out = append(out, filepath.Base(name))
		}
	}
	slices.Sort(out)
	return out, nil
}

func (p *powered) Exists(name string) (bool, error)   { return p.live[name] != nil, nil }
func (p *powered) MkdirAll(string, fs.FileMode) error { return nil }
func (p *powered) TryLock(string, bool) (io.Closer, bool, error) {
	return io.NopCloser(nil), true, nil
}

func (p *powered) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (p *powered) Rename(from, to string) error {
	if err := p.change(); err != nil {
		return err
	}
	p.live[to] = p.live[from]
	delete(p.live, from)
	return nil
}

func (p *powered) Remove(name string) error {
	if err := p.change(); err != nil {
		return err
	}
	delete(p.live, name)
	return nil
}

func (p *powered) SyncDir(string) error {
	if err := p.change(); err != nil {
		return err
	}
	p.durable = maps.Clone(p.live)
	return nil
}

type poweredFile struct {
	p *powered
	n *poweredNode
}

func (f *poweredFile) ReadAt(b []byte, off int64) (int, error) {
	return bytes.NewReader(f.n.data).ReadAt(b, off)
}
func (f *poweredFile) Size() (int64, error) { return int64(len(f.n.data)), nil }
func (f *poweredFile) Close() error         { return nil }

func (f *poweredFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.p.change(); err != nil {
		return 0, err
	}
	data := make([]byte, max(len(f.n.data), int(off)+len(b)))
	copy(data, f.n.data)
	copy(data[off:], b)
	f.n.data = data
	return len(b), nil
}

func (f *poweredFile) Truncate(size int64) error {
	if err := f.p.change(); err != nil {
		return err
	}
	f.n.data = bytes.Clone(f.n.data[:size])
	return nil
}

func (f *poweredFile) Sync() error {
	if err := f.p.change(); err != nil {
		return err
	}
	f.n.synced = bytes.Clone(f.n.data)
	return nil
}

// Whatever of the unsynced part a loss of power leaves, at every step of appending, cutting, compacting and appending again: what was
// acknowledged is there, the cut is the old or the new one, nothing was dropped above it, and all of it can be repeated.
func TestALossOfPowerAtAnyStepOfCutAndCompactionLosesNothingThatIsKept(t *testing.T) {
	ctx := context.Background()
	const dir = "/journal"
	ways := []func(seed uint64) func() bool{
		func(uint64) func() bool { return func() bool { return false } },
		func(uint64) func() bool { return func() bool { return true } },
		func(seed uint64) func() bool {
			r := rand.New(rand.NewPCG(seed, 7))
			return func() bool { return r.IntN(2) == 0 }
		},
		func(seed uint64) func() bool {
			r := rand.New(rand.NewPCG(seed, 8))
			return func() bool { return r.IntN(4) == 0 }
		},
	}
	cfg := func(p *powered) journal.Config {
		return journal.Config{Dir: dir, Device: self, Now: wall, SegmentBytes: 600, FS: p}
	}
	steps := 0
	for n := 0; ; n++ {
		disk := newPowered()
		j, own, peers := history(t, cfg(disk))
		c := cutAt(hashes[0], own[9], peers[9])
		acked := own[11]
		disk.left = n
		err := cut(j, c)
		if err == nil {
			_, err = j.Compact(ctx)
		}
		for i := 0; i < 3 && err == nil; i++ {
			ops, appendErr := j.Append(ctx, draft(30+i))
			if err = appendErr; err == nil {
				acked = ops[0]
			}
		}
		if err == nil {
			break
		}
		steps++
		for way, pick := range ways {
			say := fmt.Sprintf("change %d, way %d", n, way)
			after := disk.lose(pick(uint64(n)))
			again, err := journal.Open(ctx, cfg(after))
			if err != nil {
				t.Fatalf("%s: open: %v", say, err)
			}
			if op, ok, err := again.OpAt(acked.Seq); err != nil || !ok || op.ID != acked.ID {
				t.Fatalf("%s: op %d was acknowledged: %v, %v", say, acked.Seq, ok, err)
			}
			have, was, err := again.Cut()
			if err != nil || was && have.Checkpoint != c.Checkpoint {
				t.Fatalf("%s: cut %+v, %v", say, have, err)
			}
			if _, err := journal.VerifyFrom(dir, after, have); err != nil {
				t.Fatalf("%s: verify: %v", say, err)
			}
			if err := cut(again, c); err != nil {
				t.Fatalf("%s: cut again: %v", say, err)
			}
			compact(t, again)
			if r, err := journal.VerifyFrom(dir, after, c); err != nil || r.Frontier["host-2"].ID != peers[11].ID {
				t.Fatalf("%s: %+v, %v", say, r, err)
			}
		}
	}
	if steps < 15 {
		t.Errorf("only %d steps", steps)
	}
}
