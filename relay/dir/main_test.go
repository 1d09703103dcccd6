package dir_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	checkpoints "github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/internal/thorough"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/session"
)

var relayWant = relay.Want{}

func isFork(err error) bool      { return errors.Is(err, relay.ErrFork) }
func isForkOrGap(err error) bool { return isFork(err) || errors.Is(err, relay.ErrGap) }

// seeded gives random numbers from SYNCNODE_SEED, or from a seed that is told if the test fails.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("SYNCNODE_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: SYNCNODE_SEED=%d go test ./relay/dir -run '^%s$'", seed, t.Name())
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func TestMain(m *testing.M) {
	if args, ok := os.LookupEnv("SYNCNODE_TEST_PUSHER"); ok {
		if err := pusher(strings.Split(args, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if args, ok := os.LookupEnv("SYNCNODE_TEST_KEEPER"); ok {
		if err := keeperProcess(context.Background(), strings.Split(args, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The scripts here take long, being files; what the command line says wins.
	if err := flag.Set("rapid.checks", thorough.Of("30", "10")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// keeperProcess is a device that writes, pumps, publishes and collects for some rounds: folder, device, data directory, rounds.
func keeperProcess(ctx context.Context, args []string) error {
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	r, err := dir.Open(dir.Config{Path: args[0], SegmentBytes: 1500, Grace: -1})
	if err != nil {
		return err
	}
	defer r.Close()
	j, err := journal.Open(ctx, journal.Config{Dir: filepath.Join(args[2], "journal"), Device: args[1], SegmentBytes: 1500})
	if err != nil {
		return err
	}
	defer j.Close()
	store := &checkpoints.Store{Dir: filepath.Join(args[2], "checkpoints")}
	s, err := session.Open(ctx, session.Config{Device: args[1], Journal: j, Checkpoints: store})
	if err != nil {
		return err
	}
	dropped := 0
	for i := range n {
		for k := range 4 {
			d := journal.Draft{Scope: oplog.Personal, Surface: oplog.DeclAgent, Payload: fmt.Appendf(nil, `{"id":"%s-%d","n":%d}`, args[1], k, i)}
			if _, err := s.Append(ctx, d); err != nil {
				return err
			}
		}
		if _, err := s.Pump(ctx, r); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		// another process may put a checkpoint or delete a file at the same moment: that is told, and the next round goes on
		_, err := s.Publish(ctx, r)
		_, behind := errors.AsType[*checkpoints.BehindError](err)
		if err != nil && !behind && !errors.Is(err, relay.ErrBehind) && !errors.Is(err, relay.ErrNotSent) {
			return fmt.Errorf("round %d: %w", i, err)
		}
		done, err := r.Collect(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		dropped += done.Dropped[args[1]]
	}
	fmt.Printf("RESULT dropped=%v\n", dropped > 0)
	return nil
}

func TestTwoProcessesPublishAndCollectOverOneFolder(t *testing.T) {
	root, data := t.TempDir(), map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	const n = 12
	for _, device := range []string{"a", "b"} { // they have seen each other before either collects
		r := at(t, root)
		if err := r.Register(t.Context(), device, relay.Replica); err != nil {
			t.Fatal(err)
		}
	}
	for _, said := range processes(t, "SYNCNODE_TEST_KEEPER", fmt.Sprintf("%s|a|%s|%d", root, data["a"], n), fmt.Sprintf("%s|b|%s|%d", root, data["b"], n)) {
		if !strings.HasPrefix(said, "dropped=") {
			t.Errorf("a process says %s", said)
		}
	}
	r := open(t, dir.Config{Path: root, SegmentBytes: 1500, Grace: -1})
	a, b := newSession(t, "a", data["a"]), newSession(t, "b", data["b"])
	dropped := 0
	for range 3 {
		for _, s := range []*session.Session{a, b} {
			if _, err := s.Pump(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Publish(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			done, err := r.Collect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			dropped += done.Dropped["a"] + done.Dropped["b"]
		}
	}
	if a.Digest() != b.Digest() || !a.FoldedFrontier().Equal(b.FoldedFrontier()) || a.FoldedFrontier()["a"].Seq != 4*n-1 || a.FoldedFrontier()["b"].Seq != 4*n-1 {
		t.Errorf("folded %v and %v", a.FoldedFrontier(), b.FoldedFrontier())
	}
	if info, err := at(t, root).Hello(t.Context(), "z"); err != nil || info.Floor["a"].Seq < 2*n || info.Floor["b"].Seq < 2*n || dropped == 0 {
		t.Errorf("the floor is %v, %v; %d dropped in the end", info.Floor, err, dropped)
	}
	if rep := report(t, at(t, root)); len(rep.Forks)+len(rep.Waiting)+len(rep.Oddities) != 0 {
		t.Errorf("report %+v", rep)
	}
}

// pusher is what the tests run in processes of their own: folder, device, branch and number of ops.
func pusher(args []string) error {
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	r, err := dir.Open(dir.Config{Path: args[0], SegmentBytes: 4000})
	if err != nil {
		return err
	}
	defer r.Close()
	clock, wall := oplog.NewClock(args[1]), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli()
	var prev oplog.OpID
	for i := range n {
		payload := fmt.Appendf(nil, `{"branch":"%s","id":"%d"}`, args[2], i)
		op, err := oplog.New(args[1], uint64(i), prev, clock.Tick(wall+int64(i)), oplog.Personal, oplog.Knowledge, payload)
		if err != nil {
			return err
		}
		if _, err := r.Push(context.Background(), args[1], []oplog.Op{op}); err != nil {
			fmt.Printf("RESULT pushed=%d fork=%v err=%v\n", i, errors.Is(err, relay.ErrFork), err)
			return nil
		}
		prev = op.ID
	}
	fmt.Printf("RESULT pushed=%d\n", n)
	return nil
}

// pushers runs processes that push side by side and gives what each said.
func pushers(t *testing.T, args ...string) []string {
	t.Helper()
	return processes(t, "SYNCNODE_TEST_PUSHER", args...)
}

func processes(t *testing.T, variable string, args ...string) []string {
	t.Helper()
	outs, errs := make([]strings.Builder, len(args)), make([]error, len(args))
	cmds := make([]*exec.Cmd, len(args))
	for i, a := range args {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), variable+"="+a)
		cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[i] = cmd
	}
	said := make([]string, len(args))
	for i, cmd := range cmds {
		errs[i] = cmd.Wait()
		_, rest, ok := strings.Cut(outs[i].String(), "RESULT ")
		if errs[i] != nil || !ok {
			t.Fatalf("process %d: %v\n%s", i, errs[i], outs[i].String())
		}
		said[i], _, _ = strings.Cut(rest, "\n")
	}
	return said
}

func TestTwoProcessesPushTheirChainsIntoOneFolder(t *testing.T) {
	root := t.TempDir()
	for _, said := range pushers(t, root+"|a|x|25", root+"|b|x|25") {
		if said != "pushed=25" {
			t.Errorf("a process says %s", said)
		}
	}
	got := pull(t, at(t, root))
	if len(got["a"]) != 25 || len(got["b"]) != 25 {
		t.Errorf("%d and %d ops, expected 25 of each", len(got["a"]), len(got["b"]))
	}
	if rep := report(t, at(t, root)); len(rep.Oddities)+len(rep.Forks)+len(rep.Waiting) != 0 {
		t.Errorf("report %+v", rep)
	}
}

func TestTwoProcessesOfOneDeviceWithOneChainAddItOnce(t *testing.T) {
	root := t.TempDir()
	for _, said := range pushers(t, root+"|a|x|25", root+"|a|x|25") {
		if said != "pushed=25" {
			t.Errorf("a process says %s", said)
		}
	}
	if got := pull(t, at(t, root)); len(got["a"]) != 25 {
		t.Errorf("%d ops, expected 25", len(got["a"]))
	}
	if rep := report(t, at(t, root)); len(rep.Forks)+len(rep.Waiting) != 0 {
		t.Errorf("report %+v", rep)
	}
}

func TestOfTwoProcessesThatAreOneDeviceWithTwoChainsOneGetsAFork(t *testing.T) {
	root := t.TempDir()
	said := pushers(t, root+"|a|x|25", root+"|a|y|25")
	whole, forked := 0, 0
	for _, s := range said {
		switch {
		case s == "pushed=25":
			whole++
		case strings.Contains(s, "fork=true"):
			forked++
		}
	}
	if whole != 1 || forked != 1 {
		t.Errorf("the processes say %q, expected one whole chain and one fork", said)
	}
	got := pull(t, at(t, root))["a"]
	if len(got) != 25 {
		t.Errorf("%d ops, expected 25", len(got))
	}
	for _, op := range got {
		if string(op.Payload[:13]) != string(got[0].Payload[:13]) {
			t.Errorf("the chain is mixed: %s after %s", op.Payload, got[0].Payload)
		}
	}
}
