package memory_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
)

// Two processes, and a clock that a test moves.
func Example() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := memory.New(memory.Config{Now: func() time.Time { return now }})
	one, two := store.Process(coord.Process{}), store.Process(coord.Process{})

	_, _ = one.Acquire(ctx, coord.Request{Agent: "a", Device: "d1", TTL: 15 * time.Second})
	_, err := two.Acquire(ctx, coord.Request{Agent: "a", Device: "d2", TTL: 15 * time.Second})
	fmt.Println("held:", errors.Is(err, coord.ErrHeld))

	one.Crash()
	now = now.Add(15 * time.Second)
	lease, err := two.Acquire(ctx, coord.Request{Agent: "a", Device: "d2", TTL: 15 * time.Second})
	fmt.Println("epoch:", lease.Epoch, err)
	// Output:
	// held: true
	// epoch: 2 <nil>
}
