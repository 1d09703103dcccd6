package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/test/cluster"
)

// A leader that is gone costs time and no lease: whoever renews keeps its epoch, nobody else gets it, and work goes on.
func TestLeasesSurviveTheEndOfTheLeader(t *testing.T) {
	t.Parallel()
	cl := cluster.New(t, cluster.Config{})
	ns := namespace()
	holder, other := process(t, cl.Client(t), ns), process(t, cl.Client(t), ns)
	const class = 30 * time.Second // longer than a busy machine takes to elect
	l, err := holder.Acquire(bounded(t), coord.Request{Agent: "a", Device: "d1", TTL: class})
	must(t, err)
	keeper := coord.Keep(bounded(t), holder, l, coord.KeepOptions{})
	defer keeper.Stop()

	for _, outage := range []struct {
		name       string
		end, again func(leader int) error
	}{
		{"killed", cl.Kill, func(i int) error { return cl.Restart(bounded(t), i) }},
		{"paused", cl.Pause, cl.Resume},
		{"cut off", func(i int) error { cl.Isolate(i); return nil }, func(int) error { cl.Heal(); return nil }},
	} {
		t.Run(outage.name, func(t *testing.T) {
			leader, err := cl.WaitLeader(bounded(t))
			must(t, err)
			must(t, outage.end(leader))
			agent := "work-" + strings.ReplaceAll(outage.name, " ", "-")
			for i := range 5 {
				b := question(coord.Lease{Agent: agent, Device: "d2"}, fmt.Sprint(i))
				got, _, err := other.Start(bounded(t), coord.Request{Agent: agent, Device: "d2", TTL: class}, b)
				must(t, err)
				if got.Epoch != coord.Epoch(i+1) {
					t.Errorf("epoch %d, want %d", got.Epoch, i+1)
				}
				b.Lease = got
				finished, released := other.Complete(bounded(t), outcome(b, coord.Committed), got)
				must(t, finished)
				must(t, released)
				if attempts(t, other, b) != "committed" {
					t.Error("the outcome is lost")
				}
			}
			_, err = other.Acquire(bounded(t), coord.Request{Agent: "a", Device: "d2", TTL: class})
			wantErr(t, err, coord.ErrHeld)
			var got coord.Lease
			eventually(t, "the holder renews", func() bool {
				got, err = holder.Renew(bounded(t), "a", "d1", l.Epoch, class)
				return !errors.Is(err, coord.ErrNotSent)
			})
			must(t, err)
			if got.Epoch != l.Epoch || keeper.Context().Err() != nil {
				t.Errorf("the holder has %+v, its context says %v", got, context.Cause(keeper.Context()))
			}
			must(t, outage.again(leader))
			must(t, cl.WaitReady(bounded(t)))
		})
	}
}

func TestAGrantOutlastsAnOutageOfMoreThanOneRound(t *testing.T) {
	t.Parallel()
	cl := three(t)
	proxy, err := cl.NewClientProxy()
	must(t, err)
	t.Cleanup(proxy.Close)
	c := process(t, proxy.Client(t), namespace())
	const class = 2 * time.Second
	l, err := c.Acquire(bounded(t), coord.Request{Agent: "first", Device: "d", TTL: class})
	must(t, err)
	eventually(t, "the liveness needs a renewal before it takes another grant", func() bool { return time.Since(l.Sent) > class/3 })
	proxy.Blackhole()
	got := make(chan error, 1)
	ctx := bounded(t)
	go func() {
		_, err := c.Acquire(ctx, coord.Request{Agent: "second", Device: "d", TTL: class})
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("gave up though its context lives on: %v", err)
	case <-time.After(class):
	}
	proxy.Heal()
	must(t, <-got)
}

