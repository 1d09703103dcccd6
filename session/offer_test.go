package session_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/dir"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

// hush writes n ops like some, with a secret in each.
func (d *device) hush(n int) []oplog.Op {
	d.t.Helper()
	var out []oplog.Op
	for i := range n {
		out = append(out, d.write(oplog.Registry("tool"), fmt.Sprintf(`{"id":"%s-%d","text":"%s %d"}`, d.name, i%5, secret, i))...)
	}
	return out
}

// newest is the relay's checkpoint.
func newest(t *testing.T, r relay.Collector) relay.Checkpoint {
	t.Helper()
	c, ok, err := r.Checkpoint(t.Context())
	if err != nil || !ok {
		t.Fatalf("the relay's checkpoint: %v, %v", ok, err)
	}
	return c
}

func headerOf(op oplog.Op) seal.Header {
	return seal.Header{Device: op.Device, Seq: op.Seq, Prev: string(op.Prev), Wall: op.HLC.WallMS, Counter: op.HLC.Counter,
		Stamper: op.HLC.Device, Scope: string(op.Scope), Surface: string(op.Surface)}
}

func TestCheckpointsOfSealedOpsAreOnePlainOneAndLeaveTheDeviceSealed(t *testing.T) {
	r := collecting()
	keys := keyFile(t)
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
	var ops []oplog.Op
	devices := []*device{a, b}
	for round := range 6 {
		if round == 3 {
			if _, err := seal.Rotate(keys, start.Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range devices {
			ops = append(ops, d.hush(9)...)
		}
		pumpAll(r, a, b)
		made := devices[round%2].publish(r)
		if !made.New {
			t.Fatalf("round %d: %+v", round, made)
		}
		stored := newest(t, r)
		if stored.Hash == string(made.Checkpoint) || !seal.LooksSealedBlob(stored.Body) {
			t.Fatalf("round %d: the relay got %s of %s", round, stored.Hash, made.Checkpoint)
		}
		// The other one proves it, with its own ops and keys.
		took := devices[(round+1)%2].publish(r)
		if took.New || took.Adopted == nil || !took.Adopted.Proved || took.Checkpoint != made.Checkpoint {
			t.Errorf("round %d: the other one did %+v", round, took)
		}
		for _, d := range devices { // storing the newest again changes nothing
			if d.publish(r); newest(t, r).Hash != stored.Hash {
				t.Errorf("round %d: %s gave the relay the same checkpoint once more", round, d.name)
			}
			if rep := d.pump(r); rep.Newer {
				t.Errorf("round %d: %s takes its own checkpoint for a newer one", round, d.name)
			}
		}
		collect(t, r)
		hushed(t, r)
	}
	same(t, a, b)
	a.open()
	b.open()
	same(t, a, b)
	a.verify()

	sealer := a.sealer()
	base, err := a.store().Newest(nil)
	if err != nil {
		t.Fatal(err)
	}
	cut := checkpoint.Cut{Frontier: base.All(), Content: func(op oplog.Op) ([]byte, error) { return sealer.Read(headerOf(op), op.Payload) }}
	genesis, err := checkpoint.Extend(nil, cut, func(yield func(oplog.Op, error) bool) {
		for _, op := range ops {
			if !yield(op, nil) {
				return
			}
		}
	})
	if err != nil || genesis.Hash != base.Hash {
		t.Errorf("made in six steps it is %s, from genesis %v, %v", base.Hash, genesis, err)
	}
}

func TestAColdDeviceNeedsTheKeyOfTheCheckpointAndSaysSo(t *testing.T) {
	r := collecting()
	keys := keyFile(t)
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
	a.hush(30)
	intent(t, b, "r1", 3, oplog.StatusCommitted)
	pumpAll(r, a, b)
	a.publish(r)
	collect(t, r)
	late := filepath.Join(t.TempDir(), "late.keys")
	c := newSmall(t, "c").under(late, sealAll)
	own := c.write(oplog.Intents, `{"agent_id":"x","id":"r2","status":"committed"}`)[0]
	_, err := c.Pump(t.Context(), r)
	var blob *seal.BlobError
	if !errors.Is(err, seal.ErrNoKey) || !errors.As(err, &blob) || blob.Key == "" || !errors.Is(err, relay.ErrFrontierTruncated) {
		t.Errorf("without the key: %v", err)
	}
	if info, err := r.Hello(t.Context(), "c"); err != nil || info.Head.ID != own.ID {
		t.Errorf("its own op was not pushed: %+v, %v", info, err)
	}
	if names, err := c.store().List(); err != nil || len(names) != 0 {
		t.Errorf("checkpoints %v, %v", names, err)
	}
	give(t, keys, late)
	if rep := c.pump(r); rep.Adopted == nil || rep.Adopted.Author != "a" {
		t.Errorf("with the key: %+v", rep)
	}
	pumpAll(r, a, b, c)
	same(t, a, b, c)
	if _, ok := c.CommittedRun("agent", "r1"); !ok {
		t.Error("a commit is lost")
	}
}

func TestACheckpointThatWasChangedIsRefusedWhateverWasChanged(t *testing.T) {
	r := collecting()
	keys := keyFile(t)
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
	a.hush(12)
	pumpAll(r, a, b)
	before := b.FoldedFrontier()
	a.publish(r)
	good := newest(t, r)
	var other bytes.Buffer // a blob of another kind, with the same key
	w, err := a.sealer().SealBlob(&other, seal.Label{Kind: "backup", Scope: seal.Every})
	if err == nil {
		_, err = w.Write([]byte(`{"checkpoint":1}`))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, body []byte) {
		t.Helper()
		bad := good
		bad.Body = body
		sum := sha256.Sum256(body)
		bad.Hash = hex.EncodeToString(sum[:]) // whoever changes the bytes can name them anew
		_, ok, err := b.Rebase(t.Context(), forged{r, bad})
		known := errors.Is(err, seal.ErrTampered) || errors.Is(err, seal.ErrNoKey) || errors.Is(err, seal.ErrVersion) || errors.Is(err, checkpoint.ErrUnreadable)
		if ok || !known {
			t.Fatalf("%s: %v, %v", what, ok, err)
		}
	}
	for i := range good.Body {
		body := bytes.Clone(good.Body)
		body[i] ^= 1 << (i % 8)
		refused(fmt.Sprint("byte ", i), body)
		if i%16 == 0 {
			refused(fmt.Sprint("cut at ", i), good.Body[:i])
		}
	}
	refused("longer", append(bytes.Clone(good.Body), 0))
	refused("of another kind", other.Bytes())
	if names, err := b.store().List(); err != nil || len(names) != 0 || !b.FoldedFrontier().Equal(before) {
		t.Errorf("something was kept: %v, %v", names, err)
	}
	if got, ok, err := b.Rebase(t.Context(), r); err != nil || !ok || !got.Proved {
		t.Errorf("the good one: %+v, %v, %v", got, ok, err)
	}
}

func TestAClearCheckpointWhereThePolicySealsIsTakenWithProofOnlyAndReplaced(t *testing.T) {
	r := collecting()
	keys := keyFile(t)
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
	for i := range 20 {
		intent(t, a, fmt.Sprint("run-", i), 1, oplog.StatusCommitted)
	}
	pumpAll(r, a, b)
	a.under(keys, seal.Policy{}) // a person without the flags
	if out := a.publish(r); !out.New || seal.LooksSealedBlob(newest(t, r).Body) {
		t.Fatalf("%+v: want a clear checkpoint of what is clear", out)
	}
	collect(t, r)
	c := newSmall(t, "c").under(keys, sealAll)
	if _, err := c.Pump(t.Context(), r); !errors.Is(err, seal.ErrClear) {
		t.Errorf("a device that cannot prove it: %v", err)
	}
	if names, err := c.store().List(); err != nil || len(names) != 0 {
		t.Errorf("it kept %v, %v", names, err)
	}
	forger := made(t, chainOf(t, "x", "forged", 3)...)
	if _, ok, err := b.Rebase(t.Context(), forged{r, forger}); ok || !errors.Is(err, seal.ErrClear) {
		t.Errorf("a forged one: %v, %v", ok, err)
	}
	out := b.publish(r)
	if out.Adopted == nil || !out.Adopted.Proved {
		t.Errorf("a device that can prove it did %+v", out)
	}
	if b.publish(r); !seal.LooksSealedBlob(newest(t, r).Body) {
		t.Error("it was not replaced by a sealed one")
	}
	pumpAll(r, a, b, c)
	same(t, a, b, c)
}

func TestWhatCameSealedIsNeverGivenAwayInAClearCheckpoint(t *testing.T) {
	keys := keyFile(t)
	file := filepath.Join(t.TempDir(), "seal.keys")
	give(t, keys, file)
	r := collecting()
	// b has the key and no policy: it reads what is sealed, and seals nothing that it writes.
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(file, seal.Policy{})
	for i := range 20 {
		b.write(oplog.Intents, fmt.Sprintf(`{"agent_id":"x","id":"r0","status":"pending","attempt":"t%d"}`, i))
	}
	a.hush(12)
	pumpAll(r, a, b)
	if out := b.publish(r); !out.New {
		t.Fatalf("%+v", out)
	}
	hushed(t, r)
	b.write(oplog.Intents, `{"agent_id":"x","id":"r1","status":"committed"}`)
	a.under(keys, seal.Policy{Scopes: sealAll.Scopes, AcceptClear: true})
	pumpAll(r, a, b)
	stored := newest(t, r)

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.open() // the key is lost; the state is on the disk
	if _, err := b.Publish(t.Context(), r); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("a checkpoint on top of what came sealed: %v", err)
	}
	empty := collecting() // a relay that lost everything has to be seeded with it
	if _, err := b.Pump(t.Context(), empty); !errors.Is(err, session.ErrRelayBehind) || !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("a relay that lost everything: %v", err)
	}
	if got, ok, err := empty.Checkpoint(t.Context()); ok || err != nil {
		t.Errorf("the other relay got %s, %v", got.Hash, err)
	}
	if got := newest(t, r); got.Hash != stored.Hash {
		t.Errorf("the relay got %s", got.Hash)
	}
	hushed(t, r)
	give(t, keys, file)
	pumpAll(r, a, b)
	if out := b.publish(r); !out.New {
		t.Errorf("with the key: %+v", out)
	}
	if rep := b.pump(empty); rep.Seeded == "" {
		t.Errorf("a relay that lost everything, with the key: %+v", rep)
	}
	hushed(t, r)
	hushed(t, empty)
	same(t, a, b)
}

