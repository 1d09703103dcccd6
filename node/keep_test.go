package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/coord"
	coordmemory "github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/node"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/session"
)

// A member is a real session on a disk, and a node over it.
type member struct {
	*session.Session
	t    *testing.T
	dir  string
	cfg  node.Config
	log  bytes.Buffer // read it after the stop
	stop func()
}

// anchored opens a session that keeps checkpoints, with small segments.
func anchored(t *testing.T, device string, r relay.Relay) *member {
	t.Helper()
	m := &member{t: t, dir: t.TempDir()}
	m.open(device)
	p := coordmemory.New(coordmemory.Config{}).Process(coord.Process{})
	m.cfg = node.Config{Device: device, Session: m, Keeper: m, Watcher: m, Settler: &settler{}, Leases: p, Runs: p,
		Relays: map[string]relay.Relay{"memory": r}, CheckpointEvery: 40, StateFile: filepath.Join(m.dir, "node.json"),
		Logger: slog.New(slog.NewTextHandler(&m.log, nil))}
	return m
}

// open opens the session, or opens it anew, as another process does.
func (m *member) open(device string) {
	m.t.Helper()
	j, err := journal.Open(m.t.Context(), journal.Config{Dir: filepath.Join(m.dir, "journal"), Device: device, SegmentBytes: 4000})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = j.Close() })
	m.Session, err = session.Open(m.t.Context(), session.Config{Device: device, Journal: j, Checkpoints: &checkpoint.Store{Dir: filepath.Join(m.dir, "checkpoints")}})
	if err != nil {
		m.t.Fatal(err)
	}
}

// start runs a node; it may be stopped and started again.
func (m *member) start() *member {
	m.t.Helper()
	n, err := node.New(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	m.stop = func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Errorf("Run: %v", err)
		}
	}
	return m
}

func (m *member) segments() int {
	m.t.Helper()
	names, err := filepath.Glob(filepath.Join(m.dir, "journal", "*.jsonl"))
	if err != nil {
		m.t.Fatal(err)
	}
	return len(names)
}

// A tally is a relay that counts its calls.
type tally struct {
	*memory.Relay
	mu    sync.Mutex
	calls map[string]int
}

func newTally(cfg memory.Config) *tally {
	return &tally{Relay: memory.New(cfg), calls: map[string]int{}}
}

func (r *tally) count(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[call]++
}

func (r *tally) of(call string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[call]
}

func (r *tally) Roster(ctx context.Context) ([]relay.Member, error) {
	r.count("roster")
	return r.Relay.Roster(ctx)
}

func (r *tally) Checkpoint(ctx context.Context) (relay.Checkpoint, bool, error) {
	r.count("checkpoint")
	return r.Relay.Checkpoint(ctx)
}

func (r *tally) PutCheckpoint(ctx context.Context, device string, c relay.Checkpoint) error {
	r.count("put")
	return r.Relay.PutCheckpoint(ctx, device, c)
}

func (r *tally) Collect(ctx context.Context) (relay.Collection, error) {
	r.count("collect")
	return r.Relay.Collect(ctx)
}

// kept is how many ops the relay holds.
func (r *tally) kept(t *testing.T) (n uint64) {
	t.Helper()
	info, err := r.Hello(t.Context(), "d1")
	if err != nil {
		t.Fatal(err)
	}
	for device, head := range info.Heads {
		n += head.Seq + 1
		if floor, ok := info.Floor[device]; ok {
			n -= floor.Seq + 1
		}
	}
	return n
}

// writeForTwentyMinutes has every member write, long enough for both phases of a collection, and says how many ops that were. Their
// journals have to stay flat.
func writeForTwentyMinutes(t *testing.T, fleet []*member) (written int) {
	t.Helper()
	most := 0
	for range 40 {
		for _, m := range fleet {
			for range 5 {
				write(t, m.Session, written)
				written++
			}
		}
		bubble.Pass(30 * time.Second)
		for _, m := range fleet {
			most = max(most, m.segments())
		}
	}
	// 600 ops of some 250 bytes are 40 segments of 4000.
	if most == 0 || most > 16 {
		t.Errorf("a journal had %d segments at a time; want some, and it to stay flat", most)
	}
	return written
}

