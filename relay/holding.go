package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/syncnode/syncnode/oplog"
)

var (
	errHash    = errors.New("the body does not give the checkpoint's hash, 64 lower-case hex digits of its SHA-256")
	errBoth    = errors.New("a chain is both open and closed in the checkpoint")
	errNothing = errors.New("the checkpoint covers nothing")
	errHeads   = errors.New("the heads of the seed are not those that its checkpoint covers")
)

// CheckCheckpoint refuses a checkpoint that no relay may take, and fills in its author.
func CheckCheckpoint(device string, c *Checkpoint) error {
	if err := CheckDevice(device); err != nil {
		return err
	}
	if c.Author == "" {
		c.Author = device
	}
	if len(c.Body) > MaxCheckpoint {
		return &SizeError{What: "body bytes", Size: len(c.Body), Max: MaxCheckpoint}
	}
	if err := CheckDevice(c.Author); err != nil {
		return err
	}
	for _, f := range []oplog.Frontier{c.Frontier, c.Closed} {
		if err := CheckFrontier(f); err != nil {
			return err
		}
	}
	for d := range c.Closed {
		if _, both := c.Frontier[d]; both {
			return &InvalidError{Err: errBoth}
		}
	}
	if len(c.Frontier)+len(c.Closed) == 0 {
		return &InvalidError{Err: errNothing}
	}
	if !c.Whole() {
		return &InvalidError{Err: errHash}
	}
	return nil
}

// CheckSeed is CheckCheckpoint for a seed.
func CheckSeed(device string, c *Checkpoint, heads oplog.Heads) error {
	if err := CheckCheckpoint(device, c); err != nil {
		return err
	}
	if !heads.Frontier().Equal(c.All()) {
		return &InvalidError{Err: errHeads}
	}
	return nil
}

// Whole reports whether Body gives Hash.
func (c Checkpoint) Whole() bool {
	sum := sha256.Sum256(c.Body)
	return c.Hash == hex.EncodeToString(sum[:])
}

// A Holding is what a relay holds, as far as checkpoints and collections are judged by it. Every relay judges by it, so that all judge
// alike. It is read only.
type Holding struct {
	Heads   oplog.Frontier // of all chains that have rows, closed ones as well
	Floor   oplog.Frontier
	Closed  oplog.Frontier // all closed chains, also those whose rows are gone
	Newest  *Checkpoint    // its body is not looked at; nil if there is none
	Damaged bool           // the newest checkpoint cannot be used
	Roster  []Member
	// Held is the id of an op above the floor and not beyond the head. An error that matches ErrCorrupt concerns this chain alone.
	Held func(device string, seq uint64) (oplog.OpID, error)
}

// Judge says whether c may become the newest checkpoint, and which chains it closes that are open yet.
func (h *Holding) Judge(c Checkpoint) (closing []string, err error) {
	if err := h.supersedes(c); err != nil {
		return nil, err
	}
	all := c.All()
	for _, d := range all.Devices() {
		if _, closed := h.Closed[d]; closed {
			continue // compared above
		}
		if err := h.bears(d, all[d]); err != nil {
			return nil, err
		}
		if _, closes := c.Closed[d]; closes {
			if err := h.mayClose(d, all[d], c.Closed); err != nil {
				return nil, err
			}
			closing = append(closing, d)
		}
	}
	return closing, nil
}

// JudgeSeed says whether c may become the newest checkpoint though the relay holds less, which chains rise to it, closed ones among
// them, and which it closes that are open yet.
func (h *Holding) JudgeSeed(c Checkpoint) (rise oplog.Frontier, closing []string, err error) {
	if err := h.supersedes(c); err != nil {
		return nil, nil, err
	}
	all := c.All()
	rise = oplog.Frontier{}
	for _, d := range all.Devices() {
		if _, closed := h.Closed[d]; closed {
			continue // compared above
		}
		p, closes := c.Closed[d]
		if head, ok := h.Heads[d]; !ok || head.Seq < all[d].Seq {
			rise[d] = all[d]
		} else if closes && head.Seq > p.Seq {
			return nil, nil, &ContradictionError{Device: d, Got: p, Held: head, Why: "it is closed before its end"}
		} else if err := h.bears(d, all[d]); err != nil {
			return nil, nil, err
		}
		if closes {
			closing = append(closing, d)
		}
	}
	return rise, closing, nil
}

