package dispatch_test

import (
	"context"
	"fmt"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/ident"
)

// A sent is an effect that was over at once.
type sent struct{}

func (sent) Stop(error) {}
func (sent) Kill(error) {}
func (sent) Done() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
func (sent) Ended() dispatch.Ended { return dispatch.Ended{} }

// Two hosts are triggered for the same occurrence; one of them does the work.
func Example() {
	store := memory.New(memory.Config{})
	occurrence, _ := ident.KeyOccurrence("2026-11")
	job := dispatch.Job{
		Agent: "invoices", Occurrence: occurrence, Run: ident.RunID("default", "invoices", occurrence),
		Effect: dispatch.StartFunc(func(ctx context.Context, p dispatch.Permit) (dispatch.Effect, error) {
			// Hand p.Run to the resource as its idempotency key, and p.Epoch as its fencing token.
			fmt.Println("invoices sent at epoch", p.Epoch)
			return sent{}, nil
		}),
	}
	for _, device := range []string{"host-a", "host-b"} {
		d, err := dispatch.New(dispatch.Config{Coordinator: store.Process(coord.Process{Host: device}), Device: device})
		if err != nil {
			fmt.Println(err)
			return
		}
		r := d.Run(context.Background(), job)
		fmt.Println(device, "code", r.Code, "ran", r.Ran, "state", r.State)
	}
	// Output:
	// invoices sent at epoch 1
	// host-a code 0 ran yes state committed
	// host-b code 0 ran no state committed
}
