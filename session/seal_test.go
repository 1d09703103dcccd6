package session_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/seal"
	"github.com/syncnode/syncnode/session"
)

// secret stands in everything that is written to be sealed, and may be found nowhere outside.
const secret = "hush-7f1c"

var sealAll = seal.Policy{Scopes: []string{seal.Every}}

// keyFile makes a key file.
func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seal.keys")
	if _, err := seal.Generate(path, start); err != nil {
		t.Fatal(err)
	}
	return path
}

// give copies a key file.
func give(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// under opens the device anew with that key file and policy.
func (d *device) under(keys string, policy seal.Policy) *device {
	d.t.Helper()
	d.keys, d.policy = keys, policy
	d.open()
	return d
}

// shown are all bytes that a relay gives to a device without anything.
func shown(t *testing.T, r relay.Relay) []byte {
	t.Helper()
	var out []byte
	held := oplog.Frontier{}
	for {
		page, err := r.Pull(t.Context(), "onlooker", relay.Want{Held: held})
		if errors.Is(err, relay.ErrFrontierTruncated) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range page.Ops {
			out = append(op.AppendLine(out), '\n')
			held[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
		}
		if !page.More {
			break
		}
	}
	if c, ok := r.(relay.Collector); ok {
		newest, ok, err := c.Checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			out = append(out, newest.Body...)
		}
	}
	return out
}

// hushed checks that a relay shows nothing of what is sealed, though it shows something.
func hushed(t *testing.T, r relay.Relay) {
	t.Helper()
	if all := shown(t, r); len(all) == 0 || bytes.Contains(all, []byte(secret)) {
		t.Errorf("of %d bytes that the relay shows, what is sealed is among them: %v", len(all), len(all) > 0)
	}
}

func TestDevicesWithTheKeyConvergeAndOneWithoutHoldsUntilItHasIt(t *testing.T) {
	r := memory.New(memory.Config{})
	keys := keyFile(t)
	a, b := newDevice(t, "a").under(keys, sealAll), newDevice(t, "b").under(keys, sealAll)
	late := filepath.Join(t.TempDir(), "late.keys")
	c := newDevice(t, "c").under(late, sealAll)
	intent(t, a, "before", 1, oplog.StatusCommitted)
	ops := a.write(oplog.Knowledge, `{"id":"k","text":"`+secret+`"}`, `{"id":"k","text":"`+secret+` again"}`)
	b.write(oplog.DeclAgent, `{"id":"agent","text":"`+secret+`"}`)
	intent(t, a, "behind", 2, oplog.StatusCommitted)
	intent(t, c, "own", 3, oplog.StatusCommitted)
	for range 2 {
		for _, d := range []*device{a, b, c} {
			d.pump(r)
		}
	}
	converged(t, a, b)
	hushed(t, r)
	if ops[0].Seq != 1 || !seal.LooksSealed(ops[0].Payload) {
		t.Errorf("Append returned op %d with %s", ops[0].Seq, ops[0].Payload)
	}

	c.sameAsDisk()
	c.verify()
	if !c.HeldFrontier().Equal(a.HeldFrontier()) {
		t.Errorf("without the key %v is held, with it %v", c.HeldFrontier(), a.HeldFrontier())
	}
	folded := c.FoldedFrontier()
	if _, ok := folded["b"]; ok || folded["a"].Seq != 0 || folded["c"].Seq != 0 {
		t.Errorf("without the key %v is folded, want the ops before the first sealed one of each chain", folded)
	}
	if info, err := r.Hello(t.Context(), "c"); err != nil || !info.Acked.Equal(folded) {
		t.Errorf("acked %v, %v; folded is %v", info.Acked, err, folded)
	}
	st := c.Status()
	if len(st.Parked) != 2 || len(st.Quarantined) != 0 {
		t.Fatalf("status %+v", st)
	}
	if p := st.Parked[0]; p.Device != "a" || p.From != 1 || p.Ops != 3 || !errors.Is(p.Reason, seal.ErrNoKey) || p.Key == "" || !p.Until.IsZero() {
		t.Errorf("parked %+v", p)
	}
	for _, run := range []string{"before", "behind"} {
		if in, ok := c.CommittedRun("agent", run); !ok || in.Parked != (run == "behind") {
			t.Errorf("the commit of run %s is %+v, %v: it has to be known, also behind what cannot be opened", run, in, ok)
		}
	}
	c.open()
	if !c.FoldedFrontier().Equal(folded) || len(c.Status().Parked) != 2 {
		t.Errorf("opened again: folded %v, %+v", c.FoldedFrontier(), c.Status().Parked)
	}

	give(t, keys, late)
	if rep := c.pump(r); rep.Unparked != 4 || !rep.Acked {
		t.Errorf("with the key: %+v", rep)
	}
	a.pump(r)
	converged(t, a, b, c)
	if st := c.Status(); len(st.Parked) != 0 {
		t.Errorf("still parked: %+v", st.Parked)
	}
	c.open()
	converged(t, a, b, c)
	c.View(func(s *fold.State) {
		if rec, ok := s.Get(oplog.Knowledge, "id:k"); !ok || !strings.Contains(string(rec.Payload), secret) || rec.ID != ops[0].ID {
			t.Errorf("folded as %+v, %v", rec, ok)
		}
	})
}

func TestWithoutTheKeyNothingIsWrittenToASealedScopeAndTheRestGoesOn(t *testing.T) {
	late := filepath.Join(t.TempDir(), "late.keys")
	d := newDevice(t, "a").under(late, seal.Policy{Scopes: []string{"shared:acme"}})
	hidden := journal.Draft{Scope: oplog.Shared("acme"), Surface: oplog.Knowledge, Payload: []byte(`{ "text" : "` + secret + `"}`)}
	open := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: []byte(`{"id":"open"}`)}
	before := d.lines()
	for _, drafts := range [][]journal.Draft{{hidden}, {open, hidden}} {
		ops, err := d.Append(t.Context(), drafts...)
		if ops != nil || !errors.Is(err, seal.ErrNoKey) || !errors.Is(err, journal.ErrNotWritten) {
			t.Errorf("%d ops, %v", len(ops), err)
		}
	}
	if got := d.lines(); len(got) != len(before) {
		t.Errorf("written: %v", got)
	}
	d.write(oplog.Knowledge, `{"id":"open"}`)
	intent(t, d, "run", 1, oplog.StatusCommitted)
	give(t, keyFile(t), late)
	if _, err := d.Append(t.Context(), hidden); err != nil { // without a restart, and without a pump
		t.Errorf("the key is there: %v", err)
	}
	for _, line := range d.lines() {
		if strings.Contains(line, secret) {
			t.Errorf("on the disk: %s", line)
		}
	}
	d.sameAsDisk()
	d.View(func(s *fold.State) {
		n := 0
		for rec := range s.Records(oplog.Knowledge) {
			if n++; rec.Scope != oplog.Personal && string(rec.Payload) != `{"text":"`+secret+`"}` {
				t.Errorf("folded as %s, want the canonical form", rec.Payload)
			}
		}
		if n != 2 {
			t.Errorf("%d records", n)
		}
	})
}

