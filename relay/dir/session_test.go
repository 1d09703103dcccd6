package dir_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	checkpoints "github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/session"
)

// A machine is a device with a session and its own copy of the folder.
type machine struct {
	*session.Session
	name, root string
	relay      *dir.Relay
}

func newMachine(t *testing.T, name string) *machine {
	t.Helper()
	m := &machine{name: name, root: t.TempDir()}
	m.Session = newSession(t, name, t.TempDir())
	m.relay = open(t, dir.Config{FS: newDisk(t, m.root), SegmentBytes: 1500, Grace: -1})
	return m
}

func newSession(t *testing.T, name, dir string) *session.Session {
	t.Helper()
	j, err := journal.Open(t.Context(), journal.Config{Dir: filepath.Join(dir, "journal"), Device: name, SegmentBytes: 1500})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	store := &checkpoints.Store{Dir: filepath.Join(dir, "checkpoints")}
	s, err := session.Open(t.Context(), session.Config{Device: name, Journal: j, Checkpoints: store})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (m *machine) write(t *testing.T, n int) {
	t.Helper()
	m.writeOf(t, n, "x")
}

// writeOf appends n ops that tell of body. Two machines with one name that write the same within one millisecond write the same ops.
func (m *machine) writeOf(t *testing.T, n int, body string) {
	t.Helper()
	for range n {
		d := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: fmt.Appendf(nil, `{"id":"k-%s","body":"%s"}`, m.name, body)}
		if _, err := m.Append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSessionsConvergeOverFoldersThatAreSynchronisedLate(t *testing.T) {
	rnd := seeded(t)
	machines := []*machine{newMachine(t, "a"), newMachine(t, "b"), newMachine(t, "C")}
	folder := map[string]string{"a": "d-a", "b": "d-b", "C": "d-=43"}
	// carry brings files of the device of one machine to another, each whole or its first bytes, or all of them.
	carry := func(from, to *machine, all bool) {
		own := files(t, filepath.Join(from.root, "devices", folder[from.name]))
		for _, name := range slices.Sorted(maps.Keys(own)) {
			data := own[name]
			if !all && rnd.IntN(2) == 0 {
				continue
			}
			if !all && rnd.IntN(3) == 0 {
				data = data[:rnd.IntN(len(data)+1)]
			}
			put(t, filepath.Join(to.root, "devices", folder[from.name], name), data)
		}
	}
	pump := func(m *machine) {
		if _, err := m.Pump(t.Context(), m.relay); err != nil {
			t.Fatalf("pump of %s: %v", m.name, err)
		}
	}
	for _, m := range machines {
		pump(m)
	}
	for range 12 {
		m := machines[rnd.IntN(3)]
		m.write(t, rnd.IntN(4))
		pump(m)
		from := rnd.IntN(3)
		carry(machines[from], machines[(from+1+rnd.IntN(2))%3], false)
		pump(machines[rnd.IntN(3)])
	}
	for range 2 { // ops, then acks
		for _, m := range machines {
			pump(m)
		}
		for _, from := range machines {
			for _, to := range machines {
				if from != to {
					carry(from, to, true)
				}
			}
		}
		for _, m := range machines {
			pump(m)
		}
	}
	for _, m := range machines[1:] {
		if m.Digest() != machines[0].Digest() || !m.FoldedFrontier().Equal(machines[0].FoldedFrontier()) {
			t.Errorf("%s folded %v, a %v", m.name, m.FoldedFrontier(), machines[0].FoldedFrontier())
		}
	}
	for _, m := range machines {
		rep := report(t, m.relay)
		if len(rep.Forks)+len(rep.Waiting) != 0 || slices.ContainsFunc(rep.Oddities, func(o dir.Oddity) bool { return !strings.HasSuffix(o.Path, ".tmp") }) {
			t.Errorf("%s: %+v", m.name, rep)
		}
	}
	carry(machines[0], machines[1], true)
	carry(machines[2], machines[1], true)
	roster, err := machines[1].relay.Roster(t.Context())
	if stable := relay.Stable(roster); err != nil || !stable.Equal(machines[0].FoldedFrontier()) {
		t.Errorf("stable is %v, %v; all have folded %v", stable, err, machines[0].FoldedFrontier())
	}
}

func TestASessionThatFindsAnotherBranchOfItsChainInTheFolderStopsPushing(t *testing.T) {
	m, clone := newMachine(t, "a"), newMachine(t, "a")
	m.write(t, 2)
	clone.writeOf(t, 2, "y")
	for _, x := range []*machine{m, clone} {
		if _, err := x.Pump(t.Context(), x.relay); err != nil {
			t.Fatal(err)
		}
	}
	copyTree(t, m.root, clone.root) // the synchroniser lets the other one win
	clone.write(t, 1)
	_, err := clone.Pump(t.Context(), clone.relay)
	if _, ok := errors.AsType[*session.FrozenError](err); !ok {
		t.Errorf("the clone's pump gives %v, expected it to be frozen", err)
	}
}

// TestSessionsThatPublishAndCollectConvergeOverFoldersThatAreSynchronisedLate lets machines write, publish and collect, each with its own
// copy of the folder, between which files go one by one, old versions and halves of them too, and deletions as well.
func TestSessionsThatPublishAndCollectConvergeOverFoldersThatAreSynchronisedLate(t *testing.T) {
	t.Parallel()
	for range 2 {
		rnd := seeded(t)
		machines := []*machine{newMachine(t, "a"), newMachine(t, "b"), newMachine(t, "C")}
		folder := map[string]string{"a": "d-a", "b": "d-b", "C": "d-=43"}
		carry := func(from, to *machine, all bool) {
			own := files(t, filepath.Join(from.root, "devices", folder[from.name]))
			there := files(t, filepath.Join(to.root, "devices", folder[from.name]))
			for _, name := range slices.Sorted(maps.Keys(own)) {
				data := own[name]
				if !all && rnd.IntN(3) == 0 {
					continue
				}
				if !all && rnd.IntN(5) == 0 {
					data = data[:rnd.IntN(len(data)+1)]
				}
				put(t, filepath.Join(to.root, "devices", folder[from.name], name), data)
			}
			for name := range there {
				if _, still := own[name]; !still && (all || rnd.IntN(2) == 0) {
					if err := os.Remove(filepath.Join(to.root, "devices", folder[from.name], name)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		carryAll := func() {
			for _, from := range machines {
				put(t, filepath.Join(from.root, "devices", folder[from.name], "x"), "") // makes the folder
				for _, to := range machines {
					if from != to {
						put(t, filepath.Join(to.root, "devices", folder[from.name], "x"), "")
						carry(from, to, true)
					}
				}
			}
		}
		for _, m := range machines { // they have seen each other before anybody collects
			if _, err := m.Pump(t.Context(), m.relay); err != nil {
				t.Fatal(err)
			}
		}
		carryAll()
		collected := 0
		turn := func(m *machine, late bool) {
			m.write(t, rnd.IntN(6))
			_, err := m.Pump(t.Context(), m.relay)
			// what has not arrived yet may be asked for, and comes
			if err != nil && !(late && (errors.Is(err, relay.ErrFrontierTruncated) || errors.Is(err, relay.ErrCorrupt))) {
				t.Fatalf("pump of %s: %v", m.name, err)
			}
			if rnd.IntN(2) == 0 {
				_, err := m.Publish(t.Context(), m.relay)
				_, behind := errors.AsType[*checkpoints.BehindError](err) // not all of the other one is here yet
				if err != nil && !(late && (behind || errors.Is(err, relay.ErrBehind) || errors.Is(err, relay.ErrContradiction))) {
					t.Fatalf("publish by %s: %v", m.name, err)
				}
			}
			done, err := m.relay.Collect(t.Context())
			if err != nil {
				t.Fatalf("collection by %s: %v", m.name, err)
			}
			collected += done.Dropped[m.name]
		}
		for range 40 {
			turn(machines[rnd.IntN(3)], true)
			from := rnd.IntN(3)
			carry(machines[from], machines[(from+1+rnd.IntN(2))%3], false)
		}
		for range 8 { // ops, acks, checkpoints, and what they let go
			carryAll()
			for _, m := range machines {
				turn(m, true)
			}
		}
		for range 4 {
			carryAll()
			for _, m := range machines {
				if _, err := m.Pump(t.Context(), m.relay); err != nil {
					t.Fatalf("in the end: pump of %s: %v", m.name, err)
				}
			}
		}
		for _, m := range machines {
			if m.Digest() != machines[0].Digest() || !m.FoldedFrontier().Equal(machines[0].FoldedFrontier()) {
				t.Errorf("%s folded %v, a %v", m.name, m.FoldedFrontier(), machines[0].FoldedFrontier())
			}
			if st := m.Status(); st.Frozen != nil || len(st.Quarantined) > 0 {
				t.Errorf("%s: %+v", m.name, st)
			}
		}
		if collected == 0 {
			t.Error("nothing was collected")
		}
		cold := newMachine(t, "cold")
		copyTree(t, machines[1].root, cold.root)
		for range 2 {
			if _, err := cold.Pump(t.Context(), cold.relay); err != nil {
				t.Fatalf("a cold device: %v", err)
			}
		}
		for _, m := range machines {
			if cold.FoldedFrontier()[m.name] != m.HeldFrontier()[m.name] {
				t.Errorf("a cold device has %v of %s, which wrote %v", cold.FoldedFrontier()[m.name], m.name, m.HeldFrontier()[m.name])
			}
		}
	}
}
