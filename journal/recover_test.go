package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/journal"
)

// A layout is where the lines of a journal in one segment stand, found without the journal's own code.
type layout struct {
	file   string
	data   []byte
	header int   // length, with its blank line
	lines  []int // start of each op
	groups []int // start of each group
	blanks []int // place of the blank line after each group
}

const memoryDir = "/j"

// fifty is a journal of 50 ops in groups of 1 to 7.
func fifty(t testing.TB) (*memory, layout) {
	t.Helper()
	m := newMemory()
	j := open(t, memoryConfig(m))
	for n, g := 0, 1; n < 50; g = g%7 + 1 {
		k := min(g, 50-n)
		appendOps(t, j, n, k)
		n += k
	}
	l := layout{file: segment(memoryDir, 0)}
	l.data = m.files[l.file]
	l.header = bytes.Index(l.data, []byte("\n\n")) + 2
	open := false
	for at := l.header; at < len(l.data); {
		if l.data[at] == '\n' {
			l.blanks = append(l.blanks, at)
			at, open = at+1, false
			continue
		}
		if !open {
			l.groups = append(l.groups, at)
		}
		l.lines = append(l.lines, at)
		at, open = at+bytes.IndexByte(l.data[at:], '\n')+1, true
	}
	if len(l.lines) != 50 || len(l.groups) != len(l.blanks) || len(l.groups) < 12 {
		t.Fatalf("layout of %d ops, %d groups", len(l.lines), len(l.groups))
	}
	return m, l
}

func memoryConfig(m *memory) journal.Config {
	cfg := config(memoryDir)
	cfg.FS = m
	return cfg
}

// lineAt is the index of the op whose line, its newline included, has byte i; -1 for a blank line.
func (l *layout) lineAt(i int) int {
	for k := len(l.lines) - 1; k >= 0; k-- {
		if l.lines[k] <= i {
			end := l.lines[k] + bytes.IndexByte(l.data[l.lines[k]:], '\n')
			if i <= end {
				return k
			}
			return -1
		}
	}
	return -1
}

// below is how many ops begin before byte i.
func (l *layout) below(i int) int {
	n := 0
	for _, at := range l.lines {
		if at < i {
			n++
		}
	}
	return n
}

// recovered checks that opening m keeps the first ops and cuts the rest, changes nothing the second time, and goes on.
func (l *layout) recovered(t *testing.T, what string, m *memory, ops int, cut []byte) {
	t.Helper()
	j, err := journal.Open(context.Background(), memoryConfig(m))
	if err != nil {
		t.Fatalf("%s: Open: %v", what, err)
	}
	if head, ok := j.Head(); ok != (ops > 0) || ok && head.Seq != uint64(ops-1) {
		t.Fatalf("%s: head %+v %v, want %d ops", what, head, ok, ops)
	}
	torn := m.files[memoryDir+"/torn-1.bin"]
	if !bytes.Equal(torn, cut) {
		t.Fatalf("%s: kept aside %q, want %q", what, torn, cut)
	}
	once := maps.Clone(m.files)
	again, err := journal.Open(context.Background(), memoryConfig(m))
	if err != nil {
		t.Fatalf("%s: Open again: %v", what, err)
	}
	for name, data := range m.files {
		if !bytes.Equal(once[name], data) {
			t.Fatalf("%s: the second recovery wrote %s", what, name)
		}
	}
	if len(once) != len(m.files) {
		t.Fatalf("%s: the second recovery made a file", what)
	}
	op := appendOps(t, again, 900, 1)[0]
	if op.Seq != uint64(ops) {
		t.Fatalf("%s: next seq %d, want %d", what, op.Seq, ops)
	}
	if ops%10 == 3 { // reading all each time takes minutes
		if got := len(mustOwn(t, again)); got != ops+1 {
			t.Fatalf("%s: %d ops after the next append, want %d", what, got, ops+1)
		}
	}
}