func TestAFleetOfNodesKeepsItsLogsAndItsRelayBoundedAndAColdOneJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTally(memory.Config{})
		fleet := []*member{anchored(t, "d1", r).start(), anchored(t, "d2", r).start(), anchored(t, "d3", r).start()}
		written := writeForTwentyMinutes(t, fleet)
		bubble.Pass(time.Hour)
		if kept := r.kept(t); kept > 120 {
			t.Errorf("the relay keeps %d of %d ops", kept, written)
		}
		if puts := r.of("put"); puts > written/40+2 {
			t.Errorf("%d checkpoints were put for %d ops; one of a fleet has to be enough", puts, written)
		}
		cold := anchored(t, "d4", r).start()
		bubble.Pass(time.Minute)
		if want := fleet[0].Digest(); cold.Digest() != want || fleet[1].Digest() != want || fleet[2].Digest() != want {
			t.Error("the digests differ")
		}
		for _, m := range append(fleet, cold) {
			m.stop()
		}
		if cold.segments() > 8 { // its own, and what came since; none if the checkpoint has it all
			t.Errorf("the cold node did not start from the checkpoint: %d segments", cold.segments())
		}
	})
}

func TestANodeWithNothingNewAsksForNoCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTally(memory.Config{})
		m := anchored(t, "d1", r).start()
		for n := range 100 {
			write(t, m.Session, n)
		}
		bubble.Pass(time.Hour)
		if r.of("put") == 0 || r.kept(t) > 40 {
			t.Fatalf("%d checkpoints, %d ops in the relay: nothing was bounded", r.of("put"), r.kept(t))
		}
		names := []string{"checkpoint", "put", "collect"}
		before, looks := fmt.Sprint(r.of(names[0]), r.of(names[1]), r.of(names[2])), r.of("roster")
		bubble.Pass(4 * time.Hour)
		if after := fmt.Sprint(r.of(names[0]), r.of(names[1]), r.of(names[2])); after != before {
			t.Errorf("calls of %v: %s, four hours later %s", names, before, after)
		}
		if looks = r.of("roster") - looks; looks > 5 {
			t.Errorf("%d looks at the roster in four hours, want one in an hour", looks)
		}
		m.stop()
	})
}

var someID = oplog.OpID("op-" + strings.Repeat("0", 64))

// A sparse session has too few ops for a checkpoint, of a relay that has collected some of d2.
type sparse struct{ published atomic.Int32 }

func (*sparse) Pump(context.Context, relay.Relay) (session.Report, error) {
	return session.Report{Instance: "i", Floor: oplog.Frontier{"d2": {Seq: 4, ID: someID}}}, nil
}
func (*sparse) HeldFrontier() oplog.Frontier { return oplog.Frontier{} }
func (*sparse) Appended() <-chan struct{}    { return nil }
func (*sparse) Uncovered([]relay.Member, oplog.Frontier) (all, stable uint64) {
	return 3, 3
}
func (*sparse) Rebase(context.Context, relay.Relay) (session.Adopted, bool, error) {
	return session.Adopted{}, false, nil
}
func (s *sparse) Publish(context.Context, relay.Relay, ...string) (session.Published, error) {
	s.published.Add(1)
	return session.Published{}, nil
}

