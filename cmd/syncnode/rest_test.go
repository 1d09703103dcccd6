package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// gauge is one series of a page of metrics, by its name and labels; the sum of all of that name if it ends with {.
func gauge(t *testing.T, page, series string) (sum float64) {
	t.Helper()
	found := false
	for line := range strings.Lines(page) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || name != series && (!strings.HasSuffix(series, "{") || !strings.HasPrefix(name, series)) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		must(t, err)
		sum, found = sum+n, true
	}
	if !found {
		t.Fatalf("the page of metrics has no %s", series)
	}
	return sum
}

// A cost is what a node uses at rest.
type cost struct{ cpu, memory, files float64 }

// atRest starts a node with so many scheduled agents, none of which is due, and counts what it proposes while it pumps and renews.
func atRest(t *testing.T, c *cluster.Cluster, agents int) cost {
	t.Helper()
	h := spaced(hosts(t, 1, c.Endpoints()), fmt.Sprintf("rest-%d", agents))[0]
	var file strings.Builder
	file.WriteString("version: 1\nagents:\n")
	for i := range agents {
		fmt.Fprintf(&file, "  a%d: { schedule: \"0 4 29 2 *\", tz: UTC, command: [\"true\"] }\n", i)
	}
	n := h.serve(h.configure(file.String())...)
	defer n.stops()
	eventually(t, "all agents are held", func() bool { return gauge(t, h.scrape(), "syncnode_leases_held") >= float64(agents) })
	const pumps = "syncnode_relay_pumps_total{"
	for range 10 {
		var before, after string
		got, err := c.CountProposals(bounded(t), func() error {
			before = h.scrape()
			after = before
			for range 3 { // together longer than half a minute, so that all that is done by the clock is in it
				want := gauge(t, after, pumps) + 60
				eventually(t, "the node pumped 60 times", func() bool {
					after = h.scrape()
					return gauge(t, after, pumps) >= want
				})
			}
			return nil
		})
		if errors.Is(err, cluster.ErrDisturbed) {
			continue
		}
		must(t, err)
		if got != 0 {
			t.Errorf("%d agents at rest: %d proposals, want none", agents, got)
		}
		return cost{
			cpu:    gauge(t, after, "process_cpu_seconds_total") - gauge(t, before, "process_cpu_seconds_total"),
			memory: gauge(t, after, "process_resident_memory_bytes"), files: gauge(t, after, "process_open_fds"),
		}
	}
	t.Fatal("the leader changed at every count")
	return cost{}
}

func TestAThousandAgentsAtRestProposeNothing(t *testing.T) {
	thorough.Only(t)
	c := lone.alone(t)
	client := c.Client(t)
	eventually(t, "no lease of an earlier test is left to run out", func() bool {
		left, err := client.Leases(bounded(t))
		return err == nil && len(left.Leases) == 0
	})
	const many = 1000
	few, all := atRest(t, c, 10), atRest(t, c, many)
	t.Logf("%d agents at rest, 10 being 1: CPU %.1f, memory %.1f, descriptors %.1f", many, all.cpu/max(few.cpu, 0.01), all.memory/few.memory, all.files/few.files)
}

// What the node keeps of what the command prints lies on the disk. Packages node/effect and node/output have the gigabyte.
func TestACommandThatPrintsMuchLeavesItsNodeBelow64MiB(t *testing.T) {
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "printer")[0]
	node := h.serve(h.configure(`
version: 1
agents:
  printer: { ttl: 60s, command: [sh, -c, "yes | head -c 134217728"] }
`)...)
	bare := h
	bare.args = nil
	bare.call("agent", "trigger", "printer").want(0)
	eventually(t, "the run has ended", func() bool {
		for _, r := range h.runsOf("printer") {
			return r.State != "running"
		}
		return false
	})
	if h.committed("printer") != 1 {
		t.Errorf("it ended as %+v", h.runsOf("printer"))
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", node.cmd.Process.Pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	most, below := 0, 64<<10
	if thorough.Raced() {
		below *= 4 // the detector's own memory; it would be more than that beside 128 MiB
	}
	if _, err := fmt.Sscan(rest, &most); err != nil || most == 0 || most >= below {
		t.Errorf("the node had %d KiB at most (%v), want below %d", most, err, below)
	}
	t.Logf("most memory of the node: %d MiB", most>>10)
	node.stops()
}
