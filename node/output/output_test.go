package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const run = "r1-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func attempt(n int) string { return fmt.Sprintf("%032x", n) }

func open(t *testing.T, dir string, l Limits) (*Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	const slow = time.Hour // a disk of this machine is only slow
	s, err := New(Config{Dir: dir, Limits: l, Patience: slow, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s, &log
}

func say(t *testing.T, w *Writer, text string) {
	t.Helper()
	if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("%d of %d bytes were taken, %v: who prints would fail", n, len(text), err)
	}
}

func kept(t *testing.T, d Dir, attempt string) string {
	t.Helper()
	r, err := d.Open(run, attempt)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// size is what all files under a directory take, as they are counted.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		n += cost(info.Size())
	}
	return n
}

func TestWhatIsPrintedIsKeptAndSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "output")
	s, _ := open(t, dir, Limits{1 << 20, 4 << 20})
	w := s.Writer(run, attempt(1))
	say(t, w, "building\n")
	say(t, w, "done\n")
	w.Close()
	w.Close()
	s.Writer(run, attempt(2)).Close()

	for range 2 {
		if got := kept(t, s.Dir, attempt(1)); got != "building\ndone\n" {
			t.Errorf("kept %q", got)
		}
		if got := kept(t, s.Dir, attempt(2)); got != "" {
			t.Errorf("kept %q of what printed nothing", got)
		}
		if _, err := s.Open(run, attempt(3)); !errors.Is(err, ErrNone) {
			t.Errorf("%v, want ErrNone", err)
		}
		list, err := s.List(run)
		if err != nil || len(list) != 2 || list[0].Attempt != attempt(1) || list[0].Kept != 14 || list[0].Cut != 0 {
			t.Errorf("list %+v, %v", list, err)
		}
		if got := s.Stats(); got != (Stats{Attempts: 2, Bytes: 2 * block}) {
			t.Errorf("stats %+v", got)
		}
		s, _ = open(t, dir, Limits{1 << 20, 4 << 20})
	}
	if list, err := Dir(filepath.Join(dir, "not", "there")).List(run); list != nil || err != nil {
		t.Errorf("%v, %v of no directory", list, err)
	}
}

// docs/formats/node.md says how files are named and what is in them.
func TestFilesAreNamedAndFilledAsTheFormatSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := open(t, dir, Limits{MinPerRun, MinPerRun})
	w := s.Writer(run, attempt(1))
	say(t, w, strings.Repeat("x", 10*4096+5))
	w.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(e.Name(), run+".00000000000000000000000000000001."), info.Size()))
	}
	if want := "000000 4096, 000001 4096, 000002 4096, 000003 4096, 000007 4096, 000008 4096, 000009 4096, 000010 5"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if got := notKept(7, errTotal); got != "\n[syncnode: 7 bytes could not be kept here: the total limit is taken up by what is still being written]\n" {
		t.Errorf("%q", got)
	}
	if got := cut(7); got != "\n[syncnode: 7 bytes left out here]\n" {
		t.Errorf("%q", got)
	}
}

func TestOutputIsForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "output")
	s, _ := open(t, dir, Limits{1 << 20, 4 << 20})
	w := s.Writer(run, attempt(1))
	say(t, w, "x")
	w.Close()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A program prints a lot, in steps of every size: the beginning and the end are kept, and what is between is counted.
func TestOfMuchTheFirstHalfAndTheLastAreKept(t *testing.T) {
	t.Parallel()
	const perRun = 8 * block
	for _, step := range []int{61, 1000, block, 3 * block, piece + 1} {
		for _, total := range []int{4*block - 1, 4 * block, 8 * block, 8*block + 1, 9 * block, 20*block + 5} {
			t.Run(fmt.Sprintf("%d in steps of %d", total, step), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				s, log := open(t, dir, Limits{perRun, perRun})
				printed := make([]byte, total)
				for i := range printed {
					printed[i] = "0123456789\n"[i%11]
				}
				w := s.Writer(run, attempt(1))
				for rest := printed; len(rest) > 0; rest = rest[min(step, len(rest)):] {
					say(t, w, string(rest[:min(step, len(rest))]))
				}
				w.Close()
				got := kept(t, s.Dir, attempt(1))
				info, err := s.List(run)
				if err != nil || len(info) != 1 || info[0].Kept+info[0].Cut != int64(total) || info[0].Kept > perRun {
					t.Fatalf("%+v, %v", info, err)
				}
				if info[0].Cut == 0 {
					if got != string(printed) {
						t.Errorf("%d bytes came back otherwise", len(got))
					}
					return
				}
				head, tail, found := strings.Cut(got, cut(info[0].Cut))
				if !found || !bytes.HasPrefix(printed, []byte(head)) || !bytes.HasSuffix(printed, []byte(tail)) {
					t.Errorf("it does not begin and end as it was printed, or does not say that %d bytes are cut", info[0].Cut)
				}
				if len(head) != perRun/2 || len(tail) <= perRun/4 {
					t.Errorf("%d bytes of the beginning and %d of the end", len(head), len(tail))
				}
				if n := size(t, dir); n > perRun {
					t.Errorf("%d bytes on the disk", n)
				}
				if log.Len() > 0 {
					t.Errorf("log %s", log)
				}
			})
		}
	}
}