func TestAReplicaThatLacksWhatWasCollectedIsGivenACheckpointHoweverLittleThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTally(memory.Config{})
		for device, acked := range map[string]oplog.Frontier{"d1": nil, "d2": {"d2": {Seq: 7, ID: someID}}} {
			if err := errors.Join(r.Register(t.Context(), device, relay.Replica), r.Ack(t.Context(), device, acked)); err != nil {
				t.Fatal(err)
			}
		}
		m := anchored(t, "d1", r)
		s := &sparse{}
		m.cfg.Session, m.cfg.Keeper = s, s
		m.start()
		bubble.Pass(6 * time.Hour)
		if n := s.published.Load(); n != 0 {
			t.Errorf("published %d times though every replica gets on", n)
		}
		if err := r.Register(t.Context(), "d3", relay.Replica); err != nil {
			t.Fatal(err)
		}
		bubble.Pass(2 * time.Hour)
		if s.published.Load() == 0 {
			t.Error("a replica that lacks what was collected was left to itself")
		}
		m.stop()
	})
}

func TestWhatASilentReplicaLacksIsNeverDroppedAndAskedForEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTally(memory.Config{})
		silent := anchored(t, "d2", r).start()
		m := anchored(t, "d1", r).start()
		bubble.Pass(time.Minute)
		silent.stop()
		for n := range 100 {
			write(t, m.Session, n)
		}
		bubble.Pass(4 * time.Hour)
		if r.of("put") != 0 || r.kept(t) != 100 {
			t.Errorf("%d checkpoints, %d ops kept, want none and all", r.of("put"), r.kept(t))
		}
		if asked := r.of("roster"); asked > 35 {
			t.Errorf("the roster was read %d times in four hours, want about one in ten minutes", asked)
		}
		silent.start()
		bubble.Pass(time.Hour)
		if r.of("put") == 0 || r.kept(t) > 40 {
			t.Errorf("%d checkpoints, %d ops kept after it came back", r.of("put"), r.kept(t))
		}
		silent.stop()
		m.stop()
	})
}

func TestAFullRelayIsCollectedBeforeTheThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTally(memory.Config{MaxBytes: 50_000})
		m := anchored(t, "d1", r)
		m.cfg.CheckpointEvery = 1_000_000
		m.start()
		for n := range 200 { // more than fits
			write(t, m.Session, n)
			bubble.Pass(10 * time.Second)
		}
		bubble.Pass(2 * time.Hour)
		info, err := r.Hello(t.Context(), "d1")
		m.stop()
		if err != nil || info.Head.Seq != 199 {
			t.Errorf("the relay's head is %d, %v; want 199: it was full for ever\n%s", info.Head.Seq, err, m.log.String())
		}
		if got := strings.Count(m.log.String(), "level=ERROR"); got > 10 {
			t.Errorf("trouble was told %d times\n%s", got, m.log.String())
		}
	})
}

// A jammed relay does not collect for a while.
type jammed struct {
	*tally
	jam atomic.Bool
}

func (r *jammed) Collect(ctx context.Context) (relay.Collection, error) {
	if r.jam.Load() {
		return relay.Collection{}, relay.ErrNotSent
	}
	return r.tally.Collect(ctx)
}

func TestACollectionThatFailsIsToldOnceAndSoIsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &jammed{tally: newTally(memory.Config{})}
		m := anchored(t, "d1", r).start()
		for n := range 100 {
			write(t, m.Session, n)
		}
		for r.of("collect") == 0 { // the first phase, which marks
			bubble.Pass(time.Second)
		}
		r.jam.Store(true)
		bubble.Pass(time.Hour)
		r.jam.Store(false)
		bubble.Pass(time.Hour)
		m.stop()
		log := m.log.String()
		if failed, over := strings.Count(log, "collection failed"), strings.Count(log, "collection works again"); failed != 1 || over != 1 {
			t.Errorf("told %d times, its end %d times, want each once\n%s", failed, over, log)
		}
	})
}

