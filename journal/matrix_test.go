package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

const matrixDir = "/data/cluster/journal"

// What a life was told, which no crash may take back.
type (
	answered struct{ ops []oplog.Op } // own ops that an append returned, or that were shown and may have been pushed
	received struct{ ops []oplog.Op } // ops of others
	refused  struct{ id string }      // of a draft that was called not written
	cutAtOp  struct{ cut journal.Cut }
)

func matrixConfig(p *faultfs.Process) journal.Config {
	return journal.Config{Dir: matrixDir, Device: self, Now: wall, SegmentBytes: 900, FS: p}
}

// A liver is a program over a journal: it repeats what failed, on a journal opened anew where it has to.
type liver struct {
	p     *faultfs.Process
	j     *journal.Journal
	drawn int
	name  string
}

func live(p *faultfs.Process) *liver {
	return &liver{p: p, name: fmt.Sprintf("p%d", len(p.Disk().Facts()))}
}

// do runs step until it is done, at most four times.
func (l *liver) do(step func(j *journal.Journal) error) error {
	var err error
	for range 4 {
		if l.j == nil {
			if l.j, err = journal.Open(context.Background(), matrixConfig(l.p)); err != nil {
				l.j = nil
				continue
			}
		}
		if err = step(l.j); err == nil {
			return nil
		}
		if !errors.Is(err, journal.ErrNotWritten) {
			l.j = nil
		}
	}
	return err
}

// append adds n ops in one call.
func (l *liver) append(n int) error {
	return l.do(func(j *journal.Journal) error {
		list, ids := l.drafts(n)
		ops, err := j.Append(context.Background(), list...)
		l.note(ops, ids, err)
		return err
	})
}

func (l *liver) drafts(n int) (list []journal.Draft, ids []string) {
	for range n {
		l.drawn++
		id := fmt.Sprintf("%s-%d", l.name, l.drawn)
		ids = append(ids, id)
		list = append(list, journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: fmt.Appendf(nil, `{"id":%q}`, id)})
	}
	return list, ids
}

func (l *liver) note(ops []oplog.Op, ids []string, err error) {
	switch {
	case err == nil:
		l.p.Disk().Note(answered{ops})
	case errors.Is(err, journal.ErrNotWritten):
		for _, id := range ids {
			l.p.Disk().Note(refused{id})
		}
	}
}

// show refreshes and reads everything, as a pump does before it pushes.
func (l *liver) show() error {
	return l.do(func(j *journal.Journal) error {
		if err := j.Refresh(context.Background()); err != nil {
			return err
		}
		cut, _, err := j.Cut()
		if err != nil {
			return err
		}
		var ops []oplog.Op
		for e, err := range j.Kept(cut.Checkpoint, journal.Own) {
			if err != nil {
				return err
			}
			ops = append(ops, e.Op)
		}
		l.p.Disk().Note(answered{ops})
		return nil
	})
}

// take journals the next ops of another device, and own ones with them.
func (l *liver) take(peers []oplog.Op, n, own int) error {
	return l.do(func(j *journal.Journal) error {
		var took, mine []oplog.Op
		list, ids := l.drafts(own)
		err := j.Update(context.Background(), func(tx *journal.Tx) (err error) {
			at := 0
			cut, _, err := j.Cut()
			if err != nil {
				return err
			}
			if h, ok := cut.Heads[peers[0].Device]; ok {
				at = int(h.Seq) + 1
			}
			for e, err := range j.Kept(cut.Checkpoint, journal.Peers) {
				if err != nil {
					return err
				}
				at = max(at, int(e.Op.Seq)+1)
			}
			if took = peers[min(at, len(peers)):min(at+n, len(peers))]; len(took) > 0 {
				err = tx.AppendPeers(took...)
			}
			if err == nil && own > 0 {
				mine, err = tx.Append(list...)
			}
			return err
		})
		if err == nil {
			l.p.Disk().Note(received{took})
		}
		l.note(mine, ids, err)
		return err
	})
}

// intact is the oracle of every scenario.
func intact(d *faultfs.Disk, facts []any) error {
	cfg := matrixConfig(d.Process())
	first, err := look(cfg)
	if err != nil {
		return err
	}
	if err := first.holds(facts); err != nil {
		return err
	}
	changed := ""
	d.Arm(func(c faultfs.Call) faultfs.Fault {
		if c.Changes && c.Op != "sync" && c.Op != "syncdir" {
			changed = c.String()
		}
		return faultfs.Fault{}
	})
	second, err := read(matrixConfig(d.Process()))
	d.Arm(nil)
	switch {
	case err != nil:
		return fmt.Errorf("the second time: %w", err)
	case changed != "":
		return fmt.Errorf("opening a clean journal did something: %s", changed)
	case !second.equal(first):
		return fmt.Errorf("the second time it holds %v, the first time %v", second, first)
	}
	return goesOn(d, first)
}

