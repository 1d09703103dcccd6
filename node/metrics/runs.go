package metrics

import (
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
)

// The outcomes of runs that a node was asked for.
const (
	Committed = "committed"    // the effect ran, and that was success
	Failed    = "failed"       // it ran, and that was none; also at its time limit, or as the node went down
	Lost      = "lost"         // it was stopped since its lease could not be trusted any more
	InDoubt   = "in_doubt"     // it may have run
	Unneeded  = "not_needed"   // committed earlier, or running elsewhere
	Busy      = "busy"         // not run: the agent was busy
	Gated     = "gated"        // not run: paused, or the recovery gate
	Before    = "failed_early" // not run: the run had failed earlier
	NotRun    = "not_run"      // not run: something failed before the start
)

// Outcomes are all there are.
func Outcomes() []string {
	return []string{Committed, Failed, Lost, InDoubt, Unneeded, Busy, Gated, Before, NotRun}
}

// outcome is what a result is counted as. What ran goes by how it ended, what did not by why.
func outcome(r dispatch.Result) string {
	switch {
	case r.State == coord.RunInDoubt, r.Ran == dispatch.Maybe:
		return InDoubt
	case r.Ran == dispatch.Yes && r.State == coord.RunCommitted:
		return Committed
	case r.Ran == dispatch.Yes && r.Cause == coord.CauseLost:
		return Lost
	case r.Ran == dispatch.Yes:
		return Failed
	}
	switch r.Code {
	case dispatch.ExitOK:
		return Unneeded
	case dispatch.ExitBusy:
		return Busy
	case dispatch.ExitGate:
		return Gated
	case dispatch.ExitFailed:
		return Before
	}
	return NotRun
}

// Ended counts a run that ended, or was not begun; ran is how long its effect ran, 0 if it did not. It is for dispatch.Config.Ended.
func (m *Metrics) Ended(j dispatch.Job, r dispatch.Result, ran time.Duration) {
	agent := m.label(j.Agent)
	m.runs.WithLabelValues(agent, outcome(r)).Inc()
	if ran > 0 {
		m.duration.WithLabelValues(agent).Observe(ran.Seconds())
	}
}

// LeaseLost counts a lease that somebody took. It is for hold.Config.Lost.
func (m *Metrics) LeaseLost(string) { m.lost.Inc() }

// Agents names those that the label agent may have: the ones of the configuration. Those that are no longer among them are
// forgotten.
func (m *Metrics) Agents(ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.agents
	m.agents = map[string]bool{}
	for _, id := range ids {
		m.agents[id] = true
		m.zeroAgent(id)
	}
	for id := range was {
		if !m.agents[id] {
			m.forget(id)
		}
	}
}

func (m *Metrics) zeroAgent(id string) {
	for _, o := range Outcomes() {
		m.runs.WithLabelValues(id, o)
	}
	m.duration.WithLabelValues(id)
}

func (m *Metrics) forget(id string) {
	of := map[string]string{"agent": id}
	m.runs.DeletePartialMatch(of)
	m.duration.DeletePartialMatch(of)
}

// label is the id if the configuration has it, else empty.
func (m *Metrics) label(agent string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agents[agent] {
		return agent
	}
	return ""
}
