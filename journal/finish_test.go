package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

// told is a draft that writes down where it stands.
func told(surface oplog.Surface) journal.Draft {
	return journal.Draft{Scope: oplog.Shared("acme"), Surface: surface, Payload: []byte(`"never seen"`), Finish: func(p journal.Place) ([]byte, error) {
		return fmt.Appendf(nil, `["%s",%d,"%s",%d,%d,"%s","%s","%s"]`, p.Device, p.Seq, p.Prev, p.HLC.WallMS, p.HLC.Counter, p.HLC.Device, p.Scope, p.Surface), nil
	}}
}

func TestADraftIsFinishedForThePlaceThatItsOpGets(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	j := open(t, config(dir))
	appendOps(t, open(t, config(dir)), 0, 3) // another process was there before
	drafts := []journal.Draft{told(oplog.Knowledge), {Scope: oplog.Personal, Surface: oplog.Run, Payload: []byte(`{}`)}, told(oplog.Routing)}
	ops, err := j.Append(ctx, drafts...)
	if err != nil {
		t.Fatal(err)
	}
	for i, op := range ops {
		place := journal.Place{Device: op.Device, Seq: op.Seq, Prev: op.Prev, HLC: op.HLC, Scope: op.Scope, Surface: op.Surface}
		want := "{}"
		if f := drafts[i].Finish; f != nil {
			text, err := f(place)
			if err != nil {
				t.Fatal(err)
			}
			want = string(text)
		}
		if string(op.Payload) != want || op.Seq != uint64(3+i) || op.Check() != nil {
			t.Errorf("op %d is %s, want %s", op.Seq, op.Payload, want)
		}
	}
}

func TestADraftThatCannotBeFinishedLeavesNothingBehindAndStopsNoOther(t *testing.T) {
	ctx := context.Background()
	errNone := errors.New("no key")
	bad := told(oplog.Knowledge)
	bad.Finish = func(journal.Place) ([]byte, error) { return nil, errNone }
	notJSON := told(oplog.Knowledge)
	notJSON.Finish = func(journal.Place) ([]byte, error) { return []byte("{"), nil }
	j := open(t, config(t.TempDir()))
	before := appendOps(t, j, 0, 2)
	for name, d := range map[string]journal.Draft{"refused": bad, "not JSON": notJSON} {
		if ops, err := j.Append(ctx, told(oplog.Run), d); err == nil || ops != nil || name == "refused" && !errors.Is(err, errNone) {
			t.Errorf("%s: %d ops, %v", name, len(ops), err)
		}
	}
	err := j.Update(ctx, func(tx *journal.Tx) error {
		if _, err := tx.Append(bad); !errors.Is(err, errNone) {
			t.Errorf("in a change: %v", err)
		}
		_, err := tx.Append(told(oplog.Run))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := mustOwn(t, j)
	if len(got) != len(before)+1 || got[2].Seq != 2 || !strings.Contains(string(got[2].Payload), `"host-1",2,"`+string(before[1].ID)) {
		t.Errorf("the journal holds %d ops, the last %s", len(got), got[len(got)-1].Payload)
	}
}

// What was written again is found by the id of its end, also if it looks different each time it is made.
func TestWhatIsFinishedDifferentlyEachTimeIsWrittenAgainOnce(t *testing.T) {
	ctx := context.Background()
	cfg := config(t.TempDir())
	cfg.Device = "host-0"
	from, j := open(t, cfg), open(t, config(t.TempDir()))
	appendOps(t, from, 0, 5)
	if err := from.Freeze(ctx, journal.Frozen{}); err != nil {
		t.Fatal(err)
	}
	made, asked := 0, 0
	again := func(op oplog.Op) (journal.Draft, error) {
		d := journal.Draft{Scope: op.Scope, Surface: op.Surface}
		d.Finish = func(journal.Place) ([]byte, error) {
			made++
			return fmt.Appendf(nil, `{"made":%d,"of":%d}`, made, op.Seq), nil
		}
		d.Same = func(here oplog.Op) (bool, error) {
			asked++
			return strings.HasSuffix(string(here.Payload), fmt.Sprintf(`"of":%d}`, op.Seq)), nil
		}
		return d, nil
	}
	if n, err := j.Reissue(ctx, from, again); n != 5 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	for range 2 {
		if n, err := j.Reissue(ctx, from, again); n != 0 || err != nil || asked != 0 {
			t.Fatalf("once more: %d ops, %v; %d were compared, want none", n, err, asked)
		}
	}
	appendOps(t, from, 5, 2)
	if n, err := j.Reissue(ctx, from, again); n != 2 || err != nil {
		t.Fatalf("what came later: %d ops, %v", n, err)
	}
	if got := mustOwn(t, j); len(got) != 7 {
		t.Errorf("%d ops", len(got))
	}
}

// A crash can keep the beginning of a pass; what stands is told by what it says.
func TestAPassOfWhichACrashKeptTheBeginningGoesOnAfterIt(t *testing.T) {
	ctx := context.Background()
	for kept := range 6 {
		cfg := config(t.TempDir())
		cfg.Device = "host-0"
		from, j := open(t, cfg), open(t, config(t.TempDir()))
		ops := appendOps(t, from, 0, 5)
		if err := from.Freeze(ctx, journal.Frozen{}); err != nil {
			t.Fatal(err)
		}
		n := 0
		again := func(op oplog.Op) (journal.Draft, error) {
			return journal.Draft{Scope: op.Scope, Surface: op.Surface, Finish: func(journal.Place) ([]byte, error) {
				n++
				return fmt.Appendf(nil, `[%d,%d]`, n, op.Seq), nil
			}, Same: func(here oplog.Op) (bool, error) {
				return strings.HasSuffix(string(here.Payload), fmt.Sprintf(`,%d]`, op.Seq)), nil
			}}, nil
		}
		if _, err := j.Reissue(ctx, from, again); err != nil {
			t.Fatal(err)
		}
		if whole := mustOwn(t, j); kept < len(whole) {
			text := readFile(t, segment(j.Dir(), 0))
			at := bytes.Index(text, whole[kept].AppendLine(nil))
			writeFile(t, segment(j.Dir(), 0), text[:at])
		}
		j = open(t, config(j.Dir()))
		if wrote, err := j.Reissue(ctx, from, again); err != nil || wrote != len(ops)-kept {
			t.Errorf("%d kept: wrote %d, %v", kept, wrote, err)
		}
		for i, op := range mustOwn(t, j) {
			if !strings.HasSuffix(string(op.Payload), fmt.Sprintf(`,%d]`, i)) {
				t.Errorf("%d kept: op %d says %s", kept, i, op.Payload)
			}
		}
	}
}

func TestANoteOfAnEarlierReleaseIsStillRead(t *testing.T) {
	ctx := context.Background()
	cfg := config(t.TempDir())
	cfg.Device = "host-0"
	from, j := open(t, cfg), open(t, config(t.TempDir()))
	appendOps(t, from, 0, 4)
	if err := from.Freeze(ctx, journal.Frozen{}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Reissue(ctx, from, same); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(j.Dir(), "REISSUED.json")
	before, _, ok := strings.Cut(string(readFile(t, name)), `,"end":`)
	if !ok {
		t.Fatal("the note has no end")
	}
	writeFile(t, name, []byte(before+"}]}\n"))
	if n, err := j.Reissue(ctx, from, same); n != 0 || err != nil {
		t.Errorf("%d ops, %v", n, err)
	}
}
