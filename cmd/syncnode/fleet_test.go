package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/thorough"
)

// storm is for tests that start many processes at once: one of them at a time.
var storm sync.Mutex

func TestFiftyExecsOfOneOccurrenceFromFiveHostsRunTheCommandOnce(t *testing.T) {
	t.Parallel()
	storm.Lock()
	defer storm.Unlock()
	fleet := hosts(t, 5, common.get(t).Endpoints())
	ended := make([]*process, thorough.Of(50, 20))
	together(len(ended), func(i int) {
		ended[i] = fleet[i%5].call("exec", "--agent", "once", "--occurrence", "k", "--ttl", "60s", "--", "sh", "-c", "echo ran >>ran; sleep 0.2")
	})
	for _, p := range ended {
		p.want(0)
	}
	if got := fleet[0].read("ran"); got != "ran\n" {
		t.Errorf("the command left %q, want one run", got)
	}
	if s := fleet[1].show("once", "k"); s.State != "committed" || len(s.Attempts) != 1 {
		t.Errorf("the ledger shows %+v, want one committed attempt", s)
	}
}

func TestFiftyOccurrencesThatWaitRunFiftyTimesOneByOneAtDenseEpochs(t *testing.T) {
	t.Parallel()
	storm.Lock()
	defer storm.Unlock()
	fleet := hosts(t, 5, common.get(t).Endpoints())
	n := thorough.Of(50, 10)
	ended := make([]*process, n)
	together(n, func(i int) {
		ended[i] = fleet[i%5].call("exec", "--agent", "queue", "--occurrence", occ(i), "--if-held", "wait", "--ttl", "60s", "--",
			"sh", "-c", "mkdir alone || echo overlap >>overlap; echo $SYNCNODE_RUN_EPOCH >>epochs; echo $SYNCNODE_RUN_OCCURRENCE >>occurrences; rmdir alone")
	})
	for _, p := range ended {
		p.want(0)
	}
	fleet[0].notThere("overlap")
	epochs := make([]int, 0, n)
	for _, line := range fleet[0].lines("epochs") {
		e, err := strconv.Atoi(line)
		must(t, err)
		epochs = append(epochs, e)
	}
	slices.Sort(epochs)
	for i, e := range epochs {
		if e != i+1 {
			t.Fatalf("epochs %v, want 1 to %d without a gap", epochs, n)
		}
	}
	names := fleet[0].lines("occurrences")
	slices.Sort(names)
	if len(epochs) != n || len(slices.Compact(names)) != n {
		t.Errorf("%d runs of %d occurrences, want %d of %d", len(epochs), len(names), n, n)
	}
}

func TestFiftyJobsAtOnceOnOneDataDirectoryAllCommit(t *testing.T) {
	t.Parallel()
	storm.Lock()
	defer storm.Unlock()
	h := hosts(t, 1, common.get(t).Endpoints())[0]
	n := thorough.Of(50, 10)
	ended := make([]*process, n)
	together(n, func(i int) {
		ended[i] = h.call("exec", "-q", "--agent", "cron-"+occ(i), "--occurrence", "k", "--ttl", "60s", "--", "sh", "-c", "echo ran >>ran")
	})
	for _, p := range ended {
		p.want(0)
	}
	if got := len(h.lines("ran")); got != n {
		t.Errorf("%d commands ran, want %d", got, n)
	}
	bare := h
	bare.args = nil
	p := bare.call("log", "verify").want(0)
	if want := fmt.Sprintf("%d own", 2*n); !strings.Contains(p.out.String(), want) {
		t.Errorf("log verify says\n%swant %s ops: a pending and an outcome of each job", p.out.String(), want)
	}
}

func TestTwoAgentsRunAtTheSameTimeOnOneDataDirectory(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, common.get(t).Endpoints())[0]
	// Each goes on only once the other has begun.
	first := h.start("exec", "-q", "--agent", "pair-a", "--occurrence", "k", "--", "sh", "-c", "touch a; until test -e b; do sleep 0.2; done")
	second := h.start("exec", "-q", "--agent", "pair-b", "--occurrence", "k", "--", "sh", "-c", "touch b; until test -e a; do sleep 0.2; done")
	first.want(0)
	second.want(0)
}

