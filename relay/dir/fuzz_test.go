package dir_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// FuzzSegment puts any bytes in the place of a segment: nothing panics, what is offered is a chain, reading is the
// same in one step and in two, and the owner can always go on or is told why not.
func FuzzSegment(f *testing.F) {
	root, a := f.TempDir(), relaytest.NewAuthor("a")
	push(f, at(f, root), a.Write(f, 2, 40))
	push(f, at(f, root), a.Write(f, 2, 40))
	good := files(f, root)[segmentA]
	f.Add(good, uint16(100))
	f.Add(good+good, uint16(2000))
	f.Add(good[:len(good)-1], uint16(1))
	f.Add(strings.Replace(good, "\n\n", "\n", 2), uint16(600))
	f.Add(good+`{"relay":"syncnode","v":1,"device":"a","base":0,"next":2}`+"\n\n"+good, uint16(9))
	f.Add("\n\n\n\x00\n\n", uint16(3))
	f.Fuzz(func(t *testing.T, text string, cut uint16) {
		root := t.TempDir()
		name := filepath.Join(root, segmentA)
		stepwise := open(t, dir.Config{FS: newDisk(t, root)})
		put(t, name, text[:min(int(cut), len(text))])
		pull(t, stepwise)
		put(t, name, text)
		once := pull(t, at(t, root))["a"]
		wantOps(t, pull(t, stepwise)["a"], once)
		report(t, stepwise)
		chain := oplog.NewChain("a")
		for _, op := range once {
			if _, err := chain.Admit(op, op.HLC.WallMS); err != nil {
				t.Fatal(err)
			}
		}
		_, err := stepwise.Push(t.Context(), "a", a.Ops)
		switch {
		case err == nil:
			if got := pull(t, at(t, root))["a"]; len(got) < len(a.Ops) || got[3].ID != a.Ops[3].ID {
				t.Fatalf("pushed, and %d ops are there", len(got))
			}
		case !errors.Is(err, relay.ErrFork) && !errors.Is(err, relay.ErrCorrupt):
			t.Fatal(err)
		}
	})
}
