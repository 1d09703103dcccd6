package hold

import (
	"context"
	"errors"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// An entry is what a table knows of one agent. It is there while somebody uses it, or its lease is held.
type entry struct {
	agent string
	gate  chan struct{} // one place, for whoever asks the coordinator for this lease
	poke  chan struct{} // one place: what is wanted has changed

	// guarded by Table.mu
	users  int // calls and goroutines that work with it
	owned  bool
	hand   bool          // it is to be handed over without a pause
	left   bool          // a part of its last effect is still there
	run    string        // that has it; empty: none
	free   time.Time     // since when none has
	keeper *coord.Keeper // nil: not held
	kept   bool          // a goroutine runs keep
}

// pokeLocked makes whoever keeps the lease look again.
func (e *entry) pokeLocked() {
	select {
	case e.poke <- struct{}{}:
	default:
	}
}

// dueLocked is when the lease is to be given back; false if it is wanted.
func (e *entry) dueLocked() (time.Time, bool) {
	switch {
	case e.owned || e.run != "" || e.left:
		return time.Time{}, false
	case e.hand:
		return e.free, true
	}
	return e.free.Add(Linger), true
}

// enter waits until nobody else asks for this lease.
func (e *entry) enter(ctx context.Context) error {
	select {
	case e.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *entry) leave() { <-e.gate }

// enterLocked gives the entry of an agent to one user more.
func (t *Table) enterLocked(agent string) *entry {
	e := t.entries[agent]
	if e == nil {
		e = &entry{agent: agent, gate: make(chan struct{}, 1), poke: make(chan struct{}, 1)}
		t.entries[agent] = e
	}
	e.users++
	return e
}

// exit is the end of a use.
func (t *Table) exit(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.users--
	t.forgetLocked(e)
}

func (t *Table) forgetLocked(e *entry) {
	if e.users == 0 && e.keeper == nil && e.run == "" {
		delete(t.entries, e.agent)
	}
	t.changedLocked()
}

// reserve gives the agent to a run, if no other has it.
func (t *Table) reserve(agent, run string) (*entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaving {
		return nil, ErrLeaving
	}
	e := t.enterLocked(agent)
	if e.run != "" {
		e.users--
		return nil, &BusyError{Agent: agent, Run: e.run}
	}
	e.run, e.hand = run, false
	return e, nil
}

// ended takes the agent from its run. With left it stays with what is still there of it.
func (t *Table) ended(e *entry, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left {
		e.left = true
	} else {
		e.run, e.free = "", time.Now()
		e.hand = e.hand || t.leaving
		e.pokeLocked()
	}
	t.forgetLocked(e)
}

// install has a lease kept from now on.
func (t *Table) install(e *entry, l coord.Lease) *coord.Keeper {
	k := coord.Keep(t.ctx, t.cfg.Leases, l, coord.KeepOptions{})
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.keeper == nil {
		e.free = time.Now()
	}
	e.keeper = k
	if !e.kept {
		e.kept = true
		e.users++
		t.all.Go(func() { t.keep(e) })
	}
	return k
}

func (t *Table) keeperOf(e *entry) *coord.Keeper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.keeper
}

// keep goes on until the lease is not held any more: it was lost, or given back.
func (t *Table) keep(e *entry) {
	defer t.exit(e)
	for {
		t.mu.Lock()
		k := e.keeper
		due, unwanted := e.dueLocked()
		e.kept = k != nil
		t.mu.Unlock()
		if k == nil {
			return
		}
		var timer *time.Timer
		var fires <-chan time.Time
		if unwanted {
			timer = time.NewTimer(time.Until(due))
			fires = timer.C
		}
		select {
		case <-k.Context().Done():
			t.comeBack(e, k)
		case <-fires:
			t.release(e)
		case <-e.poke:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// comeBack renews a lease that ran out until it is held again, known to be lost, or not wanted any more.
func (t *Table) comeBack(e *entry, was *coord.Keeper) {
	for t.ctx.Err() == nil {
		if t.isDue(e) {
			t.release(e)
			return
		}
		if e.enter(t.ctx) != nil {
			break
		}
		if t.keeperOf(e) != was { // a claim was faster
			e.leave()
			return
		}
		_, err := t.again(t.ctx, e, was)
		e.leave()
		if err == nil {
			t.log.Info("lease held again after it could not be renewed in time", "agent", e.agent, "epoch", uint64(was.Lease().Epoch))
		}
		if err == nil || isLost(err) {
			return
		}
		sleep(t.ctx, pause)
	}
	t.drop(e)
}

// isDue says that the lease is held, and to be given back now.
func (t *Table) isDue(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	due, unwanted := e.dueLocked()
	return unwanted && e.keeper != nil && !time.Now().Before(due)
}

// release gives the lease back unless somebody wants it again, and asks for that until it is answered.
func (t *Table) release(e *entry) {
	if e.enter(t.ctx) != nil {
		t.drop(e)
		return
	}
	defer e.leave()
	if !t.isDue(e) {
		return
	}
	k := t.keeperOf(e)
	k.Stop()
	l := k.Lease()
	told := false
	for t.ctx.Err() == nil {
		err := t.giveBack(l)
		if err == nil || isLost(err) {
			t.log.Debug("lease released", "agent", l.Agent, "epoch", uint64(l.Epoch))
			break
		}
		if !told && t.ctx.Err() == nil {
			told = true
			t.log.Warn("lease not released yet; it is tried again", "agent", l.Agent, "epoch", uint64(l.Epoch), "err", err)
		}
		sleep(t.ctx, pause)
	}
	t.drop(e)
}

// drop notes that the lease is not held any more.
func (t *Table) drop(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.keeper, e.owned = nil, false
	t.changedLocked()
}

// isLost says that a lease is another's, or nobody's.
func isLost(err error) bool { return errors.Is(err, coord.ErrLost) || errors.Is(err, coord.ErrHeld) }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// giveBack asks once, and waits for others who do.
func (t *Table) giveBack(l coord.Lease) error {
	select {
	case t.back <- struct{}{}:
		defer func() { <-t.back }()
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
	ctx, cancel := context.WithTimeout(t.ctx, l.TTL)
	defer cancel()
	return t.cfg.Leases.Release(ctx, l.Agent, l.Device, l.Epoch)
}
