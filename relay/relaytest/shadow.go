package relaytest

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
)

// shadow lets devices do what they like with a relay that collects and with one that never does, and compares: the same pushes are
// taken, and whoever pulls comes to hold the same, if need be from a checkpoint.
func (s suite) shadow(t *testing.T) {
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; s.Slow && runs > 25 {
			return
		}
		r := s.bench(t, 0)
		w := &world{
			bench: r, rt: rt, shadow: memory.New(memory.Config{EvictAfter: -1}), devices: map[string]*puller{},
			ended: oplog.Frontier{},
		}
		for _, d := range []string{"a", "b"} {
			w.enter(d)
			w.register(w.devices[d])
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": w.check, "write": w.write, "repeat": w.repeat, "exchange": w.exchange, "enter": w.another, "enrol": w.enrol,
			"publish": w.publish, "collect": w.gather, "wait": w.wait, "time": w.time,
		})
		for _, d := range w.names() {
			w.sync(w.devices[d])
		}
		w.check(rt)
	})
}

// A puller is a device as a relay sees it.
type puller struct {
	*Author
	role   relay.Role
	pushed int
	held   oplog.Frontier // with the own chain and closed ones
	acked  oplog.Frontier
	seen   time.Time
	gone   bool
}

type world struct {
	bench
	rt      *rapid.T
	shadow  *memory.Relay
	devices map[string]*puller
	newest  *relay.Checkpoint
	ended   oplog.Frontier
	floor   oplog.Frontier
}

func (w *world) must(what string, err error) {
	if err != nil {
		w.rt.Fatalf("%s: %v", what, err)
	}
}

func (w *world) names() []string { return slices.Sorted(maps.Keys(w.devices)) }

func (w *world) living() []string {
	return slices.DeleteFunc(w.names(), func(d string) bool { return w.devices[d].gone })
}

func (w *world) any(rt *rapid.T) *puller {
	return w.devices[rapid.SampledFrom(w.living()).Draw(rt, "device")]
}

func (w *world) enter(d string) {
	w.devices[d] = &puller{Author: NewAuthor(d), role: relay.Seen, held: oplog.Frontier{}, acked: oplog.Frontier{}, seen: *w.now}
}

func (w *world) register(d *puller) {
	if d.role == relay.Seen {
		d.role = relay.Replica
	}
	w.must("register", w.Register(w.t.Context(), d.Device, d.role))
	d.seen = *w.now
}

func (w *world) another(rt *rapid.T) {
	if len(w.devices) >= 7 {
		rt.Skip("enough devices")
	}
	w.enter(string(rune('a' + len(w.devices))))
}

func (w *world) enrol(rt *rapid.T) {
	d := w.any(rt)
	d.role = rapid.SampledFrom([]relay.Role{relay.Replica, relay.Writer}).Draw(rt, "role")
	w.register(d)
}

func (w *world) write(rt *rapid.T) {
	d := w.any(rt)
	d.Write(w.t, rapid.IntRange(1, 5).Draw(rt, "ops"), 40)
	d.held[d.Device] = d.Head()
}

// repeat pushes ops that the relay has had.
func (w *world) repeat(rt *rapid.T) {
	d := w.any(rt)
	if d.pushed == 0 {
		rt.Skip("nothing was pushed")
	}
	from := rapid.IntRange(0, d.pushed-1).Draw(rt, "from")
	to := rapid.IntRange(from+1, d.pushed).Draw(rt, "to")
	_, err := w.Hello(w.t.Context(), d.Device)
	w.must("hello", err)
	d.seen = *w.now
	got, err := w.Push(w.t.Context(), d.Device, d.Ops[from:to])
	if uint64(to) <= w.floor.Next(d.Device)-min(w.floor.Next(d.Device), 1) && errors.Is(err, relay.ErrFrontierTruncated) && got.Accepted == 0 {
		return // nothing links them to the floor
	}
	w.must("push again", err)
	if got != (relay.Pushed{Duplicate: to - from}) {
		rt.Fatalf("pushed again: %+v, expected %d duplicates", got, to-from)
	}
}

func (w *world) exchange(rt *rapid.T) { w.sync(w.any(rt)) }

// sync is an exchange: hello, push, pull, from a checkpoint if the relay says so, and ack.
func (w *world) sync(d *puller) {
	if d.gone {
		return
	}
	ctx := w.t.Context()
	_, err := w.Hello(ctx, d.Device)
	w.must("hello", err)
	d.seen = *w.now
	if ops := d.Ops[d.pushed:]; len(ops) > 0 {
		got, err := w.Push(ctx, d.Device, ops)
		w.must("push", err)
		want, err := w.shadow.Push(ctx, d.Device, ops)
		w.must("push to the shadow", err)
		if got != want {
			w.rt.Fatalf("push: %+v, the shadow says %+v", got, want)
		}
		d.pushed = len(d.Ops)
	}
	w.pull(d)
	truth, err := w.shadow.Hello(ctx, d.Device)
	w.must("hello to the shadow", err)
	if !d.held.Equal(truth.Heads) {
		w.rt.Fatalf("%s holds %v, everything is %v", d.Device, d.held, truth.Heads)
	}
	w.must("ack", w.Ack(ctx, d.Device, d.held))
	relay.Join(d.acked, d.held)
}

