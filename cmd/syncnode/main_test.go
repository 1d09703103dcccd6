package main

import (
	"flag"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// TestMain makes the test binary four programs: the tests, a member of an etcd cluster, under the name of
// syncnode on PATH the program itself, so that also a child of a run finds it, and an application of the API.
func TestMain(m *testing.M) {
	cluster.RunMember()
	// Most tests wait for processes of their own, and some for their turn; what the command line says wins.
	beside := "4"
	if thorough.Raced() {
		beside = "2"
	}
	if err := flag.Set("test.parallel", beside); err != nil {
		panic(err)
	}
	testscript.Main(suite{m}, map[string]func(){"syncnode": main, "application": application})
}

// A suite runs the tests and gives back what they share.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // under nohup or in the background, and children would inherit it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	defer closeShared()
	for _, kv := range os.Environ() { // looks reads flags of the program from this environment
		name, _, _ := strings.Cut(kv, "=")
		if kept := name == "SYNCNODE_CI" || name == "SYNCNODE_FULL"; strings.HasPrefix(name, "SYNCNODE_") && !kept {
			os.Unsetenv(name)
		}
	}
	return s.m.Run()
}
