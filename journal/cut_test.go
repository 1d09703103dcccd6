package journal_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

var hashes = []string{strings.Repeat("1a", 32), strings.Repeat("2b", 32)}

// small makes a segment of about every second op, and does not wait for the disk.
func small(dir string) journal.Config {
	cfg := config(dir)
	cfg.FS = &faulty{fast: true}
	cfg.SegmentBytes = 600
	return cfg
}

func appendPeers(t testing.TB, j *journal.Journal, ops ...oplog.Op) {
	t.Helper()
	for _, op := range ops {
		if err := j.Update(context.Background(), func(tx *journal.Tx) error { return tx.AppendPeers(op) }); err != nil {
			t.Fatal(err)
		}
	}
}

func headOf(op oplog.Op) oplog.Head { return oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC} }

func cutAt(hash string, ops ...oplog.Op) journal.Cut {
	c := journal.Cut{Checkpoint: hash, Heads: oplog.Heads{}, Closed: oplog.Heads{}}
	for _, op := range ops {
		c.Heads[op.Device] = headOf(op)
	}
	return c
}

func cut(j *journal.Journal, c journal.Cut) error {
	return j.Update(context.Background(), func(tx *journal.Tx) error { return tx.Cut(c) })
}

// history is a journal of 12 own ops and 12 of a peer, nearly each in a segment of its own.
func history(t testing.TB, cfg journal.Config) (j *journal.Journal, own, peers []oplog.Op) {
	t.Helper()
	j = open(t, cfg)
	for i := range 12 {
		own = append(own, appendOps(t, j, i, 1)...)
	}
	peers = peerOps(t, "host-2", 12)
	appendPeers(t, j, peers...)
	return j, own, peers
}

func kept(t testing.TB, j *journal.Journal, hash string, s journal.Series) []oplog.Op {
	t.Helper()
	var out []oplog.Op
	for e, err := range j.Kept(hash, s) {
		if err != nil {
			t.Fatalf("read what is kept: %v", err)
		}
		out = append(out, e.Op)
	}
	return out
}

