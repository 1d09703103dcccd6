package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// Facts of a life. What a relay was sent is noted before it is sent: it is another machine, and keeps it whatever happens here.
type (
	appendedOps struct{ ops []oplog.Op }
	sent        struct {
		pushed []oplog.Op
		acked  oplog.Frontier
		again  func(r *memory.Relay) error
	}
)

// A noting relay notes what it is sent.
type noting struct {
	*memory.Relay
	d *faultfs.Disk
}

func (n noting) send(s sent) error {
	n.d.Note(s)
	return s.again(n.Relay)
}

func (n noting) Push(ctx context.Context, device string, ops []oplog.Op) (done relay.Pushed, err error) {
	err = n.send(sent{pushed: ops, again: func(r *memory.Relay) (err error) {
		done, err = r.Push(ctx, device, ops)
		return err
	}})
	return done, err
}

func (n noting) Ack(ctx context.Context, device string, folded oplog.Frontier) error {
	return n.send(sent{acked: folded, again: func(r *memory.Relay) error { return r.Ack(ctx, device, folded) }})
}

func (n noting) Register(ctx context.Context, device string, role relay.Role) error {
	return n.send(sent{again: func(r *memory.Relay) error { return r.Register(ctx, device, role) }})
}

func (n noting) PutCheckpoint(ctx context.Context, device string, c relay.Checkpoint) error {
	return n.send(sent{again: func(r *memory.Relay) error { return r.PutCheckpoint(ctx, device, c) }})
}

func (n noting) Collect(ctx context.Context) (out relay.Collection, err error) {
	err = n.send(sent{again: func(r *memory.Relay) (err error) {
		out, err = r.Collect(ctx)
		return err
	}})
	return out, err
}

// A matrixWorld is a device on a disk, and a relay on another machine that other devices use.
type matrixWorld struct {
	other  *relaytest.Author
	before []any // what the relay was sent before
	steps  func(l *matrixLife) []func() error
}

// relay is the relay as it is after those facts.
func (w *matrixWorld) relay(facts []any) *memory.Relay {
	ctx, r := context.Background(), collecting()
	_ = r.Register(ctx, "b", relay.Writer)
	if _, err := r.Push(ctx, "b", w.other.Ops[:4]); err != nil {
		panic(err)
	}
	for _, f := range append(slices.Clip(w.before), facts...) {
		if s, ok := f.(sent); ok {
			_ = s.again(r) // what it refused it refuses again
		}
	}
	return r
}

func openDevice(name string, p *faultfs.Process) (*session.Session, *journal.Journal, error) {
	now := func() time.Time { return start.Add(time.Hour) }
	j, err := journal.Open(context.Background(), journal.Config{Dir: "/data/journal", Device: name, Now: now, SegmentBytes: 900, FS: p})
	if err != nil {
		return nil, nil, err
	}
	s, err := session.Open(context.Background(), session.Config{Device: name, Journal: j, Now: now,
		Checkpoints: &checkpoint.Store{FS: p, Dir: "/data/checkpoints"}})
	return s, j, err
}

// A matrixLife is a process of the device. It repeats what failed, on a session opened anew where it has to.
type matrixLife struct {
	w     *matrixWorld
	p     *faultfs.Process
	r     noting
	s     *session.Session
	drawn int
}

func (w *matrixWorld) life(p *faultfs.Process) error {
	return w.lifeOf("a", p)
}

func (w *matrixWorld) lifeOf(name string, p *faultfs.Process) error {
	facts := p.Disk().Facts()
	l := &matrixLife{w: w, p: p, r: noting{w.relay(facts), p.Disk()}, drawn: len(facts) * 100}
	for _, step := range w.steps(l) {
		if err := l.do(name, step); err != nil {
			return err
		}
	}
	return nil
}

func (l *matrixLife) do(name string, step func() error) (err error) {
	for range 4 {
		if l.s == nil {
			if l.s, _, err = openDevice(name, l.p); err != nil {
				l.s = nil
				continue
			}
		}
		if err = step(); err == nil {
			return nil
		}
		if !errors.Is(err, journal.ErrNotWritten) {
			l.s = nil
		}
	}
	return err
}

func (l *matrixLife) write(n int) func() error {
	return func() error {
		var list []journal.Draft
		for range n {
			l.drawn++
			list = append(list, journal.Draft{Scope: oplog.Personal, Surface: oplog.Registry("tool"), Payload: fmt.Appendf(nil, `{"id":"%d","n":%d}`, l.drawn%3, l.drawn)})
		}
		ops, err := l.s.Append(context.Background(), list...)
		if err == nil {
			l.p.Disk().Note(appendedOps{ops})
		}
		return err
	}
}

func (l *matrixLife) pump() error {
	_, err := l.s.Pump(context.Background(), l.r)
	return err
}

func (l *matrixLife) publish() error {
	_, err := l.s.Publish(context.Background(), l.r)
	return err
}

func (l *matrixLife) rebase() error {
	_, _, err := l.s.Rebase(context.Background(), l.r)
	return err
}

func (l *matrixLife) collect() error {
	_, err := l.r.Collect(context.Background())
	return err
}