func TestAHolderThatIsCutOffKnowsBeforeAnotherIsGranted(t *testing.T) {
	t.Parallel()
	cl := three(t)
	ns := namespace()
	const class = 5 * time.Second // a third of it is what a busy machine has to end a context in
	for _, cut := range []string{"reset", "silent", "unheard"} {
		t.Run(cut, func(t *testing.T) {
			t.Parallel()
			proxy, err := cl.NewClientProxy()
			must(t, err)
			t.Cleanup(proxy.Close)
			holder, other := process(t, proxy.Client(t), ns), process(t, cl.Client(t), ns)
			agent := "a-" + cut
			l, err := holder.Acquire(bounded(t), coord.Request{Agent: agent, Device: "d1", TTL: class})
			must(t, err)
			keeper := coord.Keep(bounded(t), holder, l, coord.KeepOptions{})
			defer keeper.Stop()
			var ended atomic.Bool
			context.AfterFunc(keeper.Context(), func() { ended.Store(true) })
			must(t, keeper.Trusted())
			switch cut {
			case "reset":
				proxy.Cut()
			case "silent":
				proxy.Blackhole()
			case "unheard":
				proxy.BlackholeReplies()
			}
			for {
				_, err := other.Acquire(bounded(t), coord.Request{Agent: agent, Device: "d2", TTL: class})
				if err == nil {
					break
				}
				wantErr(t, err, coord.ErrHeld)
				must(t, other.AwaitFree(bounded(t), agent))
			}
			if !ended.Load() {
				t.Error("another was granted while the holder still trusted its lease")
			}
			if cause := context.Cause(keeper.Context()); !errors.Is(cause, coord.ErrUnverifiable) {
				t.Errorf("the holder's context ended by %v", cause)
			}
			proxy.Heal()
			eventually(t, "the holder reaches etcd again", func() bool {
				_, err = holder.Renew(bounded(t), agent, "d1", l.Epoch, class)
				return !errors.Is(err, coord.ErrNotSent)
			})
			wantErr(t, err, coord.ErrLost)
		})
	}
}

// Each copy of a request goes to another member, so that one that falls silent under a client costs a try. The client has no
// other way to find out: its pings are off.
func TestOneSilentMemberOfThreeFailsNoOperation(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	cl := cluster.New(t, cluster.Config{})
	client, err := Dial(bounded(t), DialConfig{Endpoints: cl.Endpoints(), KeepAliveTime: time.Hour})
	must(t, err)
	t.Cleanup(func() { client.Close() })
	c := process(t, client, namespace())
	for i := range cl.Members() {
		for range 2 * cl.Members() { // the client uses every connection
			_, _, err := c.Current(bounded(t), "a")
			must(t, err)
		}
		cl.BlackholeClient(i)
		for n := range 2 { // whichever member is asked first
			l, err := c.Acquire(bounded(t), request("a", "d1"))
			must(t, err)
			l, err = c.Renew(bounded(t), "a", "d1", l.Epoch, coord.MaxTTL) // on another liveness: under a new handle
			must(t, err)
			b := question(l, fmt.Sprint(i, n))
			_, err = c.Begin(bounded(t), b)
			must(t, err)
			must(t, c.Finish(bounded(t), outcome(b, coord.Committed)))
			if attempts(t, c, b) != "committed" {
				t.Error("the outcome is lost")
			}
			_, err = c.List(bounded(t), coord.Filter{})
			must(t, err)
			must(t, c.Release(bounded(t), "a", "d1", l.Epoch))
			_, err = Exists(bounded(t), client, namespace())
			must(t, err)
		}
		cl.HealClient(i)
	}
}

// A request that the network kept lands late, after its caller gave it up.
func TestARequestHeldByTheNetworkCannotLandAfterItWasGivenUp(t *testing.T) {
	cl := three(t)
	proxy, err := cl.NewClientProxy()
	must(t, err)
	t.Cleanup(proxy.Close)
	ns := namespace()
	c, other := process(t, proxy.Client(t), ns, func(cfg *Config) { cfg.Attempt = time.Minute }), process(t, cl.Client(t), ns)
	l, err := c.Acquire(bounded(t), coord.Request{Agent: "a", Device: "d1", TTL: coord.MaxTTL})
	must(t, err)
	b := question(l, "1")
	ctx, giveUp := context.WithCancelCause(bounded(t))
	proxy.HoldRequests()
	begun := make(chan error, 1)
	go func() { _, err := c.Begin(ctx, b); begun <- err }()
	must(t, proxy.WaitHeld(bounded(t), 1))
	giveUp(errGaveUp)
	wantErr(t, <-begun, coord.ErrIndeterminate)

	// The caller is gone; another process of the device settles for it.
	must(t, other.Cancel(bounded(t), b))
	must(t, proxy.Release(bounded(t)))
	if got := attempts(t, other, b); got != "void" {
		t.Errorf("attempts are %q", got)
	}
	_, err = c.Begin(bounded(t), b)
	wantErr(t, err, coord.ErrClosed)
}

