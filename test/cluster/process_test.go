package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/syncnode/syncnode/test/cluster"
)

// as makes a process of this test binary in a role of TestMain.
func as(ctx context.Context, t *testing.T, role string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	return cmd
}

func TestAProgramThatForgetsRunMemberIsRefused(t *testing.T) {
	t.Parallel()
	out, err := as(bounded(t), t, "forgetful").Output()
	if string(out) != "true\n" || err != nil {
		t.Errorf("got %q, %v; want ErrNoMain", out, err)
	}
}

// parent starts a cluster, pauses a member, says where the members are and waits to be killed.
func parent() {
	c, err := cluster.Start(context.Background(), cluster.Config{})
	if err == nil {
		err = c.Pause(1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := range c.Members() {
		pid, _ := c.PID(i)
		fmt.Println(pid)
	}
	time.Sleep(time.Hour)
}

func TestMembersEndWithAParentThatIsKilledThePausedOneToo(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("outside Linux a paused member outlives its parent")
	}
	cmd := as(bounded(t), t, "parent")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 3 && lines.Scan(); {
		var pid int
		if _, err := fmt.Sscan(lines.Text(), &pid); err != nil {
			t.Errorf("not a process id: %q", lines.Text())
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		if gone(pid) {
			t.Errorf("member %d was gone before its parent was killed", pid)
		}
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if len(pids) != 3 {
		t.Fatalf("the parent started %d members", len(pids))
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("member %d to end", pid), func() bool { return gone(pid) })
	}
}

// gone says whether pid has ended, reaped or not.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	i := bytes.LastIndexByte(stat, ')')
	return i < 0 || i+2 >= len(stat) || stat[i+2] == 'Z'
}

// Not parallel: another cluster might be given the port that this one gave back.
func TestAClusterEndsWithItsContextAndLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Config{Members: 1})
	must(t, err)
	endpoint, err := url.Parse(c.MemberEndpoint(0))
	must(t, err)
	cancel()
	c.Close() // waits for the end that the context began
	if c.Running(0) {
		t.Error("the member runs")
	}
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Errorf("the temporary directory: %v", err)
	}
	if conn, err := net.Dial("tcp", endpoint.Host); err == nil {
		conn.Close()
		t.Error("the endpoint is open")
	}
	if _, err := c.NewClientProxy(); err == nil {
		t.Error("a closed cluster gave a proxy out")
	}
	if err := c.Restart(bounded(t), 0); err == nil {
		t.Error("a member of a closed cluster was started")
	}
}

func TestAGivenDirectoryIsKeptAndServesTheNextCluster(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	dir := t.TempDir()
	c, err := cluster.Start(ctx, cluster.Config{Members: 1, Dir: dir})
	must(t, err)
	_, err = c.Client(t).Put(ctx, "k", "v")
	must(t, err)
	c.Close()
	if _, err := os.Stat(filepath.Join(dir, "m0", "data")); err != nil {
		t.Error(err)
	}
	next := cluster.New(t, cluster.Config{Members: 1, Dir: dir})
	if got, err := next.Client(t).Get(ctx, "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the next cluster reads %v, %v", got, err)
	}
	if c, err := cluster.Start(ctx, cluster.Config{Dir: dir}); err == nil {
		c.Close()
		t.Error("three members were started on the data of another cluster")
	}
}

func TestWhatIsWrongWithAConfigIsSaid(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]cluster.Config{
		"a negative number of members":        {Members: -1},
		"an election within a few heartbeats": {TickMS: 100, ElectionMS: 200},
		"a program that is no member":         {Members: 1, Executable: "/bin/true"},
		"a program that does not exist":       {Members: 1, Executable: "/nonexistent"},
	} {
		if c, err := cluster.Start(bounded(t), cfg); err == nil {
			c.Close()
			t.Errorf("%s was accepted", name)
		}
	}
}