// more is what the other device pushes meanwhile.
func (l *matrixLife) more() error {
	return l.r.send(sent{again: func(r *memory.Relay) error {
		_, err := r.Push(context.Background(), "b", l.w.other.Ops[4:])
		return err
	}})
}

func (w *matrixWorld) check(d *faultfs.Disk, facts []any) error {
	ctx, r := context.Background(), w.relay(facts)
	s, j, err := openDevice("a", d.Process())
	if err != nil {
		return err
	}
	cut, _, err := j.Cut()
	if err != nil {
		return err
	}
	stands := func(why string, op oplog.Op) error {
		if h, ok := cut.Heads["a"]; ok && op.Seq <= h.Seq {
			return nil // in the checkpoint, which was loaded
		}
		if got, ok, err := j.OpAt(op.Seq); err != nil || !ok || got.ID != op.ID {
			return fmt.Errorf("own op %d was %s, and is %v %.8s, %w", op.Seq, why, ok, got.ID, err)
		}
		return nil
	}
	held := s.HeldFrontier()
	for _, f := range facts {
		switch f := f.(type) {
		case appendedOps:
			for _, op := range f.ops {
				if err := stands("appended", op); err != nil {
					return err
				}
			}
		case sent:
			for _, op := range f.pushed {
				if err := stands("pushed", op); err != nil {
					return err
				}
			}
			if !held.Dominates(f.acked) {
				return fmt.Errorf("%v was acked, and %v is held", f.acked, held)
			}
		}
	}
	for range 2 {
		if _, err := s.Pump(ctx, r); err != nil {
			return fmt.Errorf("the next pump: %w", err)
		}
	}
	cold, _, err := openDevice("c", faultfs.New().Process())
	if err != nil {
		return err
	}
	if _, err := cold.Pump(ctx, r); err != nil {
		return fmt.Errorf("a cold device: %w", err)
	}
	if !cold.FoldedFrontier().Equal(s.FoldedFrontier()) || cold.Digest() != s.Digest() {
		return fmt.Errorf("a cold device has %v, this one %v, or another digest", cold.FoldedFrontier(), s.FoldedFrontier())
	}
	return nil
}

func matrixOf(w *matrixWorld, steps func(l *matrixLife) []func() error) *faultfs.Scenario {
	w.steps = steps
	return &faultfs.Scenario{Seeds: 1, Sample: 9, Life: w.life, Check: w.check}
}

func newMatrixWorld(t testing.TB) *matrixWorld {
	w := &matrixWorld{other: relaytest.NewAuthor("b")}
	w.other.Write(t, 6, 60)
	return w
}

// publishing is a device that appends, pumps, publishes and lets the relay collect.
func publishing(t testing.TB) *faultfs.Scenario {
	return matrixOf(newMatrixWorld(t), func(l *matrixLife) []func() error {
		return []func() error{l.write(2), l.pump, l.write(3), l.pump, l.publish, l.collect, l.collect,
			l.write(1), l.more, l.pump, l.publish, l.collect, l.collect, l.write(1), l.pump}
	})
}

// returning is a device that wrote and never pushed, while another published and the relay collected what it lacks.
func returning(t testing.TB) *faultfs.Scenario {
	w := newMatrixWorld(t)
	w.steps = func(l *matrixLife) []func() error {
		return []func() error{l.write(9), l.pump, l.write(3), l.more, l.pump, l.publish, l.collect, l.collect, l.write(2), l.pump}
	}
	elsewhere := faultfs.New().Process()
	if err := w.lifeOf("d", elsewhere); err != nil {
		t.Fatal(err)
	}
	w.before = elsewhere.Disk().Facts()
	if r := w.relay(nil); r == nil {
		t.Fatal("no relay")
	} else if c, ok, err := r.Checkpoint(t.Context()); err != nil || !ok || len(c.Frontier) != 2 {
		t.Fatalf("the relay has no checkpoint of both: %v, %v, %v", c.Frontier, ok, err)
	}
	return matrixOf(w, func(l *matrixLife) []func() error {
		return []func() error{l.write(2), l.write(2), l.rebase, l.write(1), l.pump, l.publish, l.write(1), l.pump}
	})
}

func runMatrix(t *testing.T, s *faultfs.Scenario) {
	t.Helper()
	var sum faultfs.Tally
	for _, pass := range []func() (faultfs.Tally, error){s.Crashes, s.Faults, s.Kills} {
		tally, err := pass()
		sum.Add(tally)
		if err != nil {
			t.Error(err)
		}
	}
	t.Log(sum)
}

// A device crashes, fails and is killed at each call of its disk while it exchanges, publishes and is collected.
func TestMatrixOfASessionThatPublishes(t *testing.T) { runMatrix(t, publishing(t)) }

// And while it takes a checkpoint from the relay, since what it lacks was collected.
func TestMatrixOfASessionThatReturns(t *testing.T) { runMatrix(t, returning(t)) }

func TestTheMatrixMissesEachSyncUnderASessionThatIsLeftOut(t *testing.T) {
	thorough.Only(t)
	if err := publishing(t).Needs("sync own-", "sync peers-", "sync checkpoint-", "sync CUT.json", "syncdir journal", "syncdir checkpoints"); err != nil {
		t.Error(err)
	}
	if err := returning(t).Needs("sync CUT.json", "syncdir checkpoints"); err != nil {
		t.Error(err)
	}
}
