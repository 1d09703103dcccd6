package compose

import (
	"encoding/json"
	"strings"
	"testing"
)

// A run is what `run list` says of one.
type run struct {
	ID       string `json:"run_id"`
	State    string `json:"state"`
	Attempts []struct {
		State string `json:"state"`
	} `json:"attempts"`
}

// beats are the runs of the scheduled agent, as a node sees the ledger; none if it does not answer.
func (f *fleet) beats(node string) (all []run) {
	f.t.Helper()
	out, code := f.in(node, "run", "list", "--agent", "beat", "--limit", "10000", "-o", "json", "--backend-timeout", "5s")
	if code != 0 {
		return nil
	}
	for line := range strings.Lines(out) {
		var r run
		if json.Unmarshal([]byte(line), &r) == nil && r.ID != "" {
			all = append(all, r)
		}
	}
	return all
}

func committed(all []run) (n int) {
	for _, r := range all {
		if r.State == "committed" {
			n++
		}
	}
	return n
}

// holder is the node that holds the agent, and another one.
func (f *fleet) holder(devices map[string]string) (holder, other string) {
	f.t.Helper()
	f.until("a node holds the agent", func() bool {
		for _, n := range nodes {
			out, code := f.in(n, "lease", "show", "beat", "-o", "json")
			var l struct {
				Device  string `json:"device"`
				Expired bool   `json:"expired"`
			}
			if code == 0 && json.Unmarshal([]byte(out), &l) == nil && !l.Expired && devices[l.Device] != "" {
				holder = devices[l.Device]
				return true
			}
		}
		return false
	})
	for _, n := range nodes {
		if n != holder {
			other = n
		}
	}
	return holder, other
}

func TestScheduledRunsGoOnAndNoneRunsTwiceWhenTheHolderIsStoppedDisconnectedOrPaused(t *testing.T) {
	f := newFleet(t)
	f.files = append(f.files, "deploy/compose/schedules.yml")
	f.up()
	f.until("a run is committed", func() bool { return committed(f.beats("n1")) > 0 })
	devices := map[string]string{}
	for _, n := range nodes {
		f.until(n+" tells its device", func() bool {
			r, ok := f.verify(n)
			devices[r.Device] = n
			return ok
		})
	}
	network := f.project + "_fleet"
	for _, what := range []struct {
		name      string
		harm, end func(node string)
	}{
		{"stopped", func(n string) { f.must("docker", "stop", f.id[n]) }, func(n string) { f.must("docker", "start", f.id[n]) }},
		{"disconnected", func(n string) { f.must("docker", "network", "disconnect", network, f.id[n]) },
			func(n string) { f.must("docker", "network", "connect", "--alias", n, network, f.id[n]) }},
		{"paused", func(n string) { f.must("docker", "pause", f.id[n]) }, func(n string) { f.must("docker", "unpause", f.id[n]) }},
	} {
		node, other := f.holder(devices)
		what.harm(node)
		var than int
		f.until("the others answer", func() bool { than = committed(f.beats(other)); return than > 0 })
		f.until("two more runs are committed with "+node+" "+what.name, func() bool { return committed(f.beats(other)) >= than+2 })
		what.end(node)
		f.until(node+" answers again", func() bool { return committed(f.beats(node)) > 0 })
	}

	all := f.beats("n1")
	for _, r := range all {
		begun, effects := 0, 0
		for _, a := range r.Attempts {
			if a.State != "void" {
				begun++
			}
		}
		for _, n := range nodes {
			if out, code := f.in(n, "run", "output", r.ID, "--agent", "beat"); code == 0 && strings.Contains(out, "linux/") {
				effects += strings.Count(out, "linux/")
			}
		}
		if begun > 1 || effects > 1 || r.State == "committed" && (begun != 1 || effects != 1) {
			t.Errorf("run %s is %s: %d attempts were begun, and %d commands printed", r.ID, r.State, begun, effects)
		}
	}
	t.Logf("%d runs, %d committed", len(all), committed(all))
}
