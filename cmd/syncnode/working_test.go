package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/node/effect"
)

// leaseOf is the lease of an agent.
func (h host) leaseOf(agent string) (l leaseRow) {
	h.t.Helper()
	must(h.t, json.Unmarshal(h.looks("lease", "show", agent, "-o", "json"), &l))
	return l
}

// trigger has the host's node run an agent.
func (h host) trigger(agent, occurrence string) {
	h.t.Helper()
	h.args = nil
	h.call("agent", "trigger", agent, "--occurrence", occurrence).want(0)
}

func TestTermGivesACommandTheDrainThenStopsItAndTellsOfIt(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "drained")[0]
	n := h.serve(h.configure(`
version: 1
drain: 10s
agents:
  job:
    schedule: "@yearly"
    command: [sh, -c, "trap 'echo stopped >>signals; exit 0' TERM; echo $$ >job; until test -e leaving; do sleep 0.1; done; echo lived >>signals; while :; do sleep 0.1; done"]
    on_failure: { command: [sh, -c, "echo $SYNCNODE_RUN_OCCURRENCE $SYNCNODE_RUN_STATE $SYNCNODE_RUN_CAUSE >told"] }
`)...)
	eventually(t, "the agent is held", func() bool { return h.leaseOf("job").Held })
	h.trigger("job", "one")
	h.pid("job")
	must(t, n.cmd.Process.Signal(syscall.SIGTERM))
	n.says("waiting for what runs")
	h.touch("leaving")
	n.want(0)
	if got := fmt.Sprint(h.lines("signals")); got != "[lived stopped]" {
		t.Errorf("the command wrote %s", got)
	}
	if s := h.show("job", "one"); s.State != "failed" || len(s.Attempts) != 1 || s.Attempts[0].Cause != "drain" {
		t.Errorf("the run: %+v", s)
	}
	if l := h.leaseOf("job"); l.Held {
		t.Errorf("the lease was not given back: %+v", l)
	}
	if got := fmt.Sprint(h.lines("told")); got != "[one failed drain]" {
		t.Errorf("told of it: %s", got)
	}
}

func TestANodeThatWasKilledAndIsThereAgainKeepsTheEpochsOfItsAgents(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "same-epoch")[0]
	flags := h.configure("version: 1\nagents: { kept: { schedule: \"@yearly\", ttl: 5m, command: [\"true\"] } }\n")
	n := h.serve(flags...)
	eventually(t, "the agent is held", func() bool { return h.leaseOf("kept").Held })
	before := h.leaseOf("kept")
	n.killed()
	if l := h.leaseOf("kept"); !l.Held || l.Expired || l.PID != before.PID {
		t.Fatalf("the lease of the process that is dead: %+v", l)
	}
	n = h.serve(flags...)
	eventually(t, "the next process holds it", func() bool { l := h.leaseOf("kept"); return l.Held && l.PID == n.cmd.Process.Pid })
	if l := h.leaseOf("kept"); l.Epoch != before.Epoch || l.Device != before.Device {
		t.Errorf("held by %s at epoch %d, want %s at %d", l.Device, l.Epoch, before.Device, before.Epoch)
	}
	n.stops()
}

func TestANodeRunsCommandsAndRequestsAndTellsWhoIsNamedOfFailures(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	var notices []effect.Notice
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/hook":
			var n effect.Notice
			if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
				t.Error(err)
			}
			notices = append(notices, n)
			return
		case "/refuse":
			w.WriteHeader(http.StatusNotFound)
		}
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Syncnode-Agent")+" "+r.Header.Get("X-Of-Config"))
	}))
	defer web.Close()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "does")[0]
	n := h.serve(h.configure(fmt.Sprintf(`
version: 1
agents:
  fails:
    command: [sh, -c, "exit 3"]
    on_failure: { command: [sh, -c, "echo $SYNCNODE_RUN_AGENT $SYNCNODE_RUN_STATE $SYNCNODE_RUN_CAUSE $SYNCNODE_RUN_EXIT_CODE >>told"] }
  asks:
    http: { method: PUT, url: "%[1]s/take", headers: { X-Of-Config: yes-it-is } }
    on_failure: { webhook: "%[1]s/hook" }
  refused:
    http: { url: "%[1]s/refuse" }
    on_failure: { webhook: "%[1]s/hook" }
`, web.URL))...)
	for _, agent := range []string{"fails", "asks", "refused"} {
		h.trigger(agent, "one")
	}
	for agent, state := range map[string]string{"fails": "failed", "asks": "committed", "refused": "failed"} {
		eventually(t, agent+" is "+state, func() bool { return h.show(agent, "one").State == state })
	}
	n.stops() // and has told by then
	if got := fmt.Sprint(h.lines("told")); got != "[fails failed exit 3]" {
		t.Errorf("the command was told %s", got)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"POST /refuse refused ", "PUT /take asks yes-it-is"}) {
		t.Errorf("requests: %q", asked)
	}
	if len(notices) != 1 || notices[0].Agent != "refused" || notices[0].State != "failed" || notices[0].ExitCode != http.StatusNotFound || notices[0].Occurrence != "key:one" {
		t.Errorf("notices: %+v", notices)
	}
}
