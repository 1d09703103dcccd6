package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

func TestATroubleWithASealSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  error
		text string
	}{
		{seal.ErrNoKey, "bring the fleet's key file here"},
		{seal.ErrVersion, "upgrade this node"},
		{seal.ErrClear, "--seal-accept-clear"},
		{seal.ErrTampered, "somebody changed it"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(map[string]relay.Relay{"r": &plain{}})
			w.script(func(context.Context, relay.Relay) (session.Report, error) {
				return session.Report{}, fmt.Errorf("%w: %w", session.ErrRelayBehind, &seal.BlobError{Err: c.err})
			})
			stop := w.run(t)
			bubble.Pass(time.Minute)
			stop()
			if log := w.log.String(); strings.Count(log, c.text) != 1 {
				t.Errorf("%v: want %q once in\n%s", c.err, c.text, log)
			}
		})
	}
}
