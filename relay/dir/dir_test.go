package dir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// slack is by how much the header of a segment and the generous measure of a line may differ from the size of files.
const slack = 16 << 10

func TestConformance(t *testing.T) {
	t.Parallel()
	segments := map[string]int64{"one segment": 0, "many segments": 2000}
	for name, segment := range thorough.Of(segments, map[string]int64{"many segments": 2000}) {
		t.Run(name, func(t *testing.T) { conform(t, segment, func(t *testing.T) string { return t.TempDir() }) })
	}
}

// conform runs the suite over folders that place makes.
func conform(t *testing.T, segment int64, place func(t *testing.T) string) {
	last := "" // the folder that was made last
	newAt := func(t *testing.T, maxBytes int64, now func() time.Time) func() relay.Relay {
		root := place(t)
		last = root
		return func() relay.Relay {
			return open(t, dir.Config{FS: newSwift(t, root), MaxBytes: maxBytes, SegmentBytes: segment, Poll: time.Millisecond, Now: now})
		}
	}
	relaytest.Run(t, relaytest.Options{
		Slack: slack,
		New:   func(t *testing.T, maxBytes int64) func() relay.Relay { return newAt(t, maxBytes, time.Now) },
		NewAt: newAt,
		Slow:  true,
		Damage: func(t *testing.T, _ relay.Relay) {
			for name, data := range files(t, last) {
				if strings.HasSuffix(name, ".bin") {
					b := []byte(data)
					b[len(b)-3] ^= 1
					put(t, filepath.Join(last, name), string(b))
				}
			}
		},
	})
}

// swift is a folder that waits for no disk: tests of what is answered need none.
type swift struct{ dir.FS }

func newSwift(t testing.TB, root string) swift {
	t.Helper()
	fs, err := dir.OpenFS(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	return swift{fs}
}

func (s swift) SyncDir(string) error { return nil }

func (s swift) Open(name string, flag int) (dir.File, error) {
	f, err := s.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return swiftFile{f}, nil
}

type swiftFile struct{ dir.File }

func (swiftFile) Sync() error { return nil }

func open(t testing.TB, cfg dir.Config) *dir.Relay {
	t.Helper()
	r, err := dir.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func at(t testing.TB, root string) *dir.Relay {
	t.Helper()
	return open(t, dir.Config{Path: root, Poll: time.Millisecond})
}

func push(t testing.TB, r relay.Relay, ops []oplog.Op) {
	t.Helper()
	if len(ops) == 0 {
		return
	}
	if _, err := r.Push(t.Context(), ops[0].Device, ops); err != nil {
		t.Fatalf("push %s/%d: %v", ops[0].Device, ops[0].Seq, err)
	}
}

// pull gives all ops that the folder offers, by device, each verified to continue the one before.
func pull(t testing.TB, r relay.Relay) map[string][]oplog.Op {
	t.Helper()
	got, held := map[string][]oplog.Op{}, oplog.Frontier{}
	for {
		page, err := r.Pull(t.Context(), "puller", relay.Want{Held: held})
		if err != nil {
			t.Fatalf("pull: %v", err)
		}
		for _, op := range page.Ops {
			if op.Seq != held.Next(op.Device) {
				t.Fatalf("pull gave %s/%d, expected seq %d", op.Device, op.Seq, held.Next(op.Device))
			}
			got[op.Device] = append(got[op.Device], op)
			held[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
		}
		if !page.More {
			return got
		}
	}
}

func wantOps(t testing.TB, got, want []oplog.Op) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d ops, expected %d", len(got), len(want))
	}
	for i := range got {
		if got[i].ID != want[i].ID {
			t.Fatalf("op %d is another", i)
		}
	}
}

func report(t testing.TB, r *dir.Relay) dir.Report {
	t.Helper()
	rep, err := r.Report(t.Context())
	if err != nil {
		t.Fatalf("report: %v", err)
	}
	return rep
}

// copyTree copies every file of one folder to another.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	for name, data := range files(t, from) {
		put(t, filepath.Join(to, name), data)
	}
}

