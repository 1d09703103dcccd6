package oplog_test

import (
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/oplog"
)

// A device writes two ops; another verifies them as they come.
func Example() {
	clock := oplog.NewClock("laptop")
	first, err := oplog.New("laptop", 0, "", clock.Tick(1_700_000_000_000), oplog.Personal, oplog.Knowledge,
		[]byte(`{ "id": "sky", "colour": "blue" }`))
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := oplog.New("laptop", 1, first.ID, clock.Tick(1_700_000_000_000), oplog.Personal, oplog.Routing,
		[]byte(`{"ms":12}`))
	if err != nil {
		fmt.Println(err)
		return
	}

	chain := oplog.NewChain("laptop")
	for _, op := range []oplog.Op{first, second} {
		read, err := oplog.ParseLine(op.AppendLine(nil)) // over the wire
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := chain.Admit(read, 1_700_000_000_000); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(read.HLC, string(read.Payload))
	}
	_, err = chain.Admit(first, 1_700_000_000_000)
	var below *oplog.BelowError
	fmt.Println(errors.As(err, &below))
	// Output:
	// 1700000000000.0@laptop {"colour":"blue","id":"sky"}
	// 1700000000000.1@laptop {"ms":12}
	// true
}

// An intent says that an attempt at a run is about to act.
func ExampleIntent_Payload() {
	payload, err := oplog.Intent{RunID: "r1-x", Agent: "invoices", Epoch: 3, Status: oplog.StatusPending, Attempt: "6f2a"}.Payload()
	fmt.Println(string(payload), err)
	fmt.Println(oplog.ReadIntent([]byte(`{"status":"done"}`)).Status)
	// Output:
	// {"agent_id":"invoices","attempt":"6f2a","epoch":3,"id":"r1-x","status":"pending"} <nil>
	// pending
}
