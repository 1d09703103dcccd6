// Package recovery brings a ledger that was restored from an older copy, or replaced, up to what devices remember.
//
// # Guarantees
//
// After every device that took part has offered, no run that one of them committed can begin again, a run whose attempt is known
// and whose end is not is in doubt, and no epoch that one of them was granted, or has a record of, is granted again. Offering may be
// repeated, in any order and by all at once.
//
// A device's own word is written as it is. What a device knows of another's attempt that the ledger lacks is written as a doubt, until that
// device offers itself or a person decides; where the ledger holds the attempt as open, the word of its own device ends it.
//
// Not promised: anything about what a holder without a disk did, or a device that is gone and has no peer that holds its
// records. Nobody remembers that.
//
// # Failure
//
// What was written before an error stands, and offering again goes on. A refusal of one attempt or epoch does not keep the others
// back, but then the offer is not noted.
//
// # Concurrency
//
// All functions may be called at once, by any number of processes.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/book"
)

// A Ledger is the ledger that went back, and how long each question to it may take.
type Ledger struct {
	coord.Recoverer
	Timeout time.Duration // 0: as long as it takes
}

func ask[T any](ctx context.Context, l Ledger, question func(context.Context) (T, error)) (T, error) {
	if l.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, l.Timeout, fmt.Errorf("no answer within %s", l.Timeout))
		defer cancel()
	}
	return question(ctx)
}

// A Kind says what the ledger lacks of an attempt.
type Kind string

const (
	// Lost: it does not hold an attempt whose end its device knows.
	Lost Kind = "lost"
	// Unended: it holds the attempt as open or as less than its device knows.
	Unended Kind = "not ended"
	// Doubt: it does not hold the attempt, and nobody here can say with right how it ended.
	Doubt Kind = "in doubt"
)

// A Missing is an attempt that the logs know and the ledger lacks, or lacks the end of. Outcome is what is to be written.
type Missing struct {
	Kind    Kind
	Author  string // whose word it is
	Outcome coord.Outcome
}

// An Epoch is one that would be granted again, or was.
type Epoch struct {
	coord.Grant
	Stored coord.Epoch // in the ledger
}

// A Gap is what the ledger lacks of what the memories hold.
type Gap struct {
	Attempts []Missing
	Epochs   []Epoch
	Known    int      // attempts in the memories
	Peers    []string // devices in them beside those whose memories they are
}

// Empty reports whether nothing is missing.
func (g Gap) Empty() bool { return len(g.Attempts)+len(g.Epochs) == 0 }

// Find compares memories with the ledger. It only reads.
func Find(ctx context.Context, l Ledger, memories []book.Memory) (Gap, error) {
	own := map[string]bool{}
	for _, m := range memories {
		own[m.Device] = true
	}
	s := &search{l: l, own: own}
	var err error
	if s.entries, err = s.listed(ctx); err != nil {
		return Gap{}, err
	}
	for _, d := range merged(memories) {
		s.gap.Known++
		if err := s.deed(ctx, d); err != nil {
			return Gap{}, err
		}
	}
	return s.gap, s.rest(ctx, memories)
}

type search struct {
	l       Ledger
	own     map[string]bool
	entries map[coord.RunRef]coord.Entry
	gap     Gap
}

func (s *search) listed(ctx context.Context) (map[coord.RunRef]coord.Entry, error) {
	all := map[coord.RunRef]coord.Entry{}
	err := eachRun(ctx, s.l, func(v coord.View) { all[coord.RunRef{Agent: v.Entry.Agent, Run: v.Entry.Run}] = v.Entry })
	return all, err
}

func eachRun(ctx context.Context, l Ledger, do func(coord.View)) error {
	f := coord.Filter{Limit: coord.MaxPage}
	for {
		page, err := ask(ctx, l, func(ctx context.Context) (coord.Page, error) { return l.List(ctx, f) })
		if err != nil {
			return err
		}
		if err := coord.Unread(page.Unreadable); err != nil {
			return fmt.Errorf("of the runs in the ledger %w", err)
		}
		for _, v := range page.Views {
			do(v)
		}
		if f.After = page.Next; f.After == "" {
			return nil
		}
	}
}

