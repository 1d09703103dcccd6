package coordtest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/coord/memory"
)

// A Begin whose answer is lost is no permission; the same request again settles it.
func ExampleFaulty() {
	ctx := context.Background()
	c := memory.New(memory.Config{}).Process(coord.Process{})
	lease, err := c.Acquire(ctx, coord.Request{Agent: "a", Device: "d1", TTL: coord.DefaultTTL})
	if err != nil {
		fmt.Println(err)
		return
	}
	lose := true
	flaky := coordtest.Faulty(c, func(op string) coordtest.Fault {
		if op == "Begin" && lose {
			lose = false
			return coordtest.After
		}
		return coordtest.Fine
	})
	b := coord.Begin{Lease: lease, Run: "r", Attempt: coord.NewNonce(), Request: coord.NewNonce()}
	_, err = flaky.Begin(ctx, b)
	fmt.Println(errors.Is(err, coord.ErrIndeterminate))
	a, err := flaky.Begin(ctx, b)
	fmt.Println(a.State, err)
	// Output:
	// true
	// open <nil>
}
