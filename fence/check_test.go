package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/fence"
	"github.com/syncnode/syncnode/internal/bubble"
)

func TestCheckSaysYesOnlyToTheHolderOfAnOpenAttempt(t *testing.T) {
	gate := coord.Gate{By: "ada", Reason: "test"}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s *scene)
		want error
	}{
		{"all is well", func(*testing.T, *scene) {}, nil},
		{"released", func(t *testing.T, s *scene) { must(t, s.c.Release(t.Context(), agent, "me", s.lease.Epoch)) }, coord.ErrNotHeld},
		{"another grant of this device", func(t *testing.T, s *scene) {
			must(t, s.c.Release(t.Context(), agent, "me", s.lease.Epoch))
			_, err := s.c.Acquire(t.Context(), coord.Request{Agent: agent, Device: "me", TTL: coord.DefaultTTL})
			must(t, err)
		}, coord.ErrStale},
		{"another handle of this epoch", func(t *testing.T, s *scene) { s.lease.Handle = coord.NewNonce() }, coord.ErrStale},
		{"stolen", func(t *testing.T, s *scene) {
			_, err := s.store.Process(coord.Process{}).Steal(t.Context(), coord.Theft{
				Request: coord.Request{Agent: agent, Device: "thief", TTL: coord.DefaultTTL}, By: "ada", Reason: "test", Force: true, Epoch: s.lease.Epoch})
			must(t, err)
		}, coord.ErrNotHeld},
		{"expired there", func(t *testing.T, s *scene) { s.store.Expire(s.lease.Liveness) }, coord.ErrUnverifiable},
		{"trust over here", func(t *testing.T, s *scene) { bubble.Pass(s.lease.TTL) }, coord.ErrUnverifiable},
		{"never sent", func(t *testing.T, s *scene) { s.lease.Sent = time.Time{} }, coord.ErrUnverifiable},
		{"closed", func(t *testing.T, s *scene) {
			s.a.State = coord.Failed
			must(t, s.c.Finish(t.Context(), coord.Outcome{Agent: agent, Run: run, Attempt: s.a}))
		}, coord.ErrClosed},
		{"abandoned", func(t *testing.T, s *scene) {
			s.a.Abandoned = true
			must(t, s.c.Finish(t.Context(), coord.Outcome{Agent: agent, Run: run, Attempt: s.a}))
		}, coord.ErrClosed},
		{"committed by a zombie", func(t *testing.T, s *scene) {
			z := coord.Attempt{ID: coord.NewNonce(), Device: "zombie", Epoch: 1, State: coord.Committed}
			must(t, s.c.Finish(t.Context(), coord.Outcome{Agent: agent, Run: run, Attempt: z}))
		}, coord.ErrCommitted},
		{"an attempt that is not there", func(t *testing.T, s *scene) { s.a.ID = coord.NewNonce() }, coord.ErrNotFound},
		{"paused", func(t *testing.T, s *scene) { must(t, s.c.Pause(t.Context(), agent, gate)) }, coord.ErrPaused},
		{"recovery", func(t *testing.T, s *scene) { must(t, s.c.SetRecovery(t.Context(), gate)) }, coord.ErrRecovery},
	} {
		t.Run(c.name, func(t *testing.T) {
			inScene(t, func(t *testing.T, s *scene) {
				s.begin("me", false)
				c.do(t, s)
				err := s.fence().Check(t.Context(), s.lease, run, s.a.ID)
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}

type slowLedger struct {
	*scene
	took time.Duration
	err  error
}

func (l slowLedger) Look(ctx context.Context, q coord.Question) (coord.View, error) {
	v, err := l.scene.Look(ctx, q)
	bubble.Pass(l.took)
	if l.err != nil {
		return coord.View{}, l.err
	}
	return v, err
}

func TestAnAnswerThatComesAfterTrustEndedIsNo(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		s.begin("me", false)
		f := s.fence(func(cfg *fence.Config) { cfg.Attempts = slowLedger{scene: s, took: s.lease.TTL} })
		if err := f.Check(t.Context(), s.lease, run, s.a.ID); !errors.Is(err, coord.ErrUnverifiable) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAFailureToAskIsNo(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		s.begin("me", false)
		f := s.fence(func(cfg *fence.Config) { cfg.Attempts = slowLedger{scene: s, err: coord.ErrNotSent} })
		if err := f.Check(t.Context(), s.lease, run, s.a.ID); !errors.Is(err, coord.ErrNotSent) {
			t.Errorf("got %v", err)
		}
		if _, err := f.Verdict(t.Context(), ask()); !errors.Is(err, coord.ErrNotSent) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAGuardThatRefusesIsNo(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		s.begin("me", false)
		for _, want := range []error{nil, coord.ErrLost} {
			f := s.fence(func(cfg *fence.Config) { cfg.Guard = func(context.Context, coord.Lease) error { return want } })
			if err := f.Check(t.Context(), s.lease, run, s.a.ID); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
