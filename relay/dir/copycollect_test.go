package dir_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// TestCheckpointsAndCollectionsThatArriveLateInAnyOrderGiveEveryReaderAWay has two devices write, publish and collect in one folder, from
// which a copier carries files and deletions to another. Whoever reads there gets ops of the chains and no others, or is sent to a
// checkpoint that is there, or told that something has not arrived; in the end it has a way to all ops.
func TestCheckpointsAndCollectionsThatArriveLateInAnyOrderGiveEveryReaderAWay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		source, dest := t.TempDir(), t.TempDir()
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		clock := func() time.Time { return now }
		segment := rapid.SampledFrom([]int64{1, 900, 3000}).Draw(rt, "segment size")
		w := open(t, dir.Config{FS: newSwift(t, source), SegmentBytes: segment, Now: clock})
		r := open(t, dir.Config{FS: newSwift(t, dest), Now: clock})
		authors := []*relaytest.Author{relaytest.NewAuthor("a"), relaytest.NewAuthor("B")}
		must := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		for _, a := range authors {
			push(t, w, a.Write(t, 2, 60))
			must(w.Register(t.Context(), a.Device, relay.Replica))
		}
		c := &copier{t: rt, tb: t, old: map[string][]string{}, dest: dest}
		reader := oplog.Frontier{} // goes on from where it is, or from a checkpoint
		for range rapid.IntRange(1, 10).Draw(rt, "steps") {
			a := rapid.SampledFrom(authors).Draw(rt, "author")
			push(t, w, a.Write(t, rapid.IntRange(1, 4).Draw(rt, "ops"), 60))
			all := oplog.Frontier{}
			for _, a := range authors {
				all[a.Device] = a.Head()
			}
			for _, a := range authors {
				must(w.Ack(t.Context(), a.Device, all))
			}
			if rapid.Bool().Draw(rt, "publish") {
				next := sealed(relay.Checkpoint{Author: a.Device, Frontier: all})
				must(w.PutCheckpoint(t.Context(), a.Device, next))
			}
			if rapid.Bool().Draw(rt, "collect") {
				_, err := w.Collect(t.Context())
				must(err)
				now = now.Add(relay.Grace)
			}
			for range rapid.IntRange(0, 4).Draw(rt, "copies") {
				if rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
					dropOne(rt, source, dest)
				} else {
					c.step(files(t, source))
				}
				goOn(rt, t, r, authors, reader)
			}
		}
		mirror(t, source, dest) // everything arrives at last
		for _, h := range []*dir.Relay{r, open(t, dir.Config{FS: newSwift(t, dest), Now: clock})} {
			for _, held := range []oplog.Frontier{reader.Clone(), {}} {
				for range 3 {
					goOn(rt, t, h, authors, held)
				}
				for _, a := range authors {
					if held[a.Device] != a.Head() {
						rt.Fatalf("in the end a reader has %v of %s, which wrote %v; %+v", held[a.Device], a.Device, a.Head(), report(t, h))
					}
				}
			}
			if rep := report(t, h); len(rep.Forks)+len(rep.Waiting) != 0 {
				rt.Fatalf("everything is there, and yet %+v", rep)
			}
		}
	})
}

// goOn reads as a session does.
func goOn(rt *rapid.T, t *testing.T, r *dir.Relay, authors []*relaytest.Author, held oplog.Frontier) {
	for range 100 {
		page, err := r.Pull(t.Context(), "reader", relay.Want{Held: held})
		if errors.Is(err, relay.ErrFrontierTruncated) {
			c, ok, err := r.Checkpoint(t.Context())
			if err != nil || !ok {
				rt.Fatalf("history is gone and there is no checkpoint: %v, %v", ok, err)
			}
			if !relay.Join(held, c.Frontier) {
				rt.Fatalf("history is gone, and the checkpoint at %v does not help who holds %v", c.Frontier, held)
			}
			continue
		}
		if err != nil {
			rt.Fatal(err)
		}
		for _, op := range page.Ops {
			i := slices.IndexFunc(authors, func(a *relaytest.Author) bool { return a.Device == op.Device })
			if op.Seq != held.Next(op.Device) || int(op.Seq) >= len(authors[i].Ops) || authors[i].Ops[op.Seq].ID != op.ID {
				rt.Fatalf("%s/%d %.15s for who holds %v", op.Device, op.Seq, op.ID, held)
			}
			held[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
		}
		for _, err := range page.Broken {
			if !errors.Is(err, relay.ErrCorrupt) {
				rt.Fatal(err)
			}
		}
		if !page.More {
			return
		}
	}
	rt.Fatal("the pull does not end")
}

// dropOne carries a deletion.
func dropOne(rt *rapid.T, source, dest string) {
	var gone []string
	err := filepath.WalkDir(dest, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dest, name)
		if _, err := os.Lstat(filepath.Join(source, rel)); err != nil {
			gone = append(gone, name)
		}
		return nil
	})
	if err != nil {
		rt.Fatal(err)
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		if err := os.Remove(rapid.SampledFrom(gone).Draw(rt, "deletion")); err != nil {
			rt.Fatal(err)
		}
	}
}