func TestAPayloadIsJudgedBeforeItIsSealed(t *testing.T) {
	d := newDevice(t, "a").under(keyFile(t), sealAll)
	clear := newDevice(t, "b")
	envelope := d.write(oplog.Knowledge, `{}`)[0].Payload
	for name, c := range map[string]struct {
		d       *device
		payload string
		is      func(error) bool
	}{
		"not JSON":       {d, `{"a":`, as[*oplog.CanonError]},
		"a double key":   {d, `{"a":1,"a":2}`, func(err error) bool { return errors.Is(err, oplog.ErrDuplicateKey) }},
		"too large":      {d, `"` + strings.Repeat("x", seal.MaxPlaintext) + `"`, func(err error) bool { return errors.Is(err, seal.ErrTooLarge) }},
		"an envelope":    {clear, string(envelope), func(err error) bool { return errors.Is(err, seal.ErrLooksSealed) }},
		"one with space": {clear, strings.Replace(string(envelope), ":", ": ", 1), func(err error) bool { return errors.Is(err, seal.ErrLooksSealed) }},
	} {
		ops, err := c.d.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Payload: []byte(c.payload)})
		if ops != nil || !c.is(err) || !errors.Is(err, journal.ErrNotWritten) {
			t.Errorf("%s: %d ops, %v", name, len(ops), err)
		}
	}
	own := journal.Draft{Scope: oplog.Personal, Surface: oplog.Knowledge, Finish: func(journal.Place) ([]byte, error) { return []byte(`1`), nil }}
	if _, err := d.Append(t.Context(), own); !errors.Is(err, session.ErrFinished) {
		t.Errorf("a draft that goes past the seal: %v", err)
	}
	if n := len(d.lines()) + len(clear.lines()); n != 1 {
		t.Errorf("%d ops were written", n)
	}
}

