package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/coord/memory"
)

// clock is a time that moves only when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestConformance(t *testing.T) {
	coordtest.Run(t, open)
	coordtest.RunRecovery(t, open)
}

func open(*testing.T) coordtest.Backend {
	now := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	var proved sync.Map
	store := memory.New(memory.Config{Now: now.Now, Dead: func(l coord.Lease) bool {
		_, dead := proved.Load(l.Process.PID)
		return dead
	}})
	pids := map[coord.Coordinator]int{}
	return coordtest.Backend{
		Process: func(_ testing.TB, device string) coord.Coordinator {
			pid := len(pids) + 1
			c := store.Process(coord.Process{Host: device, PID: pid})
			pids[c] = pid
			return c
		},
		Crash: func(_ testing.TB, c coord.Coordinator) { c.(*memory.Coordinator).Crash() },
		Expire: func(_ testing.TB, c coord.Coordinator) {
			for _, liveness := range c.(*memory.Coordinator).Livenesses() {
				store.Expire(liveness)
			}
		},
		Prove:   func(_ testing.TB, c coord.Coordinator) { proved.Store(pids[c], true) },
		Advance: func(_ testing.TB, d time.Duration) { now.advance(d) },
	}
}

func TestAnElectionBeginsTheTTLsAnewOfWhatHasNotRunOut(t *testing.T) {
	now := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	store := memory.New(memory.Config{Now: now.Now})
	c := store.Process(coord.Process{})
	for agent, ttl := range map[string]time.Duration{"short": 5 * time.Second, "long": 15 * time.Second} {
		if _, err := c.Acquire(t.Context(), coord.Request{Agent: agent, Device: "d", TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	expired := func(agent string) bool {
		t.Helper()
		l, held, err := c.Current(t.Context(), agent)
		if err != nil || !held {
			t.Fatalf("%s: %v, %v", agent, held, err)
		}
		return l.Expired
	}
	now.advance(14999 * time.Millisecond)
	store.Elect()
	now.advance(14999 * time.Millisecond)
	if expired("long") || !expired("short") {
		t.Errorf("a moment before its second end: long has run out: %v; short has come back: %v", expired("long"), !expired("short"))
	}
	now.advance(time.Millisecond)
	if !expired("long") {
		t.Error("it outlives the election by more than its TTL")
	}
}
