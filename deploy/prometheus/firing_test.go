package prometheus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// A feed is what nodes show from minute 0 on, a sample a minute, and the minute from which on the alert fires: never, if it must
// not.
type feed struct {
	series string
	fires  int
}

const (
	never = -1
	watch = 90 // minutes
)

// feeds has for each alert what must raise it, and what is near to that and must not. Every node shows its counters from the
// beginning, at 0.
var feeds = map[string][]feed{
	"SyncnodeRunInDoubt": {
		{`syncnode_runs_in_doubt{instance="n1"} 0 0 1x90`, 2 + 5},
		{`syncnode_runs_in_doubt{instance="n1"} 0 0 1x3 0x90`, never}, // decided in time
	},
	"SyncnodeBackendUnreachable": {
		{`syncnode_backend_last_success_timestamp_seconds{instance="n1"} 0+60x5 300x90`, 8 + 1},
		{`syncnode_backend_last_success_timestamp_seconds{instance="n1"} 0x90`, 3 + 1}, // it never answered
		{`syncnode_backend_last_success_timestamp_seconds{instance="n1"} 0+60x5 300 300 480+60x90`, never},
	},
	"SyncnodeRelayNotPumped": {
		{`syncnode_relay_last_success_timestamp_seconds{instance="n1", relay="etcd"} 60x90`, 17 + 5},
		{`syncnode_relay_last_success_timestamp_seconds{instance="n1", relay="etcd"} 0x18 1140+60x90`, never},
	},
	"SyncnodeRelayFull": {
		{`syncnode_relay_full{instance="n1", relay="etcd"} 1x90`, 15},
		{`syncnode_relay_full{instance="n1", relay="etcd"} 1x14 0 1x10 0x90`, never}, // collection made room each time
	},
	"SyncnodeChainQuarantined": {
		{`syncnode_chains_quarantined{instance="n1", permanent="true"} 0 0 1x90`, 2},
		{`syncnode_chains_quarantined{instance="n1", permanent="true"} 0x90
		  syncnode_chains_quarantined{instance="n1", permanent="false"} 3x90`, never},
	},
	"SyncnodeChainStandsStill": {
		{`syncnode_chains_quarantined{instance="n1", permanent="false"} 1x90`, 60},
		{`syncnode_chains_quarantined{instance="n1", permanent="false"} 1x50 0x90
		  syncnode_chains_quarantined{instance="n1", permanent="true"} 1x90`, never},
	},
	"SyncnodeDeviceFrozen": {
		{`syncnode_device_frozen{instance="n1"} 1x90`, 5},
		{`syncnode_device_frozen{instance="n1"} 1x4 0x90`, never}, // it got a new id
	},
	"SyncnodeRecoveryGate": {
		{`syncnode_recovery_gate{instance="n1"} 0x90
		  syncnode_recovery_gate{instance="n2"} 0 0 0 1x90`, 3},
		{`syncnode_recovery_gate{instance="n1"} 0x90`, never},
	},
	"SyncnodeOccurrencesMissed": {
		{`syncnode_occurrences_missed_total{instance="n1", agent="a", reason="window"} 0x5 1x90`, 6},
		{`syncnode_occurrences_missed_total{instance="n1", agent="a", reason="busy"} 0x9 2x90`, 10},
		{`syncnode_occurrences_missed_total{instance="n1", agent="a", reason="overlap"} 0+1x90
		  syncnode_occurrences_missed_total{instance="n1", agent="a", reason="paused"} 0+1x90
		  syncnode_occurrences_missed_total{instance="n1", agent="a", reason="superseded"} 0+1x90
		  syncnode_occurrences_missed_total{instance="n1", agent="a", reason="window"} 7x90`, never}, // those of long ago are over
	},
	"SyncnodeOutcomesUnrecorded": {
		{`syncnode_outcomes_unrecorded{instance="n1"} 1x90`, 5},
		{`syncnode_outcomes_unrecorded{instance="n1"} 1x4 0 2x4 0x90`, never},
	},
	"SyncnodeLeaseLost": {
		{`syncnode_leases_lost_total{instance="n1", job="syncnode"} 0x3 1x90`, 4},
		{`syncnode_leases_lost_total{instance="n1", job="syncnode"} 0x90
		  syncnode_runs_total{instance="n1", job="syncnode", agent="a", outcome="lost"} 0x7 1x90`, 8},
		{`syncnode_leases_lost_total{instance="n1", job="syncnode"} 4x90
		  syncnode_runs_total{instance="n1", job="syncnode", agent="a", outcome="failed"} 0+1x90`, never},
	},
	"SyncnodeNodeLeaseLost": {
		{`syncnode_node_lease_held{instance="n1"} 1 0x90`, 1 + 5},
		{`syncnode_node_lease_held{instance="n1"} 0x4 1x90`, never}, // it starts
	},
	"SyncnodeOutputDropped": {
		{`syncnode_output_lost_bytes_total{instance="n1"} 0x2 4096x90`, 3},
		{`syncnode_output_lost_bytes_total{instance="n1"} 4096x90`, never},
	},
}

