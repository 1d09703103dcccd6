package fold_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/fold/foldtest"
	"github.com/syncnode/syncnode/oplog"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A fleet writes chains, each device with a clock of its own.
type fleet struct {
	t    testing.TB
	ops  []oplog.Op
	head map[string]oplog.Head
	seen map[string]bool
}

func newFleet(t testing.TB) *fleet {
	return &fleet{t: t, head: map[string]oplog.Head{}, seen: map[string]bool{}}
}

func (f *fleet) write(device string, wall int64, surface oplog.Surface, payload string) oplog.Op {
	f.t.Helper()
	head, ok := f.head[device], f.seen[device]
	clock := oplog.NewClock(device)
	if ok {
		clock.Observe(head.HLC)
		head.Seq++
	}
	op, err := oplog.New(device, head.Seq, head.ID, clock.Tick(wall), oplog.Personal, surface, []byte(payload))
	if err != nil {
		f.t.Fatal(err)
	}
	f.head[device], f.seen[device] = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}, true
	f.ops = append(f.ops, op)
	return op
}

func (f *fleet) intent(device string, wall int64, in oplog.Intent) oplog.Op {
	f.t.Helper()
	payload, err := in.Payload()
	if err != nil {
		f.t.Fatal(err)
	}
	return f.write(device, wall, oplog.Intents, string(payload))
}

// pending, committed, failed write an intent of agent "a".
func (f *fleet) say(device string, wall int64, run string, epoch uint64, status, attempt string) oplog.Op {
	f.t.Helper()
	return f.intent(device, wall, oplog.Intent{RunID: run, Agent: "a", Epoch: epoch, Status: status, Attempt: attempt})
}

// states folds the ops in several orders, each device's own order kept, and checks that all agree with the naive
// refold before it returns one of them.
func (f *fleet) state() *fold.State {
	f.t.Helper()
	forward := folded(f.ops)
	byDevice := slices.Clone(f.ops)
	slices.SortStableFunc(byDevice, func(a, b oplog.Op) int { return cmpText(a.Device, b.Device) })
	reversed := slices.Clone(f.ops)
	slices.SortStableFunc(reversed, func(a, b oplog.Op) int { return cmpText(b.Device, a.Device) })
	twice := append(slices.Clone(f.ops), f.ops...)
	for _, order := range [][]oplog.Op{byDevice, reversed, twice} {
		if s := folded(order); s.Digest() != forward.Digest() || s.FrontierDigest() != forward.FrontierDigest() {
			f.t.Fatal("the order of ops changes the digest")
		}
	}
	compare(f.t, forward, foldtest.Refold(f.ops))
	return forward
}

func cmpText(a, b string) int {
	if a < b {
		return -1
	} else if a > b {
		return 1
	}
	return 0
}

