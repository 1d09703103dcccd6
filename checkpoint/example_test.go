package checkpoint_test

import (
	"bytes"
	"fmt"
	"os"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
)

// A device publishes a checkpoint at the frontier that every replica has folded; a new device begins with it.
func Example() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "checkpoints")
	must(err)
	defer os.RemoveAll(dir)

	var journal []oplog.Op // of host-a, with what it pulled
	head := oplog.Head{}
	for seq, status := range []string{oplog.StatusPending, oplog.StatusCommitted, oplog.StatusPending} {
		payload, err := oplog.Intent{RunID: fmt.Sprint("r", seq/2), Agent: "invoices", Epoch: 1, Status: status, Attempt: "6f2a"}.Payload()
		must(err)
		op, err := oplog.New("host-a", uint64(seq), head.ID, oplog.HLC{WallMS: int64(seq), Device: "host-a"}, oplog.Personal, oplog.Intents, payload)
		must(err)
		journal, head = append(journal, op), oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
	}

	// Two replicas have folded that much. The state in memory is further on, so the checkpoint is made beside it: from the last one
	// on disk, which is none yet, and from the journal.
	stable := oplog.Minimum(oplog.Frontier{"host-a": head.Pos()}, oplog.Frontier{"host-a": {Seq: 1, ID: journal[1].ID}})
	store := checkpoint.Store{Dir: dir}
	made, err := checkpoint.Extend(nil, checkpoint.Cut{Frontier: stable}, all(journal))
	must(err)
	must(store.Save(made, checkpoint.Meta{Author: "host-a"})) // durable: now ops below it may be dropped
	body, err := made.Body()                                  // what the relay keeps, under made.Hash
	must(err)

	// A cold device takes the checkpoint, and then what is above it.
	offered, err := checkpoint.Decode(bytes.NewReader(body), made.Hash)
	must(err)
	anchors := checkpoint.Anchor(offered.Header)
	state := offered.State
	for op, err := range checkpoint.Uncovered(&offered.Header, all(journal)) {
		must(err)
		_, err := anchors.Admit(op, op.HLC.WallMS)
		must(err)
		fmt.Println("folded", op.Device, op.Seq, state.Apply(op))
	}
	_, vetoed := state.CommittedRun("invoices", "r0")
	fmt.Println("r0 committed:", vetoed, "r1:", state.RunState("invoices", "r1"))
	// Output:
	// folded host-a 2 true
	// r0 committed: true r1: open
}
