package etcd

import (
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/coordtest"
	"github.com/syncnode/syncnode/internal/thorough"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	client := three(t).Client(t)
	open := func(*testing.T) coordtest.Backend {
		ns := namespace()
		var proved sync.Map
		return coordtest.Backend{
			// Nothing waits for the timeout on a machine that is not overloaded.
			Options: coordtest.Options{Timeout: 5 * time.Minute, Rounds: thorough.Of(0, 8)},
			Process: func(t testing.TB, device string) coord.Coordinator {
				return process(t, client, ns, func(cfg *Config) {
					cfg.Process.Host = device
					cfg.Dead = func(_ string, p coord.Process) bool {
						_, dead := proved.Load(p.PID)
						return dead
					}
				})
			},
			Crash:  func(_ testing.TB, c coord.Coordinator) { crash(c.(*Coordinator)) },
			Expire: func(t testing.TB, c coord.Coordinator) { expire(t, client, c.(*Coordinator)) },
			Prove:  func(_ testing.TB, c coord.Coordinator) { proved.Store(c.(*Coordinator).process.PID, true) },
		}
	}
	coordtest.Run(t, open)
	coordtest.RunRecovery(t, open)
}