func TestAFiftyOpJournalCutAtEveryByteKeepsEveryWholeRecord(t *testing.T) {
	base, l := fifty(t)
	for n := range l.data {
		m := base.clone()
		m.files[l.file] = l.data[:n]
		what := fmt.Sprintf("cut at byte %d", n)
		if n < l.header {
			_, err := journal.Open(context.Background(), memoryConfig(m))
			if e := corrupt(t, err); e.Offset != 0 || !bytes.Equal(m.files[l.file], l.data[:n]) {
				t.Fatalf("%s: %v", what, err)
			}
			continue
		}
		ops := l.below(n)
		var cut []byte
		if ops > 0 {
			end := l.lines[ops-1] + bytes.IndexByte(l.data[l.lines[ops-1]:], '\n') + 1
			if n < end { // inside a line
				ops--
				cut = l.data[l.lines[ops]:n]
			}
		}
		l.recovered(t, what, m, ops, cut)
	}
}

func TestAFiftyOpJournalFlippedAtEveryByteIsCutInTheLastGroupAndRefusedBefore(t *testing.T) {
	base, l := fifty(t)
	last := l.groups[len(l.groups)-1]
	for i := range l.data {
		mask := []byte{0x01, 0x80, 0x20}[i%3]
		bad := bytes.Clone(l.data)
		bad[i] ^= mask
		m := base.clone()
		m.files[l.file] = bad
		what := fmt.Sprintf("byte %d flipped by %#x", i, mask)
		if i < l.header {
			_, err := journal.Open(context.Background(), memoryConfig(m))
			if !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrVersion) && !errors.Is(err, journal.ErrDevice) {
				t.Fatalf("%s (header): %v", what, err)
			}
			continue
		}
		k, from := l.lineAt(i), i
		if k >= 0 {
			from = l.lines[k]
		}
		ops := l.below(from)
		// The two newlines before the last group are what makes it a group of its own: without them it and the one
		// before are one, and its last.
		if from >= last || i == last-1 || i == last-2 {
			l.recovered(t, what, m, ops, bad[from:])
			continue
		}
		_, err := journal.Open(context.Background(), memoryConfig(m))
		e := corrupt(t, err)
		if e.Offset != int64(from) || e.Seq != uint64(ops) || !strings.Contains(l.file, e.File) {
			t.Fatalf("%s: refused with %s, byte %d, seq %d; want byte %d, seq %d", what, e.File, e.Offset, e.Seq, from, ops)
		}
		if !bytes.Equal(m.files[l.file], bad) || len(m.files) != len(base.files) {
			t.Fatalf("%s: something was changed", what)
		}
	}
}

func TestAGroupTornAtAPageKeepsWhatStandsBeforeTheHole(t *testing.T) {
	m := newMemory()
	j := open(t, memoryConfig(m))
	appendOps(t, j, 0, 3)
	file := segment(memoryDir, 0)
	start := len(m.files[file])
	appendOps(t, j, 3, 40)
	data := bytes.Clone(m.files[file])
	for i := 4096; i < 8192; i++ {
		data[i] = 0
	}
	m.files[file] = data
	again := open(t, memoryConfig(m))
	head, _ := again.Head()
	kept := bytes.Count(data[start:4096], []byte("\n"))
	if head.Seq != uint64(2+kept) || kept == 0 {
		t.Errorf("head %d, want the %d whole records before the hole", head.Seq, kept)
	}
	if n := len(mustOwn(t, again)); n != 3+kept {
		t.Errorf("%d ops", n)
	}
}

func TestZerosAtTheEndAreTorn(t *testing.T) {
	m, l := fifty(t)
	m.files[l.file] = append(bytes.Clone(l.data), make([]byte, 3<<10)...)
	l.recovered(t, "zeros", m, 50, make([]byte, 3<<10))
}

