package node

import (
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/session"
)

// An Observer hears how the loops of a node fare, round by round. Several loops call it at once, and it must not wait.
type Observer interface {
	// Pumped tells of one exchange with the relay of that name. The report says what was done also with an error.
	Pumped(relay string, r session.Report, err error)
	// Settled tells of one round of settling, and how many own runs are known to be in doubt after it.
	Settled(s dispatch.Settling, doubts int, err error)
	// Gate tells whether the ledger answered that the recovery gate is set.
	Gate(set bool)
	// Lease tells whether the lease of this node is held now.
	Lease(held bool)
}

type nobody struct{}

func (nobody) Pumped(string, session.Report, error)  {}
func (nobody) Settled(dispatch.Settling, int, error) {}
func (nobody) Gate(bool)                             {}
func (nobody) Lease(bool)                            {}