func names(t testing.TB, dir, pattern string) []string {
	t.Helper()
	out, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func compact(t testing.TB, j *journal.Journal) journal.Compaction {
	t.Helper()
	done, err := j.Compact(context.Background())
	if err != nil {
		t.Fatalf("compact: %v", err)
	}
	return done
}

func TestCompactionDropsWholeSegmentsBelowTheCutAndRewritesNone(t *testing.T) {
	dir := t.TempDir()
	j, own, peers := history(t, small(dir))
	if done := compact(t, j); done.Segments != 0 {
		t.Errorf("without a cut %d segments were dropped", done.Segments)
	}
	before := listing(t, dir)
	c := cutAt(hashes[0], own[6], peers[4])
	if err := cut(j, c); err != nil {
		t.Fatal(err)
	}
	done := compact(t, j)
	if done.Segments == 0 || done.Bytes == 0 {
		t.Fatalf("dropped %+v", done)
	}
	after := listing(t, dir)
	for name, text := range after {
		if strings.HasSuffix(name, ".jsonl") && before[name] != text {
			t.Errorf("%s was rewritten", name)
		}
	}
	if len(before)+1-done.Segments != len(after) {
		t.Errorf("%d files, %d before, %d were dropped", len(after), len(before), done.Segments)
	}
	for _, s := range []struct {
		series journal.Series
		all    []oplog.Op
		head   int
	}{{journal.Own, own, 6}, {journal.Peers, peers, 4}} {
		left := kept(t, j, hashes[0], s.series)
		first := len(s.all) - len(left)
		sameOps(t, left, s.all[first:])
		if first == 0 || first > s.head+1 {
			t.Errorf("%s: what is kept begins at %d, the cut is at %d", s.series, first, s.head)
		}
	}
	if again := compact(t, j); again.Segments != 0 {
		t.Errorf("repeating dropped %d more", again.Segments)
	}
	r, err := journal.VerifyFrom(dir, nil, c)
	if err != nil || r.Frontier[self].Seq != 11 || r.Frontier["host-2"].Seq != 11 {
		t.Errorf("verify: %+v, %v", r, err)
	}
}

func TestATruncatedJournalIsNeverReadWithoutItsCheckpoint(t *testing.T) {
	dir := t.TempDir()
	j, own, peers := history(t, small(dir))
	c := cutAt(hashes[0], own[6], peers[4])
	if err := cut(j, c); err != nil {
		t.Fatal(err)
	}
	check := func(when string, j *journal.Journal, dropped bool) {
		t.Helper()
		refused := func(what string, err error) {
			t.Helper()
			if e, ok := errors.AsType[*journal.AnchorError](err); !ok || e.Checkpoint != hashes[0] || !errors.Is(err, journal.ErrAnchored) {
				t.Errorf("%s: %s: %v, want an *AnchorError", when, what, err)
			}
		}
		for _, s := range []journal.Series{journal.Own, journal.Peers} {
			for _, given := range []string{"", hashes[1]} {
				n := 0
				for _, err := range j.Kept(given, s) {
					if n++; n == 1 {
						refused("kept", err)
					}
				}
				if n != 1 {
					t.Errorf("%s: %d entries of %s without the checkpoint", when, n, s)
				}
			}
			for _, err := range j.Read(s, journal.Cursor{}) {
				refused("read", err)
				break
			}
		}
		_, err := journal.Verify(dir, nil)
		refused("verify", err)
		if dropped {
			_, err := readOwn(j, 0)
			refused("own", err)
			_, _, err = j.OpAt(0)
			refused("op at", err)
		}
		sameOps(t, must(readOwn(j, 7))(t), own[7:])
		if op, ok, err := j.OpAt(9); err != nil || !ok || op.ID != own[9].ID {
			t.Errorf("%s: op 9 is %v, %v, %v", when, op.ID, ok, err)
		}
	}
	check("cut", j, false)
	compact(t, j)
	check("compacted", j, true)
	check("opened again", open(t, small(dir)), true)
	wrong := cutAt(hashes[0], own[6], peers[5])
	if _, err := journal.VerifyFrom(dir, nil, wrong); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("verified with other heads than the cut's: %v", err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestACutThatGoesBackOrContradictsTheOwnChainIsRefused(t *testing.T) {
	dir := t.TempDir()
	j, own, peers := history(t, small(dir))
	if err := cut(j, cutAt(hashes[0], own[6], peers[4])); err != nil {
		t.Fatal(err)
	}
	before := listing(t, dir)
	forked := own[8]
	forked.ID = peers[8].ID
	beyond := own[11]
	beyond.Seq += 5
	closed := cutAt(hashes[1], peers[4])
	closed.Closed[self] = headOf(own[11])
	for name, c := range map[string]struct {
		cut  journal.Cut
		want error
	}{
		"behind in one chain": {cutAt(hashes[1], own[8], peers[3]), journal.ErrBehind},
		"without a chain":     {cutAt(hashes[1], own[8]), journal.ErrBehind},
		"beyond the end":      {cutAt(hashes[1], beyond, peers[4]), journal.ErrLost},
		"closes the own":      {closed, journal.ErrRetired},
	} {
		if err := cut(j, c.cut); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, ok := errors.AsType[*oplog.ForkError](cut(j, cutAt(hashes[1], forked, peers[4]))); !ok {
		t.Error("a covered own op with another id is no fork")
	}
	for name, text := range listing(t, dir) {
		if before[name] != text {
			t.Errorf("%s was changed", name)
		}
	}
	if err := cut(j, cutAt(hashes[1], own[8], peers[4])); err != nil {
		t.Error(err)
	}
	if c, ok, err := j.Cut(); err != nil || !ok || c.Checkpoint != hashes[1] || c.Heads[self] != headOf(own[8]) {
		t.Errorf("cut is %+v, %v, %v", c, ok, err)
	}
}

func TestAJournalThatEndsBeforeItsCutIsLost(t *testing.T) {
	dir := t.TempDir()
	j, own, _ := history(t, small(dir))
	if err := cut(j, cutAt(hashes[0], own[11])); err != nil {
		t.Fatal(err)
	}
	for _, name := range names(t, dir, "own-*") {
		if err := (journal.OS{}).Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := journal.Open(context.Background(), small(dir)); !errors.Is(err, journal.ErrLost) {
		t.Errorf("opened: %v", err)
	}
	if _, err := journal.VerifyFrom(dir, nil, cutAt(hashes[0], own[11])); !errors.Is(err, journal.ErrLost) {
		t.Errorf("verified: %v", err)
	}
}

func TestTheChainGoesOnWhereItWasWhenAllOfItIsBelowTheCut(t *testing.T) {
	dir := t.TempDir()
	j, own, peers := history(t, small(dir))
	if err := cut(j, cutAt(hashes[0], own[11], peers[11])); err != nil {
		t.Fatal(err)
	}
	compact(t, j)
	if n := len(names(t, dir, "*.jsonl")); n != 2 {
		t.Errorf("%d segments are left, want the last of each series", n)
	}
	j = open(t, small(dir))
	op := appendOps(t, j, 50, 1)[0]
	if op.Seq != 12 || op.Prev != own[11].ID {
		t.Errorf("the next op has seq %d", op.Seq)
	}
	if op.HLC.Compare(peers[11].HLC) <= 0 {
		t.Errorf("stamp %v is not after the checkpoint's %v", op.HLC, peers[11].HLC)
	}
}

func TestAnotherProcessGoesOnAfterACompaction(t *testing.T) {
	dir := t.TempDir()
	j := open(t, small(dir))
	first := appendOps(t, j, 0, 1)
	other := open(t, small(dir))
	var own []oplog.Op
	for i := range 8 {
		own = append(own, appendOps(t, other, 1+i, 1)...)
	}
	if err := cut(other, cutAt(hashes[0], own[7])); err != nil {
		t.Fatal(err)
	}
	if compact(t, other).Segments == 0 {
		t.Fatal("nothing was dropped")
	}
	next := appendOps(t, j, 20, 1)[0]
	if next.Seq != uint64(len(first)+len(own)) || next.Prev != own[7].ID {
		t.Errorf("the next op has seq %d, want %d", next.Seq, len(first)+len(own))
	}
}

func TestACrashAtAnyStepOfCutAndCompactionLeavesARepeatableState(t *testing.T) {
	steps := 0
	for n := 0; ; n++ {
		dir := t.TempDir()
		f, cfg := faultyConfig(dir)
		cfg.SegmentBytes, f.fast = 600, true
		j, own, peers := history(t, cfg)
		c, segments := cutAt(hashes[0], own[9], peers[9]), len(names(t, dir, "*.jsonl"))
		left, hit := n, false
		f.fail = func(call, _ string) error {
			if call == "open" {
				return nil
			}
			if hit = hit || left == 0; hit {
				return syscall.EIO // from that call on, as after a crash
			}
			left--
			return nil
		}
		err := cut(j, c)
		if err == nil {
			_, err = j.Compact(context.Background())
		}
		if !hit {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		steps++
		again := open(t, small(dir))
		_, was, err := again.Cut()
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		if !was && len(names(t, dir, "*.jsonl")) != segments {
			t.Fatalf("call %d: segments were dropped before the cut was there", n)
		}
		if err := cut(again, c); err != nil {
			t.Fatalf("call %d: cut again: %v", n, err)
		}
		compact(t, again)
		if r, err := journal.VerifyFrom(dir, nil, c); err != nil || r.Frontier[self].ID != own[11].ID || r.Frontier["host-2"].ID != peers[11].ID {
			t.Fatalf("call %d: %+v, %v", n, r, err)
		}
		if next := appendOps(t, again, 99, 1)[0]; next.Seq != 12 {
			t.Fatalf("call %d: the next op has seq %d", n, next.Seq)
		}
	}
	if steps < 15 {
		t.Errorf("only %d steps were tried", steps)
	}
}

func TestTheCutOnDiskIsTheGoldenOne(t *testing.T) {
	dir := t.TempDir()
	j, own, peers := history(t, small(dir))
	c := cutAt(hashes[0], own[6], peers[4])
	gone := peerOps(t, "host-3", 1)
	c.Closed["host-3"] = headOf(gone[0])
	if err := cut(j, c); err != nil {
		t.Fatal(err)
	}
	got := string(readFile(t, filepath.Join(dir, "CUT.json")))
	golden := filepath.Join("testdata", "CUT.json")
	if *update {
		writeFile(t, golden, []byte(got))
	}
	if want := string(readFile(t, golden)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for name, text := range map[string]string{
		"cut short":       got[:len(got)/2],
		"another version": strings.Replace(got, `"v":1`, `"v":2`, 1),
		"another device":  strings.Replace(got, `"device":"host-1"`, `"device":"host-9"`, 1),
		"blanks":          strings.Replace(got, `":`, `": `, 1),
	} {
		writeFile(t, filepath.Join(dir, "CUT.json"), []byte(text))
		_, err := journal.Open(context.Background(), small(dir))
		if !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrVersion) && !errors.Is(err, journal.ErrDevice) {
			t.Errorf("%s: opened: %v", name, err)
		}
	}
}

func TestASeriesWhoseBeginningIsGoneWithoutACutIsLost(t *testing.T) {
	for _, series := range []string{"own", "peers"} {
		for _, how := range []string{"CUT.json removed", "first segment removed"} {
			t.Run(series+", "+how, func(t *testing.T) {
				dir := t.TempDir()
				j, own, peers := history(t, small(dir))
				switch how {
				case "CUT.json removed":
					heads := []oplog.Op{own[6]}
					if series == "peers" {
						heads = []oplog.Op{peers[4]}
					}
					if err := cut(j, cutAt(hashes[0], heads...)); err != nil {
						t.Fatal(err)
					}
					compact(t, j)
					if _, err := journal.Open(context.Background(), small(dir)); err != nil {
						t.Fatalf("with its cut: %v", err)
					}
					if err := (journal.OS{}).Remove(filepath.Join(dir, "CUT.json")); err != nil {
						t.Fatal(err)
					}
				default:
					if err := (journal.OS{}).Remove(names(t, dir, series+"-*")[0]); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := journal.Open(context.Background(), small(dir)); !errors.Is(err, journal.ErrLost) {
					t.Errorf("opened: %v", err)
				}
			})
		}
	}
}
