package checkpoint_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
)

// What is folded may be another thing than what was written: ids and links are those of what was written.
func TestAnExtensionFoldsTheContentAndVerifiesWhatWasWritten(t *testing.T) {
	f := newFleet(t)
	for i := range 6 {
		f.write("phone", int64(i), oplog.Knowledge, fmt.Sprintf(`{"id":"k%d"}`, i))
	}
	content := func(op oplog.Op) ([]byte, error) { return fmt.Appendf(nil, `{"id":"k","of":%d}`, op.Seq), nil }
	cut := checkpoint.Cut{Frontier: frontier(f.ops), Content: content}
	whole, err := checkpoint.Extend(nil, cut, all(f.ops))
	if err != nil {
		t.Fatal(err)
	}
	if rec, ok := whole.State.Get(oplog.Knowledge, "id:k"); !ok || string(rec.Payload) != `{"id":"k","of":0}` || rec.ID != f.ops[0].ID {
		t.Errorf("folded %+v, %v", rec, ok)
	}
	half, err := checkpoint.Extend(nil, checkpoint.Cut{Frontier: frontier(f.ops[:3]), Content: content}, all(f.ops))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := checkpoint.Extend(half, cut, all(f.ops)); err != nil || again.Hash != whole.Hash {
		t.Errorf("in two steps %v, %v; in one %s", again, err, whole.Hash)
	}
	if err := checkpoint.Refold(whole.Header, nil, all(f.ops), content); err != nil {
		t.Errorf("refolded: %v", err)
	}
	if err := checkpoint.Refold(whole.Header, nil, all(f.ops), nil); !is[*checkpoint.DisputedError](err) {
		t.Errorf("refolded without the content: %v", err)
	}
	errKey := errors.New("no key")
	cut.Content = func(op oplog.Op) ([]byte, error) {
		if op.Seq == 4 {
			return nil, errKey
		}
		return content(op)
	}
	if _, err := checkpoint.Extend(nil, cut, all(f.ops)); !errors.Is(err, errKey) {
		t.Errorf("content that cannot be had: %v", err)
	}
}

func TestThatAStateCameSealedIsKeptAndNeverForgotten(t *testing.T) {
	f := newFleet(t)
	f.write("phone", 1, oplog.Knowledge, `{"id":"k"}`)
	s := &checkpoint.Store{Dir: filepath.Join(t.TempDir(), "checkpoints")}
	hash := checkpoint.Hash("")
	for _, step := range []struct{ save, want bool }{{false, false}, {true, true}, {false, true}} {
		c, err := checkpoint.Extend(nil, checkpoint.Cut{Frontier: frontier(f.ops)}, all(f.ops))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Save(c, checkpoint.Meta{Author: "phone", Sealed: step.save}); err != nil {
			t.Fatal(err)
		}
		hash = c.Hash
		if _, meta, err := s.Load(hash); err != nil || meta.Sealed != step.want {
			t.Errorf("saved %v: %+v, %v", step.save, meta, err)
		}
	}
	if names, err := s.List(); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}
