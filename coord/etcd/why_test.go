package etcd

import (
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/internal/rules"
)

// Each test here sends a copy late, after what it rests on moved, and moves as little as can be: what keeps the copy
// out is the compare in the test's name.

// prepared is the content of a grant, made from what a read shows now.
func prepared(t testing.TB, c *Coordinator, a ask) *bid {
	t.Helper()
	f, st, err := c.judge(bounded(t), a)
	must(t, err)
	b, err := c.bid(bounded(t), a, f, st)
	must(t, err)
	b.close()
	return b
}

// sendLate sends one copy and says whether it was carried out.
func sendLate(t testing.TB, c *Coordinator, p proposal) bool {
	t.Helper()
	then, els := p.ops()
	resp, err := c.client.Txn(bounded(t)).If(p.cmps...).Then(then...).Else(els...).Commit()
	if classify(err) == noLease {
		return false
	}
	must(t, err)
	return resp.Succeeded
}

// late sends p and wants it refused, by every compare that rest leaves: rest are those that have nothing to do with
// the key, to show that no other compare kept it out.
func late(t testing.TB, c *Coordinator, p proposal, keys ...string) {
	t.Helper()
	if sendLate(t, c, p) {
		t.Fatal("a late copy was carried out")
	}
	rest := p
	rest.cmps = slices.DeleteFunc(slices.Clone(p.cmps), func(cmp clientv3.Cmp) bool {
		return slices.Contains(keys, string(cmp.KeyBytes()))
	})
	rest.puts = nil // only whether it would have been carried out
	if !sendLate(t, c, rest) {
		t.Error("another compare keeps it out too: the test shows nothing")
	}
}

type world struct {
	admin *clientv3.Client
	ns    string
	a, b  *Coordinator
}

func newWorld(t testing.TB, change ...func(*Config)) world {
	w := world{admin: three(t).Client(t), ns: namespace()}
	w.a, w.b = process(t, w.admin, w.ns, change...), process(t, w.admin, w.ns, change...)
	return w
}

func acquire(t testing.TB, c *Coordinator, device string) coord.Lease {
	t.Helper()
	l, err := c.Acquire(bounded(t), request("a", device))
	must(t, err)
	return l
}

func release(t testing.TB, c *Coordinator, l coord.Lease) {
	t.Helper()
	must(t, c.Release(bounded(t), l.Agent, l.Device, l.Epoch))
}

func TestAcquireComparesTheEpoch(t *testing.T) {
	w := newWorld(t)
	b := prepared(t, w.b, ask{Request: request("a", "d2")})
	release(t, w.a, acquire(t, w.a, "d1"))
	late(t, w.b, b.prop, w.b.keys.epoch("a"))
}

func TestAcquireComparesTheHolder(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Dead = func(string, coord.Process) bool { return true } })
	l := acquire(t, w.a, "d1")
	expire(t, w.admin, w.a)
	b := prepared(t, w.b, ask{Request: request("a", "d2")})
	next := process(t, w.admin, w.ns, func(cfg *Config) { cfg.Dead = func(string, coord.Process) bool { return true } })
	_, err := next.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	late(t, w.b, b.prop, w.b.keys.holder("a"))
}

func TestAcquireComparesThatTheHolderIsGone(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	expire(t, w.admin, w.a)
	b := prepared(t, w.b, ask{Request: request("a", "d2")})
	_, err := w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	late(t, w.b, b.prop, w.b.keys.live("d1", l.Liveness))
}

func TestAcquireComparesThatItsOwnProcessIsAlive(t *testing.T) {
	w := newWorld(t)
	warm, err := w.b.Acquire(bounded(t), request("warm", "d2"))
	must(t, err)
	b := prepared(t, w.b, ask{Request: request("a", "d2")})
	if b.pulse.cold {
		t.Fatal("the liveness key is there, and the bid does not know it")
	}
	expire(t, w.admin, w.b)
	late(t, w.b, b.prop, w.b.keys.live("d2", warm.Liveness))
}

func TestAColdAcquireIsRefusedOnceItsEtcdLeaseIsDead(t *testing.T) {
	w := newWorld(t)
	b := prepared(t, w.b, ask{Request: request("a", "d2")})
	if !b.pulse.cold {
		t.Fatal("the bid takes a liveness key for granted that is not there")
	}
	must(t, w.b.Close(bounded(t)))
	if sendLate(t, w.a, b.prop) {
		t.Fatal("granted to a process that is gone")
	}
	if _, held, err := w.a.Current(bounded(t), "a"); err != nil || held {
		t.Errorf("held %v, %v", held, err)
	}
}

