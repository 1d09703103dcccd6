package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
)

// retryAfter is how long a chain that did not verify is left alone, unless another relay gives it.
const retryAfter = 10 * time.Minute

// ErrFrozen means that the device's id must not be used for pushing any more. See FrozenError.
var ErrFrozen = errors.New("session: the device's id is frozen")

// A FrozenError says that the relay holds own ops which this journal does not have. It matches ErrFrozen. The device needs a new identity;
// its ops are all kept.
type FrozenError struct {
	Device string
	// Fork: the journal and the relay went different ways. Otherwise the journal is an older copy of what the
	// relay holds.
	Fork bool
	// Earlier, of a fork: all that the relay has of its branch was written before the own one began, as by a device before it was
	// restored from a backup. It is known once the freezing is noted, goes by the stamps, and is for people.
	Earlier    bool
	Own, Relay oplog.Pos // the heads of both; Own.ID is empty if the journal holds no own op
}

func (e *FrozenError) Error() string {
	what, rest := "", "nothing more is pushed, and no op is lost: give this copy a new device id"
	switch {
	case e.Fork && e.Earlier:
		what = fmt.Sprintf("the journal is an older copy, restored or rolled back, that was written to since: its head is seq %d, and the relay's is seq %d of another branch", e.Own.Seq, e.Relay.Seq)
	case e.Fork:
		what = fmt.Sprintf("the relay holds another branch of its chain, up to seq %d, and ours is at seq %d: another copy of the device writes under this id, or this one was restored and written to since", e.Relay.Seq, e.Own.Seq)
	case e.Own.ID == "":
		what = fmt.Sprintf("the relay holds ops of this id up to seq %d and the journal is empty: it was lost or belongs to a reinstalled device", e.Relay.Seq)
	default:
		what = fmt.Sprintf("the journal ends at seq %d and the relay goes on from there to seq %d: it was restored from an older copy, or its disk was rolled back", e.Own.Seq, e.Relay.Seq)
	}
	return fmt.Sprintf("device %s: %s; %s", e.Device, what, rest)
}

// Is reports whether target is ErrFrozen.
func (e *FrozenError) Is(target error) bool { return target == ErrFrozen }

// A Quarantine says why a chain is not taken further.
type Quarantine struct {
	Device string
	// Instance is the relay that gave the bad op; empty if it stood in the own journal.
	Instance string
	Seq      uint64 // of the op that was refused
	Reason   error  // an error of package oplog or seal, or one that matches relay.ErrCorrupt
	// Permanent means that no release will take this op. Otherwise it may come right by itself: ops were missing,
	// the relay could not read them, or a newer release wrote them.
	Permanent bool
	// Unread: the chain is good and is held on, and nothing from Seq on is folded: what is sealed there does not open, or something is
	// clear where it has to be sealed.
	Unread bool
	Since  time.Time // when it was seen first
	retry  time.Time
}

// A ParkedChain says what of a chain waits for its time, or for a key.
type ParkedChain struct {
	Device string
	From   uint64 // the first op that waits
	Ops    int
	Until  time.Time // when the first may be folded; zero if it waits for a key
	// Reason is why the first cannot be opened, matching seal.ErrNoKey or seal.ErrVersion; nil if it waits for its time. It is tried
	// again when the key file has its key, or by a newer release.
	Reason error
	Key    string // the id of the key that is missing
}

// A Status is what a person wants to know of a session.
type Status struct {
	Device       string
	Held, Folded oplog.Frontier
	Quarantined  []Quarantine  // by device and relay
	Parked       []ParkedChain // by device
	Frozen       *FrozenError  // nil if not
	Keys         error         // why the key file could not be read the last time; nil if it could, or there is none
}

// Status tells how each chain stands.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Device: s.cfg.Device, Held: s.held.Clone(), Folded: s.state.Frontier(), Frozen: s.frozen, Keys: s.keysErr}
	for _, q := range s.quarantined {
		st.Quarantined = append(st.Quarantined, *q)
	}
	for device, at := range s.stopped {
		if seal.Temporary(at.err) {
			st.Parked = append(st.Parked, ParkedChain{Device: device, From: at.next, Ops: int(s.held[device].Seq - at.next + 1), Reason: at.err, Key: at.key()})
		} else {
			st.Quarantined = append(st.Quarantined, Quarantine{Device: device, Seq: at.next, Reason: at.err, Permanent: true, Unread: true, Since: at.since})
		}
	}
	slices.SortFunc(st.Quarantined, func(a, b Quarantine) int {
		return compareText(a.Device, b.Device, a.Instance, b.Instance)
	})
	for _, device := range slices.Sorted(maps.Keys(s.parked)) {
		ops := s.parked[device]
		st.Parked = append(st.Parked, ParkedChain{
			Device: device, From: ops[0].Seq, Ops: len(ops), Until: time.UnixMilli(ops[0].HLC.WallMS - oplog.MaxAhead),
		})
	}
	slices.SortFunc(st.Parked, func(a, b ParkedChain) int { return compareText(a.Device, b.Device) })
	return st
}

func compareText(pairs ...string) int {
	for i := 0; i < len(pairs); i += 2 {
		switch {
		case pairs[i] < pairs[i+1]:
			return -1
		case pairs[i] > pairs[i+1]:
			return 1
		}
	}
	return 0
}

// quarantineLocked notes that a chain is not taken further. What may come right by itself is asked for again by the
// next pump, the rest after a while.
func (s *Session) quarantineLocked(from source, seq uint64, reason error, now time.Time) {
	q := s.quarantined[from]
	if q == nil || q.Seq != seq || q.Permanent != permanent(reason) {
		q = &Quarantine{Device: from.device, Instance: from.instance, Seq: seq, Since: now, Permanent: permanent(reason)}
		s.quarantined[from] = q
		s.log.Warn("a chain is quarantined", "of", from.device, "seq", seq, "permanent", q.Permanent, "cause", reason)
	}
	q.Reason, q.retry = reason, now
	if !errors.Is(reason, oplog.ErrGap) && !errors.Is(reason, relay.ErrCorrupt) {
		q.retry = now.Add(retryAfter)
	}
}

// permanent reports whether no later release and no better relay can make this op good.
func permanent(reason error) bool {
	return !errors.Is(reason, oplog.ErrGap) && !errors.Is(reason, relay.ErrCorrupt) && !errors.Is(reason, oplog.ErrSurface)
}

// skip names the chains that are not to be asked of a relay now: the own one, and those that did not verify.
func (s *Session) skip(instance string) []string {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	names := []string{s.cfg.Device}
	for from, q := range s.quarantined {
		if from.instance == instance && now.Before(q.retry) {
			names = append(names, from.device)
		}
	}
	return names
}
