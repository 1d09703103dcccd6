package relaytest

import (
	"context"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// A FaultyCollector is a Faulty between a caller and a relay that collects. Its further calls have the names "checkpoint",
// "put-checkpoint", "seed" and "collect".
type FaultyCollector struct {
	*Faulty
	inner relay.Collector
}

var _ relay.Collector = (*FaultyCollector)(nil)

// NewFaultyCollector returns a relay that does nothing to a call yet. It panics if inner is no relay.Collector.
func NewFaultyCollector(inner relay.Relay) *FaultyCollector {
	return &FaultyCollector{Faulty: NewFaulty(inner), inner: inner.(relay.Collector)}
}

// PutCheckpoint implements relay.Collector.
func (f *FaultyCollector) PutCheckpoint(ctx context.Context, device string, c relay.Checkpoint) error {
	_, err := run(f.next("put-checkpoint", device, 0), func() (struct{}, error) { return struct{}{}, f.inner.PutCheckpoint(ctx, device, c) })
	return err
}

// Seed implements relay.Collector.
func (f *FaultyCollector) Seed(ctx context.Context, device string, c relay.Checkpoint, heads oplog.Heads) error {
	_, err := run(f.next("seed", device, 0), func() (struct{}, error) { return struct{}{}, f.inner.Seed(ctx, device, c, heads) })
	return err
}

// Checkpoint implements relay.Collector.
func (f *FaultyCollector) Checkpoint(ctx context.Context) (relay.Checkpoint, bool, error) {
	found := false
	c, err := run(f.next("checkpoint", "", 0), func() (c relay.Checkpoint, err error) {
		c, found, err = f.inner.Checkpoint(ctx)
		return c, err
	})
	return c, found && err == nil, err
}

// Collect implements relay.Collector.
func (f *FaultyCollector) Collect(ctx context.Context) (relay.Collection, error) {
	return run(f.next("collect", "", 0), func() (relay.Collection, error) { return f.inner.Collect(ctx) })
}
