package relay

import (
	"context"

	"github.com/syncnode/syncnode/oplog"
)

// A Checkpoint is folded state at a frontier, as the relay keeps it. The relay does not read Body.
type Checkpoint struct {
	Hash     string // of Body, and its name
	Author   string
	Frontier oplog.Frontier
	Body     []byte
}

// A Collection says what a collection dropped, per device, and the floor after it.
type Collection struct {
	Dropped map[string]int
	Floor   oplog.Frontier
}

// A Collector is a relay that keeps checkpoints and drops what they cover. A relay without it keeps every op.
type Collector interface {
	// PutCheckpoint stores a checkpoint. A frontier that the relay's own chains contradict is refused.
	PutCheckpoint(ctx context.Context, device string, c Checkpoint) error
	// Checkpoint is the newest one; false if there is none.
	Checkpoint(ctx context.Context) (Checkpoint, bool, error)
	// Collect drops ops that are stable and inside the newest checkpoint, in two phases, and nothing else.
	Collect(ctx context.Context) (Collection, error)
}
