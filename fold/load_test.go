package fold_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/fold/foldtest"
	"github.com/syncnode/syncnode/oplog"
)

func written(t fataler, s *fold.State) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("wrote %d of %d bytes: %v", n, b.Len(), err)
	}
	return b.Bytes()
}

func loaded(t fataler, b []byte) *fold.State {
	t.Helper()
	s, err := fold.Load(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return s
}

// Whatever was folded, in whatever order: one text, and loading it is as if nothing had happened, also for what is
// folded after.
func TestALoadedStateIsTheStateAndGoesOn(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ops := drawOps(r, t)
		one, two := fold.New(), fold.New()
		cut := rapid.IntRange(0, len(ops)).Draw(r, "cut")
		for _, op := range ops[:cut] {
			one.Apply(op)
		}
		for _, op := range interleave(r, ops[:cut]) {
			two.Apply(op)
		}
		text := written(r, one)
		if other := written(r, two); !bytes.Equal(text, other) {
			r.Fatalf("two orders, two texts:\n%s\n%s", text, other)
		}
		back := loaded(r, text)
		if back.Digest() != one.Digest() || back.FrontierDigest() != one.FrontierDigest() || !bytes.Equal(written(r, back), text) {
			r.Fatalf("loading changed the state:\n%s", text)
		}
		compare(r, back, foldtest.Refold(ops[:cut]))
		for _, op := range ops {
			if back.Apply(op) != one.Apply(op) {
				r.Fatalf("the loaded state does not go on as the other at %s/%d", op.Device, op.Seq)
			}
		}
		compare(r, back, foldtest.Refold(ops))
		if !bytes.Equal(written(r, back), written(r, one)) {
			r.Fatalf("going on, they part")
		}
	})
}

func sample(t testing.TB) *fleet {
	f := newFleet(t)
	f.write("laptop", 1_700_000_000_000, oplog.Knowledge, `{"id":"sky","v":"blue"}`)
	f.write("phone", 1_700_000_000_001, oplog.Registry("model"), `{"id":"milo"}`)
	f.write("laptop", 1_700_000_000_002, oplog.Routing, `{"ms":5}`)
	f.say("laptop", 1_700_000_000_003, "r1-x", 1, "pending", "n1")
	f.say("laptop", 1_700_000_000_004, "r1-x", 1, "committed", "n1")
	f.say("phone", 1_700_000_000_004, "r1-y", 2, "pending", "")
	f.intent("phone", 1_700_000_000_005, oplog.Intent{RunID: "r1-y", Agent: "b", Epoch: 2, Status: "failed", Attempt: "~phone@2", By: "ann"})
	f.write("old", 1_600_000_000_000, oplog.Conversation, `"bye"`)
	return f
}

func TestTheTextOfAStateIsFrozen(t *testing.T) {
	s := sample(t).state()
	s.Close("old")
	got := written(t, s)
	const path = "testdata/state.golden"
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the text changed:\ngot\n%s\nwant\n%s", got, want)
	}
	if back := loaded(t, want); back.Digest() != s.Digest() || !slices.Equal(back.Closed().Devices(), []string{"old"}) {
		t.Error("the golden text is another state")
	}
}

