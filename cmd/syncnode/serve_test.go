package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

// A server is a running `serve`, whose log can be read meanwhile.
type server struct {
	*process
	logFile string
}

// serve starts a node that looks at the relay often, and waits until it serves.
func (h host) serve(args ...string) server {
	h.t.Helper()
	s := h.serving(append([]string{"--pump-every", "200ms"}, args...)...)
	s.says("node started")
	return s
}

// serving starts a node.
func (h host) serving(args ...string) server {
	h.t.Helper()
	file, err := os.CreateTemp(h.t.TempDir(), "serve-*.log")
	must(h.t, err)
	defer file.Close()
	p := &process{t: h.t, done: make(chan struct{})}
	p.cmd = exec.Command("syncnode", append(append([]string{"serve"}, h.args...), args...)...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = h.work, append(append(cleanEnv(), "XDG_STATE_HOME="+h.dir, "SYNCNODE_TEST_AHEAD="+h.ahead), h.nodeEnv...), file
	p.cmd.SysProcAttr = h.attr
	must(h.t, p.cmd.Start())
	go func() {
		defer close(p.done)
		p.code = codeOfWait(p.cmd.Wait())
	}()
	s := server{p, file.Name()}
	h.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if h.t.Failed() {
			h.t.Logf("%v\n%s", p.cmd.Args, s.log())
		}
	})
	return s
}

func (s server) log() string {
	text, err := os.ReadFile(s.logFile)
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

func (s server) says(text string) {
	s.t.Helper()
	eventually(s.t, "the node says "+text, func() bool { return strings.Contains(s.log(), text) })
}

// stops tells the node to end in good order.
func (s server) stops() {
	s.t.Helper()
	must(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	if s.wait().code != 0 {
		s.t.Errorf("TERM ended the node with code %d, want 0", s.code)
	}
}

func (s server) hangup() {
	s.t.Helper()
	must(s.t, s.cmd.Process.Signal(syscall.SIGHUP))
}

func (s server) killed() {
	s.t.Helper()
	must(s.t, s.cmd.Process.Kill())
	s.wait()
}

// spaced gives hosts a namespace of their own, and so a relay of their own.
func spaced(all []host, namespace string) []host {
	for i := range all {
		all[i] = all[i].with("--namespace", namespace)
	}
	return all
}

func (h host) namespace() string {
	for i, a := range h.args {
		if a == "--namespace" {
			return h.args[i+1]
		}
	}
	return "default"
}

// A verified is what `log verify` says.
type verified struct {
	Device, Digest string
	Ops            int
	Peers          int `json:"peer_ops"`
	Known          int `json:"known_ops"`
	Covered        int `json:"covered_ops"`
	Checkpoint     string
	Former         []string
}

func (h host) verify() verified {
	h.t.Helper()
	bare := h
	bare.args = []string{"--namespace", h.namespace()}
	out := bare.looks("log", "verify", "-o", "json")
	var v verified
	if err := json.Unmarshal(out, &v); err != nil {
		h.t.Fatalf("log verify: %v in %q", err, out)
	}
	return v
}

// converge waits until all hold so many ops and have one digest.
func converge(t *testing.T, ops int, all ...host) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d hosts with %d ops each and one digest", len(all), ops), func() bool {
		first := all[0].verify()
		for _, h := range all {
			if v := h.verify(); v.Ops+v.Peers != ops || v.Digest != first.Digest {
				return false
			}
		}
		return true
	})
}

func (h host) run(agent, occurrence string) {
	h.t.Helper()
	h.call("exec", "-q", "--agent", agent, "--occurrence", occurrence, "--", "true").want(0)
}

func TestThreeNodesConvergeOverEtcdAndOneThatWasKilledReturns(t *testing.T) {
	t.Parallel()
	fleet := spaced(hosts(t, 3, common.get(t).Endpoints()), "three")
	testFleet(t, fleet, func(i int) server { return fleet[i].serve() })
}

func TestThreeNodesThatAreTheirOwnEtcdConvergeAndOneThatWasKilledReturns(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := hosts(t, 3, nil)
	var cluster []string
	members := make([][]string, 3)
	for i := range fleet {
		ports := freePorts(t, 2)
		cluster = append(cluster, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[0]))
		client := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
		members[i] = []string{"--member-name", fmt.Sprintf("m%d", i), "--member-client-listen", client}
		fleet[i] = fleet[i].with("--endpoints", client)
	}
	all := strings.Join(cluster, ",")
	testFleet(t, fleet, func(i int) server { return fleet[i].serve(append(members[i], "--member-cluster", all)...) })
}

