package due_test

import (
	"fmt"
	"time"

	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// A node that comes up at 10:12: the log knows that nine o'clock was run, and the ledger no more than that.
func Example() {
	quarters, _ := schedule.New("*/15 * * * *", "UTC")
	policy := due.Policy{CatchUp: due.CatchUpLast, Window: 24 * time.Hour, Overlap: due.OverlapSkip}
	agent := due.New(quarters, policy, due.NewRate(60, time.Minute), time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC))

	now := due.Reading{Wall: time.Date(2026, 1, 1, 10, 12, 0, 0, time.UTC), Boot: time.Minute}
	d := agent.Step(now, due.State{})
	for _, m := range append(d.Missed, agent.Before(now, d.Due)...) {
		fmt.Printf("record: %d missed from %s to %s: %s\n", m.Count, m.First.Format("15:04"), m.Last.Format("15:04"), m.Reason)
	}
	fmt.Println("begin:", d.Due.Format("15:04"))
	agent.Begun(d.Due)
	fmt.Println("look again in", agent.Step(now, due.State{Running: true}).Wait)
	// Output:
	// record: 3 missed from 09:15 to 09:45: superseded
	// begin: 10:00
	// look again in 30s
}
