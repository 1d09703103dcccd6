package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/internal/thorough"
)

// near gives a host a data directory whose name leaves room for a socket in it.
func near(t *testing.T, h host) host {
	t.Helper()
	dir, err := os.MkdirTemp("", "node")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h.dir = dir
	return h
}

func (h host) socket() string { return nodeSocket(h.dir + "/syncnode") }

// answering is a node that answers over its socket.
func (h host) answering(args ...string) server {
	h.t.Helper()
	s := h.serve(args...)
	eventually(h.t, "the node is ready", func() bool {
		var got struct{ Node, Backend string }
		return h.ask("GET", "/readyz?backend=1", nil, &got) == nil && got.Backend == "ok"
	})
	return s
}

// ask sends a request to the host's node.
func (h host) ask(method, path string, in, out any) error {
	c, err := newNodeClient("unix:"+h.socket(), "")
	must(h.t, err)
	defer c.http.CloseIdleConnections()
	_, _, err = c.do(h.t.Context(), method, path, in, out)
	return err
}

// application is the program of a client: it claims a run, passes the fence if it is told to, says how far it came, and
// waits for its end.
func application() {
	c, err := newNodeClient("unix:"+os.Args[1], "")
	if err != nil {
		panic(err)
	}
	ctx, agent, fence := context.Background(), os.Args[2], os.Args[3] == "fence"
	var got api.Claimed
	if _, _, err = c.do(ctx, "POST", "/v1/runs", map[string]any{"agent": agent, "occurrence": "1"}, &got); err != nil {
		panic(err)
	}
	line := obj{"run": got.Run}
	if fence {
		var st api.Standing
		if _, _, err = c.do(ctx, "POST", "/v1/runs/"+got.Run+"/fence", obj{"claim": got.Claim, "request": "request-1"}, &st); err != nil {
			panic(err)
		}
		line["attempt"] = st.Attempt
	}
	json.NewEncoder(os.Stdout).Encode(line)
	select {}
}

type obj = map[string]any

func TestAnApplicationThatIsKilledBeforeTheFenceLeavesNothingAndAfterItADoubt(t *testing.T) {
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0])
	h.answering("--relay", "none")
	before, after := h.application("before", "claim"), h.application("after", "fence")
	before.killed(t)
	after.killed(t)

	eventually(t, "the run that was begun is in doubt", func() bool {
		var run api.Run
		must(t, h.ask("GET", "/v1/runs/"+after.run+"?agent=after", nil, &run))
		return run.State == "in doubt"
	})
	if name := problemName(h.ask("POST", "/v1/runs", obj{"agent": "after", "occurrence": "1"}, nil)); name != "run-in-doubt" {
		t.Errorf("the run in doubt is claimed again: %q", name)
	}
	eventually(t, "the other is free", func() bool {
		var got api.Claimed
		err := h.ask("POST", "/v1/runs", obj{"agent": "before", "occurrence": "1"}, &got)
		return err == nil && got.Run == before.run
	})
	if name := problemName(h.ask("GET", "/v1/runs/"+before.run+"?agent=before", nil, nil)); name != "not-found" {
		t.Errorf("a claim left a record: %q", name)
	}
	// Who knows that it happened may tell it still, with the attempt's name alone.
	var ended api.Ended
	must(t, h.ask("POST", "/v1/runs/"+after.run+"/commit", obj{"attempt": after.attempt}, &ended))
	if ended.State != "committed" {
		t.Errorf("told late: %+v", ended)
	}
}

// An app is a running application that came as far as it was told.
type app struct {
	*process
	run, attempt string
}

func (h host) application(agent, far string) app {
	h.t.Helper()
	file := h.path("app-" + agent)
	p := h.command(file, "application", h.socket(), agent, far)
	a := app{process: p}
	eventually(h.t, "the application of "+agent+" has come as far as the "+far, func() bool {
		var line struct{ Run, Attempt string }
		text, err := os.ReadFile(file)
		a.run, a.attempt = "", ""
		if err != nil || json.Unmarshal(text, &line) != nil {
			return false
		}
		a.run, a.attempt = line.Run, line.Attempt
		return true
	})
	return a
}

