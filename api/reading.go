package api

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// ReadTime bounds what only reads, in the silence of the etcd: a GET is refused (unavailable, executed no) at most that long after
// the etcd fell silent. As long as it answers, a long list may take RequestTime.
const ReadTime = 5 * time.Second

// askEvery is how long a read may take until the etcd is asked whether it is there, and then again. The rest of ReadTime is for its answer.
const askEvery = 3 * time.Second

// errSilent ends reads whose etcd does not answer.
var errSilent = fmt.Errorf("the etcd of the node did not answer within %s", ReadTime)

// reading runs a read, and ends its context once the etcd does not answer.
func reading[O any](ctx context.Context, n *Node, read func(context.Context) (*O, error)) (*O, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel(nil)
	asking.Go(func() {
		for pause(ctx, askEvery) == nil {
			probe, done := context.WithTimeout(ctx, ReadTime-askEvery)
			if n.Probe(probe) != nil && probe.Err() != nil { // any other error is an answer
				cancel(errSilent)
			}
			done()
		}
	})
	out, err := read(ctx)
	if err != nil && context.Cause(ctx) == errSilent {
		return nil, problem("unavailable", "%v: %s", errSilent, strings.TrimSuffix(err.Error(), ": "+errSilent.Error()))
	}
	return out, err
}

// pause waits, and says why it ended early.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
