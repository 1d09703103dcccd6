// Package metrics shows how a node fares to a Prometheus that scrapes it.
//
// # Guarantees
//
// A scrape asks nobody: no etcd, no relay and no disk, so it answers while those do not. What is counted is there from the
// start, with 0, so that an increase is seen from its first. Names, types and labels are those of testdata/metrics.txt, and
// docs/operations.md says what they mean.
//
// No command, run id, occurrence, attempt, path or address is ever a label. The label agent has only ids of the
// node's configuration, see Agents; what concerns any other agent is counted with an empty one, which Prometheus takes for
// none: clients may name as many agents as they like.
//
// # Not promised
//
// That counters survive a restart, or that one node knows of another: each shows what it saw itself. A gauge that is
// a last time is 0 until it happened in this process.
//
// # Concurrency
//
// A Metrics may be used by several goroutines at once. What is told to it never waits.
package metrics

import (
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are those of one process, under whatever ids its device has one after another.
type Metrics struct {
	reg *prometheus.Registry

	runs     *prometheus.CounterVec   // agent, outcome
	duration *prometheus.HistogramVec // agent
	lost     prometheus.Counter

	ownLease prometheus.Gauge
	answered prometheus.Gauge
	gate     prometheus.Gauge

	settlings *prometheus.CounterVec // result
	settled   *prometheus.CounterVec // how
	owed      prometheus.Gauge
	doubt     prometheus.Gauge

	pumps   *prometheus.CounterVec // relay, result
	pumped  *prometheus.GaugeVec   // relay
	full    *prometheus.GaugeVec   // relay
	offered *prometheus.CounterVec // relay
	taken   *prometheus.CounterVec // relay

	requests *prometheus.CounterVec   // route, method, code
	took     *prometheus.HistogramVec // route, method

	mu      sync.Mutex // guards the rest
	agents  map[string]bool
	sources Sources
}

// New returns the metrics of a program of this version.
func New(version string) *Metrics {
	m := &Metrics{reg: prometheus.NewRegistry(), agents: map[string]bool{}}
	build := m.gauges("build_info", "Which program this is: 1.", "version", "goversion")
	build.WithLabelValues(version, runtime.Version()).Set(1)

	m.runs = m.counters("runs_total", "Runs that this node was asked for, by how that ended.", "agent", "outcome")
	m.duration = m.histogram("run_duration_seconds", "How long effects ran.",
		[]float64{.1, 1, 10, 60, 300, 1800, 7200, 43200}, "agent")
	m.lost = m.counter("leases_lost_total", "Leases of agents that somebody else took from this node.")

	m.ownLease = m.gauge("node_lease_held", "Whether this node holds the lease that shows that its device is served: 0 or 1.")
	m.answered = m.gauge("backend_last_success_timestamp_seconds", "When etcd last answered a question of this node's loops; 0: not yet.")
	m.gate = m.gauge("recovery_gate", "Whether the recovery gate was set when it was last looked at: 0 or 1.")

	m.settlings = m.counters("settlings_total", "Rounds that bring the ledger up to what this device knows, by result.", "result")
	m.settled = m.counters("attempts_settled_total", "Attempts of earlier processes that were settled: finished by their outcome, or void since they never started.", "how")
	m.owed = m.gauge("outcomes_unrecorded", "Outcomes that stand in this device's journal and not in the ledger yet, at the last round.")
	m.doubt = m.gauge("runs_in_doubt", "Runs of this device that are in doubt, at the last round.")

	m.pumps = m.counters("relay_pumps_total", "Exchanges with a relay, by result.", "relay", "result")
	m.pumped = m.gauges("relay_last_success_timestamp_seconds", "When a relay was last pumped without an error; 0: not yet.", "relay")
	m.full = m.gauges("relay_full", "Whether the last exchange found the relay full: 0 or 1.", "relay")
	m.offered = m.counters("relay_ops_pushed_total", "Ops that a relay took from this device.", "relay")
	m.taken = m.counters("relay_ops_pulled_total", "Ops that this device took from a relay.", "relay")

	m.requests = m.counters("http_requests_total", "Requests to the API, by route and class of status.", "route", "method", "code")
	m.took = m.histogram("http_request_duration_seconds", "How long the API took to answer what is no stream.",
		[]float64{.005, .025, .1, .5, 2, 10, 60}, "route", "method")

	m.reg.MustRegister(&scraped{m: m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.zero()
	return m
}

const namespace = "syncnode"

// Diskless is for a node that takes no lease of its own and does not search the ledger for its runs: what would be 0 for ever, and read as
// lost or as no doubt, is not shown.
func (m *Metrics) Diskless() {
	m.reg.Unregister(m.ownLease)
	m.reg.Unregister(m.doubt)
}

// zero makes every counter that can be known beforehand begin at 0. Those of agents, relays and routes begin when
// they are told.
func (m *Metrics) zero() {
	m.zeroAgent("")
	for _, r := range []string{resultOK, resultError} {
		m.settlings.WithLabelValues(r)
	}
	m.settled.WithLabelValues("finished")
	m.settled.WithLabelValues("void")
}

// Handler answers a scrape, in the format that is asked for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{})
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.reg.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.reg.MustRegister(c)
	return c
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	m.reg.MustRegister(g)
	return g
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.reg.MustRegister(g)
	return g
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.reg.MustRegister(h)
	return h
}

// seconds is an instant as Prometheus counts it.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
