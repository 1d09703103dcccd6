package session_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

// A covered is a device with so many ops that are only in its checkpoint, half of them its own, over the same few keys, and its relay.
type covered struct {
	dir   string
	relay *memory.Relay
}

// newCovered makes it, in the way a fleet comes to it: written, pumped, published and collected, again and again.
func newCovered(tb testing.TB, dir string, n int) covered {
	tb.Helper()
	c := covered{dir: dir, relay: collecting()}
	sessions := []*session.Session{c.open(tb, "a"), c.open(tb, "b")}
	for left := n / 2; left > 0; left -= 500 {
		for _, s := range sessions {
			drafts := make([]journal.Draft, min(left, 500))
			for i := range drafts {
				drafts[i] = journal.Draft{Scope: oplog.Personal, Surface: oplog.Registry("tool"), Payload: fmt.Appendf(nil, `{"id":"%d"}`, i%50)}
			}
			if _, err := s.Append(tb.Context(), drafts...); err != nil {
				tb.Fatal(err)
			}
		}
		for i := range 4 {
			if _, err := sessions[i%2].Pump(tb.Context(), c.relay); err != nil {
				tb.Fatal(err)
			}
		}
		for _, s := range sessions {
			if _, err := s.Publish(tb.Context(), c.relay); err != nil {
				tb.Fatal(err)
			}
			if _, err := relay.Collector(c.relay).Collect(tb.Context()); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return c
}

func (c covered) open(tb testing.TB, name string) *session.Session {
	tb.Helper()
	fsys := lazy{}
	j, err := journal.Open(tb.Context(), journal.Config{Dir: filepath.Join(c.dir, name), Device: name, FS: fsys, SegmentBytes: 1 << 16})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := session.Open(tb.Context(), session.Config{Device: name, Journal: j, Checkpoints: &checkpoint.Store{FS: fsys, Dir: filepath.Join(c.dir, name+".checkpoints")}})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// heap is how many bytes opening a has left in memory.
func (c covered) heap(tb testing.TB) int64 {
	tb.Helper()
	var before, after runtime.MemStats
	for range 3 { // what pools hold goes with the second, and what finalizers held with the third
		runtime.GC()
	}
	runtime.ReadMemStats(&before)
	s := c.open(tb, "a")
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(s)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// fewest is the least that f allocates in one of ten calls: what the rest of the process does meanwhile only adds to it.
func fewest(f func()) float64 {
	least := math.Inf(1)
	for range 10 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

func TestWhatIsCoveredCostsNothingWhenTheDeviceIsOpenedPumpedAndAsked(t *testing.T) {
	thorough.Only(t)
	type cost struct {
		heap       int64
		disk       int64
		open, idle float64 // allocations
	}
	measure := func(n int) cost {
		c := newCovered(t, t.TempDir(), n)
		s := c.open(t, "a")
		out := cost{heap: c.heap(t), disk: bytesIn(t, c.dir)}
		out.open = fewest(func() { c.open(t, "a") })
		out.idle = fewest(func() {
			if rep, err := s.Pump(t.Context(), c.relay); err != nil || rep.Pulled+rep.Pushed.Accepted > 0 {
				t.Fatalf("%+v, %v", rep, err)
			}
			s.CommittedRun("agent", "run")
		})
		return out
	}
	const more = 30_000
	few, many := measure(2000), measure(more)
	t.Logf("2,000 covered ops: %+v; %d: %+v", few, more, many)
	if many.heap > few.heap*5/4+16<<10 || many.disk > few.disk*5/4 || many.open > few.open*5/4+100 || many.idle > few.idle+5 {
		t.Errorf("the cost grew with the history")
	}
}

// coveredSizes are compared with each other: a cost that does not grow is the same in both. To make a million takes minutes.
var coveredSizes = []int{1_000, 200_000}

// history makes each size once for all benchmarks.
var history = func() func(b *testing.B, n int) covered {
	var mu sync.Mutex
	made := map[int]covered{}
	return func(b *testing.B, n int) covered {
		mu.Lock()
		defer mu.Unlock()
		if _, ok := made[n]; !ok {
			dir, err := os.MkdirTemp("", "covered")
			if err != nil {
				b.Fatal(err)
			}
			coveredDirs = append(coveredDirs, dir)
			made[n] = newCovered(b, dir, n)
		}
		return made[n]
	}
}()

var coveredDirs []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range coveredDirs {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func overCovered(b *testing.B, run func(b *testing.B, c covered)) {
	for _, n := range coveredSizes {
		b.Run(fmt.Sprintf("covered=%d", n), func(b *testing.B) {
			c := history(b, n)
			b.ReportAllocs()
			b.ResetTimer()
			run(b, c)
		})
	}
}

func BenchmarkOpenOverACut(b *testing.B) {
	overCovered(b, func(b *testing.B, c covered) {
		for b.Loop() {
			c.open(b, "a")
		}
		b.ReportMetric(float64(c.heap(b)), "heap-B")
	})
}

func BenchmarkIdlePumpOverACut(b *testing.B) {
	overCovered(b, func(b *testing.B, c covered) {
		s := c.open(b, "a")
		for b.Loop() {
			if _, err := s.Pump(b.Context(), c.relay); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLookOverACut(b *testing.B) {
	overCovered(b, func(b *testing.B, c covered) {
		s := c.open(b, "a")
		for b.Loop() {
			s.CommittedRun("agent", "run")
			s.View(func(state *stateOf) { state.Get(oplog.Registry("tool"), "id:7") })
		}
	})
}
