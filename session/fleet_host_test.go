package session_test

import (
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// A host is a device under one id: a disk, and a session in a process that can be killed.
type host struct {
	*session.Session
	w    *world
	name string
	disk *faultfs.Disk
	proc *faultfs.Process
	wall *wall
}

const dataDir = "/data"

func (w *world) newHost(family string, clock *wall) *host {
	w.born++
	h := &host{w: w, name: fmt.Sprintf("%s.%d", family, w.born), disk: faultfs.New(), wall: clock}
	h.start()
	return h
}

// journal opens the journal once more.
func (h *host) journal() *journal.Journal {
	j, err := journal.Open(h.w.t.Context(), journal.Config{Dir: dataDir, Device: h.name, Now: h.wall.Now, FS: h.proc, SegmentBytes: 1500})
	if err != nil {
		h.w.t.Fatalf("open the journal of %s: %v", h.name, err)
	}
	return j
}

// start kills what runs and opens the device from what its disk shows.
func (h *host) start() {
	if h.proc != nil {
		h.proc.Kill()
	}
	h.proc = h.disk.Process()
	s, err := session.Open(h.w.t.Context(), session.Config{Device: h.name, Journal: h.journal(), Now: h.wall.Now,
		Checkpoints: &checkpoint.Store{FS: h.proc, Dir: dataDir + ".checkpoints"}})
	if err != nil {
		h.w.t.Fatalf("open the session of %s: %v", h.name, err)
	}
	h.Session = s
}

// killed reports whether the process was.
func (h *host) killed() bool {
	_, err := h.proc.Exists(dataDir)
	return errors.Is(err, faultfs.ErrKilled)
}

// cut is a loss of power.
func (h *host) cut(l faultfs.Loss) {
	h.proc.Kill()
	h.disk, h.proc = h.disk.After(l), nil
	h.start()
}

// noted reports whether it is noted durably that the id is frozen, and with that from where on its ops are to be written again.
func (h *host) noted() bool {
	_, noted, err := h.journal().Frozen()
	if err != nil {
		h.w.t.Fatal(err)
	}
	return noted
}

func (h *host) verify() {
	j := h.journal()
	cut, _, err := j.Cut()
	if err == nil {
		_, err = journal.VerifyFrom(dataDir, h.proc, cut)
	}
	if err != nil {
		h.w.t.Fatalf("%s: journal: %v", h.name, err)
	}
}

// A place is a relay and what lies between it and the devices.
type place struct {
	relay.Collector
	relay.Relay
	w         *world
	store     store
	yesterday store
	small     bool                       // its pages are
	faulty    *relaytest.FaultyCollector // what devices talk to
	missed    map[string]bool            // families that were not here since the store was made
	poison    string                     // the device whose chain is served with a bad op
	from      uint64                     // from this op on
}

// lose puts another store in the place of the one there is.
func (p *place) lose(store store) {
	p.use(store)
	p.miss()
}

// miss means that the store knows of no device. Nothing is collected and no store is lost until every device has been here: some may
// have published without the others meanwhile, and the ops that would bring two such checkpoints together would be gone.
func (p *place) miss() {
	for _, m := range p.w.members {
		p.missed[m.family] = true
	}
}

// use makes a store the one that the place has.
func (p *place) use(store store) {
	p.store, p.Collector, p.Relay = store, store, store
	if p.small {
		p.Relay = smallPages{store}
	}
}

func (w *world) newStore() store {
	if w.folders {
		return newShared(w, faultfs.New())
	}
	return inMemory{memory.New(memory.Config{Grace: -1, Now: w.wall.Now})}
}

// Push notes what the relay accepted, whether or not the device hears of it.
func (p *place) Push(ctx ctx, device string, ops []oplog.Op) (relay.Pushed, error) {
	done, err := p.Relay.Push(ctx, device, ops)
	for _, op := range ops[:done.Accepted+done.Duplicate] {
		p.w.accepted(op)
	}
	return done, err
}

// edit makes an op bad on its way.
func (p *place) edit(ops []oplog.Op) []oplog.Op {
	for i := range ops {
		if ops[i].Device == p.poison && ops[i].Seq >= p.from {
			ops[i].Payload = []byte(`{"id":"poison"}`)
		}
	}
	return ops
}
