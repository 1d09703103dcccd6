package dir_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// A life is what a device does with a folder: pushes of two ops, an ack after each, a role in between.
type life struct {
	a        *relaytest.Author
	accepted int // ops that a push answered for
	acked    int // acks that were answered for
	role     bool
}

const pushes = 3

func newLife(t *testing.T) *life {
	l := &life{a: relaytest.NewAuthor("a")}
	l.a.Write(t, 2*pushes, 60)
	return l
}

// run goes on until the first error.
func (l *life) run(t *testing.T, r relay.Relay) error {
	for i := range pushes {
		ops := l.a.Ops[2*i : 2*i+2]
		got, err := r.Push(t.Context(), "a", ops)
		if err != nil {
			return err
		}
		if got.Accepted+got.Duplicate != 2 {
			t.Fatalf("push %d: %+v", i, got)
		}
		l.accepted = max(l.accepted, 2*i+2)
		if err := r.Ack(t.Context(), "a", oplog.Frontier{"a": {Seq: ops[1].Seq, ID: ops[1].ID}}); err != nil {
			return err
		}
		l.acked = max(l.acked, i+1)
		if i == 1 {
			if err := r.Register(t.Context(), "a", relay.Replica); err != nil {
				return err
			}
			l.role = true
		}
	}
	return nil
}

// check holds what was answered against what a new handle finds.
func (l *life) check(t *testing.T, root string) {
	t.Helper()
	r := at(t, root)
	got := pull(t, r)["a"]
	if len(got) < l.accepted {
		t.Fatalf("%d ops are there, %d were answered for", len(got), l.accepted)
	}
	wantOps(t, got, l.a.Ops[:len(got)])
	roster, err := r.Roster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var row relay.Member
	if len(roster) > 0 {
		row = roster[0]
	}
	if l.acked > 0 && row.Acked["a"].Seq < uint64(2*l.acked-1) {
		t.Fatalf("ack at seq %d, answered for at %d", row.Acked["a"].Seq, 2*l.acked-1)
	}
	if l.role && row.Role != relay.Replica {
		t.Fatalf("role %q", row.Role)
	}
}

func TestACrashAtAnyCallLosesNothingThatWasAnsweredFor(t *testing.T) {
	t.Parallel()
	for _, torn := range []bool{false, true} {
		for _, lose := range []bool{false, true} {
			t.Run(fmt.Sprintf("torn %v, unsynced lost %v", torn, lose), func(t *testing.T) {
				for at := 1; ; at += thorough.Of(1, 3) {
					if done := crashAt(t, at, torn, lose); done {
						if at < 30 {
							t.Errorf("only %d calls change something: the list was lost", at)
						}
						return
					}
				}
			})
		}
	}
}

func crashAt(t *testing.T, call int, torn, lose bool) (done bool) {
	root, l := t.TempDir(), newLife(t)
	d := newDisk(t, root)
	d.failAt, d.crash, d.torn = call, true, torn
	err := l.run(t, open(t, dir.Config{FS: d, SegmentBytes: 900}))
	if err == nil {
		return true
	}
	if !errors.Is(err, relay.ErrNotSent) && !errors.Is(err, relay.ErrIndeterminate) {
		t.Fatalf("call %d: %v says neither that nothing happened nor that it may have", call, err)
	}
	if lose {
		d.lose(t)
	}
	l.check(t, root)
	before := files(t, root)
	pull(t, at(t, root))
	report(t, at(t, root))
	for name, data := range files(t, root) {
		if before[name] != data {
			t.Fatalf("call %d: reading changed %s", call, name)
		}
	}
	if err := l.run(t, open(t, dir.Config{FS: newDisk(t, root), SegmentBytes: 900})); err != nil {
		t.Fatalf("call %d: after the crash: %v", call, err)
	}
	l.check(t, root)
	if got := pull(t, at(t, root))["a"]; len(got) != 2*pushes {
		t.Fatalf("call %d: %d ops in the end", call, len(got))
	}
	return false
}

