package dir_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/relaytest"
)

// A folder is a disk that crashes, seen as a folder.
type folder struct{ *faultfs.Process }

func (f folder) Open(name string, flag int) (dir.File, error) {
	file, err := f.Process.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return file, nil
}
func (f folder) ReadDir(name string) ([]fs.DirEntry, error) { return f.List(name) }
func (folder) Close() error                                 { return nil }

// Facts of a life.
type (
	pushedTo   struct{ seq uint64 }
	ackedTo    struct{ seq uint64 }
	enrolled   struct{ role relay.Role }
	checkpoint struct{ hash string }
)

// lifeInAFolder pushes, acks, enrols and puts checkpoints; collects too if it is told to.
func lifeInAFolder(t testing.TB, collects bool) *faultfs.Scenario {
	const pushes = 4
	a := relaytest.NewAuthor("a")
	a.Write(t, 2*pushes, 60)
	open := func(p *faultfs.Process) (*dir.Relay, error) {
		return dir.Open(dir.Config{FS: folder{p}, SegmentBytes: 700, Grace: -1})
	}
	at := func(i int) oplog.Pos { return oplog.Pos{Seq: a.Ops[i].Seq, ID: a.Ops[i].ID} }
	return &faultfs.Scenario{
		Sample: 2,
		Recover: func(p *faultfs.Process) error { // reading repairs nothing
			r, err := open(p)
			if err == nil {
				_, err = r.Roster(context.Background())
			}
			return err
		},
		Life: func(p *faultfs.Process) error {
			ctx := context.Background()
			var r *dir.Relay
			do := func(step func() error) (err error) {
				for range 4 {
					if r == nil {
						if r, err = open(p); err != nil {
							continue
						}
					}
					if err = step(); err == nil {
						return nil
					}
				}
				r = nil // the next step takes a new handle
				return err
			}
			for i := range pushes {
				last := 2*i + 1
				steps := []func() error{
					func() error {
						_, err := r.Push(ctx, "a", a.Ops[2*i:last+1])
						if err == nil || errors.Is(err, relay.ErrFrontierTruncated) {
							p.Disk().Note(pushedTo{uint64(last)})
							err = nil
						}
						return err
					},
					func() error {
						err := r.Ack(ctx, "a", oplog.Frontier{"a": at(last)})
						if err == nil {
							p.Disk().Note(ackedTo{uint64(last)})
						}
						return err
					},
					func() error {
						err := r.Register(ctx, "a", relay.Replica)
						if err == nil {
							p.Disk().Note(enrolled{relay.Replica})
						}
						return err
					},
				}
				if i%2 == 1 && collects {
					body := fmt.Appendf(nil, "checkpoint %d", i)
					sum := sha256.Sum256(body)
					c := relay.Checkpoint{Hash: hex.EncodeToString(sum[:]), Author: "a", Frontier: oplog.Frontier{"a": at(last)}, Body: body}
					steps = append(steps, func() error {
						err := r.PutCheckpoint(ctx, "a", c)
						if errors.Is(err, relay.ErrBehind) {
							return nil // an earlier life put a later one
						}
						if err == nil {
							p.Disk().Note(checkpoint{c.Hash})
						}
						return err
					}, func() error {
						_, err := r.Collect(ctx)
						return err
					})
				}
				for _, step := range steps {
					if err := do(step); err != nil {
						return err
					}
				}
				if i == 1 {
					r = nil // as another process finds it
				}
			}
			return nil
		},
		Check: func(d *faultfs.Disk, facts []any) error { return holdsInFolder(d, a, open, facts) },
	}
}

