package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncnode/syncnode/internal/ident"
)

// A Recoverer brings a ledger back that was restored from an older copy, or replaced. It is for coordinators that reach the
// ledger themselves.
//
// Nothing here lets an effect begin, and nothing makes a run free that is not: what is written are attempts that the ledger
// lost, and epochs that it would give a second time.
type Recoverer interface {
	Steward
	LeaseCoordinator
	Ledger

	// RestartRecovery sets the recovery gate, also in the place of one that stands, and returns it with a new ID: what was
	// offered under another one counts no more. There is no moment in which no gate stands.
	RestartRecovery(ctx context.Context, g Gate) (Gate, error)

	// Recreate records an attempt that the ledger lost, and says whether it had to write. What the entry holds of the attempt is
	// treated as by Finish. An attempt that it lacks is added: committed, failed, or open and abandoned, which makes the run in
	// doubt. It is not added if it never started; beside a commit, unless it is one itself; or if it failed and
	// the entry may have dropped it for later ones.
	Recreate(ctx context.Context, o Outcome) (written bool, err error)

	// Raise makes the next grant of an agent be above g.Epoch, which g.Device is known to have been granted, and says whether it had to
	// write. A holder at a lower epoch, or another device at this very one, is not the holder any more: a later grant was made, or
	// the same one twice. An epoch that is too far above the stored one gives a *FloorError.
	Raise(ctx context.Context, g Grant) (written bool, err error)

	// Offer notes what a device told. If o.Done it counts under the gate o.Gate alone: once that one does not stand any more
	// the answer is ErrMoved and nothing is noted. Without Done it says that the device is there, and takes no other note's place.
	Offer(ctx context.Context, o Offer) error
	// Offers are the last note of every device, ordered by device.
	Offers(ctx context.Context) ([]Offer, error)
}

// A Grant is an epoch that a device was granted, as a log or its own notes tell.
type Grant struct {
	Agent, Device string
	Epoch         Epoch
}

// A Deed is the last word of one author about an attempt, as a log tells.
type Deed struct {
	Author string
	Outcome
}

// An Offer says that a device told the ledger all that its journals know of attempts and epochs.
type Offer struct {
	Device string `json:"device"`
	// Gate is the ID of the gate under which it was made.
	Gate string `json:"gate,omitempty"`
	// Done: all of it is in the ledger. Otherwise it is only known that the device is there.
	Done bool      `json:"done,omitempty"`
	At   time.Time `json:"at"`
	// Attempts is how many attempts it knows of, Written what of them the ledger lacked, Doubts how many of these are in doubt now,
	// Raised the epochs that would have been given again.
	Attempts int `json:"attempts"`
	Written  int `json:"written"`
	Doubts   int `json:"doubts"`
	Raised   int `json:"raised"`
	// Peers are the devices whose records it holds beside its own, at most MaxPeers of them.
	Peers []string `json:"peers,omitempty"`
}

// MaxPeers is how many devices an Offer names.
const MaxPeers = 4096

// Check reports what is wrong with the grant.
func (g Grant) Check() error {
	return invalid("grant", ident.Check("agent", g.Agent), ident.Check("device", g.Device), number("epoch", uint64(g.Epoch)))
}

// Check reports what is wrong with the note.
func (o Offer) Check() error {
	errs := []error{ident.Check("device", o.Device)}
	if len(o.Peers) > MaxPeers {
		errs = append(errs, fmt.Errorf("%d peers, at most %d are noted", len(o.Peers), MaxPeers))
	}
	for _, p := range o.Peers {
		errs = append(errs, ident.Check("device", p))
	}
	switch {
	case o.Gate != "":
		errs = append(errs, nonce("gate", o.Gate))
	case o.Done:
		errs = append(errs, errors.New("the gate that it was made under is missing"))
	}
	return invalid("offer", errs...)
}