// supersedes checks that c covers what the newest covers and all that was collected.
func (h *Holding) supersedes(c Checkpoint) error {
	held := ""
	if h.Newest != nil {
		held = h.Newest.Hash
	}
	for _, d := range h.Closed.Devices() {
		switch p, ok := c.Closed[d]; {
		case !ok:
			return &BehindError{Held: held, Offered: c.Hash}
		case p != h.Closed[d]:
			return &ContradictionError{Device: d, Got: p, Held: h.Closed[d], Why: "it was closed there"}
		}
	}
	if h.Newest != nil && !c.All().Dominates(h.Newest.All()) {
		return &BehindError{Held: held, Offered: c.Hash}
	}
	all := c.All()
	for _, d := range h.Floor.Devices() {
		if _, gone := h.Closed[d]; !gone && !all.Covers(d, h.Floor[d].Seq) {
			return &ContradictionError{Device: d, Got: all[d], Held: h.Floor[d], Why: "it ends below what was collected"}
		}
	}
	return nil
}

// bears checks that the relay's chain has the op at p.
func (h *Holding) bears(d string, p oplog.Pos) error {
	head, ok := h.Heads[d]
	floor, collected := h.Floor[d]
	against := func(held oplog.Pos, why string) error {
		return &ContradictionError{Device: d, Got: p, Held: held, Why: why}
	}
	switch {
	case !ok:
		return against(oplog.Pos{}, "the relay has no op of it")
	case p.Seq > head.Seq:
		return against(head, "the relay has no such op yet")
	case p.Seq == head.Seq && p.ID != head.ID:
		return against(head, "it is another op")
	case p.Seq == head.Seq:
		return nil
	case collected && p.Seq == floor.Seq && p.ID != floor.ID:
		return against(floor, "it is another op")
	case collected && p.Seq == floor.Seq:
		return nil
	}
	id, err := h.Held(d, p.Seq)
	if err != nil {
		return err
	}
	if id != p.ID {
		return against(oplog.Pos{Seq: p.Seq, ID: id}, "it is another op")
	}
	return nil
}

// mayClose says whether the chain of d may end at p. Devices that are closed by the same checkpoint have no say any more.
func (h *Holding) mayClose(d string, p oplog.Pos, ending oplog.Frontier) error {
	if head := h.Heads[d]; head.Seq != p.Seq {
		return &ContradictionError{Device: d, Got: p, Held: head, Why: "it is closed before its end"}
	}
	stable, reason := h.stable(d, ending)
	switch {
	case reason.Cause != Unacked && reason.Cause != "":
		return &NotStableError{Device: d, Reason: reason}
	case stable.ID == "" || stable.Seq < p.Seq:
		return &NotStableError{Device: d, Reason: Reason{Cause: Unacked, Replica: reason.Replica}}
	case stable.Seq == p.Seq && stable.ID != p.ID:
		return &NotStableError{Device: d, Reason: Reason{Cause: Disputed, Replica: reason.Replica}}
	}
	return nil
}

// stable is the least ack of the chain of d by devices that are not about to end, and whose it is: a Reason with the cause Unacked.
// Without an id there is none.
func (h *Holding) stable(d string, ending oplog.Frontier) (oplog.Pos, Reason) {
	least, reason := oplog.Pos{}, Reason{Cause: NoReplica}
	for _, m := range h.Roster {
		_, closed := h.Closed[m.Device]
		if _, ends := ending[m.Device]; ends || closed || m.Role != Replica || m.Evicted {
			continue
		}
		p, ok := m.Acked[d]
		switch {
		case len(m.Acked) == 0:
			return oplog.Pos{}, Reason{Cause: NeverAcked, Replica: m.Device}
		case !ok:
			return oplog.Pos{}, Reason{Cause: Unacked, Replica: m.Device}
		case least.ID == "" || p.Seq < least.Seq:
			least, reason = p, Reason{Cause: Unacked, Replica: m.Device}
		}
	}
	return least, reason
}

