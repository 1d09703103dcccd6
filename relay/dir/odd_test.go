package dir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// reasons gives the reasons that the report has for paths ending in suffix.
func reasons(rep dir.Report, suffix string) []string {
	var all []string
	for _, o := range rep.Oddities {
		if strings.HasSuffix(o.Path, suffix) {
			all = append(all, o.Reason)
		}
	}
	return all
}

func TestWhateverLiesInTheFolderIsIgnoredShownAndLeftAlone(t *testing.T) {
	root := t.TempDir()
	a := relaytest.NewAuthor("a")
	push(t, at(t, root), a.Write(t, 3, 60))
	good, err := os.ReadFile(filepath.Join(root, segmentA))
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	put(t, outside, string(good))
	for name, make := range map[string]func(path string) error{
		"devices/d-a/segments/0000000000000000.sync-conflict-20260102-030405-ABCDEFG.jsonl": nil,
		"devices/d-a/segments/0000000000000000 (1).jsonl":                                   nil,
		"devices/d-a/segments/0000000000000000 (conflicted copy 2026-01-02).jsonl":          nil,
		"devices/d-a/segments/0000000000000000-DESKTOP.jsonl":                               nil,
		"devices/d-a/segments/0000000000000000.jsonl~":                                      nil,
		"devices/d-a/segments/~syncthing~0000000000000000.jsonl.tmp":                        nil,
		"devices/d-a/segments/.0000000000000000.jsonl.tmp":                                  nil,
		"devices/d-a/segments/000000000000000a.jsonl":                                       nil,
		"devices/d-a/segments/0.jsonl":                                                      nil,
		"devices/d-a/segments/9999999999999999.jsonl":                                       nil, // beyond any seq
		"devices/d-a/segments/0000000000000002.jsonl":                                       func(p string) error { return os.Mkdir(p, 0o700) },
		"devices/d-a/segments/0000000000000001.jsonl":                                       func(p string) error { return os.Symlink(outside, p) },
		"devices/d-a/segments/0000000000000003.jsonl":                                       func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"devices/d-a/beat.sync-conflict-20260102-030405-ABCDEFG.json":                       nil,
		"devices/d-a/role.json":                                                             func(p string) error { return os.Mkdir(p, 0o700) },
		"devices/d-a (1)":                                                                   func(p string) error { return os.Mkdir(p, 0o700) },
		"devices/d-A":                                                                       func(p string) error { return os.Mkdir(p, 0o700) },
		"devices/d-link":                                                                    func(p string) error { return os.Symlink("d-a", p) },
		"devices/d-file":                                                                    nil,
		"devices/.stfolder":                                                                 func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		path := filepath.Join(root, name)
		if make == nil {
			make = func(p string) error { return os.WriteFile(p, good, 0o600) }
		}
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		before := files(t, root)
		r := at(t, root)
		got := pull(t, r)
		wantOps(t, got["a"], a.Ops)
		if len(got) != 1 {
			t.Errorf("%s: chains of %d devices", name, len(got))
		}
		if found := reasons(report(t, r), filepath.Base(name)); len(found) == 0 {
			t.Errorf("%s is not in the report", name)
		}
		push(t, r, a.Write(t, 1, 60))
		wantOps(t, pull(t, at(t, root))["a"], a.Ops)
		for file, data := range before {
			if file != segmentA && !strings.HasSuffix(file, "beat.json") && files(t, root)[file] != data {
				t.Errorf("%s: a push changed %s", name, file)
			}
		}
	}
	if data, err := os.ReadFile(outside); err != nil || !bytes.Equal(data, good) {
		t.Errorf("the file behind a link was changed: %v", err)
	}
}

