package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/session"
)

// The results of rounds. Those of a settling are the first two.
const (
	resultOK          = "ok"
	resultError       = "error"
	resultFull        = "full"
	resultUnreachable = "unreachable"
	resultFrozen      = "frozen"
	resultDamaged     = "damaged"
)

func pumpResult(err error) string {
	switch {
	case err == nil:
		return resultOK
	case errors.Is(err, session.ErrFrozen):
		return resultFrozen
	case errors.Is(err, relay.ErrCorrupt):
		return resultDamaged
	case errors.Is(err, relay.ErrFull):
		return resultFull
	case errors.Is(err, relay.ErrNotSent), errors.Is(err, relay.ErrIndeterminate), errors.Is(err, context.DeadlineExceeded):
		return resultUnreachable
	}
	return resultError
}

// Relays names the relays that the node pumps, so that each is shown before its first pump.
func (m *Metrics) Relays(names []string) {
	for _, name := range names {
		for _, r := range []string{resultOK, resultError, resultFull, resultUnreachable, resultFrozen, resultDamaged} {
			m.pumps.WithLabelValues(name, r)
		}
		m.pumped.WithLabelValues(name)
		m.full.WithLabelValues(name)
		m.offered.WithLabelValues(name)
		m.taken.WithLabelValues(name)
	}
}

// Pumped implements node.Observer.
func (m *Metrics) Pumped(name string, r session.Report, err error) {
	result := pumpResult(err)
	m.pumps.WithLabelValues(name, result).Inc()
	if err == nil {
		m.pumped.WithLabelValues(name).Set(seconds(time.Now()))
	}
	if result != resultUnreachable { // else nothing was learned of it
		m.full.WithLabelValues(name).Set(truth(errors.Is(err, relay.ErrFull)))
	}
	m.offered.WithLabelValues(name).Add(float64(r.Pushed.Accepted))
	m.taken.WithLabelValues(name).Add(float64(r.Pulled))
}

// Settled implements node.Observer.
func (m *Metrics) Settled(s dispatch.Settling, doubts int, err error) {
	m.settled.WithLabelValues("finished").Add(float64(s.Finished))
	m.settled.WithLabelValues("void").Add(float64(s.Voided))
	m.doubt.Set(float64(doubts))
	if err == nil || s.Owed > 0 {
		m.owed.Set(float64(s.Owed))
	}
	if err != nil {
		m.settlings.WithLabelValues(resultError).Inc()
		return
	}
	m.settlings.WithLabelValues(resultOK).Inc()
	m.answered.Set(seconds(time.Now()))
}

// Gate implements node.Observer.
func (m *Metrics) Gate(set bool) {
	m.gate.Set(truth(set))
	m.answered.Set(seconds(time.Now()))
}

// Lease implements node.Observer.
func (m *Metrics) Lease(held bool) {
	m.ownLease.Set(truth(held))
	if held {
		m.answered.Set(seconds(time.Now()))
	}
}
