package dir_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// checkpointOf makes one with a body of its own that covers the first n ops of each author.
func checkpointOf(author string, n int, of ...*relaytest.Author) relay.Checkpoint {
	c := relay.Checkpoint{Author: author, Frontier: oplog.Frontier{}}
	for _, a := range of {
		c.Frontier[a.Device] = oplog.Pos{Seq: uint64(n - 1), ID: a.Ops[n-1].ID}
	}
	return sealed(c)
}

func sealed(c relay.Checkpoint) relay.Checkpoint {
	c.Body = fmt.Appendf(nil, "%s folded %v closed %v", c.Author, c.Frontier, c.Closed)
	sum := sha256.Sum256(c.Body)
	c.Hash = hex.EncodeToString(sum[:])
	return c
}

func headsAt(n int, of ...*relaytest.Author) oplog.Heads {
	h := oplog.Heads{}
	for _, a := range of {
		op := a.Ops[n-1]
		h[a.Device] = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
	}
	return h
}

// A house is a folder whose clock the test moves, and the handle of each device to it.
type house struct {
	t    *testing.T
	root string
	now  time.Time
}

func newHouse(t *testing.T) *house {
	return &house{t: t, root: t.TempDir(), now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
}

func (h *house) handle() *dir.Relay {
	return open(h.t, dir.Config{FS: newSwift(h.t, h.root), SegmentBytes: 900, Now: func() time.Time { return h.now }})
}

func (h *house) do(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// joined is a replica that has acked the first n ops of all authors.
func (h *house) joined(r relay.Relay, device string, n int, of ...*relaytest.Author) {
	h.t.Helper()
	h.do(r.Register(h.t.Context(), device, relay.Replica))
	h.do(r.Ack(h.t.Context(), device, checkpointOf(device, n, of...).Frontier))
}

func (h *house) collect(r relay.Collector) relay.Collection {
	h.t.Helper()
	done, err := r.Collect(h.t.Context())
	h.do(err)
	return done
}

// changed names the folders of the devices that a call changed files of.
func (h *house) changed(call func()) []string {
	h.t.Helper()
	before := files(h.t, h.root)
	call()
	after, names := files(h.t, h.root), map[string]bool{}
	for _, m := range []map[string]string{before, after} {
		for name := range m {
			if before[name] != after[name] {
				names[strings.Split(name, "/")[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func TestADeviceCollectsItsOwnChainAndWritesItsOwnFilesOnly(t *testing.T) {
	h := newHouse(t)
	a, b := relaytest.NewAuthor("a"), relaytest.NewAuthor("b")
	ra, rb := h.handle(), h.handle()
	for range 6 {
		push(t, ra, a.Write(t, 5, 60))
		push(t, rb, b.Write(t, 5, 60))
	}
	h.joined(ra, "a", 30, a, b)
	h.joined(rb, "b", 30, a, b)
	c := checkpointOf("a", 20, a, b)
	own := func(what string, call func()) {
		t.Helper()
		if got := h.changed(call); !slices.Equal(got, []string{"d-a"}) {
			t.Errorf("%s by a changed files of %v", what, got)
		}
	}
	own("a checkpoint", func() { h.do(ra.PutCheckpoint(t.Context(), "a", c)) })
	own("marking", func() {
		done := h.collect(ra)
		if done.Marked["a"] != 20 || len(done.Marked) != 1 || done.Reasons["b"] != (relay.Reason{Cause: relay.Elsewhere, Replica: "b"}) {
			t.Errorf("collected %+v", done)
		}
	})
	h.now = h.now.Add(relay.Grace)
	before := len(files(t, h.root))
	own("deleting", func() {
		if done := h.collect(ra); done.Dropped["a"] != 20 || len(done.Dropped) != 1 {
			t.Errorf("collected %+v", done)
		}
	})
	if after := len(files(t, h.root)); after >= before {
		t.Errorf("%d files, then %d", before, after)
	}
	if done := h.collect(h.handle()); len(done.Dropped)+len(done.Marked) != 0 || done.Reasons["b"].Cause != relay.Elsewhere {
		t.Errorf("a handle that acts for nobody collected %+v", done)
	}
	if _, err := h.handle().Pull(t.Context(), "z", relay.Want{}); !errors.Is(err, relay.ErrFrontierTruncated) {
		t.Errorf("a pull from nothing: %v", err)
	}
	h.collect(rb)
	h.now = h.now.Add(relay.Grace)
	if done := h.collect(rb); done.Dropped["b"] != 20 {
		t.Errorf("b collected %+v", done)
	}
	push(t, ra, a.Write(t, 3, 60))
	for _, r := range []*dir.Relay{ra, rb, h.handle()} {
		page, err := r.Pull(t.Context(), "z", relay.Want{Held: c.Frontier})
		if err != nil || len(page.Ops) != 23 || len(page.Broken) > 0 {
			t.Errorf("%d ops above the floors, %v, %v", len(page.Ops), page.Broken, err)
		}
		if rep := report(t, r); len(rep.Forks)+len(rep.Lost)+len(rep.Waiting)+len(rep.Oddities) > 0 {
			t.Errorf("report %+v", rep)
		}
	}
}

// Neither of two checkpoints that were put in two copies of a folder covers the other: nothing goes that one of them lacks, whoever reads
// either can go on, and one that covers both ends it.
func TestTwoCheckpointsThatWerePutApartHoldEachOthersOpsUntilOneCoversBoth(t *testing.T) {
	one, two := newHouse(t), newHouse(t)
	a, b := relaytest.NewAuthor("a"), relaytest.NewAuthor("b")
	ra, rb := one.handle(), two.handle()
	push(t, ra, a.Write(t, 20, 60))
	push(t, rb, b.Write(t, 20, 60))
	copyTree(t, filepath.Join(one.root, "devices", "d-a"), filepath.Join(two.root, "devices", "d-a"))
	copyTree(t, filepath.Join(two.root, "devices", "d-b"), filepath.Join(one.root, "devices", "d-b"))
	one.joined(ra, "a", 20, a, b)
	two.joined(rb, "b", 20, a, b)
	ca, cb := checkpointOf("a", 15, a), checkpointOf("b", 15, b)
	ca.Frontier["b"], cb.Frontier["a"] = checkpointOf("", 5, b).Frontier["b"], checkpointOf("", 5, a).Frontier["a"]
	ca, cb = sealed(ca), sealed(cb)
	one.do(ra.PutCheckpoint(t.Context(), "a", ca))
	two.do(rb.PutCheckpoint(t.Context(), "b", cb))
	swap := func() {
		copyTree(t, filepath.Join(one.root, "devices", "d-a"), filepath.Join(two.root, "devices", "d-a"))
		copyTree(t, filepath.Join(two.root, "devices", "d-b"), filepath.Join(one.root, "devices", "d-b"))
	}
	swap()
	for range 3 {
		one.now, two.now = one.now.Add(relay.Grace), two.now.Add(relay.Grace)
		one.collect(ra)
		two.collect(rb)
		swap()
	}
	for _, r := range []*dir.Relay{ra, rb, one.handle(), two.handle()} {
		info, err := r.Hello(t.Context(), "z")
		if err != nil || info.Floor["a"].Seq != 4 || info.Floor["b"].Seq != 4 {
			t.Errorf("the floor is %v, %v; expected what both checkpoints cover", info.Floor, err)
		}
		for _, c := range []relay.Checkpoint{ca, cb} {
			if _, err := r.Pull(t.Context(), "z", relay.Want{Held: c.Frontier}); err != nil {
				t.Errorf("who began at the checkpoint of %s: %v", c.Author, err)
			}
		}
		got, ok, err := r.Checkpoint(t.Context())
		if err != nil || !ok || got.Hash != max(ca.Hash, cb.Hash) && got.Hash != min(ca.Hash, cb.Hash) || got.Hash != info.Checkpoint {
			t.Errorf("the newest is %.12s, %v, hello says %.12s", got.Hash, err, info.Checkpoint)
		}
	}
	over := checkpointOf("a", 15, a, b)
	less := checkpointOf("a", 16, a)
	less.Frontier["b"] = ca.Frontier["b"]
	if err := ra.PutCheckpoint(t.Context(), "a", sealed(less)); !errors.Is(err, relay.ErrBehind) {
		t.Errorf("one that covers only one of them: %v, expected ErrBehind", err)
	}
	one.do(ra.PutCheckpoint(t.Context(), "a", over))
	swap()
	for range 3 {
		one.now, two.now = one.now.Add(relay.Grace), two.now.Add(relay.Grace)
		one.collect(ra)
		two.collect(rb)
		swap()
	}
	for _, r := range []*dir.Relay{one.handle(), two.handle()} {
		if info, err := r.Hello(t.Context(), "z"); err != nil || !info.Floor.Equal(over.Frontier) || info.Checkpoint != over.Hash {
			t.Errorf("in the end %+v, %v", info, err)
		}
	}
	for _, root := range []string{one.root, two.root} {
		n := 0
		for name := range files(t, root) {
			if strings.HasSuffix(name, ".bin") && strings.Contains(name, "d-"+map[string]string{one.root: "a", two.root: "b"}[root]) {
				n++
			}
		}
		if root == one.root && n != 1 || root == two.root && n != 0 {
			t.Errorf("the device keeps %d checkpoints in the folder", n)
		}
	}
}

func TestAFloorWhoseCheckpointHasNotArrivedStopsItsOwnChainOnly(t *testing.T) {
	h := newHouse(t)
	a, b := relaytest.NewAuthor("a"), relaytest.NewAuthor("b")
	r := h.handle()
	for range 4 {
		push(t, r, a.Write(t, 5, 60))
	}
	push(t, r, b.Write(t, 3, 60))
	h.joined(r, "a", 20, a)
	h.do(r.PutCheckpoint(t.Context(), "a", checkpointOf("a", 20, a)))
	h.collect(r)
	h.now = h.now.Add(relay.Grace)
	h.collect(r)
	late := newHouse(t)
	var held []string
	for name, data := range files(t, h.root) {
		if strings.HasSuffix(name, ".bin") {
			held = append(held, name)
			continue
		}
		put(t, filepath.Join(late.root, name), data)
	}
	z := late.handle()
	page, err := z.Pull(t.Context(), "z", relay.Want{})
	if err != nil || len(page.Ops) != 3 || !errors.Is(page.Broken["a"], relay.ErrCorrupt) {
		t.Errorf("%d ops, broken %v, %v; expected those of b, and a told", len(page.Ops), page.Broken, err)
	}
	for _, name := range held {
		put(t, filepath.Join(late.root, name), files(t, h.root)[name])
	}
	if _, err := z.Pull(t.Context(), "z", relay.Want{}); !errors.Is(err, relay.ErrFrontierTruncated) {
		t.Errorf("with the checkpoint there: %v, expected ErrFrontierTruncated", err)
	}
}

func TestAHalfCopiedCheckpointIsShownAndAnotherServes(t *testing.T) {
	h := newHouse(t)
	a := relaytest.NewAuthor("a")
	r := h.handle()
	push(t, r, a.Write(t, 20, 60))
	low, high := checkpointOf("a", 5, a), checkpointOf("b", 15, a)
	h.do(r.PutCheckpoint(t.Context(), "a", low))
	h.do(r.PutCheckpoint(t.Context(), "b", high))
	name := "devices/d-b/checkpoints/" + high.Hash + ".bin"
	whole := files(t, h.root)[name]
	if whole == "" {
		t.Fatalf("there is no %s", name)
	}
	line := strings.IndexByte(whole, '\n')
	for what, text := range map[string]string{
		"empty": "", "half of the line": whole[:line/2], "the line": whole[:line+1], "half of the body": whole[:line+10], "too long": whole + "x",
		"another's": strings.Replace(whole, `"device":"b"`, `"device":"a"`, 1), "newer": strings.Replace(whole, `"v":1`, `"v":2`, 1),
		"a bad frontier": strings.Replace(whole, `"seq":14`, `"seq":-1`, 1), "zeros": strings.Repeat("\x00", len(whole)),
	} {
		put(t, filepath.Join(h.root, name), text)
		for _, x := range []*dir.Relay{r, h.handle()} {
			got, ok, err := x.Checkpoint(t.Context())
			if err != nil || !ok || got.Hash != low.Hash {
				t.Errorf("%s: the newest is %.12s, %v, %v; expected the one that is whole", what, got.Hash, ok, err)
			}
			if len(reasons(report(t, x), high.Hash+".bin")) != 1 {
				t.Errorf("%s: not in the report", what)
			}
		}
	}
	put(t, filepath.Join(h.root, name), whole)
	if got, _, err := r.Checkpoint(t.Context()); err != nil || got.Hash != high.Hash {
		t.Errorf("whole again: %.12s, %v", got.Hash, err)
	}
	h.do(os.RemoveAll(filepath.Join(h.root, "devices", "d-a", "checkpoints")))
	put(t, filepath.Join(h.root, name), whole[:line+5])
	h.joined(r, "a", 20, a)
	if done := h.collect(r); done.Reasons["a"].Cause != relay.BadCheckpoint || len(done.Marked) > 0 {
		t.Errorf("with nothing but half a checkpoint: %+v", done)
	}
	h.do(os.Remove(filepath.Join(h.root, name)))
	if done := h.collect(r); done.Reasons["a"].Cause != relay.NoCheckpoint || len(done.Marked) > 0 {
		t.Errorf("with no checkpoint: %+v", done)
	}
}

func TestStrangeNamesBesideCheckpointsAndFloorsAreIgnoredShownAndLeftAlone(t *testing.T) {
	h := newHouse(t)
	a := relaytest.NewAuthor("a")
	r := h.handle()
	for range 4 {
		push(t, r, a.Write(t, 5, 60))
	}
	h.joined(r, "a", 20, a)
	c := checkpointOf("a", 15, a)
	h.do(r.PutCheckpoint(t.Context(), "a", c))
	h.collect(r)
	all := files(t, h.root)
	floor, ck := "devices/d-a/floor.json", "devices/d-a/checkpoints/"+c.Hash+".bin"
	if all[floor] == "" || all[ck] == "" {
		t.Fatalf("files %v", slices.Sorted(maps.Keys(all)))
	}
	for name, data := range map[string]string{
		"devices/d-a/floor.sync-conflict-20260102-030405-ABCDEFG.json":                     all[floor],
		"devices/d-a/floor (1).json":                                                       all[floor],
		"devices/d-a/checkpoints/" + c.Hash + " (1).bin":                                   all[ck],
		"devices/d-a/checkpoints/" + c.Hash + ".sync-conflict-20260102-030405-ABCDEFG.bin": all[ck],
		"devices/d-a/checkpoints/" + strings.ToUpper(c.Hash) + ".bin":                      all[ck],
		"devices/d-a/checkpoints/." + c.Hash + ".bin.tmp":                                  all[ck],
		"devices/d-a/checkpoints/x.bin":                                                    all[ck],
		"devices/d-a/checkpoints/" + strings.Repeat("0", 64) + ".bin":                      all[ck],
		"devices/d-a/checkpoints/" + strings.Repeat("1", 64) + ".bin/x":                    "a directory named like a file",
	} {
		put(t, filepath.Join(h.root, name), data)
	}
	h.do(os.Symlink("../floor.json", filepath.Join(h.root, "devices/d-a/checkpoints", strings.Repeat("2", 64)+".bin")))
	before := files(t, h.root)
	fresh := h.handle()
	if got, ok, err := fresh.Checkpoint(t.Context()); err != nil || !ok || got.Hash != c.Hash {
		t.Errorf("the newest is %.12s, %v, %v", got.Hash, ok, err)
	}
	if info, err := fresh.Hello(t.Context(), "a"); err != nil || !info.Floor.Equal(c.Frontier) || info.Head.Seq != 19 {
		t.Errorf("hello %+v, %v", info, err)
	}
	if n := len(report(t, fresh).Oddities); n != 10 {
		t.Errorf("%d oddities, expected 10: %+v", n, report(t, fresh).Oddities)
	}
	h.now = h.now.Add(relay.Grace)
	h.collect(fresh)
	after := files(t, h.root)
	for name, data := range before {
		if !strings.Contains(name, "/segments/") && name != floor && !strings.HasSuffix(name, "beat.json") && after[name] != data {
			t.Errorf("a collection changed %s", name)
		}
	}
	// something that is no file in the place of the floor: it cannot be noted, and nothing goes
	other := newHouse(t)
	put(t, filepath.Join(other.root, "devices/d-a/floor.json/x"), "")
	r = other.handle()
	push(t, r, a.Ops[:0])
	if _, err := r.Push(t.Context(), "a", a.Ops[:10]); err != nil {
		t.Fatal(err)
	}
	other.joined(r, "a", 10, a)
	other.do(r.PutCheckpoint(t.Context(), "a", checkpointOf("a", 5, a)))
	if done, err := r.Collect(t.Context()); err == nil || len(done.Dropped) > 0 {
		t.Errorf("collected %+v, %v", done, err)
	}
	if got := pull(t, other.handle())["a"]; len(got) != 10 {
		t.Errorf("%d ops are left", len(got))
	}
}

// A folder put back from yesterday, floors and all, under a handle that lives on and for one that is opened anew.
func TestAFolderPutBackFromYesterdayGoesOnFromWhereItsDevicesAre(t *testing.T) {
	for _, seeds := range []bool{false, true} {
		h := newHouse(t)
		a, b := relaytest.NewAuthor("a"), relaytest.NewAuthor("b")
		r := h.handle()
		round := func(n int) {
			for range 4 {
				push(t, r, a.Write(t, 5, 60))
				push(t, r, b.Write(t, 5, 60))
			}
			h.joined(r, "a", n, a, b)
			h.do(r.PutCheckpoint(t.Context(), "a", checkpointOf("a", n, a, b)))
			for range 2 {
				h.collect(r)
				h.now = h.now.Add(relay.Grace)
			}
		}
		round(20)
		yesterday := files(t, h.root)
		round(40)
		h.do(os.RemoveAll(filepath.Join(h.root, "devices")))
		for name, data := range yesterday {
			put(t, filepath.Join(h.root, name), data)
		}
		if seeds { // what is below 40 is kept by nobody
			h.do(r.Seed(t.Context(), "a", checkpointOf("a", 40, a, b), headsAt(40, a, b)))
		}
		for _, x := range []*relaytest.Author{a, b} {
			info, err := r.Hello(t.Context(), x.Device)
			h.do(err)
			push(t, r, x.Write(t, 3, 60)[:0])
			push(t, r, x.Ops[info.Head.Seq+1:])
		}
		c := checkpointOf("a", 40, a, b)
		if !seeds {
			c = checkpointOf("a", 20, a, b)
			fresh := h.handle() // the owners offer again what a new handle lacks
			for _, x := range []*relaytest.Author{a, b} {
				info, err := fresh.Hello(t.Context(), x.Device)
				h.do(err)
				push(t, fresh, x.Ops[info.Head.Seq+1:])
			}
		}
		for _, x := range []*dir.Relay{r, h.handle()} {
			held := c.Frontier
			if info, err := x.Hello(t.Context(), "z"); err != nil || info.Head.Seq != 0 || info.Heads["a"] != a.Head() || info.Heads["b"] != b.Head() {
				t.Fatalf("seeded %v: hello %+v, %v; expected the heads %v and %v; %+v", seeds, info, err, a.Head(), b.Head(), report(t, x))
			} else if info.Floor["a"].Seq > held["a"].Seq {
				held = checkpointOf("a", 40, a, b).Frontier
			}
			page, err := x.Pull(t.Context(), "z", relay.Want{Held: held})
			if err != nil || len(page.Ops) != 2*(43-int(held["a"].Seq)-1) {
				t.Errorf("seeded %v: %d ops above %v, %v", seeds, len(page.Ops), held, err)
			}
		}
	}
}
