// Package fold turns verified ops into state, one op at a time.
//
// # Guarantees
//
// The state is a function of the set of ops: whatever the order between devices, however the ops are split into
// batches or repeated, two states with the same frontier have the same content and the same [Digest]. Applying one
// op costs the same whatever was folded before (O(log n) for events), and a look at the oracle is O(1). A digest costs
// what changed since the last one; each change also costs hashing the packed runs of its bucket again, one in 4096 of all.
//
// Nothing of an intent is ever forgotten, and a run that committed is packed: with an occurrence, two intents and their stamps it
// takes less than 200 bytes of memory.
//
// A state can be written and loaded again ([State.WriteTo], [Load]): one text for each state, and what is loaded goes on as if it
// had been folded from the first op.
//
// By tier: in the set tier the earliest op of a key wins, in the register tier the latest, events all survive and
// are replayed in order; earlier and later are by (hlc, op id). For intents see [State.CommittedRun], [State.Run],
// [State.Attempts] and [State.RunState].
//
// The oracle can veto a run and never permit one: only the ledger lets an effect begin.
//
// # Failure
//
// Folding never fails. Ops have to be verified before ([oplog.Chain]); a payload of any shape folds to something. An op
// that is not the next of its device, or of a closed chain, is left out, and [State.Apply] says so. Load refuses what WriteTo cannot
// have written with [ErrState] or [ErrVersion].
//
// # Concurrency
//
// The package is pure: no clock, I/O or goroutine. A State belongs to one goroutine at a time, [State.Digest]
// included. Records that are handed out share their payload with the state; it must not be changed.
package fold

import (
	"encoding/json"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/oplog"
)

// A Record is what an op left in the state.
type Record struct {
	Surface oplog.Surface
	Key     string // stable key; the op id in the events tier
	ID      oplog.OpID
	HLC     oplog.HLC // HLC.Device is the author
	Scope   oplog.Scope
	Payload json.RawMessage
}

// compare orders records by (hlc, op id).
func (r *Record) compare(q *Record) int {
	if c := r.HLC.Compare(q.HLC); c != 0 {
		return c
	}
	return strings.Compare(string(r.ID), string(q.ID))
}

// A State is the fold of all ops at or below its frontier. Make it with New.
type State struct {
	heads  oplog.Heads // of the chains that may go on
	closed oplog.Heads // of those that may not
	scopes map[oplog.Scope]bool
	keyed  map[oplog.Surface]map[string]*Record
	events map[oplog.Surface]*eventList
	agents map[string]*agent
	packed packed
	parked parkedNotes
	tree   tree
}

// New returns the state of no ops.
func New() *State {
	return &State{
		heads:  oplog.Heads{},
		closed: oplog.Heads{},
		scopes: map[oplog.Scope]bool{},
		keyed:  map[oplog.Surface]map[string]*Record{},
		events: map[oplog.Surface]*eventList{},
		agents: map[string]*agent{},
		parked: newParkedNotes(),
	}
}

// Apply folds a verified op and reports whether it did. An op at or below the frontier changes nothing, so each is
// folded exactly once. An op that is not the next of its device, or of an unknown surface, changes nothing either:
// fold what is missing first.
func (s *State) Apply(op oplog.Op) bool {
	tier, err := op.Surface.Tier()
	if err != nil || op.Seq != s.next(op.Device) {
		return false
	}
	rec := &Record{Surface: op.Surface, ID: op.ID, HLC: op.HLC, Scope: op.Scope, Payload: op.Payload}
	switch tier {
	case oplog.TierSet:
		s.foldKeyed(rec, func(old *Record) bool { return rec.compare(old) < 0 })
	case oplog.TierRegister:
		s.foldKeyed(rec, func(old *Record) bool { return rec.compare(old) > 0 })
	case oplog.TierEvents:
		s.foldEvent(rec)
	case oplog.TierIntents:
		s.foldIntent(rec)
	}
	s.heads[op.Device] = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
	s.scopes[op.Scope] = true
	s.parked.drop(op.Device, op.Seq)
	return true
}

func (s *State) foldKeyed(rec *Record, beats func(old *Record) bool) {
	rec.Key = oplog.StableKey(rec.Payload)
	records := s.keyed[rec.Surface]
	if records == nil {
		records = map[string]*Record{}
		s.keyed[rec.Surface] = records
	}
	if old, ok := records[rec.Key]; ok && !beats(old) {
		return
	}
	records[rec.Key] = rec
	s.tree.put(rec, rec.Key)
}

func (s *State) foldEvent(rec *Record) {
	rec.Key = string(rec.ID)
	list := s.events[rec.Surface]
	if list == nil {
		list = &eventList{}
		s.events[rec.Surface] = list
	}
	list.insert(rec)
	s.tree.put(rec, rec.Key)
}

// next is the seq of the op that would be folded, or one that no op has if the chain is closed.
func (s *State) next(device string) uint64 {
	if head, ok := s.heads[device]; ok {
		return head.Seq + 1
	}
	if _, closed := s.closed[device]; closed {
		return math.MaxUint64
	}
	return 0
}

// Frontier returns a copy of the folded frontier, without the chains that are closed.
func (s *State) Frontier() oplog.Frontier { return s.heads.Frontier() }

// Heads returns a copy of the last folded op of each chain that is not closed.
func (s *State) Heads() oplog.Heads { return s.heads.Clone() }

// Closed returns a copy of the last ops of the chains that are closed.
func (s *State) Closed() oplog.Heads { return s.closed.Clone() }

// Close ends the chain of a device that will never write again, at what is folded of it: it leaves the frontier, and
// Apply takes no more of it. It reports false if nothing of the device is folded; the chain stays open then. Closing
// twice changes nothing. Neither digest moves.
func (s *State) Close(device string) bool {
	if head, ok := s.heads[device]; ok {
		s.closed[device] = head
		delete(s.heads, device)
	}
	_, closed := s.closed[device]
	return closed
}

// Scopes returns the scopes of all ops that were folded, in bytewise order.
func (s *State) Scopes() []oplog.Scope { return slices.Sorted(maps.Keys(s.scopes)) }

// Covers reports whether the op of device at seq is folded.
func (s *State) Covers(device string, seq uint64) bool {
	head, ok := s.heads[device]
	if !ok {
		head, ok = s.closed[device]
	}
	return ok && seq <= head.Seq
}

// Get returns the winner for a key of a surface of the set or register tier.
func (s *State) Get(surface oplog.Surface, key string) (Record, bool) {
	if rec, ok := s.keyed[surface][key]; ok {
		return *rec, true
	}
	return Record{}, false
}

// Records yields the winners of a surface of the set or register tier in bytewise order of their keys.
func (s *State) Records(surface oplog.Surface) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		records := s.keyed[surface]
		for _, key := range slices.Sorted(maps.Keys(records)) {
			if !yield(*records[key]) {
				return
			}
		}
	}
}

// All yields the records of every tier, the intents behind the state included: the ops that it is made of.
func (s *State) All() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		s.records(func(rec *Record) bool { return yield(*rec) })
	}
}

// Intents yields the intents behind the state: of each agent, run, attempt, author and claim the winner, in bytewise order of these.
func (s *State) Intents() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		s.intents(func(rec *Record) bool { return yield(*rec) })
	}
}

// Events yields the ops of a surface of the events tier in the order (hlc, op id). What depends on the path, such
// as an average, is computed by replaying them; it is not part of the state.
func (s *State) Events(surface oplog.Surface) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if list := s.events[surface]; list != nil {
			list.each(func(rec *Record) bool { return yield(*rec) })
		}
	}
}
