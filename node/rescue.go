package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// A Rescuer tells a ledger that went back what this device remembers.
type Rescuer interface {
	// Rescue offers if a recovery gate stands under which this device has not offered yet. It may be repeated.
	Rescue(ctx context.Context) (Rescued, error)
}

// A Rescued says what Rescue found and did.
type Rescued struct {
	Gate    bool // a recovery gate stands
	Offered bool // by this call
	Written int  // attempts that the ledger lacked
	Doubts  int  // of these are in doubt now
	Raised  int  // epochs that would have been granted again
}

// LongestRescue bounds one offer. What it wrote until then stands, and the next goes on.
const LongestRescue = 10 * time.Minute

// rescueLoop looks for a recovery gate, which costs a read each time.
func (n *Node) rescueLoop(ctx context.Context) {
	told := change{log: n.log, what: "the look for a recovery gate, or the offer under it,"}
	gate := false
	for {
		r, err := n.rescue(ctx)
		if n.ended(ctx, err) {
			return
		}
		told.note(err, r.trouble())
		if err == nil {
			n.tellGate(gate, r)
			n.cfg.Observer.Gate(r.Gate)
			gate = r.Gate
		}
		if !sleep(ctx, jitter(n.cfg.SettleEvery)) {
			return
		}
	}
}

// trouble says which of the two failed: without a gate the ledger did not go back, as far as is known, and nothing was to be offered.
func (r Rescued) trouble() trouble {
	if r.Gate {
		return trouble{"this device's journal could not be offered yet", slog.LevelWarn}
	}
	return trouble{"the ledger could not be asked", slog.LevelWarn}
}

func (n *Node) rescue(ctx context.Context) (Rescued, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, LongestRescue, fmt.Errorf("not done within %s", LongestRescue))
	defer cancel()
	return n.cfg.Rescuer.Rescue(ctx)
}

func (n *Node) tellGate(was bool, r Rescued) {
	switch {
	case r.Gate && !was:
		n.log.Error("the recovery gate is set: nothing begins until a person lifts it", "next", "syncnode recover status")
	case !r.Gate && was:
		n.log.Info("the recovery gate is lifted")
	}
	if r.Offered {
		n.log.Info("offered what this device remembers", "written", r.Written, "in_doubt", r.Doubts, "epochs_raised", r.Raised)
	}
}
