package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/node/events"
	"github.com/syncnode/syncnode/node/missed"
	"github.com/syncnode/syncnode/schedule"
	"github.com/syncnode/syncnode/schedule/due"
)

// configure writes a configuration, and returns the flags of a node that goes by it.
func (h host) configure(text string) []string {
	h.t.Helper()
	path := filepath.Join(h.dir, "syncnode.yaml")
	must(h.t, os.WriteFile(path, []byte(text), 0o600))
	return []string{"--config", path}
}

// runsOf are the runs of an agent by their occurrences, as the ledger tells them.
func (h host) runsOf(agent string) map[string]runRow {
	h.t.Helper()
	out := h.looks("run", "list", "--agent", agent, "--limit", "100000", "-o", "json", "--backend-timeout", patience.String())
	all := map[string]runRow{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var r runRow
		if err := dec.Decode(&r); err != nil {
			h.t.Fatal(err)
		}
		if r.State != stateMissed {
			all[r.Occurrence] = r
		}
	}
	return all
}

func (h host) committed(agent string) (n int) {
	for _, r := range h.runsOf(agent) {
		if r.State == "committed" {
			n++
		}
	}
	return n
}

// records are what the device's own log says of schedules.
func (h host) records() (gaps []missed.Gap, seen []missed.Seen) {
	h.t.Helper()
	bare := h
	bare.args = []string{"--namespace", h.namespace()}
	p := bare.call("log", "show", "-o", "json").want(0)
	for dec := json.NewDecoder(&p.out); dec.More(); {
		var op struct {
			Surface string
			Payload json.RawMessage
		}
		if err := dec.Decode(&op); err != nil {
			h.t.Fatal(err)
		}
		if op.Surface != string(missed.Surface) {
			continue
		}
		if g, s := missed.Parse(op.Payload); g != nil {
			gaps = append(gaps, *g)
		} else if s != nil {
			seen = append(seen, *s)
		}
	}
	return gaps, seen
}

// effects counts, by occurrence, what commands of a test wrote down.
func (h host) effects(file string) map[string]int {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.work, file))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		count[strings.TrimSpace(line)]++
	}
	return count
}

// Three nodes share a schedule; the holder is killed, then all are restarted, twice.
func TestNodesThatDieAndRestartLoseNoOccurrenceAndRunNoneTwice(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	every, some := thorough.Of(10*time.Second, 2*time.Second), thorough.Of(6, 3)
	fleet := spaced(hosts(t, 3, common.get(t).Endpoints()), "beats")
	start := func(i int) server {
		return fleet[i].serve(fleet[i].configure(fmt.Sprintf(`
version: 1
agents:
  beat: { schedule: "@every %s", ttl: 2s, command: [sh, -c, "echo $SYNCNODE_RUN_OCCURRENCE >>beats"] }
`, every))...)
	}
	nodes := make([]server, 3)
	together(3, func(i int) { nodes[i] = start(i) })
	devices := map[string]int{}
	for i, h := range fleet {
		devices[h.verify().Device] = i
	}
	more := func(than, n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d more runs are committed", n), func() bool { return fleet[0].committed("beat") >= than+n })
	}
	more(0, some)

	var lease struct{ Device string }
	must(t, json.Unmarshal(fleet[0].call("lease", "show", "beat", "-o", "json").want(0).out.Bytes(), &lease))
	victim, ok := devices[lease.Device]
	if !ok {
		t.Fatalf("beat is held by %q, which is none of %v", lease.Device, devices)
	}
	nodes[victim].killed()
	died := time.Now()
	than := fleet[0].committed("beat")
	more(than, 1)
	t.Logf("a run was committed %s after the holder was killed; TTL of its node's lease 15 s", time.Since(died).Round(time.Second/10))
	more(than, some)

	nodes[victim] = start(victim)
	for _, end := range []func(server){server.stops, server.killed} {
		together(3, func(i int) { end(nodes[i]) })
		than = fleet[0].committed("beat")
		together(3, func(i int) { nodes[i] = start(i) })
		more(than, 1)
	}
	together(3, func(i int) { nodes[i].stops() })
	wantEveryOccurrence(t, fleet, "beat", every, "beats")
}

