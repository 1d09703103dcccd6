package session_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

type (
	ctx     = context.Context
	stateOf = fold.State
)

var (
	agents = []string{"x", "y"}
	runs   = []string{"r0", "r1", "r2", "r3", "r4", "r5"}
)

// A deed is what a step may be, and how often it is.
type deed struct {
	weight int
	run    func(w *world, m *member, p *place, rnd *rand.Rand)
}

var deeds map[string]deed

var deedNames []string

func init() {
	deeds = map[string]deed{
		"append":  {14, (*world).append},
		"intent":  {8, (*world).intent},
		"beside":  {3, (*world).beside},
		"pump":    {30, (*world).pump},
		"publish": {6, (*world).publish},
		"rebase":  {2, (*world).rebase},
		"collect": {4, (*world).collect},
		"evict":   {1, (*world).evict},
		"reopen":  {3, (*world).reopen},
		"skew":    {2, (*world).skew},
		"backup":  {2, (*world).save},
		"restore": {2, (*world).restore},
		"join":    {1, (*world).cold},
		"late":    {1, (*world).late},
		"power":   {2, (*world).power},
		"keep":    {2, (*world).keep},
		"empty":   {1, (*world).empty},
		"return":  {1, (*world).putBack},
	}
	deedNames = slices.Sorted(maps.Keys(deeds))
}

func drafts(rnd *rand.Rand) []journal.Draft {
	out := make([]journal.Draft, 1+rnd.IntN(4))
	for i := range out {
		out[i] = journal.Draft{
			Scope:   []oplog.Scope{oplog.Personal, oplog.Shared("acme")}[rnd.IntN(2)],
			Surface: []oplog.Surface{oplog.Knowledge, oplog.Skill, oplog.Routing, oplog.Conversation, oplog.DeclAgent, oplog.Registry("tool")}[rnd.IntN(6)],
			Payload: fmt.Appendf(nil, `{"id":"%d","v":%d}`, rnd.IntN(12), rnd.IntN(1000)),
		}
	}
	return out
}

func (w *world) append(m *member, p *place, rnd *rand.Rand) {
	ds := drafts(rnd)
	w.under(m, p, rnd, func() error {
		ops, err := m.Append(w.t.Context(), ds...)
		w.owe(m, ops)
		return err
	})
}

func (w *world) intent(m *member, p *place, rnd *rand.Rand) {
	in := oplog.Intent{
		RunID: runs[rnd.IntN(len(runs))], Agent: agents[rnd.IntN(len(agents))], Epoch: 1 + rnd.Uint64N(4),
		Status:  []string{oplog.StatusPending, oplog.StatusCommitted, oplog.StatusFailed}[rnd.IntN(3)],
		Attempt: fmt.Sprint("t", rnd.IntN(3)),
	}
	w.under(m, p, rnd, func() error {
		op, ok, err := m.RecordIntent(w.t.Context(), in)
		if ok {
			w.owe(m, []oplog.Op{op})
		}
		return err
	})
}

