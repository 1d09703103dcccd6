package dir_test

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const golden = "testdata/layout.golden"

// zero is what stands in the golden file in place of the instance, which is drawn.
const zero = "00000000000000000000000000000000"

var instance = regexp.MustCompile(`"instance":"[0-9a-f]{32}"`)

func TestLayoutIsFrozen(t *testing.T) {
	root, a := t.TempDir(), relaytest.NewAuthor("Web.1")
	r := open(t, dir.Config{Path: root, SegmentBytes: 1000, Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }})
	for range 3 {
		push(t, r, a.Write(t, 2, 40))
	}
	if err := r.Register(t.Context(), "db-2", relay.Writer); err != nil {
		t.Fatal(err)
	}
	if err := r.Ack(t.Context(), "db-2", oplog.Frontier{"Web.1": a.Head()}); err != nil {
		t.Fatal(err)
	}
	same(t, golden, root)
}

// TestLayoutOfCheckpointsAndFloorsIsFrozen is in a file of its own: a folder that was never collected has none of it.
func TestLayoutOfCheckpointsAndFloorsIsFrozen(t *testing.T) {
	root, a, b := t.TempDir(), relaytest.NewAuthor("Web.1"), relaytest.NewAuthor("db-2")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := open(t, dir.Config{Path: root, SegmentBytes: 1000, Now: func() time.Time { return now }})
	for range 4 {
		push(t, r, a.Write(t, 2, 40))
	}
	b.Write(t, 3, 40)
	c := checkpointOf("Web.1", 3, a, b)
	c.Frontier["Web.1"] = checkpointOf("", 6, a).Frontier["Web.1"]
	c = sealed(c)
	heads := headsAt(3, b)
	heads["Web.1"] = headsAt(6, a)["Web.1"]
	err := errors.Join(r.Register(t.Context(), "Web.1", relay.Replica), r.Ack(t.Context(), "Web.1", c.Frontier), r.Seed(t.Context(), "Web.1", c, heads))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(relay.Grace)
	}
	push(t, r, b.Write(t, 1, 40))
	same(t, "testdata/collected.golden", root)
	copied := t.TempDir()
	unpack(t, "testdata/collected.golden", copied)
	for _, x := range []*dir.Relay{r, at(t, copied)} {
		info, err := x.Hello(t.Context(), "z")
		if err != nil || !info.Floor.Equal(c.Frontier) || info.Heads["Web.1"] != a.Head() || info.Heads["db-2"] != b.Head() || info.Checkpoint != c.Hash {
			t.Errorf("hello: %+v, %v", info, err)
		}
		if page, err := x.Pull(t.Context(), "z", relay.Want{Held: c.Frontier}); err != nil || len(page.Ops) != 3 {
			t.Errorf("%d ops, %v", len(page.Ops), err)
		}
		if got, ok, err := x.Checkpoint(t.Context()); err != nil || !ok || string(got.Body) != string(c.Body) {
			t.Errorf("checkpoint %q, %v, %v", got.Body, ok, err)
		}
	}
}

// same compares all files of a folder with a golden file.
func same(t *testing.T, golden, root string) {
	t.Helper()
	var b strings.Builder
	all := files(t, root)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.WriteString("-- " + name + " --\n" + all[name])
		if strings.HasSuffix(name, ".bin") {
			b.WriteString("\n")
		}
	}
	got := instance.ReplaceAllString(b.String(), `"instance":"`+zero+`"`)
	if *update {
		put(t, golden, got)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the layout changed:\ngot\n%s\nwant\n%s", got, want)
	}
}

// unpack writes the files that a golden file holds.
func unpack(t *testing.T, golden, root string) {
	t.Helper()
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(data), "-- devices/")[1:] {
		name, content, _ := strings.Cut(part, " --\n")
		if strings.HasSuffix(name, ".bin") {
			content = strings.TrimSuffix(content, "\n")
		}
		put(t, filepath.Join(root, "devices", name), content)
	}
}

func TestAFolderOfVersionOneIsRead(t *testing.T) {
	root := t.TempDir()
	unpack(t, golden, root)
	r := at(t, root)
	if got := pull(t, r)["Web.1"]; len(got) != 6 {
		t.Errorf("%d ops, expected 6", len(got))
	}
	info, err := r.Hello(t.Context(), "db-2")
	if err != nil || info.Instance != zero || info.Role != relay.Writer || info.Acked["Web.1"].Seq != 5 {
		t.Errorf("hello: %+v, %v", info, err)
	}
	if rep := report(t, r); len(rep.Oddities) != 0 {
		t.Errorf("oddities %+v", rep.Oddities)
	}
}
