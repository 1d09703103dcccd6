package dir_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// A copier carries files from one folder to others the way synchronisers do: late, in any order, in pieces, old
// versions after new ones, and with copies beside them.
type copier struct {
	t    *rapid.T
	tb   testing.TB
	old  map[string][]string // versions of each file that were seen
	dest string
}

// step carries one file, whole or not.
func (c *copier) step(source map[string]string) {
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(source))).Draw(c.t, "file")
	data := source[name]
	target := filepath.Join(c.dest, name)
	c.old[name] = append(c.old[name], data)
	switch rapid.SampledFrom([]string{"whole", "whole", "piece", "older", "conflict", "temporary", "empty"}).Draw(c.t, "how") {
	case "whole":
		put(c.tb, target, data)
	case "piece":
		put(c.tb, target, data[:rapid.IntRange(0, len(data)).Draw(c.t, "bytes")])
	case "older":
		put(c.tb, target, rapid.SampledFrom(c.old[name]).Draw(c.t, "version"))
	case "conflict":
		ext := filepath.Ext(target)
		put(c.tb, strings.TrimSuffix(target, ext)+rapid.SampledFrom([]string{".sync-conflict-20260102-030405-ABCDEFG", " (1)", " 2"}).Draw(c.t, "copy")+ext, data)
	case "temporary":
		put(c.tb, filepath.Join(filepath.Dir(target), ".syncthing."+filepath.Base(name)+".tmp"), data[:len(data)/2])
	case "empty":
		put(c.tb, target, "")
	}
}

func TestFilesThatArriveLateInAnyOrderAndInPiecesGiveEveryChainInTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		source, dest := t.TempDir(), t.TempDir()
		segment := rapid.SampledFrom([]int64{1, 900, 3000, 1 << 20}).Draw(rt, "segment size")
		w := open(t, dir.Config{FS: newDisk(t, source), SegmentBytes: segment})
		r := open(t, dir.Config{Path: dest})
		authors := []*relaytest.Author{relaytest.NewAuthor("a"), relaytest.NewAuthor("B")}
		c := &copier{t: rt, tb: t, old: map[string][]string{}, dest: dest}
		for range rapid.IntRange(1, 8).Draw(rt, "pushes") {
			a := rapid.SampledFrom(authors).Draw(rt, "author")
			push(t, w, a.Write(t, rapid.IntRange(1, 4).Draw(rt, "ops"), 60))
			for range rapid.IntRange(0, 3).Draw(rt, "copies") {
				c.step(files(t, source))
				got := pull(t, r)
				for _, a := range authors {
					if n := len(got[a.Device]); n > len(a.Ops) {
						rt.Fatalf("%d ops of %s, only %d were written", n, a.Device, len(a.Ops))
					}
					wantOps(t, got[a.Device], a.Ops[:len(got[a.Device])])
				}
			}
		}
		copyTree(t, source, dest) // everything arrives at last
		for _, h := range []*dir.Relay{r, open(t, dir.Config{Path: dest})} {
			got := pull(t, h)
			for _, a := range authors {
				if len(got[a.Device]) != len(a.Ops) {
					rt.Fatalf("%s: %d of %d ops in the end; %+v", a.Device, len(got[a.Device]), len(a.Ops), report(t, h))
				}
				wantOps(t, got[a.Device], a.Ops)
			}
			if rep := report(t, h); len(rep.Forks)+len(rep.Waiting) != 0 {
				rt.Fatalf("everything is there, and yet %+v", rep)
			}
		}
	})
}

func TestASegmentThatArrivesBeforeTheOneBeforeItWaits(t *testing.T) {
	source, dest := t.TempDir(), t.TempDir()
	w, a := open(t, dir.Config{Path: source, SegmentBytes: 1}), relaytest.NewAuthor("a")
	for range 4 {
		push(t, w, a.Write(t, 2, 60))
	}
	all := files(t, source)
	r := at(t, dest)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return !strings.HasSuffix(n, ".jsonl") })
	if len(names) != 4 {
		t.Fatalf("segments %v, expected 4", names)
	}
	want := []int{0, 0, 0, 8}
	for i, n := range []int{3, 1, 2, 0} {
		put(t, filepath.Join(dest, names[n]), all[names[n]])
		if got := pull(t, r)["a"]; len(got) != want[i] {
			t.Errorf("with %d segments there, %d ops, expected %d", i+1, len(got), want[i])
		}
		page, err := r.Pull(t.Context(), "z", relayWant)
		if err != nil || len(page.Broken) != 0 {
			t.Errorf("a chain that waits for a file is called broken: %v, %v", page.Broken, err)
		}
		if rep := report(t, r); (len(rep.Waiting) == 1) != (want[i] == 0) {
			t.Errorf("waiting: %+v", rep.Waiting)
		}
	}
}

// Two machines with one device id, each with its own copy of the folder: nobody can tell them at once, and nobody may
// miss it afterwards.
func TestAForkThatCameByTwoFoldersIsSeenAfterwards(t *testing.T) {
	rnd := seeded(t)
	one, two := t.TempDir(), t.TempDir()
	a := relaytest.NewAuthor("a")
	first := at(t, one)
	push(t, first, a.Write(t, 3, 60))
	copyTree(t, one, two)
	second := at(t, two)
	clone := a.Clone(3)
	watcher := at(t, two)
	pull(t, watcher)
	push(t, first, a.Write(t, 1+rnd.IntN(3), 60))
	push(t, second, clone.Write(t, 1+rnd.IntN(3), 60))
	pull(t, watcher)
	copyTree(t, one, two) // the synchroniser lets the first one win
	if _, err := second.Push(t.Context(), "a", clone.Write(t, 1, 60)); !isForkOrGap(err) {
		t.Errorf("the clone's next push: %v", err)
	}
	if _, err := second.Push(t.Context(), "a", clone.Ops); !isFork(err) {
		t.Errorf("the clone offers all its ops: %v, expected a fork", err)
	}
	info, err := second.Hello(t.Context(), "a")
	if err != nil || info.Head.ID != a.Ops[len(a.Ops)-1].ID {
		t.Errorf("hello does not tell the head that is in the folder: %+v, %v", info.Head, err)
	}
	wantOps(t, pull(t, watcher)["a"], a.Ops)
	if rep := report(t, watcher); len(rep.Forks) == 0 && len(rep.Lost) == 0 {
		t.Errorf("whoever saw both branches says nothing: %+v", rep)
	}
}
