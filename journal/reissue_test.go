package journal_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

func same(op oplog.Op) (journal.Draft, error) {
	return journal.Draft{Scope: op.Scope, Surface: op.Surface, Payload: op.Payload}, nil
}

func golden(t *testing.T, dir, name string) string {
	t.Helper()
	got := string(readFile(t, filepath.Join(dir, name)))
	file := filepath.Join("testdata", name)
	if *update {
		writeFile(t, file, []byte(got))
	}
	if want := string(readFile(t, file)); got != want {
		t.Errorf("%s is\n%swant\n%s", name, got, want)
	}
	return got
}

func TestTheNotesOfAFrozenIDOnDiskAreTheGoldenOnes(t *testing.T) {
	ctx := context.Background()
	old, dir := t.TempDir(), t.TempDir()
	cfg := config(old)
	cfg.Device = "host-0"
	from := open(t, cfg)
	ops := appendOps(t, from, 0, 4)
	other := peerOps(t, "host-0", 3)
	note := journal.Frozen{First: 1, Fork: true, Earlier: true, Own: headOf(ops[3]).Pos(), Relay: headOf(other[2]).Pos()}
	for range 2 { // the first note stays
		if err := from.Freeze(ctx, note); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := open(t, cfg).Frozen(); err != nil || !ok || got.First != 1 || !got.Fork || got.Relay != headOf(other[2]).Pos() {
			t.Fatalf("read back as %+v, %v, %v", got, ok, err)
		}
		note.First = 3
	}
	text := golden(t, old, "FROZEN.json")
	j := open(t, config(dir))
	appendOps(t, j, 50, 2)
	if n, err := j.Reissue(ctx, from, same); n != 3 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	golden(t, dir, "REISSUED.json")
	again := mustOwn(t, j)
	for i, op := range again[2:] {
		if string(op.Payload) != string(ops[i+1].Payload) {
			t.Errorf("op %d is %s", op.Seq, op.Payload)
		}
	}
	for name, damaged := range map[string]string{
		"cut short":       text[:len(text)/2],
		"another version": strings.Replace(text, `"v":1`, `"v":2`, 1),
		"another device":  strings.Replace(text, `"device":"host-0"`, `"device":"host-9"`, 1),
		"blanks":          strings.Replace(text, `":`, `": `, 1),
	} {
		writeFile(t, filepath.Join(old, "FROZEN.json"), []byte(damaged))
		_, err := j.Reissue(ctx, from, same)
		if !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrVersion) && !errors.Is(err, journal.ErrDevice) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManyOpsAreWrittenAgainInSeveralPasses(t *testing.T) {
	ctx := context.Background()
	cfg := config(t.TempDir())
	cfg.Device = "host-0"
	from, j := open(t, cfg), open(t, config(t.TempDir()))
	ops := appendOps(t, from, 0, 1200)
	if err := from.Freeze(ctx, journal.Frozen{}); err != nil {
		t.Fatal(err)
	}
	if n, err := j.Reissue(ctx, from, same); n != len(ops) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	passes, err := j.Passes()
	if err != nil || len(passes) != 2 || passes[1].Last != 1199 || passes[1].At != 1000 {
		t.Errorf("passes %+v, %v", passes, err)
	}
	got := mustOwn(t, j)
	for i, op := range got {
		if string(op.Payload) != string(ops[i].Payload) {
			t.Fatalf("op %d is %s", i, op.Payload)
		}
	}
}