func testFleet(t *testing.T, fleet []host, start func(i int) server) {
	nodes := make([]server, 3)
	together(3, func(i int) { nodes[i] = start(i) })
	for i, h := range fleet {
		h.run("fleet", occ(i))
	}
	converge(t, 6, fleet...) // pending and committed of three runs
	before := fleet[0].verify().Device

	nodes[0].killed()
	fleet[1].run("fleet", "without")
	fleet[2].call("exec", "--agent", "fleet", "--occurrence", "without", "--", "touch", "again").want(0, "already committed")
	converge(t, 8, fleet[1:]...)

	nodes[0] = start(0)
	converge(t, 8, fleet...)
	if after := fleet[0].verify().Device; after != before {
		t.Errorf("the node came back as device %s, was %s", after, before)
	}
	fleet[0].call("exec", "--agent", "fleet", "--occurrence", "without", "--", "touch", "again").want(0, "already committed")
	fleet[0].notThere("again")
	together(3, func(i int) { nodes[i].stops() }) // also where the first to go takes the quorum along
}

// freePorts are free, and stay so: they lie below those that the kernel gives to connections.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for try := 0; len(ports) < n; try++ {
		port := 16384 + rand.IntN(16384)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			if try > 100 {
				t.Fatal(err)
			}
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return ports
}

func TestTermEndsANodeAfterItsLastPumpWithItsLeaseGivenBack(t *testing.T) {
	t.Parallel()
	fleet := spaced(hosts(t, 2, common.get(t).Endpoints()), "last")
	a, b := fleet[0], fleet[1]
	na := a.serving("--pump-every", "1h")
	na.says("node started")
	b.serve()
	a.run("last", "k")
	na.stops()
	converge(t, 2, a, b)
	shown := b.call("lease", "show", "node."+a.verify().Device, "-o", "json").want(0).out.String()
	if !strings.Contains(shown, `"epoch":1,`) || !strings.Contains(shown, `"held":false`) {
		t.Errorf("lease show: %s, want epoch 1 and not held", shown)
	}
}

func TestASecondNodeOnADataDirectoryIsRefusedAndTheFirstGoesOn(t *testing.T) {
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "second")[0]
	first := h.serve()
	h.call("serve").want(1, "is served already from", fmt.Sprintf("by pid %d", first.cmd.Process.Pid))
	h.run("second", "k")
	first.killed()
	h.serve().stops() // a dead one keeps nobody out
}

func TestAnOutcomeLeftByAKilledRunIsFinishedByTheNode(t *testing.T) {
	t.Parallel()
	c := common.get(t)
	way, err := c.NewClientProxy()
	must(t, err)
	defer way.Close()
	fleet := spaced(hosts(t, 2, c.Endpoints()), "left")
	a, b := fleet[0], fleet[1]
	cut := a
	cut.args = []string{"--endpoints", strings.Join(way.Endpoints(), ","), "--namespace", "left"}
	p := cut.start("exec", "-q", "--agent", "left", "--occurrence", "k", "--ttl", "300s", "--backend-timeout", "60s", "--",
		"sh", "-c", "echo $$ >c; until test -e go; do sleep 0.2; done")
	a.pid("c")
	way.Blackhole()
	a.touch("go")
	logs := a
	logs.args = []string{"--namespace", "left"}
	eventually(t, "the outcome in the journal", func() bool {
		return strings.Contains(logs.call("log", "show").out.String(), "committed")
	})
	must(t, p.cmd.Process.Kill())
	p.wait()
	if s := b.show("left", "k"); s.State != "running" {
		t.Fatalf("before the node it is %s, want running: its liveness has 300 s", s.State)
	}
	a.serve().says("msg=settled")
	if s := b.show("left", "k"); s.State != "committed" || len(s.Attempts) != 1 {
		t.Errorf("after the node settled: %+v, want committed in one attempt", s)
	}
}

func TestARunInDoubtIsLeftToAPersonAndToldOnce(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "doubt")[0]
	killed(h, "doubtful", "k", "15s")
	eventually(t, "doubt", func() bool { return h.show("doubtful", "k").State == "in doubt" })
	n := h.serve()
	n.says("run in doubt")
	n.stops()
	if got := strings.Count(n.log(), "run in doubt"); got != 1 {
		t.Errorf("doubt was told %d times, want once", got)
	}
	if s := h.show("doubtful", "k"); s.State != "in doubt" {
		t.Errorf("the node made it %s, want in doubt", s.State)
	}
}