// The message of a failed call names what was asked, of which agent, where, and what came back.
func TestADeadlineIsNeverTheWholeMessage(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	cl := three(t)
	ofNone := map[string]bool{"list": true, "list leases": true, "open": true, // of no agent
		"set the recovery gate": true, "lift the recovery gate": true, "read the recovery gate": true}
	for _, cut := range []string{"reset", "silent"} {
		proxy, err := cl.NewClientProxy()
		must(t, err)
		t.Cleanup(proxy.Close)
		c := process(t, proxy.Client(t), namespace(), func(cfg *Config) { cfg.Attempt = 50 * time.Millisecond })
		l, err := c.Acquire(bounded(t), coord.Request{Agent: "agent-7", Device: "d1", TTL: coord.MaxTTL})
		must(t, err)
		b := question(l, "1")
		theft := coord.Theft{Request: request("agent-7", "d1"), By: "ana", Reason: "x", Epoch: l.Epoch, Force: true}
		gate := coord.Gate{By: "ana", Reason: "x"}
		permission := coord.Resolution{Agent: "agent-7", Run: b.Run, Attempt: b.Attempt, By: "ana", Reason: "x"}
		decision := permission
		decision.As = coord.Void
		if proxy.Cut(); cut == "silent" {
			proxy.Heal()
			proxy.Blackhole()
		}
		for op, call := range map[string]func(context.Context) error{
			"acquire": func(ctx context.Context) error { _, err := c.Acquire(ctx, request("agent-7", "d1")); return err },
			"renew": func(ctx context.Context) error {
				_, err := c.Renew(ctx, "agent-7", "d1", 1, coord.MaxTTL)
				return err
			},
			"release":                func(ctx context.Context) error { return c.Release(ctx, "agent-7", "d1", 1) },
			"look":                   func(ctx context.Context) error { _, _, err := c.Current(ctx, "agent-7"); return err },
			"begin":                  func(ctx context.Context) error { _, err := c.Begin(ctx, b); return err },
			"finish":                 func(ctx context.Context) error { return c.Finish(ctx, outcome(b, coord.Committed)) },
			"cancel":                 func(ctx context.Context) error { return c.Cancel(ctx, b) },
			"resolve":                func(ctx context.Context) error { _, err := c.Resolve(ctx, decision); return err },
			"permit":                 func(ctx context.Context) error { _, err := c.Permit(ctx, permission); return err },
			"complete":               func(ctx context.Context) error { return errors.Join(c.Complete(ctx, outcome(b, coord.Committed), l)) },
			"steal":                  func(ctx context.Context) error { _, err := c.Steal(ctx, theft); return err },
			"evict":                  func(ctx context.Context) error { return c.Evict(ctx, theft) },
			"pause":                  func(ctx context.Context) error { return c.Pause(ctx, "agent-7", gate) },
			"resume":                 func(ctx context.Context) error { return c.Resume(ctx, "agent-7") },
			"set the recovery gate":  func(ctx context.Context) error { return c.SetRecovery(ctx, gate) },
			"lift the recovery gate": func(ctx context.Context) error { return c.LiftRecovery(ctx, gate) },
			"read the recovery gate": func(ctx context.Context) error { _, _, err := c.Recovery(ctx); return err },
			"list leases":            func(ctx context.Context) error { _, err := c.Leases(ctx); return err },
			"start": func(ctx context.Context) error {
				_, _, err := c.Start(ctx, request("agent-7", "d1"), question(coord.Lease{}, "2"))
				return err
			},
			"list": func(ctx context.Context) error { _, err := c.List(ctx, coord.Filter{}); return err },
			"open": func(ctx context.Context) error {
				_, err := Open(ctx, Config{Client: c.client, Namespace: "agent-7"})
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			err := call(ctx)
			cancel()
			if !errors.Is(err, coord.ErrNotSent) && !errors.Is(err, coord.ErrIndeterminate) {
				t.Errorf("%s, %s: %v does not say whether it happened", cut, op, err)
				continue
			}
			text := err.Error()
			if !strings.Contains(text, op) || !strings.Contains(text, proxy.Endpoints()[0]) || !ofNone[op] && !strings.Contains(text, "agent-7") {
				t.Errorf("%s, %s: the message says too little: %s", cut, op, text)
			}
		}
		proxy.Heal()
		must(t, c.Release(bounded(t), "agent-7", "d1", 0))
	}
}
