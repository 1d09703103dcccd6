package node_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

// counted is a real session that counts its pumps, and whose relay can be away.
type counted struct {
	*session.Session
	pumps atomic.Int64
	away  atomic.Bool
}

func (c *counted) Pump(ctx context.Context, r relay.Relay) (session.Report, error) {
	c.pumps.Add(1)
	if c.away.Load() {
		return session.Report{}, errors.New("away")
	}
	return c.Session.Pump(ctx, r)
}

func TestAnOwnOpIsPushedAMomentLaterAndAStreamOfThemCostsNoPumpEach(t *testing.T) {
	for name, as := range map[string]func(*memory.Relay) relay.Relay{
		"a relay that gives hints": func(r *memory.Relay) relay.Relay { return r },
		"a relay that gives none":  func(r *memory.Relay) relay.Relay { return &plain{r} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Config{})
				w := newWorld(map[string]relay.Relay{"r": as(store)})
				s := &counted{Session: sessionOf(t, "d1")}
				w.cfg.Session, w.cfg.PumpEvery = s, time.Hour
				stop := w.run(t)
				defer stop()
				since := func() int64 { return s.pumps.Swap(0) }
				is := func(when string, ops, pumps int64) {
					t.Helper()
					info, err := store.Hello(t.Context(), "asks")
					if err != nil {
						t.Fatal(err)
					}
					if held := int64(info.Heads.Next("d1")); held != ops {
						t.Errorf("%s: the relay has %d ops, want %d", when, held, ops)
					}
					if got := since(); got != pumps {
						t.Errorf("%s: %d pumps, want %d", when, got, pumps)
					}
				}
				bubble.Pass(50 * time.Minute)
				is("nothing was written", 0, 1)

				for n := range 10 {
					write(t, s.Session, n)
					bubble.Pass(time.Millisecond)
				}
				bubble.Pass(time.Second)
				is("a burst, long after the last pump", 10, 1)

				for n := range 100 {
					write(t, s.Session, 10+n)
					bubble.Pass(time.Second)
				}
				is("a stream, soon after it", 10, 0)
				bubble.Pass(10*time.Minute + 30*time.Second)
				is("a fifth of the pause after it", 110, 1)
				bubble.Pass(50 * time.Minute)
				is("nothing more", 110, 0)

				s.away.Store(true)
				bubble.Pass(30 * time.Minute)
				since()
				for n := range 20 {
					write(t, s.Session, 110+n)
					bubble.Pass(time.Minute)
				}
				is("the relay is away", 110, 0)
				s.away.Store(false)
				bubble.Pass(time.Hour)
				is("it is back", 130, 1)
			})
		})
	}
}
