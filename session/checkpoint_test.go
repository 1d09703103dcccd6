package session_test

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

// newSmall is a device whose segments hold a few ops each, on a disk that does not make the test wait.
func newSmall(t *testing.T, name string) *device {
	t.Helper()
	d := &device{t: t, name: name, dir: filepath.Join(t.TempDir(), name), wall: newWall(), disk: newDisk(), segment: 1500}
	d.disk.fast = true
	d.open()
	return d
}

func newFleet(t *testing.T, names ...string) []*device {
	t.Helper()
	var out []*device
	for _, name := range names {
		out = append(out, newSmall(t, name))
	}
	return out
}

func collecting() *memory.Relay { return memory.New(memory.Config{Grace: -1}) }

func (d *device) publish(r relay.Relay, retired ...string) session.Published {
	d.t.Helper()
	out, err := d.Publish(d.t.Context(), r, retired...)
	if err != nil {
		d.t.Fatalf("%s: %v", d.name, err)
	}
	return out
}

func collect(t *testing.T, r relay.Collector) {
	t.Helper()
	for range 2 { // mark, then delete
		if _, err := r.Collect(t.Context()); err != nil {
			t.Fatalf("collect: %v", err)
		}
	}
}

// some writes ops that take turns over a few keys of a register, so that the state does not grow, four in a group.
func (d *device) some(n int) []oplog.Op {
	d.t.Helper()
	var out []oplog.Op
	for len(out) < n {
		var group []string
		for i := range min(4, n-len(out)) {
			group = append(group, fmt.Sprintf(`{"id":"%s-%d"}`, d.name, (len(out)+i)%5))
		}
		out = append(out, d.write(oplog.Registry("tool"), group...)...)
	}
	return out
}

func pumpAll(r relay.Relay, devices ...*device) {
	for range 2 {
		for _, d := range devices {
			d.pump(r)
		}
	}
}

// same checks that devices have one state.
func same(t *testing.T, devices ...*device) {
	t.Helper()
	for _, d := range devices[1:] {
		if !d.FoldedFrontier().Equal(devices[0].FoldedFrontier()) || d.Digest() != devices[0].Digest() {
			t.Errorf("%s has folded %v, %s %v, and the digests are equal: %v", d.name, d.FoldedFrontier(), devices[0].name,
				devices[0].FoldedFrontier(), d.Digest() == devices[0].Digest())
		}
	}
}

// segments is how many bytes the journal has.
func (d *device) segments() int64 {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.dir, "*.jsonl"))
	if err != nil {
		d.t.Fatal(err)
	}
	var sum int64
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			d.t.Fatal(err)
		}
		sum += info.Size()
	}
	return sum
}

func (d *device) verify() {
	d.t.Helper()
	j := d.journal()
	cut, _, err := j.Cut()
	if err == nil {
		_, err = journal.VerifyFrom(d.dir, nil, cut)
	}
	if err != nil {
		d.t.Errorf("%s: journal: %v", d.name, err)
	}
	if err := j.Close(); err != nil {
		d.t.Error(err)
	}
}

// collected is a relay that collected all that devices a and b wrote, and both devices, on which c never was.
func collected(t *testing.T, r *memory.Relay) (a, b *device) {
	t.Helper()
	a, b = newSmall(t, "a"), newSmall(t, "b")
	a.some(30)
	b.some(30)
	b.write(oplog.Intents, `{"agent_id":"x","epoch":3,"id":"r1","status":"committed"}`)
	pumpAll(r, a, b)
	if out := a.publish(r); !out.New || out.Dropped.Segments == 0 {
		t.Fatalf("published %+v", out)
	}
	collect(t, r)
	return a, b
}

