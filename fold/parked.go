package fold

import (
	"slices"

	"github.com/syncnode/syncnode/oplog"
)

// parkedNotes remembers which runs parked ops say are committed. They are no part of the state.
type parkedNotes struct {
	byPos map[string]map[uint64]runName
	byRun map[runName][]parkedNote
}

type parkedNote struct {
	device string
	seq    uint64
	slot   *slot
}

type runName struct{ agent, run string }

func newParkedNotes() parkedNotes {
	return parkedNotes{byPos: map[string]map[uint64]runName{}, byRun: map[runName][]parkedNote{}}
}

// NoteParked makes the oracle know a verified op that is journaled and not folded yet: if it is an intent that reads
// committed, CommittedRun and RunState tell so from now on. The digest does not move. The note goes when the op is
// folded. Noting an op twice, or one that is folded, changes nothing.
func (s *State) NoteParked(op oplog.Op) {
	if op.Surface != oplog.Intents || s.Covers(op.Device, op.Seq) {
		return
	}
	in := oplog.ReadIntent(op.Payload)
	if _, noted := s.parked.byPos[op.Device][op.Seq]; noted || !in.Committed() {
		return
	}
	at := s.parked.byPos[op.Device]
	if at == nil {
		at = map[uint64]runName{}
		s.parked.byPos[op.Device] = at
	}
	name := runName{in.Agent, in.RunID}
	at[op.Seq] = name
	rec := &Record{Surface: op.Surface, ID: op.ID, HLC: op.HLC, Scope: op.Scope, Payload: op.Payload}
	s.parked.byRun[name] = append(s.parked.byRun[name], parkedNote{op.Device, op.Seq, newSlot(rec, in)})
}

// drop forgets the note of the op of device at seq, if there is one.
func (p *parkedNotes) drop(device string, seq uint64) {
	name, ok := p.byPos[device][seq]
	if !ok {
		return
	}
	delete(p.byPos[device], seq)
	if len(p.byPos[device]) == 0 {
		delete(p.byPos, device)
	}
	rest := slices.DeleteFunc(p.byRun[name], func(n parkedNote) bool { return n.device == device && n.seq == seq })
	p.byRun[name] = rest
	if len(rest) == 0 {
		delete(p.byRun, name)
	}
}

// committed is the greatest parked commit of a run, or nil.
func (p *parkedNotes) committed(agent, run string) *Record {
	var best *slot
	for _, n := range p.byRun[runName{agent, run}] {
		if best == nil || n.slot.compare(best) > 0 {
			best = n.slot
		}
	}
	if best == nil {
		return nil
	}
	return best.rec
}