// files reads every regular file of a folder.
func files(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(root, name)
		all[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// put writes a file and makes its directories.
func put(t testing.TB, name, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

const segmentA = "devices/d-a/segments/0000000000000000.jsonl"

func TestOpenRefusesAFolderWhoseParentIsNotThere(t *testing.T) {
	if _, err := dir.Open(dir.Config{Path: filepath.Join(t.TempDir(), "mount", "relay")}); !errors.Is(err, relay.ErrNotSent) {
		t.Errorf("got %v: a mount that is not there must not become a folder", err)
	}
	if _, err := dir.Open(dir.Config{}); !errors.Is(err, relay.ErrInvalid) {
		t.Errorf("no path: %v", err)
	}
}

func TestAFolderThatIsGoneIsNotAnEmptyOne(t *testing.T) {
	root := filepath.Join(t.TempDir(), "relay")
	r, a := at(t, root), relaytest.NewAuthor("a")
	push(t, r, a.Write(t, 2, 60))
	if err := os.Rename(filepath.Join(root, "devices"), filepath.Join(root, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	info, err := r.Hello(t.Context(), "a")
	if err != nil || info.Known {
		t.Errorf("hello after the content is gone: %+v, %v", info, err)
	}
	push(t, r, a.Ops) // offered again
	wantOps(t, pull(t, at(t, root))["a"], a.Ops)
}

func TestInstanceIsTheLeastThatAnyDeviceNotedAndOutlivesItsDevice(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	hello := func(root, device string, now time.Time) string {
		r := open(t, dir.Config{Path: root, Now: func() time.Time { return now }})
		info, err := r.Hello(t.Context(), device)
		if err != nil {
			t.Fatal(err)
		}
		return info.Instance
	}
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	a, b := hello(one, "a", now), hello(two, "b", now)
	if a == b {
		t.Fatal("two folders have one instance")
	}
	// Two folders that began apart are brought together.
	for _, m := range [][2]string{{one, two}, {two, one}} {
		copyTree(t, m[0], m[1])
	}
	least := min(a, b)
	for _, root := range []string{one, two} {
		for _, device := range []string{"a", "b", "c"} {
			if got := hello(root, device, now.Add(48*time.Hour)); got != least {
				t.Errorf("%s sees the instance %s, expected %s", device, got, least)
			}
		}
		if err := os.RemoveAll(filepath.Join(root, "devices", map[string]string{a: "d-a", b: "d-b"}[least])); err != nil {
			t.Fatal(err)
		}
		if got := hello(root, "c", now); got != least {
			t.Errorf("after its first device is gone the instance is %s, expected %s", got, least)
		}
	}
}

func TestGenerationIsWhatAPersonWrote(t *testing.T) {
	root := t.TempDir()
	r := at(t, root)
	for text, want := range map[string]uint64{"7\n": 7, "": 0, "x": 0, "-1": 0} {
		if err := os.WriteFile(filepath.Join(root, "generation.txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := r.Hello(t.Context(), "a"); err != nil || info.Generation != want {
			t.Errorf("generation.txt %q: %d, %v; expected %d", text, info.Generation, err, want)
		}
	}
}

func TestRosterTimesComeFromTheDevicesOwnFiles(t *testing.T) {
	root := t.TempDir()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := open(t, dir.Config{Path: root, Now: func() time.Time { return now }})
	first := now
	for _, step := range []time.Duration{0, time.Hour, 48 * time.Hour} {
		now = first.Add(step)
		if err := r.Register(t.Context(), "a", relay.Replica); err != nil {
			t.Fatal(err)
		}
	}
	roster, err := at(t, root).Roster(t.Context())
	if err != nil || len(roster) != 1 || !roster[0].Added.Equal(first) || !roster[0].Seen.Equal(now) {
		t.Errorf("roster %+v, %v", roster, err)
	}
}