// wantEveryOccurrence: from when the agent was first seen until its last run each occurrence ended, and none had two effects.
func wantEveryOccurrence(t *testing.T, fleet []host, agent string, every time.Duration, file string) {
	t.Helper()
	var gaps []missed.Gap
	var first time.Time
	for _, h := range fleet {
		g, seen := h.records()
		gaps = append(gaps, g...)
		for _, s := range seen {
			if first.IsZero() || s.At.Before(first) {
				first = s.At
			}
		}
	}
	s, err := schedule.New("@every "+every.String(), "UTC")
	must(t, err)
	ends := map[string]int{}
	runs := fleet[0].runsOf(agent)
	last := first
	for _, r := range runs {
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(r.Occurrence, "at:"))
		must(t, err)
		if at.After(last) && r.State != "free" { // what was given back when all were told to stop is due when one comes back
			last = at
		}
	}
	for at := range s.After(first) {
		if at.After(last) {
			break
		}
		r, begun := runs["at:"+at.UTC().Format(time.RFC3339)]
		end := r.State
		if !begun || end == "free" {
			end = reasonFor(gaps, at)
		}
		if ends[end]++; end == "" || end == "running" {
			t.Errorf("%s ended as %q", at, end)
		}
	}
	for occurrence, n := range fleet[0].effects(file) {
		if n > 1 {
			t.Errorf("%s: %d effects", occurrence, n)
		}
	}
	t.Logf("occurrences: %v", ends)
}

func reasonFor(gaps []missed.Gap, at time.Time) string {
	for _, g := range gaps {
		if !at.Before(g.First) && !at.After(g.Last) {
			return "missed: " + string(g.Reason)
		}
	}
	return ""
}

func TestANodeThatComesBackAfterThreeHoursRunsOneOccurrenceAndTellsOfTheOthers(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "three-hours")[0]
	flags := h.configure(`
version: 1
agents:
  beat: { schedule: "@every 1m", command: [sh, -c, "echo $SYNCNODE_RUN_OCCURRENCE >>late"] }
`)
	n := h.serve(flags...)
	eventually(t, "the schedule was seen", func() bool { _, seen := h.records(); return len(seen) == 1 })
	n.killed()
	before := h.committed("beat")
	h.ahead = "3h"
	n = h.serve(flags...)
	eventually(t, "an occurrence was caught up", func() bool { return h.committed("beat") > before })
	n.stops()
	gaps, _ := h.records()
	if len(gaps) != 1 || gaps[0].Reason != due.Superseded || gaps[0].Count < 170 || gaps[0].Count > 180 {
		t.Errorf("gaps: %+v", gaps)
	}
	list := h.call("run", "list", "--state", "missed").want(0)
	for _, text := range []string{"beat", "superseded", " to at:"} {
		list.prints(text)
	}
	if got := h.committed("beat"); got > before+2 { // one of catch-up, and perhaps one that came due since
		t.Errorf("%d runs were caught up", got-before)
	}
}

func TestAConfigurationIsReadAgainWholeOrNotAtAll(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "hangup")[0]
	h.call("serve", "--config", filepath.Join(h.dir, "none.yaml")).want(1, "none.yaml")
	bad := "version: 1\nagents: { beat: { schedule: \"@every 1 h\", comand: [true] } }\n"
	h.call(append([]string{"serve"}, h.configure(bad)...)...).want(2, "comand")
	n := h.serve(h.configure("version: 1\nagents: { first: { schedule: \"@every 1s\", command: [\"true\"] } }\n")...)
	eventually(t, "first ran", func() bool { return h.committed("first") > 0 })
	h.configure(bad)
	n.hangup()
	n.says("the configuration was not taken")
	than := h.committed("first")
	eventually(t, "first goes on", func() bool { return h.committed("first") > than })
	h.configure("version: 1\nagents: { second: { schedule: \"@every 1s\", command: [\"true\"] } }\n")
	n.hangup()
	eventually(t, "second ran", func() bool { return h.committed("second") > 0 })

	socket, err := newNodeClient("unix:"+h.socket(), "")
	must(t, err)
	var done api.Reloaded
	reload := func() error {
		_, _, err := socket.do(t.Context(), http.MethodPost, "/v1/config/reload", nil, &done)
		return err
	}
	h.configure(bad)
	p, ok := errors.AsType[*api.Problem](reload())
	if !ok || p.Type != "/problems/config-refused" || p.Executed != api.No || len(p.Errors) < 2 || !strings.Contains(fmt.Sprint(p.Errors), "comand") {
		t.Errorf("a file with mistakes, by the API: %+v", p)
	}
	than = h.committed("second")
	eventually(t, "second goes on", func() bool { return h.committed("second") > than })
	h.configure("version: 1\nagents: { third: { schedule: \"@every 1s\", command: [\"true\"] } }\n")
	must(t, reload())
	if done.Agents != 1 || filepath.Base(done.File) != "syncnode.yaml" {
		t.Errorf("taken: %+v", done)
	}
	eventually(t, "third ran", func() bool { return h.committed("third") > 0 })
	n.stops()
}

func TestATriggerGoesThroughTheNodeOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "triggered")[0]
	bare := h
	bare.args = nil
	bare.call("agent", "trigger", "job").want(1, "none answers on")
	n := h.serve(h.configure(`
version: 1
agents:
  job: { command: [sh, -c, "echo $SYNCNODE_RUN_OCCURRENCE >>triggered; until test -e go; do sleep 0.2; done"] }
  daily: { schedule: "0 3 * * *", tz: Europe/Berlin, command: ["true"] }
`)...)
	bare.call("agent", "trigger", "job", "--occurrence", "one").want(0).prints("occurrence  key:one")
	eventually(t, "it began", func() bool { return h.effects("triggered")["one"] == 1 })
	bare.call("agent", "trigger", "job", "--occurrence", "two").want(1, "is busy with run", "nothing was run")
	bare.call("agent", "trigger", "nobody").want(1, "not in the configuration", "nothing was run")
	list := bare.call("agent", "list").want(0)
	for _, text := range []string{"job", "daily", "0 3 * * *", "Europe/Berlin"} {
		list.prints(text)
	}
	must(t, os.WriteFile(filepath.Join(h.work, "go"), nil, 0o600))
	eventually(t, "it is committed", func() bool { return h.committed("job") == 1 })
	bare.call("agent", "trigger", "job", "--occurrence", "one").want(0)
	n.stops()
	if got := h.effects("triggered")["one"]; got != 1 {
		t.Errorf("%d effects of one occurrence", got)
	}
}

func TestAGapThatIsOpenIsShownAsSuch(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "open-gap")[0]
	n := h.serve(h.configure("version: 1\nagents: { beat: { schedule: \"@every 1s\", command: [\"true\"] } }\n")...)
	eventually(t, "beat ran", func() bool { return h.committed("beat") > 0 })
	bare := h
	bare.args = nil
	bare.call("agent", "pause", "beat", "--reason", "to see", "--node", "unix:"+h.socket(), "--namespace", h.namespace()).want(0)
	open := func() (found []runRow) {
		p := h.call("run", "list", "--state", "missed", "-o", "json").want(0)
		for dec := json.NewDecoder(&p.out); dec.More(); {
			var r runRow
			must(t, dec.Decode(&r))
			if r.Open {
				found = append(found, r)
			}
		}
		return found
	}
	eventually(t, "an open gap of two or more is shown", func() bool { f := open(); return len(f) == 1 && f[0].Count >= 2 })
	if r := open()[0]; r.Agent != "beat" || r.Cause != string(due.Paused) || r.State != stateMissed || r.Last == "" {
		t.Errorf("the open gap: %+v", r)
	}
	h.call("run", "list", "--state", "missed").want(0).prints("missed, open")
	bare.call("agent", "list").want(0).prints("(paused)")
	bare.call("agent", "resume", "beat", "--node", "unix:"+h.socket(), "--namespace", h.namespace()).want(0)
	eventually(t, "it is over, and recorded", func() bool { gaps, _ := h.records(); return len(open()) == 0 && len(gaps) > 0 })
	n.stops()
}

func TestWatchersHearOfWhatANodeRunsByItself(t *testing.T) {
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "watched-schedule")[0]
	h.answering(h.configure("version: 1\nagents: { once: { command: [sh, -c, \"exit 3\"] } }\n")...)
	c, err := newNodeClient("unix:"+h.socket(), "")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", c.base+"/v1/events?agent=once", nil)
	must(t, err)
	stream, err := c.http.Do(req)
	must(t, err)
	defer stream.Body.Close()
	bare := h
	bare.args = nil
	bare.call("agent", "trigger", "once", "--occurrence", "k").want(0)
	var seen []events.Event
	for lines := bufio.NewScanner(stream.Body); len(seen) < 2 && lines.Scan(); {
		if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
			var e events.Event
			must(t, json.Unmarshal([]byte(data), &e))
			seen = append(seen, e)
		}
	}
	if len(seen) != 2 || seen[0].Kind != events.RunBegun || seen[1].Kind != events.RunEnded || seen[0].Attempt == "" || seen[0].Epoch == 0 ||
		seen[1].Attempt != seen[0].Attempt || seen[1].State != "failed" || seen[1].Cause != "exit" || seen[1].Occurrence != "key:k" {
		t.Errorf("watchers heard %+v", seen)
	}
}