func TestTheTotalIsKeptAndTheOldestGoFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limits := Limits{MinPerRun, 4 * MinPerRun}
	s, _ := open(t, dir, limits)
	long := s.Writer(run, attempt(0))
	say(t, long, "long\n")
	for i := range 20 {
		w := s.Writer(run, attempt(i+1))
		say(t, w, strings.Repeat("x", 3*MinPerRun))
		w.Close()
		if n := size(t, dir); n > limits.Total {
			t.Fatalf("%d bytes on the disk", n)
		}
	}
	if got := s.Stats(); got.Bytes > limits.Total || got.Attempts != 4 {
		t.Errorf("%+v", got)
	}
	for i, there := range map[int]bool{17: false, 18: true, 20: true} {
		if _, err := s.Open(run, attempt(i)); (err == nil) != there {
			t.Errorf("attempt %d: %v", i, err)
		}
	}
	say(t, long, "end\n")
	long.Close()
	if got := kept(t, s.Dir, attempt(0)); got != "long\nend\n" {
		t.Errorf("what goes on has %q", got)
	}

	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ = open(t, dir, Limits{MinPerRun, MinPerRun + block}) // and so it is with limits that are less after a restart
	if got := s.Stats(); got.Bytes > MinPerRun+block || got.Attempts == 0 {
		t.Errorf("%+v", got)
	}
	if err := s.Limit(Limits{}); err != nil || s.Stats() != (Stats{}) {
		t.Errorf("%v, %+v with nothing to be kept", err, s.Stats())
	}
	w := s.Writer(run, attempt(99))
	say(t, w, "x")
	w.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v: want the file that is not ours and no other", left, err)
	}
}

func TestManyThatPrintAtOnceStayWithinTheTotal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limits := Limits{MinPerRun, 2 * MinPerRun}
	s, _ := open(t, dir, limits)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			w := s.Writer(run, attempt(i))
			for range 40 {
				say(t, w, strings.Repeat("x", block))
				if n := s.Stats().Bytes; n > limits.Total {
					t.Errorf("%d bytes", n)
				}
			}
			w.Close()
		})
	}
	wg.Wait()
	if n := size(t, dir); n > limits.Total || n != s.Stats().Bytes {
		t.Errorf("%d bytes on the disk, counted %d", n, s.Stats().Bytes)
	}
}

func TestARecordOfTheSameNameIsBegunAnew(t *testing.T) {
	t.Parallel()
	s, _ := open(t, t.TempDir(), Limits{1 << 20, 4 << 20})
	for _, text := range []string{"not known\n", "yes\n"} {
		w := s.Writer(run, attempt(1)+"-probe")
		say(t, w, text)
		w.Close()
	}
	if got := kept(t, s.Dir, attempt(1)+"-probe"); got != "yes\n" {
		t.Errorf("%q", got)
	}
}

// A faultyFile fails as it is told.
type faultyFile struct {
	io.WriteCloser
	fail func() error
}

func (f faultyFile) Write(b []byte) (int, error) {
	if err := f.fail(); err != nil {
		n, _ := f.WriteCloser.Write(b[:len(b)/2])
		return n, err
	}
	return f.WriteCloser.Write(b)
}

func TestADiskThatIsFullFailsNobodyAndWhatIsMissingIsTold(t *testing.T) {
	t.Parallel()
	s, log := open(t, t.TempDir(), Limits{1 << 20, 4 << 20})
	var full atomic.Bool
	real := s.create
	s.create = func(path string) (io.WriteCloser, error) {
		f, err := real(path)
		return faultyFile{f, func() error {
			if full.Load() {
				return syscall.ENOSPC
			}
			return nil
		}}, err
	}
	w := s.Writer(run, attempt(1))
	say(t, w, "before\n")
	full.Store(true) // perhaps before that came to the disk: the sum is what counts
	for range 100 {
		say(t, w, "0123456789")
	}
	for s.Stats().Lost == 0 {
		runtime.Gosched()
	}
	for len(w.pieces) > 0 {
		runtime.Gosched()
	}
	full.Store(false)
	say(t, w, "after\n")
	w.Close()
	got := kept(t, s.Dir, attempt(1))
	lost := s.Stats().Lost
	if !strings.HasSuffix(got, "after\n") || !strings.Contains(got, "bytes could not be kept here: no space left on device]") {
		t.Errorf("kept %q", got)
	}
	if !strings.Contains(log.String(), "output not kept") || !strings.Contains(log.String(), fmt.Sprintf("bytes=%d", lost)) {
		t.Errorf("%d bytes lost, log %s", lost, log)
	}
}

