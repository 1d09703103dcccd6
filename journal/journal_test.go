package journal_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestWhatWasAppendedIsReadBackByTheNext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "j")
	j := open(t, config(dir))
	want := appendOps(t, j, 0, 3)
	want = append(want, appendOps(t, j, 3, 1)...)
	sameOps(t, mustOwn(t, j), want)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, config(dir))
	sameOps(t, mustOwn(t, again), want)
	head, ok := again.Head()
	if !ok || head.Seq != 3 || head.ID != want[3].ID {
		t.Fatalf("head %+v %v", head, ok)
	}
	more := appendOps(t, again, 4, 1)
	if more[0].Seq != 4 || more[0].Prev != want[3].ID || more[0].HLC.Compare(want[3].HLC) <= 0 {
		t.Fatalf("op after reopening does not continue the chain: %+v", more[0])
	}
	if _, err := j.Append(context.Background(), draft(9)); !errors.Is(err, journal.ErrClosed) {
		t.Fatalf("append after Close: %v", err)
	}
}

func TestTheSegmentBytesAreFrozen(t *testing.T) {
	dir := t.TempDir()
	cfg := config(dir)
	cfg.SegmentBytes = 1000
	j := open(t, cfg)
	for i := range 3 {
		appendOps(t, j, 2*i, 2)
	}
	if err := j.Update(context.Background(), func(tx *journal.Tx) error {
		return tx.AppendPeers(peerOps(t, "host-2", 2)...)
	}); err != nil {
		t.Fatal(err)
	}
	for name, got := range listing(t, dir) {
		if name == "LOCK" {
			continue
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			writeFile(t, golden, []byte(got))
		}
		if want := string(readFile(t, golden)); got != want {
			t.Errorf("%s changed:\ngot\n%swant\n%s", name, got, want)
		}
	}
	if n := len(listing(t, dir)); n != 4 {
		t.Errorf("%d files, want lock, two own segments, one of peers", n)
	}
}

func TestPeersAreOneInterleavedSeriesInTheOrderGiven(t *testing.T) {
	dir := t.TempDir()
	cfg := config(dir)
	cfg.SegmentBytes = 1200
	j := open(t, cfg)
	a, b := peerOps(t, "host-a", 6), peerOps(t, "host-b", 6)
	var want []oplog.Op
	for i := range 6 {
		pair := []oplog.Op{a[i], b[i]}
		want = append(want, pair...)
		if err := j.Update(context.Background(), func(tx *journal.Tx) error { return tx.AppendPeers(pair...) }); err != nil {
			t.Fatal(err)
		}
	}
	var got []oplog.Op
	var cursors []journal.Cursor
	for e, err := range j.Peers(journal.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		got, cursors = append(got, e.Op), append(cursors, e.Next)
	}
	sameOps(t, got, want)
	for i, c := range cursors {
		var rest []oplog.Op
		for e, err := range open(t, cfg).Peers(c) {
			if err != nil {
				t.Fatal(err)
			}
			rest = append(rest, e.Op)
		}
		sameOps(t, rest, want[i+1:])
		if id, ok, err := j.Before(journal.Peers, c); err != nil || !ok || id != want[i].ID {
			t.Fatalf("Before(%v) = %s, %v, %v", c, id, ok, err)
		}
	}
	own := peerOps(t, self, 1)
	err := j.Update(context.Background(), func(tx *journal.Tx) error { return tx.AppendPeers(own...) })
	if !errors.Is(err, oplog.ErrChain) {
		t.Fatalf("an own op among the peers': %v", err)
	}
	bad := a[0]
	bad.Payload = []byte(`{"id":"other"}`)
	err = j.Update(context.Background(), func(tx *journal.Tx) error { return tx.AppendPeers(b[0], bad) })
	if !errors.Is(err, oplog.ErrChain) {
		t.Fatalf("a peer's op with a wrong id: %v", err)
	}
}

