package relaytest

import (
	"errors"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// seeding are the sentences about Seed.
func (s suite) seeding() []sentence {
	return []sentence{
		{"a seed lets the chains of an empty relay begin behind a checkpoint", s.seedEmpty},
		{"a seed raises what lags and leaves alone what does not", s.seedPart},
		{"a seed is refused where the relay holds something else", s.seedRefused},
		{"a seed closes what its checkpoint has closed", s.seedCloses},
		{"collection goes on after a seed", s.seedCollect},
		{"two seeds at once leave the greater one", s.seedRace},
		{"a seed beside pushes loses none of them", s.seedPushes},
		{"a seed may be repeated after any failure", s.seedFaults},
	}
}

// headsOf are the last ops of what was written, as a seed wants them.
func headsOf(ops ...oplog.Op) oplog.Heads {
	h := oplog.Heads{}
	for _, op := range ops {
		h[op.Device] = oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}
	}
	return h
}

func (b bench) seed(c relay.Checkpoint, heads oplog.Heads) {
	b.t.Helper()
	if err := b.Seed(b.t.Context(), c.Author, c, heads); err != nil {
		b.t.Fatalf("seed: %v", err)
	}
}

func (s suite) seedEmpty(t *testing.T) {
	r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
	a.Write(t, 9, 60)
	b.Write(t, 4, 60)
	at := frontier(a.Ops[5], b.Ops[3])
	c := checkpoint("a", at, nil)
	r.seed(c, headsOf(a.Ops[5], b.Ops[3]))
	second := r
	second.Relay = r.open()
	second.Collector = second.Relay.(relay.Collector)
	for _, r := range []bench{r, second} {
		r.holds(&c)
		wantHead(t, r, a, 6)
		wantHead(t, r, b, 4)
		info, err := r.Hello(t.Context(), "c")
		if err != nil || !info.Heads.Equal(at) || !info.Floor.Equal(at) {
			t.Fatalf("hello: %+v, %v; expected heads and floor %v", info, err, at)
		}
		for what, held := range map[string]oplog.Frontier{"nothing": nil, "less": frontier(a.Ops[5], b.Ops[1])} {
			if _, err := r.Pull(t.Context(), "c", relay.Want{Held: held}); !errors.Is(err, relay.ErrFrontierTruncated) {
				t.Errorf("a pull of who holds %s: %v, expected ErrFrontierTruncated", what, err)
			}
		}
	}
	other := a.Clone(4)
	other.Write(t, 5, 60)
	if _, err := r.Push(t.Context(), "a", other.Ops); !errors.Is(err, relay.ErrFork) {
		t.Errorf("another branch, with what links it to the beginning: %v, expected a fork", err)
	}
	if _, err := r.Push(t.Context(), "a", other.Ops[6:]); err == nil {
		t.Error("another branch above the beginning was taken")
	}
	if got, err := r.Push(t.Context(), "a", a.Ops[3:]); err != nil || got != (relay.Pushed{Accepted: 3, Duplicate: 3}) {
		t.Errorf("what lies above, and three below: %+v, %v", got, err)
	}
	r.seed(c, headsOf(a.Ops[5], b.Ops[3])) // once more changes nothing
	wantHead(t, r, a, 9)
	if got := pullAll(t, r, "c", relay.Want{Held: at}); len(got[0].Ops) != 3 {
		t.Errorf("%d ops above the beginning, expected 3", len(got[0].Ops))
	}
}

func (s suite) seedPart(t *testing.T) {
	r, a, b, x := s.bench(t, 0), NewAuthor("a"), NewAuthor("b"), NewAuthor("x")
	mustPush(t, r, a.Write(t, 6, 60))
	mustPush(t, r, b.Write(t, 2, 60))
	b.Write(t, 4, 60)
	mustPush(t, r, x.Write(t, 1, 60))
	c := checkpoint("b", frontier(a.Ops[3], b.Ops[4]), nil)
	r.seed(c, headsOf(a.Ops[3], b.Ops[4]))
	r.holds(&c)
	wantHead(t, r, a, 6)
	wantHead(t, r, b, 5)
	wantHead(t, r, x, 1)
	info, err := r.Hello(t.Context(), "z")
	if err != nil || !info.Floor.Equal(frontier(b.Ops[4])) {
		t.Errorf("the floor is %v, %v; expected that of b alone", info.Floor, err)
	}
	pages := pullAll(t, r, "z", relay.Want{Held: frontier(b.Ops[4])})
	if n := len(pages[0].Ops); n != 7 {
		t.Errorf("%d ops, expected 6 of a and 1 of x", n)
	}
	mustPush(t, r, b.Ops[5:])
	mustPush(t, r, a.Write(t, 1, 60))
	wantHead(t, r, b, 6)
}