func TestClearPayloadsInASealedScopeAreSetAsideUnlessTheyAreAccepted(t *testing.T) {
	r := memory.New(memory.Config{})
	keys := keyFile(t)
	a, b := newDevice(t, "a"), newDevice(t, "b").under(keys, sealAll)
	intent(t, a, "one", 1, oplog.StatusCommitted)
	a.write(oplog.Knowledge, payloads(3)...)
	intent(t, a, "two", 2, oplog.StatusCommitted)
	a.pump(r)
	b.pump(r)
	st := b.Status()
	if len(st.Quarantined) != 1 || len(st.Parked) != 0 {
		t.Fatalf("status %+v", st)
	}
	if q := st.Quarantined[0]; q.Device != "a" || q.Seq != 1 || !q.Permanent || !q.Unread || !errors.Is(q.Reason, seal.ErrClear) {
		t.Errorf("quarantined %+v", q)
	}
	if _, ok := b.CommittedRun("agent", "two"); !ok || b.FoldedFrontier()["a"].Seq != 0 || b.HeldFrontier()["a"].Seq != 4 {
		t.Errorf("folded %v of %v", b.FoldedFrontier(), b.HeldFrontier())
	}
	if rep := b.pump(r); rep.Pulled != 0 || rep.Acked || rep.Unparked != 0 {
		t.Errorf("a further pump does %+v", rep)
	}
	accept := sealAll
	accept.AcceptClear = true
	b.under(keys, accept)
	converged(t, a, b)
	if op := b.write(oplog.Knowledge, `{"text":"`+secret+`"}`)[0]; !seal.LooksSealed(op.Payload) {
		t.Errorf("written clear: %s", op.Payload)
	}
}

func TestAfterARotationTheNewestKeySealsAndTheOlderOpens(t *testing.T) {
	r := memory.New(memory.Config{})
	keys := keyFile(t)
	behind := filepath.Join(t.TempDir(), "behind.keys")
	give(t, keys, behind)
	a, b := newDevice(t, "a").under(keys, sealAll), newDevice(t, "b").under(behind, sealAll)
	old := a.write(oplog.Knowledge, `{"id":"old","text":"`+secret+`"}`)[0]
	early := newDevice(t, "early").under(keys, sealAll) // it has all keys, and only what was written so far
	a.pump(r)
	early.pump(r)
	next, err := seal.Rotate(keys, start.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(t.Context()); err != nil { // the file is read again, without a restart
		t.Fatal(err)
	}
	fresh := a.write(oplog.Knowledge, `{"id":"new","text":"`+secret+`"}`)[0]
	if strings.Contains(string(old.Payload), next.ID) || !strings.Contains(string(fresh.Payload), next.ID) {
		t.Errorf("the new key is %s; sealed are\n%s\n%s", next.ID, old.Payload, fresh.Payload)
	}
	a.pump(r)
	b.pump(r)
	if p := b.Status().Parked; len(p) != 1 || p[0].Key != next.ID || p[0].From != 1 || b.FoldedFrontier()["a"].Seq != 0 {
		t.Errorf("with the older key alone: parked %+v, folded %v", p, b.FoldedFrontier())
	}
	same(t, early, b) // whatever their keys: equal folded frontiers, equal digests
	b.write(oplog.Knowledge, `{"id":"still the old key"}`)
	give(t, keys, behind)
	b.pump(r)
	a.pump(r)
	converged(t, a, b)
}

func TestAKeyFileThatOthersMayReadOrThatIsGoneIsToldAndTheKeysStay(t *testing.T) {
	r := memory.New(memory.Config{})
	keys := keyFile(t)
	a := newDevice(t, "a").under(keys, sealAll)
	a.write(oplog.Knowledge, `{"text":"`+secret+`"}`)
	if err := os.Chmod(keys, 0o644); err != nil {
		t.Fatal(err)
	}
	a.pump(r)
	if err := a.Status().Keys; !errors.Is(err, seal.ErrExposed) {
		t.Errorf("told: %v", err)
	}
	a.write(oplog.Knowledge, `{"id":"meanwhile"}`)
	if _, err := seal.Open(keys); !errors.Is(err, seal.ErrExposed) {
		t.Errorf("a start with that file: %v", err)
	}
	if err := os.Chmod(keys, 0o600); err != nil {
		t.Fatal(err)
	}
	if a.pump(r); a.Status().Keys != nil {
		t.Errorf("still told: %v", a.Status().Keys)
	}
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	a.pump(r)
	a.write(oplog.Knowledge, `{"id":"the file is gone"}`)
	if a.Status().Keys == nil {
		t.Error("that the file is gone is not told")
	}
	a.open() // now the key is lost
	if p := a.Status().Parked; len(p) != 1 || p[0].Device != "a" || p[0].From != 0 || p[0].Ops != 3 {
		t.Errorf("parked %+v", p)
	}
	if _, err := a.Append(t.Context(), journal.Draft{Scope: oplog.Personal, Surface: oplog.Run, Payload: []byte(`1`)}); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("written without a key: %v", err)
	}
	if in, ok := intent(t, a, "run", 1, oplog.StatusCommitted); !ok || in.Seq != 3 {
		t.Errorf("an intent is op %d, %v", in.Seq, ok)
	}
	a.pump(r) // what cannot be opened is pushed all the same
	if info, err := r.Hello(t.Context(), "a"); err != nil || info.Head.Seq != 3 {
		t.Errorf("the relay has %v, %v", info.Head, err)
	}
}
