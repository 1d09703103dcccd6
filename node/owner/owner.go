// Package owner says which of the living nodes owns a scheduled agent.
//
// # Guarantees
//
// Every node that sees the same living nodes names the same owner, by rendezvous hashing: each has about its share of
// the agents; when a node comes, agents move to it alone, and when one goes, its agents alone move. Scores are a hash of
// both names and nothing else, the same in every release.
//
// A node tells in the note of its lease (see [Agent]) which scheduled agents it runs, as a digest of their ids. Only nodes
// with the same agents share them: while a fleet takes a new configuration, those that have it share among themselves.
//
// # Not promised
//
// That only the owner acts: two nodes may see other nodes living, or run other agents. The lease of the agent decides.
//
// # Concurrency
//
// All functions are pure.
package owner

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/coord"
)

// Prefix begins the names of the agents whose leases show which devices are served.
const Prefix = "node."

// Agent is the agent whose lease says that a device is being served.
func Agent(device string) string { return Prefix + device }

const (
	serves = "serve"
	runs   = "serve agents="
)

// Idle is the note of a node that runs no scheduled agents, or none any more.
const Idle = serves

// Note is what a node says of the scheduled agents that it runs; [Idle] if there are none.
func Note(agents []string) string {
	if len(agents) == 0 {
		return Idle
	}
	h := sha256.New()
	for _, id := range slices.Sorted(slices.Values(agents)) {
		h.Write([]byte(id))
		h.Write([]byte{0})
	}
	return runs + hex.EncodeToString(h.Sum(nil)[:16])
}

// Living are the devices of the nodes that run the agents of a note, and those of all that run any, both sorted. Leases that
// are not those of nodes do not matter.
func Living(leases []coord.Lease, note string) (same, all []string) {
	for _, l := range leases {
		if l.Expired || l.Agent != Agent(l.Device) || !strings.HasPrefix(l.Note, runs) {
			continue
		}
		all = append(all, l.Device)
		if l.Note == note {
			same = append(same, l.Device)
		}
	}
	slices.Sort(same)
	slices.Sort(all)
	return same, all
}

// Of is the owner of an agent among nodes; empty if there are none. Their order does not matter.
func Of(agent string, nodes []string) string {
	var owner string
	var best uint64
	for _, n := range nodes {
		s := score(agent, n)
		if owner == "" || s > best || s == best && n < owner {
			owner, best = n, s
		}
	}
	return owner
}

func score(agent, node string) uint64 {
	sum := sha256.Sum256([]byte("syncnode/owner/v1\x00" + agent + "\x00" + node))
	return binary.BigEndian.Uint64(sum[:])
}
