// Package relay is the contract of a relay: the store through which devices exchange the ops of their logs.
//
// # Guarantees
//
// A relay holds for each device one chain, and adds to it only what continues it: contiguous seq, prev, a
// rising stamp and a right id, by compare-and-set on the chain's head. An op is never replaced, and a second op
// at a seq that is taken is refused as a fork; nothing is ever ignored because it conflicts. What Push accepted
// stays until a collection, which needs more than any single device's word, or until a checkpoint covers it that seeds a relay which
// lost the rest. A device writes its own chain only.
//
// A page of Pull holds, for each device, ops that continue what the caller said it holds, in order. Acks only
// grow. What a relay says is not proof: whoever pulls verifies every chain itself, and a relay that lost,
// repeated or reordered something is noticed by its heads, its instance and its generation.
//
// Not promised: that a device is who it says it is, that a page is complete, that two devices see an op at the
// same time, or that the relay keeps what it was given for ever; each device offers its own chain again when
// the relay's head lies behind.
//
// A relay that is a [Collector] also keeps the newest checkpoint, and drops what it covers and every replica has.
//
// # Failure
//
// An error that matches [ErrNotSent] says that nothing happened. One that matches [ErrIndeterminate] says that
// the call may have had its effect: every call may be repeated, and a push is settled by pushing the same ops
// again, which finds them there as duplicates. Other errors of this package are answers: [*GapError] push from
// Expected on; [*ForkError] stop writing under this id; [*ForeignError], [*BadOpError] and [*SizeError] never
// push this again; [ErrFull] wait for a collection or a higher limit; [*FrontierTruncatedError] start from a
// checkpoint; [*ClosedError] write on under a new id. [ErrInvalid]: the call can never be carried out.
//
// # Concurrency
//
// All methods may be called by several goroutines and several processes at once. Two processes that push one
// device's chain at the same time get one chain, and the loser a gap or a fork.
//
// # Limits
//
// A push is at most [MaxOps] ops and [MaxBytes] bytes of lines, a page at most [MaxBytes].
//
// The conformance suite in relay/relaytest holds a test for every sentence here.
package relay

import (
	"context"
	"time"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
)

// Limits of one call.
const (
	MaxOps   = 1000    // ops in a push or a page
	MaxBytes = 1 << 20 // bytes of op lines in a push or a page; more than the longest line
)

// A Relay is a store of chains. See the package comment.
type Relay interface {
	// Hello says what the relay is and how far it holds each chain: O(devices), and the first call of an
	// exchange. A device that the relay has never seen gets a row with the role Seen.
	Hello(ctx context.Context, device string) (Info, error)

	// Push adds ops to the end of the device's own chain. Ops that are there already count as duplicates.
	// On an error the ops before the one refused may have been added; the Pushed says how many are known
	// to stand in the relay. Ops that were collected cannot be compared unless the push links them to the
	// floor: they get a *FrontierTruncatedError.
	Push(ctx context.Context, device string, ops []oplog.Op) (Pushed, error)

	// Pull returns ops above want.Held, round robin over the devices so that a long chain does not starve
	// the others. The caller's own chain is not left out: Skip names the chains that are not wanted.
	Pull(ctx context.Context, device string, want Want) (Page, error)

	// Ack says that the device has folded everything up to the frontier and that it is on its disk. Per
	// chain the greater seq stays, so a late or repeated ack does no harm. It does not enrol.
	Ack(ctx context.Context, device string, folded oplog.Frontier) error

	// Register enrols the device with a role, Replica or Writer; it may be repeated and may change the role.
	Register(ctx context.Context, device string, role Role) error

	// Roster lists all devices the relay knows, in bytewise order. [Stable] of it is the stable frontier.
	Roster(ctx context.Context) ([]Member, error)
}

// A Hinter tells when a pull may find something new.
type Hinter interface {
	// Hint returns nil once the relay's heads may differ from known, which is what Hello last gave; at once
	// if they do already. It may return nil for nothing, and a lost hint is no error: pull now and then anyway.
	Hint(ctx context.Context, known oplog.Frontier) error
}