func rebinding(t testing.TB) (w world, l coord.Lease, b *bid) {
	proof := func(cfg *Config) { cfg.Dead = func(string, coord.Process) bool { return true } }
	w = newWorld(t, proof)
	l = acquire(t, w.a, "d1")
	_, err := w.b.Acquire(bounded(t), request("warm", "d1"))
	must(t, err)
	return w, l, prepared(t, w.b, ask{Request: request("a", "d1"), rebind: &grant{lease: l}})
}

func TestRebindComparesTheHolder(t *testing.T) {
	w, l, b := rebinding(t)
	release(t, w.a, l)
	late(t, w.b, b.prop, w.b.keys.holder("a"))
}

func TestRebindComparesTheEpochSoThatAPoisonReachesIt(t *testing.T) {
	w, l, b := rebinding(t)
	done, err := w.b.poison(bounded(t), b)
	if err != nil || done {
		t.Fatalf("poison: %v, %v", done, err)
	}
	late(t, w.b, b.prop, w.b.keys.epoch("a"))
	if _, err := w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl); err != nil {
		t.Errorf("the poison disturbed the holder: %v", err)
	}
}

func TestAPoisonThatSucceedsIsNotTakenForVoid(t *testing.T) {
	w, _, b := rebinding(t)
	if !sendLate(t, w.b, b.prop) {
		t.Fatal("the re-bind was refused")
	}
	done, err := w.b.poison(bounded(t), b)
	if err != nil || !done {
		t.Errorf("poison says done %v, %v, after the re-bind was carried out", done, err)
	}
}

func TestPoisonComparesTheEpoch(t *testing.T) {
	w := newWorld(t)
	release(t, w.a, acquire(t, w.a, "d1"))
	b := prepared(t, w.b, ask{Request: request("a", "d2")})
	l := acquire(t, w.a, "d1")
	done, err := w.b.poison(bounded(t), b)
	if err != nil || done {
		t.Fatalf("poison: %v, %v", done, err)
	}
	release(t, w.a, l)
	if l := acquire(t, w.a, "d1"); l.Epoch != 3 {
		t.Errorf("epoch %d after a late poison, want 3", l.Epoch)
	}
}

func TestReviveComparesThatTheKeyIsGone(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	life := w.a.lifeOf("d1", ttl)
	stale, _, err := life.grant(bounded(t)) // an etcd lease that nobody will keep alive
	must(t, err)
	put := proposal{cmps: []clientv3.Cmp{gone(life.key)}, puts: []clientv3.Op{clientv3.OpPut(life.key, life.raw, clientv3.WithLease(stale))}}
	expire(t, w.admin, w.a)
	_, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	late(t, w.a, put, life.key)
}

func TestAReviveThatLandedUnseenIsAdopted(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	life := w.a.lifeOf("d1", ttl)
	other, _, err := life.grant(bounded(t))
	must(t, err)
	expire(t, w.admin, w.a)
	put := proposal{cmps: []clientv3.Cmp{gone(life.key)}, puts: []clientv3.Op{clientv3.OpPut(life.key, life.raw, clientv3.WithLease(other))}}
	if !sendLate(t, w.a, put) {
		t.Fatal("refused")
	}
	_, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	must(t, err)
	if p, ok := life.warm(); !ok || p.lease != other {
		t.Errorf("the process keeps %v alive, its key is on %v", p.lease, other)
	}
}

func TestReleaseComparesTheHolder(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	g := w.a.granted("a")
	key := w.a.keys.holder("a")
	del := proposal{cmps: g.state(key).unchanged(key), puts: []clientv3.Op{clientv3.OpDelete(key)}}
	release(t, w.a, l)
	next := acquire(t, w.a, "d1") // the same device, the same process
	late(t, w.a, del, key)
	if seen, held, err := w.b.Current(bounded(t), "a"); err != nil || !held || seen.Handle != next.Handle {
		t.Errorf("the next holder is gone: %+v, %v, %v", seen, held, err)
	}
}

