package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

// relinked is a chain with fitting ids after payloads or headers of it were changed: ids need no key, so whoever stores ops can make them.
func relinked(t *testing.T, ops []oplog.Op) []oplog.Op {
	t.Helper()
	var prev oplog.OpID
	out := make([]oplog.Op, len(ops))
	for i, op := range ops {
		made, err := oplog.New(op.Device, uint64(i), prev, op.HLC, op.Scope, op.Surface, op.Payload)
		if err != nil {
			t.Fatalf("op %d cannot be made: %v", i, err)
		}
		out[i], prev = made, made.ID
	}
	return out
}

// A forgery changes op 2 of a chain of five sealed ops, in a way that leaves a legal chain.
var forgeries = map[string]func(rnd *rand.Rand, ops []oplog.Op){
	"a flipped byte": func(rnd *rand.Rand, ops []oplog.Op) {
		for {
			p := bytes.Clone(ops[2].Payload)
			p[rnd.IntN(len(p))] ^= 1 << rnd.IntN(8)
			if oplog.CheckCanonical(p) == nil && !bytes.Equal(p, ops[2].Payload) {
				ops[2].Payload = p
				return
			}
		}
	},
	"cut": func(rnd *rand.Rand, ops []oplog.Op) {
		p := string(ops[2].Payload)
		end := strings.Index(p, `","key"`)
		n := len(`{"ct":"`) + rnd.IntN(end-len(`{"ct":"`))
		ops[2].Payload = json.RawMessage(p[:n] + p[end:])
	},
	"the payload of another op": func(rnd *rand.Rand, ops []oplog.Op) {
		ops[2].Payload = ops[(3+rnd.IntN(4))%5].Payload
	},
	"the nonce of another op": func(_ *rand.Rand, ops []oplog.Op) {
		cut := func(p json.RawMessage) (string, string) {
			a, b, _ := strings.Cut(string(p), `"nonce"`)
			return a, b
		}
		ct, _ := cut(ops[2].Payload)
		_, nonce := cut(ops[3].Payload)
		ops[2].Payload = json.RawMessage(ct + `"nonce"` + nonce)
	},
	"another scope":   func(_ *rand.Rand, ops []oplog.Op) { ops[2].Scope = oplog.Shared("acme") },
	"another surface": func(_ *rand.Rand, ops []oplog.Op) { ops[2].Surface = oplog.Skill },
	"another stamp":   func(_ *rand.Rand, ops []oplog.Op) { ops[2].HLC.Counter++ },
	"left away":       func(_ *rand.Rand, ops []oplog.Op) { copy(ops[2:], ops[3:]); ops[4] = ops[3]; ops[4].HLC.Counter += 9 },
	"clear":           func(_ *rand.Rand, ops []oplog.Op) { ops[2].Payload = json.RawMessage(`{"id":"forged"}`) },
}

