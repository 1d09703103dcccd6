package metrics

import (
	"errors"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncnode/syncnode/node/events"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/node/output"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/schedule/due"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

// Holds is a hold.Table.
type Holds interface{ Held() []hold.Info }

// A Log is a session.
type Log interface{ Status() session.Status }

// An Output is an output.Store.
type Output interface{ Stats() output.Stats }

// A Ring is an events.Ring.
type Ring interface{ Stats() events.Stats }

// Work is a work.Worker.
type Work interface {
	// Missed counts what was missed, by agents of the configuration.
	Missed() map[string]map[due.Reason]int
}

// Sources are asked at each scrape, and must answer from memory. What is nil is shown as 0.
type Sources struct {
	Holds  Holds
	Log    Log
	Output Output
	Events Ring
	Work   Work
}

// Attach has scrapes ask these from now on. Later ones take the place of earlier ones of their kind.
func (m *Metrics) Attach(s Sources) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Holds != nil {
		m.sources.Holds = s.Holds
	}
	if s.Log != nil {
		m.sources.Log = s.Log
	}
	if s.Output != nil {
		m.sources.Output = s.Output
	}
	if s.Work != nil {
		m.sources.Work = s.Work
	}
	if s.Events != nil {
		m.sources.Events = s.Events
	}
}

// Detach has scrapes ask nobody any more.
func (m *Metrics) Detach() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = Sources{}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

var (
	held       = desc("leases_held", "Leases of agents that this node holds.")
	untrusted  = desc("leases_unverified", "Leases of agents that this node holds and could not renew in time.")
	running    = desc("runs_in_progress", "Runs that have an agent of this node: claimed, or begun and not ended.")
	missed     = desc("occurrences_missed_total", "Occurrences of schedules that were not begun, by why.", "agent", "reason")
	ops        = desc("log_ops", "Ops that this device's log holds, by who wrote them; those in a checkpoint count.", "author")
	quarantine = desc("chains_quarantined", "Chains of other devices that are not taken further, by whether that lasts until a person decides.", "permanent")
	parked     = desc("ops_parked", "Ops that are held and not folded yet, by what they wait for.", "reason")
	frozen     = desc("device_frozen", "Whether this device's id must not be used any more: 0 or 1.")
	outBytes   = desc("output_stored_bytes", "Bytes that the output of commands takes on this node.")
	outRuns    = desc("output_attempts", "Attempts of which output is kept.")
	outLost    = desc("output_lost_bytes_total", "Bytes of output that could not be kept; those cut by the limit of a run are not among them.")
	published  = desc("events_published_total", "Events for watchers of the API.")
	dropped    = desc("events_gaps_total", "How often a watcher was told that it lost events.")
)

// scraped is what is asked when it is looked at.
type scraped struct{ m *Metrics }

// Describe implements prometheus.Collector.
func (s *scraped) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{held, untrusted, running, missed, ops, quarantine, parked, frozen, outBytes, outRuns, outLost, published, dropped} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scraped) Collect(ch chan<- prometheus.Metric) {
	s.m.mu.Lock()
	from, agents := s.m.sources, slices.Collect(maps.Keys(s.m.agents))
	s.m.mu.Unlock()
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	l := leasesOf(from.Holds)
	gauge(held, l.held)
	gauge(untrusted, l.untrusted)
	gauge(running, l.running)
	for agent, reasons := range missedBy(from.Work, agents) {
		for _, r := range due.Reasons() {
			count(missed, float64(reasons[r]), agent, string(r))
		}
	}
	c := chainsOf(from.Log)
	gauge(ops, c.own, "self")
	gauge(ops, c.peers, "peers")
	gauge(quarantine, c.lasting, "true")
	gauge(quarantine, c.passing, "false")
	gauge(parked, c.forTime, "time")
	gauge(parked, c.forKey, "key")
	gauge(frozen, c.frozen)
	var o output.Stats
	if from.Output != nil {
		o = from.Output.Stats()
	}
	gauge(outBytes, int(o.Bytes))
	gauge(outRuns, o.Attempts)
	count(outLost, float64(o.Lost))
	var e events.Stats
	if from.Events != nil {
		e = from.Events.Stats()
	}
	count(published, float64(e.Published))
	count(dropped, float64(e.Gaps))
}

// missedBy is what was missed by agent: none of those that are not heard of.
func missedBy(w Work, agents []string) map[string]map[due.Reason]int {
	all := map[string]map[due.Reason]int{}
	for _, id := range agents {
		all[id] = nil
	}
	if w != nil {
		maps.Copy(all, w.Missed())
	}
	return all
}

type leases struct{ held, untrusted, running int }

func leasesOf(h Holds) (l leases) {
	if h == nil {
		return l
	}
	for _, i := range h.Held() {
		l.held++
		if !i.Trusted {
			l.untrusted++
		}
		if i.Run != "" {
			l.running++
		}
	}
	return l
}

type chains struct{ own, peers, lasting, passing, forTime, forKey, frozen int }

func chainsOf(log Log) (c chains) {
	if log == nil {
		return c
	}
	st := log.Status()
	for device, at := range st.Held {
		if device == st.Device {
			c.own += length(at)
		} else {
			c.peers += length(at)
		}
	}
	for _, q := range st.Quarantined {
		if q.Permanent {
			c.lasting++
		} else {
			c.passing++
		}
	}
	for _, p := range st.Parked {
		if errors.Is(p.Reason, seal.ErrNoKey) || errors.Is(p.Reason, seal.ErrVersion) {
			c.forKey += p.Ops
		} else {
			c.forTime += p.Ops
		}
	}
	if st.Frozen != nil {
		c.frozen = 1
	}
	return c
}

// length is how many ops there are up to a position.
func length(at oplog.Pos) int { return int(at.Seq) + 1 }
