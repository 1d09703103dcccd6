package session_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/session"
)

// A forged relay gives another checkpoint than it has.
type forged struct {
	*memory.Relay
	c relay.Checkpoint
}

func (f forged) Checkpoint(context.Context) (relay.Checkpoint, bool, error) { return f.c, true, nil }

// made is the checkpoint of some ops, as a relay gives it.
func made(t *testing.T, ops ...oplog.Op) relay.Checkpoint {
	t.Helper()
	to := oplog.Frontier{}
	for _, op := range ops {
		to[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
	}
	c, err := checkpoint.Extend(nil, checkpoint.Cut{Frontier: to}, func(yield func(oplog.Op, error) bool) {
		for _, op := range ops {
			if !yield(op, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.Body()
	if err != nil {
		t.Fatal(err)
	}
	return relay.Checkpoint{Hash: string(c.Hash), Author: "forger", Frontier: c.Frontier(), Body: body}
}

func chainOf(t *testing.T, name string, word string, n int) []oplog.Op {
	t.Helper()
	clock := oplog.NewClock(name)
	var out []oplog.Op
	var prev oplog.OpID
	for i := range n {
		op, err := oplog.New(name, uint64(i), prev, clock.Tick(start.UnixMilli()), oplog.Personal, oplog.Knowledge, fmt.Appendf(nil, `{"id":"%s%d"}`, word, i))
		if err != nil {
			t.Fatal(err)
		}
		out, prev = append(out, op), op.ID
	}
	return out
}

func TestACoveredOwnOpWithAnotherIDIsAFork(t *testing.T) {
	a := newSmall(t, "a")
	a.some(5)
	before, digest := strings.Join(a.lines(), "\n"), a.Digest()
	_, _, err := a.Rebase(t.Context(), forged{collecting(), made(t, chainOf(t, "a", "other", 3)...)})
	if _, fork := errors.AsType[*oplog.ForkError](err); !fork || !errors.Is(err, session.ErrFrozen) {
		t.Errorf("got %v", err)
	}
	if a.Status().Frozen == nil || !a.Status().Frozen.Fork || strings.Join(a.lines(), "\n") != before || a.Digest() != digest {
		t.Error("the id is not frozen, or something changed")
	}
}

func TestACheckpointThatCoversLostOwnOpsFreezesTheID(t *testing.T) {
	a := newSmall(t, "a")
	_, _, err := a.Rebase(t.Context(), forged{collecting(), made(t, chainOf(t, "a", "own", 3)...)})
	if !errors.Is(err, session.ErrFrozen) || a.Status().Frozen.Fork {
		t.Errorf("got %v", err)
	}
}

func TestACoveredOpOfAPeerWithAnotherIDIsAForkAndChangesNothing(t *testing.T) {
	r := collecting()
	a, b := newSmall(t, "a"), newSmall(t, "b")
	b.some(5)
	pumpAll(r, a, b)
	digest := a.Digest()
	offered := made(t, append(chainOf(t, "b", "other", 3), chainOf(t, "c", "c", 2)...)...)
	_, _, err := a.Rebase(t.Context(), forged{r, offered})
	if _, fork := errors.AsType[*oplog.ForkError](err); !fork || a.Digest() != digest {
		t.Errorf("got %v", err)
	}
	if _, cut, err := a.journal().Cut(); cut || err != nil {
		t.Errorf("the journal was cut: %v", err)
	}
}

func TestACheckpointThatDoesNotCoverTheOwnBaseIsRefused(t *testing.T) {
	r := collecting()
	a, _ := collected(t, r)
	_, _, err := a.Rebase(t.Context(), forged{r, made(t, chainOf(t, "c", "c", 9)...)})
	if _, behind := errors.AsType[*checkpoint.BehindError](err); !behind {
		t.Errorf("got %v", err)
	}
	a.open()
}

func TestAnAdoptedCheckpointIsRefoldedWhileItsOpsAreHeld(t *testing.T) {
	r := collecting()
	a, b := newSmall(t, "a"), newSmall(t, "b")
	a.some(30)
	b.some(30)
	pumpAll(r, a, b)
	a.publish(r)
	size := b.segments()
	got, ok, err := b.Rebase(t.Context(), r)
	if err != nil || !ok || !got.Proved || got.Author != "a" {
		t.Fatalf("adopted %+v, %v, %v", got, ok, err)
	}
	if b.segments() >= size {
		t.Error("nothing was dropped")
	}
	same(t, a, b)
	if _, ok, err := b.Rebase(t.Context(), r); ok || err != nil {
		t.Errorf("once more: %v, %v", ok, err)
	}
}

// takeForged offers a body under the hash that it has.
func (d *device) takeForged(r *memory.Relay, body string) (session.Adopted, error) {
	c := relay.Checkpoint{Author: "forger", Body: []byte(body)}
	c.Hash = hashOf(body)
	got, _, err := d.Rebase(d.t.Context(), forged{r, c})
	return got, err
}

func TestADisputedCheckpointIsNotAdopted(t *testing.T) {
	r := collecting()
	a, b := newSmall(t, "a"), newSmall(t, "b")
	ops := a.some(6)
	pumpAll(r, a, b)
	// Whoever made this one left an op out of its state: the heads are right.
	lying := made(t, ops...)
	c, err := checkpoint.Decode(strings.NewReader(string(lying.Body)), checkpoint.Hash(lying.Hash))
	if err != nil {
		t.Fatal(err)
	}
	less := made(t, ops[:1]...)
	d, err := checkpoint.Decode(strings.NewReader(string(less.Body)), checkpoint.Hash(less.Hash))
	if err != nil {
		t.Fatal(err)
	}
	head := func(h checkpoint.Header) string {
		at := h.Heads["a"]
		return fmt.Sprintf(`"seq":%d,"op_id":"%s","wall_ms":%d,"counter":%d`, at.Seq, at.ID, at.HLC.WallMS, at.HLC.Counter)
	}
	text := strings.Replace(string(less.Body), head(d.Header), head(c.Header), 1)
	_, err = b.takeForged(r, text)
	if _, disputed := errors.AsType[*checkpoint.DisputedError](err); !disputed {
		t.Errorf("got %v", err)
	}
	if _, cut, err := b.journal().Cut(); cut || err != nil {
		t.Errorf("the journal was cut: %v", err)
	}
	same(t, a, b)
}

func hashOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}