func TestWhateverIsChangedInASealedOpIsNotFoldedAndStopsItsOwnChainOnly(t *testing.T) {
	keys := keyFile(t)
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				rnd := newRand(seed)
				store := memory.New(memory.Config{})
				good, bad, b := newSmall(t, "good").under(keys, sealAll), newSmall(t, "bad").under(keys, sealAll), newSmall(t, "b").under(keys, sealAll)
				good.write(oplog.Knowledge, payloads(3)...)
				var ops []oplog.Op
				for i := range 5 {
					ops = append(ops, bad.write(oplog.Knowledge, fmt.Sprintf(`{"id":"k%d","text":"%s"}`, i, secret))...)
				}
				commit := bad.write(oplog.Intents, `{"agent_id":"x","id":"run","status":"committed"}`)
				forge(rnd, ops)
				chain := relinked(t, append(ops, commit...))
				for _, op := range chain {
					if err := op.Check(); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := store.Push(t.Context(), "bad", chain); err != nil {
					t.Fatal(err)
				}
				good.pump(store)
				b.pump(store)
				st := b.Status()
				if len(st.Quarantined)+len(st.Parked) != 1 {
					t.Fatalf("seed %d: status %+v", seed, st)
				}
				var at uint64
				var reason error
				if len(st.Parked) == 1 { // another key id, or another version: to be had elsewhere, for all that can be known
					at, reason = st.Parked[0].From, st.Parked[0].Reason
				} else {
					at, reason = st.Quarantined[0].Seq, st.Quarantined[0].Reason
				}
				var open *seal.OpenError
				if !errors.As(reason, &open) || open.Header.Device != "bad" {
					t.Errorf("seed %d: stopped at %d by %v", seed, at, reason)
				}
				// What is changed in op 2 changes the id that op 3 is linked to; what comes before opens as it did.
				if at != 2 || b.FoldedFrontier()["bad"].Seq != 1 || b.HeldFrontier()["bad"].Seq != 5 {
					t.Errorf("seed %d: stopped at %d, folded %v of %v", seed, at, b.FoldedFrontier(), b.HeldFrontier())
				}
				if b.FoldedFrontier()["good"].Seq != 2 {
					t.Errorf("seed %d: the other chain does not go on: %v", seed, b.FoldedFrontier())
				}
				if _, ok := b.CommittedRun("x", "run"); !ok {
					t.Errorf("seed %d: a commit behind it vetoes no more", seed)
				}
				b.sameAsDisk()
				digest := b.Digest()
				if b.open(); b.Digest() != digest {
					t.Errorf("seed %d: opened again it has another state", seed)
				}
			}
		})
	}
}

// Whoever has a key can seal anything: what comes out is checked as payloads are.
func TestWhatIsSealedAndNoPayloadIsSetAside(t *testing.T) {
	keys := keyFile(t)
	b := newDevice(t, "b").under(keys, sealAll)
	sealer := b.sealer()
	for _, text := range []string{`{"a":1`, `{"a": 1}`, `{"a":1,"a":2}`, "", `"` + "\xff" + `"`, `{"a":1}` + "\n" + `{"surface":"intent"}`} {
		store := memory.New(memory.Config{})
		op := oplog.Op{Device: "member", HLC: oplog.HLC{WallMS: start.UnixMilli(), Device: "member"}, Scope: oplog.Personal, Surface: oplog.Knowledge}
		payload, err := sealer.Seal(headerOf(op), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if op, err = oplog.New(op.Device, 0, "", op.HLC, op.Scope, op.Surface, payload); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Push(t.Context(), "member", []oplog.Op{op}); err != nil {
			t.Fatal(err)
		}
		d := newDevice(t, "d").under(keys, sealAll)
		d.pump(store)
		q := d.Status().Quarantined
		if len(q) != 1 || !q[0].Permanent || !q[0].Unread || !errors.Is(q[0].Reason, oplog.ErrCanon) || len(d.FoldedFrontier()) != 0 {
			t.Errorf("%q: quarantined %+v, folded %v", text, q, d.FoldedFrontier())
		}
	}
}

// A sealed chain can also wait for its time; both waits together lose nothing and keep their order.
func TestAChainThatWaitsForItsTimeAndForItsKeyIsFoldedWhenItHasBoth(t *testing.T) {
	for _, keyFirst := range []bool{true, false} {
		r := memory.New(memory.Config{})
		keys := keyFile(t)
		late := filepath.Join(t.TempDir(), "late.keys")
		a, b := newDevice(t, "a").under(keys, sealAll), newDevice(t, "b").under(late, sealAll)
		intent(t, a, "one", 1, oplog.StatusCommitted)
		a.wall.add(time.Hour)
		a.write(oplog.Knowledge, payloads(3)...)
		intent(t, a, "two", 2, oplog.StatusCommitted)
		a.pump(r)
		b.pump(r)
		if p := b.Status().Parked; len(p) != 1 || p[0].From != 1 || p[0].Until.IsZero() {
			t.Fatalf("parked %+v", p)
		}
		if keyFirst {
			give(t, keys, late)
			b.pump(r)
			b.wall.add(2 * time.Hour)
		} else {
			b.wall.add(2 * time.Hour)
			b.pump(r)
			if p := b.Status().Parked; len(p) != 1 || p[0].From != 1 || p[0].Ops != 4 || !errors.Is(p[0].Reason, seal.ErrNoKey) {
				t.Errorf("its time has come and the key has not: %+v", p)
			}
			give(t, keys, late)
		}
		if _, ok := b.CommittedRun("agent", "two"); !ok {
			t.Error("the parked commit is forgotten")
		}
		b.pump(r)
		converged(t, a, b)
	}
	// Stamped in the future, behind what has no key yet: read again, it waits for its time.
	r := memory.New(memory.Config{})
	keys := keyFile(t)
	late := filepath.Join(t.TempDir(), "late.keys")
	a, b := newDevice(t, "a").under(keys, sealAll), newDevice(t, "b").under(late, sealAll)
	a.write(oplog.Knowledge, payloads(2)...)
	a.wall.add(time.Hour)
	a.write(oplog.Knowledge, payloads(5)...)
	a.pump(r)
	b.pump(r)
	give(t, keys, late)
	if rep := b.pump(r); rep.Unparked != 2 {
		t.Errorf("unparked %+v", rep)
	}
	if p := b.Status().Parked; len(p) != 1 || p[0].From != 2 || p[0].Ops != 5 || p[0].Until.IsZero() {
		t.Errorf("parked %+v", p)
	}
	b.wall.add(2 * time.Hour)
	b.pump(r)
	converged(t, a, b)
}

func TestOwnOpsWrittenWhileTheirChainIsReadAgainAreFoldedOnce(t *testing.T) {
	keys := keyFile(t)
	late := filepath.Join(t.TempDir(), "late.keys")
	a := newDevice(t, "a").under(keys, sealAll)
	a.disk.fast = true
	for range 40 {
		a.write(oplog.Routing, payloads(10)...)
	}
	a.under(late, sealAll)
	if p := a.Status().Parked; len(p) != 1 || p[0].Ops != 400 {
		t.Fatalf("parked %+v", p)
	}
	give(t, keys, late)
	done := make(chan error)
	go func() {
		var err error
		for range 30 {
			_, e := a.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Routing, Payload: []byte(`"own"`)})
			err = errors.Join(err, e)
		}
		done <- err
	}()
	for a.FoldedFrontier()["a"].Seq < 399 {
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.FoldedFrontier()["a"].Seq; got != 429 || len(a.Status().Parked) != 0 {
		t.Errorf("folded up to %d, parked %+v", got, a.Status().Parked)
	}
	digest := a.Digest()
	if a.open(); a.Digest() != digest {
		t.Error("opened again it has another state")
	}
}