func (s suite) seedRefused(t *testing.T) {
	r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 6, 60))
	mustPush(t, r, b.Write(t, 2, 60))
	b.Write(t, 4, 60)
	low := checkpoint("a", frontier(a.Ops[2], b.Ops[1]), nil)
	r.put(low)
	other := a.Clone(2)
	other.Write(t, 4, 60)
	bad := checkpoint("b", frontier(a.Ops[3], b.Ops[5]), nil)
	bad.Body = append(bad.Body, 'x')
	for name, x := range map[string]struct {
		c     relay.Checkpoint
		heads oplog.Heads
		want  error
	}{
		"another op":            {checkpoint("b", frontier(other.Ops[4], b.Ops[5]), nil), headsOf(other.Ops[4], b.Ops[5]), relay.ErrContradiction},
		"another head":          {checkpoint("b", frontier(other.Ops[5], b.Ops[5]), nil), headsOf(other.Ops[5], b.Ops[5]), relay.ErrContradiction},
		"behind the newest":     {checkpoint("b", frontier(a.Ops[1], b.Ops[5]), nil), headsOf(a.Ops[1], b.Ops[5]), relay.ErrBehind},
		"one chain less":        {checkpoint("b", frontier(b.Ops[5]), nil), headsOf(b.Ops[5]), relay.ErrBehind},
		"closed before its end": {checkpoint("b", frontier(b.Ops[5]), frontier(a.Ops[4])), headsOf(a.Ops[4], b.Ops[5]), relay.ErrContradiction},
		"other heads":           {checkpoint("b", frontier(a.Ops[3], b.Ops[5]), nil), headsOf(a.Ops[3], b.Ops[4]), relay.ErrInvalid},
		"no heads":              {checkpoint("b", frontier(a.Ops[3], b.Ops[5]), nil), nil, relay.ErrInvalid},
		"another body":          {bad, headsOf(a.Ops[3], b.Ops[5]), relay.ErrInvalid},
	} {
		if err := r.Seed(t.Context(), "b", x.c, x.heads); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, expected %v", name, err, x.want)
		}
		r.holds(&low)
		wantHead(t, r, a, 6)
		wantHead(t, r, b, 2)
	}
	if got := pullAll(t, r, "z", relay.Want{}); len(got[0].Ops) != 8 {
		t.Errorf("%d ops are left after refused seeds, expected 8", len(got[0].Ops))
	}
}

func (s suite) seedCloses(t *testing.T) {
	r, a, w, v, u := s.bench(t, 0), NewAuthor("a"), NewAuthor("w"), NewAuthor("v"), NewAuthor("u")
	a.Write(t, 3, 60)
	w.Write(t, 3, 60)
	mustPush(t, r, v.Write(t, 2, 60)) // lags
	v.Write(t, 2, 60)
	mustPush(t, r, u.Write(t, 2, 60)) // has all
	c := checkpoint("a", frontier(a.Ops[1]), frontier(w.Ops[2], v.Ops[3], u.Ops[1]))
	r.seed(c, headsOf(a.Ops[1], w.Ops[2], v.Ops[3], u.Ops[1]))
	r.holds(&c)
	for _, x := range []*Author{w, v, u} {
		_, err := r.Push(t.Context(), x.Device, x.Write(t, 1, 60))
		if e, ok := errors.AsType[*relay.ClosedError](err); !ok || e.Last != c.Closed[x.Device] {
			t.Errorf("a push of %s: %v, expected a ClosedError with its end", x.Device, err)
		}
		if _, err := r.Pull(t.Context(), "z", relay.Want{Held: c.Frontier, Skip: skipping(x.Device, "w", "v", "u")}); x != u && !errors.Is(err, relay.ErrFrontierTruncated) {
			t.Errorf("a pull without %s: %v, expected ErrFrontierTruncated", x.Device, err)
		}
	}
	if _, err := r.Pull(t.Context(), "z", relay.Want{Held: c.All()}); err != nil {
		t.Errorf("a pull of who holds all: %v", err)
	}
	mustPush(t, r, a.Ops[2:])
}

func skipping(but string, names ...string) (out []string) {
	for _, n := range names {
		if n != but {
			out = append(out, n)
		}
	}
	return out
}

