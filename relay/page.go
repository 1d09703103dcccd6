package relay

import (
	"errors"

	"github.com/syncnode/syncnode/oplog"
)

// A Source gives the ops of one device from a seq on, at least one if there is one, in order. It may give fewer
// than there are; room is how many bytes of lines the page has for them. An error that matches ErrCorrupt leaves
// out this chain alone, any other ends the pull.
type Source func(device string, from uint64, room int) ([]oplog.Op, error)

// A Wanted is a chain of which a pull needs the ops from From up to Last.
type Wanted struct {
	Device     string
	From, Last uint64
}

// Needs compares what the caller holds with the relay's heads: the chains that have something new for it, in
// bytewise order but beginning after the device of the caller, so that callers do not all start with the same
// one. It fails with a *FrontierTruncatedError if the caller needs what was collected.
func Needs(device string, want Want, heads, floor oplog.Frontier) ([]Wanted, error) {
	skip := make(map[string]bool, len(want.Skip))
	for _, d := range want.Skip {
		skip[d] = true
	}
	var before, after []Wanted
	for _, d := range heads.Devices() {
		from := want.Held.Next(d)
		if skip[d] || from > heads[d].Seq {
			continue
		}
		if floor.Covers(d, from) {
			return nil, &FrontierTruncatedError{Device: d, Held: from, Floor: floor.Clone()}
		}
		w := Wanted{Device: d, From: from, Last: heads[d].Seq}
		if d > device {
			after = append(after, w)
		} else {
			before = append(before, w)
		}
	}
	return append(after, before...), nil
}

// Fill takes ops from the wanted chains in turn until the page is full: in each turn every chain gets an equal
// share of what is left, and at least one op if the page has room for it.
func Fill(wanted []Wanted, maxBytes int, source Source) (Page, error) {
	if maxBytes <= 0 || maxBytes > MaxBytes {
		maxBytes = MaxBytes
	}
	var page Page
	room := maxBytes
	for len(wanted) > 0 {
		share := max(room/len(wanted), 1)
		rest := wanted[:0:0]
		for _, w := range wanted {
			if len(page.Ops) == MaxOps {
				page.More = true
				return page, nil
			}
			ops, err := source(w.Device, w.From, share)
			if errors.Is(err, ErrCorrupt) {
				page.lose(w.Device, err)
				continue
			}
			if err != nil {
				return Page{}, err
			}
			taken, full := take(&page, ops, w, &room, share)
			w.From += uint64(taken)
			if full {
				page.More = true
				return page, nil
			}
			if taken > 0 && w.From <= w.Last {
				rest = append(rest, w)
			}
		}
		wanted = rest
	}
	return page, nil
}

// take moves ops into the page within the chain's share; full means that the next op has no room in the page.
func take(page *Page, ops []oplog.Op, w Wanted, room *int, share int) (taken int, full bool) {
	for _, op := range ops {
		size := LineLen(op)
		switch {
		case op.Seq > w.Last || taken > 0 && size > share:
			return taken, false
		case len(page.Ops) > 0 && size > *room, len(page.Ops) == MaxOps:
			return taken, true
		}
		page.Ops = append(page.Ops, op)
		*room -= size
		share -= size
		taken++
	}
	return taken, false
}

func (p *Page) lose(device string, err error) {
	if p.Broken == nil {
		p.Broken = map[string]error{}
	}
	p.Broken[device] = err
}
