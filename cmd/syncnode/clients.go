package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/node/claim"
	"github.com/syncnode/syncnode/node/hold"
	"github.com/syncnode/syncnode/node/work"
)

// clients is what a node has for those who use it through the API.
type clients struct {
	holds *hold.Table
	desk  *claim.Desk
	work  *work.Worker // nil without a configuration
}

func (s *serving) clients(d *dispatch.Dispatcher) (*clients, error) {
	be := s.be
	holds, err := hold.New(hold.Config{Leases: be.coordinator, Device: be.device, Floor: be.floor, TTL: s.conf.ttl, Lost: s.door.shown.LeaseLost, Logger: s.log})
	if err != nil {
		return nil, err
	}
	desk, err := claim.New(claim.Config{
		Namespace: be.flags.namespace, Device: be.device, Dispatcher: d, Holds: claim.Over(holds), Ledger: be.coordinator,
		Events: s.door.events, Logger: s.log,
	})
	return &clients{holds: holds, desk: desk}, err
}

// together runs the node and its clients until ctx ends, or the node cannot go on. The node outlives its clients, so that
// its last pump has what they did.
func (s *serving) together(ctx context.Context, n *node.Node, c *clients) error {
	open, closing := context.WithCancel(ctx)
	defer closing()
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var node, used errgroup.Group
	node.Go(func() error {
		defer closing()
		return n.Run(living)
	})
	used.Go(func() error { return c.holds.Run(open) })
	used.Go(func() error { return c.desk.Run(open) })
	if c.work != nil {
		used.Go(func() error { return c.work.Run(open) })
		defer s.conf.works(nil, nil)
	}
	detach := s.door.server.Attach(s.behind(c))
	used.Wait()
	detach()
	end()
	return node.Wait()
}

// behind is the node as the API sees it.
func (s *serving) behind(c *clients) *api.Node {
	be := s.be
	n := &api.Node{
		Device: be.device, Namespace: be.flags.namespace, Generation: be.coordinator.Generation(), Endpoints: be.flags.endpoints,
		Desk: c.desk, Ledger: be.coordinator,
		Probe: func(ctx context.Context) error {
			_, _, err := be.coordinator.Current(ctx, node.Agent(be.device))
			return err
		},
		Mounted: s.shared(),
	}
	if c.work != nil {
		n.Agents = func() []api.Agent { return agentsOf(c.work, s.conf) }
		n.Trigger = func(ctx context.Context, agent, occurrence string) (api.Triggered, error) {
			return trigger(ctx, c.work, be.device, agent, occurrence)
		}
		n.Reload = func(ctx context.Context) (api.Reloaded, error) {
			done, err := s.conf.reload(ctx)
			if errors.Is(err, hold.ErrLeaving) {
				err = claim.ErrDraining
			}
			return done, err
		}
	}
	return n
}
