package dir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A breach is why a chain ends though more of it is there, and the op that is missing.
type breach struct {
	next uint64
	err  error
}

// A view is what all files together say now.
type view struct {
	books  *books
	names  []string    // devices that have a folder
	heads  oplog.Heads // of all chains that have ops or a floor, but for the closed ones that are gone
	floor  oplog.Frontier
	marked map[string]int // ops below the floor that are not deleted
	broken map[string]breach
}

// look judges what is new of every device; fresh: checkpoints that were judged before as well.
func (r *Relay) look(ctx context.Context, fresh bool) (*view, error) {
	names, _, err := r.devices()
	if err != nil {
		return nil, err
	}
	books, err := r.books(ctx, fresh)
	if err != nil {
		return nil, err
	}
	v := &view{books: books, names: names, heads: oplog.Heads{}, floor: oplog.Frontier{}, marked: map[string]int{}, broken: map[string]breach{}}
	all := slices.Clone(names)
	for name := range books.seeds {
		if !slices.Contains(names, name) {
			all = append(all, name)
		}
	}
	for _, name := range all {
		d := r.device(name)
		if err := d.enter(ctx); err != nil {
			return nil, err
		}
		v.add(d)
		d.leave()
	}
	return v, nil
}

// add judges a device, which the caller has entered.
func (v *view) add(d *device) {
	err := d.judge(v.books.seed(d.name))
	c := d.chain
	head, ok := c.verified.Head()
	if end, closed := v.books.closed[d.name]; closed {
		if !ok || head.Seq < end.Seq || d.floor.V != 0 && d.floor.Kept > end.Seq {
			return // all that is left of it is that it is closed
		}
		if head.Seq > end.Seq { // pushed while the closing was on its way
			head = oplog.Head{Seq: end.Seq, ID: end.ID, HLC: oplog.HLC{Device: d.name}}
		}
	}
	if ok {
		v.heads[d.name] = head
	}
	if c.floor != nil {
		v.floor[d.name] = c.floor.Pos()
		if c.floor.Seq == d.floor.Seq {
			v.marked[d.name] = d.floor.marked()
		}
	}
	switch next := c.next(); {
	case err != nil:
		v.broken[d.name] = breach{next, fmt.Errorf("%w: %w", relay.ErrCorrupt, err)}
	case c.stuck():
		v.broken[d.name] = breach{next, fmt.Errorf("%w: op %s/%d is damaged or missing, and what follows it is there", relay.ErrCorrupt, d.name, next)}
	}
}

// gone reports whether a chain is closed and nothing is left of it.
func (v *view) gone(device string) bool {
	_, closed := v.books.closed[device]
	_, rows := v.heads[device]
	return closed && !rows
}

// living takes the chains that are gone out of an ack.
func (v *view) living(acked oplog.Frontier) oplog.Frontier {
	maps.DeleteFunc(acked, func(d string, _ oplog.Pos) bool { return v.gone(d) })
	return acked
}

var errUnarrived = errors.New("the checkpoint that covers what was collected has not arrived")

// unarrived leaves out of a pull the chains that were collected beyond what the caller holds, if no checkpoint that covers them is here
// yet, and gives them beside those that are broken: everything else goes on.
func (v *view) unarrived(want *relay.Want) map[string]breach {
	broken := maps.Clone(v.broken)
	covered := oplog.Frontier{}
	if s := v.books.newest(); s != nil {
		covered = s.about().All()
	}
	for _, d := range want.Skip {
		delete(broken, d)
	}
	want.Skip = slices.Clone(want.Skip)
	leave := func(d string, p oplog.Pos) {
		if next := want.Held.Next(d); next <= p.Seq && !covered.Covers(d, p.Seq) && !slices.Contains(want.Skip, d) {
			want.Skip = append(want.Skip, d)
			broken[d] = breach{next, fmt.Errorf("%w: ops of %s up to seq %d: %w", relay.ErrCorrupt, d, p.Seq, errUnarrived)}
		}
	}
	for d, p := range v.floor {
		leave(d, p)
	}
	for d, p := range v.books.closed {
		if v.gone(d) {
			leave(d, p)
		}
	}
	return broken
}
