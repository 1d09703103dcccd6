// Package guard refuses, at a resource, what comes with an older epoch than the resource has seen.
//
// The resource is whatever a run acts upon: a database, a service. A run hands it its agent, its epoch and its run id,
// and the resource is the only place that can stop an effect which was allowed and then delayed.
//
// # Guarantees
//
// A [Store] admits an agent's epochs in an order that never goes down: once it admitted one, it admits no older one.
// The same epoch is admitted again, since a run may act more than once.
//
// In the transaction of the effect, by [In] or by the statement [AdmitSQL] itself, that is a promise about effects: none of an older epoch is
// committed after one of a newer. The row of the agent stays locked until the transaction ends, so that effects of one
// agent wait for each other, and what is rolled back was never seen. The admission comes first in its transaction.
//
// [Guard.Handler] in front of an effect promises less: no call is admitted after one of a newer epoch. A call that was admitted, and was
// then slow, may still act after it. Beyond that, a call whose Idempotency-Key was seen before is not executed again, as long
// as the key is remembered: until this process ends, or [Config].Keep is used up by later ones. Where an effect must happen
// once however often it is asked for, the run id has to be unique in the effect's own table.
//
// Epochs of an agent are those of one namespace on one etcd. Give each namespace a Store or table of its own. A ledger that was rebuilt from
// nothing may count below what the resource has seen, and is refused; a resource put back from a backup has forgotten
// the newest epochs, and admits what it has forgotten.
//
// A guard does not ask who is calling. Whoever may call can shut an agent out by a great epoch: authenticate first.
//
// # Failure
//
// An error is never an admission. It matches [ErrStale] if a newer epoch was seen: trying again cannot help. Any other
// means that the store could not say, and that the epoch may or may not be recorded as seen; asking again is safe.
//
// # Concurrency
//
// Everything here may be used by several goroutines at once; what [In] returns as far as its argument may be.
package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/syncnode/syncnode/internal/ident"
)

// MaxEpoch is the greatest epoch there is: what JSON numbers hold exactly.
const MaxEpoch = 1<<53 - 1

// ErrStale means that the resource has seen a newer epoch of the agent. The run that asks has lost its lease.
var ErrStale = errors.New("guard: a newer epoch was seen")

// A StaleError says which epoch of which agent was refused. It matches ErrStale.
type StaleError struct {
	Agent string
	Epoch int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: epoch %d of agent %s was refused, nothing was executed", ErrStale, e.Epoch, e.Agent)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// A Store remembers the newest epoch of each agent.
type Store interface {
	// Admit refuses an epoch below the newest one it has admitted for the agent, with an error that matches ErrStale, and
	// otherwise makes epoch the newest; both in one step, whoever else asks meanwhile.
	Admit(ctx context.Context, agent string, epoch int64) error
}

// check refuses what no run hands over.
func check(agent string, epoch int64) error {
	if err := ident.Check("agent", agent); err != nil {
		return err
	}
	if epoch < 1 || epoch > MaxEpoch {
		return fmt.Errorf("epoch %d of agent %s: must be from 1 to %d", epoch, agent, int64(MaxEpoch))
	}
	return nil
}

// A Memory is a Store that ends with its process. After a restart it has seen nothing: an older epoch that comes before any newer
// one is admitted then. It keeps one number per agent for ever. Its zero value is ready.
type Memory struct {
	mu   sync.Mutex
	seen map[string]int64
}

var _ Store = (*Memory)(nil)

// Admit implements Store.
func (m *Memory) Admit(_ context.Context, agent string, epoch int64) error {
	if err := check(agent, epoch); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch < m.seen[agent] {
		return &StaleError{Agent: agent, Epoch: epoch}
	}
	if m.seen == nil {
		m.seen = map[string]int64{}
	}
	m.seen[agent] = epoch
	return nil
}