// beginning is the content of a begin as its holder sends it now.
func beginning(t testing.TB, c *Coordinator, b coord.Begin) proposal {
	t.Helper()
	st, err := c.look(bounded(t), "begin", b.Lease.Agent, b.Run)
	must(t, err)
	f, err := c.facts(st, b.Lease.Agent, b.Run)
	must(t, err)
	_, _, err = rules.Begin(f, b)
	must(t, err)
	p, _, _ := c.beginning(b, f, st)
	return p
}

func TestBeginComparesTheHolder(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	p := beginning(t, w.a, question(l, "1"))
	release(t, w.a, l)
	acquire(t, w.b, "d1") // the same device: device and epoch would not do
	late(t, w.a, p, w.a.keys.holder("a"))
}

func TestBeginComparesTheEntry(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	b := question(l, "1")
	p := beginning(t, w.a, b)
	other := question(l, "1")
	_, err := w.a.Begin(bounded(t), other)
	must(t, err)
	late(t, w.a, p, w.a.keys.run("a", b.Run))
}

// sweep packs a committed run, as a later release will do it.
func sweep(t testing.TB, c *Coordinator, agent string, depth int, runs ...string) {
	t.Helper()
	key := c.keys.bucket(agent, runs[0], depth)
	slices.Sort(runs)
	ops := []clientv3.Op{clientv3.OpPut(key, encode(bucketValue{V: valueVersion, Runs: runs}))}
	for _, run := range runs {
		ops = append(ops, clientv3.OpDelete(c.keys.run(agent, run)))
	}
	_, err := c.client.Txn(bounded(t)).Then(ops...).Commit()
	must(t, err)
}

func TestBeginComparesTheBucket(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	b := question(l, "1")
	p := beginning(t, w.a, b)
	done := question(l, "1")
	_, err := w.a.Begin(bounded(t), done)
	must(t, err)
	must(t, w.a.Finish(bounded(t), outcome(done, coord.Committed)))
	sweep(t, w.a, "a", 0, b.Run)
	late(t, w.a, p, w.a.keys.bucket("a", b.Run, 0))
	for _, c := range []*Coordinator{w.a, w.b} { // with and without a memory of the run
		v, err := c.Look(bounded(t), coord.Question{Agent: "a", Run: b.Run, Witnesses: []coord.RunRef{{Agent: "a", Run: b.Run}}})
		if err != nil || v.State != coord.RunCommitted || !v.Entry.Packed || !v.Witness[b.Run] {
			t.Errorf("a packed run looks like %+v, %v", v, err)
		}
	}
	_, err = w.a.Begin(bounded(t), question(l, "1"))
	wantErr(t, err, coord.ErrCommitted)
	must(t, w.a.Finish(bounded(t), outcome(done, coord.Committed)))
	must(t, w.a.Cancel(bounded(t), b))
	if v, err := w.b.Look(bounded(t), coord.Question{Agent: "a", Run: b.Run}); err != nil || !v.Entry.Packed || len(v.Entry.Attempts) != 0 {
		t.Errorf("a packed run was written again: %+v, %v", v, err)
	}
}

func TestBeginFindsARunInTheBucketsOfASplit(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	b, free := question(l, "1"), question(l, "2")
	for depth := range 2 {
		_, err := w.admin.Put(bounded(t), w.a.keys.bucket("a", b.Run, depth), encode(bucketValue{V: valueVersion, Split: true}))
		must(t, err)
	}
	sweep(t, w.a, "a", 2, b.Run)
	for _, c := range []*Coordinator{w.a, w.b} {
		v, err := c.Look(bounded(t), coord.Question{Agent: "a", Run: b.Run, Witnesses: []coord.RunRef{{Agent: "a", Run: b.Run}}})
		if err != nil || v.State != coord.RunCommitted || !v.Witness[b.Run] {
			t.Errorf("got %+v, %v", v, err)
		}
	}
	_, err := w.a.Begin(bounded(t), b)
	wantErr(t, err, coord.ErrCommitted)
	_, err = w.a.Begin(bounded(t), free)
	must(t, err)
}

