package fold_test

import (
	"fmt"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/oplog"
)

// A device that took over folds the log of the one before it, and sees that the run is in doubt.
func Example() {
	op := func(seq uint64, prev oplog.OpID, in oplog.Intent) oplog.Op {
		payload, err := in.Payload()
		if err != nil {
			panic(err)
		}
		op, err := oplog.New("host-a", seq, prev, oplog.HLC{WallMS: int64(seq + 1), Device: "host-a"}, oplog.Personal, oplog.Intents, payload)
		if err != nil {
			panic(err)
		}
		return op
	}
	begun := op(0, "", oplog.Intent{RunID: "r1-x", Agent: "invoices", Epoch: 4, Status: oplog.StatusPending, Attempt: "6f2a"})

	state := fold.New()
	state.Apply(begun)
	state.Apply(begun) // once more: nothing happens
	for _, a := range state.OpenAttempts("invoices", "r1-x") {
		fmt.Println("open:", a.ID, "by", a.Device, "at epoch", a.Epoch)
	}

	state.Apply(op(1, begun.ID, oplog.Intent{RunID: "r1-x", Agent: "invoices", Epoch: 4, Status: oplog.StatusCommitted, Attempt: "6f2a"}))
	commit, vetoed := state.CommittedRun("invoices", "r1-x")
	fmt.Println(vetoed, commit.HLC.Device, state.RunState("invoices", "r1-x"))
	// Output:
	// open: 6f2a by host-a at epoch 4
	// true host-a committed
}
