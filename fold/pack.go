package fold

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/syncnode/syncnode/oplog"
)

// Runs that committed are kept for ever, and hardly ever looked at: they are packed. A packed run is one record in an
// arena without pointers, found through its agent's table:
//
//	agent, run id, number of slots, { bucket of its leaf, flags, author, wall, counter, scope, op id, payload } …
//
// Authors, scopes, agents and the shapes of payloads are numbers of tables of the state. Unpacking gives back every
// byte. An op for a packed run unpacks it, and it is packed again.

// names gives small numbers to texts that recur.
type names struct {
	byText map[string]int
	all    []string
}

func (n *names) number(text string) uint64 {
	i, ok := n.byText[text]
	if !ok {
		if n.byText == nil {
			n.byText = map[string]int{}
		}
		i = len(n.all)
		n.all = append(n.all, text)
		n.byText[text] = i
	}
	return uint64(i)
}

// packed is what the packed runs of one state share.
type packed struct {
	arena   arena
	agents  names
	authors names
	scopes  names
	shapes  shapes
	buf     []byte // to build records in
}

// The flags of a slot in a record.
const (
	idIsText   = 1 << iota // the op id has not the form of one
	hasCounter             // the stamp's counter is not 0
	hasScope               // the scope is not the first that was seen
)

// record makes the record of a run, whose leaves have these keys.
func (p *packed) record(agent, run string, slots []*slot, keys []hash) []byte {
	b := binary.AppendUvarint(p.buf[:0], p.agents.number(agent))
	b = appendRun(b, run)
	b = binary.AppendUvarint(b, uint64(len(slots)))
	in := setting{agent: agent, run: run}
	for i, sl := range slots {
		b = binary.BigEndian.AppendUint16(b, uint16(bucketOf(keys[i])))
		b = p.appendStamp(b, sl.rec, &in)
		b = p.shapes.appendPayload(b, sl.rec.Payload, &in)
	}
	p.buf = b
	return b
}

func (p *packed) appendStamp(b []byte, rec *Record, in *setting) []byte {
	var flags byte
	if !rec.ID.Valid() {
		flags |= idIsText
	}
	if rec.HLC.Counter != 0 {
		flags |= hasCounter
	}
	scope := p.scopes.number(string(rec.Scope))
	if scope != 0 {
		flags |= hasScope
	}
	b = binary.AppendUvarint(append(b, flags), p.authors.number(rec.HLC.Device))
	b = binary.AppendVarint(b, rec.HLC.WallMS-in.wallMS)
	in.wallMS = rec.HLC.WallMS
	if flags&hasCounter != 0 {
		b = binary.AppendUvarint(b, uint64(rec.HLC.Counter))
	}
	if flags&hasScope != 0 {
		b = binary.AppendUvarint(b, scope)
	}
	if flags&idIsText != 0 {
		return append(binary.AppendUvarint(b, uint64(len(rec.ID))), rec.ID...)
	}
	b, _ = hex.AppendDecode(b, []byte(strings.TrimPrefix(string(rec.ID), opIDPrefix)))
	return b
}

const (
	opIDPrefix = "op-"
	opIDBytes  = 32
)

// slots reads a record back, and the buckets that its leaves are in.
func (p *packed) slots(at ref) (agent, run string, slots []*slot, buckets []int) {
	r := reader{p.arena.at(at)}
	agent = p.agents.all[r.uvarint()]
	run = runID(r.takeRun())
	in := setting{agent: agent, run: run}
	n := int(r.uvarint())
	slots, buckets = make([]*slot, n), make([]int, n)
	for i := range n {
		buckets[i] = int(binary.BigEndian.Uint16(r.take(2)))
		rec := p.stamp(&r, &in)
		rec.Payload, in.prev = p.shapes.payload(&r, &in)
		slots[i] = newSlot(rec, oplog.ReadIntent(rec.Payload))
	}
	return agent, run, slots, buckets
}

func (p *packed) stamp(r *reader, in *setting) *Record {
	flags := r.take(1)[0]
	rec := &Record{Surface: oplog.Intents, HLC: oplog.HLC{Device: p.authors.all[r.uvarint()]}, Scope: oplog.Scope(p.scopes.all[0])}
	in.wallMS += r.varint()
	rec.HLC.WallMS = in.wallMS
	if flags&hasCounter != 0 {
		rec.HLC.Counter = uint32(r.uvarint())
	}
	if flags&hasScope != 0 {
		rec.Scope = oplog.Scope(p.scopes.all[r.uvarint()])
	}
	if flags&idIsText != 0 {
		rec.ID = oplog.OpID(r.take(int(r.uvarint())))
		return rec
	}
	var id [len(opIDPrefix) + 2*opIDBytes]byte
	copy(id[:], opIDPrefix)
	hex.Encode(id[len(opIDPrefix):], r.take(opIDBytes))
	rec.ID = oplog.OpID(id[:])
	return rec
}

// size is the length of the record that b begins with.
func (p *packed) size(b []byte) int {
	r := reader{b}
	r.uvarint()
	r.takeRun()
	var in setting
	for range r.uvarint() {
		r.take(2)
		p.stamp(&r, &in)
		_, in.prev = p.shapes.payload(&r, &in)
	}
	return len(b) - len(r.b)
}

// keptRun is the run id of a record, as it is kept.
func (p *packed) keptRun(at ref) []byte {
	r := reader{p.arena.at(at)}
	r.uvarint()
	return r.takeRun()
}

func (p *packed) hashRun(at ref) uint64 { return hashName(runID(p.keptRun(at))) }

// find is the index of a run in its agent's table, or -1.
func (p *packed) find(t *table, run string) int {
	if t.live == 0 {
		return -1
	}
	var room [64]byte
	want := appendRun(room[:0], run)
	return t.find(hashName(run), func(at ref) bool { return bytes.Equal(p.keptRun(at), want) })
}

// pack packs a run of the live ones, if it fits. The leaves stay what they are.
func (s *State) pack(name string, a *agent, id string, r *run) {
	keys := make([]hash, len(r.slots))
	for i, sl := range r.slots {
		keys[i] = leafKey(oplog.Intents, sl.parts(name, id))
	}
	at, ok := s.packed.arena.add(s.packed.record(name, id, r.slots, keys))
	if !ok {
		return
	}
	for _, key := range keys {
		s.tree.pack(key, at)
	}
	delete(a.live, id)
	a.packed.add(hashName(id), at, s.packed.hashRun)
	if s.packed.arena.wasteful() {
		s.repack()
	}
}

// unpack makes a packed run live, before it changes.
func (s *State) unpack(name string, a *agent, id string, entry int) {
	at := a.packed.refs[entry]
	_, _, slots, buckets := s.packed.slots(at)
	a.packed.remove(entry)
	s.packed.arena.dead += s.packed.size(s.packed.arena.at(at))
	for i, sl := range slots {
		s.tree.unpack(buckets[i], at)
		s.tree.put(sl.rec, sl.parts(name, id)...)
	}
	a.live[id] = newRun(slots)
}

// repack copies what is not let go into a new arena.
func (s *State) repack() {
	old := s.packed.arena
	s.packed.arena = arena{}
	moved := map[ref]ref{}
	for _, a := range s.agents {
		for i, at := range a.packed.refs {
			if at == 0 || at == gone {
				continue
			}
			rec := old.at(at)
			to, ok := s.packed.arena.add(rec[:s.packed.size(rec)])
			if !ok {
				panic("fold: what fitted into an arena does not fit into another")
			}
			moved[at], a.packed.refs[i] = to, to
		}
	}
	s.tree.move(moved)
}
