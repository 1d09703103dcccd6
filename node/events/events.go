// Package events keeps the last changes that a node saw, for whoever watches it.
//
// # Guarantees
//
// A reader that is never more than Size events behind sees every event once, in the order of Publish. One that is
// further behind is told that there is a gap; nobody who watches ever holds up what is watched. Ids of one life of a
// node and of another are told apart: a reader that comes back after a restart is told that there is a gap.
//
// Not promised: that an event is ever read, or survives the process. The ledger knows what happened.
//
// # Concurrency
//
// A Ring may be used by several goroutines at once.
package events

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// Size is how many events a Ring keeps.
const Size = 1024

// The kinds of events.
const (
	RunClaimed   = "run.claimed"   // a client reserved it; nothing began
	RunUnclaimed = "run.unclaimed" // its client went away, or did not want it; nothing began
	RunBegun     = "run.begun"     // an attempt passed the fence
	RunEnded     = "run.ended"     // an attempt ended; State and Cause say how
	RunDecided   = "run.decided"   // a person decided about it
	AgentPaused  = "agent.paused"
	AgentResumed = "agent.resumed"
)

// An Event is one change. What does not apply is empty.
type Event struct {
	Kind       string      `json:"kind"`
	At         time.Time   `json:"at"`
	Agent      string      `json:"agent,omitempty"`
	Run        string      `json:"run_id,omitempty"`
	Occurrence string      `json:"occurrence,omitempty"`
	Attempt    string      `json:"attempt,omitempty"`
	Epoch      coord.Epoch `json:"epoch,omitempty"`
	State      string      `json:"state,omitempty"`
	Cause      string      `json:"cause,omitempty"`
	By         string      `json:"by,omitempty"`
}

// A Cursor is a place between two events.
type Cursor uint64

// A Ring keeps the last Size events.
type Ring struct {
	life string

	mu   sync.Mutex
	gaps uint64
	next Cursor // of the event that comes next
	kept [Size]Event
	news chan struct{} // closed by the next Publish
}

// New returns an empty ring.
func New() *Ring {
	return &Ring{life: coord.NewNonce()[:8], news: make(chan struct{})}
}

// Publish adds an event. It never waits. A nil Ring drops it.
func (r *Ring) Publish(e Event) {
	if r == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[r.next%Size] = e
	r.next++
	close(r.news)
	r.news = make(chan struct{})
}

// ID is the name of the place after the events before c, for Find in the same or another life.
func (r *Ring) ID(c Cursor) string { return fmt.Sprintf("%s-%d", r.life, c) }

// Now is the place after all events.
func (r *Ring) Now() Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// Stats are figures of a Ring since it was made.
type Stats struct {
	Published uint64
	Gaps      uint64 // how often a reader was told that it lost events
}

// Stats gives the figures of now.
func (r *Ring) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{Published: uint64(r.next), Gaps: r.gaps}
}

// Find is the place that an id names. With gap, events between it and the place that is returned are lost; that place is
// the oldest that is kept.
func (r *Ring) Find(id string) (c Cursor, gap bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	life, n, _ := strings.Cut(id, "-")
	seq, err := strconv.ParseUint(n, 10, 64)
	if oldest := r.oldestLocked(); err != nil || life != r.life || Cursor(seq) > r.next || Cursor(seq) < oldest {
		r.gaps++
		return oldest, true
	}
	return Cursor(seq), false
}

func (r *Ring) oldestLocked() Cursor {
	if r.next < Size {
		return 0
	}
	return r.next - Size
}

// Wait returns the events after c, and the place after them; it waits for one if there is none. False says that events
// after c are lost. The error is that of ctx.
func (r *Ring) Wait(ctx context.Context, c Cursor) (got []Event, after Cursor, whole bool, err error) {
	for {
		r.mu.Lock()
		if c < r.oldestLocked() {
			r.gaps++
			r.mu.Unlock()
			return nil, c, false, nil
		}
		for ; c < r.next; c++ {
			got = append(got, r.kept[c%Size])
		}
		news := r.news
		r.mu.Unlock()
		if len(got) > 0 {
			return got, c, true, nil
		}
		select {
		case <-ctx.Done():
			return nil, c, true, ctx.Err()
		case <-news:
		}
	}
}