func TestAFailedRunIsNotRunByTheNextHostUnlessItMayRetry(t *testing.T) {
	t.Parallel()
	fleet := hosts(t, 3, common.get(t).Endpoints())
	fleet[0].call("exec", "--agent", "fails", "--occurrence", "k", "--", "sh", "-c", "exit 1").want(1, "was run: failed (exit 1)")
	fleet[1].call("exec", "--agent", "fails", "--occurrence", "k", "--", "touch", "ran").want(115, "failed before", "it was not run again")
	fleet[1].notThere("ran")
	fleet[2].call("exec", "--agent", "fails", "--occurrence", "k", "--if-failed", "retry", "--", "touch", "ran").want(0, "was run: committed at epoch 2")
	if fleet[0].show("fails", "k").State != "committed" {
		t.Error("the retried run is not committed")
	}
}

func TestAPodWithoutAJournalLeavesItsRecordInTheLedgerOnly(t *testing.T) {
	t.Parallel()
	fleet := hosts(t, 2, common.get(t).Endpoints())
	pod := fleet[0]
	pod.call("exec", "--no-journal", "--device-id", "job-7f2c", "--agent", "pod", "--occurrence", "k", "--", "touch", "ran").want(0, "was run: committed")
	if s := fleet[1].show("pod", "k"); s.State != "committed" || s.Device != "pod.job-7f2c" {
		t.Errorf("the ledger shows %+v, want committed by pod.job-7f2c", s)
	}
	left, err := filepath.Glob(filepath.Join(pod.dir, "syncnode", "*"))
	must(t, err)
	for _, name := range left {
		if filepath.Base(name) != "proc" {
			t.Errorf("it left %s", name)
		}
	}
	fleet[1].call("exec", "--no-journal", "--agent", "pod", "--occurrence", "k", "--", "touch", "again").want(0, "already committed")
	fleet[1].notThere("again")
}

func TestTermWhileWaitingEndsTheWaitAndNothingIsRun(t *testing.T) {
	t.Parallel()
	fleet := hosts(t, 2, common.get(t).Endpoints())
	holder := fleet[0].start("exec", "-q", "--agent", "busy", "--occurrence", "one", "--", "sh", "-c", beats)
	fleet[0].pid("c")
	fleet[1].call("exec", "--agent", "busy", "--occurrence", "two", "--", "touch", "ran").want(110, "was not run: the agent is busy", "--if-held wait")
	fleet[1].call("exec", "--agent", "busy", "--occurrence", "two", "--if-held", "wait=100ms", "--", "touch", "ran").want(110, "was not run", "in vain")
	waiter := fleet[1].start("exec", "--agent", "busy", "--occurrence", "two", "--if-held", "wait", "--", "touch", "ran")
	fleet[1].connected(waiter.cmd.Process.Pid)
	must(t, waiter.cmd.Process.Signal(syscall.SIGTERM))
	waiter.want(143, "not run")
	fleet[1].notThere("ran")
	fleet[0].touch("go")
	holder.want(0)
}

// connected waits until a process has opened its device, which it does before it looks at a run.
func (h host) connected(pid int) {
	h.t.Helper()
	eventually(h.t, "a waiting process", func() bool { return slices.Contains(locksOf(pid), "proc") })
}

func TestTheChildEndsWithItsKilledWrapper(t *testing.T) {
	t.Parallel()
	h := hosts(t, 1, common.get(t).Endpoints())[0]
	p := h.start("exec", "-q", "--agent", "orphan", "--occurrence", "k", "--", "sh", "-c", "trap '' TERM; "+beats)
	child := h.pid("c")
	eventually(t, "a beat", func() bool { return !h.lastBeat().IsZero() })
	must(t, p.cmd.Process.Kill())
	killed := time.Now()
	eventually(t, "the end of the child", func() bool { return !alive(child) })
	if late := h.lastBeat().Sub(killed); late > 2*time.Second {
		t.Errorf("the child went on for %s after its wrapper was killed, want at most 2 s", late)
	}
}
