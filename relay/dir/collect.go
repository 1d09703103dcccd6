package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// PutCheckpoint implements relay.Collector. The checkpoint is a file of its own in the folder of the device that puts it.
func (r *Relay) PutCheckpoint(ctx context.Context, device string, c relay.Checkpoint) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckCheckpoint(device, &c); err != nil {
		return err
	}
	return r.put(ctx, device, c, func(h *relay.Holding) (oplog.Frontier, error) {
		_, err := h.Judge(c)
		return nil, err
	}, nil)
}

// Seed implements relay.Collector. That chains begin behind the checkpoint is said in the seeding device's own file; the owner of each
// writes it into its own with its next push.
func (r *Relay) Seed(ctx context.Context, device string, c relay.Checkpoint, heads oplog.Heads) error {
	if err := begin(ctx, device); err != nil {
		return err
	}
	if err := relay.CheckSeed(device, &c, heads); err != nil {
		return err
	}
	return r.put(ctx, device, c, func(h *relay.Holding) (oplog.Frontier, error) {
		rise, closing, err := h.JudgeSeed(c)
		for _, d := range closing {
			delete(rise, d) // it ends, and needs no beginning
		}
		return rise, err
	}, heads)
}

// put judges c by the folder as it is now and writes it into that of the device. heads are not nil for a seed.
func (r *Relay) put(ctx context.Context, device string, c relay.Checkpoint, judge func(*relay.Holding) (oplog.Frontier, error), heads oplog.Heads) error {
	d, err := r.act(ctx, device)
	if err != nil {
		return err
	}
	d.leave()
	v, rise, err := r.judged(ctx, c, judge, heads == nil)
	if err != nil || v == nil {
		return err
	}
	for _, s := range v.books.best { // of those put at the same time elsewhere it has to cover each
		if !c.All().Dominates(s.about().All()) {
			return &relay.BehindError{Held: s.line.Hash, Offered: c.Hash}
		}
	}
	if r.maxBytes > 0 && int64(len(c.Body)) > r.maxBytes {
		return &relay.FullError{Need: int64(len(c.Body)), Max: r.maxBytes}
	}
	line := checkpointLine{V: version, Device: device, N: v.books.next, PutMS: r.now().UnixMilli(), Hash: c.Hash, Author: c.Author,
		Frontier: c.Frontier, Closed: c.Closed, Seeds: v.pending(heads, rise)}
	return r.write(ctx, line, c.Body)
}

// judged is what a checkpoint is judged by, and the verdict; no view if it is the newest already, and that settles it. A file that
// changed where it was read before is read anew.
func (r *Relay) judged(ctx context.Context, c relay.Checkpoint, judge func(*relay.Holding) (oplog.Frontier, error), settles bool) (*view, oplog.Frontier, error) {
	for tries := 1; ; tries++ {
		v, err := r.look(ctx, true)
		if err != nil {
			return nil, nil, err
		}
		if s := v.books.newest(); s != nil && s.line.Hash == c.Hash && settles {
			// Whoever put it may have been killed before it had synced.
			if err := r.fs.SyncDir(path.Dir(s.path)); err != nil {
				return nil, nil, r.unknown("put a checkpoint", err)
			}
			return nil, nil, nil
		}
		h, err := r.holding(ctx, v)
		if err != nil {
			return nil, nil, err
		}
		rise, err := judge(&h)
		if err == nil || !errors.Is(err, relay.ErrCorrupt) || tries == 3 {
			return v, rise, err
		}
	}
}

// pending are the seeds that a new checkpoint has to name: those of this one, and those of others whose chains reach no further yet by
// files of their own.
func (v *view) pending(heads oplog.Heads, rise oplog.Frontier) map[string]posTime {
	seeds := map[string]posTime{}
	for d, h := range v.books.seeds {
		if floor, ok := v.floor[d]; ok && floor == h.Pos() && !v.gone(d) {
			seeds[d] = posTimeOf(h)
		}
	}
	for d := range rise {
		seeds[d] = posTimeOf(heads[d])
	}
	return seeds
}

// write puts a checkpoint file, and removes those of the device that were superseded long enough ago.
func (r *Relay) write(ctx context.Context, line checkpointLine, body []byte) error {
	d := r.device(line.Device)
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.leave()
	dir := deviceFile(line.Device, checkpointsDir)
	if err := makeDirs(r.fs, dir); err != nil {
		return r.unsent("make the folder of the checkpoints", err)
	}
	s := &stored{device: line.Device, path: path.Join(dir, checkpointName(line.Hash)), line: line}
	if err := s.write(r.fs, body); err != nil {
		return full(r.unknown("put a checkpoint", err), err)
	}
	b, err := r.books(ctx, false)
	if err != nil {
		return nil // it is there
	}
	_ = r.tidy(b, func(device string) bool { return device == line.Device }) // the next one tries again
	return nil
}