func folded(ops []oplog.Op) *fold.State {
	s := fold.New()
	for _, op := range ops {
		s.Apply(op)
	}
	return s
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// compare fails unless s shows in every view what the model does.
func compare(t fataler, s *fold.State, m *foldtest.Model) {
	t.Helper()
	if got, want := string(s.Digest()), m.Digest(); got != want {
		t.Fatalf("digest %s, refolded %s", got, want)
	}
	var runs [][2]string
	for _, agent := range s.Agents() {
		for _, run := range s.Runs(agent) {
			runs = append(runs, [2]string{agent, run})
		}
		got, ok := s.FencingEpoch(agent)
		if want, known := m.FencingEpoch(agent); got != want || ok != known {
			t.Fatalf("fencing epoch of %q is %d, refolded %d", agent, got, want)
		}
	}
	if want := m.Runs(); !slices.Equal(runs, want) {
		t.Fatalf("runs %v, refolded %v", runs, want)
	}
	for _, name := range runs {
		got, ok := s.CommittedRun(name[0], name[1])
		if want := m.CommittedRun(name[0], name[1]); got.ID != want || ok != (want != "") {
			t.Fatalf("%v: committed by %s, refolded %s", name, got.ID, want)
		}
		got, ok = s.Run(name[0], name[1])
		if want := m.Run(name[0], name[1]); got.ID != want || ok != (want != "") {
			t.Fatalf("%v: held by %s, refolded %s", name, got.ID, want)
		}
		if got, want := describe(s.Attempts(name[0], name[1])), m.Attempts(name[0], name[1]); !slices.Equal(got, want) {
			t.Fatalf("%v: attempts %q, refolded %q", name, got, want)
		}
	}
	for _, surface := range []oplog.Surface{oplog.Routing, oplog.Conversation} {
		var got []oplog.OpID
		for rec := range s.Events(surface) {
			got = append(got, rec.ID)
		}
		if want := m.Events(surface); !slices.Equal(got, want) {
			t.Fatalf("%s: events %v, refolded %v", surface, got, want)
		}
	}
}

func describe(attempts []fold.Attempt) []string {
	var out []string
	for _, a := range attempts {
		text := a.ID + " " + a.Device + " " + a.State.String()
		if a.Disputed {
			text += " disputed"
		}
		out = append(out, text)
	}
	return out
}

func payload(rec fold.Record) map[string]any {
	var m map[string]any
	_ = json.Unmarshal(rec.Payload, &m)
	return m
}

func TestEarliestWinsInTheSetTier(t *testing.T) {
	f := newFleet(t)
	f.write("a", 20, oplog.Knowledge, `{"id":"sky","v":"late"}`)
	f.write("b", 10, oplog.Knowledge, `{"id":"sky","v":"early"}`)
	f.write("b", 30, oplog.Knowledge, `{"v":"no id"}`)
	f.write("a", 40, oplog.Knowledge, `{"v":"no id"}`)
	f.write("a", 41, oplog.Knowledge, `{"v":"no id, edited"}`)
	s := f.state()
	rec, ok := s.Get(oplog.Knowledge, "id:sky")
	if !ok || payload(rec)["v"] != "early" || rec.HLC.Device != "b" {
		t.Errorf("got %+v", rec)
	}
	var keys []string
	for rec := range s.Records(oplog.Knowledge) {
		keys = append(keys, rec.Key)
	}
	if len(keys) != 3 || !slices.IsSorted(keys) {
		t.Errorf("keys %q: a repeat is one record, an edit another", keys)
	}
	if _, ok := s.Get(oplog.Skill, "id:sky"); ok {
		t.Error("surfaces share keys")
	}
}

func TestLatestWinsInTheRegisterTier(t *testing.T) {
	f := newFleet(t)
	f.write("a", 20, oplog.Registry("model"), `{"id":"milo","v":"late"}`)
	f.write("b", 10, oplog.Registry("model"), `{"id":"milo","v":"early"}`)
	f.write("b", 30, oplog.Registry("tool"), `{"id":"milo","v":"other kind"}`)
	s := f.state()
	if rec, _ := s.Get(oplog.Registry("model"), "id:milo"); payload(rec)["v"] != "late" {
		t.Errorf("got %+v", rec)
	}
	if rec, _ := s.Get(oplog.Registry("tool"), "id:milo"); payload(rec)["v"] != "other kind" {
		t.Errorf("got %+v", rec)
	}
}

func TestEveryEventSurvivesAndIsReplayedInOrder(t *testing.T) {
	f := newFleet(t)
	f.write("a", 20, oplog.Routing, `{"ms":5}`)
	f.write("b", 10, oplog.Routing, `{"ms":5}`) // byte-identical: both count
	f.write("b", 30, oplog.Routing, `{"ms":7}`)
	f.write("a", 25, oplog.Conversation, `{"text":"hi"}`)
	var walls []int64
	for rec := range f.state().Events(oplog.Routing) {
		walls = append(walls, rec.HLC.WallMS)
	}
	if !slices.Equal(walls, []int64{10, 20, 30}) {
		t.Errorf("got %v", walls)
	}
}

func TestApplyTakesEachOpOnceAndInOrder(t *testing.T) {
	f := newFleet(t)
	for i := range 4 {
		f.write("a", int64(i), oplog.Routing, `1`)
	}
	s := fold.New()
	if s.Apply(f.ops[1]) || !s.Apply(f.ops[0]) || s.Apply(f.ops[0]) || s.Apply(f.ops[2]) || !s.Apply(f.ops[1]) {
		t.Error("Apply took an op out of order or twice")
	}
	bad := f.ops[2]
	bad.Surface = "later-version"
	before := s.Digest()
	if s.Apply(bad) || s.Digest() != before || s.Covers("a", 2) || !s.Covers("a", 1) {
		t.Error("an unknown surface was folded")
	}
	front := s.Frontier()
	front["a"] = oplog.Pos{Seq: 99}
	if s.Frontier()["a"] != (oplog.Pos{Seq: 1, ID: f.ops[1].ID}) {
		t.Error("Frontier hands out the state's own map")
	}
}

func TestDigestsAreFrozen(t *testing.T) {
	f := newFleet(t)
	out := fmt.Sprintf("empty %s %s\n", fold.New().Digest(), fold.New().FrontierDigest())
	add := func(name string, op oplog.Op) {
		_ = op
		s := f.state()
		out += fmt.Sprintf("%s %s %s\n", name, s.Digest(), s.FrontierDigest())
	}
	add("set", f.write("laptop", 1_700_000_000_000, oplog.Knowledge, `{"id":"sky","v":"blue"}`))
	add("register", f.write("phone", 1_700_000_000_001, oplog.Registry("model"), `{"id":"milo"}`))
	add("event", f.write("laptop", 1_700_000_000_002, oplog.Routing, `{"ms":5}`))
	add("pending", f.say("laptop", 1_700_000_000_003, "r1-x", 1, "pending", "n1"))
	add("committed", f.say("laptop", 1_700_000_000_004, "r1-x", 1, "committed", "n1"))
	add("no attempt", f.say("phone", 1_700_000_000_004, "r1-y", 2, "pending", ""))
	add("resolved", f.intent("phone", 1_700_000_000_005, oplog.Intent{RunID: "r1-y", Agent: "a", Epoch: 2, Status: "failed", Attempt: "~phone@2", By: "ann"}))
	const path = "testdata/digest.golden"
	if *update {
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out != string(want) {
		t.Errorf("digests changed:\ngot\n%s\nwant\n%s", out, want)
	}
}
