package session_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
)

// failFrom makes everything fail from the n-th change of the disk or call of the relay on, as after a crash.
type failFrom struct {
	*memory.Relay
	left int
	hit  bool
}

func (f *failFrom) step() error {
	if f.hit = f.hit || f.left == 0; f.hit {
		return errDisk
	}
	f.left--
	return nil
}

func (f *failFrom) PutCheckpoint(ctx context.Context, device string, c relay.Checkpoint) error {
	if err := f.step(); err != nil {
		return err
	}
	if err := f.Relay.PutCheckpoint(ctx, device, c); err != nil {
		return err
	}
	return f.step() // done, and the answer lost
}

// everyCrash runs do on what setup made, with a crash at every step, then opens the device again and runs it once more.
func everyCrash(t *testing.T, setup func(t *testing.T) (*memory.Relay, *device, []*device), do func(d *device, r relay.Relay) error) {
	steps := 0
	for n := 0; ; n++ {
		store, d, others := setup(t)
		digest, frontier := others[0].Digest(), others[0].FoldedFrontier()
		own := d.HeldFrontier()[d.name]
		f := &failFrom{Relay: store, left: n}
		d.disk.failing(func(string, string) error { return f.step() })
		err := do(d, f)
		d.disk.failing(nil)
		if !f.hit {
			if err != nil {
				t.Fatalf("without a crash: %v", err)
			}
			break
		}
		steps++
		d.open()
		if d.HeldFrontier()[d.name] != own {
			t.Fatalf("step %d: holds %v of itself, had %v", n, d.HeldFrontier()[d.name], own)
		}
		if err := do(d, store); err != nil {
			t.Fatalf("step %d: repeated: %v", n, err)
		}
		d.pump(store)
		d.verify()
		if cut, ok, err := d.journal().Cut(); err != nil || !ok || cut.Checkpoint == "" {
			t.Fatalf("step %d: cut %v, %v", n, ok, err)
		}
		if d.Digest() != digest && d.FoldedFrontier().Equal(frontier) {
			t.Fatalf("step %d: another digest", n)
		}
		pumpAll(store, append(slices.Clone(others), d)...)
		same(t, append(slices.Clone(others), d)...)
		if t.Failed() {
			t.Fatalf("at step %d", n)
		}
	}
	if steps < 9 {
		t.Errorf("only %d steps", steps)
	}
	t.Logf("%d steps", steps)
}

func TestACrashAtAnyStepOfPublishIsRepeatable(t *testing.T) {
	everyCrash(t, func(t *testing.T) (*memory.Relay, *device, []*device) {
		r := collecting()
		a, b := newSmall(t, "a"), newSmall(t, "b")
		a.some(20)
		b.some(20)
		pumpAll(r, a, b)
		return r, a, []*device{b}
	}, func(d *device, r relay.Relay) error {
		_, err := d.Publish(d.t.Context(), r)
		return err
	})
}

func TestACrashAtAnyStepOfARebaseIsRepeatable(t *testing.T) {
	everyCrash(t, func(t *testing.T) (*memory.Relay, *device, []*device) {
		r := collecting()
		a, _ := collected(t, r)
		c := newSmall(t, "c")
		for range 4 {
			c.some(6)
		}
		return r, c, []*device{a}
	}, func(d *device, r relay.Relay) error {
		_, _, err := d.Rebase(d.t.Context(), r)
		return err
	})
}

func TestAppendsGoOnWhileTheJournalIsCutAndRebased(t *testing.T) {
	r := collecting()
	a, _ := collected(t, r)
	c := newSmall(t, "c")
	for _, d := range []*device{a, c} {
		stop, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
				draft := journal.Draft{Scope: oplog.Personal, Surface: oplog.Registry("tool"), Payload: fmt.Appendf(nil, `{"id":"%d"}`, i%7)}
				ops, err := d.Append(t.Context(), draft)
				if err == nil && d.HeldFrontier()[d.name].Seq < ops[0].Seq {
					err = fmt.Errorf("op %d was appended and is not in memory", ops[0].Seq)
				}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
		for range 10 {
			d.pump(r)
			d.publish(r)
		}
		close(stop)
		if err := <-ended; err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		held, digest := d.HeldFrontier(), d.Digest()
		d.open()
		if !d.HeldFrontier().Equal(held) || d.Digest() != digest {
			t.Errorf("%s: memory was not what the journal holds", d.name)
		}
	}
	pumpAll(r, a, c)
	same(t, a, c)
}
