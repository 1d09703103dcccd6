package session_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

// lazy is the real file system without waiting for the disk.
type lazy struct{ journal.OS }

type lazyFile struct{ journal.File }

func (lazyFile) Sync() error      { return nil }
func (lazy) SyncDir(string) error { return nil }
func (l lazy) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := l.OS.OpenFile(name, flag, perm)
	return lazyFile{f}, err
}

const (
	soakers    = 4
	soakKeys   = 25      // of each register and set that a device writes
	soakEach   = 40      // ops of a device in a round
	soakEvery  = 600     // ops in no checkpoint from which on a device makes or takes one, as a node does
	soakRoll   = 1 << 15 // bytes of a journal's segment
	soakRounds = 16      // at least
	soakLine   = 400     // bytes: more than the line of any op here
)

// A soaker is a device of the soak, with its own way to the relay.
type soaker struct {
	*session.Session
	dir   string
	relay relay.Relay
	n     int
}

// A soak is the fleet and where its relay lies.
type soak struct {
	t       *testing.T
	devices []*soaker
	folder  string      // of the relay; empty if it is in memory
	store   relay.Relay // one handle
}

func newSoak(t *testing.T, kind string, fsys journal.FS) *soak {
	s := &soak{t: t}
	open := func() relay.Relay { return s.store }
	if kind == "folder" {
		s.folder = filepath.Join(t.TempDir(), "relay")
		open = func() relay.Relay {
			r, err := dir.Open(dir.Config{Path: s.folder, SegmentBytes: soakRoll, Grace: -1})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		s.store = open()
	} else {
		s.store = memory.New(memory.Config{Grace: -1})
	}
	for i := range soakers {
		d := &soaker{dir: filepath.Join(t.TempDir(), "d"), relay: open()}
		name := fmt.Sprint("d", i)
		j, err := journal.Open(t.Context(), journal.Config{Dir: filepath.Join(d.dir, "log"), Device: name, FS: fsys, SegmentBytes: soakRoll})
		if err != nil {
			t.Fatal(err)
		}
		d.Session, err = session.Open(t.Context(), session.Config{Device: name, Journal: j,
			Checkpoints: &checkpoint.Store{FS: fsys, Dir: filepath.Join(d.dir, "checkpoints")}})
		if err != nil {
			t.Fatal(err)
		}
		s.devices = append(s.devices, d)
	}
	return s
}

// round lets every device write and pump at the same time, and then do what its policy says.
func (s *soak) round(write func(d *soaker) []journal.Draft) {
	var wg sync.WaitGroup
	for _, d := range s.devices {
		wg.Go(func() {
			if _, err := d.Append(s.t.Context(), write(d)...); err != nil {
				s.t.Error(err)
			}
			s.pump(d)
		})
	}
	wg.Wait()
	for _, d := range s.devices { // so that all have folded and acked what all wrote
		s.pump(d)
	}
	for _, d := range s.devices {
		s.keep(d)
		if _, err := d.relay.(relay.Collector).Collect(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *soak) pump(d *soaker) session.Report {
	rep, err := d.Pump(s.t.Context(), d.relay)
	if err != nil {
		s.t.Errorf("%s: %v", d.Device(), err)
	}
	return rep
}

// keep is the policy of a node: enough in no checkpoint, then the relay's newest one, else one of its own if enough is stable.
func (s *soak) keep(d *soaker) {
	rep := s.pump(d)
	if all, _ := d.Uncovered(nil, nil); all < soakEvery {
		return
	}
	if rep.Newer {
		if _, took, err := d.Rebase(s.t.Context(), d.relay); err != nil {
			s.t.Fatal(err)
		} else if took {
			return
		}
	}
	roster, err := d.relay.Roster(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if _, stable := d.Uncovered(roster, rep.Heads); 4*stable < soakEvery {
		return
	}
	if _, err := d.Publish(s.t.Context(), d.relay); err != nil {
		s.t.Fatal(err)
	}
}

// churn writes over the same keys for ever, so that the state stays as large as it is.
func churn(d *soaker) []journal.Draft {
	out := make([]journal.Draft, soakEach)
	for i := range out {
		surface := []oplog.Surface{oplog.Registry("tool"), oplog.DeclAgent, oplog.Knowledge}[d.n%3]
		out[i] = journal.Draft{Scope: oplog.Personal, Surface: surface,
			Payload: fmt.Appendf(nil, `{"id":"%s-%d","n":%d}`, d.Device(), d.n%soakKeys, d.n)}
		d.n++
	}
	return out
}

// runsOf writes runs that committed: they are kept for ever.
func runsOf(d *soaker) []journal.Draft {
	var out []journal.Draft
	for range soakEach / 2 {
		for _, status := range []string{oplog.StatusPending, oplog.StatusCommitted} {
			payload, err := oplog.Intent{RunID: fmt.Sprintf("run-%s-%d", d.Device(), d.n), Agent: "agent", Epoch: 1, Status: status,
				Attempt: fmt.Sprint("t", d.n), Occurrence: fmt.Sprintf("key:%d", d.n)}.Payload()
			if err != nil {
				panic(err)
			}
			out = append(out, journal.Draft{Scope: oplog.Personal, Surface: oplog.Intents, Payload: payload})
		}
		d.n++
	}
	return out
}

// A size is what everything takes after a round.
type size struct {
	journal, checkpoints, relay, heap int64
}

// size is that of the largest journal, of the checkpoints of one device, of the relay, and of all in memory.
func (s *soak) size() size {
	var out size
	for _, d := range s.devices {
		out.journal = max(out.journal, bytesIn(s.t, filepath.Join(d.dir, "log")))
		out.checkpoints = max(out.checkpoints, bytesIn(s.t, filepath.Join(d.dir, "checkpoints")))
	}
	if s.folder != "" {
		out.relay = bytesIn(s.t, s.folder)
	} else {
		out.relay = s.held()
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	out.heap = int64(m.HeapAlloc)
	return out
}

// held is what a relay in memory takes, at soakLine bytes an op.
func (s *soak) held() (n int64) {
	info, err := s.store.Hello(s.t.Context(), "d0")
	if err != nil {
		s.t.Fatal(err)
	}
	for device, head := range info.Heads {
		n += soakLine * int64(head.Seq+1-info.Floor.Next(device))
	}
	if c, ok, err := s.store.(relay.Collector).Checkpoint(s.t.Context()); err != nil {
		s.t.Fatal(err)
	} else if ok {
		n += int64(len(c.Body))
	}
	return n
}

func bytesIn(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // not yet
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (a size) max(b size) size {
	return size{max(a.journal, b.journal), max(a.checkpoints, b.checkpoints), max(a.relay, b.relay), max(a.heap, b.heap)}
}

// within checks that nothing of a is larger than so many times b, and as much as slack.
func (a size) within(t *testing.T, what string, b size, times float64, slack int64) {
	t.Helper()
	for _, c := range []struct {
		name string
		a, b int64
	}{{"a journal", a.journal, b.journal}, {"the checkpoints", a.checkpoints, b.checkpoints}, {"the relay", a.relay, b.relay}, {"memory", a.heap, b.heap}} {
		if float64(c.a) > times*float64(c.b)+float64(slack) {
			t.Errorf("%s: %s takes %d bytes, and may %.1f times %d and %d", what, c.name, c.a, times, c.b, slack)
		}
	}
}

// Four devices that are all anchored write as fast as they can, half of the time over each relay. What lies on disks and in memory depends on
// the state and on how much may be in no checkpoint, not on how much was ever written. SOAK is for how long; with it, disks are waited for.
func TestEndlessWritesKeepEveryStoreFlat(t *testing.T) {
	thorough.Only(t)
	long, fsys := 3*time.Second, journal.FS(lazy{})
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		fsys = journal.OS{}
	}
	for _, kind := range []string{"folder", "memory"} {
		t.Run(kind, func(t *testing.T) {
			s := newSoak(t, kind, fsys)
			samples := s.soak(time.Now().Add(long / 2))
			half := len(samples) / 2
			var early, late size
			for i, x := range samples[4:] { // the first checkpoint comes in the fourth round
				if i+4 < half {
					early = early.max(x)
				} else {
					late = late.max(x)
				}
			}
			ops := len(samples) * soakers * soakEach
			t.Logf("%d ops in %d rounds: %+v at most in the first half, %+v in the second", ops, len(samples), early, late)
			late.within(t, "in the second half", early, 1.5, 0)
			// One more round than may stay uncovered is on the way, and of what is covered whole segments stay.
			window := int64(2*soakEvery+2*soakers*soakEach) * soakLine
			state := late.checkpoints
			bound := size{journal: window + 4*soakRoll, checkpoints: soakers * 3 * soakKeys * 2 * soakLine, relay: window + soakers*(2*soakRoll+2*state), heap: 48 << 20}
			late.within(t, "whatever was written", bound, 1, 0)
			s.converged()
			s.runs()
		})
	}
}

// soak writes until the time has come, and gives the sizes after each round.
func (s *soak) soak(until time.Time) (samples []size) {
	s.t.Logf("%8s %10s %12s %12s %12s %12s", "round", "ops", "journal", "checkpoints", "relay", "memory")
	for round := 1; round <= soakRounds || time.Now().Before(until); round++ {
		s.round(churn)
		x := s.size()
		samples = append(samples, x)
		if round&(round-1) == 0 || round%4096 == 0 {
			s.t.Logf("%8d %10d %12d %12d %12d %12d", round, round*soakers*soakEach, x.journal, x.checkpoints, x.relay, x.heap)
		}
	}
	return samples
}

func (s *soak) converged() {
	for range 2 {
		for _, d := range s.devices {
			s.pump(d)
		}
	}
	for _, d := range s.devices {
		if !d.FoldedFrontier().Equal(s.devices[0].FoldedFrontier()) || d.Digest() != s.devices[0].Digest() {
			s.t.Errorf("%s has folded %v, d0 %v", d.Device(), d.FoldedFrontier(), s.devices[0].FoldedFrontier())
		}
	}
}

// runs says what a committed run costs, which is kept for ever.
func (s *soak) runs() {
	before := s.size()
	const rounds = 12
	for range rounds {
		s.round(runsOf)
	}
	for range 4 { // so that the journals hold of both what they usually hold
		s.round(churn)
	}
	after := s.size()
	n := int64(rounds * soakers * soakEach / 2)
	heap := after.heap - before.heap
	if s.folder == "" {
		heap -= after.relay - before.relay
	}
	heap = heap / n / soakers
	s.t.Logf("a committed run: %d bytes of memory and %d of checkpoint in each device, %d in the relay", heap, (after.checkpoints-before.checkpoints)/n, (after.relay-before.relay)/n)
	if heap > 250 { // 200 for the state, and what sessions hold of the last rounds
		s.t.Errorf("a committed run takes %d bytes of memory", heap)
	}
}