func TestAnyCallMayFailOnceAndWhatIsAnsweredForLaterIsOnTheDisk(t *testing.T) {
	t.Parallel()
	for _, injected := range []error{errDisk, syscall.ENOSPC} {
		for _, torn := range []bool{false, true} {
			for call := 1; ; call++ {
				root, l := t.TempDir(), newLife(t)
				d := newDisk(t, root)
				d.failAt, d.err, d.torn = call, injected, torn
				r := open(t, dir.Config{FS: d, SegmentBytes: 900})
				err := l.run(t, r)
				if d.calls < call {
					break
				}
				if err != nil && errors.Is(injected, syscall.ENOSPC) && errors.Is(err, relay.ErrCorrupt) {
					t.Fatalf("call %d: a full disk is called damage: %v", call, err)
				}
				if err := l.run(t, r); err != nil {
					t.Fatalf("call %d: the second try of the same handle: %v", call, err)
				}
				d.lose(t)
				l.check(t, root)
			}
		}
	}
}

func TestATornGroupIsClosedAndItsWholeOpsAreNotWrittenAgain(t *testing.T) {
	for _, cut := range []int{1, 2, 3, 400} { // bytes that are missing at the end of the group
		root, a := t.TempDir(), relaytest.NewAuthor("a")
		d := newDisk(t, root)
		r := open(t, dir.Config{FS: d})
		push(t, r, a.Write(t, 1, 60))
		push(t, r, a.Write(t, 3, 60))
		whole := files(t, root)[segmentA]
		put(t, filepath.Join(root, segmentA), whole[:len(whole)-cut])
		next := open(t, dir.Config{FS: newDisk(t, root)})
		if info, err := next.Hello(t.Context(), "a"); err != nil || info.Head.Seq != 0 {
			t.Errorf("%d bytes missing: an unfinished group counts: %+v, %v", cut, info.Head, err)
		}
		push(t, next, a.Ops)
		push(t, next, a.Write(t, 1, 60))
		wantOps(t, pull(t, at(t, root))["a"], a.Ops)
		text := files(t, root)[segmentA]
		for _, op := range a.Ops {
			if n := strings.Count(text, string(op.AppendLine(nil))+"\n"); n != 1 {
				t.Errorf("%d bytes missing: op %d stands there %d times", cut, op.Seq, n)
			}
		}
	}
}

func TestAnEmptySegmentIsFilledByItsOwner(t *testing.T) {
	root, a := t.TempDir(), relaytest.NewAuthor("a")
	put(t, filepath.Join(root, segmentA), "")
	r := at(t, root)
	if found := reasons(report(t, r), segmentA); len(found) != 1 || found[0] != "empty" {
		t.Errorf("the report says %v", found)
	}
	push(t, r, a.Write(t, 2, 60))
	wantOps(t, pull(t, at(t, root))["a"], a.Ops)
	if rep := report(t, r); len(rep.Oddities) != 0 {
		t.Errorf("oddities %v", rep.Oddities)
	}
}

// sizes are those of the segments of two processes: 1 seals the segment and begins the next, which 0 does not.
var sizes = [][2]int64{{0, 0}, {1, 1}, {0, 1}, {1, 0}}

// meanwhile lets a clone push right before the device's own group is written.
func meanwhile(t *testing.T, own, others int64, before, n int, other func(a *relaytest.Author) *relaytest.Author) (r *dir.Relay, a, b *relaytest.Author, err error) {
	t.Helper()
	root := t.TempDir()
	a = relaytest.NewAuthor("a")
	d := newDisk(t, root)
	rival := open(t, dir.Config{FS: newDisk(t, root), SegmentBytes: others})
	r = open(t, dir.Config{FS: d, SegmentBytes: own})
	push(t, r, a.Write(t, before, 60))
	b = other(a)
	d.beforeWrite = func() { push(t, rival, b.Ops) }
	a.Write(t, n, 60)
	_, err = r.Push(t.Context(), "a", a.Ops)
	return r, a, b, err
}