// Cut is the floor that chains may rise to now, only those that rise, and why the rest of each chain stays.
func (h *Holding) Cut() (oplog.Frontier, map[string]Reason, error) {
	floor, reasons := oplog.Frontier{}, map[string]Reason{}
	for _, d := range h.Heads.Devices() {
		old, collected := h.Floor[d]
		if collected && old.Seq == h.Heads[d].Seq {
			continue
		}
		next, reason, err := h.cut(d)
		if err != nil {
			return nil, nil, err
		}
		rises := next.ID != "" && (!collected || next.Seq > old.Seq)
		if rises {
			floor[d] = next
		}
		if !rises || next.Seq < h.Heads[d].Seq {
			reasons[d] = reason
		}
	}
	return floor, reasons, nil
}

// cut is up to where the chain of d may go, without an id if not at all, and what holds the rest.
func (h *Holding) cut(d string) (oplog.Pos, Reason, error) {
	next, reason := h.candidate(d)
	if next.ID == "" || h.Floor.Covers(d, next.Seq) {
		return oplog.Pos{}, reason, nil
	}
	// Whoever named this op, the checkpoint or a replica: it has to be the chain's own.
	id, head := oplog.OpID(""), h.Heads[d]
	switch {
	case next.Seq == head.Seq:
		id = head.ID
	case next.Seq < head.Seq:
		var err error
		if id, err = h.Held(d, next.Seq); err != nil && !errors.Is(err, ErrCorrupt) {
			return oplog.Pos{}, Reason{}, err
		}
	}
	switch {
	case id == "":
		return oplog.Pos{}, Reason{Cause: BadChain}, nil
	case id != next.ID:
		return oplog.Pos{}, Reason{Cause: Disputed, Replica: reason.Replica}, nil
	}
	return next, reason, nil
}

// candidate is the lower one of what is covered and what is stable, and what has to move for more.
func (h *Holding) candidate(d string) (oplog.Pos, Reason) {
	switch {
	case h.Damaged:
		return oplog.Pos{}, Reason{Cause: BadCheckpoint}
	case h.Newest == nil:
		return oplog.Pos{}, Reason{Cause: NoCheckpoint}
	}
	if last, closed := h.Closed[d]; closed { // was stable when it was closed
		return last, Reason{}
	}
	covered, ok := h.Newest.Frontier[d]
	if !ok {
		return oplog.Pos{}, Reason{Cause: Uncovered}
	}
	stable, reason := h.stable(d, nil)
	switch {
	case stable.ID == "":
		return oplog.Pos{}, reason
	case stable.Seq > covered.Seq, stable == covered:
		return covered, Reason{Cause: Uncovered}
	case stable.Seq == covered.Seq:
		return oplog.Pos{}, Reason{Cause: Disputed, Replica: reason.Replica}
	}
	return stable, reason
}

// MatchCollected compares the ops of a push that lie at or below the floor, which the relay does not hold any more, by what links
// them to it: it returns how many are the same, and the rest, which lie above. It fails with a *ForkError if the links lead elsewhere,
// and with a *FrontierTruncatedError if they are not in the push.
func MatchCollected(device string, below []oplog.Op, floor oplog.Pos) (same int, above []oplog.Op, err error) {
	at, left := map[uint64][]oplog.Op{}, 0
	for _, op := range below {
		if op.Seq > floor.Seq {
			above = append(above, op)
			continue
		}
		at[op.Seq] = append(at[op.Seq], op)
		left++
	}
	for known := floor; left > 0; known.Seq-- {
		ops := at[known.Seq]
		if len(ops) == 0 {
			highest := uint64(0)
			for seq := range at {
				if seq < known.Seq {
					highest = max(highest, seq)
				}
			}
			return same, above, &FrontierTruncatedError{Device: device, Held: highest, Floor: oplog.Frontier{device: floor}}
		}
		for _, op := range ops {
			if err := Match(op, known.ID); err != nil {
				return same, above, err
			}
			same, left = same+1, left-1
		}
		known.ID = ops[0].Prev
	}
	return same, above, nil
}

// CheckClosed refuses a pull whose caller lacks ops of a closed chain that left no rows, with a *FrontierTruncatedError. closed holds
// all closed chains.
func CheckClosed(want Want, heads, closed oplog.Frontier) error {
	for d, last := range closed {
		if _, rows := heads[d]; rows || want.Held.Covers(d, last.Seq) || slices.Contains(want.Skip, d) {
			continue
		}
		return &FrontierTruncatedError{Device: d, Held: want.Held.Next(d), Floor: oplog.Frontier{d: last}}
	}
	return nil
}
