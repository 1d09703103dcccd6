package session_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/fold/foldtest"
	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// A world is a fleet with its relays, and all that is known about it from outside.
type world struct {
	t       *trial
	wall    *wall // of the relays
	places  []*place
	members []*member
	born    int // ids given so far

	ids     map[chainSeq]oplog.OpID     // of every op that any relay has accepted: one for each place of a chain, for ever
	ops     map[oplog.OpID]oplog.Op     // the same
	owed    map[oplog.OpID]debt         // acknowledged by an append
	again   map[oplog.OpID][]oplog.OpID // under which ids it was written again
	retired []string                    // ids that nobody writes under any more
	// losing: the relays lose what they hold; otherwise devices are restored from older copies. Both at once may lose the last copy of an
	// op, or of a chain whose author is gone, which nobody promises to keep.
	losing  bool
	folders bool // the relays are in folders
}

type chainSeq struct {
	device string
	seq    uint64
}

// A debt is an op that was acknowledged, and where: a disk that is lost may take it along until a relay has it.
type debt struct {
	op oplog.Op
	by *member
}

// A member is a device through all of its ids.
type member struct {
	*host
	before   *host // the id before, frozen; nil if there was none
	family   string
	known    map[[2]string]bool // runs that its oracle has shown as committed
	restored bool               // the journal is an older copy, so that the id may be found frozen
	backup   *backup
}

// A backup is a copy of a device as it once was.
type backup struct {
	host   host
	known  map[[2]string]bool
	owed   map[oplog.OpID]bool
	head   oplog.Head
	any    bool
	before *host
}

func newWorld(t *trial, seed uint64, folders bool) *world {
	rnd := newRand(seed)
	w := &world{
		t: t, wall: newWall(), folders: folders, ids: map[chainSeq]oplog.OpID{}, ops: map[oplog.OpID]oplog.Op{},
		owed: map[oplog.OpID]debt{}, again: map[oplog.OpID][]oplog.OpID{},
	}
	for range 3 + rnd.IntN(3) {
		w.join()
	}
	for range 1 + rnd.IntN(2) {
		p := &place{w: w, small: rnd.IntN(2) == 0, missed: map[string]bool{}}
		p.use(w.newStore())
		p.faulty = relaytest.NewFaultyCollector(p)
		p.faulty.Edit(p.edit)
		w.places = append(w.places, p)
	}
	for _, p := range w.places[1:] {
		w.places[0].miss()
		p.miss()
	}
	w.losing = rnd.IntN(2) == 0
	if rnd.IntN(3) == 0 {
		p := w.places[0]
		p.poison, p.from = w.members[0].name, rnd.Uint64N(20)
	}
	return w
}

func (w *world) accepted(op oplog.Op) {
	at := chainSeq{op.Device, op.Seq}
	if id, ok := w.ids[at]; ok && id != op.ID {
		w.t.Fatalf("%s/%d is %s at a relay and was %s before", op.Device, op.Seq, op.ID, id)
	}
	w.ids[at], w.ops[op.ID] = op.ID, op
}

// join adds a device that nobody has heard of.
func (w *world) join() *member {
	m := &member{family: fmt.Sprint("d", len(w.members)), known: map[[2]string]bool{}}
	m.host = w.newHost(m.family, newWall())
	w.members = append(w.members, m)
	if len(w.places) > 1 {
		for _, p := range w.places {
			p.missed[m.family] = true
		}
	}
	return m
}

// allMet reports whether every device has been at every relay.
func (w *world) allMet() bool {
	return !slices.ContainsFunc(w.places, func(p *place) bool { return len(p.missed) > 0 })
}

// take does a step, and looks at the device it was done to.
func (w *world) take(st step) {
	m := w.members[st.who%uint64(len(w.members))]
	rnd := newRand(st.seed)
	p := w.places[rnd.IntN(len(w.places))]
	deeds[st.do].run(w, m, p, rnd)
	w.look(m)
}

