package fold

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/syncnode/syncnode/oplog"
)

// An agent is what the log says about one agent. Agent, run and attempt are any text, as payloads have it.
type agent struct {
	epoch  uint64 // the highest in any intent
	live   map[string]*run
	packed table // the runs that are not live
}

// A run keeps, for each attempt, author and claim, one intent: the greatest by (epoch, hlc, op id). All views are
// functions of these slots, so each slot being a join makes the whole one.
type run struct {
	slots     []*slot // in the order of their keys
	committed *slot   // the greatest that says committed
}

type slot struct {
	attempt string
	device  string // the author
	claim   claim
	epoch   uint64
	void    bool
	rec     *Record
}

// A claim is what an intent says, and in what standing. The texts are hashed and frozen.
type claim string

const (
	claimPending           claim = "pending"
	claimFailed            claim = "failed"
	claimCommitted         claim = "committed"
	claimResolvedFailed    claim = "resolved-failed" // a resolver's word
	claimResolvedCommitted claim = "resolved-committed"
)

func claimOf(in oplog.Intent) claim {
	switch {
	case !in.Terminal():
		return claimPending
	case in.By == "":
		return claim(in.Status)
	}
	return "resolved-" + claim(in.Status)
}

func (c claim) committed() bool { return c == claimCommitted || c == claimResolvedCommitted }
func (c claim) resolved() bool  { return c == claimResolvedCommitted || c == claimResolvedFailed }

// rank orders claims in the view of who holds a run: an end beats a beginning, committed beats failed.
func (c claim) rank() int {
	switch {
	case c.committed():
		return 2
	case c == claimPending:
		return 0
	}
	return 1
}

func (s *slot) compareKey(q *slot) int {
	return cmp.Or(strings.Compare(s.attempt, q.attempt), strings.Compare(s.device, q.device),
		strings.Compare(string(s.claim), string(q.claim)))
}

// compare orders intents by (epoch, hlc, op id).
func (s *slot) compare(q *slot) int {
	return cmp.Or(cmp.Compare(s.epoch, q.epoch), s.rec.compare(q.rec))
}

// attemptName is the intent's attempt. One that names none is an attempt of its own per author and epoch.
func attemptName(in oplog.Intent, device string) string {
	if in.Attempt != "" {
		return in.Attempt
	}
	return "~" + device + "@" + strconv.FormatUint(in.Epoch, 10)
}

func newSlot(rec *Record, in oplog.Intent) *slot {
	return &slot{attempt: attemptName(in, rec.HLC.Device), device: rec.HLC.Device, claim: claimOf(in), epoch: in.Epoch,
		void: in.Cause == oplog.CauseVoid, rec: rec}
}

func (s *State) foldIntent(rec *Record) {
	in := oplog.ReadIntent(rec.Payload)
	a := s.agent(in.Agent)
	a.epoch = max(a.epoch, in.Epoch)
	sl := newSlot(rec, in)
	if entry := s.packed.find(&a.packed, in.RunID); entry >= 0 {
		if !s.packedRun(a, entry).join(sl) {
			return
		}
		s.unpack(in.Agent, a, in.RunID, entry)
	}
	r := a.live[in.RunID]
	if r == nil {
		r = &run{}
		a.live[in.RunID] = r
	}
	if !r.join(sl) {
		return
	}
	s.tree.put(rec, sl.parts(in.Agent, in.RunID)...)
	if r.committed != nil {
		s.pack(in.Agent, a, in.RunID, r)
	}
}

// agent is the agent of that name, which is made if there is none.
func (s *State) agent(name string) *agent {
	a := s.agents[name]
	if a == nil {
		a = &agent{live: map[string]*run{}}
		s.agents[name] = a
	}
	return a
}

// parts is the key of the slot's leaf, after the surface.
func (s *slot) parts(agent, run string) []string {
	return []string{agent, run, s.attempt, s.device, string(s.claim)}
}

