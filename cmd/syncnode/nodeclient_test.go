package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/api"
)

// said runs a verb in this process: its exit code and what it says.
func said(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), args, os.Stdin, &out, &out)
	return code, out.String()
}

// nodeWithoutEtcd answers what a node knows by itself, and nothing else.
func nodeWithoutEtcd(t *testing.T) (url string) {
	t.Helper()
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/node" {
			must(t, json.NewEncoder(w).Encode(api.NodeInfo{Device: "d", Namespace: "default"}))
			return
		}
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	}))
	t.Cleanup(func() { close(stop); s.Close() })
	return s.URL
}

func TestAVerbThroughANodeWaitsNoLongerThanBackendTimeoutAndSaysForWhat(t *testing.T) {
	t.Parallel()
	node := nodeWithoutEtcd(t)
	var all sync.WaitGroup
	defer all.Wait()
	for _, verb := range []string{"run list", "run show r1-" + strings.Repeat("a", 52), "agent show a", "agent list", "agent pause a --reason r"} {
		all.Go(func() {
			// The node itself answers well within it, also where many tests run.
			code, text := said(t, append(strings.Fields(verb), "--node", node, "--data-dir", t.TempDir(), "--backend-timeout", "3s")...)
			want := "node " + node + " answers, but the etcd behind it did not within 3s (--backend-timeout)"
			if verb == "agent list" { // it asks the node for more than the ledger
				want = "the node did not answer within 3s (--backend-timeout)"
			}
			if code != 1 || !strings.Contains(text, want) {
				t.Errorf("%s: %d, %s\nwant %s", verb, code, text, want)
			}
		})
	}
}

func TestANodeThatDoesNotAnswerIsNamedOnce(t *testing.T) {
	t.Parallel()
	gone := "unix:" + t.TempDir() + "/gone.sock"
	for _, verb := range []string{"ready", "run list", "agent list", "agent show a", "exec --agent a --occurrence 1 --backend-timeout 100ms -- true"} {
		args := strings.Fields(verb)
		at := len(args)
		if args[0] == "exec" {
			at = 1
		}
		args = append(args[:at:at], append([]string{"--node", gone, "--data-dir", t.TempDir()}, args[at:]...)...)
		if _, text := said(t, args...); strings.Count(text, gone) != 1 || !strings.Contains(text, "did not answer") {
			t.Errorf("%s says %s", verb, text)
		}
	}
}

func TestAServeThatDoesNotComeToServingSaysThatNothingWasStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/wrong.yaml", []byte("version: 1\nagentz: {}\n"), 0o600))
	for args, want := range map[string]int{
		"--data-dir /proc/nothing":                                                            1,
		"--data-dir " + dir + "/a --listen unix:/proc/nothing/s":                              1,
		"--data-dir " + dir + "/b --config " + dir + "/none.yaml":                             1,
		"--data-dir " + dir + "/b --config " + dir + "/wrong.yaml":                            2,
		"--data-dir " + dir + "/c --endpoints http://127.0.0.1:1 --backend-timeout 300ms":     1,
		"--data-dir " + dir + "/d --member-name other --member-cluster n1=http://127.0.0.1:1": 1,
	} {
		code, text := said(t, append([]string{"serve"}, strings.Fields(args)...)...)
		if code != want || strings.Count(text, "; nothing was started") != 1 || strings.Contains(text, ";;") || strings.Contains(text, "; \n") || strings.Contains(text, "; ;") {
			t.Errorf("serve %s: %d, want %d\n%s", args, code, want, text)
		}
		if strings.Contains(args, "member-name") && !strings.Contains(text, `member "other" is not in the cluster`) {
			t.Errorf("serve %s: %s", args, text)
		}
	}
}