// beside is an append of another process of the device.
func (w *world) beside(m *member, _ *place, rnd *rand.Rand) {
	ops, err := m.journal().Append(w.t.Context(), drafts(rnd)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.owe(m, ops)
}

func (w *world) pump(m *member, p *place, rnd *rand.Rand) {
	var frozen bool
	w.under(m, p, rnd, func() error {
		_, err := m.Pump(w.t.Context(), p.faulty)
		frozen = errors.Is(err, session.ErrFrozen)
		if err == nil {
			delete(p.missed, m.family)
		}
		return err
	})
	if frozen && m.noted() {
		w.renew(m, rnd)
	}
}

func (w *world) publish(m *member, p *place, rnd *rand.Rand) {
	var retired []string
	if rnd.IntN(2) == 0 {
		retired = slices.DeleteFunc(slices.Clone(w.retired), w.elsewhere)
	}
	w.under(m, p, rnd, func() error {
		_, err := m.Publish(w.t.Context(), p.faulty, retired...)
		return err
	})
}

// elsewhere reports whether a relay has more of an id than another: nobody may call it retired yet.
func (w *world) elsewhere(id string) bool {
	heads := map[oplog.Pos]bool{}
	for _, p := range w.places {
		info, err := p.store.Look(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		heads[info.Heads[id]] = true
	}
	return len(heads) > 1
}

func (w *world) rebase(m *member, p *place, rnd *rand.Rand) {
	w.under(m, p, rnd, func() error {
		_, _, err := m.Rebase(w.t.Context(), p.faulty)
		return err
	})
}

func (w *world) collect(m *member, p *place, rnd *rand.Rand) {
	if !w.allMet() {
		return
	}
	w.under(m, p, rnd, func() error {
		_, err := p.faulty.Collect(w.t.Context())
		return err
	})
}

// evict lets so much time go by that who does not come back counts no more.
func (w *world) evict(*member, *place, *rand.Rand) { w.wall.add(relay.EvictAfter + time.Hour) }

func (w *world) reopen(m *member, _ *place, _ *rand.Rand) {
	if m.before != nil {
		w.reissue(m)
	} else {
		m.start()
	}
}

// skew puts the device's clock forward.
func (w *world) skew(m *member, _ *place, rnd *rand.Rand) {
	m.wall.add(time.Duration(rnd.IntN(1200)) * time.Second)
}

func (w *world) cold(*member, *place, *rand.Rand) {
	if len(w.members) < 7 {
		w.join()
	}
}

// late is what was still running under a frozen id and records its end.
func (w *world) late(m *member, _ *place, rnd *rand.Rand) {
	if m.before == nil {
		return
	}
	ops, err := m.before.journal().Append(w.t.Context(), drafts(rnd)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.owe(m, ops)
}

func (w *world) power(m *member, _ *place, rnd *rand.Rand) { m.cut(loss(rnd)) }

// keep makes the copy of a relay that is put back later; empty and putBack are its losses.
func (w *world) keep(_ *member, p *place, _ *rand.Rand) { p.yesterday = p.store.copied() }

func (w *world) empty(_ *member, p *place, _ *rand.Rand) {
	if w.losing && w.allMet() {
		p.lose(w.newStore())
	}
}

func (w *world) putBack(_ *member, p *place, rnd *rand.Rand) {
	if !w.losing || !w.allMet() || p.yesterday == nil {
		return
	}
	store := p.yesterday.copied()
	if rnd.IntN(2) == 0 {
		store.setGeneration(rnd.Uint64())
	}
	p.lose(store)
}

func (w *world) save(m *member, _ *place, _ *rand.Rand) {
	b := &backup{host: *m.host, known: maps.Clone(m.known), owed: map[oplog.OpID]bool{}, before: m.before}
	b.host.disk = m.disk.Clone()
	for id, d := range w.owed {
		if d.by == m {
			b.owed[id] = true
		}
	}
	b.head, b.any = m.journal().Head()
	m.backup = b
}

// restore puts the backup in the place of the device. What was written since and no relay has is lost with the disk.
func (w *world) restore(m *member, _ *place, _ *rand.Rand) {
	b := m.backup
	if b == nil || w.losing || !w.alike(b) {
		return
	}
	w.t.note("  %s is now %s as of %d", m.name, b.host.name, b.head.Seq)
	if m.name != b.host.name && !slices.Contains(w.retired, m.name) {
		w.retired = append(w.retired, m.name)
	}
	for id, d := range w.owed {
		if d.by == m && !b.owed[id] && !w.safe(id) {
			delete(w.owed, id)
		}
	}
	h := b.host
	h.wall, h.disk, h.proc = m.wall, b.host.disk.Clone(), nil
	h.start()
	m.host, m.before, m.known, m.restored = &h, b.before, maps.Clone(b.known), true
}

// alike reports whether all relays hold more than the backup of its chain, or none does. If they differ, the copy may write another op for a
// relay that lacks the first one before it hears of that: nobody can notice until they meet, and it is not promised.
func (w *world) alike(b *backup) bool {
	ahead := 0
	for _, p := range w.places {
		info, err := p.store.Look(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if at, known := info.Heads[b.host.name]; known && (!b.any || at.Seq > b.head.Seq) {
			ahead++
		}
	}
	return ahead == 0 || ahead == len(w.places)
}