func TestCollectionWaitsForAReplicaWithoutTheKeyAndNeedsNone(t *testing.T) {
	r := collecting()
	keys := keyFile(t)
	late := filepath.Join(t.TempDir(), "late.keys")
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
	c := newSmall(t, "c").under(late, sealAll)
	a.write(oplog.Intents, `{"agent_id":"x","id":"r1","status":"committed"}`)
	a.hush(20)
	b.write(oplog.Intents, `{"agent_id":"x","id":"r2","status":"committed"}`)
	pumpAll(r, a, b, c)
	a.publish(r)
	collect(t, r)
	info, err := r.Hello(t.Context(), "c")
	if err != nil || info.Floor["a"].Seq != 0 || len(info.Floor) != 2 {
		t.Errorf("collected up to %v, %v; c has folded %v", info.Floor, err, c.FoldedFrontier())
	}
	if _, err := c.Publish(t.Context(), r); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("c has to judge a checkpoint that it cannot read: %v", err)
	}
	c.verify()
	for range 2 { // it goes on holding
		a.hush(3)
		pumpAll(r, a, b, c)
	}
	if !c.HeldFrontier().Equal(a.HeldFrontier()) {
		t.Errorf("c holds %v, a %v", c.HeldFrontier(), a.HeldFrontier())
	}
	give(t, keys, late)
	pumpAll(r, a, b, c)
	same(t, a, b, c)
	for _, d := range []*device{a, c} {
		d.publish(r)
		collect(t, r)
	}
	if info, err = r.Hello(t.Context(), "c"); err != nil || info.Floor["a"].Seq != 26 {
		t.Errorf("collected up to %v, %v", info.Floor, err)
	}
	same(t, a, b, c)
}