func TestWhoeverIsOvertakenByAnotherBranchGetsAForkAndTheReportShowsIt(t *testing.T) {
	for _, size := range sizes {
		r, a, b, err := meanwhile(t, size[0], size[1], 3, 2, func(a *relaytest.Author) *relaytest.Author {
			b := a.Clone(3)
			b.Write(t, 2, 60)
			return b
		})
		fork, ok := errors.AsType[*relay.ForkError](err)
		if !ok || fork.Seq != 3 || fork.Existing != b.Ops[3].ID || fork.Got != a.Ops[3].ID {
			t.Fatalf("segment sizes %v: the overtaken push gives %v", size, err)
		}
		wantOps(t, pull(t, r)["a"], b.Ops)
		want := dir.Fork{Device: "a", Seq: 4, Counts: b.Ops[4].ID, Other: a.Ops[4].ID}
		if rep := report(t, r); size == [2]int64{} && (len(rep.Forks) != 1 || rep.Forks[0] != want) {
			t.Errorf("forks %+v, expected %+v", rep.Forks, want)
		}
	}
}

func TestWhoeverIsOvertakenByTheSameChainIsToldThatItStands(t *testing.T) {
	for _, size := range sizes {
		r, a, _, err := meanwhile(t, size[0], size[1], 3, 2, func(a *relaytest.Author) *relaytest.Author { return a })
		if err != nil {
			t.Fatalf("segment sizes %v: %v", size, err)
		}
		wantOps(t, pull(t, r)["a"], a.Ops)
		if rep := report(t, r); len(rep.Forks)+len(rep.Waiting) != 0 {
			t.Errorf("report %+v", rep)
		}
	}
}

func TestAFullDiskIsToldAsFull(t *testing.T) {
	d := newDisk(t, t.TempDir())
	r, a := open(t, dir.Config{FS: d}), relaytest.NewAuthor("a")
	push(t, r, a.Write(t, 1, 60))
	d.failAt, d.err, d.torn = d.calls+1, syscall.ENOSPC, true
	_, err := r.Push(t.Context(), "a", a.Write(t, 1, 60))
	if !errors.Is(err, relay.ErrFull) || !errors.Is(err, relay.ErrIndeterminate) {
		t.Errorf("got %v", err)
	}
	push(t, r, a.Ops)
	wantOps(t, pull(t, at(t, d.root))["a"], a.Ops)
}

func TestAPushWritesItsOpsAndOneByteAndSyncsOnceHoweverLongTheChain(t *testing.T) {
	d := newDisk(t, t.TempDir())
	r, a := open(t, dir.Config{FS: d}), relaytest.NewAuthor("a")
	push(t, r, a.Write(t, 1, 60))
	for n := 0; n < 600; n += 1 {
		wrote, read, syncs := d.wrote, d.read, d.syncs
		ops := a.Write(t, 1, 60)
		push(t, r, ops)
		if want := len(ops[0].AppendLine(nil)) + 2; d.wrote-wrote != want {
			t.Fatalf("push %d wrote %d bytes, expected %d", n, d.wrote-wrote, want)
		}
		if n > 1 && d.syncs-syncs != 1 {
			t.Fatalf("push %d synced %d times", n, d.syncs-syncs)
		}
		if most := 80 << 10; d.read-read > most {
			t.Fatalf("push %d read %d bytes, at most %d were expected", n, d.read-read, most)
		}
	}
	before := d.read
	pull(t, r)
	if all := d.wrote; d.read-before > all+all/2 {
		t.Errorf("a pull of all %d bytes read %d", all, d.read-before)
	}
	before = d.read
	held := oplog.Frontier{"a": a.Head()}
	if _, err := r.Pull(t.Context(), "z", relay.Want{Held: held}); err != nil || d.read-before > 256 { // a file this new may change without a sign
		t.Errorf("a pull without news read %d bytes, %v", d.read-before, err)
	}
}
