package faultfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/faultfs"
)

// counter replaces a file by ever greater numbers.
func counter() *faultfs.Scenario {
	count := func(p *faultfs.Process) (n int, err error) {
		data, err := durable.ReadFrom(p, "/data/at/n")
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err == nil {
			_, err = fmt.Sscanf(string(data), "%d\n", &n)
		}
		return n, err
	}
	return &faultfs.Scenario{
		Life: func(p *faultfs.Process) error {
			var last error
			for done, tries := 0, 0; done < 3 && tries < 6; tries++ {
				n := 0
				if last = durable.DirIn(p, "/data/at"); last == nil {
					n, last = count(p)
				}
				if last == nil {
					last = durable.WriteTo(p, "/data/at/n", fmt.Appendf(nil, "%d\n", n+1), 0o600)
				}
				if last == nil {
					p.Disk().Note(n + 1)
					done++
				}
			}
			return last
		},
		Recover: func(p *faultfs.Process) error { return durable.DirIn(p, "/data/at") },
		Check: func(d *faultfs.Disk, facts []any) error {
			want := 0
			for _, f := range facts {
				if n, ok := f.(int); ok {
					want = n
				}
			}
			if n, err := count(d.Process()); err != nil || n < want {
				return fmt.Errorf("%d was answered for, there is %d, %w", want, n, err)
			}
			return nil
		},
	}
}

// A file that is replaced is whole after any crash, failure and kill, and what Write answered for is there.
func TestMatrixOfAReplacedFile(t *testing.T) {
	s := counter()
	for _, pass := range []func() (faultfs.Tally, error){s.Crashes, s.Faults, s.Kills} {
		tally, err := pass()
		if err != nil {
			t.Error(err)
		}
		t.Log(tally)
	}
}

func TestTheMatrixMissesEachSyncThatIsLeftOut(t *testing.T) {
	if err := counter().Needs("sync .n.tmp", "syncdir /data/at"); err != nil {
		t.Error(err)
	}
	if err := counter().Needs("sync /nowhere"); err == nil {
		t.Error("a kind of call that never comes is taken for needed")
	}
	quiet := counter()
	quiet.Check = func(*faultfs.Disk, []any) error { return nil }
	if err := quiet.Needs("sync .n.tmp"); err == nil {
		t.Error("a check that cannot fail is taken for a good one")
	}
}

func TestTheMatrixFindsAFailureThatIsNotTold(t *testing.T) {
	s := counter()
	life := s.Life
	s.Life = func(p *faultfs.Process) error {
		err := life(p)
		if errors.Is(err, syscall.ENOSPC) {
			p.Disk().Note(9) // answered although it failed
		}
		return err
	}
	if _, err := s.Faults(); err == nil || !strings.Contains(err.Error(), "ENOSPC") {
		t.Errorf("got %v", err)
	}
	s.Life = func(p *faultfs.Process) error {
		if err := durable.DirIn(p, "/data/at"); err != nil {
			return err
		}
		return life(p)
	}
	if _, err := s.Faults(); err == nil || !strings.Contains(err.Error(), "does not go on") {
		t.Errorf("a life that gives up at a fault that passes: %v", err)
	}
}

func TestADirectoryOfAKilledProcessIsDurableBeforeItIsUsed(t *testing.T) {
	d := faultfs.New()
	p := d.Process()
	if err := durable.DirIn(p, "/data"); err != nil {
		t.Fatal(err)
	}
	if err := p.MkdirAll("/data/at", 0o700); err != nil { // and killed before it synced
		t.Fatal(err)
	}
	p.Kill()
	if err := durable.DirIn(d.Process(), "/data/at"); err != nil {
		t.Fatal(err)
	}
	if there, err := d.After(faultfs.Nothing).Process().Exists("/data/at"); err != nil || !there {
		t.Errorf("%v, %v", there, err)
	}
}