func TestEachAlertFiresWhenItShouldAndNotOtherwise(t *testing.T) {
	known := map[string]bool{}
	for _, r := range rules(t) {
		known[r.Alert] = true
		fires, quiet := 0, 0
		for i, f := range feeds[r.Alert] {
			if f.fires == never {
				quiet++
			} else {
				fires++
			}
			t.Run(fmt.Sprintf("%s/%d", r.Alert, i), func(t *testing.T) {
				shown(t, f.series)
				if got := firing(t, r, f.series); got != f.fires {
					t.Errorf("it fires from minute %d on, want %d (%d: never):\n%s", got, f.fires, never, f.series)
				}
			})
		}
		if fires == 0 || quiet == 0 {
			t.Errorf("%s is fed with %d series that must raise it and %d that must not: want both", r.Alert, fires, quiet)
		}
	}
	for alert := range feeds {
		if !known[alert] {
			t.Errorf("%s is fed, and is no alert", alert)
		}
	}
}

// firing is the minute from which on a Prometheus that is shown the series says that the alert fires: the rule has held, for one of its
// series, at each minute of `for`.
func firing(t *testing.T, r rulefmt.Rule, series string) int {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10000, Timeout: time.Minute})
	defer engine.Close()
	store, since := scraped(t, series), map[string]int{}
	for minute := range watch {
		query, err := engine.NewInstantQuery(t.Context(), store, nil, r.Expr, time.Unix(0, 0).Add(time.Duration(minute)*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		found, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		held := map[string]int{}
		for _, sample := range found {
			name := sample.Metric.String()
			held[name] = minute
			if began, ok := since[name]; ok {
				held[name] = began
			}
			if time.Duration(minute-held[name])*time.Minute >= time.Duration(r.For) {
				return minute
			}
		}
		since = held
		query.Close()
	}
	return never
}

// scraped is what a Prometheus has that scraped the series once a minute.
func scraped(t *testing.T, series string) storage.Queryable {
	t.Helper()
	var all []storage.Series
	for line := range strings.Lines(series) {
		name, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		var samples []chunks.Sample
		for minute, v := range values {
			samples = append(samples, sample{int64(minute) * time.Minute.Milliseconds(), v.Value})
		}
		all = append(all, storage.NewListSeries(name, samples))
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, s := range all {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
				found = append(found, s)
			}
		}
		return &seriesSet{found: found}
	}}}
}

// A seriesSet hands out series one after the other.
type seriesSet struct {
	found []storage.Series
	at    storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.found) == 0 {
		return false
	}
	s.at, s.found = s.found[0], s.found[1:]
	return true
}
func (s *seriesSet) At() storage.Series                { return s.at }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// A sample is a number at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// shown refuses a feed that no node could show.
func shown(t *testing.T, series string) {
	t.Helper()
	known := exported(t)
	for line := range strings.Lines(series) {
		at, _, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		has, ok := known[at.Get(labels.MetricName)]
		if !ok {
			t.Errorf("no node shows %s", at)
		}
		at.Range(func(l labels.Label) {
			if l.Name != labels.MetricName && l.Name != "instance" && l.Name != "job" && !slices.Contains(has, l.Name) {
				t.Errorf("%s has the label %s, which a node does not give it", at, l.Name)
			}
		})
	}
}
