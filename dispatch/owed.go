package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/coord"
)

// A debt is a lease that was not given back, because the coordinator did not answer. A program that ends pays by ending; one
// that lives on would hold the agent for ever.
type debt struct {
	agent string
	epoch coord.Epoch // 0: whatever a start that was given up may have been granted
}

func (d *Dispatcher) owe(agent string, epoch coord.Epoch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed[debt{agent, epoch}] = true
}

// repay gives back what is owed. What cannot be given back now is owed still, and keeps nothing else back.
func (d *Dispatcher) repay(ctx context.Context) error {
	var failed []error
	for _, o := range d.debts() {
		err := d.cfg.Coordinator.Release(ctx, o.agent, d.cfg.Device, o.epoch)
		if err != nil && !isVerdict(err) {
			failed = append(failed, fmt.Errorf("give back the lease of agent %s: %w", o.agent, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		d.mu.Lock()
		delete(d.owed, o)
		d.mu.Unlock()
	}
	return errors.Join(failed...)
}

func (d *Dispatcher) debts() []debt {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]debt, 0, len(d.owed))
	for o := range d.owed {
		all = append(all, o)
	}
	return all
}