func (a app) killed(t *testing.T) {
	t.Helper()
	must(t, a.cmd.Process.Signal(syscall.SIGKILL))
	<-a.done
}

func TestExecGoesThroughTheNodeOfItsDataDirectory(t *testing.T) {
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0])
	h.answering("--relay", "none")
	h.call("exec", "--agent", "a", "--occurrence", "1", "--", "sh", "-c", "echo ran >>one; syncnode fence").want(0, "committed")
	h.call("exec", "--agent", "a", "--occurrence", "1", "--", "sh", "-c", "echo ran >>one").want(0, "already committed")
	h.call("exec", "--agent", "a", "--occurrence", "2", "--", "sh", "-c", "exit 7").want(7, "exit 7")
	h.call("exec", "--agent", "a", "--occurrence", "2", "--", "true").want(115)
	h.call("exec", "--agent", "a", "--occurrence", "2", "--if-failed", "retry", "--", "no-such-command").want(127, "was not run")
	h.call("exec", "--agent", "a", "--occurrence", "3", "--timeout", "100ms", "--", "sleep", "1000").want(124, "timeout")
	h.call("exec", "--agent", "a", "--occurrence", "4", "--namespace", "other", "--", "true").want(125, "serves namespace default")
	h.call("exec", "--agent", "a", "--occurrence", "4", "--endpoints", "http://127.0.0.1:1", "--", "true").want(125, "leave --endpoints out")
	if got := h.lines("one"); len(got) != 1 {
		t.Errorf("run %d times", len(got))
	}
	if s := h.show("a", "1"); s.State != "committed" || len(s.Attempts) != 1 || strings.Contains(s.Attempts[0].Device, "pod") {
		t.Errorf("recorded: %+v", s)
	}
	// Beside each other, and each other's run is seen.
	long := h.start("exec", "--agent", "b", "--occurrence", "1", "--", "sh", "-c", beats)
	h.pid("c")
	h.call("exec", "--agent", "b", "--occurrence", "1", "--", "true").want(0, "running elsewhere")
	h.call("exec", "--agent", "b", "--occurrence", "2", "--", "true").want(110, "busy")
	h.call("exec", "--agent", "c", "--occurrence", "1", "--", "true").want(0)
	h.touch("go")
	long.want(0, "committed")
}