// Devices get their keys at any time, rotate, restart, publish and collect over a relay that misbehaves; in the end all have all keys.
func TestDevicesConvergeWheneverTheirKeysCome(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomKeys(t, seed) })
	}
}

func randomKeys(t *testing.T, seed uint64) {
	rnd := newRand(seed)
	store := collecting()
	r := relaytest.NewFaulty(smallPages{store})
	faults := []relaytest.Fault{relaytest.None, relaytest.None, relaytest.None, relaytest.Before, relaytest.After,
		relaytest.Twice, relaytest.Delayed, relaytest.Reversed, relaytest.Holed}
	r.Plan(func(relaytest.Call) relaytest.Fault { return faults[rnd.IntN(len(faults))] })
	keys := keyFile(t)
	var devices []*device
	for _, name := range []string{"a", "b", "c"} {
		d := newSmall(t, name)
		devices = append(devices, d.under(filepath.Join(t.TempDir(), "late.keys"), sealAll))
	}
	acknowledged, refused := 0, 0
	for range 150 {
		d := devices[rnd.IntN(len(devices))]
		switch rnd.IntN(12) {
		case 0:
			give(t, keys, d.keys)
		case 1:
			if rnd.IntN(3) == 0 {
				if _, err := seal.Rotate(keys, start); err != nil {
					t.Fatal(err)
				}
			}
		case 2:
			d.open()
		case 3:
			if _, err := d.Publish(t.Context(), store); err != nil && !seal.Temporary(err) {
				t.Fatalf("publish: %v", err)
			}
			if _, err := store.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 4, 5, 6:
			draft := journal.Draft{Scope: oplog.Personal, Surface: []oplog.Surface{oplog.Knowledge, oplog.Routing, oplog.DeclAgent}[rnd.IntN(3)],
				Payload: fmt.Appendf(nil, `{"id":"%d","text":"%s"}`, rnd.IntN(20), secret)}
			if rnd.IntN(4) == 0 {
				draft.Surface, draft.Payload = oplog.Intents, fmt.Appendf(nil, `{"agent_id":"x","id":"r%d","status":"committed"}`, acknowledged)
			}
			_, err := d.Append(t.Context(), draft)
			switch {
			case err == nil:
				acknowledged++
			case errors.Is(err, seal.ErrNoKey):
				refused++
			default:
				t.Fatalf("append: %v", err)
			}
		default:
			_, err := d.Pump(t.Context(), r)
			if err != nil && !errors.Is(err, relaytest.ErrInjected) && !seal.Temporary(err) && !errors.Is(err, relay.ErrFrontierTruncated) {
				t.Fatalf("pump: %v", err)
			}
		}
	}
	for range 3 {
		for _, d := range devices {
			give(t, keys, d.keys)
			d.pump(store)
		}
	}
	same(t, devices...)
	hushed(t, store)
	total := 0
	for _, p := range devices[0].FoldedFrontier() {
		total += int(p.Seq) + 1
	}
	if total != acknowledged || refused == 0 {
		t.Errorf("%d ops are folded everywhere, %d were acknowledged and %d refused for want of a key", total, acknowledged, refused)
	}
	digest := devices[0].Digest()
	for _, d := range devices {
		d.verify()
		if d.open(); d.Digest() != digest || len(d.Status().Parked)+len(d.Status().Quarantined) != 0 {
			t.Errorf("%s, opened again: %+v", d.name, d.Status())
		}
	}
}