func TestAFullRelayIsToldOnceRaisesNoAlarmAndStopsNoRun(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	c := common.get(t)
	h := spaced(hosts(t, 1, c.Endpoints()), "full")[0]
	n := h.serve("--relay-max-bytes", "2000")
	runs := 0
	eventually(t, "a full relay", func() bool {
		h.run("full", occ(runs))
		runs++
		return strings.Contains(n.log(), "the relay is full")
	})
	for range 3 {
		h.run("full", occ(runs))
		runs++
	}
	n.stops()
	// Other trouble of a busy etcd may come between; what lasts is told once.
	last := ""
	for line := range strings.Lines(n.log()) {
		_, trouble, told := strings.Cut(line, `trouble="`)
		switch trouble, _, _ = strings.Cut(trouble, `"`); {
		case strings.Contains(line, "pump works again"):
			last = ""
		case told && strings.Contains(line, `msg="pump failed`):
			if trouble == last {
				t.Errorf("told again though it lasted: %s", line)
			}
			last = trouble
		}
	}
	alarms, err := c.Client(t).AlarmList(bounded(t))
	if err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("alarms %v, err %v; want none", alarms, err)
	}
}

func TestANodeOutlivesTheLossOfEtcd(t *testing.T) {
	thorough.Only(t)
	c := lone.alone(t)
	fleet := spaced(hosts(t, 2, c.Endpoints()), "loss")
	nodes := []server{fleet[0].serve(), fleet[1].serve()}
	fleet[0].run("loss", "before")
	converge(t, 2, fleet...)
	pauseAll(t, c)
	together(2, func(i int) { nodes[i].says("lease of this node lost") })
	resumeAll(t, c)
	must(t, c.WaitReady(bounded(t)))
	fleet[1].run("loss", "after")
	converge(t, 4, fleet...)
	for _, n := range nodes {
		n.stops()
	}
}

func TestWrongFlagsOfANodeAreUsageErrors(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, nil)[0]
	var all sync.WaitGroup
	for _, c := range []struct {
		want string
		args []string
	}{
		{"want etcd, dir:PATH, https://HOST:PORT, http://HOST:PORT or unix:PATH, or none", []string{"--relay", "pigeon"}},
		{"want etcd, dir:PATH, https://HOST:PORT, http://HOST:PORT or unix:PATH, or none", []string{"--relay", "dir:"}},
		{"not sent to another host in the clear", []string{"--relay", "http://relay.example", "--relay-token-file", "t"}},
		{"for a relay that a node shares", []string{"--relay-token-file", "t"}},
		{"belong together", []string{"--relay", "https://relay.example", "--relay-cert", "c"}},
		{"want relay, coord or both", []string{"--share", "all"}},
		{"--listen is none", []string{"--share", "relay", "--listen", "none"}},
		{"belong together", []string{"--member-name", "n1"}},
		{"must be above 0", []string{"--pump-every", "0s"}},
		{"must be above 0", []string{"--relay-max-bytes", "-1"}},
		{"must not be below 0", []string{"--checkpoint-every", "-1"}},
		{"must not be below 0", []string{"--segment-bytes", "-1"}},
		{"unknown flag", []string{"--no-such-flag"}},
		{"unexpected argument", []string{"now"}},
	} {
		all.Go(func() { h.call(append([]string{"serve"}, c.args...)...).want(2, c.want) })
	}
	all.Wait()
	if left, _ := filepath.Glob(filepath.Join(h.dir, "*")); len(left) != 0 {
		t.Errorf("a refused call left %v", left)
	}
}

func TestAVerbOnTheDataDirectoryOfAMemberUsesThatMember(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, nil)[0]
	ports := freePorts(t, 2)
	node := h.serve("--member-name", "m0", "--member-cluster", fmt.Sprintf("m0=http://127.0.0.1:%d", ports[0]),
		"--member-client-listen", fmt.Sprintf("http://127.0.0.1:%d", ports[1]))
	h.with("--endpoints", fmt.Sprintf("http://127.0.0.1:%d", ports[1])).run("a", "k")
	h.call("exec", "--agent", "a", "--occurrence", "k", "--", "touch", "again").want(0, "already committed")
	node.stops()
	h.call("exec", "--agent", "a", "--occurrence", "k", "--", "touch", "again").want(125, "does not run now", "was not run")
	h.notThere("again")
}

func TestNodesConvergeThroughASharedFolder(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	fleet := spaced(hosts(t, 2, common.get(t).Endpoints()), "folder")
	folder := filepath.Join(t.TempDir(), "shared")
	nodes := make([]server, len(fleet))
	for i, h := range fleet {
		nodes[i] = h.serve("--relay", "dir:"+folder, "--pump-every", "200ms")
		h.run("fleet", occ(i))
	}
	converge(t, 4, fleet...)
	for _, n := range nodes {
		n.stops()
	}
}
