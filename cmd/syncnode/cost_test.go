package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// requests are those that the members of a cluster were asked, by method.
func requests(t *testing.T, c *cluster.Cluster) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, endpoint := range c.Endpoints() {
		resp, err := http.Get(endpoint + "/metrics")
		must(t, err)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if _, labels, ok := strings.Cut(name, "grpc_server_started_total{"); ok {
				_, method, _ := strings.Cut(labels, `grpc_method="`)
				method, _, _ = strings.Cut(method, `"`)
				n, err := strconv.ParseFloat(value, 64)
				must(t, err)
				all[method] += int(n)
			}
		}
		must(t, errors.Join(lines.Err(), resp.Body.Close()))
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	return all
}

// docs/operations.md tells what an exec asks of etcd.
func TestAnExecAsksEtcdAtMostTenTimesAndOfACommittedRunFive(t *testing.T) {
	thorough.Only(t)
	c := lone.alone(t)
	h := hosts(t, 1, c.Endpoints())[0]
	asked := func(occurrence string) int {
		t.Helper()
		before := requests(t, c)
		h.call("exec", "-q", "--agent", "asking", "--occurrence", occurrence, "--", "true").want(0)
		n, what := 0, map[string]int{}
		for method, after := range requests(t, c) {
			if d := after - before[method]; d > 0 {
				n, what[method] = n+d, d
			}
		}
		t.Logf("exec of %s: %v", occurrence, what)
		return n
	}
	asked("warm")
	fresh, again := 100, 100
	for i := range 5 { // a call that is slow on a busy machine is sent once more
		fresh = min(fresh, asked(occ(i)))
		again = min(again, asked(occ(i)))
	}
	if fresh == 0 || fresh > 10 {
		t.Errorf("an exec made %d requests, want at most 10", fresh)
	}
	if again == 0 || again > 5 {
		t.Errorf("an exec of a committed run made %d requests, want at most 5", again)
	}
}