// A change of one byte is refused, or gives another text when it is written again: nothing is read in two spellings.
func TestLoadRefusesWhatWriteToDoesNotWrite(t *testing.T) {
	s := sample(t).state()
	s.Close("old")
	text := written(t, s)
	for i := range text {
		for _, c := range []byte{text[i] ^ 1, ' ', '"', '\n', '0'} {
			changed := bytes.Clone(text)
			changed[i] = c
			if back, err := fold.Load(bytes.NewReader(changed)); err == nil && !bytes.Equal(written(t, back), changed) {
				t.Fatalf("byte %d as %q is read, and written otherwise", i, c)
			} else if err != nil && !errors.Is(err, fold.ErrState) && !errors.Is(err, fold.ErrVersion) {
				t.Fatalf("byte %d as %q: %v", i, c, err)
			}
		}
		if _, err := fold.Load(bytes.NewReader(text[:i])); !errors.Is(err, fold.ErrState) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	for i := range lines {
		for j := range lines {
			swapped := slices.Clone(lines)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			if _, err := fold.Load(strings.NewReader(strings.Join(swapped, ""))); i != j && !errors.Is(err, fold.ErrState) {
				t.Errorf("lines %d and %d swapped: %v", i, j, err)
			}
		}
		twice := slices.Insert(slices.Clone(lines), i, lines[i])
		if _, err := fold.Load(strings.NewReader(strings.Join(twice, ""))); !errors.Is(err, fold.ErrState) {
			t.Errorf("line %d twice: %v", i, err)
		}
	}
}

func TestLoadTellsWhyItRefuses(t *testing.T) {
	text := string(written(t, sample(t).state()))
	for _, c := range []struct {
		old, new string
		want     error
	}{
		{`{"fold":1`, `{"fold":2`, fold.ErrVersion},
		{`"surface":"routing"`, `"surface":"rootling"`, oplog.ErrSurface},
		{`{"ms":5}`, `{"ms": 5}`, oplog.ErrCanon},
		{`{"device_id":"laptop"`, `{"device_id":"lap top"`, oplog.ErrCanon},
		{`{"device_id":"old"`, `{"device_id":"olx"`, fold.ErrState},
		{`["personal"]`, `["shared:x"]`, fold.ErrState},
	} {
		if _, err := fold.Load(strings.NewReader(strings.Replace(text, c.old, c.new, 1))); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.new, err, c.want)
		}
	}
	failed := errors.New("disk on fire")
	if _, err := fold.Load(io.MultiReader(strings.NewReader(text[:200]), iotest.ErrReader(failed))); !errors.Is(err, failed) || errors.Is(err, fold.ErrState) {
		t.Errorf("a failing reader gives %v", err)
	}
	if _, err := sample(t).state().WriteTo(failingWriter{failed}); !errors.Is(err, failed) {
		t.Errorf("a failing writer gives %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestLoadHeadsReadsWhatIsBeforeTheRecords(t *testing.T) {
	s := sample(t).state()
	s.Close("old")
	scopes, heads, closed, err := fold.LoadHeads(bytes.NewReader(written(t, s)))
	if err != nil || !slices.Equal(scopes, s.Scopes()) || !heads.Frontier().Equal(s.Frontier()) || closed["old"] != s.Closed()["old"] {
		t.Errorf("%v %v %v %v", scopes, heads, closed, err)
	}
	if _, _, _, err := fold.LoadHeads(strings.NewReader("{}\n")); !errors.Is(err, fold.ErrState) {
		t.Error(err)
	}
}

func TestAClosedChainLeavesTheFrontierAndNeverGoesOn(t *testing.T) {
	f := newFleet(t)
	f.write("x", 1, oplog.Routing, `1`)
	f.write("x", 2, oplog.Routing, `2`)
	f.write("y", 3, oplog.Routing, `3`)
	s, open := folded(f.ops), folded(f.ops)
	first, second := s.Close("x"), s.Close("x")
	if !first || !second || s.Close("nobody") {
		t.Error("Close reports wrongly")
	}
	next := f.write("x", 4, oplog.Routing, `4`)
	again := f.ops[0]
	if s.Apply(next) || s.Apply(again) || !s.Covers("x", 1) || s.Covers("x", 2) {
		t.Error("a closed chain went on")
	}
	if _, ok := s.Frontier()["x"]; ok || s.Closed()["x"].Seq != 1 || s.Digest() != open.Digest() || s.FrontierDigest() != open.FrontierDigest() {
		t.Error("closing changed more than the frontier")
	}
	if back := loaded(t, written(t, s)); back.Apply(next) || !back.Covers("x", 1) || back.Covers("x", 2) {
		t.Error("loading opened a closed chain")
	}
}

func TestVersionsOfRulesAndDigestsAreOne(t *testing.T) {
	tree, err := os.ReadFile("tree.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(tree), fmt.Sprintf("/v%d\"", fold.Version)); n != 6 {
		t.Errorf("%d of 6 domains of the digest have the version of the fold", n)
	}
}

func FuzzLoad(f *testing.F) {
	s := sample(f).state()
	f.Add(written(f, s))
	s.Close("old")
	f.Add(written(f, s))
	f.Add(written(f, fold.New()))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := fold.Load(bytes.NewReader(text))
		if err != nil {
			return
		}
		if again := written(t, s); !bytes.Equal(again, text) {
			t.Fatalf("read\n%s\nwritten\n%s", text, again)
		}
		s.Digest()
	})
}