// merged are the deeds of all memories, one per attempt: the device's own word before another's, what says more before what says less.
func merged(memories []book.Memory) []coord.Deed {
	type key struct{ run, attempt, device string }
	at := map[key]int{}
	var all []coord.Deed
	for _, m := range memories {
		for _, d := range m.Deeds {
			if d.Author != d.Attempt.Device {
				continue // somebody else's opinion
			}
			k := key{d.Run, d.Attempt.ID, d.Attempt.Device}
			if i, known := at[k]; !known {
				at[k] = len(all)
				all = append(all, d)
			} else if rank(d.Attempt.State) > rank(all[i].Attempt.State) {
				all[i] = d
			}
		}
	}
	return all
}

func rank(s coord.State) int {
	return slices.Index([]coord.State{coord.Open, coord.Void, coord.Failed, coord.Committed}, s)
}

// deed compares one attempt with its entry.
func (s *search) deed(ctx context.Context, d coord.Deed) error {
	ref := coord.RunRef{Agent: d.Agent, Run: d.Run}
	e, listed := s.entries[ref]
	if !listed { // or it is packed
		v, err := ask(ctx, s.l, func(ctx context.Context) (coord.View, error) {
			return s.l.Look(ctx, coord.Question{Agent: d.Agent, Run: d.Run})
		})
		if err != nil {
			return err
		}
		e = v.Entry
		s.entries[ref] = e
	}
	if kind, missing := missing(e, d, s.own[d.Author]); missing {
		o := d.Outcome
		if kind == Doubt {
			o.Attempt.State, o.Attempt.Abandoned, o.Attempt.Cause, o.Attempt.Exit, o.Attempt.Ended, o.Attempt.Result = coord.Open, true, "", 0, time.Time{}, ""
		}
		s.gap.Attempts = append(s.gap.Attempts, Missing{Kind: kind, Author: d.Author, Outcome: o})
	}
	return nil
}

// missing says whether the entry lacks what a device says of its attempt; own, that it is one of those that tell.
func missing(e coord.Entry, d coord.Deed, own bool) (Kind, bool) {
	said := d.Attempt.State
	a, held := e.Find(d.Attempt.ID)
	_, committed := e.Last(func(a coord.Attempt) bool { return a.State == coord.Committed })
	switch {
	case e.Packed:
		return "", false
	case held:
		ends := a.State == coord.Open && said != coord.Open || a.State != coord.Committed && said == coord.Committed
		return Unended, ends
	case said == coord.Void, committed && (said != coord.Committed || !own):
		return "", false
	case said == coord.Failed && closed(e) >= kept:
		return "", false // the entry may have dropped it for later ones
	case said == coord.Open, !own:
		return Doubt, true
	}
	return Lost, true
}

// kept is how many closed attempts every ledger keeps of a run before it drops any.
const kept = 8

func closed(e coord.Entry) (n int) {
	for _, a := range e.Attempts {
		if a.State == coord.Void || a.State == coord.Failed {
			n++
		}
	}
	return n
}

// rest compares the epochs, and collects the peers.
func (s *search) rest(ctx context.Context, memories []book.Memory) error {
	epochs := map[string]coord.Grant{}
	peers := map[string]bool{}
	for _, m := range memories {
		for agent, g := range m.Epochs {
			if g.Epoch > epochs[agent].Epoch {
				epochs[agent] = g
			}
		}
		for _, p := range m.Peers {
			peers[p] = peers[p] || !s.own[p]
		}
	}
	maps.DeleteFunc(peers, func(_ string, foreign bool) bool { return !foreign })
	s.gap.Peers = slices.Sorted(maps.Keys(peers))
	for _, agent := range slices.Sorted(maps.Keys(epochs)) {
		g := epochs[agent]
		type current struct {
			coord.Lease
			held bool
		}
		now, err := ask(ctx, s.l, func(ctx context.Context) (c current, err error) {
			c.Lease, c.held, err = s.l.Current(ctx, agent)
			return c, err
		})
		if err != nil {
			return err
		}
		if g.Epoch > now.Epoch || now.held && g.Epoch == now.Epoch && g.Device != now.Device {
			s.gap.Epochs = append(s.gap.Epochs, Epoch{Grant: g, Stored: now.Epoch})
		}
	}
	return nil
}