// Info is the answer to a Hello.
type Info struct {
	// Instance is 32 hex digits, drawn when the relay's store was made. Another instance than before is
	// another store: what was pushed to the first has to be offered again.
	Instance string
	// Generation is raised by whoever puts an older copy of the store back on purpose.
	Generation uint64
	// Head is the last op of the device's own chain; false in Known if it has none.
	Head  oplog.Head
	Known bool
	// Heads says how far the relay holds each chain.
	Heads oplog.Frontier
	// Floor says up to where each chain was collected; a pull from below fails. Without collection it is empty.
	Floor oplog.Frontier
	// Checkpoint is the hash of the newest checkpoint, empty if there is none.
	Checkpoint string
	// Role and Acked are the device's own row.
	Role  Role
	Acked oplog.Frontier
}

// Pushed counts what became of the ops of a push.
type Pushed struct {
	Accepted  int // added by this call, as far as is known
	Duplicate int // were there before it
}

// A Want says what a pull is to bring.
type Want struct {
	Held     oplog.Frontier // what the caller holds, in its journal or its checkpoint, closed chains included
	Skip     []string       // devices whose chains are not wanted now
	MaxBytes int            // at most this many bytes of lines; 0 or more than the limit means MaxBytes. One op always fits.
}

// A Page is what a pull brings. Ops of one device are in order; those of several are mixed.
type Page struct {
	Ops  []oplog.Op
	More bool // the relay had more than fitted: pull again
	// Broken names the chains of which the relay cannot give the next op, though it should have it, and why.
	// The errors match ErrCorrupt. Other chains go on.
	Broken map[string]error
}

// A Looker gives what Hello says to every device alike, to who only looks: nothing is made and no contact is noted. Instance is empty
// if no device was there yet.
type Looker interface {
	Look(ctx context.Context) (Info, error)
}

// A Role says what a device is to a relay.
type Role string

const (
	// Seen made contact and was never enrolled. It holds nothing back.
	Seen Role = "seen"
	// Replica folds and acks: what it has not acked is not stable.
	Replica Role = "replica"
	// Writer pushes and never pulls: it does not count for the stable frontier.
	Writer Role = "writer"
)

// A Member is a row of the roster.
type Member struct {
	Device string
	Role   Role
	Added  time.Time // first contact, on the relay's or the writer's clock; for display and for eviction only
	Seen   time.Time // a contact not more than a day before the last one
	Acked  oplog.Frontier
	// Evicted means that the row does not count until its device is heard of again.
	Evicted bool
}

// IsEvicted reports whether a replica that was last seen then has been silent for longer than after, where 0 means EvictAfter
// and less than 0 never. Others are never evicted: they hold nothing back.
func IsEvicted(role Role, seen, now time.Time, after time.Duration) bool {
	if after == 0 {
		after = EvictAfter
	}
	return role == Replica && after > 0 && now.Sub(seen) > after
}

// Stable is the frontier that every replica has folded: per chain the least ack. It is empty while one
// replica has acked nothing, or when there is no replica.
func Stable(roster []Member) oplog.Frontier {
	var stable oplog.Frontier
	for _, m := range roster {
		if m.Role != Replica || m.Evicted {
			continue
		}
		if stable == nil {
			stable = m.Acked.Clone()
			continue
		}
		for device, p := range stable {
			switch q, ok := m.Acked[device]; {
			case !ok:
				delete(stable, device)
			case q.Seq < p.Seq:
				stable[device] = q
			}
		}
	}
	return stable.Clone()
}

// Join raises into by the acks in more: per chain the greater seq stays. It reports whether into changed.
func Join(into, more oplog.Frontier) bool {
	changed := false
	for device, p := range more {
		if q, ok := into[device]; !ok || q.Seq < p.Seq {
			into[device], changed = p, true
		}
	}
	return changed
}

// CheckDevice refuses what is no device id, with an error that matches ErrInvalid.
func CheckDevice(device string) error {
	if err := ident.Check("device", device); err != nil {
		return &InvalidError{Err: err}
	}
	return nil
}

// CheckRole refuses a role that nobody can register as.
func CheckRole(role Role) error {
	if role != Replica && role != Writer {
		return &InvalidError{Err: errRole}
	}
	return nil
}

// CheckFrontier refuses a frontier that no chains can have, with an error that matches ErrInvalid.
func CheckFrontier(f oplog.Frontier) error {
	for device, p := range f {
		if err := CheckDevice(device); err != nil {
			return err
		}
		if p.Seq > oplog.MaxInt || !p.ID.Valid() {
			return &InvalidError{Err: errPos}
		}
	}
	return nil
}
