package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/api"

	"github.com/syncnode/syncnode/internal/thorough"
)

// sidecar starts a node that has no disk, and waits until it answers. The only folder that it may write to is that of its socket.
func (h host) sidecar(args ...string) server {
	h.t.Helper()
	must(h.t, os.MkdirAll(filepath.Dir(h.socket()), 0o700))
	h.nodeEnv = []string{"HOME=" + h.dir, "TMPDIR=" + h.dir}
	s := h.serving(append([]string{"--no-journal", "--backend-timeout", "2s", "--listen", "unix:" + h.socket()}, args...)...)
	eventually(h.t, "the sidecar answers", func() bool { return h.ask("GET", "/readyz", nil, &obj{}) == nil })
	return s
}

// pod is a host with a namespace of its own, whose socket has a short name.
func pod(t *testing.T, endpoints []string, namespace string) host {
	return near(t, hosts(t, 1, endpoints)[0].with("--namespace", namespace))
}

// keeps are the files below the folders that a node could write to.
func (h host) keeps() (all []string) {
	h.t.Helper()
	for _, root := range []string{h.dir, h.work} {
		must(h.t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all = append(all, path)
			}
			return err
		}))
	}
	return all
}

// claim claims an agent's run, and begins it if it is to.
func (h host) claim(agent, occurrence string, fence bool) (c api.Claimed, st api.Standing) {
	h.t.Helper()
	eventually(h.t, "a claim of "+agent, func() bool {
		err := h.ask("POST", "/v1/runs", obj{"agent": agent, "occurrence": occurrence}, &c)
		if name := problemName(err); name != "" && name != "unavailable" && name != "agent-held" {
			h.t.Fatalf("claim of %s: %v", agent, err)
		}
		return err == nil
	})
	if fence {
		must(h.t, h.ask("POST", "/v1/runs/"+c.Run+"/fence", obj{"claim": c.Claim, "request": "request-1"}, &st))
	}
	return c, st
}

func TestASidecarRunsOverItsSocketAndKeepsNothing(t *testing.T) {
	t.Parallel()
	h := pod(t, common.get(t).Endpoints(), "sidecar")
	node := h.sidecar("--relay", "none")
	c, st := h.claim("a", "1", true)
	var ended api.Ended
	must(t, h.ask("POST", "/v1/runs/"+c.Run+"/commit", obj{"attempt": st.Attempt, "result": "sent"}, &ended))
	if ended.State != "committed" || !ended.Settled {
		t.Errorf("%+v", ended)
	}
	if s := h.show("a", "1"); s.State != "committed" || !strings.HasPrefix(s.Device, "pod.") {
		t.Errorf("the ledger shows %+v", s)
	}
	page := h.scrape()
	if !strings.Contains(page, `syncnode_runs_total{agent="",outcome="committed"} 1`) || strings.Contains(page, "syncnode_node_lease_held") {
		t.Errorf("the page of metrics is\n%s", page)
	}
	if names := h.call("lease", "list", "-o", "json").want(0).out.String(); strings.Contains(names, "node.pod") {
		t.Errorf("its name stays in the ledger: %s", names)
	}
	if got := h.keeps(); len(got) != 1 || got[0] != h.socket() {
		t.Errorf("it keeps %v, want its socket alone", got)
	}
	if strings.Contains(node.log(), "no socket in the data directory") {
		t.Errorf("it has no data directory:\n%s", node.log())
	}

	app := near(t, hosts(t, 1, nil)[0]).with("--namespace", "sidecar", "--node", "unix:"+h.socket())
	app.call("exec", "--agent", "b", "--occurrence", "1", "--", "sh", "-c", "echo ran >>ran; syncnode fence").want(0, "committed at epoch 1")
	app.call("exec", "--agent", "b", "--occurrence", "1", "--", "sh", "-c", "echo ran >>ran").want(0, "already committed")
	if got := app.lines("ran"); len(got) != 1 {
		t.Errorf("the command ran %d times", len(got))
	}
	app.with().call("run", "list", "-o", "json").want(0).prints(`"agent":"b"`)
	node.stops()
	if got := h.keeps(); len(got) != 0 {
		t.Errorf("it left %v", got)
	}
}