// A replica that cannot open an old op stops there, and goes on when a checkpoint covers it.
func TestACheckpointLeadsPastWhatCannotBeOpened(t *testing.T) {
	wall := newWall()
	r := memory.New(memory.Config{Grace: -1, EvictAfter: time.Hour, Now: wall.Now})
	keys := keyFile(t)
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
	a.hush(10)
	pumpAll(r, a, b)
	if _, err := seal.Rotate(keys, start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	// c has the newer key and lost the older one.
	text, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	only := filepath.Join(t.TempDir(), "only.keys")
	if err := os.WriteFile(only, []byte(lines[0]+lines[len(lines)-1]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newSmall(t, "c").under(only, sealAll)
	pumpAll(r, a, b, c)
	a.hush(5)
	pumpAll(r, a, b, c)
	if p := c.Status().Parked; len(p) != 1 || p[0].From != 0 || p[0].Ops != 15 {
		t.Fatalf("parked %+v", p)
	}
	wall.add(2 * time.Hour) // c does not count any more
	a.hush(1)
	pumpAll(r, a, b)
	if out := a.publish(r); !out.New {
		t.Fatalf("%+v", out)
	}
	got, ok, err := c.Rebase(t.Context(), r)
	if err != nil || !ok || got.Proved {
		t.Fatalf("%+v, %v, %v: c cannot read what it would prove it with", got, ok, err)
	}
	a.hush(4)
	pumpAll(r, a, b, c)
	if p := c.Status().Parked; len(p) != 0 {
		t.Errorf("still parked: %+v", p)
	}
	same(t, a, b, c)
	c.open()
	same(t, a, b, c)
	c.verify()
}

func TestNothingOfWhatIsSealedLiesInAFolder(t *testing.T) {
	root := t.TempDir()
	r, err := dir.Open(dir.Config{Path: root})
	if err != nil {
		t.Fatal(err)
	}
	keys := keyFile(t)
	a, b := newSmall(t, "a").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
	a.hush(20)
	intent(t, b, "run", 1, oplog.StatusCommitted)
	pumpAll(r, a, b)
	if out := a.publish(r); !out.New {
		t.Errorf("%+v", out)
	}
	b.hush(20)
	pumpAll(r, a, b)
	same(t, a, b)
	size := 0
	err = filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if size += len(data); bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s shows it", name)
		}
		return err
	})
	if err != nil || size < 40*200 {
		t.Errorf("%d bytes in the folder, %v", size, err)
	}
}
