package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/syncnode/syncnode/coord"
)

// A noBook is the memory of a process: the outcomes that no journal has and the ledger has not taken yet.
type noBook struct {
	mu   sync.Mutex
	owed []coord.Outcome // at most maxOwed
}

const (
	// maxOwed bounds the memory: while the ledger takes no outcome it takes no begin either, so these are runs that were open then.
	maxOwed = 1024
	// maxUnsettled is how many outcomes are offered at once.
	maxUnsettled = 128
)

var errOwed = errors.New("dispatch: too many outcomes wait for the ledger already")

func (b *noBook) Standing(context.Context, string, string) (Standing, error) {
	return Standing{Unsettled: b.first()}, nil
}

func (b *noBook) first() []coord.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.owed[:min(len(b.owed), maxUnsettled)])
}

func (b *noBook) Outcome(_ context.Context, o coord.Outcome) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.owed, func(was coord.Outcome) bool { return was.Attempt.ID == o.Attempt.ID })
	switch {
	case i >= 0 && b.owed[i].Attempt.State == coord.Committed:
	case i >= 0:
		b.owed[i] = o // what is told later counts
	case len(b.owed) == maxOwed:
		return errOwed
	default:
		b.owed = append(b.owed, o)
	}
	return nil
}

// taken forgets what the ledger holds now. Of an attempt of which another word came meanwhile that one is still owed.
func (b *noBook) taken(all []coord.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owed = slices.DeleteFunc(b.owed, func(o coord.Outcome) bool {
		return slices.ContainsFunc(all, func(was coord.Outcome) bool {
			return was.Attempt.ID == o.Attempt.ID && was.Attempt.State == o.Attempt.State
		})
	})
}

func (*noBook) Settled(context.Context, ...string) error           { return nil } // a hint; taken knows better
func (*noBook) Pending(context.Context, coord.Outcome) error       { return nil }
func (*noBook) Granted(context.Context, string, coord.Epoch) error { return nil }
func (*noBook) Void(context.Context, string, string, coord.Attempt) (bool, error) {
	return false, nil
}