func TestAPushNeverFollowsALinkInPlaceOfItsOwnFiles(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	put(t, outside, "precious")
	put(t, filepath.Join(root, "devices/d-a/segments/x"), "")
	for _, name := range []string{segmentA, "devices/d-a/ack.json", "devices/d-a/beat.json", "devices/d-a/role.json"} {
		if err := os.Symlink(outside, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	r, a := at(t, root), relaytest.NewAuthor("a")
	if _, err := r.Push(t.Context(), "a", a.Write(t, 1, 60)); !errors.Is(err, relay.ErrCorrupt) {
		t.Errorf("push through a link: %v, expected ErrCorrupt", err)
	}
	_ = r.Ack(t.Context(), "a", nil)
	_ = r.Register(t.Context(), "a", relay.Replica)
	if data, err := os.ReadFile(outside); err != nil || string(data) != "precious" {
		t.Errorf("the file behind the link holds %q, %v", data, err)
	}
}

func TestADamagedOpStopsItsChainUntilItsOwnerOffersItAgain(t *testing.T) {
	for _, segment := range []int64{0, 800} {
		root := t.TempDir()
		cfg := dir.Config{Path: root, SegmentBytes: segment}
		r, a, b := open(t, cfg), relaytest.NewAuthor("a"), relaytest.NewAuthor("b")
		for range 9 {
			push(t, r, a.Write(t, 1, 60))
		}
		push(t, r, b.Write(t, 2, 60))
		wantOps(t, pull(t, r)["a"], a.Ops)
		damage(t, root, a.Ops[4])
		fresh := open(t, cfg)
		got := pull(t, fresh)
		wantOps(t, got["a"], a.Ops[:4])
		wantOps(t, got["b"], b.Ops)
		rep := report(t, fresh)
		if len(rep.Waiting) != 1 || rep.Waiting[0].Device != "a" || rep.Waiting[0].Next != 4 {
			t.Errorf("waiting: %+v, expected a at seq 4", rep.Waiting)
		}
		page, err := fresh.Pull(t.Context(), "z", relay.Want{Held: oplog.Frontier{"a": {Seq: 3, ID: a.Ops[3].ID}}})
		if err != nil || !errors.Is(page.Broken["a"], relay.ErrCorrupt) {
			t.Errorf("the page does not say that the chain is broken: %v, %v", page.Broken, err)
		}
		page, err = r.Pull(t.Context(), "z", relay.Want{}) // this handle has read the op before it was damaged
		if err != nil || len(page.Ops) != 4+len(b.Ops) || !errors.Is(page.Broken["a"], relay.ErrCorrupt) {
			t.Errorf("an older handle gives %d ops, broken %v, %v", len(page.Ops), page.Broken, err)
		}
		owner := open(t, cfg)
		info, err := owner.Hello(t.Context(), "a")
		if err != nil || info.Head.Seq != 3 {
			t.Fatalf("the owner is told the head %+v, %v; expected seq 3", info.Head, err)
		}
		push(t, owner, a.Ops[4:])
		push(t, owner, a.Write(t, 3, 60))
		for _, h := range []*dir.Relay{r, fresh, owner, open(t, cfg)} {
			wantOps(t, pull(t, h)["a"], a.Ops)
			if rep := report(t, h); len(rep.Waiting)+len(rep.Forks) != 0 {
				t.Errorf("healed, and yet %+v", rep)
			}
		}
	}
}

// damage flips a bit in the stored line of an op.
func damage(t *testing.T, root string, op oplog.Op) {
	t.Helper()
	for name, data := range files(t, root) {
		if i := strings.Index(data, string(op.AppendLine(nil))); i >= 0 {
			b := []byte(data)
			b[i+len(op.AppendLine(nil))-5] ^= 1
			put(t, filepath.Join(root, name), string(b))
			return
		}
	}
	t.Fatalf("op %d is in no file", op.Seq)
}

func TestADamagedFileThatIsCopiedAgainHeals(t *testing.T) {
	root := t.TempDir()
	a := relaytest.NewAuthor("a")
	w := at(t, root)
	push(t, w, a.Write(t, 5, 60))
	good := files(t, root)[segmentA]
	damage(t, root, a.Ops[2])
	r := at(t, root)
	wantOps(t, pull(t, r)["a"], a.Ops[:2])
	put(t, filepath.Join(root, segmentA), good+"\n") // the same content, at another time
	wantOps(t, pull(t, r)["a"], a.Ops)
}

func TestAHalfCopiedFileCountsUpToItsLastCompleteGroup(t *testing.T) {
	source, a := t.TempDir(), relaytest.NewAuthor("a")
	w := at(t, source)
	for range 3 {
		push(t, w, a.Write(t, 2, 60))
	}
	whole := files(t, source)[segmentA]
	var ends []int // of groups
	for i := 0; i < len(whole); i++ {
		if strings.HasSuffix(whole[:i+1], "\n\n") {
			ends = append(ends, i+1)
		}
	}
	root := t.TempDir()
	r := at(t, root)
	for n := 0; n <= len(whole); n += 7 {
		put(t, filepath.Join(root, segmentA), whole[:n])
		groups := 0
		for _, end := range ends[1:] { // the first is the header's
			if end <= n {
				groups++
			}
		}
		wantOps(t, pull(t, r)["a"], a.Ops[:2*groups])
	}
	put(t, filepath.Join(root, segmentA), whole)
	wantOps(t, pull(t, r)["a"], a.Ops)
}

func TestAnUnreadableRoleOrAckHoldsTheStableFrontierBack(t *testing.T) {
	root, a := t.TempDir(), relaytest.NewAuthor("a")
	w := at(t, root)
	push(t, w, a.Write(t, 3, 60))
	all := oplog.Frontier{"a": {Seq: 2, ID: a.Ops[2].ID}}
	for _, device := range []string{"a", "b"} {
		if err := errors.Join(w.Register(t.Context(), device, relay.Replica), w.Ack(t.Context(), device, all)); err != nil {
			t.Fatal(err)
		}
	}
	stable := func(r *dir.Relay) oplog.Frontier {
		roster, err := r.Roster(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return relay.Stable(roster)
	}
	if got := stable(at(t, root)); !got.Equal(all) {
		t.Fatalf("stable is %v", got)
	}
	ack := files(t, root)["devices/d-b/ack.json"]
	for name, text := range map[string]string{"half": ack[:len(ack)/2], "empty": "", "another's": strings.ReplaceAll(ack, `"device":"b"`, `"device":"a"`), "newer": strings.Replace(ack, `"v":1`, `"v":2`, 1)} {
		put(t, filepath.Join(root, "devices/d-b/ack.json"), text)
		fresh := at(t, root)
		if got := stable(fresh); len(got) != 0 {
			t.Errorf("%s: stable is %v though the ack of a replica cannot be read", name, got)
		}
		if len(reasons(report(t, fresh), "d-b/ack.json")) != 1 {
			t.Errorf("%s: not in the report", name)
		}
	}
	if err := at(t, root).Ack(t.Context(), "b", all); err != nil && !errors.Is(err, relay.ErrCorrupt) {
		t.Errorf("ack over an unreadable one: %v", err)
	}
	put(t, filepath.Join(root, "devices/d-b/ack.json"), "")
	put(t, filepath.Join(root, "devices/d-b/role.json"), "{")
	if got := stable(at(t, root)); len(got) != 0 {
		t.Errorf("stable is %v though the role of a device cannot be read", got)
	}
}

func TestAnOlderAckThatArrivesLateDoesNoHarm(t *testing.T) {
	root, a := t.TempDir(), relaytest.NewAuthor("a")
	w, r := at(t, root), at(t, root)
	push(t, w, a.Write(t, 3, 60))
	var old string
	for i := range 3 {
		if err := w.Ack(t.Context(), "b", oplog.Frontier{"a": {Seq: uint64(i), ID: a.Ops[i].ID}}); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			old = files(t, root)["devices/d-b/ack.json"]
		}
	}
	for range 2 {
		roster, err := r.Roster(t.Context())
		if i := slices.IndexFunc(roster, func(m relay.Member) bool { return m.Device == "b" }); err != nil || roster[i].Acked["a"].Seq != 2 {
			t.Errorf("roster %+v, %v", roster, err)
		}
		put(t, filepath.Join(root, "devices/d-b/ack.json"), old)
	}
}

func TestOpsOfAnotherDeviceInAFolderDoNotCount(t *testing.T) {
	root, a := t.TempDir(), relaytest.NewAuthor("a")
	push(t, at(t, root), a.Write(t, 3, 60))
	lines := strings.SplitN(files(t, root)[segmentA], "\n\n", 2)[1]
	put(t, filepath.Join(root, strings.Replace(segmentA, "d-a", "d-b", 1)),
		`{"relay":"syncnode","v":1,"device":"b","base":0}`+"\n\n"+lines)
	r := at(t, root)
	if got := pull(t, r); len(got) != 1 || len(got["a"]) != 3 {
		t.Errorf("chains %v", len(got))
	}
	if found := reasons(report(t, r), strings.Replace(segmentA, "d-a", "d-b", 1)); !slices.Contains(found, "ops of another device") {
		t.Errorf("the report says %v", found)
	}
}

func TestASegmentOfANewerReleaseIsLeftAlone(t *testing.T) {
	root, a, b := t.TempDir(), relaytest.NewAuthor("a"), relaytest.NewAuthor("b")
	w := at(t, root)
	push(t, w, a.Write(t, 3, 60))
	push(t, w, b.Write(t, 3, 60))
	newer := strings.Replace(files(t, root)[segmentA], `"v":1`, `"v":2`, 1)
	put(t, filepath.Join(root, segmentA), newer)
	r := at(t, root)
	got := pull(t, r)
	wantOps(t, got["b"], b.Ops)
	if len(got["a"]) != 0 {
		t.Errorf("%d ops were read of a format that is not known", len(got["a"]))
	}
	if _, err := r.Push(t.Context(), "a", a.Ops); !errors.Is(err, relay.ErrCorrupt) {
		t.Errorf("push: %v, expected ErrCorrupt", err)
	}
	if files(t, root)[segmentA] != newer {
		t.Error("the file was changed")
	}
}

func TestAHugeFileIsReadUpToALimitAndStopsNobody(t *testing.T) {
	root, a, b := t.TempDir(), relaytest.NewAuthor("a"), relaytest.NewAuthor("b")
	w := at(t, root)
	push(t, w, a.Write(t, 3, 60))
	push(t, w, b.Write(t, 3, 60))
	if err := os.Truncate(filepath.Join(root, segmentA), 1<<33); err != nil { // sparse
		t.Fatal(err)
	}
	r := at(t, root)
	wantOps(t, pull(t, r)["a"], a.Ops)
	push(t, r, a.Write(t, 2, 60))
	got := pull(t, at(t, root))
	wantOps(t, got["a"], a.Ops)
	wantOps(t, got["b"], b.Ops)
	if found := fmt.Sprint(reasons(report(t, r), segmentA)); !strings.Contains(found, "only the first") {
		t.Errorf("the report says %s", found)
	}
}

func TestDevicesWhoseNamesDifferOnlyByCaseHaveFoldersOfTheirOwn(t *testing.T) {
	root := t.TempDir()
	r := at(t, root)
	all := map[string]*relaytest.Author{}
	for _, device := range []string{"node", "Node", "NODE", "nOdE", "con", "a.b", "a.B", strings.Repeat("X", 128), strings.Repeat("x", 128), "x..", "x.sync-conflict-1"} {
		all[device] = relaytest.NewAuthor(device)
		push(t, r, all[device].Write(t, 2, 60))
	}
	got := pull(t, at(t, root))
	for device, a := range all {
		wantOps(t, got[device], a.Ops)
	}
	entries, err := os.ReadDir(filepath.Join(root, "devices"))
	if err != nil || len(entries) != len(all) {
		t.Fatalf("%d folders for %d devices, %v", len(entries), len(all), err)
	}
	for _, e := range entries {
		if name := e.Name(); name != strings.ToLower(name) || len(name) > 255 || strings.ContainsAny(name, `. :\*?"<>|~`) {
			t.Errorf("folder name %q is not safe on every file system", name)
		}
	}
	if rep := report(t, r); len(rep.Oddities) != 0 {
		t.Errorf("oddities %v", rep.Oddities)
	}
}

func TestAFolderThatHasToBeThereIsNotMade(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	for _, namespace := range []string{"", "prod"} {
		if _, err := dir.Open(dir.Config{Path: shared, Namespace: namespace, Existing: true}); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, relay.ErrNotSent) {
			t.Errorf("namespace %q: %v", namespace, err)
		}
		if _, err := os.Stat(shared); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("namespace %q: made: %v", namespace, err)
		}
	}
	open(t, dir.Config{Path: shared, Namespace: "prod"})
	open(t, dir.Config{Path: shared, Namespace: "prod", Existing: true})
	if _, err := dir.Open(dir.Config{Path: shared, Namespace: "other", Existing: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another namespace: %v", err)
	}
}

func TestNamespacesThatShareAFolderDoNotMeet(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	in := func(namespace string) *dir.Relay { return open(t, dir.Config{Path: shared, Namespace: namespace}) }
	for _, namespace := range []string{"prod", "Prod", "prod.eu", strings.Repeat("Long", 30)} {
		a := relaytest.NewAuthor("a")
		r := in(namespace)
		push(t, r, a.Write(t, 2, 60))
		wantOps(t, pull(t, in(namespace))["a"], a.Ops)
		if roster, err := r.Roster(t.Context()); err != nil || len(roster) != 1 {
			t.Errorf("%s: %d devices, %v", namespace, len(roster), err)
		}
	}
	if _, err := dir.Open(dir.Config{Path: filepath.Join(shared, "not", "mounted"), Namespace: "prod"}); !errors.Is(err, relay.ErrNotSent) {
		t.Errorf("a folder whose parent is missing: %v", err)
	}
}

func TestAFileReplacedWithinATickOfTheClockByOneOfItsSizeIsSeen(t *testing.T) {
	root, a := t.TempDir(), relaytest.NewAuthor("a")
	push(t, at(t, root), a.Write(t, 5, 60))
	name := filepath.Join(root, segmentA)
	good := files(t, root)[segmentA]
	damage(t, root, a.Ops[2])
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	r := at(t, root)
	wantOps(t, pull(t, r)["a"], a.Ops[:2])
	put(t, name, good)
	if err := os.Chtimes(name, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	wantOps(t, pull(t, r)["a"], a.Ops)
}
