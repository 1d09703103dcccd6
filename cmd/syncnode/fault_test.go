package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
)

// What is refused is not tried for as long as what is silent, which an exec that began before waits for. That it takes less than five seconds
// where a call takes none is held in package dispatch.
func TestAnEtcdThatIsNotThereIsToldLongBeforeTheBackendTimeout(t *testing.T) {
	t.Parallel()
	waiting := hosts(t, 1, []string{silent(t)})[0].start("exec", "--agent", "a", "--occurrence", "k", "--", "touch", "ran")
	h := hosts(t, 1, []string{"http://127.0.0.1:1"})[0]
	h.call("exec", "--agent", "a", "--occurrence", "k", "--", "touch", "ran").want(125, "http://127.0.0.1:1", "refused", "the command was not run")
	waiting.stillWaits()
	h.notThere("ran")
	h.call("run", "list").want(1, "http://127.0.0.1:1", "refused")
}

// stillWaits checks that the process has not ended.
func (p *process) stillWaits() {
	p.t.Helper()
	select {
	case <-p.done:
		p.t.Errorf("%v ended with code %d before its backend timeout\n%s", p.cmd.Args, p.code, p.err.String())
	default:
	}
}

// silent is the URL of an etcd that is connected to and never answers.
func silent(t *testing.T) string {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	accepted := make(chan []net.Conn)
	go func() {
		var open []net.Conn
		for {
			conn, err := silent.Accept()
			if err != nil {
				accepted <- open
				return
			}
			open = append(open, conn)
		}
	}()
	t.Cleanup(func() {
		silent.Close()
		for _, conn := range <-accepted {
			conn.Close()
		}
	})
	return "http://" + silent.Addr().String()
}

// It is waited for as long as was said: the shorter one ends while the longer one, which began before, waits.
func TestASilentEtcdIsGivenTheBackendTimeout(t *testing.T) {
	t.Parallel()
	url := silent(t)
	h := hosts(t, 1, []string{url})[0]
	waiting := h.start("exec", "--agent", "a", "--occurrence", "long", "--", "touch", "ran")
	h.call("exec", "--agent", "a", "--occurrence", "k", "--backend-timeout", "2s", "--", "touch", "ran").want(125, url, "2s", "the command was not run")
	waiting.stillWaits()
	h.notThere("ran")
	h.call("lease", "list", "--backend-timeout", "1s").want(1, url, "1s")
}

func TestNothingRunsIfTheGrantCannotBeWrittenDown(t *testing.T) {
	t.Parallel()
	fleet := hosts(t, 2, common.get(t).Endpoints())
	a := fleet[0]
	a.call("exec", "-q", "--agent", "dry", "--occurrence", "one", "--", "true").want(0)
	found, err := filepath.Glob(filepath.Join(a.dir, "syncnode", "default-*", "*", "grants"))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("the grants are at %v", found)
	}
	// What is read is not there, and what is written fails.
	must(t, os.RemoveAll(found[0]))
	must(t, os.Symlink("/nowhere/at/all", found[0]))
	a.call("exec", "--agent", "dry", "--occurrence", "two", "--", "touch", "ran").want(125, "was not run")
	a.notThere("ran")
	if s := fleet[1].show("dry", "two"); s.State != "free" || len(s.Attempts) != 1 || s.Attempts[0].State != "void" {
		t.Errorf("run show: %+v, want a void attempt", s)
	}
	must(t, os.Remove(found[0]))
	a.call("exec", "--agent", "dry", "--occurrence", "two", "--", "touch", "ran").want(0)
}

func TestAnOutcomeThatTheLedgerCannotTakeIsWrittenByTheNextRun(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	c := common.get(t)
	way, err := c.NewClientProxy()
	must(t, err)
	defer way.Close()
	fleet := hosts(t, 2, way.Endpoints())
	a, b := fleet[0], fleet[1]
	b.args = []string{"--endpoints", c.MemberEndpoint(0)}
	p := a.start("exec", "--agent", "cut", "--occurrence", "k", "--ttl", "300s", "--", "sh", "-c", "echo $$ >c; until test -e go; do sleep 0.2; done")
	a.pid("c")
	way.Cut()
	a.touch("go")
	p.want(114, "was run", "the outcome is in the journal and not in the ledger yet")
	if s := b.show("cut", "k"); s.State != "running" {
		t.Errorf("meanwhile it is %s, want running: its liveness has 300 s", s.State)
	}
	way.Heal()
	a.call("exec", "-q", "--agent", "any-other", "--occurrence", "k", "--", "true").want(0)
	if s := b.show("cut", "k"); s.State != "committed" {
		t.Errorf("after the next run of the device it is %s, want committed", s.State)
	}
}

func TestTheChildSeesNoCredential(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, common.get(t).Endpoints())[0]
	must(t, os.WriteFile(h.path("canary-file"), []byte("canary-word\n"), 0o600))
	h.env = append(h.env, "SYNCNODE_USER=canary-user", "SYNCNODE_PASSWORD_FILE=canary-file", "ETCDCTL_USER=canary-etcdctl", "PLAIN=kept")
	p := h.call("exec", "-q", "--agent", "secret", "--occurrence", "k", "--", "sh", "-c", "env; tr '\\0' ' ' </proc/self/cmdline").want(0)
	if out := p.out.String(); strings.Contains(out, "canary") || !strings.Contains(out, "PLAIN=kept") {
		t.Errorf("the child sees\n%swant nothing of ours and all that is not", out)
	}
}