func TestADryRunAsksTheNodeAndClaimsNothing(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0])
	h.answering("--relay", "none")
	dry := func(agent, occurrence string, more ...string) *process {
		t.Helper()
		args := append([]string{"exec", "--dry-run", "--agent", agent, "--occurrence", occurrence}, more...)
		return h.call(append(args, "--", "touch", "ran")...)
	}
	dry("a", "1").want(0, "this is a dry run, and it would run now (the node unix:", "nothing was claimed")
	h.call("run", "show", "--agent", "a", "--occurrence", "1").want(0).prints("never begun")
	h.call("lease", "show", "a").want(0).prints("state   free")
	h.call("exec", "--agent", "a", "--occurrence", "1", "--", "true").want(0)
	dry("a", "1").want(0, "already committed", "it was not run again")
	dry("a", "1", "--if-done", "fail").want(110, "already committed")
	h.call("exec", "--agent", "a", "--occurrence", "2", "--", "sh", "-c", "exit 7").want(7)
	dry("a", "2").want(115, "failed before")
	dry("a", "2", "--if-failed", "retry").want(0, "would run now")
	h.call("agent", "pause", "a", "--reason", "deploy").want(0)
	dry("a", "3").want(113, "paused")
	// The agent of a client that was quick is held by the node for a while, and free to whoever comes through it.
	var c api.Claimed
	must(t, h.ask("POST", "/v1/runs", obj{"agent": "held", "occurrence": "1"}, &c))
	dry("held", "2").want(0, "would run now")
	long := h.start("exec", "--agent", "b", "--occurrence", "1", "--", "sh", "-c", beats)
	h.pid("c")
	dry("b", "1").want(0, "running elsewhere", "it was not run here")
	dry("b", "1", "--if-held", "fail").want(110, "running elsewhere")
	dry("b", "2").want(110, "the agent is busy")
	dry("b", "2", "--if-held", "wait").want(110, "it would wait now")
	h.touch("go")
	long.want(0)
	must(t, h.ask("POST", "/v1/runs", obj{"agent": "d", "occurrence": "1"}, &c))
	var st api.Standing
	must(t, h.ask("POST", "/v1/runs/"+c.Run+"/fence", obj{"claim": c.Claim, "request": "request-1"}, &st))
	must(t, h.ask("POST", "/v1/runs/"+c.Run+"/fail", obj{"attempt": st.Attempt, "ran": "maybe"}, &api.Ended{}))
	dry("d", "1").want(112, "may have run", "syncnode run resolve")
	dry("d", "1", "--on-doubt", "retry").want(0, "would run now")
	far := near(t, hosts(t, 1, nil)[0]) // has nothing but the address
	far.call("exec", "--dry-run", "--node", "unix:"+h.socket(), "--agent", "a", "--occurrence", "1", "--", "true").want(0, "already committed")
	far.call("exec", "--dry-run", "--node", "unix:"+h.socket()+"x", "--backend-timeout", "1s", "--agent", "a", "--occurrence", "1", "--", "true").want(125, "was not run")
	h.notThere("ran")
}

func TestACommandIsGoneBeforeItsLeaseCanEndWhenItsNodeDies(t *testing.T) {
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0])
	node := h.answering("--relay", "none")
	run := h.start("exec", "--agent", "a", "--occurrence", "1", "--", "sh", "-c", beats)
	child := h.pid("c")
	node.killed()
	died := time.Now()
	eventually(t, "the end of the command", func() bool { return !alive(child) })
	if lived := h.lastBeat().Sub(died); lived > 15*time.Second {
		t.Errorf("it lived for %s after its node; its lease had 15s", lived)
	}
	h.answering("--relay", "none") // a later process of the device takes the end
	run.want(111, "failed (lost)")
	if s := h.show("a", "1"); s.State != "failed" || s.Cause != "lost" {
		t.Errorf("recorded: %+v", s)
	}
}

func TestABusyNodeIsNeverRefusedForTheSakeOfTenIdleOnes(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	all := spaced(hosts(t, 11, common.get(t).Endpoints()), "busy-and-idle")
	for i := range all {
		all[i] = near(t, all[i])
	}
	busy, idle := all[0], all[1:]
	together(len(idle), func(i int) { idle[i].sidecar("--device-id", fmt.Sprintf("pod-%d", i)) }) // as pods have them
	busy.answering()
	for i, h := range idle { // each had the agent once
		h.runOnce(fmt.Sprintf("idle-%d", i), true)
	}
	for i := range 50 {
		busy.runOnce(fmt.Sprintf("busy-%d", i), i == 0)
	}
}

// runOnce is a whole run of agent a through the API. Only with wait it may be told that the agent is held: by the node
// that had it last, for as long as that lingers.
func (h host) runOnce(occurrence string, wait bool) {
	h.t.Helper()
	var c api.Claimed
	eventually(h.t, "claim of "+occurrence, func() bool {
		err := h.ask("POST", "/v1/runs", obj{"agent": "a", "occurrence": occurrence}, &c)
		if p, ok := errors.AsType[*api.Problem](err); ok && !(wait && problemName(err) == "agent-held") {
			h.t.Fatalf("%s was refused: %v", occurrence, p)
		}
		return err == nil
	})
	var st api.Standing
	must(h.t, h.ask("POST", "/v1/runs/"+c.Run+"/fence", obj{"claim": c.Claim, "request": "request-1"}, &st))
	var e api.Ended
	must(h.t, h.ask("POST", "/v1/runs/"+c.Run+"/commit", obj{"attempt": st.Attempt}, &e))
}

