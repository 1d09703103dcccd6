package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// StopAt is when an effect is told to stop unless the lease is renewed: at two thirds of the granted TTL.
func StopAt(l coord.Lease) time.Time { return l.Sent.Add(l.TTL * 2 / 3) }

// KillAt is when it has to be gone: a margin before the whole of it.
func KillAt(l coord.Lease) time.Time { return l.Sent.Add(l.TTL - margin(l.TTL)) }

func stopAt(k keeper) time.Time { return StopAt(k.Lease()) }
func killAt(k keeper) time.Time { return KillAt(k.Lease()) }

// margin is the room between KILL and the end of the lease: a second, and less for a short TTL.
func margin(ttl time.Duration) time.Duration { return min(time.Second, ttl/8) }

// A Watched is how an effect ended under Watch.
type Watched struct {
	Ended Ended
	// State is coord.Committed or coord.Failed, with the cause; or coord.Open if its end could not be seen.
	State coord.State
	Cause string
	Code  int   // what Run would give for it
	Why   error // the first reason to stop it; nil if there was none
}

// Watch supervises an effect that began by other means than Run, under the job's rules and a lease that the caller keeps:
// it is told to stop and killed as one of Run is. It returns when the effect has ended. deadline may be zero.
func Watch(ctx context.Context, j Job, h Held, eff Effect, deadline time.Time) Watched {
	j, _ = j.withDefaults() // what is wrong with the names of a job plays no part here
	s := newSupervision(j, kept{h}, eff, deadline)
	s.watch(ctx)
	w := Watched{Ended: s.ended, State: coord.Open, Code: ExitInDoubt, Why: s.why}
	if !s.unseen() {
		w.State, w.Cause = ending(s.ended, s.why)
		w.Code = s.ended.Code()
	}
	if w.State == coord.Failed {
		w.Code = failedCode(w.Cause, s.ended, s.why)
	}
	return w
}

// A supervision watches one effect until its end. It belongs to one goroutine.
type supervision struct {
	job      Job
	k        keeper
	eff      Effect
	deadline time.Time // zero: none

	why    error     // first reason to stop it; nil: none
	killBy time.Time // once told to stop: when its patience is over
	killed bool
	ended  Ended
}

// unseen says that the effect ran and nobody saw all of it end.
func (s *supervision) unseen() bool {
	e := s.ended
	return e.Err != nil || e.Left && (s.killed || e.Stopped != nil)
}

func newSupervision(j Job, k keeper, eff Effect, deadline time.Time) *supervision {
	return &supervision{job: j, k: k, eff: eff, deadline: deadline}
}

// watch returns when the effect has ended, and has it stopped where it must.
func (s *supervision) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	told, gone := ctx.Done(), s.k.Context().Done()
	for {
		s.act(time.Now())
		if next := s.next(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-s.eff.Done():
			s.ended = s.eff.Ended()
			return
		case <-told:
			told = nil
			s.stop(time.Now(), orElse(context.Cause(ctx), error(ErrDrain)))
		case <-gone:
			gone = nil
			s.lost(time.Now(), context.Cause(s.k.Context()))
		case <-timer.C:
		}
	}
}

// act does what is due. An effect that has ended meanwhile is left alone by Stop and Kill.
func (s *supervision) act(now time.Time) {
	if !s.deadline.IsZero() && !now.Before(s.deadline) {
		s.stop(now, ErrTimeout)
	}
	if s.job.OnLost == LostStop && !now.Before(stopAt(s.k)) {
		s.lost(now, coord.ErrUnverifiable)
	}
	if s.why != nil && !s.killed && !now.Before(s.patience()) {
		s.killed = true
		s.eff.Kill(s.why)
	}
}

// next is when something is due; zero if only events count.
func (s *supervision) next() time.Time {
	switch {
	case s.killed:
		return time.Time{}
	case s.why != nil:
		return s.patience()
	}
	next := s.deadline
	if s.job.OnLost == LostStop {
		next = earlier(next, stopAt(s.k))
	}
	return next
}

// patience is when a stopped effect is killed: after its grace, and before the lease can end.
func (s *supervision) patience() time.Time {
	if s.job.OnLost == LostStop {
		return earlier(s.killBy, killAt(s.k))
	}
	return s.killBy
}

func (s *supervision) stop(now time.Time, why error) {
	if s.why != nil {
		return
	}
	s.why, s.killBy = why, now.Add(s.job.Grace)
	s.eff.Stop(why)
}

// lost stops an effect whose lease somebody took, or cannot be trusted. From then on it has no more time than the span
// between two thirds and the end of a lease, whatever the clocks did meanwhile.
func (s *supervision) lost(now time.Time, why error) {
	if s.job.OnLost != LostStop {
		return
	}
	s.stop(now, errors.Join(ErrLost, why))
	ttl := s.k.Lease().TTL
	s.killBy = earlier(s.killBy, now.Add(ttl/3-margin(ttl)))
}

// earlier is the earlier of two instants; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
