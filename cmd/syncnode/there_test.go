package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord/etcd"
)

func TestWhatOnlyLooksMakesNoLedger(t *testing.T) {
	t.Parallel()
	endpoints := common.get(t).Endpoints()
	h := spaced(hosts(t, 1, endpoints), "nothing-there")[0]
	for _, verb := range [][]string{
		{"run", "list"}, {"run", "show", "--agent", "a", "--occurrence", "k"}, {"lease", "list"}, {"agent", "show", "a"}, {"recover", "status"},
		{"run", "retry", "--agent", "a", "--occurrence", "k", "--reason", "x"},
		{"agent", "pause", "a", "--reason", "x"}, {"agent", "resume", "a"}, {"recover", "end", "--reason", "x"},
	} {
		h.call(verb...).want(1, "no ledger of namespace nothing-there in etcd ", "none was made")
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	must(t, err)
	defer c.Close()
	made, err := c.Get(t.Context(), etcd.Prefix("nothing-there"), clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	if made.Count != 0 {
		t.Errorf("%d keys were made", made.Count)
	}
	h.call("exec", "-q", "--agent", "a", "--occurrence", "k", "--", "true").want(0)
	h.call("run", "list").want(0).prints("committed")
}

// A gate in an etcd that was made for it would stop nobody, and say that nothing begins.
func TestAGateNeedsALedger(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, nil)[0]
	for _, verb := range [][]string{
		{"agent", "pause", "a", "--reason", "x"}, {"agent", "resume", "a"}, {"recover", "begin", "--reason", "x"}, {"recover", "end", "--reason", "x"},
	} {
		h.call(verb...).want(1, "no data directory "+h.dir, "none was made", "give --endpoints")
	}
	if made, err := os.ReadDir(h.dir); err != nil || len(made) > 0 {
		t.Errorf("made %v (%v)", made, err)
	}
}

func TestVerbsOfPeopleUseTheNodeOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	h := spaced(hosts(t, 1, common.get(t).Endpoints()), "by-the-node")[0]
	h.answering()
	bare := h
	bare.args = []string{"--namespace", h.namespace()}
	bare.call("agent", "pause", "a", "--reason", "x").want(0)
	bare.call("agent", "show", "a").want(0).prints("paused")
	h.call("exec", "--node", "none", "--agent", "a", "--occurrence", "k", "--", "true").want(113, "paused")
	bare.call("agent", "resume", "a").want(0)
	h.call("exec", "-q", "--node", "none", "--agent", "a", "--occurrence", "k", "--", "true").want(0)
	bare.call("run", "list").want(0).prints("committed")
	if _, err := os.Stat(h.dir + "/syncnode/embedded"); err == nil {
		t.Error("an embedded etcd was made beside the node's")
	}
}

// A question that was not answered did nothing; what changes something may have done it.
func TestOnlyAChangeMayHaveBeenDoneByANodeThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	h := near(t, hosts(t, 1, nil)[0])
	must(t, os.MkdirAll(filepath.Dir(h.socket()), 0o700))
	mute, err := net.Listen("unix", h.socket())
	must(t, err)
	t.Cleanup(func() { mute.Close() })
	go func() {
		for {
			c, err := mute.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	if p := h.call("agent", "list").want(1, "did not answer"); strings.Contains(p.err.String(), "may have been done") {
		t.Error(p.err.String())
	}
	h.call("agent", "trigger", "a").want(1, "did not answer", "it may have been done")
}