// A Report says what an offer did.
type Report struct {
	Attempts int  // that the device knows of
	Written  int  // that the ledger lacked, or lacked the end of
	Doubts   int  // of these are in doubt now
	Raised   int  // epochs that would have been granted again
	Noted    bool // under a gate
}

// Close writes what is missing. What is refused does not keep back the rest.
func Close(ctx context.Context, l Ledger, g Gap) (Report, error) {
	r := Report{Attempts: g.Known}
	var refused []error
	for _, m := range g.Attempts {
		written, err := ask(ctx, l, func(ctx context.Context) (bool, error) { return l.Recreate(ctx, m.Outcome) })
		if err != nil {
			err = fmt.Errorf("run %s of agent %s: %w", m.Outcome.Run, m.Outcome.Agent, err)
			if !errors.Is(err, coord.ErrInvalid) {
				return r, errors.Join(append(refused, err)...)
			}
			refused = append(refused, err)
		}
		if written {
			r.Written++
		}
		if written && m.Kind == Doubt {
			r.Doubts++
		}
	}
	for _, e := range g.Epochs {
		written, err := ask(ctx, l, func(ctx context.Context) (bool, error) { return l.Raise(ctx, e.Grant) })
		if err != nil {
			err = fmt.Errorf("epoch %d of agent %s: %w", e.Epoch, e.Agent, err)
			if !errors.Is(err, coord.ErrInvalid) {
				return r, errors.Join(append(refused, err)...)
			}
			refused = append(refused, err)
		}
		if written {
			r.Raised++
		}
	}
	return r, errors.Join(refused...)
}

// restarts is how often an offer begins again when another recovery was begun meanwhile.
const restarts = 3

// Offer tells the ledger what the memories hold, and notes under the gate that stands that each of the devices has. It notes nothing if
// no gate stands.
func Offer(ctx context.Context, l Ledger, devices []string, memories []book.Memory) (Report, error) {
	for n := 0; ; n++ {
		gate, set, err := Gate(ctx, l)
		if err != nil {
			return Report{}, err
		}
		gap, err := Find(ctx, l, memories)
		if err != nil {
			return Report{}, err
		}
		r, err := Close(ctx, l, gap)
		if err != nil || !set {
			return r, err
		}
		err = note(ctx, l, gate, devices, gap, r)
		if errors.Is(err, coord.ErrMoved) && n < restarts {
			continue
		}
		r.Noted = err == nil
		return r, err
	}
}

func note(ctx context.Context, l Ledger, gate coord.Gate, devices []string, gap Gap, r Report) error {
	for _, d := range devices {
		o := coord.Offer{Device: d, Gate: gate.ID, Done: true, At: time.Now(), Attempts: r.Attempts, Written: r.Written, Doubts: r.Doubts,
			Raised: r.Raised, Peers: gap.Peers[:min(len(gap.Peers), coord.MaxPeers)]}
		if _, err := ask(ctx, l, func(ctx context.Context) (struct{}, error) { return struct{}{}, l.Offer(ctx, o) }); err != nil {
			return err
		}
	}
	return nil
}

// Gate is the recovery gate, and whether it stands.
func Gate(ctx context.Context, l Ledger) (coord.Gate, bool, error) {
	type gate struct {
		coord.Gate
		set bool
	}
	g, err := ask(ctx, l, func(ctx context.Context) (g gate, err error) {
		g.Gate, g.set, err = l.Recovery(ctx)
		return g, err
	})
	return g.Gate, g.set, err
}

// Owes reports whether a gate stands, and whether the device has not offered under it yet.
func Owes(ctx context.Context, l Ledger, device string) (set, owes bool, err error) {
	gate, set, err := Gate(ctx, l)
	if err != nil || !set {
		return false, false, err
	}
	offers, err := ask(ctx, l, l.Offers)
	return true, !slices.ContainsFunc(offers, func(o coord.Offer) bool { return o.Device == device && counts(o, gate) }), err
}

func counts(o coord.Offer, gate coord.Gate) bool { return o.Done && o.Gate == gate.ID }