func TestDamageInASealedSegmentIsRefusedWhereItIsRead(t *testing.T) {
	m := newMemory()
	cfg := memoryConfig(m)
	cfg.SegmentBytes = 2000
	j := open(t, cfg)
	for i := range 20 {
		appendOps(t, j, i, 1)
	}
	first := segment(memoryDir, 0)
	data := bytes.Clone(m.files[first])
	last := bytes.LastIndex(data[:len(data)-2], []byte("\n\n")) + 2
	data[last+30] ^= 1
	m.files[first] = data
	again := open(t, cfg) // the tail is good
	_, err := readOwn(again, 0)
	if e := corrupt(t, err); e.Offset != int64(last) || !strings.HasSuffix(first, e.File) {
		t.Errorf("got %v, want byte %d", err, last)
	}
	if _, err := journal.Verify(memoryDir, m); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("Verify: %v", err)
	}
	if got, err := readOwn(again, 19); err != nil || len(got) != 1 {
		t.Errorf("what is not damaged is still read: %d ops, %v", len(got), err)
	}
	delete(m.files, first)
	if _, err := readOwn(again, 0); !errors.Is(err, journal.ErrLost) && !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("a missing segment: %v", err)
	}
}

func TestAWholeRecordThatDoesNotContinueTheChainIsNeverCut(t *testing.T) {
	m, l := fifty(t)
	twice := append(bytes.Clone(l.data), l.data[l.lines[49]:l.blanks[len(l.blanks)-1]]...)
	m.files[l.file] = twice
	_, err := journal.Open(context.Background(), memoryConfig(m))
	if e := corrupt(t, err); e.Offset != int64(len(l.data)) || e.Seq != 50 {
		t.Errorf("got %v", err)
	}
	if !bytes.Equal(m.files[l.file], twice) {
		t.Error("it was changed")
	}
}

func TestOldRecordsNeverComeAliveAfterACut(t *testing.T) {
	m, l := fifty(t)
	m.files[l.file] = l.data[:l.lines[40]+10]
	j := open(t, memoryConfig(m))
	op := appendOps(t, j, 700, 1)[0]
	got := mustOwn(t, open(t, memoryConfig(m)))
	if len(got) != 41 || got[40].ID != op.ID {
		t.Errorf("%d ops, the last is %s", len(got), got[len(got)-1].ID)
	}
	if bytes.Contains(m.files[l.file], []byte(`"k41"`)) {
		t.Error("old bytes are still in the segment")
	}
}

func TestAShrunkSegmentIsNoticedByWhoeverHadItOpen(t *testing.T) {
	m, l := fifty(t)
	j := open(t, memoryConfig(m))
	m.files[l.file] = l.data[:l.groups[3]]
	if _, err := j.Append(context.Background(), draft(1)); !errors.Is(err, journal.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// FuzzRecovery: whatever a file holds, opening it keeps a prefix of it, is idempotent, and never panics.
func FuzzRecovery(f *testing.F) {
	base := newMemory()
	j := open(f, memoryConfig(base))
	for i := range 3 { // a small one: large seeds are slow to vary
		appendOps(f, j, 2*i, 1+i%2)
	}
	file := segment(memoryDir, 0)
	data := base.files[file]
	f.Add(data)
	f.Add(data[:len(data)-60])
	f.Add(append(bytes.Clone(data), 0, 0, 0))
	f.Add([]byte("{}\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := base.clone()
		m.files[file] = data
		j, err := journal.Open(context.Background(), memoryConfig(m))
		if err != nil {
			if !bytes.Equal(m.files[file], data) {
				t.Fatalf("refused (%v), but changed", err)
			}
			return
		}
		after := m.files[file]
		keep := len(after)
		if !bytes.HasPrefix(data, after) { // a blank line was added
			keep--
		}
		if !bytes.HasPrefix(data, after[:keep]) || !bytes.Equal(append(bytes.Clone(after[:keep]), m.files[memoryDir+"/torn-1.bin"]...), data) {
			t.Fatal("what was kept and what was put aside are not the file")
		}
		ops, err := readOwn(j, 0)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			t.Fatal(err)
		}
		again, err := journal.Open(context.Background(), memoryConfig(m))
		if err != nil || !bytes.Equal(m.files[file], after) {
			t.Fatalf("opening again: %v, or it wrote", err)
		}
		head, has := j.Head()
		if other, ok := again.Head(); ok != has || other != head {
			t.Fatalf("head %+v, then %+v", head, other)
		}
		if err == nil && has && len(ops) > 0 && ops[len(ops)-1].ID != head.ID {
			t.Fatal("the last op is not the head")
		}
	})
}
