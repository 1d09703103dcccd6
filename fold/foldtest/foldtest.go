// Package foldtest is the naive refold: the same rules as package fold, written a second time, from the whole set of
// ops at once and as plainly as possible. Tests compare the two.
//
// It shares no code with package fold, is slow on purpose, and trusts its input as fold does.
package foldtest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/syncnode/syncnode/oplog"
)

// A Model is a set of ops. Its methods compute everything anew.
type Model struct{ ops []oplog.Op }

// Refold returns the model of the set of ops, in which an op may be repeated.
func Refold(ops []oplog.Op) *Model {
	set := map[oplog.OpID]oplog.Op{}
	for _, op := range ops {
		set[op.ID] = op
	}
	m := &Model{ops: slices.Collect(maps.Values(set))}
	sort.Slice(m.ops, func(i, j int) bool { return before(m.ops[i], m.ops[j]) })
	return m
}

// before is the order (hlc, op id).
func before(a, b oplog.Op) bool {
	if c := a.HLC.Compare(b.HLC); c != 0 {
		return c < 0
	}
	return a.ID < b.ID
}

// greater orders intents by (epoch, hlc, op id).
func greater(a, b oplog.Op) bool {
	if x, y := oplog.ReadIntent(a.Payload).Epoch, oplog.ReadIntent(b.Payload).Epoch; x != y {
		return x > y
	}
	return before(b, a)
}

func of(agent, run string) func(oplog.Intent) bool {
	return func(in oplog.Intent) bool { return in.Agent == agent && in.RunID == run }
}

func (m *Model) intents(keep func(oplog.Intent) bool) []oplog.Op {
	var out []oplog.Op
	for _, op := range m.ops {
		if op.Surface == oplog.Intents && keep(oplog.ReadIntent(op.Payload)) {
			out = append(out, op)
		}
	}
	return out
}

// CommittedRun is the id of the op that the oracle shows, or "".
func (m *Model) CommittedRun(agent, run string) oplog.OpID {
	ops := m.intents(func(in oplog.Intent) bool { return of(agent, run)(in) && in.Status == "committed" })
	if len(ops) == 0 {
		return ""
	}
	sort.Slice(ops, func(i, j int) bool { return greater(ops[i], ops[j]) })
	return ops[0].ID
}

// FencingEpoch is the highest epoch of the agent's intents.
func (m *Model) FencingEpoch(agent string) (epoch uint64, known bool) {
	for _, op := range m.intents(func(in oplog.Intent) bool { return in.Agent == agent }) {
		epoch, known = max(epoch, oplog.ReadIntent(op.Payload).Epoch), true
	}
	return epoch, known
}

// Run is the id of the op that holds the run, or "".
func (m *Model) Run(agent, run string) oplog.OpID {
	top, _ := m.FencingEpoch(agent)
	for _, status := range []string{"committed", "failed", "pending"} {
		ops := m.intents(func(in oplog.Intent) bool {
			return of(agent, run)(in) && in.Status == status && (status != "pending" || in.Epoch >= top)
		})
		if len(ops) > 0 {
			sort.Slice(ops, func(i, j int) bool { return greater(ops[i], ops[j]) })
			return ops[0].ID
		}
	}
	return ""
}

// Runs returns each (agent, run) that an intent names.
func (m *Model) Runs() [][2]string {
	set := map[[2]string]bool{}
	for _, op := range m.intents(func(oplog.Intent) bool { return true }) {
		in := oplog.ReadIntent(op.Payload)
		set[[2]string{in.Agent, in.RunID}] = true
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	})
}

// Attempts describes each attempt at a run as "id device state", with " disputed" if it is.
func (m *Model) Attempts(agent, run string) []string {
	names := map[string][]oplog.Op{}
	for _, op := range m.intents(of(agent, run)) {
		names[nameOf(op)] = append(names[nameOf(op)], op)
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, device := range ownersOf(names[name]) {
			out = append(out, name+" "+device+" "+verdict(names[name], device))
		}
	}
	return out
}

func nameOf(op oplog.Op) string {
	in := oplog.ReadIntent(op.Payload)
	if in.Attempt == "" {
		return fmt.Sprintf("~%s@%d", op.Device, in.Epoch)
	}
	return in.Attempt
}

func ownersOf(ops []oplog.Op) []string {
	began, ended := map[string]bool{}, map[string]bool{}
	for _, op := range ops {
		switch in := oplog.ReadIntent(op.Payload); {
		case in.Status == "pending":
			began[op.Device] = true
		case in.By == "":
			ended[op.Device] = true
		}
	}
	if len(began) == 0 {
		began = ended
	}
	if len(began) == 0 {
		return []string{""}
	}
	return slices.Sorted(maps.Keys(began))
}