func holdsInFolder(d *faultfs.Disk, a *relaytest.Author, open func(*faultfs.Process) (*dir.Relay, error), facts []any) error {
	ctx, p := context.Background(), d.Process()
	changed := ""
	d.Arm(func(c faultfs.Call) faultfs.Fault {
		if c.Changes {
			changed = c.String()
		}
		return faultfs.Fault{}
	})
	r, err := open(p)
	if err != nil {
		return err
	}
	newest, kept, err := r.Checkpoint(ctx)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	roster, err := r.Roster(ctx)
	if err != nil {
		return err
	}
	held := oplog.Frontier{}
	if kept {
		held = newest.Frontier
	}
	page, err := r.Pull(ctx, "z", relay.Want{Held: held})
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	if changed != "" {
		return fmt.Errorf("reading the folder did something: %s", changed)
	}
	d.Arm(nil)
	next := held.Next("a")
	for _, op := range page.Ops {
		if op.Seq != next || op.ID != a.Ops[next].ID {
			return fmt.Errorf("op %d is there as %.8s, %d is next", op.Seq, op.ID, next)
		}
		next++
	}
	var row relay.Member
	if i := slices.IndexFunc(roster, func(m relay.Member) bool { return m.Device == "a" }); i >= 0 {
		row = roster[i]
	}
	for _, f := range facts {
		switch f := f.(type) {
		case pushedTo:
			if next <= f.seq {
				return fmt.Errorf("op %d was accepted, %d are there", f.seq, next)
			}
		case ackedTo:
			if !row.Acked.Covers("a", f.seq) {
				return fmt.Errorf("op %d was acked, the roster says %v", f.seq, row.Acked)
			}
		case enrolled:
			if row.Role != f.role {
				return fmt.Errorf("enrolled as %s, the roster says %q", f.role, row.Role)
			}
		case checkpoint:
			if !kept {
				return fmt.Errorf("checkpoint %.8s was put, and there is none", f.hash)
			}
		}
	}
	if next < uint64(len(a.Ops)) {
		if _, err := r.Push(ctx, "a", a.Ops[next:]); err != nil {
			return fmt.Errorf("pushing what is missing: %w", err)
		}
	}
	info, err := r.Hello(ctx, "a")
	if err != nil || info.Head.Pos() != a.Head() {
		return fmt.Errorf("the head is %v in the end, not %v: %w", info.Head, a.Head(), err)
	}
	return nil
}

func runMatrix(t *testing.T, s *faultfs.Scenario) {
	t.Helper()
	var sum faultfs.Tally
	for _, pass := range []func() (faultfs.Tally, error){s.Crashes, s.Faults, s.Kills} {
		tally, err := pass()
		sum.Add(tally)
		if err != nil {
			t.Error(err)
		}
	}
	t.Log(sum)
}

func TestMatrixOfPushesAndAcks(t *testing.T) { runMatrix(t, lifeInAFolder(t, false)) }

func TestMatrixOfCollection(t *testing.T) { runMatrix(t, lifeInAFolder(t, true)) }

func TestTheMatrixMissesEachSyncOfTheFolderThatIsLeftOut(t *testing.T) {
	if err := lifeInAFolder(t, true).Needs("sync segments/", "sync ack.json", "sync checkpoints/", "syncdir d-a", "syncdir ."); err != nil {
		t.Error(err)
	}
}

// An ack that was renamed into its place by a process that could not sync it is found there by the next one, and is synced before it
// is called done.
func TestAnAckThatIsFoundThereIsDurableBeforeItIsAnswered(t *testing.T) {
	d := faultfs.New()
	a := relaytest.NewAuthor("a")
	handle := func() *dir.Relay { return open(t, dir.Config{FS: folder{d.Process()}}) }
	push(t, handle(), a.Write(t, 1, 60))
	renamed := false
	d.Arm(func(c faultfs.Call) faultfs.Fault {
		renamed = renamed || c.Op == "rename"
		if renamed && c.Op == "syncdir" {
			return faultfs.Fault{Err: errDisk}
		}
		return faultfs.Fault{}
	})
	folded := oplog.Frontier{"a": a.Head()}
	if err := handle().Ack(t.Context(), "a", folded); !errors.Is(err, relay.ErrIndeterminate) {
		t.Fatal(err)
	}
	d.Arm(nil)
	if err := handle().Ack(t.Context(), "a", folded); err != nil {
		t.Fatal(err)
	}
	roster, err := open(t, dir.Config{FS: folder{d.After(faultfs.Nothing).Process()}}).Roster(t.Context())
	if err != nil || len(roster) != 1 || !roster[0].Acked.Equal(folded) {
		t.Errorf("after a loss of power: %+v, %v", roster, err)
	}
}