// newRun is the run of these slots, which are in order.
func newRun(slots []*slot) *run {
	r := &run{slots: slots}
	for _, sl := range slots {
		r.commit(sl)
	}
	return r
}

// join puts sl in its slot if it is greater than what is there, and reports whether it is.
func (r *run) join(sl *slot) bool {
	i, found := slices.BinarySearchFunc(r.slots, sl, (*slot).compareKey)
	switch {
	case !found:
		r.slots = slices.Insert(r.slots, i, sl)
	case sl.compare(r.slots[i]) <= 0:
		return false
	default:
		r.slots[i] = sl
	}
	r.commit(sl)
	return true
}

func (r *run) commit(sl *slot) {
	if sl.claim.committed() && (r.committed == nil || sl.compare(r.committed) > 0) {
		r.committed = sl
	}
}

func (s *State) run(agent, id string) *run {
	a := s.agents[agent]
	if a == nil {
		return nil
	}
	if r := a.live[id]; r != nil {
		return r
	}
	if entry := s.packed.find(&a.packed, id); entry >= 0 {
		return s.packedRun(a, entry)
	}
	return nil
}

// packedRun is a copy of a packed run.
func (s *State) packedRun(a *agent, entry int) *run {
	_, _, slots, _ := s.packed.slots(a.packed.refs[entry])
	return newRun(slots)
}

// An IntentRecord is an intent with the op that said it. HLC.Device is its author.
type IntentRecord struct {
	oplog.Intent
	ID     oplog.OpID
	HLC    oplog.HLC
	Scope  oplog.Scope
	Parked bool // known, and not folded yet
}

func record(rec *Record) IntentRecord {
	return IntentRecord{Intent: oplog.ReadIntent(rec.Payload), ID: rec.ID, HLC: rec.HLC, Scope: rec.Scope}
}

// CommittedRun is the oracle: whether any op says that this run committed, at whatever epoch, whoever wrote it.
// Nothing ever removes a run from it, and failed never enters it. Of several commits the greatest by (epoch, hlc,
// op id) is shown; if only parked ops say so, one of those. O(1).
func (s *State) CommittedRun(agent, run string) (IntentRecord, bool) {
	if r := s.run(agent, run); r != nil && r.committed != nil {
		return record(r.committed.rec), true
	}
	if rec := s.parked.committed(agent, run); rec != nil {
		in := record(rec)
		in.Parked = true
		return in, true
	}
	return IntentRecord{}, false
}

// Run is the view of who holds a run: of all its intents the greatest by (committed over failed over pending,
// epoch, hlc, op id). A pending below the agent's highest epoch is absent; an end is never undone. For the evidence
// of doubt, which a higher epoch must not erase, ask Attempts.
func (s *State) Run(agent, run string) (IntentRecord, bool) {
	r := s.run(agent, run)
	if r == nil {
		return IntentRecord{}, false
	}
	best := slices.MaxFunc(r.slots, func(a, b *slot) int {
		return cmp.Or(cmp.Compare(a.claim.rank(), b.claim.rank()), a.compare(b))
	})
	if best.claim == claimPending && best.epoch < s.agents[agent].epoch {
		return IntentRecord{}, false
	}
	return record(best.rec), true
}

// FencingEpoch is the highest epoch in any intent of the agent, and false if there is none.
func (s *State) FencingEpoch(agent string) (uint64, bool) {
	if a := s.agents[agent]; a != nil {
		return a.epoch, true
	}
	return 0, false
}

// Agents returns the agents that intents name, in bytewise order. One of them may be "".
func (s *State) Agents() []string { return slices.Sorted(maps.Keys(s.agents)) }

// Runs returns the runs of an agent that intents name, in bytewise order.
func (s *State) Runs(agent string) []string {
	a := s.agents[agent]
	if a == nil {
		return nil
	}
	ids := slices.Collect(maps.Keys(a.live))
	for at := range a.packed.each {
		ids = append(ids, runID(s.packed.keptRun(at)))
	}
	slices.Sort(ids)
	return ids
}
