package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/ident"
)

const ttl = coord.DefaultTTL

func request(agent, device string) coord.Request {
	return coord.Request{Agent: agent, Device: device, TTL: ttl}
}

func runID(agent, occurrence string) string {
	return ident.RunID("test", agent, "key:"+occurrence)
}

// question asks under a lease for a run, anew each time.
func question(l coord.Lease, occurrence string) coord.Begin {
	return coord.Begin{Lease: l, Run: runID(l.Agent, occurrence), Occurrence: "key:" + occurrence, Attempt: coord.NewNonce(), Request: coord.NewNonce()}
}

func outcome(b coord.Begin, s coord.State) coord.Outcome {
	return coord.Outcome{Agent: b.Lease.Agent, Run: b.Run, Occurrence: b.Occurrence,
		Attempt: coord.Attempt{ID: b.Attempt, Device: b.Lease.Device, Epoch: b.Lease.Epoch, State: s}}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// attempts are the states of a run's attempts.
func attempts(t testing.TB, c *Coordinator, b coord.Begin) string {
	t.Helper()
	v, err := c.Look(bounded(t), coord.Question{Agent: b.Lease.Agent, Run: b.Run})
	must(t, err)
	var states []string
	for _, a := range v.Entry.Attempts {
		states = append(states, string(a.State))
	}
	return strings.Join(states, " ")
}

func TestLostAnswersAreSettledToExactlyOneGrant(t *testing.T) {
	client, kv := slow(t, three(t))
	ns := namespace()
	c, other := process(t, client, ns), process(t, three(t).Client(t), ns)
	for epoch := coord.Epoch(1); epoch <= 4; epoch++ { // the first one cold, with 0 to 3 answers lost
		kv.next(lose(int(epoch)))
		l, err := c.Acquire(bounded(t), request("a", "d1"))
		must(t, err)
		if l.Epoch != epoch {
			t.Fatalf("granted epoch %d, want %d", l.Epoch, epoch)
		}
		if seen, held, err := other.Current(bounded(t), "a"); err != nil || !held || seen.Epoch != epoch || seen.Handle != l.Handle {
			t.Fatalf("another sees %+v, %v, %v", seen, held, err)
		}
		kv.next(lose(2))
		must(t, c.Release(bounded(t), "a", "d1", l.Epoch))
	}
	kv.next(nil)
}

func TestLostAnswersOfARunAreSettledToOneAttempt(t *testing.T) {
	client, kv := slow(t, three(t))
	c := process(t, client, namespace())
	kv.next(lose(2))
	start := question(coord.Lease{Agent: "a", Device: "d1"}, "1")
	l, a, err := c.Start(bounded(t), request("a", "d1"), start)
	must(t, err)
	if l.Epoch != 1 || a.ID != start.Attempt || a.State != coord.Open {
		t.Fatalf("got %+v, %+v", l, a)
	}
	start.Lease = l
	kv.next(lose(1))
	finished, released := c.Complete(bounded(t), outcome(start, coord.Committed), l)
	must(t, finished)
	must(t, released)
	if got := attempts(t, c, start); got != "committed" {
		t.Errorf("attempts are %q", got)
	}

	kv.next(lose(1))
	l, err = c.Acquire(bounded(t), request("a", "d1"))
	must(t, err)
	kv.next(lose(2))
	begin := question(l, "2")
	_, err = c.Begin(bounded(t), begin)
	must(t, err)
	kv.next(lose(2))
	must(t, c.Finish(bounded(t), outcome(begin, coord.Failed)))
	if got := attempts(t, c, begin); got != "failed" {
		t.Errorf("attempts are %q", got)
	}
	kv.next(lose(2))
	again := question(l, "3")
	must(t, c.Cancel(bounded(t), again))
	if got := attempts(t, c, again); got != "void" {
		t.Errorf("attempts are %q", got)
	}
	kv.next(nil)
}

func TestAReplyLostByTheNetworkIsSettled(t *testing.T) {
	cl := three(t)
	proxy, err := cl.NewClientProxy()
	must(t, err)
	t.Cleanup(proxy.Close)
	c := process(t, proxy.Client(t), namespace())
	l, err := c.Acquire(bounded(t), request("a", "d1"))
	must(t, err)
	b := question(l, "1")
	proxy.DropNextReply("Txn") // a warm begin reads nothing before
	_, err = c.Begin(bounded(t), b)
	must(t, err)
	must(t, proxy.WaitDropped(bounded(t)))
	proxy.DropNextReply("Txn")
	must(t, c.Finish(bounded(t), outcome(b, coord.Committed)))
	must(t, proxy.WaitDropped(bounded(t)))
	if got := attempts(t, c, b); got != "committed" {
		t.Errorf("attempts are %q", got)
	}
	proxy.DropNextReply("Txn")
	must(t, c.Release(bounded(t), "a", "d1", l.Epoch))
	must(t, proxy.WaitDropped(bounded(t)))
	proxy.DropNextReply("LeaseGrant")
	_, err = c.Acquire(bounded(t), coord.Request{Agent: "a", Device: "d1", TTL: coord.MaxTTL})
	must(t, err)
	must(t, proxy.WaitDropped(bounded(t)))
}

func TestAnAcquireGivenUpLeavesNothingBehindAndItsStragglerCannotLand(t *testing.T) {
	for _, cold := range []bool{true, false} {
		client, kv := slow(t, three(t))
		ns := namespace()
		c, other := process(t, client, ns), process(t, three(t).Client(t), ns)
		if !cold {
			_, err := c.Acquire(bounded(t), request("warm", "d1"))
			must(t, err)
		}
		h := hold()
		kv.next(h.plan)
		_, err := c.Acquire(h.briefly(t), request("a", "d1"))
		wantErr(t, err, coord.ErrIndeterminate)
		if !strings.Contains(err.Error(), "acquire a") || !strings.Contains(err.Error(), "http://") || !errors.Is(err, errGaveUp) {
			t.Errorf("the message says too little: %v", err)
		}
		kv.next(nil)
		must(t, c.Release(bounded(t), "a", "d1", 0)) // waits for the poison in the background
		if n := h.deliver(t); n != 0 {
			t.Fatalf("cold %v: %d late copies were carried out", cold, n)
		}
		if l, held, err := other.Current(bounded(t), "a"); err != nil || held {
			t.Fatalf("cold %v: held by %+v, %v", cold, l, err)
		}
		if l, err := other.Acquire(bounded(t), request("a", "d2")); err != nil || l.Epoch != 1 {
			t.Fatalf("cold %v: got %+v, %v", cold, l, err)
		}
	}
}

func TestAnAcquireGivenUpThatHadBeenGrantedIsReleased(t *testing.T) {
	client, kv := slow(t, three(t))
	ns := namespace()
	c, other := process(t, client, ns), process(t, three(t).Client(t), ns)
	h := hold()
	kv.next(h.plan)
	_, err := c.Acquire(h.briefly(t), request("a", "d1"))
	wantErr(t, err, coord.ErrIndeterminate)
	if n := h.deliver(t); n != 1 {
		t.Fatalf("%d copies were carried out", n)
	}
	kv.next(nil)
	must(t, c.Release(bounded(t), "a", "d1", 0))
	if l, held, err := other.Current(bounded(t), "a"); err != nil || held || l.Epoch != 1 {
		t.Fatalf("got %+v, %v, %v", l, held, err)
	}
}

func TestAStartGivenUpIsRepeatedOrCancelled(t *testing.T) {
	client, kv := slow(t, three(t))
	c := process(t, client, namespace())
	for i, landed := range []bool{false, true, false, true} {
		agent := string(rune('a' + i))
		h := hold()
		kv.next(h.plan)
		b := question(coord.Lease{Agent: agent, Device: "d1"}, "1")
		_, _, err := c.Start(h.briefly(t), request(agent, "d1"), b)
		wantErr(t, err, coord.ErrIndeterminate)
		if landed && h.deliver(t) != 1 {
			t.Fatal("the late copy was refused")
		}
		kv.next(nil)
		if i < 2 { // the very same again: one grant, one attempt
			l, a, err := c.Start(bounded(t), request(agent, "d1"), b)
			must(t, err)
			if l.Epoch != 1 || a.ID != b.Attempt || attempts(t, c, b) != "open" {
				t.Errorf("landed %v: got %+v, %+v", landed, l, a)
			}
			must(t, c.Release(bounded(t), agent, "d1", 1))
			continue
		}
		must(t, c.Cancel(bounded(t), b))
		if !landed && h.deliver(t) != 0 {
			t.Error("a late copy was carried out")
		}
		if got := attempts(t, c, b); got != "void" {
			t.Errorf("landed %v: attempts are %q", landed, got)
		}
		if _, held, err := c.Current(bounded(t), agent); err != nil || held {
			t.Errorf("landed %v: still held, %v", landed, err)
		}
		_, _, err = c.Start(bounded(t), request(agent, "d1"), b)
		wantErr(t, err, coord.ErrClosed)
	}
}

func TestABeginGivenUpIsRepeatedOrCancelledAndItsStragglerCannotLand(t *testing.T) {
	client, kv := slow(t, three(t))
	c := process(t, client, namespace())
	l, err := c.Acquire(bounded(t), request("a", "d1"))
	must(t, err)
	give := func(occurrence string) (coord.Begin, *held) {
		h := hold()
		kv.next(h.plan)
		b := question(l, occurrence)
		_, err := c.Begin(h.briefly(t), b)
		wantErr(t, err, coord.ErrIndeterminate)
		kv.next(nil)
		return b, h
	}
	b, h := give("repeated before it landed")
	_, err = c.Begin(bounded(t), b)
	must(t, err)
	if h.deliver(t) != 0 || attempts(t, c, b) != "open" {
		t.Error("two copies were carried out")
	}
	b, h = give("repeated after it landed")
	if h.deliver(t) != 1 {
		t.Error("the late copy was refused")
	}
	_, err = c.Begin(bounded(t), b)
	must(t, err)

	b, h = give("cancelled before it landed")
	must(t, c.Cancel(bounded(t), b))
	if h.deliver(t) != 0 || attempts(t, c, b) != "void" {
		t.Error("a cancelled begin was carried out")
	}
	b, h = give("cancelled after it landed")
	h.deliver(t)
	must(t, c.Cancel(bounded(t), b))
	if got := attempts(t, c, b); got != "void" {
		t.Errorf("attempts are %q", got)
	}
}

// A gate opens again: a copy that it kept out must not land then, after its caller was told no.
func TestABeginRefusedByAGateStaysRefused(t *testing.T) {
	client, kv := slow(t, three(t))
	c := process(t, client, namespace())
	l, err := c.Acquire(bounded(t), request("a", "d1"))
	must(t, err)
	h := hold()
	kv.next(h.plan)
	b := question(l, "1")
	_, err = c.Begin(h.briefly(t), b)
	wantErr(t, err, coord.ErrIndeterminate)
	kv.next(nil)
	must(t, c.Pause(bounded(t), "a", coord.Gate{By: "me", Reason: "test"}))
	_, err = c.Begin(bounded(t), b)
	wantErr(t, err, coord.ErrPaused)
	must(t, c.Resume(bounded(t), "a"))
	if h.deliver(t) != 0 || attempts(t, c, b) != "void" {
		t.Error("the begin that was refused was carried out")
	}
}

func TestARebindGivenUpIsFoundByTheNextRenew(t *testing.T) {
	client, kv := slow(t, three(t))
	ns := namespace()
	proof := func(cfg *Config) { cfg.Dead = func(string, coord.Process) bool { return true } }
	first := process(t, three(t).Client(t), ns)
	l, err := first.Acquire(bounded(t), request("a", "d1"))
	must(t, err)
	crash(first)
	second := process(t, client, ns, proof)
	for _, landed := range []bool{false, true} {
		h := hold()
		kv.next(h.plan)
		_, err = second.Renew(h.briefly(t), "a", "d1", l.Epoch, ttl)
		wantErr(t, err, coord.ErrIndeterminate)
		if landed && h.deliver(t) != 1 {
			t.Error("the late copy was refused")
		}
		kv.next(nil)
		if !landed {
			must(t, second.Release(bounded(t), "a", "d1", 0)) // waits for the poison
			if h.deliver(t) != 0 {
				t.Error("a re-bind that was given up was carried out")
			}
		}
	}
	got, err := second.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	if got.Epoch != l.Epoch || got.Handle == l.Handle {
		t.Errorf("got %+v after %+v", got, l)
	}
	must(t, second.Release(bounded(t), "a", "d1", l.Epoch))
}

// An acquire that was refused only because the holder came back may yet land when that one ends.
func TestAnAcquireThatLostToARevivalCannotLandLater(t *testing.T) {
	admin := three(t).Client(t)
	client, kv := slow(t, three(t))
	ns := namespace()
	holder, c := process(t, admin, ns), process(t, client, ns)
	_, err := c.Acquire(bounded(t), request("warm", "d2"))
	must(t, err)
	l, err := holder.Acquire(bounded(t), request("a", "d1"))
	must(t, err)
	expire(t, admin, holder)
	var stray send
	kv.next(func(ctx context.Context, n int, s send) (*clientv3.TxnResponse, error) {
		if n == 1 { // the network keeps the first copy, and the holder comes back
			stray = s
			_, err := holder.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
			must(t, err)
			return nil, errLost
		}
		return s(ctx)
	})
	_, err = c.Acquire(bounded(t), request("a", "d2"))
	wantErr(t, err, coord.ErrHeld)
	kv.next(nil)
	expire(t, admin, holder)
	resp, err := stray(bounded(t))
	must(t, err)
	if resp.Succeeded {
		t.Fatal("a copy was carried out after its caller was told that the agent is held")
	}
	if _, err := holder.Renew(bounded(t), "a", "d1", l.Epoch, ttl); err != nil {
		t.Errorf("the holder lost its lease to the poison: %v", err)
	}
}

// What a person gave up acts on what was judged then, and never on what another person or holder did after.
func TestAResumeOrAnEvictionThatArrivesLateTouchesNothingLater(t *testing.T) {
	t.Parallel()
	cl := three(t)
	ns := namespace()
	client, kv := slow(t, cl)
	late, other := process(t, client, ns), process(t, cl.Client(t), ns)
	l := acquire(t, other, "d1")
	theft := coord.Theft{Request: request("a", "d2"), By: "ana", Reason: "x", Epoch: l.Epoch, Force: true}
	gate := func(reason string) coord.Gate { return coord.Gate{By: "ana", Reason: reason} }
	must(t, other.Pause(bounded(t), "a", gate("first")))
	must(t, other.SetRecovery(bounded(t), gate("first")))
	for what, send := range map[string]func(context.Context) error{
		"resume": func(ctx context.Context) error { return late.Resume(ctx, "a") },
		"lift":   func(ctx context.Context) error { return late.LiftRecovery(ctx, gate("x")) },
		"evict":  func(ctx context.Context) error { return late.Evict(ctx, theft) },
	} {
		h := hold()
		kv.next(h.plan)
		wantErr(t, send(h.briefly(t)), coord.ErrIndeterminate)
		kv.next(nil)
		switch what {
		case "resume":
			must(t, other.Resume(bounded(t), "a"))
			must(t, other.Pause(bounded(t), "a", gate("second")))
		case "lift":
			must(t, other.LiftRecovery(bounded(t), gate("x")))
			must(t, other.SetRecovery(bounded(t), gate("second")))
		case "evict":
			must(t, other.Release(bounded(t), "a", "d1", l.Epoch))
			l = acquire(t, other, "d1")
		}
		if h.deliver(t) != 0 {
			t.Errorf("the late %s was carried out", what)
		}
	}
	v, err := other.Look(bounded(t), coord.Question{Agent: "a", Run: runID("a", "1")})
	must(t, err)
	if v.Paused == nil || v.Paused.Reason != "second" || v.Recovery == nil || v.Recovery.Reason != "second" {
		t.Errorf("Look shows gates %v, %v, want the second ones", v.Paused, v.Recovery)
	}
	if now, held, err := other.Current(bounded(t), "a"); err != nil || !held || now.Handle != l.Handle {
		t.Errorf("Current gave %+v, %v, %v, want %+v", now, held, err, l)
	}
}

// One copy of the joint request was sent before the caller gave up: it may be carried out yet, and is.
func TestACompleteThatWasSentIsNeverCalledNotSent(t *testing.T) {
	t.Parallel()
	client, kv := slow(t, three(t))
	c := process(t, client, namespace())
	b := question(coord.Lease{Agent: "a", Device: "d1"}, "1")
	l, _, err := c.Start(bounded(t), request("a", "d1"), b)
	must(t, err)
	b.Lease = l
	h := hold()
	kv.next(h.plan)
	finished, released := c.Complete(h.briefly(t), outcome(b, coord.Committed), l)
	kv.next(nil)
	for _, err := range []error{finished, released} {
		wantErr(t, err, coord.ErrIndeterminate)
		if errors.Is(err, coord.ErrNotSent) {
			t.Errorf("%v says that nothing happened", err)
		}
	}
	if h.deliver(t) != 1 {
		t.Error("the copy was not carried out")
	}
	if got := attempts(t, c, b); got != "committed" {
		t.Errorf("attempts are %q", got)
	}
	finished, released = c.Complete(bounded(t), outcome(b, coord.Committed), l)
	must(t, finished)
	must(t, released)
}

// silentLeases hears no request for an etcd lease.
type silentLeases struct{ etcdserverpb.LeaseClient }

func (silentLeases) LeaseGrant(ctx context.Context, _ *etcdserverpb.LeaseGrantRequest, _ ...grpc.CallOption) (*etcdserverpb.LeaseGrantResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAnAcquireThatGetsNoLivenessNamesItsAgent(t *testing.T) {
	t.Parallel()
	c := process(t, three(t).Client(t), namespace())
	heard := c.leases
	c.leases = silentLeases{heard}
	ctx, cancel := context.WithTimeout(bounded(t), 300*time.Millisecond)
	defer cancel()
	_, err := c.Acquire(ctx, request("a", "d1"))
	wantErr(t, err, coord.ErrNotSent)
	for _, want := range []string{"acquire a: ", "open the liveness of device d1", c.client.Endpoints()[0]} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	c.leases = heard
}
