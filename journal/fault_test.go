package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// failing makes the n-th call of that kind fail, counted from now; 0 is the next.
func failing(kind string, n int, err error) func(call, name string) error {
	return func(call, _ string) error {
		if call != kind {
			return nil
		}
		if n--; n == -1 {
			return err
		}
		return nil
	}
}

func faultyConfig(dir string) (*faulty, journal.Config) {
	f := &faulty{}
	cfg := config(dir)
	cfg.FS = f
	return f, cfg
}

func TestAFailedOrShortWriteLeavesNothingAndTheNextSucceeds(t *testing.T) {
	for _, how := range []string{"failed", "short"} {
		dir := t.TempDir()
		f, cfg := faultyConfig(dir)
		j := open(t, cfg)
		want := appendOps(t, j, 0, 2)
		before := string(readFile(t, segment(dir, 0)))
		if how == "failed" {
			f.fail = failing("write", 0, syscall.ENOSPC)
		} else {
			f.short = func(_ string, n int) int { return n / 2 }
		}
		if _, err := j.Append(context.Background(), drafts(2, 3)...); !errors.Is(err, journal.ErrNotWritten) {
			t.Fatalf("%s: got %v, want ErrNotWritten", how, err)
		}
		f.fail, f.short = nil, nil
		if got := string(readFile(t, segment(dir, 0))); got != before {
			t.Errorf("%s: the write left %d bytes", how, len(got)-len(before))
		}
		want = append(want, appendOps(t, j, 5, 1)...)
		if want[2].Seq != 2 {
			t.Errorf("%s: a hole: seq %d", how, want[2].Seq)
		}
		sameOps(t, mustOwn(t, open(t, config(dir))), want)
	}
}

func TestAWriteThatCannotBeUndonePoisons(t *testing.T) {
	for _, undo := range []string{"truncate", "sync"} {
		dir := t.TempDir()
		f, cfg := faultyConfig(dir)
		j := open(t, cfg)
		want := appendOps(t, j, 0, 2)
		f.short = func(name string, n int) int {
			if strings.HasPrefix(name, "own-") {
				return n - 40
			}
			return -1
		}
		f.fail = failing(undo, 0, syscall.EIO)
		if _, err := j.Append(context.Background(), drafts(2, 3)...); !errors.Is(err, journal.ErrPoisoned) {
			t.Fatalf("%s: got %v, want ErrPoisoned", undo, err)
		}
		f.short, f.fail = nil, nil
		if _, err := j.Append(context.Background(), draft(9)); !errors.Is(err, journal.ErrPoisoned) {
			t.Fatalf("%s: the next append: %v", undo, err)
		}
		again := open(t, config(dir))
		got := mustOwn(t, again)
		if len(got) < 2 || len(got) > 4 {
			t.Fatalf("%s: %d ops", undo, len(got))
		}
		sameOps(t, got[:2], want)
		if op := appendOps(t, again, 9, 1)[0]; op.Seq != uint64(len(got)) {
			t.Errorf("%s: seq %d after %d ops", undo, op.Seq, len(got))
		}
	}
}

func TestAFailedSyncPoisonsForTheLifeOfTheObject(t *testing.T) {
	dir := t.TempDir()
	f, cfg := faultyConfig(dir)
	j, live := open(t, cfg), open(t, config(dir))
	want := appendOps(t, j, 0, 2)
	if err := live.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.fail = failing("sync", 0, syscall.EIO)
	if _, err := j.Append(context.Background(), drafts(2, 2)...); !errors.Is(err, journal.ErrPoisoned) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v, want ErrPoisoned and its cause", err)
	}
	f.fail = nil
	frozen := listing(t, dir)
	last := want[1] // the note of docs/formats/journal.md, byte for byte
	note := fmt.Sprintf(`{"v":1,"series":"own","segment":0,"end":%d,"seq":1,"prev":"%s","hlc":{"wall_ms":%d,"counter":%d,"device_id":"%s"}}`+"\n",
		strings.Index(frozen["own-0000000000000000.jsonl"], string(last.AppendLine(nil)))+len(last.AppendLine(nil))+2, last.ID, last.HLC.WallMS, last.HLC.Counter, last.HLC.Device)
	if got := frozen["UNSYNCED.json"]; got != note {
		t.Errorf("the note is\n%swant\n%s", got, note)
	}
	for range 3 {
		if _, err := j.Append(context.Background(), draft(4)); !errors.Is(err, journal.ErrPoisoned) {
			t.Fatalf("append after a failed sync: %v", err)
		}
	}
	if got, err := readOwn(j, 0); err != nil || len(got) != 2 {
		t.Errorf("the poisoned object shows %d ops (%v), 2 are known durable", len(got), err)
	}
	for name, data := range listing(t, dir) {
		if frozen[name] != data {
			t.Errorf("%s was written by a poisoned object", name)
		}
	}
	old := readFile(t, segment(dir, 0))
	op := appendOps(t, live, 4, 1)[0] // another process goes on: it finds the note
	if op.Seq != 4 {
		t.Errorf("seq %d: what was not synced was not taken over", op.Seq)
	}
	files := listing(t, dir)
	if _, there := files["UNSYNCED.json"]; there {
		t.Error("the note is still there")
	}
	moved, there := files["own-0000000000000002.jsonl"]
	if !there || !strings.Contains(moved, `"k2"`) || strings.Contains(files["own-0000000000000000.jsonl"], `"k2"`) {
		t.Errorf("the unsynced tail was not moved into a new segment: %v", slices.Sorted(keys(files)))
	}
	if len(files["own-0000000000000000.jsonl"]) >= len(old) {
		t.Error("the old segment still holds it")
	}
	got := mustOwn(t, open(t, config(dir)))
	sameOps(t, got[:2], want)
	if len(got) != 5 {
		t.Errorf("%d ops, want 5", len(got))
	}
}

