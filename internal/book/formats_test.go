package book_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/syncnode/syncnode/coord"
)

// The small files of docs/formats/journal.md, byte for byte.
func TestTheNotesOnDiskAreAsTheFormatSays(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	for _, run := range []string{"r1", "r2", "r3"} {
		must(t, b.Pending(ctx, attempt(run, coord.Open)))
		must(t, b.Outcome(ctx, attempt(run, coord.Committed)))
	}
	must(t, b.Settled(ctx, "a-r3"))
	must(t, b.Granted(ctx, agent, 12))
	must(t, b.Granted(ctx, agent, 11))
	for name, want := range map[string]string{
		"settled.json":    `{"v":1,"device":"host-1","next":1,"attempts":["a-r3"]}` + "\n",
		"grants/invoices": "12\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, self, name))
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
	must(t, b.Settled(ctx, "a-r1", "a-r2"))
	got, err := os.ReadFile(filepath.Join(dir, self, "settled.json"))
	if want := `{"v":1,"device":"host-1","next":6}` + "\n"; err != nil || string(got) != want {
		t.Errorf("settled.json holds %q, %v; want %q", got, err, want)
	}
}
