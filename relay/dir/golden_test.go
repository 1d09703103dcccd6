package dir_test

import (
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
	var b strings.Builder
	all := files(t, root)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.WriteString("-- " + name + " --\n" + all[name])
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

func TestAFolderOfVersionOneIsRead(t *testing.T) {
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, part := range strings.Split(string(data), "-- devices/")[1:] {
		name, content, _ := strings.Cut(part, " --\n")
		put(t, filepath.Join(root, "devices", name), content)
	}
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