func (s suite) seedCollect(t *testing.T) {
	r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, b.Write(t, 2, 60))
	b.Write(t, 4, 60)
	a.Write(t, 4, 60)
	c := checkpoint("a", frontier(a.Ops[3], b.Ops[3]), nil)
	r.seed(c, headsOf(a.Ops[3], b.Ops[3]))
	mustPush(t, r, b.Ops[4:])
	mustPush(t, r, a.Write(t, 3, 60))
	r.replica("a", frontier(a.Ops[6], b.Ops[5]))
	r.wantDropped(map[string]int{}, c.Frontier, map[string]relay.Reason{"a": {Cause: relay.Uncovered}, "b": {Cause: relay.Uncovered}})
	next := checkpoint("b", frontier(a.Ops[5], b.Ops[5]), nil)
	r.put(next)
	r.wantDropped(map[string]int{"a": 2, "b": 2}, next.Frontier, map[string]relay.Reason{"a": {Cause: relay.Uncovered}})
	if got := pullAll(t, r, "z", relay.Want{Held: next.Frontier}); len(got[0].Ops) != 1 {
		t.Errorf("%d ops are left, expected 1", len(got[0].Ops))
	}
}

func (s suite) seedRace(t *testing.T) {
	for range s.rounds(6) {
		r, a, b := s.bench(t, 0), NewAuthor("a"), NewAuthor("b")
		a.Write(t, 6, 60)
		b.Write(t, 6, 60)
		low := checkpoint("b", frontier(a.Ops[2], b.Ops[3]), nil)
		high := checkpoint("a", frontier(a.Ops[4], b.Ops[3]), nil)
		handles := []relay.Collector{r.open().(relay.Collector), r.open().(relay.Collector)}
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { errs[0] = handles[0].Seed(t.Context(), "b", low, headsOf(a.Ops[2], b.Ops[3])) })
		wg.Go(func() { errs[1] = handles[1].Seed(t.Context(), "a", high, headsOf(a.Ops[4], b.Ops[3])) })
		wg.Wait()
		if errs[1] != nil || errs[0] != nil && !errors.Is(errs[0], relay.ErrBehind) {
			t.Fatalf("seeds at once: %v", errs)
		}
		r.holds(&high)
		wantHead(t, r, a, 5)
		wantHead(t, r, b, 4)
		mustPush(t, r, a.Ops[5:])
		mustPush(t, r, b.Ops[4:])
		if got := pullAll(t, r, "z", relay.Want{Held: high.Frontier}); len(got[0].Ops) != 3 {
			t.Errorf("%d ops above, expected 3", len(got[0].Ops))
		}
	}
}

// seedPushes lets the owner of a chain offer all of it while another device seeds.
func (s suite) seedPushes(t *testing.T) {
	for range s.rounds(6) {
		r, a := s.bench(t, 0), NewAuthor("a")
		a.Write(t, 40, 60)
		c := checkpoint("b", frontier(a.Ops[19]), nil)
		seeder, owner := r.open().(relay.Collector), r.open()
		var wg sync.WaitGroup
		var seedErr, pushErr error
		wg.Go(func() { seedErr = seeder.Seed(t.Context(), "b", c, headsOf(a.Ops[19])) })
		wg.Go(func() {
			for i := 0; i < 40 && pushErr == nil; {
				var got relay.Pushed
				got, pushErr = owner.Push(t.Context(), "a", a.Ops[i:i+5])
				i += got.Accepted + got.Duplicate
				if errors.Is(pushErr, relay.ErrGap) || errors.Is(pushErr, relay.ErrFrontierTruncated) { // the seed came between
					info, err := owner.Hello(t.Context(), "a")
					if pushErr = err; err == nil {
						i = int(info.Head.Seq) + 1
					}
				}
			}
		})
		wg.Wait()
		if seedErr != nil || pushErr != nil {
			t.Fatalf("seed: %v, push: %v", seedErr, pushErr)
		}
		wantHead(t, r, a, 40)
		if got := pullAll(t, r, "z", relay.Want{Held: c.Frontier}); len(got[0].Ops) != 20 {
			t.Errorf("%d ops above, expected 20", len(got[0].Ops))
		}
	}
}

func (s suite) rounds(n int) int {
	if s.Slow {
		return max(n/3, 1)
	}
	return n * 5
}

func (s suite) seedFaults(t *testing.T) {
	for name, fault := range map[string]Fault{"before": Before, "after": After, "twice": Twice} {
		t.Run(name, func(t *testing.T) {
			r, a := s.bench(t, 0), NewAuthor("a")
			a.Write(t, 6, 60)
			f := NewFaultyCollector(r.Relay)
			f.Plan(func(c Call) Fault {
				if c.N == 1 {
					return fault
				}
				return None
			})
			c := checkpoint("a", frontier(a.Ops[3]), nil)
			if err := f.Seed(t.Context(), "a", c, headsOf(a.Ops[3])); fault != Twice && !errors.Is(err, ErrInjected) {
				t.Fatalf("was not failed: %v", err)
			}
			if err := f.Seed(t.Context(), "a", c, headsOf(a.Ops[3])); err != nil {
				t.Fatalf("repeated: %v", err)
			}
			r.holds(&c)
			wantHead(t, r, a, 4)
			mustPush(t, r, a.Ops[4:])
		})
	}
}