func TestASidecarIsReadyWithoutItsEtcdAndBeginsNothingThen(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	way, err := common.get(t).NewClientProxy()
	must(t, err)
	defer way.Close()
	h := pod(t, way.Endpoints(), "sidecar-away")
	ready := func(backend string, args ...string) {
		t.Helper()
		here := h
		here.args = nil
		here.call(append([]string{"ready", "--node", "unix:" + h.socket()}, args...)...).want(0)
		here.call("ready", "--node", "unix:"+h.socket(), "--backend").want(1, backend)
		must(t, h.ask("GET", "/livez", nil, &obj{}))
	}
	refused := func() {
		t.Helper()
		err := h.ask("POST", "/v1/runs", obj{"agent": "a", "occurrence": "2"}, nil)
		p, ok := errors.AsType[*api.Problem](err)
		if !ok || p.Status != 503 || p.Executed != api.No {
			t.Errorf("a claim without etcd: %v, want 503 and not run", err)
		}
	}

	way.Blackhole()
	node := h.sidecar()
	node.says("etcd cannot be used yet")
	ready("starting")
	refused()
	way.Heal()
	c, st := h.claim("a", "1", true)

	way.Cut()
	ready("does not answer")
	refused()
	err = h.ask("POST", "/v1/runs/"+c.Run+"/commit", obj{"attempt": st.Attempt}, nil)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 503 || p.Executed == api.No {
		t.Errorf("an end that is recorded nowhere: %v", err)
	}
	way.Heal()
	h.claim("b", "1", false) // whatever it asks next, it tells what it owes first
	eventually(t, "the end is recorded, though nobody told it again", func() bool { return h.show("a", "1").State == "committed" })
	node.stops()
}

func TestASidecarThatIsToldToStopTellsTheLedgerWhatItOwes(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	way, err := common.get(t).NewClientProxy()
	must(t, err)
	defer way.Close()
	h := pod(t, way.Endpoints(), "sidecar-stop")
	node := h.sidecar()
	c, st := h.claim("a", "1", true)
	way.Cut()
	err = h.ask("POST", "/v1/runs/"+c.Run+"/commit", obj{"attempt": st.Attempt}, nil)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 503 {
		t.Errorf("an end that is recorded nowhere: %v", err)
	}
	way.Heal()
	node.stops()
	if s := h.show("a", "1"); s.State != "committed" {
		t.Errorf("the ledger shows %+v", s)
	}
}

func TestASidecarThatIsKilledLeavesWhatWasClaimedFreeAndWhatWasBegunInDoubt(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := pod(t, common.get(t).Endpoints(), "sidecar-killed")
	first := h.sidecar("--device-id", "uid-1")
	claimed, _ := h.claim("before", "1", false)
	begun, st := h.claim("after", "1", true)
	first.killed()

	second := h.sidecar() // another device
	if again, _ := h.claim("before", "1", false); again.Run != claimed.Run || again.Epoch != claimed.Epoch+1 {
		t.Errorf("claimed again: %+v, was %+v", again, claimed)
	}
	if name := problemName(h.ask("POST", "/v1/runs/"+begun.Run+"/commit", obj{"agent": "after", "attempt": st.Attempt}, nil)); name != "wrong-device" {
		t.Errorf("another device's attempt is ended: %q", name)
	}
	eventually(t, "what was begun is in doubt", func() bool {
		return problemName(h.ask("POST", "/v1/runs", obj{"agent": "after", "occurrence": "1"}, nil)) == "run-in-doubt"
	})
	second.stops()

	h.sidecar("--device-id", "uid-1") // the same, in another container of the pod
	eventually(t, "the end that is told late is taken", func() bool {
		err := h.ask("POST", "/v1/runs/"+begun.Run+"/commit", obj{"agent": "after", "attempt": st.Attempt}, &obj{})
		if name := problemName(err); name != "" && name != "not-recorded" {
			t.Fatal(err)
		}
		return err == nil
	})
	if s := h.show("after", "1"); s.State != "committed" || s.Device != "pod.uid-1" {
		t.Errorf("the ledger shows %+v", s)
	}
}

func TestASidecarIsRefusedWhatNeedsADisk(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, nil)[0]
	socket := "unix:" + h.dir + "/s"
	etcd := []string{"--endpoints", "http://127.0.0.1:1"}
	here := append([]string{"--listen", socket}, etcd...)
	var all sync.WaitGroup
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "--no-journal needs --endpoints", []string{"--listen", socket}},
		{2, "--no-journal needs --listen", etcd},
		{2, "--no-journal needs --listen", append([]string{"--listen", "none"}, etcd...)},
		{2, "--relay is for a node with a disk", append([]string{"--relay", "etcd"}, here...)},
		{2, "--config is for a node with a disk", append([]string{"--config", "f"}, here...)},
		{2, "--member-cluster is for a node with a disk", append([]string{"--member-name", "n1", "--member-cluster", "n1=http://127.0.0.1:2"}, here...)},
		{2, "--share relay is for a node with a relay", append([]string{"--share", "relay"}, here...)},
		{1, "no-such-file", append([]string{"--cacert", "no-such-file"}, here...)}, // not waited for: no etcd could make it right
	} {
		all.Go(func() { h.call(append([]string{"serve", "--no-journal"}, c.args...)...).want(c.code, c.want) })
	}
	all.Wait()
	if got := h.keeps(); len(got) != 0 {
		t.Errorf("a refused call left %v", got)
	}
}