func TestBeginComparesTheGatesAndTheGeneration(t *testing.T) {
	gate := coord.Gate{By: "me", Reason: "test"}
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	p := beginning(t, w.a, question(l, "1"))
	must(t, w.b.Pause(bounded(t), "a", gate))
	late(t, w.a, p, w.a.keys.paused("a"))
	must(t, w.b.Resume(bounded(t), "a"))
	must(t, w.b.SetRecovery(bounded(t), gate))
	late(t, w.a, p, w.a.keys.recovery())
	must(t, w.b.LiftRecovery(bounded(t), gate))
	other := encode(metaValue{V: valueVersion, Format: valueVersion, Generation: coord.NewNonce()})
	_, err := w.admin.Put(bounded(t), w.a.keys.meta(), other)
	must(t, err)
	late(t, w.a, p, w.a.keys.meta())
	_, err = w.a.Begin(bounded(t), question(l, "1"))
	wantErr(t, err, coord.ErrGeneration)
	wantErr(t, w.a.Finish(bounded(t), outcome(question(l, "1"), coord.Committed)), coord.ErrGeneration)
	_, err = w.a.Renew(bounded(t), "a", "d1", l.Epoch, ttl)
	wantErr(t, err, coord.ErrGeneration)
}

func TestARetryComparesThatTheAttemptInDoubtHasNobodyAlive(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	old := question(l, "1")
	_, err := w.a.Begin(bounded(t), old)
	must(t, err)
	expire(t, w.admin, w.a)
	next := acquire(t, w.b, "d2")
	b := question(next, "1")
	b.Retry = old.Attempt
	p := beginning(t, w.b, b)
	_, err = w.a.Acquire(bounded(t), request("another", "d1")) // brings its liveness back
	must(t, err)
	late(t, w.b, p, w.b.keys.live("d1", l.Liveness))
	_, err = w.b.Begin(bounded(t), b)
	wantErr(t, err, coord.ErrInProgress)
}

func raised(t testing.TB, c *Coordinator, g coord.Grant) proposal {
	t.Helper()
	st, err := c.look(bounded(t), "raise", g.Agent, "")
	must(t, err)
	f, err := c.facts(st, g.Agent, "")
	must(t, err)
	next, evict, changed, err := rules.Raise(f, g)
	must(t, err)
	if !changed {
		t.Fatal("nothing to raise")
	}
	return c.raising(g.Agent, f, next, evict, st)
}

func TestARaiseComparesTheEpochAndTheHolder(t *testing.T) {
	w := newWorld(t)
	l := acquire(t, w.a, "d1")
	p := raised(t, w.b, coord.Grant{Agent: "a", Device: "d9", Epoch: 1}) // d1's lease is none any more
	release(t, w.a, l)
	late(t, w.b, p, w.a.keys.holder("a"))
	p = raised(t, w.b, coord.Grant{Agent: "a", Device: "d9", Epoch: 7})
	l = acquire(t, w.a, "d1")
	release(t, w.a, l)
	late(t, w.b, p, w.a.keys.epoch("a"))
}

func TestAnOfferComparesTheGateItWasMadeUnder(t *testing.T) {
	w := newWorld(t)
	g, err := w.a.RestartRecovery(bounded(t), coord.Gate{By: "me", Reason: "test"})
	must(t, err)
	st, err := w.b.read(bounded(t), "offer", "", []string{w.b.keys.offer("d1"), w.b.keys.recovery(), w.b.keys.meta()})
	must(t, err)
	p := w.b.noting(coord.Offer{Device: "d1", Gate: g.ID, Done: true}, st)
	_, err = w.a.RestartRecovery(bounded(t), coord.Gate{By: "me", Reason: "test"})
	must(t, err)
	late(t, w.b, p, w.b.keys.recovery())
}

func TestAStragglerLiftsNoOtherGate(t *testing.T) {
	w := newWorld(t)
	must(t, w.a.SetRecovery(bounded(t), coord.Gate{By: "me", Reason: "test"}))
	key := w.a.keys.recovery()
	st, err := w.a.read(bounded(t), "lift", "", []string{key, w.a.keys.meta()})
	must(t, err)
	p := proposal{what: "lift", cmps: append(st.unchanged(key), w.a.sameMeta()), puts: []clientv3.Op{clientv3.OpDelete(key)}, gets: []string{key}}
	must(t, w.a.LiftRecovery(bounded(t), coord.Gate{By: "me", Reason: "test"}))
	must(t, w.a.SetRecovery(bounded(t), coord.Gate{By: "me", Reason: "test"}))
	late(t, w.a, p, key)
}