// mirror makes dest what source is, but for names that are not ours.
func mirror(t *testing.T, source, dest string) {
	t.Helper()
	there := files(t, source)
	for name := range files(t, dest) {
		if _, ok := there[name]; !ok {
			if err := os.Remove(filepath.Join(dest, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if !strings.HasSuffix(name, ".tmp") {
			put(t, filepath.Join(dest, name), there[name])
		}
	}
}

// FuzzCheckpoint puts any bytes in the place of a checkpoint and of a floor: nothing panics, what does not give its hash does not count,
// and the ops are offered or the reader is told.
func FuzzCheckpoint(f *testing.F) {
	root, a := f.TempDir(), relaytest.NewAuthor("a")
	w := open(f, dir.Config{Path: root, SegmentBytes: 900, Grace: -1})
	for range 4 {
		push(f, w, a.Write(f, 2, 40))
	}
	c := sealed(relay.Checkpoint{Author: "a", Frontier: oplog.Frontier{"a": {Seq: 4, ID: a.Ops[4].ID}}})
	if err := errors.Join(w.Register(f.Context(), "a", relay.Replica), w.Ack(f.Context(), "a", oplog.Frontier{"a": a.Head()}), w.PutCheckpoint(f.Context(), "a", c)); err != nil {
		f.Fatal(err)
	}
	if _, err := w.Collect(f.Context()); err != nil {
		f.Fatal(err)
	}
	all := files(f, root)
	name := "devices/d-a/checkpoints/" + c.Hash + ".bin"
	f.Add(all[name], all["devices/d-a/floor.json"])
	f.Add(all[name][:100], `{"v":1,"device":"a","seq":7,"op_id":"x","kept":9}`)
	f.Add("\n", strings.Replace(all["devices/d-a/floor.json"], `"seq":4`, `"seq":9007199254740991`, 1))
	f.Add(strings.Replace(all[name], `"seq":4`, `"seq":99`, 1), "")
	f.Fuzz(func(t *testing.T, text, floor string) {
		root := t.TempDir()
		for n, data := range all {
			put(t, filepath.Join(root, n), data)
		}
		put(t, filepath.Join(root, name), text)
		put(t, filepath.Join(root, "devices/d-a/floor.json"), floor)
		r := open(t, dir.Config{FS: newSwift(t, root), Grace: -1})
		got, ok, err := r.Checkpoint(t.Context())
		if ok && (!got.Whole() || got.Hash != c.Hash) || err != nil && !errors.Is(err, relay.ErrCorrupt) {
			t.Fatalf("checkpoint %v %.12s, %v", ok, got.Hash, err)
		}
		page, err := r.Pull(t.Context(), "z", relay.Want{Held: c.Frontier})
		if err != nil && !errors.Is(err, relay.ErrFrontierTruncated) {
			t.Fatal(err)
		}
		for i, op := range page.Ops {
			if op.Device == "a" && int(op.Seq) < len(a.Ops) && (op.ID != a.Ops[op.Seq].ID || op.Seq != uint64(5+i)) {
				t.Fatalf("op %d at %d", op.Seq, i)
			}
		}
		report(t, r)
		if _, err := r.Collect(t.Context()); err != nil && !errors.Is(err, relay.ErrCorrupt) && !errors.Is(err, relay.ErrIndeterminate) && !errors.Is(err, relay.ErrNotSent) {
			t.Fatal(err)
		}
	})
}