func verdict(ops []oplog.Op, device string) string {
	var committed, disputed bool
	var own, resolved []oplog.Op
	for _, op := range ops {
		in := oplog.ReadIntent(op.Payload)
		switch {
		case in.Status == "pending":
		case in.By == "" && op.Device != device:
			disputed = disputed || !slices.Contains(ownersOf(ops), op.Device)
		case in.Status == "committed":
			committed = true
		case in.By == "":
			own = append(own, op)
		default:
			resolved = append(resolved, op)
		}
	}
	failed := own
	if len(failed) == 0 {
		failed = resolved
	}
	sort.Slice(failed, func(i, j int) bool { return greater(failed[i], failed[j]) })
	state := "open"
	switch {
	case committed:
		state = "committed"
	case len(failed) > 0 && oplog.ReadIntent(failed[0].Payload).Cause == "void":
		state = "void"
	case len(failed) > 0:
		state = "failed"
	}
	if disputed {
		state += " disputed"
	}
	return state
}

// Events returns the ids of a surface in the order of replay.
func (m *Model) Events(surface oplog.Surface) []oplog.OpID {
	var out []oplog.OpID
	for _, op := range m.ops {
		if op.Surface == surface {
			out = append(out, op.ID)
		}
	}
	return out
}

// leaves returns the winner of each leaf key, the key being the encoded one.
func (m *Model) leaves() map[string]oplog.Op {
	out := map[string]oplog.Op{}
	for _, op := range m.ops { // in the order (hlc, op id)
		tier, err := op.Surface.Tier()
		if err != nil {
			continue
		}
		key := text(string(op.Surface))
		switch tier {
		case oplog.TierSet:
			key += text(oplog.StableKey(op.Payload))
			if _, ok := out[key]; ok {
				continue
			}
		case oplog.TierRegister:
			key += text(oplog.StableKey(op.Payload))
		case oplog.TierEvents:
			key += text(string(op.ID))
		case oplog.TierIntents:
			in := oplog.ReadIntent(op.Payload)
			claim := in.Status
			if claim != "pending" && in.By != "" {
				claim = "resolved-" + claim
			}
			key += text(in.Agent) + text(in.RunID) + text(nameOf(op)) + text(op.Device) + text(claim)
			if old, ok := out[key]; ok && greater(old, op) {
				continue
			}
		}
		out[key] = op
	}
	return out
}

func text(s string) string { return number(uint64(len(s))) + s }

func number(v uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return string(b[:])
}

func sum(parts ...string) []byte {
	h := sha256.Sum256([]byte(strings.Join(parts, "")))
	return h[:]
}

// Digest is the state digest of docs/formats/oplog.md.
func (m *Model) Digest() string {
	type leaf struct{ key, hash []byte }
	var leaves []leaf
	for key, op := range m.leaves() {
		leaves = append(leaves, leaf{
			key: sum(text("syncnode/leaf-key/v1"), key),
			hash: sum(text("syncnode/leaf/v1"), key, number(uint64(op.HLC.WallMS)), number(uint64(op.HLC.Counter)),
				text(op.HLC.Device), text(string(op.ID)), text(string(op.Scope)), text(string(op.Payload))),
		})
	}
	sort.Slice(leaves, func(i, j int) bool { return bytes.Compare(leaves[i].key, leaves[j].key) < 0 })
	buckets := map[uint16][]string{} // by the first 12 bits of the key's hash
	groups := map[uint16]bool{}
	for _, l := range leaves {
		b := binary.BigEndian.Uint16(l.key) >> 4
		buckets[b] = append(buckets[b], string(l.hash))
		groups[b/64] = true
	}
	zeros := strings.Repeat("\x00", sha256.Size)
	root := text("syncnode/state/v1") + number(uint64(len(leaves)))
	for g := range uint16(64) {
		if !groups[g] {
			root += zeros
			continue
		}
		group := text("syncnode/group/v1")
		for b := g * 64; b < g*64+64; b++ {
			if len(buckets[b]) == 0 {
				group += zeros
			} else {
				group += string(sum(text("syncnode/bucket/v1"), number(uint64(len(buckets[b]))), strings.Join(buckets[b], "")))
			}
		}
		root += string(sum(group))
	}
	return hex.EncodeToString(sum(root))
}