// tidy removes checkpoint files of devices that another one has superseded for as long as marked ops stay, so that it may have
// arrived elsewhere.
func (r *Relay) tidy(b *books, mine func(device string) bool) error {
	old := func(s *stored) bool {
		return slices.ContainsFunc(b.whole, func(o *stored) bool {
			return o != s && o.dominates(s) && (!s.dominates(o) || o.before(s) < 0) && r.now().Sub(time.UnixMilli(o.line.PutMS)) >= r.grace
		})
	}
	for _, s := range b.whole {
		if mine(s.device) && old(s) {
			if err := s.drop(r.fs); err != nil {
				return r.unknown("remove a checkpoint", err)
			}
		}
	}
	newest := b.newest()
	for _, s := range b.broken { // one that cannot be read is superseded by any that was put since
		if newest != nil && mine(s.device) && time.UnixMilli(newest.line.PutMS).After(s.mtime) && r.now().Sub(time.UnixMilli(newest.line.PutMS)) >= r.grace {
			if err := s.drop(r.fs); err != nil {
				return r.unknown("remove a checkpoint", err)
			}
		}
	}
	return nil
}

// Checkpoint implements relay.Collector.
func (r *Relay) Checkpoint(ctx context.Context) (relay.Checkpoint, bool, error) {
	if err := alive(ctx); err != nil {
		return relay.Checkpoint{}, false, err
	}
	b, err := r.books(ctx, true)
	if err != nil {
		return relay.Checkpoint{}, false, err
	}
	s := b.newest()
	switch {
	case s == nil && len(b.broken) > 0:
		return relay.Checkpoint{}, false, fmt.Errorf("%w: %s: %w", relay.ErrCorrupt, b.broken[0].path, b.broken[0].err)
	case s == nil:
		return relay.Checkpoint{}, false, nil
	}
	c, again := s.about(), *s
	if c.Body, err = again.read(r.fs); err != nil {
		return relay.Checkpoint{}, false, r.unsent("read a checkpoint that changed meanwhile", err)
	}
	c.Frontier, c.Closed = c.Frontier.Clone(), c.Closed.Clone()
	return c, true, nil
}

// holding is what checkpoints and collections are judged by.
func (r *Relay) holding(ctx context.Context, v *view) (relay.Holding, error) {
	roster, err := r.roster(ctx, v)
	h := relay.Holding{
		Heads: v.heads.Frontier(), Floor: v.floor, Closed: v.books.closed, Roster: roster,
		Damaged: len(v.books.whole) == 0 && len(v.books.broken) > 0,
		Held: func(device string, seq uint64) (oplog.OpID, error) {
			op, err := r.opAt(ctx, device, seq)
			return op.ID, err
		},
	}
	if s := v.books.newest(); s != nil {
		c := s.about()
		h.Newest = &c
	}
	return h, err
}

// CollectsOwn implements relay.OwnCollector.
func (r *Relay) CollectsOwn() {}

func (r *Relay) opAt(ctx context.Context, device string, seq uint64) (oplog.Op, error) {
	d := r.device(device)
	if err := d.enter(ctx); err != nil {
		return oplog.Op{}, err
	}
	defer d.leave()
	ops, err := d.chain.read(seq, 1)
	if err != nil {
		return oplog.Op{}, err
	}
	return ops[0], nil
}

// Collect implements relay.Collector for the chains of the devices that this handle acted for by any call that names one, since a device
// writes its own files only; those of others have the reason relay.Elsewhere. What is left of closed chains, which have no writer any
// more, goes whoever collects.
//
//  1. Of each chain whose ops were marked long enough ago the segments are deleted that hold nothing else, and then it is noted.
//  2. What is left of closed chains is removed, and checkpoints that were superseded.
//  3. The floor of each chain of which nothing is marked rises to what may go.
func (r *Relay) Collect(ctx context.Context) (relay.Collection, error) {
	done := relay.Collection{Dropped: map[string]int{}, Marked: map[string]int{}, Reasons: map[string]relay.Reason{}}
	if err := alive(ctx); err != nil {
		return done, err
	}
	v, err := r.look(ctx, true)
	if err != nil {
		return done, err
	}
	if len(v.books.whole) > 0 {
		if err := r.sweep(ctx, v, done.Dropped); err != nil {
			return done, err
		}
		if v, err = r.look(ctx, false); err != nil {
			return done, err
		}
	}
	if err := r.raise(ctx, v, done.Reasons); err != nil {
		return done, err
	}
	if v, err = r.look(ctx, false); err != nil {
		return done, err
	}
	for d, n := range v.marked {
		if n > 0 {
			done.Marked[d] = n
		}
	}
	done.Floor = v.floor
	return done, nil
}

// acts reports whether this handle may change the files of a device.
func (v *view) acts(d *device) bool {
	_, closed := v.books.closed[d.name]
	return d.mine || closed
}

