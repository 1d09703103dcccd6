package dir_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	j, err := journal.Open(t.Context(), journal.Config{Dir: filepath.Join(t.TempDir(), "journal"), Device: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	s, err := session.Open(t.Context(), session.Config{Device: name, Journal: j})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{Session: s, name: name, root: t.TempDir()}
	m.relay = open(t, dir.Config{FS: newDisk(t, m.root), SegmentBytes: 1500})
	return m
}

func (m *machine) write(t *testing.T, n int) {
	t.Helper()
	for range n {
		d := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: fmt.Appendf(nil, `{"id":"k-%s","body":"x"}`, m.name)}
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
	clone.write(t, 2)
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