func TestJournalAndRelayStayFlatUnderEndlessWritesWhenAllAreAnchored(t *testing.T) {
	r := collecting()
	devices := newFleet(t, "a", "b", "c", "d")
	const rounds, each = 40, 20
	var early, late, opsEarly, opsLate int64
	for round := range rounds {
		for _, d := range devices {
			d.some(each)
		}
		pumpAll(r, devices...)
		for _, d := range devices {
			d.publish(r)
		}
		pumpAll(r, devices...)
		collect(t, r)
		var bytes, ops int64
		for _, d := range devices {
			bytes = max(bytes, d.segments())
		}
		info, err := r.Hello(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for device, head := range info.Heads {
			ops += int64(head.Seq) + 1
			if floor, ok := info.Floor[device]; ok {
				ops -= int64(floor.Seq) + 1
			}
		}
		if round < rounds/4 {
			early, opsEarly = max(early, bytes), max(opsEarly, ops)
		} else {
			late, opsLate = max(late, bytes), max(opsLate, ops)
		}
	}
	if late > early+early/4 || opsLate > opsEarly+each {
		t.Errorf("the journal went from %d to %d bytes, the relay from %d to %d ops", early, late, opsEarly, opsLate)
	}
	t.Logf("%d ops: at most %d, then %d bytes of journal; %d, then %d ops in the relay", rounds*each*len(devices), early, late, opsEarly, opsLate)
	same(t, devices...)
	for _, d := range devices {
		d.verify()
		digest := d.Digest()
		d.open()
		if d.Digest() != digest {
			t.Errorf("%s has another state after it was opened again", d.name)
		}
		files, err := d.store().List()
		if err != nil || len(files) != 1 {
			t.Errorf("%s keeps checkpoints %v, %v", d.name, files, err)
		}
	}
}

func TestAColdDeviceStartsFromTheRelaysCheckpoint(t *testing.T) {
	r := collecting()
	a, b := collected(t, r)
	c := newSmall(t, "c")
	own := c.some(2)
	rep := c.pump(r)
	if rep.Adopted == nil || rep.Adopted.Author != "a" || rep.Adopted.Proved {
		t.Fatalf("adopted %+v", rep.Adopted)
	}
	if !rep.Acked || rep.Pushed.Accepted != len(own) {
		t.Errorf("report %+v", rep)
	}
	pumpAll(r, a, b, c)
	same(t, a, b, c)
	if _, ok := c.CommittedRun("x", "r1"); !ok {
		t.Error("a commit that only the checkpoint has is not known")
	}
	c.verify()
	digest, held := c.Digest(), c.HeldFrontier()
	c.open()
	if c.Digest() != digest || !c.HeldFrontier().Equal(held) {
		t.Error("another state after it was opened again")
	}
	a.some(3)
	pumpAll(r, a, c)
	if c.FoldedFrontier()["a"] != a.FoldedFrontier()["a"] {
		t.Error("the chain does not go on after the checkpoint")
	}
}

func TestADeviceBehindWhatWasCollectedKeepsItsUnpushedOpsAndPushesThem(t *testing.T) {
	now := newWall()
	r := memory.New(memory.Config{Grace: -1, Now: now.Now})
	a, b, late := newSmall(t, "a"), newSmall(t, "b"), newSmall(t, "late")
	a.some(4)
	late.some(3)
	pumpAll(r, a, b, late)
	unpushed := late.some(5)
	a.some(30)
	now.add(31 * 24 * 3600e9)
	pumpAll(r, a, b)
	if out := b.publish(r); !out.New {
		t.Fatalf("published %+v", out)
	}
	collect(t, r)
	rep := late.pump(r)
	if rep.Adopted == nil {
		t.Fatalf("nothing was collected: %+v", rep)
	}
	if rep.Pushed.Accepted != len(unpushed) {
		t.Errorf("%d of %d ops were pushed", rep.Pushed.Accepted, len(unpushed))
	}
	pumpAll(r, a, b, late)
	same(t, a, b, late)
	if f := a.FoldedFrontier()["late"]; f.ID != unpushed[4].ID {
		t.Errorf("others have %v of it", f)
	}
	late.verify()
}

func TestTheChainOfARetiredWriterIsClosedEverywhere(t *testing.T) {
	r := collecting()
	a, b, old := newSmall(t, "a"), newSmall(t, "b"), newSmall(t, "old")
	old.some(4)
	a.some(4)
	pumpAll(r, a, b, old)
	if err := r.Register(t.Context(), "old", relay.Writer); err != nil {
		t.Fatal(err)
	}
	out := a.publish(r, "old")
	c, _, err := a.store().Load(out.Checkpoint)
	if err != nil || len(c.Closed) != 1 {
		t.Fatalf("closed %v, %v", c.Closed, err)
	}
	b.publish(r)
	collect(t, r)
	pumpAll(r, a, b)
	for _, d := range []*device{a, b} {
		if _, there := d.FoldedFrontier()["old"]; there {
			t.Errorf("%s still has the closed chain in its frontier", d.name)
		}
		if rep := d.pump(r); len(rep.Behind) > 0 {
			t.Errorf("the relay is said to have lost %v", rep.Behind)
		}
		d.open()
	}
	same(t, a, b)
}

func TestARetiredReplicaNeedsNoRowWrittenForItToBeClosed(t *testing.T) {
	r := collecting()
	a, b, old, gone := newSmall(t, "a"), newSmall(t, "b"), newSmall(t, "old"), newSmall(t, "gone")
	old.some(4)
	gone.some(4)
	pumpAll(r, a, b, old, gone)
	a.some(4) // old and gone never ack these
	pumpAll(r, a, b)
	gone.some(4)
	if _, err := r.Push(t.Context(), "gone", slices.Collect(ownOps(gone, 4))); err != nil { // has something that nobody has yet
		t.Fatal(err)
	}
	before := roleOf(t, r, "old")
	out := a.publish(r, "old", "gone")
	c, _, err := a.store().Load(out.Checkpoint)
	if _, closed := c.Closed["old"]; err != nil || len(c.Closed) != 1 || !closed {
		t.Fatalf("closed %v, %v; want old alone", c.Closed, err)
	}
	if before != relay.Replica || roleOf(t, r, "old") != before {
		t.Errorf("the role of old was %s and is %s", before, roleOf(t, r, "old"))
	}
	pumpAll(r, a, b)
	if out := a.publish(r, "gone"); !out.New {
		t.Errorf("gone was not closed: %+v", out)
	}
	b.publish(r) // takes the checkpoint
	same(t, a, b)
}

// ownOps are the ops of a device from a seq on.
func ownOps(d *device, from uint64) iter.Seq[oplog.Op] {
	return func(yield func(oplog.Op) bool) {
		for op, err := range d.journal().Own(from) {
			if err != nil {
				d.t.Fatal(err)
			}
			if !yield(op) {
				return
			}
		}
	}
}

func roleOf(t *testing.T, r relay.Relay, device string) relay.Role {
	t.Helper()
	roster, err := r.Roster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range roster {
		if m.Device == device {
			return m.Role
		}
	}
	return ""
}

func TestWhoCannotTakeTheRelaysCheckpointAcksAllTheSameSoThatOneForItCanBeMade(t *testing.T) {
	first, second := collecting(), collecting()
	a, b := newDevice(t, "a"), newSmall(t, "b")
	a.wall.add(20 * time.Minute) // what it writes waits at b
	a.some(8)
	a.pump(first)
	a.publish(first)
	a.pump(second)                                                          // the relay was lost: it offers its ops again
	if err := second.Register(t.Context(), "a", relay.Writer); err != nil { // counts as little as if it were evicted
		t.Fatal(err)
	}
	b.some(4)
	b.pump(second)
	b.publish(second)
	collect(t, second)
	a.some(4)
	if _, err := a.Pump(t.Context(), second); !errors.Is(err, relay.ErrFrontierTruncated) {
		t.Fatalf("pump: %v; want that what it lacks was collected", err)
	}
	roster, err := second.Roster(t.Context())
	if i := slices.IndexFunc(roster, func(m relay.Member) bool { return m.Device == "a" }); err != nil || roster[i].Acked["a"].Seq != 11 {
		t.Errorf("roster %+v, %v; want all twelve ops of a acked by it", roster, err)
	}
	b.wall.add(time.Hour)
	b.pump(second)
	b.publish(second)
	a.pump(second)
	b.pump(second)
	same(t, a, b)
}

func TestTheJournalIsNotCutUnlessWhatIsDerivedFromItAgrees(t *testing.T) {
	r := collecting()
	a := newSmall(t, "a")
	a.some(40)
	a.beforeCut = func(*journal.Tx, session.Facts) error { return errDisk }
	a.open()
	a.pump(r)
	size := a.segments()
	if _, err := a.Publish(t.Context(), r); !errors.Is(err, errDisk) {
		t.Fatalf("got %v", err)
	}
	if _, cut, err := a.journal().Cut(); cut || err != nil || a.segments() != size {
		t.Errorf("cut %v, %v", cut, err)
	}
	var told session.Facts
	a.beforeCut = func(_ *journal.Tx, f session.Facts) error { told = f; return nil }
	a.open()
	out := a.publish(r)
	if string(out.Checkpoint) != told.Checkpoint || told.Heads["a"].Seq != 39 || a.segments() >= size {
		t.Errorf("told %+v, published %+v", told, out)
	}
}

func TestADamagedCheckpointIsFetchedAgain(t *testing.T) {
	r := collecting()
	a, b := collected(t, r)
	pumpAll(r, a, b)
	files, err := filepath.Glob(filepath.Join(a.dir+".checkpoints", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("damage"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = session.Open(t.Context(), a.config())
	if e, ok := errors.AsType[*session.CheckpointError](err); !ok || !strings.Contains(files[0], e.Checkpoint) || !errors.Is(err, session.ErrCheckpoint) {
		t.Fatalf("got %v", err)
	}
	if err := session.Restore(t.Context(), a.config(), r); err != nil {
		t.Fatal(err)
	}
	a.open()
	same(t, a, b)
}

func TestADamagedCheckpointIsMadeAgainAsLongAsItsOpsAreHeld(t *testing.T) {
	r := collecting()
	a := newSmall(t, "a")
	a.some(8) // in the one segment that always stays
	a.pump(r)
	digest := a.Digest()
	out := a.publish(r)
	name := filepath.Join(a.dir+".checkpoints", string(out.Checkpoint)+".checkpoint")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.open()
	if a.Digest() != digest {
		t.Error("another state")
	}
	if _, _, err := a.store().Load(out.Checkpoint); err != nil {
		t.Errorf("it was not healed: %v", err)
	}
}

func TestASessionWithoutAPlaceForCheckpointsRefusesATruncatedJournal(t *testing.T) {
	r := collecting()
	a, _ := collected(t, r)
	a.plain = true
	if _, err := session.Open(t.Context(), a.config()); !errors.Is(err, journal.ErrAnchored) {
		t.Errorf("got %v", err)
	}
	b := newSmall(t, "z")
	b.plain = true
	b.open()
	if _, err := b.Publish(t.Context(), r); !errors.Is(err, session.ErrNoCheckpoints) {
		t.Errorf("got %v", err)
	}
}

func TestADamagedCheckpointOfTheRelayIsReplaced(t *testing.T) {
	r := collecting()
	a, b := collected(t, r)
	r.DamageCheckpoint()
	if _, _, err := r.Checkpoint(t.Context()); !errors.Is(err, relay.ErrCorrupt) {
		t.Fatalf("it is not damaged: %v", err)
	}
	a.publish(r)
	c := newSmall(t, "c")
	pumpAll(r, a, b, c)
	same(t, a, b, c)
}

func TestASessionGoesOnAfterAnotherProcessCutItsJournal(t *testing.T) {
	r := collecting()
	a, b := newSmall(t, "a"), newSmall(t, "b")
	a.some(20)
	b.some(20)
	pumpAll(r, a, b)
	other := &device{t: t, name: "a", dir: a.dir, wall: a.wall, disk: a.disk, segment: a.segment}
	other.open()
	other.publish(r)
	other.some(8)
	other.publish(r)
	b.some(4)
	b.pump(r)
	own := a.some(4)
	pumpAll(r, a, b)
	same(t, a, b)
	if a.HeldFrontier()["a"].ID != own[3].ID || own[0].Seq != 28 {
		t.Errorf("holds %v of itself", a.HeldFrontier()["a"])
	}
	a.publish(r)
	a.verify()
}

func TestOpeningReadsTheStateAndNotTheHistory(t *testing.T) {
	thorough.Only(t)
	r := collecting()
	a, b := newSmall(t, "a"), newSmall(t, "b")
	cost := func(rounds int) int64 {
		for range rounds {
			a.some(20)
			b.some(20)
			pumpAll(r, a, b)
			a.publish(r)
			collect(t, r)
		}
		_, before := a.disk.traffic()
		a.open()
		_, after := a.disk.traffic()
		return after - before
	}
	once, many := cost(5), cost(40)
	if many > once*3/2 {
		t.Errorf("opening read %d bytes, and %d after nine times the history", once, many)
	}
}
