package checkpoint_test

import (
	"bytes"
	"errors"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
)

// However many extensions lead to a frontier, through files or memory, and in whatever order the ops of each came: byte for byte the
// checkpoint that is made of all ops at once.
func TestAnySequenceOfExtensionsGivesTheBytesOfOneFromGenesis(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ops := draw(r, t)
		var base *checkpoint.Checkpoint
		cut, closed := oplog.Frontier{}, []string(nil)
		for range rapid.IntRange(1, 4).Draw(r, "steps") {
			if base != nil && rapid.Bool().Draw(r, "through a file") {
				again, err := checkpoint.Decode(bytes.NewReader(body(r, base)), base.Hash)
				if err != nil {
					r.Fatal(err)
				}
				base = again
			}
			next := drawCut(r, ops, cut)
			for _, d := range closed {
				next[d] = cut[d]
			}
			cut = next
			step := checkpoint.Cut{Frontier: cut.Clone()}
			for device := range cut {
				if !slices.Contains(closed, device) && rapid.IntRange(0, 5).Draw(r, "close "+device) == 0 {
					step.Closed = append(step.Closed, device)
				}
			}
			closed = append(closed, step.Closed...)
			given := rapid.Permutation(slices.Clone(devices)).Draw(r, "order of devices")
			byDevice := slices.Clone(ops)
			slices.SortStableFunc(byDevice, func(a, b oplog.Op) int { return slices.Index(given, a.Device) - slices.Index(given, b.Device) })
			var err error
			if base, err = checkpoint.Extend(base, step, all(byDevice)); err != nil {
				r.Fatal(err)
			}
		}
		whole := folded(slices.DeleteFunc(slices.Clone(ops), func(op oplog.Op) bool { return !cut.Covers(op.Device, op.Seq) }))
		for _, d := range closed {
			whole.Close(d)
		}
		genesis := checkpoint.Of(whole)
		if genesis.Hash != base.Hash || !bytes.Equal(body(r, genesis), body(r, base)) || !base.All().Equal(cut) {
			r.Fatalf("from genesis:\n%s\nextended:\n%s", body(r, genesis), body(r, base))
		}
		if err := checkpoint.Refold(base.Header, nil, all(ops), nil); err != nil {
			r.Fatalf("refolding does not prove it: %v", err)
		}
	})
}

// After an extension, folding the rest gives the state of all ops: nothing that later ops are judged by was dropped.
func TestWhatIsFoldedOnACheckpointIsWhatIsFoldedFromGenesis(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ops := draw(r, t)
		cut := drawCut(r, ops, nil)
		c, err := checkpoint.Extend(nil, checkpoint.Cut{Frontier: cut}, all(ops))
		if err != nil {
			r.Fatal(err)
		}
		for op, err := range checkpoint.Uncovered(&c.Header, all(ops)) {
			if err != nil || !c.State.Apply(op) {
				r.Fatalf("%s/%d is not folded: %v", op.Device, op.Seq, err)
			}
		}
		if want := folded(ops); c.State.Digest() != want.Digest() || c.State.FrontierDigest() != want.FrontierDigest() {
			r.Fatal("the state differs")
		}
	})
}

func TestAFrontierIsPartOfTheNameThoughTheStateIsTheSame(t *testing.T) {
	f := newFleet(t)
	f.write("x", 1, oplog.Knowledge, `{"id":"k"}`)
	f.write("y", 2, oplog.Knowledge, `{"id":"k"}`) // folds to nothing new
	one, two := checkpoint.Of(folded(f.ops[:1])), checkpoint.Of(folded(f.ops))
	if one.Digest != two.Digest || one.Hash == two.Hash {
		t.Errorf("digests %s %s, hashes %s %s", one.Digest, two.Digest, one.Hash, two.Hash)
	}
}

