package owner_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/node/owner"
)

const agents = 10_000

func id(i int) string { return fmt.Sprintf("agent-%d", i) }

func TestEachNodeHasItsShareOfTheAgents(t *testing.T) {
	nodes := []string{"web01-1a2b3c4d", "web02-5e6f7a8b", "db1-0c1d2e3f", "db2-4a5b6c7d", "pod.x"}
	count := map[string]int{}
	for i := range agents {
		count[owner.Of(id(i), nodes)]++
	}
	for _, n := range nodes {
		if got, share := count[n], agents/len(nodes); got < share*9/10 || got > share*11/10 {
			t.Errorf("%s owns %d of %d agents", n, got, agents)
		}
	}
}

func TestOnlyTheAgentsOfANodeThatComesOrGoesMove(t *testing.T) {
	four := []string{"a", "b", "c", "d"}
	five := append(slices.Clone(four), "e")
	moved := 0
	for i := range agents {
		before, after := owner.Of(id(i), four), owner.Of(id(i), five)
		if before != after {
			moved++
			if after != "e" {
				t.Fatalf("%s moved from %s to %s when e came", id(i), before, after)
			}
		}
	}
	if share := agents / 5; moved < share*9/10 || moved > share*11/10 {
		t.Errorf("%d of %d agents moved to the fifth node", moved, agents)
	}
	reversed := slices.Clone(five)
	slices.Reverse(reversed)
	for i := range 100 {
		if owner.Of(id(i), five) != owner.Of(id(i), reversed) {
			t.Fatal("the order of the nodes decides")
		}
	}
	if owner.Of("x", nil) != "" {
		t.Error("an agent of nobody has an owner")
	}
}

// Nodes of different releases have to agree.
func TestOwnersAreTheSameInEveryRelease(t *testing.T) {
	for agent, want := range map[string]string{"invoices": "c", "report": "b", "crm": "b", "mail": "a"} {
		if got := owner.Of(agent, []string{"a", "b", "c"}); got != want {
			t.Errorf("%s: got %s, want %s", agent, got, want)
		}
	}
	if got := owner.Note([]string{"b", "a"}); got != "serve agents=8fb20ef63ced4145fc2e983ffe597d1d" {
		t.Errorf("got %s", got)
	}
}

func TestOnlyLivingNodesThatRunTheSameAgentsShareThem(t *testing.T) {
	note := owner.Note([]string{"x", "y"})
	leases := []coord.Lease{
		{Agent: "node.c", Device: "c", Note: note},
		{Agent: "node.a", Device: "a", Note: note},
		{Agent: "node.old", Device: "old", Note: owner.Note([]string{"x"})},
		{Agent: "node.dead", Device: "dead", Note: note, Expired: true},
		{Agent: "node.idle", Device: "idle", Note: owner.Idle},
		{Agent: "node.other", Device: "somebody", Note: note},
		{Agent: "x", Device: "a", Note: "r1-run"},
	}
	same, all := owner.Living(leases, note)
	if !slices.Equal(same, []string{"a", "c"}) || !slices.Equal(all, []string{"a", "c", "old"}) {
		t.Errorf("got %v of %v", same, all)
	}
	if len(note) > 128 || owner.Note(nil) != owner.Idle {
		t.Errorf("notes: %q, %q", note, owner.Note(nil))
	}
}