func TestAFailedChangeWritesNothing(t *testing.T) {
	dir := t.TempDir()
	j := open(t, config(dir))
	want := appendOps(t, j, 0, 2)
	before := listing(t, dir)
	boom := errors.New("boom")
	err := j.Update(context.Background(), func(tx *journal.Tx) error {
		if _, err := tx.Append(draft(2)); err != nil {
			t.Error(err)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("got %v", err)
	}
	if _, err := j.Append(context.Background(), draft(2), journal.Draft{Scope: oplog.Personal, Surface: oplog.Skill, Payload: []byte("{")}); !errors.Is(err, oplog.ErrCanon) {
		t.Fatalf("bad payload: %v", err)
	}
	for name, data := range listing(t, dir) {
		if before[name] != data {
			t.Errorf("%s was written", name)
		}
	}
	want = append(want, appendOps(t, j, 2, 1)...)
	sameOps(t, mustOwn(t, j), want)
}

func TestConcurrentAppendsShareGroupsAndLeaveNoHole(t *testing.T) {
	dir := t.TempDir()
	counting := &faulty{}
	cfg := config(dir)
	cfg.FS = counting
	cfg.SegmentBytes = 8 << 10
	j := open(t, cfg)
	const callers, each = 16, 20
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[uint64]oplog.OpID{}
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				ops, err := j.Append(context.Background(), draft(c*each+i))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, twice := got[ops[0].Seq]; twice {
					t.Errorf("seq %d given to %s and %s", ops[0].Seq, other, ops[0].ID)
				}
				got[ops[0].Seq] = ops[0].ID
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	all := mustOwn(t, open(t, config(dir)))
	if len(all) != callers*each {
		t.Fatalf("%d ops, want %d", len(all), callers*each)
	}
	for _, op := range all {
		if got[op.Seq] != op.ID {
			t.Fatalf("seq %d on disk is %s, %s was returned", op.Seq, op.ID, got[op.Seq])
		}
	}
	if s := counting.syncs.Load(); s >= callers*each {
		t.Errorf("%d syncs for %d appends: nothing was shared", s, callers*each)
	}
}

func TestARefusedDraftDoesNotHarmItsGroup(t *testing.T) {
	j := open(t, config(t.TempDir()))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			d := draft(i)
			if i%2 == 1 {
				d.Payload = []byte(`{"a":1,"a":2}`)
			}
			_, err := j.Append(context.Background(), d)
			if (err != nil) != (i%2 == 1) {
				t.Errorf("append %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := len(mustOwn(t, j)); n != 10 {
		t.Errorf("%d ops, want 10", n)
	}
}

func TestOpAtFindsEveryOpOverManySegments(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SegmentBytes = 100 << 10
	j := open(t, cfg)
	var want []oplog.Op
	for i := range 20 {
		want = append(want, appendOps(t, j, i*50, 50)...)
	}
	j = open(t, cfg)
	for i, op := range want {
		got, ok, err := j.OpAt(uint64(i))
		if err != nil || !ok || got.ID != op.ID {
			t.Fatalf("OpAt(%d) = %s, %v, %v", i, got.ID, ok, err)
		}
	}
	if _, ok, err := j.OpAt(uint64(len(want))); ok || err != nil {
		t.Fatalf("OpAt beyond the end: %v %v", ok, err)
	}
	for _, from := range []uint64{0, 1, 499, 500, 999} {
		got, err := readOwn(j, from)
		if err != nil {
			t.Fatal(err)
		}
		sameOps(t, got, want[from:])
	}
}

func TestAnotherProcessesOpsAreSeenBeforeTheNextChange(t *testing.T) {
	dir := t.TempDir()
	cfg := config(dir)
	cfg.SegmentBytes = 700
	a, b := open(t, cfg), open(t, cfg)
	var want []oplog.Op
	for i := range 10 {
		want = append(want, appendOps(t, []*journal.Journal{a, b}[i%2], i, 1+i%3)...)
	}
	if err := a.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	sameOps(t, mustOwn(t, a), want)
	if n := len(listing(t, dir)); n < 4 {
		t.Errorf("%d files: the test should cross segments", n)
	}
}

func TestALockThatIsHeldIsWaitedForAndNoLonger(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, config(dir)), open(t, config(dir))
	ctx, cancel := context.WithCancel(context.Background())
	err := a.Update(context.Background(), func(*journal.Tx) error {
		cancel()
		err := b.Update(ctx, func(*journal.Tx) error { t.Error("two inside"); return nil })
		if !errors.Is(err, journal.ErrBusy) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		if _, err := b.Append(ctx, draft(1)); !errors.Is(err, journal.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	appendOps(t, b, 0, 1)
	if n := len(mustOwn(t, b)); n != 1 {
		t.Errorf("%d ops: an append that was given up was written", n)
	}
}

func TestTheLockOutlivesAnotherDescriptorOfItsFile(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, config(dir)), open(t, config(dir))
	err := a.Update(context.Background(), func(*journal.Tx) error {
		f, err := os.Open(filepath.Join(dir, "LOCK"))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := b.Refresh(ctx); !errors.Is(err, journal.ErrBusy) {
			t.Errorf("the lock is gone: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAReaderRepairsNothingAndShowsWholeGroups(t *testing.T) {
	dir := t.TempDir()
	want := appendOps(t, open(t, config(dir)), 0, 3)
	name := segment(dir, 0)
	writeFile(t, name, append(readFile(t, name), "half a li"...))
	before := listing(t, dir)
	cfg := config(dir)
	cfg.ReadOnly = true
	r := open(t, cfg)
	sameOps(t, mustOwn(t, r), want)
	if _, err := r.Append(context.Background(), draft(3)); !errors.Is(err, journal.ErrReadOnly) {
		t.Errorf("append: %v", err)
	}
	after := listing(t, dir)
	if len(after) != len(before) || after[filepath.Base(name)] != before[filepath.Base(name)] {
		t.Error("a reader wrote")
	}
}

func TestAJournalOfAnotherDeviceOrVersionIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	appendOps(t, open(t, config(dir)), 0, 1)
	cfg := config(dir)
	cfg.Device = "host-2"
	if _, err := journal.Open(context.Background(), cfg); !errors.Is(err, journal.ErrDevice) {
		t.Errorf("other device: %v", err)
	}
	name := segment(dir, 0)
	text := strings.Replace(string(readFile(t, name)), `"v":1`, `"v":2`, 1)
	writeFile(t, name, []byte(text))
	if _, err := journal.Open(context.Background(), config(dir)); !errors.Is(err, journal.ErrVersion) {
		t.Errorf("other version: %v", err)
	}
	if string(readFile(t, name)) != text {
		t.Error("it was touched")
	}
}

func TestStampsAreAfterWhatWasObserved(t *testing.T) {
	j := open(t, config(t.TempDir()))
	h := oplog.HLC{WallMS: wall().UnixMilli() + 1000, Counter: 7, Device: "host-9"}
	j.Observe(h)
	if op := appendOps(t, j, 0, 1)[0]; op.HLC.Compare(h) <= 0 {
		t.Errorf("stamp %v is not after %v", op.HLC, h)
	}
}

func TestVerifyReadsEveryByte(t *testing.T) {
	dir := t.TempDir()
	cfg := config(dir)
	cfg.SegmentBytes = 1500
	j := open(t, cfg)
	for i := range 8 {
		appendOps(t, j, 2*i, 2)
	}
	if err := j.Update(context.Background(), func(tx *journal.Tx) error { return tx.AppendPeers(peerOps(t, "host-2", 3)...) }); err != nil {
		t.Fatal(err)
	}
	r, err := journal.Verify(dir, nil)
	if err != nil || r.Ops != 16 || r.PeerOps != 3 || r.Device != self || r.Torn != 0 || !slices.Equal(r.Frontier.Devices(), []string{self, "host-2"}) {
		t.Fatalf("Verify = %+v, %v", r, err)
	}
	files := listing(t, dir)
	for name, text := range files {
		if name == "LOCK" {
			continue
		}
		last := name == segmentWithTail(files)
		for i := 0; i < len(text); i += 7 {
			bad := []byte(text)
			bad[i] ^= 0x20
			writeFile(t, filepath.Join(dir, name), bad)
			r, err := journal.Verify(dir, nil)
			torn := err == nil && r.Torn > 0
			if !torn && !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrLost) && !errors.Is(err, journal.ErrVersion) && !errors.Is(err, journal.ErrDevice) {
				t.Fatalf("byte %d of %s flipped: %+v, %v", i, name, r, err)
			}
			if torn && !last && !strings.HasPrefix(name, "peers") {
				t.Fatalf("byte %d of sealed %s flipped: called torn", i, name)
			}
		}
		writeFile(t, filepath.Join(dir, name), []byte(text))
	}
}

func segmentWithTail(files map[string]string) string {
	last := ""
	for name := range files {
		if strings.HasPrefix(name, "own-") && name > last {
			last = name
		}
	}
	return last
}

func TestAppendedTellsOfOwnOpsThatWereWrittenHere(t *testing.T) {
	dir := t.TempDir()
	here, there := open(t, config(dir)), open(t, config(dir))
	first := here.Appended()
	told := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	appendOps(t, there, 0, 1) // as another process does
	refused := errors.New("refused")
	for _, err := range []error{
		here.Refresh(t.Context()),
		here.Update(t.Context(), func(tx *journal.Tx) error { return tx.AppendPeers(peerOps(t, "peer", 1)...) }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := here.Share(t.Context(), func(tx *journal.Tx) error {
		_, err := tx.Append(draft(1))
		return errors.Join(refused, err)
	}); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if told(first) {
		t.Error("told though nothing own was written here")
	}
	appendOps(t, here, 1, 1)
	if !told(first) || told(here.Appended()) {
		t.Error("an own op was not told, or the next one is told before it is there")
	}
}
