package faultfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/faultfs"
)

// kind is what an error says to a caller.
func kind(err error) string {
	for _, k := range []error{fs.ErrNotExist, fs.ErrExist, syscall.ENOTDIR, syscall.ENOTEMPTY, syscall.EISDIR, io.EOF} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	return fmt.Sprint(err)
}

// The same calls on a directory of the operating system and on the disk give the same answers.
func TestTheDiskAnswersLikeTheOperatingSystem(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		real, disk := t.TempDir(), faultfs.New()
		p := disk.Process()
		if err := p.MkdirAll("/d", 0o700); err != nil {
			t.Fatal(err)
		}
		for step := range 120 {
			op := r.IntN(9)
			a, b := string(rune('a'+r.IntN(4))), string(rune('a'+r.IntN(4)))
			if r.IntN(4) == 0 {
				a = filepath.Join("sub", a)
				b = filepath.Join("sub", b)
			}
			n, off := r.IntN(900), r.IntN(1500)
			one := func(fsys durable.FS, root string) string { return act(fsys, root, op, a, b, n, off) }
			if want, got := one(durable.OS{}, real), one(p, "/d"); got != want {
				t.Fatalf("seed %d, step %d: call %d of %s, %s: %.200q, the operating system says %.200q", seed, step, op, a, b, got, want)
			}
		}
	}
}

func act(fsys durable.FS, root string, op int, a, b string, n, off int) string {
	a, b = filepath.Join(root, a), filepath.Join(root, b)
	flags := []int{os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_EXCL, os.O_RDWR | os.O_CREATE | os.O_TRUNC}
	switch op {
	case 0, 1, 2, 3:
		f, err := fsys.OpenFile(a, flags[op], 0o600)
		if err != nil {
			return kind(err)
		}
		defer f.Close()
		size, err := f.Size()
		if off%3 == 0 {
			err = errors.Join(err, f.Truncate(int64(n)))
		}
		_, werr := f.WriteAt([]byte(strings.Repeat(string(rune('A'+n%26)), n)), int64(off))
		buf := make([]byte, 3000)
		m, rerr := f.ReadAt(buf, int64(n/2))
		if n%50 == 0 { // the real one waits for its disk
			rerr = errors.Join(rerr, f.Sync())
		}
		return fmt.Sprint(size, kind(err), kind(werr), string(buf[:m]), kind(rerr))
	case 4:
		return kind(fsys.Rename(a, b))
	case 5:
		return kind(fsys.Remove(a))
	case 6:
		names, err := fsys.ReadDir(filepath.Dir(a))
		return fmt.Sprint(names, kind(err))
	case 7:
		return kind(fsys.MkdirAll(filepath.Dir(a), 0o700))
	}
	there, err := fsys.Exists(a)
	data, rerr := durable.ReadFrom(fsys, b)
	return fmt.Sprint(there, kind(err), string(data), kind(rerr))
}