// goesOn appends what the next process would, and looks at it after the next loss of power.
func goesOn(d *faultfs.Disk, before *found) error {
	l := live(d.Process())
	l.name = "next"
	if err := errors.Join(l.append(2), l.show(), l.append(1)); err != nil {
		return fmt.Errorf("it does not go on: %w", err)
	}
	after := d.After(faultfs.Nothing)
	now, err := read(matrixConfig(after.Process()))
	if err != nil {
		return fmt.Errorf("after it went on: %w", err)
	}
	return now.holds(append(d.Facts(), answered{before.own}, received{before.peers}))
}

// A found is what a journal holds.
type found struct {
	cut        journal.Cut
	own, peers []oplog.Op
}

func look(cfg journal.Config) (*found, error) {
	f, err := read(cfg)
	if err != nil {
		return nil, err
	}
	r, err := journal.VerifyFrom(cfg.Dir, cfg.FS, f.cut)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	if r.Torn != 0 {
		return nil, fmt.Errorf("%d bytes are torn after it was opened", r.Torn)
	}
	return f, nil
}

func read(cfg journal.Config) (*found, error) {
	j, err := journal.Open(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	f := &found{}
	if f.cut, _, err = j.Cut(); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		series journal.Series
		into   *[]oplog.Op
	}{{journal.Own, &f.own}, {journal.Peers, &f.peers}} {
		for e, err := range j.Kept(f.cut.Checkpoint, s.series) {
			if err != nil {
				return nil, fmt.Errorf("read: %w", err)
			}
			*s.into = append(*s.into, e.Op)
		}
	}
	return f, nil
}

func (f *found) equal(o *found) bool { return fmt.Sprint(f) == fmt.Sprint(o) }

// holds checks that it is a chain which has all that the facts say, each at its place, and nothing that was refused.
func (f *found) holds(facts []any) error {
	var cut journal.Cut
	own, text := map[uint64]oplog.OpID{}, strings.Builder{}
	for i, op := range f.own {
		if op.Seq != f.own[0].Seq+uint64(i) {
			return fmt.Errorf("own op %d follows %d", op.Seq, f.own[i-1].Seq)
		}
		own[op.Seq] = op.ID
		text.Write(op.Payload)
	}
	peers := map[oplog.OpID]bool{}
	for _, op := range f.peers {
		peers[op.ID] = true
	}
	for _, fact := range facts {
		if c, ok := fact.(cutAtOp); ok {
			cut = c.cut
		}
	}
	if at, ok := cut.Heads[self]; ok && (f.cut.Checkpoint == "" || f.cut.Heads[self].Seq < at.Seq) {
		return fmt.Errorf("the journal was cut at %s, and begins at %q", cut.Checkpoint, f.cut.Checkpoint)
	}
	covered := func(op oplog.Op) bool {
		h, ok := f.cut.Heads[op.Device]
		return ok && op.Seq <= h.Seq
	}
	for _, fact := range facts {
		switch fact := fact.(type) {
		case answered:
			for _, op := range fact.ops {
				if own[op.Seq] != op.ID && !(covered(op) && own[op.Seq] == "") {
					return fmt.Errorf("own op %d was answered for as %.8s, and is %.8q", op.Seq, op.ID, own[op.Seq])
				}
			}
		case received:
			for _, op := range fact.ops {
				if !peers[op.ID] && !covered(op) {
					return fmt.Errorf("op %d of %s was journaled, and is gone", op.Seq, op.Device)
				}
			}
		case refused:
			if strings.Contains(text.String(), strconv.Quote(fact.id)) {
				return fmt.Errorf("%s was called not written, and is there", fact.id)
			}
		}
	}
	return nil
}

func openOnly(p *faultfs.Process) error {
	_, err := journal.Open(context.Background(), matrixConfig(p))
	return err
}

func appendAndRoll(t testing.TB) *faultfs.Scenario {
	peers := peerOps(t, "host-2", 12)
	return &faultfs.Scenario{Sample: 2, Recover: openOnly, Check: intact, Life: func(p *faultfs.Process) error {
		l := live(p)
		for i := range 4 {
			if err := l.append(1 + i%3); err != nil {
				return err
			}
			if err := l.take(peers, 2, i%2); err != nil {
				return err
			}
		}
		if err := l.show(); err != nil {
			return err
		}
		l.j = nil
		return l.append(3)
	}}
}

func runMatrix(t *testing.T, s *faultfs.Scenario) {
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

func TestMatrixOfAppendAndRoll(t *testing.T) { runMatrix(t, appendAndRoll(t)) }