func TestARelayThatIsAnotherOrLostOpsIsToldOnceAlsoAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := memory.New(memory.Config{})
		m := anchored(t, "d1", first)
		other := anchored(t, "d2", first).start()
		m.start()
		write(t, m.Session, 1)
		write(t, other.Session, 2)
		bubble.Pass(10 * time.Minute)
		m.stop()
		other.stop()
		next := memory.New(memory.Config{})
		m.cfg.Relays = map[string]relay.Relay{"memory": next}
		for range 2 {
			m.start()
			bubble.Pass(10 * time.Minute)
			m.stop()
		}
		if got := strings.Count(m.log.String(), "another store than before"); got != 1 {
			t.Errorf("told %d times, want once\n%s", got, m.log.String())
		}
		s, err := node.ReadState(m.cfg.StateFile)
		info, _ := next.Hello(t.Context(), "d1")
		if seen := s.Relays["memory"]; err != nil || seen.Instance != info.Instance || len(seen.Heads) != 1 {
			t.Errorf("state %+v, %v; want instance %s and one head", s, err, info.Instance)
		}
	})
}

// A shrunk relay forgot the chain of a device, and everything about itself looks the same.
type shrunk struct {
	*memory.Relay
	at oplog.Frontier
}

func (r *shrunk) Hello(ctx context.Context, device string) (relay.Info, error) {
	info, err := r.Relay.Hello(ctx, device)
	for d, p := range r.at {
		info.Heads[d] = p
		delete(info.Acked, d)
	}
	return info, err
}

func TestARelayThatWasPutBackFromYesterdayUnderItsNameIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := memory.New(memory.Config{})
		m, other := anchored(t, "d1", r).start(), anchored(t, "d2", r).start()
		first, err := other.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: "registry:test", Payload: []byte(`{"id":"k"}`)})
		if err != nil {
			t.Fatal(err)
		}
		write(t, other.Session, 2)
		bubble.Pass(10 * time.Minute)
		m.stop()
		other.stop()
		m.cfg.Relays = map[string]relay.Relay{"memory": &shrunk{r, oplog.Frontier{"d2": {Seq: 0, ID: first[0].ID}}}}
		m.start()
		bubble.Pass(10 * time.Minute)
		m.stop()
		if got := strings.Count(m.log.String(), "the relay lost ops"); got != 1 || !strings.Contains(m.log.String(), "lacks_ops_of=d2") {
			t.Errorf("told %d times, want once, of d2\n%s", got, m.log.String())
		}
	})
}

func TestARelayThatDropsWhatItAnswersForIsToldOnceAndSoIsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := relaytest.NewLiar(memory.New(memory.Config{}))
		m := anchored(t, "d1", r).start()
		writing := func(n int) {
			for ; n > 0; n-- {
				write(t, m.Session, n)
				bubble.Pass(10 * time.Second)
			}
		}
		writing(10)
		r.Tell(relaytest.Lie{Push: func([]oplog.Op) []oplog.Op { return nil }})
		writing(10)
		bubble.Pass(10 * time.Minute)
		r.Tell(relaytest.Lie{})
		writing(10)
		bubble.Pass(time.Minute)
		m.stop()
		log := m.log.String()
		lost, over, ok := strings.Cut(log, "the relay has the ops again that it lacked")
		if !ok || strings.Count(lost, "the relay lost ops") != 1 || !strings.Contains(lost, "lacks_ops_of=d1") ||
			strings.Contains(over, "the relay lost ops") || strings.Contains(over, "that it lacked") {
			t.Errorf("want the loss told once, and then its end once:\n%s", log)
		}
	})
}

func TestARelayThatHasNothingOfTheOwnChainAnyMoreIsToldAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := memory.New(memory.Config{})
		m := anchored(t, "d1", r).start()
		write(t, m.Session, 1)
		bubble.Pass(10 * time.Minute)
		m.stop()
		r.Forget("d1", 0)
		m.open("d1")
		m.start()
		bubble.Pass(10 * time.Minute)
		m.stop()
		log := m.log.String()
		for _, once := range []string{"the relay lost ops", "lacks_ops_of=d1", "the relay has the ops again that it lacked"} {
			if got := strings.Count(log, once); got != 1 {
				t.Errorf("%q was told %d times, want once\n%s", once, got, log)
			}
		}
	})
}
