package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

// A Watcher tells how the chains of a session stand.
type Watcher interface {
	Status() session.Status
}

// StateVersion is the version of the format of Config.StateFile.
const StateVersion = 1

// A State is what a node keeps beside the journal: what it saw of its relays, and what it tells people of its chains. docs/formats/node.md
// describes the file.
type State struct {
	V           int                  `json:"v"`
	Device      string               `json:"device"`
	Relays      map[string]SeenRelay `json:"relays"`
	Quarantined []SeenQuarantine     `json:"quarantined,omitempty"`
}

// A SeenRelay is a relay as the node saw it last.
type SeenRelay struct {
	Instance   string         `json:"instance"`
	Generation uint64         `json:"generation"`
	Heads      oplog.Frontier `json:"heads"`
	Seen       time.Time      `json:"seen"` // when this was written; the relay may have been seen since
}

// A SeenQuarantine is a chain that is not taken further, and why.
type SeenQuarantine struct {
	Device    string    `json:"device"`
	Relay     string    `json:"relay,omitempty"` // the instance that gave the op; absent if it stands in the own journal
	Seq       uint64    `json:"seq"`
	Reason    string    `json:"reason"`
	Permanent bool      `json:"permanent"`
	Since     time.Time `json:"since"`
}

// ReadState reads the file of a node; an error that matches fs.ErrNotExist if none was written yet.
func ReadState(name string) (State, error) {
	var s State
	data, err := os.ReadFile(name)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s is damaged; it may be removed: %w", name, err)
	}
	if s.V != StateVersion {
		return s, fmt.Errorf("%s has format version %d, this release knows %d", name, s.V, StateVersion)
	}
	return s, nil
}

// restless is how old the heads in the file may become while nothing else changes.
const restless = time.Minute

// A memory is the State, shared by the loops of a node.
type memory struct {
	n *Node

	mu      sync.Mutex // guards the fields below and the file
	state   State
	written time.Time
	dirty   bool
	lost    map[string]loss // by relay
	told    change
}

// A loss is what a relay has had and lacks.
type loss struct {
	heads   oplog.Frontier // how far it has to get again, as far as its heads tell
	devices []string       // in order: whose ops it lacks; that was told
}

func (n *Node) remember() *memory {
	m := &memory{n: n, lost: map[string]loss{}, told: change{log: n.log, what: "node.json"}}
	if n.cfg.StateFile != "" {
		s, err := ReadState(n.cfg.StateFile)
		if err == nil && s.Device == n.cfg.Device {
			m.state = s
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.log.Warn("what was known of the relays cannot be read, and is written anew", "err", err)
		}
	}
	m.state.V, m.state.Device = StateVersion, n.cfg.Device
	if m.state.Relays == nil {
		m.state.Relays = map[string]SeenRelay{}
	}
	return m
}

// saw compares a relay with what it was, tells what changed, and keeps it.
func (m *memory) saw(log *slog.Logger, name string, r session.Report) {
	if r.Instance == "" {
		return // it did not answer
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was, known := m.state.Relays[name]
	if known {
		m.compare(log, name, was, r)
	}
	now := time.Now()
	if !known || was.Instance != r.Instance || was.Generation != r.Generation {
		m.written, m.dirty = time.Time{}, true
	} else if !maps.Equal(was.Heads, r.Heads) {
		m.dirty = true
	}
	m.state.Relays[name] = SeenRelay{Instance: r.Instance, Generation: r.Generation, Heads: r.Heads, Seen: now.UTC()}
	if m.chains() {
		m.written, m.dirty = time.Time{}, true
	}
	if m.dirty && now.Sub(m.written) >= restless {
		m.write(now)
	}
}

// compare tells once what a relay lost, and once when it has all of that again. Each device offers its own ops again when it pumps.
func (m *memory) compare(log *slog.Logger, name string, was SeenRelay, r session.Report) {
	told, had := m.lost[name], was.Heads.Clone()
	if was.Instance != r.Instance {
		told = loss{}
	}
	relay.Join(had, told.heads)
	lost := loss{heads: oplog.Frontier{}}
	for device, at := range had {
		_, there := r.Heads[device] // else it may be closed; the own one is not, or the pump has told
		if (there || device == m.n.cfg.Device) && !r.Heads.Covers(device, at.Seq) {
			lost.heads[device] = at
		}
	}
	lost.devices = append(lost.heads.Devices(), r.Behind...)
	slices.Sort(lost.devices)
	lost.devices = slices.Compact(lost.devices)
	more := slices.ContainsFunc(lost.devices, func(device string) bool { return !slices.Contains(told.devices, device) })
	of := strings.Join(lost.devices, ",")
	switch {
	case was.Instance != r.Instance:
		log.Warn("the relay is another store than before; each device offers it again what it lacks", "was", was.Instance, "is", r.Instance, "lacks_ops_of", of)
	case was.Generation != r.Generation:
		log.Warn("the relay was put back from an older copy; each device offers it again what it lacks", "was", was.Generation, "is", r.Generation, "lacks_ops_of", of)
	case more:
		log.Warn("the relay lost ops that it had, or answered for; each device offers it again what it lacks", "lacks_ops_of", of)
	case of == "" && len(told.devices) > 0:
		log.Info("the relay has the ops again that it lacked")
	}
	m.lost[name] = lost
}

// chains takes in which chains are quarantined, and reports whether that changed.
func (m *memory) chains() bool {
	if m.n.cfg.Watcher == nil {
		return false
	}
	var now []SeenQuarantine
	for _, q := range m.n.cfg.Watcher.Status().Quarantined {
		now = append(now, SeenQuarantine{Device: q.Device, Relay: q.Instance, Seq: q.Seq, Reason: q.Reason.Error(), Permanent: q.Permanent, Since: q.Since.UTC().Round(0)})
	}
	if slices.Equal(now, m.state.Quarantined) {
		return false
	}
	m.state.Quarantined = now
	return true
}

// last writes what the timer would have written later.
func (m *memory) last() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirty {
		m.write(time.Now())
	}
}

func (m *memory) write(now time.Time) {
	m.written, m.dirty = now, false
	if m.n.cfg.StateFile == "" {
		return
	}
	err := durable.Write(m.n.cfg.StateFile, m.state.encode(), 0o600)
	m.dirty = err != nil
	m.told.note(err, trouble{"it cannot be written", slog.LevelWarn})
}

func (s State) encode() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(fmt.Sprintf("node: a state that cannot be encoded: %v", err))
	}
	return b.Bytes()
}