func write(t *testing.T, p *faultfs.Process, name, text string, off int64, sync bool) {
	t.Helper()
	f, err := p.OpenFile(name, os.O_RDWR|os.O_CREATE, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(text), off)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, d *faultfs.Disk, name string) string {
	t.Helper()
	data, err := durable.ReadFrom(d.Process(), name)
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestANameIsDurableOnceItsDirectoryWasSyncedAndNotBefore(t *testing.T) {
	d := faultfs.New()
	p := d.Process()
	write(t, p, "/a", "1", 0, true)
	if got := text(t, d.After(faultfs.Nothing), "/a"); got != "none" {
		t.Errorf("created: %q", got)
	}
	if err := p.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if err := p.Rename("/a", "/b"); err != nil {
		t.Fatal(err)
	}
	for _, loss := range []faultfs.Loss{faultfs.Nothing, faultfs.Everything, faultfs.Names, faultfs.Data, faultfs.Random(1), faultfs.Random(2), faultfs.Random(3)} {
		after := d.After(loss)
		if a, b := text(t, after, "/a"), text(t, after, "/b"); (a == "none") == (b == "none") || a+b != "1none" && a+b != "none1" {
			t.Errorf("%v: a rename in two steps: %q, %q", loss, a, b)
		}
	}
	if got := text(t, d.After(faultfs.Nothing), "/a"); got != "1" {
		t.Errorf("renamed: %q", got)
	}
	write(t, p, "/b", "2", 0, false)
	if got := text(t, d.After(faultfs.Names), "/b"); got != "1" {
		t.Errorf("names alone: %q", got)
	}
}

func TestSectorsSurviveInAnyPartAndOrder(t *testing.T) {
	d := faultfs.New()
	p := d.Process()
	const n = faultfs.Sector
	write(t, p, "/f", strings.Repeat("a", 3*n), 0, true)
	if err := p.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	write(t, p, "/f", strings.Repeat("b", 3*n), 0, false)
	write(t, p, "/f", strings.Repeat("c", 2*n), 0, false)
	write(t, p, "/f", "d", 4*n, false)
	seen := map[string]bool{}
	for seed := range uint64(400) {
		got := text(t, d.After(faultfs.Random(seed)), "/f")
		shape := ""
		for s := 0; s*n < len(got); s++ {
			part := got[s*n : min(len(got), (s+1)*n)]
			if strings.Trim(part, part[:1]) != "" {
				t.Fatalf("seed %d: sector %d is torn: %.20q", seed, s, part)
			}
			shape += part[:1]
		}
		seen[strings.ReplaceAll(shape, "\x00", "0")] = true
	}
	for _, want := range []string{"aaa", "bab", "cab", "acb", "ccb0d", "aaa00", "bba0d"} {
		if !seen[want] {
			t.Errorf("never %s", want)
		}
	}
	for shape := range seen {
		if len(shape) > 2 && strings.Contains("cd", shape[2:3]) {
			t.Errorf("%s was never written", shape)
		}
	}
	torn := map[int]bool{}
	write(t, p, "/f", strings.Repeat("e", 2*n), 0, true)
	write(t, p, "/f", strings.Repeat("f", n), 0, false)
	for seed := range uint64(200) {
		got := text(t, d.After(faultfs.Torn(seed)), "/f")
		at := strings.IndexFunc(got, func(r rune) bool { return r != 'f' })
		if at < 0 {
			at = len(got)
		}
		torn[at] = true
	}
	if len(torn) < 50 || torn[n] {
		t.Errorf("torn at %d places, never in the middle: %v", len(torn), torn[n])
	}
}

// What a failed sync was to write is read back, and a later sync succeeds, and yet it is not on the disk.
func TestAFailedSyncLosesItsPagesForEver(t *testing.T) {
	d := faultfs.New()
	p := d.Process()
	write(t, p, "/f", "one", 0, true)
	if err := p.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	f, err := p.OpenFile("/f", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fail := true
	d.Arm(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" && fail {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	_, _ = f.WriteAt([]byte("two"), 0)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	fail = false
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := text(t, d, "/f"); got != "two" {
		t.Errorf("read back %q", got)
	}
	for _, loss := range []faultfs.Loss{faultfs.Nothing, faultfs.Everything} {
		if got := text(t, d.After(loss), "/f"); got != "one" {
			t.Errorf("%v: %q", loss, got)
		}
	}
	d.DropCaches()
	if got := text(t, d, "/f"); got != "one" {
		t.Errorf("without caches %q", got)
	}
	_, _ = f.WriteAt([]byte("six"), 0)
	if err := f.Sync(); err != nil || text(t, d.After(faultfs.Nothing), "/f") != "six" {
		t.Errorf("written again: %v, %q", err, text(t, d.After(faultfs.Nothing), "/f"))
	}
}

func TestALockEndsWithItsProcess(t *testing.T) {
	d := faultfs.New()
	a, b := d.Process(), d.Process()
	if _, ok, err := a.TryLock("/l", true); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := b.TryLock("/l", false); ok || err != nil {
		t.Fatal("shared beside exclusive", err)
	}
	if _, ok, _ := a.TryLock("/l", true); ok {
		t.Fatal("a lock belongs to the open file, not to the process")
	}
	got := make(chan error)
	go func() {
		held, err := b.Lock("/l")
		if err == nil {
			err = held.Close()
		}
		got <- err
	}()
	a.Kill()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if _, err := a.ReadDir("/"); !errors.Is(err, faultfs.ErrKilled) {
		t.Errorf("a killed process reads: %v", err)
	}
	one, ok, _ := b.TryLock("/l", false)
	if _, again, _ := b.TryLock("/l", false); !ok || !again {
		t.Error("two cannot share")
	}
	_ = one.Close()
	if _, ok, _ := b.TryLock("/l", true); ok {
		t.Error("exclusive beside shared")
	}
}