// under does something to a device while its disk or its relay may fail, as the dice fall. After a crash of the process or a loss of
// power the device is opened again.
func (w *world) under(m *member, p *place, rnd *rand.Rand, what func() error) {
	rough := true
	switch rnd.IntN(10) {
	case 0, 1:
		faults := []relaytest.Fault{relaytest.None, relaytest.None, relaytest.Before, relaytest.After, relaytest.Twice,
			relaytest.Delayed, relaytest.Again, relaytest.Reversed, relaytest.Holed}
		p.faulty.Plan(func(relaytest.Call) relaytest.Fault { return faults[rnd.IntN(len(faults))] })
	case 2:
		// A sync that fails is the only fault: if it cannot be noted nor what it left be cut off either, nothing is promised.
		nth, every, short := rnd.IntN(6), 1+rnd.IntN(6), rnd.IntN(2) == 0
		one := rnd.IntN(2) == 0
		m.disk.Arm(func(c faultfs.Call) faultfs.Fault {
			sync := c.Op == "sync"
			if sync {
				nth--
			}
			if one && sync && nth == -1 || !one && !sync && c.Changes && c.N%every == 0 {
				return faultfs.Fault{Err: errDisk, Short: short}
			}
			return faultfs.Fault{}
		})
	case 3, 4, 5:
		left := rnd.IntN(12)
		m.proc.KillAt(1 + rnd.IntN(40))
		p.faulty.Plan(func(relaytest.Call) relaytest.Fault {
			if left--; left < 0 {
				m.proc.Kill()
			}
			if m.killed() {
				return []relaytest.Fault{relaytest.Before, relaytest.After}[rnd.IntN(2)]
			}
			return relaytest.None
		})
	default:
		rough = false
	}
	err := what()
	died := m.killed()
	m.proc.KillAt(0)
	m.disk.Arm(nil)
	p.faulty.Plan(nil)
	if err != nil {
		w.t.note("  %s: %v", m.name, err)
	}
	w.judge(m, err, rough)
	switch {
	case died && rnd.IntN(2) == 0:
		l := loss(rnd)
		w.t.note("  %s lost power: %v", m.name, l)
		m.cut(l)
	case died, errors.Is(err, journal.ErrPoisoned):
		m.start()
	}
}

func loss(rnd *rand.Rand) faultfs.Loss {
	seed := rnd.Uint64N(1000)
	return []faultfs.Loss{faultfs.Nothing, faultfs.Everything, faultfs.Names, faultfs.Data, faultfs.Torn(seed), faultfs.Random(seed)}[rnd.IntN(6)]
}

// judge says whether an error is one that may be.
func (w *world) judge(m *member, err error, rough bool) {
	switch {
	case err == nil:
	case errors.Is(err, session.ErrFrozen):
		if !m.restored {
			w.t.Fatalf("%s is frozen and its journal was always the only one: %v", m.name, err)
		}
	case rough:
	case w.apart(err):
	case m.restored && (errors.As(err, new(*oplog.ForkError)) || errors.Is(err, relay.ErrContradiction)): // a publish before the pump that freezes
	case slices.ContainsFunc(w.places, func(p *place) bool { return p.poison == m.name }): // the own chain is not what it is to look like
	default:
		w.t.Fatalf("%s: %v", m.name, err)
	}
}

// apart reports whether an error says that neither of two checkpoints covers the other, as they may after a loss or with two relays. A
// Publish joins them as soon as the device has folded what both cover.
func (w *world) apart(err error) bool {
	_, behind := errors.AsType[*checkpoint.BehindError](err)
	return (w.losing || len(w.places) > 1) && (behind || errors.Is(err, session.ErrRelayBehind))
}

func (w *world) owe(m *member, ops []oplog.Op) {
	for _, op := range ops {
		w.owed[op.ID] = debt{op, m}
	}
}

// safe reports whether an op, or one that stands for it, has reached a relay.
func (w *world) safe(id oplog.OpID) bool {
	if _, ok := w.ops[id]; ok {
		return true
	}
	return slices.ContainsFunc(w.again[id], w.safe)
}

// look checks what has to hold at any time.
func (w *world) look(m *member) {
	held := m.HeldFrontier()
	for device, at := range held {
		if id, ok := w.ids[chainSeq{device, at.Seq}]; ok && id != at.ID && !(device == m.name && m.restored) {
			w.t.Fatalf("%s holds %s as %s/%d, and relays were given %s", m.name, at.ID, device, at.Seq, id)
		}
	}
	if !held.Dominates(m.FoldedFrontier()) {
		w.t.Fatalf("%s has folded %v and holds %v", m.name, m.FoldedFrontier(), held)
	}
	for run := range m.known {
		if _, ok := m.CommittedRun(run[0], run[1]); !ok {
			w.t.Fatalf("%s has forgotten that run %v committed", m.name, run)
		}
	}
	for _, agent := range agents {
		for _, run := range runs {
			if _, ok := m.CommittedRun(agent, run); ok {
				m.known[[2]string{agent, run}] = true
			}
		}
	}
}

// renew gives a device whose id is frozen another one.
func (w *world) renew(m *member, rnd *rand.Rand) {
	w.t.note("  %s is renewed", m.name)
	w.retired = append(w.retired, m.name)
	m.before, m.host = m.host, w.newHost(m.family, m.wall)
	m.known, m.restored = map[[2]string]bool{}, false
	if rnd != nil && rnd.IntN(2) == 0 {
		to := m.journal()
		m.proc.KillAt(1 + rnd.IntN(12))
		_, err := session.Reissue(w.t.Context(), m.before.journal(), to, nil)
		w.t.note("  writing again was cut short: %v", err)
		m.cut(loss(rnd))
	}
	w.reissue(m)
}

