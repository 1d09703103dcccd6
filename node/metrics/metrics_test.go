package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node/events"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/node/metrics"
	"github.com/syncnode/syncnode/node/output"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/schedule/due"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

var update = flag.Bool("update", false, "write the list of metrics anew")

// page is what a scrape gets.
func page(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("a scrape got %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// families are ours on the page, by name.
func families(t *testing.T, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(page(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		if !strings.HasPrefix(name, "syncnode_") {
			delete(all, name)
		}
	}
	if len(all) < 20 {
		t.Fatalf("%d metrics: the page was lost", len(all))
	}
	return all
}

// whole is a node of two agents, that has all there is to show.
func whole() *metrics.Metrics {
	m := metrics.New("v0-test")
	m.Agents([]string{"invoices", "mail"})
	m.Relays([]string{"etcd", "dir"})
	m.Routes([]string{"GET /v1/runs", "POST /v1/runs"})
	m.Request("GET /v1/runs", 200, 0)
	return m
}

func value(t *testing.T, m *metrics.Metrics, series string) float64 {
	t.Helper()
	for line := range strings.Lines(page(t, m)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			var v float64
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Errorf("there is no %s", series)
	return -1
}

func wants(t *testing.T, m *metrics.Metrics, all map[string]float64) {
	t.Helper()
	for series, want := range all {
		if got := value(t, m, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

func list(all map[string]*dto.MetricFamily) string {
	var lines []string
	for name, f := range all {
		labels := map[string]bool{}
		for _, one := range f.Metric {
			for _, l := range one.Label {
				labels[l.GetName()] = true
			}
		}
		line := name + " " + strings.ToLower(f.GetType().String())
		for _, l := range slices.Sorted(func(yield func(string) bool) {
			for l := range labels {
				if !yield(l) {
					return
				}
			}
		}) {
			line += " " + l
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestMetricsAreThoseOfTheList(t *testing.T) {
	m := whole()
	m.Request("GET /v1/runs", 200, time.Second)
	got := list(families(t, m))
	const golden = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("metrics are\n%s\nwant those of %s\n%s\nalerts and dashboards of others use them; if that is meant, run this test with -update", got, golden, want)
	}
}

func TestEveryMetricIsDocumentedAndNoOther(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(syncnode_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = true
	}
	m := whole()
	m.Request("GET /v1/runs", 200, time.Second)
	all := families(t, m)
	for name := range all {
		if !documented[name] {
			t.Errorf("%s is not in docs/operations.md", name)
		}
	}
	for name := range documented {
		if all[name] == nil {
			t.Errorf("docs/operations.md has %s, which there is not", name)
		}
	}
}

func TestMetricsKeepTheConventions(t *testing.T) {
	var all []*dto.MetricFamily
	for _, f := range families(t, whole()) {
		all = append(all, f)
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestEveryCounterBeginsAtZero(t *testing.T) {
	m := metrics.New("v0-test")
	m.Agents([]string{"invoices"})
	m.Relays([]string{"etcd"})
	m.Routes([]string{"GET /v1/runs"})
	all := families(t, m)
	for name, f := range all {
		if f.GetType() != dto.MetricType_COUNTER {
			continue
		}
		if len(f.Metric) == 0 {
			t.Errorf("%s is not there before it happens", name)
		}
		for _, one := range f.Metric {
			if one.Counter.GetValue() != 0 {
				t.Errorf("%s begins at %v", name, one.Counter.GetValue())
			}
		}
	}
	for name, want := range map[string]int{
		"syncnode_runs_total": 2 * len(metrics.Outcomes()), "syncnode_occurrences_missed_total": len(due.Reasons()),
		"syncnode_relay_pumps_total": 6, "syncnode_http_requests_total": 6, "syncnode_settlings_total": 2,
	} {
		if got := len(all[name].GetMetric()); got != want {
			t.Errorf("%s has %d series from the start, want %d", name, got, want)
		}
	}
}

func TestClientsAddNoSeriesAndNothingOfARunIsALabel(t *testing.T) {
	m := whole()
	count := func() (n int) {
		for _, f := range families(t, m) {
			n += len(f.Metric)
		}
		return n
	}
	before := count()
	for i := range 100 {
		j := dispatch.Job{Agent: fmt.Sprintf("tenant-%d", i), Run: fmt.Sprintf("r1-secret%d", i), Occurrence: fmt.Sprintf("key:secret%d", i)}
		m.Ended(j, dispatch.Result{Ran: dispatch.Yes, State: coord.RunCommitted, Attempt: fmt.Sprintf("secret%d", i), Message: "secret", Err: errors.New("secret")}, time.Second)
		m.LeaseLost(j.Agent)
		m.Request("", 404, 0)
	}
	if after := count(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
	if text := page(t, m); strings.Contains(text, "secret") || strings.Contains(text, "tenant") {
		t.Errorf("the page names what clients chose:\n%s", text)
	}
	wants(t, m, map[string]float64{
		`syncnode_runs_total{agent="",outcome="committed"}`:                100,
		`syncnode_http_requests_total{code="4xx",method="",route="other"}`: 100,
		`syncnode_leases_lost_total`:                                       100,
		`syncnode_run_duration_seconds_count{agent=""}`:                    100,
	})
}

func TestAgentsThatLeftTheConfigurationAreForgotten(t *testing.T) {
	m := whole()
	m.Ended(dispatch.Job{Agent: "mail"}, dispatch.Result{Ran: dispatch.Yes, State: coord.RunCommitted}, time.Second)
	m.Ended(dispatch.Job{Agent: "invoices"}, dispatch.Result{Ran: dispatch.Yes, State: coord.RunCommitted}, time.Second)
	m.Agents([]string{"invoices"})
	if strings.Contains(page(t, m), `"mail"`) {
		t.Error("an agent that is not there any more is shown")
	}
	wants(t, m, map[string]float64{`syncnode_runs_total{agent="invoices",outcome="committed"}`: 1})
}

func TestEachRunIsCountedByHowItEnded(t *testing.T) {
	for want, results := range map[string][]dispatch.Result{
		metrics.Committed: {{Ran: dispatch.Yes, State: coord.RunCommitted}, {Ran: dispatch.Yes, State: coord.RunCommitted, Code: dispatch.ExitUnsettled, Unsettled: true}},
		metrics.Failed: {{Ran: dispatch.Yes, State: coord.RunFailed, Code: 3, Cause: coord.CauseExit}, {Ran: dispatch.Yes, State: coord.RunFailed, Code: dispatch.ExitTimeout, Cause: coord.CauseTimeout},
			{Ran: dispatch.Yes, State: coord.RunFailed, Code: 143, Cause: coord.CauseDrain}},
		metrics.Lost:     {{Ran: dispatch.Yes, State: coord.RunFailed, Code: dispatch.ExitLost, Cause: coord.CauseLost}},
		metrics.InDoubt:  {{Ran: dispatch.Maybe, State: coord.RunInDoubt, Code: dispatch.ExitInDoubt}, {Ran: dispatch.Yes, State: coord.RunInDoubt, Code: dispatch.ExitInDoubt}},
		metrics.Unneeded: {{Ran: dispatch.No, State: coord.RunCommitted}, {Ran: dispatch.No, State: coord.RunRunning}},
		metrics.Busy:     {{Ran: dispatch.No, Code: dispatch.ExitBusy}},
		metrics.Gated:    {{Ran: dispatch.No, Code: dispatch.ExitGate}},
		metrics.Before:   {{Ran: dispatch.No, Code: dispatch.ExitFailed, State: coord.RunFailed}},
		metrics.NotRun:   {{Ran: dispatch.No, Code: dispatch.ExitNotRun}, {Ran: dispatch.No, Code: dispatch.ExitNotFound}, {Ran: dispatch.No, Code: dispatch.ExitSignal + 15}},
	} {
		m := whole()
		for _, r := range results {
			m.Ended(dispatch.Job{Agent: "mail"}, r, 0)
		}
		wants(t, m, map[string]float64{`syncnode_runs_total{agent="mail",outcome="` + want + `"}`: float64(len(results)), `syncnode_run_duration_seconds_count{agent="mail"}`: 0})
	}
}

func TestEachExchangeIsCountedByItsTrouble(t *testing.T) {
	for want, err := range map[string]error{
		"ok": nil, "full": fmt.Errorf("push: %w", relay.ErrFull), "frozen": &session.FrozenError{}, "damaged": relay.ErrCorrupt,
		"unreachable": context.DeadlineExceeded, "error": errors.New("something"),
	} {
		m := whole()
		m.Pumped("etcd", session.Report{Pulled: 2, Pushed: relay.Pushed{Accepted: 3}}, err)
		full, ok := 0.0, want == "ok"
		if want == "full" {
			full = 1
		}
		wants(t, m, map[string]float64{
			`syncnode_relay_pumps_total{relay="etcd",result="` + want + `"}`: 1,
			`syncnode_relay_ops_pulled_total{relay="etcd"}`:                  2,
			`syncnode_relay_ops_pushed_total{relay="etcd"}`:                  3,
			`syncnode_relay_full{relay="etcd"}`:                              full,
		})
		if got := value(t, m, `syncnode_relay_last_success_timestamp_seconds{relay="etcd"}`); (got > 0) != ok {
			t.Errorf("after %s the last success is %v", want, got)
		}
	}
}

func TestARelayStaysFullWhileItCannotBeReached(t *testing.T) {
	m := whole()
	m.Pumped("etcd", session.Report{}, relay.ErrFull)
	m.Pumped("etcd", session.Report{}, relay.ErrNotSent)
	wants(t, m, map[string]float64{`syncnode_relay_full{relay="etcd"}`: 1})
	m.Pumped("etcd", session.Report{}, nil)
	wants(t, m, map[string]float64{`syncnode_relay_full{relay="etcd"}`: 0})
}

func TestWhatTheLedgerLacksIsShownAlsoWhileItCannotBeAsked(t *testing.T) {
	m := whole()
	m.Settled(dispatch.Settling{Owed: 2}, 1, errors.New("unreachable"))
	wants(t, m, map[string]float64{"syncnode_outcomes_unrecorded": 2, "syncnode_runs_in_doubt": 1, "syncnode_backend_last_success_timestamp_seconds": 0, `syncnode_settlings_total{result="error"}`: 1})
	m.Settled(dispatch.Settling{}, 1, errors.New("nothing could be read"))
	wants(t, m, map[string]float64{"syncnode_outcomes_unrecorded": 2})
	m.Settled(dispatch.Settling{Finished: 2, Voided: 1}, 0, nil)
	wants(t, m, map[string]float64{"syncnode_outcomes_unrecorded": 0, "syncnode_runs_in_doubt": 0, `syncnode_attempts_settled_total{how="finished"}`: 2,
		`syncnode_attempts_settled_total{how="void"}`: 1, `syncnode_settlings_total{result="ok"}`: 1})
	if value(t, m, "syncnode_backend_last_success_timestamp_seconds") == 0 {
		t.Error("etcd answered, and it is not shown")
	}
}

func TestANodeWithoutADiskShowsNothingThatItDoesNotKnow(t *testing.T) {
	m := metrics.New("v0-test")
	m.Diskless()
	text := page(t, m)
	for _, gone := range []string{"syncnode_node_lease_held", "syncnode_runs_in_doubt"} {
		if strings.Contains(text, gone) {
			t.Errorf("%s is shown", gone)
		}
	}
	if !strings.Contains(text, "syncnode_outcomes_unrecorded 0") {
		t.Error("what it owes the ledger is not shown")
	}
}

type table []hold.Info

func (t table) Held() []hold.Info { return t }

type log session.Status

func (l log) Status() session.Status { return session.Status(l) }

type work map[string]map[due.Reason]int

func (w work) Missed() map[string]map[due.Reason]int { return w }

type store output.Stats

func (s store) Stats() output.Stats { return output.Stats(s) }

func TestAScrapeShowsHowThingsAreAndAsksNobodyBeforeThereIsANode(t *testing.T) {
	m := whole()
	wants(t, m, map[string]float64{"syncnode_leases_held": 0, `syncnode_log_ops{author="self"}`: 0, "syncnode_output_lost_bytes_total": 0, "syncnode_events_gaps_total": 0})
	ring := events.New()
	for range events.Size + 1 {
		ring.Publish(events.Event{})
	}
	ring.Find("another-1")
	m.Attach(metrics.Sources{Events: ring})
	m.Attach(metrics.Sources{
		Holds: table{{Agent: "mail", Trusted: true, Run: "r"}, {Agent: "x"}},
		Log: log{Device: "a", Held: oplog.Frontier{"a": {Seq: 4}, "b": {Seq: 9}, "c": {Seq: 0}}, Frozen: &session.FrozenError{},
			Quarantined: []session.Quarantine{{Device: "b", Permanent: true}, {Device: "c"}},
			Parked:      []session.ParkedChain{{Ops: 3}, {Ops: 2, Reason: seal.ErrNoKey}}},
		Output: store{Attempts: 1, Bytes: 4096, Lost: 7},
		Work:   work{"mail": {due.Busy: 3}},
	})
	all := map[string]float64{
		"syncnode_leases_held": 2, "syncnode_leases_unverified": 1, "syncnode_runs_in_progress": 1,
		`syncnode_log_ops{author="self"}`: 5, `syncnode_log_ops{author="peers"}`: 11, "syncnode_device_frozen": 1,
		`syncnode_chains_quarantined{permanent="true"}`: 1, `syncnode_chains_quarantined{permanent="false"}`: 1,
		`syncnode_ops_parked{reason="time"}`: 3, `syncnode_ops_parked{reason="key"}`: 2,
		`syncnode_occurrences_missed_total{agent="mail",reason="busy"}`: 3, `syncnode_occurrences_missed_total{agent="invoices",reason="window"}`: 0,
		"syncnode_output_attempts": 1, "syncnode_output_stored_bytes": 4096, "syncnode_output_lost_bytes_total": 7,
		"syncnode_events_published_total": events.Size + 1, "syncnode_events_gaps_total": 1,
	}
	wants(t, m, all)
	m.Detach()
	wants(t, m, map[string]float64{"syncnode_leases_held": 0})
}

func TestTheNodeLeaseAndTheGateAreShown(t *testing.T) {
	m := whole()
	m.Lease(true)
	m.Gate(true)
	wants(t, m, map[string]float64{"syncnode_node_lease_held": 1, "syncnode_recovery_gate": 1})
	m.Lease(false)
	m.Gate(false)
	wants(t, m, map[string]float64{"syncnode_node_lease_held": 0, "syncnode_recovery_gate": 0})
}

// Beside the tests of values: a page that is asked for while everything is told.
func TestScrapesAndNewsMayComeAtOnce(t *testing.T) {
	m := whole()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 50 {
			m.Agents([]string{"mail", fmt.Sprint(i)})
			m.Ended(dispatch.Job{Agent: "mail"}, dispatch.Result{}, time.Second)
			m.Attach(metrics.Sources{Holds: table{}})
			m.Pumped("etcd", session.Report{}, nil)
		}
	}()
	var b bytes.Buffer
	for range 5 {
		b.WriteString(page(t, m))
	}
	<-done
}