func (w *world) pull(d *puller) {
	for range 300 {
		page, err := w.Pull(w.t.Context(), d.Device, relay.Want{Held: d.held, MaxBytes: 4000})
		if errors.Is(err, relay.ErrFrontierTruncated) {
			w.adopt(d)
			continue
		}
		w.must("pull", err)
		for _, op := range page.Ops {
			if op.Seq != d.held.Next(op.Device) || op.ID != w.devices[op.Device].Ops[op.Seq].ID {
				w.rt.Fatalf("%s gets %s/%d %.12s, it holds %v", d.Device, op.Device, op.Seq, op.ID, d.held)
			}
			d.held[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
		}
		if len(page.Broken) > 0 {
			w.rt.Fatalf("broken: %v", page.Broken)
		}
		if !page.More {
			return
		}
	}
	w.rt.Fatalf("the pull of %s does not end", d.Device)
}

func (w *world) adopt(d *puller) {
	c, ok, err := w.Collector.Checkpoint(w.t.Context())
	w.must("checkpoint", err)
	if !ok {
		w.rt.Fatal("history is gone and there is no checkpoint")
	}
	relay.Join(d.held, c.All())
}

// stable is what all replicas have acked that were heard of within silent, without those that are about to end.
func (w *world) stable(silent time.Duration, ending ...string) oplog.Frontier {
	var roster []relay.Member
	for _, d := range w.living() {
		if slices.Contains(ending, d) {
			continue
		}
		p := w.devices[d]
		roster = append(roster, relay.Member{Device: d, Role: p.role, Acked: p.acked, Evicted: relay.IsEvicted(p.role, p.seen, *w.now, silent)})
	}
	return relay.Stable(roster)
}

func (w *world) publish(rt *rapid.T) {
	d := w.any(rt)
	w.sync(d)
	c := oplog.Frontier{}
	stable := w.stable(relay.EvictAfter)
	whole := rapid.Bool().Draw(rt, "beyond what is stable")
	for name, p := range d.held {
		if _, ended := w.ended[name]; ended {
			continue
		}
		if q, ok := stable[name]; !whole && (!ok || q.Seq < p.Seq) {
			p = q
		}
		if p.ID != "" {
			c[name] = p
		}
	}
	closed := w.ended.Clone()
	if len(w.living()) > 2 && rapid.IntRange(0, 2).Draw(rt, "close") == 0 {
		x := w.any(rt)
		if p, ok := w.stable(relay.EvictAfter, x.Device)[x.Device]; ok && x != d && len(x.Ops) == int(p.Seq)+1 && x.pushed == len(x.Ops) {
			closed[x.Device] = p
			delete(c, x.Device)
		}
	}
	next := checkpoint(d.Device, c, closed)
	err := w.PutCheckpoint(w.t.Context(), d.Device, next)
	all := next.All()
	if len(all) == 0 && errors.Is(err, relay.ErrInvalid) {
		return
	}
	if w.newest != nil && !all.Dominates(w.newest.All()) {
		if !errors.Is(err, relay.ErrBehind) {
			rt.Fatalf("a checkpoint behind the newest: %v", err)
		}
		return
	}
	w.must("publish", err)
	w.newest, w.ended = &next, closed
	for x := range closed {
		w.devices[x].gone = true
	}
}

func (w *world) gather(rt *rapid.T) {
	stable := w.stable(relay.EvictAfter - 24*time.Hour) // a contact is noted once a day
	c, err := w.Collect(w.t.Context())
	w.must("collect", err)
	for name, p := range c.Floor {
		_, ended := w.ended[name]
		before, had := w.floor[name]
		switch {
		case had && before == p:
		case w.newest == nil || !w.newest.All().Covers(name, p.Seq) || !ended && !stable.Covers(name, p.Seq) || had && p.Seq < before.Seq:
			rt.Fatalf("the floor of %s rose to %v; stable is %v, the newest checkpoint %+v", name, p, stable, w.newest)
		}
	}
	for name, n := range c.Dropped {
		if n <= 0 || w.floor[name].ID == "" {
			rt.Fatalf("%d ops of %s were dropped and never marked", n, name)
		}
	}
	w.floor = c.Floor
}

func (w *world) wait(*rapid.T) { w.pass(relay.Grace) }

func (w *world) time(rt *rapid.T) {
	w.pass(rapid.SampledFrom([]time.Duration{time.Hour, 25 * time.Hour, 40 * 24 * time.Hour}).Draw(rt, "passes"))
}

// check compares the heads of all chains that go on.
func (w *world) check(rt *rapid.T) {
	info, err := w.Hello(w.t.Context(), "asks")
	w.must("hello", err)
	truth, err := w.shadow.Hello(w.t.Context(), "asks")
	w.must("hello to the shadow", err)
	for name, p := range truth.Heads {
		got, ok := info.Heads[name]
		if _, ended := w.ended[name]; got != p && (ok || !ended) {
			rt.Fatalf("the head of %s is %v, expected %v", name, got, p)
		}
	}
	if len(info.Heads) > len(truth.Heads) {
		rt.Fatalf("heads are %v, expected %v", info.Heads, truth.Heads)
	}
}