// reissue does what a device does that starts: it writes again what was left under the id before.
func (w *world) reissue(m *member) {
	if m.before != nil {
		from, to := m.before.journal(), m.journal()
		if _, err := session.Reissue(w.t.Context(), from, to, nil); err != nil {
			w.t.Fatal(err)
		}
		w.trace(from, to)
	}
	m.start()
}

// trace notes which op stands for which.
func (w *world) trace(from, to *journal.Journal) {
	passes, err := to.Passes()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range passes {
		for seq := p.First; seq <= p.Last && p.From == from.Device(); seq++ {
			there, _, err := to.OpAt(p.At + seq - p.First)
			if errors.Is(err, journal.ErrAnchored) {
				continue // was noted before it was cut off
			}
			here, ok, err2 := from.OpAt(seq)
			if err := errors.Join(err, err2); err != nil || !ok {
				w.t.Fatalf("pass %+v: %v, %v", p, ok, err)
			}
			if !slices.Contains(w.again[here.ID], there.ID) {
				w.again[here.ID] = append(w.again[here.ID], there.ID)
			}
		}
	}
}

// heal brings everything to an end and checks what is promised then:
//
//   - every device has folded the same and has one digest, that of the naive refold of all ops;
//   - what was acknowledged is in it, under its own id or one that stands for it;
//   - a chain that a relay serves badly has kept no other back; it joins when it is served well;
//   - and at all times, see look: a place in a chain has one op for ever, and no oracle forgets.
func (w *world) heal() {
	latest := w.wall.Now()
	for _, m := range w.members {
		m.start()
		w.reissue(m)
		latest = slices.MaxFunc([]time.Time{latest, m.wall.Now()}, time.Time.Compare)
	}
	for _, m := range w.members {
		m.wall.add(latest.Sub(m.wall.Now()))
	}
	w.settle()
	for _, p := range w.places {
		if p.poison == "" {
			continue
		}
		w.agree(p.poison)
		p.poison = ""
		w.settle()
	}
	w.agree("")
	w.complete()
}

// settle pumps until nothing moves any more.
func (w *world) settle() {
	for quiet, round := 0, 0; quiet < 2; round++ {
		if round == 60 {
			w.t.Fatal("the fleet does not come to rest")
		}
		moved := false
		for _, m := range w.members {
			m.wall.add(11 * time.Minute) // for what waits for its time, and for another try of a chain that was bad
			for _, p := range w.places {
				rep, err := m.Pump(w.t.Context(), p.faulty)
				w.judge(m, err, false)
				if err != nil && w.apart(err) { // nodes look for one that does not get on, and publish for it
					for _, o := range w.members {
						_, err := o.Publish(w.t.Context(), p.faulty)
						w.judge(o, err, false)
					}
					moved = true
				}
				if errors.Is(err, session.ErrFrozen) && m.noted() {
					w.renew(m, nil)
					moved = true
					break
				}
				moved = moved || rep.Pushed.Accepted > 0 || rep.Pulled > 0 || rep.Acked || rep.Adopted != nil || rep.Unparked > 0 || rep.More
			}
			w.look(m)
		}
		if quiet++; moved {
			quiet = 0
		}
	}
}

// agree checks that all devices have folded the same, one chain aside.
func (w *world) agree(but string) {
	want := oplog.Frontier{}
	for at, id := range w.ids {
		if at.seq >= want.Next(at.device) {
			want[at.device] = oplog.Pos{Seq: at.seq, ID: id}
		}
	}
	delete(want, but)
	for _, m := range w.members {
		folded := m.FoldedFrontier()
		closed := oplog.Frontier{}
		m.View(func(s *stateOf) { closed = s.Closed().Frontier() })
		maps.Copy(folded, closed)
		delete(folded, but)
		if !folded.Equal(want) {
			w.t.Fatalf("%s has folded %v, the relays were given %v; %+v", m.name, brief(folded), brief(want), m.Status().Quarantined)
		}
	}
}

// brief is a frontier without ids.
func brief(f oplog.Frontier) string {
	out := ""
	for _, d := range slices.Sorted(maps.Keys(f)) {
		out += fmt.Sprintf("%s:%d ", d, f[d].Seq)
	}
	return out
}

// complete checks that what all have is all there is.
func (w *world) complete() {
	naive := foldtest.Refold(slices.Collect(maps.Values(w.ops))).Digest()
	for _, m := range w.members {
		if got := string(m.Digest()); got != naive {
			w.t.Fatalf("%s has the digest %s, all ops give %s", m.name, got, naive)
		}
		m.start()
		if got := string(m.Digest()); got != naive {
			w.t.Fatalf("%s has another digest when it is opened again", m.name)
		}
		m.verify()
	}
	for id, d := range w.owed {
		if !w.safe(id) {
			w.t.Fatalf("%s/%d of %s was acknowledged and is lost: %s", d.op.Device, d.op.Seq, d.by.family, d.op.Payload)
		}
	}
}