// The note says where the series begins, and nothing stands before that.
func TestAFailedSyncOfTheFirstGroupOfPeersLeavesAJournalThatOpens(t *testing.T) {
	dir := t.TempDir()
	f, cfg := faultyConfig(dir)
	j := open(t, cfg)
	peers := peerOps(t, "host-2", 3)
	take := func(j *journal.Journal, ops ...oplog.Op) error {
		return j.Update(context.Background(), func(tx *journal.Tx) error { return tx.AppendPeers(ops...) })
	}
	f.fail = func(call, name string) error {
		if call == "sync" && strings.HasPrefix(name, "peers-") && !strings.HasSuffix(name, ".tmp") {
			return syscall.EIO
		}
		return nil
	}
	if err := take(j, peers[:2]...); !errors.Is(err, journal.ErrPoisoned) {
		t.Fatal(err)
	}
	f.fail = nil
	again := open(t, cfg)
	if err := take(again, peers[2]); err != nil {
		t.Fatal(err)
	}
	var got []oplog.Op
	for e, err := range open(t, config(dir)).Peers(journal.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Op)
	}
	sameOps(t, got, peers)
}

// What another process wrote is synced before the next group. If that fails and not even a note can be left, it stays: it may have
// been answered for long ago.
func TestAFailedSyncOfWhatAnotherWroteCutsNothingOff(t *testing.T) {
	dir := t.TempDir()
	want := appendOps(t, open(t, config(dir)), 0, 2)
	f, cfg := faultyConfig(dir)
	j := open(t, cfg)
	f.fail = func(call, _ string) error {
		if call == "sync" || call == "create" || call == "write" {
			return syscall.ENOSPC
		}
		return nil
	}
	if _, err := j.Append(context.Background(), draft(2)); !errors.Is(err, journal.ErrPoisoned) {
		t.Fatal(err)
	}
	f.fail = nil
	sameOps(t, mustOwn(t, open(t, config(dir))), want)
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestTheUnsyncedTailIsSyncedElsewhereBeforeItIsCut(t *testing.T) {
	dir := t.TempDir()
	f, cfg := faultyConfig(dir)
	j := open(t, cfg)
	appendOps(t, j, 0, 2)
	f.fail = failing("sync", 0, syscall.EIO)
	if _, err := j.Append(context.Background(), draft(2)); !errors.Is(err, journal.ErrPoisoned) {
		t.Fatal(err)
	}
	var trace []string
	f.fail = func(call, name string) error {
		if call != "open" {
			trace = append(trace, call+" "+name)
		}
		return nil
	}
	open(t, cfg)
	want := []string{"create replant.jsonl.tmp", "write replant.jsonl.tmp", "sync replant.jsonl.tmp", "rename replant.jsonl",
		"truncate own-0000000000000000.jsonl", "sync own-0000000000000000.jsonl", "rename own-0000000000000002.jsonl", "remove UNSYNCED.json"}
	trace = slices.DeleteFunc(trace, func(s string) bool { return strings.HasPrefix(s, "syncdir") })
	if len(trace) < len(want) || !slices.Equal(trace[:len(want)], want) {
		t.Errorf("trace\n%s\nwant\n%s", strings.Join(trace, "\n"), strings.Join(want, "\n"))
	}
}

func TestANewSegmentIsDurableBeforeTheFirstAnswerFromIt(t *testing.T) {
	dir := t.TempDir()
	f, cfg := faultyConfig(dir)
	cfg.SegmentBytes = 1
	j := open(t, cfg)
	appendOps(t, j, 0, 1)
	var trace []string
	f.fail = func(call, name string) error {
		if call != "open" {
			trace = append(trace, call+" "+name)
		}
		return nil
	}
	appendOps(t, j, 1, 1)
	const seg = "own-0000000000000001.jsonl"
	want := []string{"create " + seg + ".tmp", "write " + seg + ".tmp", "sync " + seg + ".tmp", "rename " + seg,
		trace[4], "write " + seg, "sync " + seg}
	if !slices.Equal(trace, want) || !strings.HasPrefix(trace[4], "syncdir") {
		t.Errorf("trace %q, want %q", trace, want)
	}
}

// Every single call of a life with appends, a roll and peers fails once. Whatever was answered without an error is there
// afterwards, nothing that was called not written is, and the chain has no hole.
func TestAnyOneFailingCallLosesNothingThatWasAnswered(t *testing.T) {
	for _, kind := range []string{"create", "open", "write", "sync", "truncate", "rename", "remove", "syncdir"} {
		for n := 0; ; n++ {
			if !lifeWithFailure(t, kind, n) {
				break
			}
		}
	}
}

// lifeWithFailure reports whether the n-th call of that kind came about.
func lifeWithFailure(t *testing.T, kind string, n int) bool {
	t.Helper()
	what := fmt.Sprintf("%s %d", kind, n)
	dir := t.TempDir()
	f, cfg := faultyConfig(dir)
	cfg.SegmentBytes = 1500
	happened := false
	inner := failing(kind, n, syscall.EIO)
	f.fail = func(call, name string) error {
		err := inner(call, name)
		happened = happened || err != nil
		return err
	}
	var acked []oplog.Op
	refused := map[string]bool{}
	j, err := journal.Open(context.Background(), cfg)
	for i := range 8 {
		if err != nil { // as a process would: start over
			j, err = journal.Open(context.Background(), cfg)
			if err != nil {
				t.Fatalf("%s: opening a second time: %v", what, err)
			}
		}
		var ops []oplog.Op
		ops, err = j.Append(context.Background(), drafts(2*i, 2)...)
		switch {
		case err == nil:
			acked = append(acked, ops...)
		case errors.Is(err, journal.ErrNotWritten):
			refused[fmt.Sprintf(`{"id":"k%d","n":%d}`, 2*i, 2*i)] = true
			err = nil
		}
	}
	got := mustOwn(t, open(t, config(dir)))
	at := 0
	for i, op := range got {
		if op.Seq != uint64(i) || refused[string(op.Payload)] {
			t.Fatalf("%s: op %d has seq %d, payload %s", what, i, op.Seq, op.Payload)
		}
		if at < len(acked) && acked[at].ID == op.ID {
			at++
		}
	}
	if at != len(acked) {
		t.Fatalf("%s: %d of %d answered ops are there", what, at, len(acked))
	}
	return happened
}

// Recovery is interrupted at each of its calls and repeated.
func TestRecoveryMayCrashAtEachStepAndIsRepeated(t *testing.T) {
	m, l := fifty(t)
	_ = m
	torn := l.data[:l.lines[45]+20]
	for n := 0; ; n++ {
		dir := t.TempDir()
		writeFile(t, segment(dir, 0), torn)
		f, cfg := faultyConfig(dir)
		crashed := false
		f.fail = func(call, _ string) error {
			if call == "open" {
				return nil
			}
			if n == 0 || crashed {
				crashed = true // nothing happens any more
				return syscall.EIO
			}
			n--
			return nil
		}
		left := n
		_, err := journal.Open(context.Background(), cfg)
		j := open(t, config(dir))
		if got := len(mustOwn(t, j)); got != 45 {
			t.Fatalf("stopped at step %d: %d ops, want 45", left, got)
		}
		files := listing(t, dir)
		if files["torn-1.bin"] != string(torn[l.lines[45]:]) || files["torn-2.bin"] != "" {
			t.Fatalf("stopped at step %d: kept aside %q and %q", left, files["torn-1.bin"], files["torn-2.bin"])
		}
		if err == nil {
			if left < 5 {
				t.Fatalf("only %d steps: the test does not reach into recovery", left)
			}
			return
		}
		n = left
	}
}

// A writer that is killed between its write and its sync leaves a group that may be in memory only. Recovery takes a record
// after a blank line as proof that all before is durable, so the next writer has to sync it before it writes.
func TestWhatAnotherWroteIsSyncedBeforeTheNextGroupIsWritten(t *testing.T) {
	dir := t.TempDir()
	j := open(t, config(dir))
	appendOps(t, j, 0, 2)
	f, cfg := faultyConfig(dir)
	again := open(t, cfg)
	var trace []string
	f.fail = func(call, name string) error {
		if call != "open" {
			trace = append(trace, call+" "+name)
		}
		return nil
	}
	appendOps(t, again, 2, 1)
	appendOps(t, again, 3, 1)
	const seg = "own-0000000000000000.jsonl"
	want := []string{"sync " + seg, "write " + seg, "sync " + seg, "write " + seg, "sync " + seg}
	if !slices.Equal(trace, want) {
		t.Errorf("trace %q, want %q", trace, want)
	}
	third := open(t, cfg)
	trace = nil
	for range 2 {
		if err := third.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(trace, want[:1]) {
		t.Errorf("trace of Refresh %q, want one sync", trace)
	}
}