func TestSealedOpsAreSealedAgainForTheirPlaceUnderANewID(t *testing.T) {
	for n := 0; ; n++ {
		r := memory.New(memory.Config{})
		keys := keyFile(t)
		a := newDevice(t, "a").under(keys, sealAll)
		a.write(oplog.Knowledge, payloads(3)...)
		a.pump(r)
		twin := copyOf(t, a).under(keys, sealAll)
		twin.wall.add(time.Second)
		a.write(oplog.Routing, payloads(1)...)
		a.pump(r)
		var want []string
		for i := range 4 {
			want = append(want, fmt.Sprintf(`{"id":"k%d","text":"%s"}`, i, secret))
			twin.write(oplog.Conversation, want[i])
		}
		intent(t, twin, "run", 1, oplog.StatusCommitted)
		if _, err := twin.Pump(t.Context(), r); !errors.Is(err, session.ErrFrozen) {
			t.Fatal(err)
		}
		next := renewed(t, twin).under(keys, sealAll)
		from, to := twin.journal(), next.journal()
		if got, err := session.Reissue(t.Context(), from, to, nil); got != 0 || !errors.Is(err, seal.ErrNoKey) {
			t.Fatalf("without the key: %d, %v", got, err)
		}
		left, hit := n, false
		next.disk.failing(func(string, string) error {
			if hit = hit || left == 0; hit {
				return errDisk
			}
			left--
			return nil
		})
		_, err := session.Reissue(t.Context(), from, to, next.sealer())
		next.disk.failing(nil)
		if !hit && err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := session.Reissue(t.Context(), twin.journal(), next.journal(), next.sealer()); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := session.Reissue(t.Context(), twin.journal(), next.journal(), nil); again != 0 || err != nil {
			t.Errorf("all is done, and the key is asked for: %d, %v", again, err)
		}
		next.open()
		var got []string
		for op, err := range next.journal().Own(0) {
			if err != nil {
				t.Fatal(err)
			}
			if op.Surface != oplog.Conversation {
				continue
			}
			text, err := next.sealer().Open(headerOf(op), op.Payload)
			if err != nil {
				t.Fatalf("step %d: op %d: %v", n, op.Seq, err)
			}
			got = append(got, string(text))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("crash at step %d: written again as %v", n, got)
		}
		if !hit {
			pumpAll(r, a, next)
			converged(t, a, next)
			hushed(t, r)
			break
		}
	}
}
