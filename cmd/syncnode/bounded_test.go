package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

// device is the folder of a host's device.
func (h host) device() string {
	h.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.dir, "syncnode", h.namespace()+"-*", h.verify().Device))
	if err != nil || len(found) != 1 {
		h.t.Fatalf("device folders: %v, %v", found, err)
	}
	return found[0]
}

// agree waits until all know so many ops and have one digest, in the journal or in its checkpoint.
func agree(t *testing.T, ops int, all ...host) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d hosts that know %d ops and have one digest", len(all), ops), func() bool {
		first := all[0].verify()
		for _, h := range all {
			if v := h.verify(); v.Known != ops || v.Digest != first.Digest {
				return false
			}
		}
		return true
	})
}

func TestThreeNodesKeepTheirLogsBoundedAndAColdOneJoinsFromTheCheckpoint(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 4, common.get(t).Endpoints()), "bounded")
	for i := range fleet {
		fleet[i].env = append(fleet[i].env, "SYNCNODE_SEGMENT_BYTES=2000")
	}
	start := func(i int) server { return fleet[i].serve("--checkpoint-every", "10", "--segment-bytes", "2000") }
	nodes := make([]server, 3)
	together(3, func(i int) { nodes[i] = start(i) })
	const each = 5
	together(3, func(i int) {
		for n := range each {
			fleet[i].run(fmt.Sprint("agent-", i), occ(n))
		}
	})
	agree(t, 3*2*each, fleet[:3]...)
	eventually(t, "journals that begin at a checkpoint, without their first segments", func() bool {
		for _, h := range fleet[:3] {
			if v := h.verify(); v.Checkpoint == "" || v.Covered < 10 {
				return false
			}
			if first, _ := filepath.Glob(filepath.Join(h.device(), "journal", "own-*0000.jsonl")); len(first) != 0 {
				return false
			}
		}
		return true
	})
	cold := start(3)
	agree(t, 3*2*each, fleet...)
	cold.says("took a checkpoint")
	fleet[3].call("exec", "--agent", "agent-0", "--occurrence", occ(0), "--", "touch", "again").want(0, "already committed")
	fleet[3].notThere("again")
	rows := fleet[3].call("run", "list", "-o", "json").want(0).out.String()
	if got := strings.Count(rows, `"occurrence"`); got != 3*each {
		t.Errorf("run list shows %d runs, want %d\n%s", got, 3*each, rows)
	}

	nodes[0].stops()
	checkpoints, _ := filepath.Glob(filepath.Join(fleet[0].device(), "checkpoints", "*.checkpoint"))
	for _, name := range checkpoints {
		must(t, os.Remove(name))
	}
	bare := fleet[0]
	bare.args = []string{"--namespace", "bounded"}
	bare.call("log", "verify").want(1, "syncnode serve fetches it again")
	fleet[0].run("agent-0", "without the checkpoint")
	nodes[0] = start(0)
	agree(t, 3*2*each+2, fleet...)
	if got := strings.Count(nodes[0].log(), "was fetched again"); got != 1 {
		t.Errorf("the lost checkpoint was told %d times, want once\n%s", got, nodes[0].log())
	}
	offered := struct{ Offered int }{}
	must(t, json.Unmarshal(fleet[0].call("recover", "offer", "-o", "json").want(0).out.Bytes(), &offered))
	if offered.Offered < each+1 {
		t.Errorf("recover offer wrote %d outcomes, want those in the checkpoint too: at least %d", offered.Offered, each+1)
	}
	together(3, func(i int) { nodes[i].stops() })
	cold.stops()
}
