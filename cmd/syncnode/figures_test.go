package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/api"
)

// scrape is the page of metrics of the host's node.
func (h host) scrape() string {
	h.t.Helper()
	c, err := newNodeClient("unix:"+h.socket(), "")
	must(h.t, err)
	defer c.http.CloseIdleConnections()
	req, err := http.NewRequestWithContext(bounded(h.t), "GET", "http://node/metrics", nil)
	must(h.t, err)
	resp, err := c.http.Do(req)
	must(h.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(h.t, err)
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("a scrape got %d: %s", resp.StatusCode, text)
	}
	return string(text)
}

func TestANodeShowsWhatItDoesToAScrape(t *testing.T) {
	t.Parallel()
	h := near(t, spaced(hosts(t, 1, common.get(t).Endpoints()), "scrape")[0])
	file := filepath.Join(h.dir, "fleet.yaml")
	must(t, os.WriteFile(file, []byte("version: 1\nagents:\n  mail:\n    command: [\"true\"]\n"), 0o600))
	n := h.answering("--config", file)
	h.run("tenant-secret", "k")
	must(t, h.ask("POST", "/v1/agents/mail/trigger", map[string]any{}, &api.Triggered{}))
	for _, series := range []string{
		`syncnode_runs_total{agent="mail",outcome="committed"} 1`,
		`syncnode_runs_total{agent="",outcome="committed"} 1`,
		`syncnode_occurrences_missed_total{agent="mail",reason="busy"} 0`,
		`syncnode_node_lease_held 1`,
		`syncnode_relay_pumps_total{relay="etcd",result="full"} 0`,
		`syncnode_log_ops{author="self"} 4`,
		`syncnode_http_requests_total{code="2xx",method="POST",route="/v1/agents/{id}/trigger"} 1`,
		`syncnode_output_lost_bytes_total 0`,
	} {
		eventually(t, series, func() bool { return strings.Contains(h.scrape(), series+"\n") })
	}
	for _, late := range []string{`syncnode_relay_last_success_timestamp_seconds{relay="etcd"} 0`, "syncnode_backend_last_success_timestamp_seconds 0"} {
		eventually(t, "no "+late, func() bool { return !strings.Contains(h.scrape(), late+"\n") })
	}
	if text := h.scrape(); strings.Contains(text, "secret") || strings.Contains(text, "r1-") {
		t.Errorf("the page names what a client chose, or a run:\n%s", text)
	}
	n.stops()
}
