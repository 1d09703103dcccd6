package main

import (
	"maps"
	"slices"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/node/config"
	"github.com/syncnode/syncnode/node/metrics"
	"github.com/syncnode/syncnode/session"
)

var _ node.Observer = (*metrics.Metrics)(nil)

// measured is the API with the metrics of this process.
func (d *door) measured(cfg api.Config) *api.Server {
	d.shown = metrics.New(version)
	cfg.Metrics, cfg.Answered = d.shown.Handler(), d.shown.Request
	server := api.New(cfg)
	d.shown.Routes(server.Patterns())
	d.shown.Attach(metrics.Sources{Events: d.events})
	return server
}

// show has the metrics show this node until it is told to stop; sess is nil without a journal.
func (s *serving) show(sess *session.Session, c *clients) (stop func()) {
	m := s.door.shown
	m.Relays(slices.Sorted(maps.Keys(s.relays)))
	from := metrics.Sources{Holds: c.holds, Events: s.door.events}
	if sess != nil {
		from.Log = sess
	}
	if c.work != nil {
		from.Work = c.work
	}
	s.conf.mu.Lock()
	defer s.conf.mu.Unlock()
	if s.conf.output != nil {
		from.Output = s.conf.output
	}
	s.conf.taken = func(f *config.File) {
		var ids []string
		for _, a := range f.Agents {
			ids = append(ids, a.ID)
		}
		m.Agents(ids)
	}
	s.conf.taken(s.conf.file)
	m.Attach(from)
	return m.Detach
}
