package coord_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/ident"
)

// A run from its grant to its outcome, and what the next one who wants to run it is told.
func Example() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	c := store.Process(coord.Process{})

	req := coord.Request{Agent: "invoices", Device: "host-1", TTL: coord.DefaultTTL}
	begin := coord.Begin{Run: ident.RunID("default", "invoices", "key:2026-03"), Occurrence: "key:2026-03",
		Attempt: coord.NewNonce(), Request: coord.NewNonce()}
	lease, attempt, err := c.Start(ctx, req, begin)
	if err != nil {
		fmt.Println("not run:", err)
		return
	}
	keeper := coord.Keep(ctx, c, lease, coord.KeepOptions{})
	if err := keeper.Trusted(); err != nil {
		fmt.Println("not run:", err)
		return
	}
	fmt.Println("running at epoch", attempt.Epoch) // the effect, under keeper.Context()

	attempt.State, attempt.Cause = coord.Committed, coord.CauseExit
	keeper.Stop()
	finished, released := c.Complete(ctx, coord.Outcome{Agent: req.Agent, Run: begin.Run, Attempt: attempt}, keeper.Lease())
	fmt.Println("recorded:", finished == nil, "released:", released == nil)

	begin.Attempt, begin.Request = coord.NewNonce(), coord.NewNonce()
	req.Device = "host-2"
	_, _, err = store.Process(coord.Process{}).Start(ctx, req, begin)
	fmt.Println("again:", errors.Is(err, coord.ErrCommitted))
	// Output:
	// running at epoch 1
	// recorded: true released: true
	// again: true
}

// A Keeper's context ends when its lease is lost, and says why.
func ExampleKeep() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	c := store.Process(coord.Process{})
	lease, err := c.Acquire(ctx, coord.Request{Agent: "invoices", Device: "host-1", TTL: coord.DefaultTTL})
	if err != nil {
		fmt.Println(err)
		return
	}
	keeper := coord.Keep(ctx, c, lease, coord.KeepOptions{})
	if err := keeper.Release(ctx); err != nil {
		fmt.Println(err)
	}
	<-keeper.Context().Done()
	fmt.Println(context.Cause(keeper.Context()))
	// Output: coord: lease released
}

// A log can veto and settle: here it knows how an attempt ended that the ledger still calls open.
func ExampleJudge() {
	open := coord.Attempt{ID: "0123456789abcdef0123456789abcdef", Device: "host-1", Epoch: 1, State: coord.Open}
	view := coord.View{Found: true, State: coord.RunInDoubt,
		Entry: coord.Entry{Agent: "invoices", Run: "r", Attempts: []coord.Attempt{open}}}
	record := coord.Record{Run: "r", Attempt: open.ID, Device: "host-1", Author: "host-1", Epoch: 1, State: coord.Committed}

	j := coord.Judge(view, []coord.Record{record}, coord.Facts{Device: "host-2"})
	fmt.Println(j.State, j.Repairs[0].Kind)

	record.Author = "host-3" // which did not run it
	j = coord.Judge(view, []coord.Record{record}, coord.Facts{Device: "host-2"})
	fmt.Println(j.State, "disputed:", j.Disputed)
	// Output:
	// committed finish
	// in doubt disputed: true
}
