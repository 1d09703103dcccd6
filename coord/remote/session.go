package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// A session is one process that calls, and its coordinator.
type session struct {
	coord.Coordinator

	mu    sync.Mutex
	heard time.Time        // of the last call, by the clock of this process
	slots map[string]*slot // by agent
	dead  map[string]bool  // livenesses that the client proved dead

	refused memo
}

// most of what one session makes the server keep.
const (
	maxSlots = 100_000
	maxDead  = 100_000
)

// A slot is the last numbered request for an agent. Numbers below it are never carried out again.
type slot struct {
	turn chan struct{} // one place: who has it may touch the rest

	n     uint64
	lease coord.Lease // what it was granted; Epoch 0: nothing
	given lease       // as it was answered
	err   error       // why it was refused
	again bool        // its outcome is not known: the coordinator is asked again, and settles it
}

var errSuperseded = fmt.Errorf("%w: a later request for this agent was made", coord.ErrNotSent)

// slotOf waits for the turn of an agent.
func (s *session) slotOf(ctx context.Context, agent string) (*slot, error) {
	s.mu.Lock()
	sl := s.slots[agent]
	if sl == nil && len(s.slots) < maxSlots {
		sl = &slot{turn: make(chan struct{}, 1)}
		s.slots[agent] = sl
	}
	s.mu.Unlock()
	if sl == nil {
		return nil, fmt.Errorf("%w: a process asks for no more than %d agents", coord.ErrNotSent, maxSlots)
	}
	select {
	case sl.turn <- struct{}{}:
		return sl, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: agent %s: another request is not settled: %w", coord.ErrNotSent, agent, context.Cause(ctx))
	}
}

// A deed is a numbered request.
type deed struct {
	agent, device string
	// do carries it out. A lease without an epoch: it was no request for one.
	do func(context.Context, coord.Coordinator) (coord.Lease, error)
	// settles: the coordinator tells a repeated request by itself what became of the first, also later.
	settles bool
}

// numbered carries a request out once. settled means that its number never will be again.
//
//  1. A number below the last one is refused: the request was given up by a later one.
//  2. The last number again gives what it gave; a grant only while it still is the lease.
//  3. Before a new number is carried out, what was granted to one that its client knows no answer of is given back. If that
//     fails, the call is refused; its number may be asked for again by another call.
func (s *session) numbered(ctx context.Context, call string, num numbered, d deed, arrived time.Time) (given lease, settled bool, err error) {
	if num.N == 0 || num.From == 0 || num.From > num.N {
		return lease{}, false, fmt.Errorf("%w: request %d from %d", coord.ErrInvalid, num.N, num.From)
	}
	sl, err := s.slotOf(ctx, d.agent)
	if err != nil {
		return lease{}, false, err
	}
	defer func() { <-sl.turn }()
	if why := s.refused.of(call); why != nil {
		return lease{}, false, why
	}
	switch {
	case num.N < sl.n:
		return lease{}, false, errSuperseded
	case num.N == sl.n && !sl.again:
		given, err := s.repeated(ctx, sl, d, arrived)
		return given, err == nil || !errors.Is(err, errReread), err
	case num.N > sl.n:
		if err := s.giveUp(ctx, sl, num, d); err != nil {
			err = fmt.Errorf("%w: an earlier request cannot be given up: %w", coord.ErrNotSent, err)
			s.refused.add(call, err)
			return lease{}, false, err
		}
		turn := sl.turn
		*sl = slot{turn: turn, n: num.N}
	}
	l, err := d.do(ctx, s.Coordinator)
	sl.again = unknown(err)
	sl.lease, sl.err = l, err
	if err != nil {
		return lease{}, !sl.again, err
	}
	sl.given = leaseOf(l, arrived)
	return sl.given, true, nil
}

// unknown reports whether an error leaves open what became of a request.
func unknown(err error) bool {
	return errors.Is(err, coord.ErrIndeterminate) || err != nil && verdictOf(err).Name == "indeterminate"
}

// begin carries a begin out, unless the call is a copy of one that was refused. A copy waits for the agent's turn, and so for
// what becomes of the first.
func (s *session) begin(ctx context.Context, call string, b coord.Begin) (coord.Attempt, error) {
	sl, err := s.slotOf(ctx, b.Lease.Agent)
	if err != nil {
		return coord.Attempt{}, err
	}
	defer func() { <-sl.turn }()
	if why := s.refused.of(call); why != nil {
		return coord.Attempt{}, why
	}
	a, err := s.Begin(ctx, b)
	if err != nil && !unknown(err) {
		s.refused.add(call, err)
	}
	return a, err
}

// errReread means that what became of a request could not be read now.
var errReread = errors.New("it cannot be read what became of it")

// repeated answers a request that was carried out.
func (s *session) repeated(ctx context.Context, sl *slot, d deed, arrived time.Time) (lease, error) {
	switch {
	case sl.err != nil || sl.lease.Epoch == 0:
		return lease{}, sl.err
	case d.settles:
		l, err := d.do(ctx, s.Coordinator)
		if err != nil {
			return lease{}, errors.Join(err, errReread)
		}
		return leaseOf(l, arrived), nil
	}
	now, held, err := s.Current(ctx, d.agent)
	switch {
	case err != nil:
		return lease{}, fmt.Errorf("%w: %w: %w", coord.ErrIndeterminate, errReread, err)
	case !held || now.Handle != sl.lease.Handle:
		return lease{}, fmt.Errorf("%w: epoch %d was granted to this very request and is lost again: ask anew", coord.ErrNotSent, sl.lease.Epoch)
	}
	return sl.given, nil
}

// giveUp gives back what the last request was granted if its client does not know of it.
func (s *session) giveUp(ctx context.Context, sl *slot, num numbered, d deed) error {
	if sl.n < num.From {
		return nil
	}
	if sl.again {
		return s.Release(ctx, d.agent, d.device, 0)
	}
	if sl.lease.Epoch == 0 {
		return nil
	}
	err := s.Release(ctx, d.agent, sl.lease.Device, sl.lease.Epoch)
	if errors.Is(err, coord.ErrLost) || errors.Is(err, coord.ErrHeld) {
		return nil // it is another's by now
	}
	return err
}

// proved notes a liveness that the client proved dead.
func (s *session) proved(liveness string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if liveness != "" && len(s.dead) < maxDead {
		s.dead[liveness] = true
	}
}

func (s *session) isDead(liveness string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead[liveness]
}
