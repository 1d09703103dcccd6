package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

func TestADecisionIsKeptAsTheFormatSaysAndAnOddOneIsRefused(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), journal.Config{Dir: dir, Device: "me"})
	if err != nil {
		t.Fatal(err)
	}
	id := oplog.OpID("op-" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	good := journal.Acceptance{Of: "d2", Seq: 7, ID: id, Link: true, By: "ann@host", Reason: "the folder is right", WallMS: 1000}
	for name, a := range map[string]journal.Acceptance{
		"the own chain": {Of: "me", Seq: 7, ID: id, Reason: "r"}, "no id": {Of: "d2", Seq: 7, Reason: "r"}, "no reason": {Of: "d2", Seq: 7, ID: id}, "no device": {Seq: 7, ID: id, Reason: "r"},
	} {
		if err := j.Accept(t.Context(), a); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for range 2 {
		if err := j.Accept(t.Context(), good); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, "ACCEPTED.json")
	text, err := os.ReadFile(name)
	want := `{"v":1,"device":"me","accepted":[{"of":"d2","seq":7,"op_id":"` + string(id) + `","link":true,"by":"ann@host","reason":"the folder is right","wall_ms":1000}]}` + "\n"
	if err != nil || string(text) != want {
		t.Errorf("the file holds %s, %v\nwant %s", text, err, want)
	}
	if err := os.WriteFile(name, text[:len(text)-2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Accepted(); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("a cut file is read as %v", err)
	}
}