func TestExtendSaysWhyItCannotReachTheCut(t *testing.T) {
	f := sample(t)
	other := newFleet(t)
	fork := other.write("laptop", 9, oplog.Routing, `9`)
	end := frontier(f.ops)
	failed := errors.New("disk on fire")
	base := func() *checkpoint.Checkpoint {
		c, err := checkpoint.Extend(nil, checkpoint.Cut{Frontier: frontier(f.ops[:2]), Closed: []string{"phone"}}, all(f.ops))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		name string
		cut  checkpoint.Cut
		ops  iter.Seq2[oplog.Op, error]
		is   func(error) bool
	}{
		{"ops end", checkpoint.Cut{Frontier: oplog.Frontier{"laptop": end["laptop"]}}, all(f.ops[:3]), is[*checkpoint.ShortError]},
		{"a hole", checkpoint.Cut{Frontier: oplog.Frontier{"laptop": end["laptop"]}}, all(f.ops[3:]), is[*checkpoint.BrokenAnchorError]},
		{"a hole later", checkpoint.Cut{Frontier: oplog.Frontier{"laptop": end["laptop"]}}, all(append(slices.Clone(f.ops[:3]), f.ops[4:]...)), is[*oplog.GapError]},
		{"unknown device", checkpoint.Cut{Frontier: oplog.Frontier{"new": {Seq: 1, ID: fork.ID}}}, all([]oplog.Op{{Device: "new", Seq: 1}}), func(err error) bool { return err != nil }},
		{"forked at the cut", checkpoint.Cut{Frontier: oplog.Frontier{"laptop": {Seq: 1, ID: fork.ID}}}, all(f.ops), is[*oplog.ForkError]},
		{"forked at the base", checkpoint.Cut{Frontier: oplog.Frontier{"laptop": {Seq: 0, ID: fork.ID}}}, all(f.ops), is[*oplog.ForkError]},
		{"closed", checkpoint.Cut{Frontier: oplog.Frontier{"phone": end["phone"]}}, all(f.ops), is[*checkpoint.ClosedDeviceError]},
		{"close what is unknown", checkpoint.Cut{Closed: []string{"nobody"}}, all(f.ops), func(err error) bool { return err != nil }},
		{"reading fails", checkpoint.Cut{Frontier: end}, func(yield func(oplog.Op, error) bool) { yield(oplog.Op{}, failed) }, func(err error) bool { return errors.Is(err, failed) }},
	} {
		if _, err := checkpoint.Extend(base(), c.cut, c.ops); !c.is(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func TestExtendStopsReadingAtTheCut(t *testing.T) {
	f := sample(t)
	read := 0
	ops := func(yield func(oplog.Op, error) bool) {
		for _, op := range f.ops {
			if read++; !yield(op, nil) {
				return
			}
		}
	}
	for _, want := range []int{2, 0} { // the second cut is where the base is
		cut := frontier(f.ops[:want])
		read = 0
		if _, err := checkpoint.Extend(nil, checkpoint.Cut{Frontier: cut}, ops); err != nil || read != want {
			t.Errorf("read %d ops for a cut after %d: %v", read, want, err)
		}
	}
}

func TestRefoldProvesDisputesOrSaysThatItCannot(t *testing.T) {
	f := sample(t)
	good := checkpoint.Of(folded(f.ops))
	base := func(n int) *checkpoint.Checkpoint { return checkpoint.Of(folded(f.ops[:n])) }
	for _, b := range []*checkpoint.Checkpoint{nil, base(0), base(3), base(len(f.ops))} {
		if err := checkpoint.Refold(good.Header, b, all(f.ops), nil); err != nil {
			t.Error(err)
		}
	}
	if err := checkpoint.Refold(good.Header, nil, all(f.ops[:3]), nil); !is[*checkpoint.ShortError](err) {
		t.Errorf("history not held: %v", err)
	}
	if err := checkpoint.Refold(base(2).Header, base(3), all(f.ops), nil); !is[*checkpoint.BehindError](err) {
		t.Errorf("behind the base: %v", err)
	}
	// A liar folds something else and claims the same heads.
	liar := bytes.Replace(body(t, good), []byte(`"v":"blue"`), []byte(`"v":"grey"`), 1)
	lie := good.Header
	lie.Hash = "00" + good.Hash[2:]
	lie.Digest = "00" + good.Digest[2:]
	err := checkpoint.Refold(lie, nil, all(f.ops), nil)
	if d, ok := errors.AsType[*checkpoint.DisputedError](err); !ok || d.SameState || d.Refolded != good.Hash || len(liar) == 0 {
		t.Errorf("a lie: %v", err)
	}
}

func TestDominanceCountsClosedChains(t *testing.T) {
	f := sample(t)
	open, closed := checkpoint.Of(folded(f.ops)), sampled(t)
	less := checkpoint.Of(folded(f.ops[:3]))
	for _, c := range []struct {
		name string
		a, b *checkpoint.Checkpoint
		want bool
	}{{"itself", open, open, true}, {"closed over open", closed, open, true}, {"open over closed", open, closed, false},
		{"more over less", closed, less, true}, {"less over more", less, open, false}} {
		if got := c.a.Dominates(&c.b.Header); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if !closed.Covers("old", 0) || closed.Covers("old", 1) || closed.Covers("new", 0) || len(closed.Frontier()) != 2 || len(closed.All()) != 3 {
		t.Error("covered ops are counted wrongly")
	}
}

func TestUncoveredShowsAForkAtTheHead(t *testing.T) {
	f := sample(t)
	c := checkpoint.Of(folded(f.ops[:1]))
	other := newFleet(t)
	fork := other.write("laptop", 9, oplog.Routing, `9`)
	next := other.write("laptop", 10, oplog.Routing, `10`)
	var forks, kept int
	for _, err := range checkpoint.Uncovered(&c.Header, all([]oplog.Op{fork, next, f.ops[0], f.ops[1]})) {
		if is[*oplog.ForkError](err) {
			forks++
		} else {
			kept++
		}
	}
	if forks != 1 || kept != 2 {
		t.Errorf("%d forks, %d kept", forks, kept)
	}
}

func TestACloneGoesItsOwnWay(t *testing.T) {
	f := sample(t)
	c := checkpoint.Of(folded(f.ops[:3]))
	clone, err := c.Clone()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Extend(clone, checkpoint.Cut{Frontier: frontier(f.ops)}, all(f.ops)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Body(); err != nil {
		t.Errorf("extending a copy changed the original: %v", err)
	}
	if _, err := clone.Body(); !errors.Is(err, checkpoint.ErrHash) {
		t.Errorf("a checkpoint whose state went on is written: %v", err)
	}
}