func TestADirectoryThatCannotBeWrittenFailsNobody(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "output")
	s, log := open(t, dir, Limits{1 << 20, 4 << 20})
	var no atomic.Bool
	no.Store(true)
	real := s.create
	s.create = func(path string) (io.WriteCloser, error) {
		if no.Load() {
			return nil, syscall.EROFS
		}
		return real(path)
	}
	w := s.Writer(run, attempt(1))
	say(t, w, "lost")
	w.Close()
	if got := s.Stats(); got != (Stats{Lost: 4}) || !strings.Contains(log.String(), "read-only file system") {
		t.Errorf("%+v, log %s", got, log)
	}
	no.Store(false)
	if err := os.RemoveAll(dir); err != nil { // somebody tidies up
		t.Fatal(err)
	}
	w = s.Writer(run, attempt(2))
	say(t, w, "kept")
	w.Close()
	if got := kept(t, s.Dir, attempt(2)); got != "kept" {
		t.Errorf("kept %q", got)
	}
}

// A hungFile takes nothing until it is let go.
type hungFile struct {
	io.WriteCloser
	until chan struct{}
}

func (f hungFile) Write(b []byte) (int, error) {
	<-f.until
	return f.WriteCloser.Write(b)
}

func TestADiskThatHangsHoldsUpWhoPrintsOnceAndShortly(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, log := open(t, dir, Limits{1 << 20, 4 << 20})
		s.patience = DefaultPatience
		real, until := s.create, make(chan struct{})
		s.create = func(path string) (io.WriteCloser, error) {
			f, err := real(path)
			return hungFile{f, until}, err
		}
		w := s.Writer(run, attempt(1))
		begun := time.Now()
		for range 1000 {
			say(t, w, "0123456789")
		}
		if took := time.Since(begun); took != DefaultPatience {
			t.Errorf("a thousand lines took %s, want %s", took, DefaultPatience)
		}
		begun = time.Now()
		w.Close()
		if took := time.Since(begun); took != DefaultPatience {
			t.Errorf("the end took %s, want %s", took, DefaultPatience)
		}
		say(t, w, "from a process left behind")
		close(until)
		<-w.done
		lost := 10 * int64(1000-queued-1)
		if got := kept(t, s.Dir, attempt(1)); got != strings.Repeat("0123456789", queued+1)+notKept(lost, errSlow) {
			t.Errorf("kept %q", got)
		}
		if got := s.Stats().Lost; got != lost+int64(len("from a process left behind")) || !strings.Contains(log.String(), fmt.Sprintf("bytes=%d", lost)) {
			t.Errorf("lost %d, log %s", got, log)
		}
	})
}

func TestAGigabyteIsTakenInLittleMemory(t *testing.T) {
	s, _ := open(t, t.TempDir(), Limits{1 << 20, 4 << 20})
	w := s.Writer(run, attempt(1))
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := uint64(0)
	line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
	for i := range 1 << 10 {
		if _, err := w.Write(line); err != nil {
			t.Fatal(err)
		}
		if i%16 == 0 {
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
		}
	}
	w.Close()
	if most > before.HeapInuse+16<<20 {
		t.Errorf("the heap grew from %d to %d MiB", before.HeapInuse>>20, most>>20)
	}
	info, err := s.List(run)
	if err != nil || len(info) != 1 || info[0].Kept+info[0].Cut != 1<<30 || s.Stats().Lost != 0 {
		t.Errorf("%+v, %v, lost %d", info, err, s.Stats().Lost)
	}
}

func TestWhatIsBeingPrintedCanBeRead(t *testing.T) {
	t.Parallel()
	s, _ := open(t, t.TempDir(), Limits{MinPerRun, 4 * MinPerRun})
	w := s.Writer(run, attempt(1))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer w.Close()
		for {
			select {
			case <-stop:
				return
			default:
				say(t, w, strings.Repeat("x", 1000)+"\n")
			}
		}
	})
	for s.Stats().Bytes < MinPerRun {
		runtime.Gosched()
	}
	for range 200 {
		text := kept(t, s.Dir, attempt(1))
		if len(text) > MinPerRun+100 || !strings.HasPrefix(text, "xxx") {
			t.Errorf("%d bytes, beginning %q", len(text), text[:min(10, len(text))])
		}
	}
	close(stop)
	wg.Wait()
}

func TestLimitsThatMeanNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, l := range []Limits{{-1, 0}, {MinPerRun - 1, 1 << 20}, {1 << 20, 1 << 19}, {0, -1}} {
		if s, err := New(Config{Dir: t.TempDir(), Limits: l}); err == nil {
			t.Errorf("%+v gave %v", l, s)
		}
	}
}