func TestTheExamplesOfTheAPIRunOnce(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	root, err := filepath.Abs("../..")
	must(t, err)
	h := near(t, hosts(t, 1, nil)[0])
	h.answering("--relay", "none")
	goExample := h.path("example")
	if out, err := exec.Command("go", "build", "-o", goExample, root+"/examples/api").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, c := range map[string]struct {
		needs string
		argv  []string
		again string
	}{
		"shell":  {"curl", []string{root + "/examples/api/run.sh", "shell", "1", "sh", "-c", "echo $SYNCNODE_RUN_EPOCH >>shell"}, "was done before: done"},
		"python": {"python3", []string{root + "/examples/api/run.py", "python", "1"}, "done before: 42 sent"},
		"go":     {"go", []string{goExample, "go", "1"}, "done before: 42 sent"},
	} {
		if _, err := exec.LookPath(c.needs); err != nil {
			if os.Getenv("SYNCNODE_CI") != "" {
				t.Error(err)
			}
			continue
		}
		run := func() string {
			cmd := exec.CommandContext(bounded(t), c.argv[0], c.argv[1:]...)
			cmd.Dir, cmd.Env = h.work, append(os.Environ(), "SOCKET="+h.socket())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
			return string(out)
		}
		run()
		if out := run(); !strings.Contains(out, c.again) {
			t.Errorf("%s run again says %q, want %q", name, out, c.again)
		}
		if s := h.show(name, "1"); s.State != "committed" || len(s.Attempts) != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if got := h.lines("shell"); len(got) != 1 {
		t.Errorf("the command of the shell example ran %d times", len(got))
	}
}

func TestVerbsThatDecideGoThroughTheNodeOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0])
	h.answering("--relay", "none")
	h.call("exec", "--agent", "a", "--occurrence", "1", "--", "sh", "-c", "exit 3").want(3)
	h.call("run", "retry", "--agent", "a", "--occurrence", "1", "--reason", "fixed", "--by", "ada").want(0).prints("free")
	h.call("exec", "--agent", "a", "--occurrence", "1", "--", "true").want(0)
	h.call("agent", "pause", "a", "--reason", "deploy").want(0)
	h.call("exec", "--agent", "a", "--occurrence", "2", "--", "true").want(113, "paused")
	h.call("agent", "resume", "a").want(0)
	far := near(t, hosts(t, 1, nil)[0]) // has nothing but the address
	far.call("run", "list", "--node", "unix:"+h.socket(), "-o", "json").want(0).prints(`"state":"committed"`)
	far.call("exec", "--node", "unix:"+h.socket(), "--agent", "a", "--occurrence", "1", "--", "true").want(0, "already committed")
	far.call("run", "list", "--node", "unix:"+h.socket()+"x").want(1)
}

// A node whose first answer is lost gives the repeat the same claim: it is not taken for somebody else's.
func TestAClaimWhoseAnswerWasLostIsRepeatedAndRuns(t *testing.T) {
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0])
	h.answering("--relay", "none")
	lost, path := 0, h.dir+"/lossy"
	node, err := newNodeClient("unix:"+h.socket(), "")
	must(t, err)
	l, err := net.Listen("unix", path)
	must(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.RequestURI = "http", "node", ""
		resp, err := node.http.Do(out)
		if err != nil || strings.HasSuffix(r.URL.Path, "/runs") && lost == 0 {
			lost++
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
	})}
	go srv.Serve(l)
	defer srv.Close()
	h.call("exec", "--node", "unix:"+path, "--agent", "a", "--occurrence", "1", "--", "touch", "ran").want(0, "committed")
	if _, err := os.Stat(h.path("ran")); err != nil || lost != 1 {
		t.Errorf("%d answers were lost; the command: %v", lost, err)
	}
	if s := h.show("a", "1"); s.State != "committed" || len(s.Attempts) != 1 {
		t.Errorf("recorded: %+v", s)
	}
}
