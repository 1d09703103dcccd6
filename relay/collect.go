package relay

import (
	"context"
	"time"

	"github.com/syncnode/syncnode/oplog"
)

const (
	// MaxCheckpoint is the most bytes that the body of a checkpoint may have.
	MaxCheckpoint = 16 << 20
	// EvictAfter is how long a replica may be silent before it does not count any more, unless configured.
	EvictAfter = 30 * 24 * time.Hour
	// Grace is how long marked ops stay before they are deleted, unless configured.
	Grace = 10 * time.Minute
)

// A Checkpoint is folded state at a frontier, as the relay keeps it. The relay does not read Body, which may be sealed:
// what it is about stands beside it.
type Checkpoint struct {
	Hash   string // 64 hex digits: SHA-256 of Body, and its name
	Author string // the device that made it; empty in a put: the one that puts it
	// Frontier is what it covers of the chains that may go on.
	Frontier oplog.Frontier
	// Closed are the chains that may not, each with its last op: ids of retired writers. A checkpoint that replaces
	// another has closed whatever that one has.
	Closed oplog.Frontier
	Body   []byte
}

// All is what the checkpoint covers, closed chains included.
func (c Checkpoint) All() oplog.Frontier {
	all := c.Frontier.Clone()
	for device, p := range c.Closed {
		all[device] = p
	}
	return all
}

// A Collection says what a collection did, per device.
type Collection struct {
	Dropped map[string]int // ops deleted by this call
	Marked  map[string]int // ops below the floor that a later collection will delete
	Floor   oplog.Frontier // up to where each chain is gone or marked; a pull from below is refused
	// Reasons says what holds the rest of a chain back, for each chain of which ops remain above the floor.
	Reasons map[string]Reason
}

// A Cause is why ops are kept. The values are words for people and logs.
type Cause string

const (
	NoCheckpoint  Cause = "no checkpoint"          // there is none
	BadCheckpoint Cause = "damaged checkpoint"     // the newest one cannot be read, or does not give its hash
	Uncovered     Cause = "not in the checkpoint"  // the newest one ends before
	NoReplica     Cause = "no replica"             // nobody is registered, or all are evicted
	NeverAcked    Cause = "replica never acked"    // Replica is registered and has acked nothing at all
	Unacked       Cause = "not acked"              // Replica has not acked it
	Disputed      Cause = "another op acked"       // Replica, or the checkpoint if none is named, has another op there
	BadChain      Cause = "damaged chain"          // the op at which the chain would be cut cannot be read
	Elsewhere     Cause = "its device collects it" // it is Replica, and nobody else may
	Waiting       Cause = "earlier ops are marked, not deleted yet"
)

// A Reason says why ops are kept, and which replica has to act, if one has.
type Reason struct {
	Cause   Cause
	Replica string
}

func (r Reason) String() string {
	if r.Replica == "" {
		return string(r.Cause)
	}
	return string(r.Cause) + ": " + r.Replica
}

// An OwnCollector is a Collector whose Collect concerns only the chains of the devices that the handle acted for, by any call that names
// one, and those that are closed. So every device has to collect, not just one.
type OwnCollector interface {
	Collector
	// CollectsOwn marks it.
	CollectsOwn()
}

// A Collector is a relay that keeps the newest checkpoint and drops what it covers. A relay without it keeps every op.
//
// # Guarantees
//
// An op is dropped only if every replica that counts has acked it and the newest checkpoint covers it; nothing is dropped
// because a checkpoint is missing or damaged. A replica that was not heard of for EvictAfter does not count; its row stays,
// any contact makes it count again, and it loses nothing: it is told to start from the checkpoint. After every op of a chain
// is dropped its head is still known, and a push is judged by it as before.
//
// Collection has two phases. The first marks a floor durably: from then on a pull from below fails with a
// *FrontierTruncatedError. The second, in a later call and after Grace, deletes what was marked. So no pull meets a hole.
//
// A chain that a checkpoint closes has ended: every push of its device fails with a *ClosedError. Once all its ops are dropped its
// rows go as well, and only that it is closed stays known. A pull that does not hold it to its end is told to start from the checkpoint.
//
// A relay that is new, was emptied or put back from an older copy lacks what its devices have only in a checkpoint. A seed gets it
// going: each chain of which it holds less than the checkpoint covers begins behind the checkpoint from then on, as if it had been
// collected up to there, and each chain of which it holds as much or more stays as it is. A seed replaces no op that the checkpoint
// does not cover and moves no head back. That the checkpoint holds what it covers, its device vouches for alone, and the relay
// proves nothing to anybody: an owner that finds its own head below the seed's, or off it, stops by comparing heads.
//
// # Failure
//
// Errors are those of Relay; each call may be repeated. A caller that keeps to the order ack, put, collect cannot do harm by any
// interruption between them.
type Collector interface {
	// PutCheckpoint stores a checkpoint, which becomes the newest; storing the newest again changes nothing. It fails with a
	// *BehindError if it does not cover what the newest covers; a *ContradictionError if it covers what the relay's own chains do not
	// hold; a *NotStableError if it closes a chain that a replica which it does not close has not acked to its end; a *SizeError; ErrFull; an error that
	// matches ErrInvalid if Body does not give Hash. In each case nothing changed.
	PutCheckpoint(ctx context.Context, device string, c Checkpoint) error
	// Seed stores a checkpoint that may cover more than the relay holds, and lets the chains that lag begin behind it. heads are the last
	// ops of all that it covers, with their stamps. What it closes is closed, stable or not: it was so when it was closed elsewhere.
	// Seeding with the newest again raises what lags now. Errors are those of PutCheckpoint; a *ContradictionError says that the relay
	// holds another op at a place that is covered, or more of a chain that is closed. After an error that matches ErrIndeterminate a
	// part of the chains may have been raised, and repeating settles it.
	Seed(ctx context.Context, device string, c Checkpoint, heads oplog.Heads) error
	// Checkpoint is the newest one; false if there is none. It fails with ErrCorrupt if it does not give its hash.
	Checkpoint(ctx context.Context) (Checkpoint, bool, error)
	// Collect deletes what an earlier call marked and marks what may go now. On an error a part of it may have been done; the next
	// call goes on.
	Collect(ctx context.Context) (Collection, error)
}