// each calls do for every device whose files this handle may change, while it is in it.
func (r *Relay) each(ctx context.Context, v *view, do func(*device) error) error {
	for _, name := range v.names {
		d := r.device(name)
		if err := d.enter(ctx); err != nil {
			return err
		}
		var err error
		if v.acts(d) {
			err = do(d)
		}
		d.leave()
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes what is marked and what was superseded.
func (r *Relay) sweep(ctx context.Context, v *view, dropped map[string]int) error {
	err := r.each(ctx, v, func(d *device) error {
		n := d.floor.marked()
		if d.floor.V == 0 || n > 0 && r.now().Sub(time.UnixMilli(d.floor.MarkedMS)) < r.grace {
			return nil
		}
		if err := d.deleteBelow(d.floor.Seq + 1); err != nil {
			return err
		}
		if n > 0 {
			next := d.floor
			next.Kept = next.Seq + 1
			if err := d.saveFloor("note what was deleted", next, nil); err != nil {
				return err
			}
			dropped[d.name] = n
		}
		return nil
	})
	if err != nil {
		return err
	}
	if v, err = r.look(ctx, false); err != nil {
		return err
	}
	mine := map[string]bool{}
	err = r.each(ctx, v, func(d *device) error {
		mine[d.name] = true
		if v.gone(d.name) {
			return d.bury()
		}
		return d.forget(v)
	})
	if err != nil {
		return err
	}
	return r.tidy(v.books, func(device string) bool { return mine[device] })
}

// deleteBelow removes the segments that are sealed at or below a seq: no later op counts in them.
func (d *device) deleteBelow(kept uint64) error {
	gone := false
	for _, base := range slices.Clone(d.chain.bases) {
		s := d.chain.segs[base]
		if s.sealed == 0 || s.sealed > kept {
			continue
		}
		if err := d.r.fs.Remove(segmentFile(d.name, base)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.r.unknown("delete a segment", err)
		}
		gone = true
	}
	if !gone {
		return nil
	}
	if err := d.r.fs.SyncDir(segmentDir(d.name)); err != nil {
		return d.r.unknown("delete segments", err)
	}
	return nil
}

// bury removes the files of a device whose chain is closed and gone, but for its checkpoints.
func (d *device) bury() error {
	entries, err := d.r.fs.ReadDir(segmentDir(d.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // something else has the name; it is in the report
	}
	var names []string
	for _, e := range entries {
		if _, ok := segmentBase(e.Name()); ok && e.Type().IsRegular() {
			names = append(names, path.Join(segmentDir(d.name), e.Name()))
		}
	}
	for _, name := range smallFiles {
		names = append(names, deviceFile(d.name, name))
	}
	for _, name := range append(names, segmentDir(d.name), deviceFile(d.name, checkpointsDir), deviceDir(d.name)) {
		_ = d.r.fs.Remove(name) // a folder that is not empty stays
	}
	clear(d.sure)
	d.last, d.floor, d.chain = roster{acked: oplog.Frontier{}, role: relay.Seen}, floorValue{}, newChain(d.r.fs, d.name)
	if err := d.r.fs.SyncDir(devicesDir); err != nil {
		return d.r.unknown("remove a closed device", err)
	}
	return nil
}

// forget takes the chains that are closed and gone out of the device's ack.
func (d *device) forget(v *view) error {
	a, there, old := load[ackValue](d, ackFile)
	if !there || old != nil {
		return nil
	}
	before := len(a.Folded)
	a.Folded = v.living(a.Folded.Clone())
	v.living(d.last.acked)
	if len(a.Folded) == before {
		return nil
	}
	return d.save("collect", ackFile, a, nil)
}

// raise marks what may go of the chains that this handle acts for, and says why the rest stays.
func (r *Relay) raise(ctx context.Context, v *view, reasons map[string]relay.Reason) error {
	h, err := r.holding(ctx, v)
	if err != nil {
		return err
	}
	if h.Newest != nil {
		h.Newest = v.books.common()
	}
	rise, why, err := h.Cut()
	if err != nil {
		return err
	}
	for d, reason := range why {
		reasons[d] = reason
	}
	for _, name := range rise.Devices() {
		_, closed := v.books.closed[name]
		if closed && !h.Newest.All().Covers(name, rise[name].Seq) { // not closed by each of them
			reasons[name] = relay.Reason{Cause: relay.Uncovered}
			continue
		}
		d := r.device(name)
		if !d.mine && !closed {
			reasons[name] = relay.Reason{Cause: relay.Elsewhere, Replica: name}
			continue
		}
		if v.marked[name] > 0 {
			reasons[name] = relay.Reason{Cause: relay.Waiting}
			continue
		}
		if err := r.mark(ctx, name, rise[name]); err != nil {
			return err
		}
	}
	return nil
}

// mark raises the floor of a chain to an op that it holds.
func (r *Relay) mark(ctx context.Context, name string, to oplog.Pos) error {
	op, err := r.opAt(ctx, name, to.Seq)
	if err != nil {
		return err
	}
	d := r.device(name)
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.leave()
	next := floorValue{V: version, Device: name, posTime: posTimeOf(oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}), MarkedMS: r.now().UnixMilli()}
	if d.chain.floor != nil {
		next.Kept = d.chain.floor.Seq + 1
	}
	return d.saveFloor("mark ops", next, nil)
}
