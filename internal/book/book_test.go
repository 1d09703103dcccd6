package book_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/dispatch"
	"github.com/syncnode/syncnode/internal/book"
	"github.com/syncnode/syncnode/internal/faultfs"
	"github.com/syncnode/syncnode/journal"
	"github.com/syncnode/syncnode/oplog"
)

const (
	self  = "host-1"
	agent = "invoices"
)

var ctx = context.Background()

func wall() time.Time { return time.UnixMilli(1_700_000_000_000).UTC() }

func open(t testing.TB, dir string) *book.Book {
	t.Helper()
	b, err := book.Open(ctx, book.Config{Dir: dir, Device: self, Now: wall})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func standing(t testing.TB, b *book.Book, run string) dispatch.Standing {
	t.Helper()
	s, err := b.Standing(ctx, agent, run)
	if err != nil {
		t.Fatalf("Standing: %v", err)
	}
	return s
}

func attempt(run string, state coord.State) coord.Outcome {
	a := coord.Attempt{ID: "a-" + run, Device: self, Epoch: 3, State: state, Begun: wall()}
	switch state {
	case coord.Failed:
		a.Cause, a.Exit, a.Ended = coord.CauseExit, 7, wall().Add(time.Second)
	case coord.Void:
		a.Cause, a.Ended = coord.CauseStart, wall().Add(time.Second)
	case coord.Committed:
		a.Ended, a.Result = wall().Add(time.Second), "sent 12"
	}
	return coord.Outcome{Agent: agent, Run: run, Occurrence: "key:" + run, Input: strings.Repeat("ab", 32), Attempt: a}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestARunIsRememberedByTheNextProcess(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	if s := standing(t, b, "r1"); s.At != (coord.Position{}) || s.Floor != 0 || s.Witnesses != nil || s.Unsettled != nil || s.Records != nil {
		t.Fatalf("standing of an empty book: %+v", s)
	}
	must(t, b.Pending(ctx, attempt("r1", coord.Open)))
	want := attempt("r1", coord.Committed)
	must(t, b.Outcome(ctx, want))
	must(t, b.Outcome(ctx, want))
	for _, b := range []*book.Book{b, open(t, dir)} {
		s := standing(t, b, "r1")
		if s.At.Next != 2 || s.At.Head == "" || s.Floor != 3 || len(s.Witnesses) != 0 {
			t.Fatalf("standing %+v", s)
		}
		if len(s.Unsettled) != 1 || s.Unsettled[0] != want {
			t.Fatalf("unsettled\n%+v, want\n%+v", s.Unsettled, want)
		}
		rec := coord.Record{Run: "r1", Attempt: "a-r1", Device: self, Author: self, Epoch: 3, State: coord.Committed}
		if len(s.Records) != 1 || s.Records[0] != rec {
			t.Fatalf("records %+v, want %+v", s.Records, rec)
		}
	}
	must(t, b.Settled(ctx, "a-r1"))
	for _, b := range []*book.Book{b, open(t, dir)} {
		s := standing(t, b, "r2")
		if len(s.Unsettled) != 0 || len(s.Witnesses) != 1 || s.Witnesses[0] != (coord.RunRef{Agent: agent, Run: "r1"}) {
			t.Fatalf("after Settled: %+v", s)
		}
	}
}

func TestEveryOutcomeIsReadBackAsItWas(t *testing.T) {
	b := open(t, t.TempDir())
	abandoned := attempt("r4", coord.Open)
	abandoned.Attempt.Abandoned = true
	abandoned.Attempt.Ended = wall()
	all := []coord.Outcome{attempt("r1", coord.Failed), attempt("r2", coord.Void), attempt("r3", coord.Committed), abandoned}
	for _, o := range all {
		must(t, b.Outcome(ctx, o))
	}
	s := standing(t, b, "r1")
	if len(s.Unsettled) != len(all) {
		t.Fatalf("%d unsettled, want %d", len(s.Unsettled), len(all))
	}
	for i := range all {
		if s.Unsettled[i] != all[i] {
			t.Errorf("got\n%+v, want\n%+v", s.Unsettled[i], all[i])
		}
	}
	hostile := attempt("r5", coord.Committed)
	hostile.Attempt.Result = strings.Repeat("\xff", 5000)
	must(t, b.Outcome(ctx, hostile))
}

func TestAVoidedAttemptCanNeverStart(t *testing.T) {
	dir := t.TempDir()
	b, other := open(t, dir), open(t, dir)
	must(t, b.Outcome(ctx, attempt("r0", coord.Committed)))
	at := standing(t, b, "r1").At
	a := coord.Attempt{ID: "a-r1", Device: self, Epoch: 4, At: at, State: coord.Open}
	if ok, err := other.Void(ctx, agent, "r1", a); !ok || err != nil {
		t.Fatalf("Void = %v, %v", ok, err)
	}
	if ok, err := other.Void(ctx, agent, "r1", a); !ok || err != nil {
		t.Fatalf("Void again = %v, %v", ok, err)
	}
	if err := b.Pending(ctx, attempt("r1", coord.Open)); !errors.Is(err, dispatch.ErrVoided) {
		t.Fatalf("Pending after Void: %v", err)
	}
	s := standing(t, b, "r1")
	if len(s.Records) != 1 || s.Records[0].State != coord.Void || s.Records[0].Cause != coord.CauseNever || s.At.Next != 2 {
		t.Fatalf("standing %+v", s)
	}
	if len(s.Unsettled) != 2 || s.Unsettled[1].Attempt.State != coord.Void {
		t.Fatalf("the ledger is not told: %+v", s.Unsettled)
	}
}

func TestVoidProvesNothingWithoutThePositionOrOverAPending(t *testing.T) {
	b := open(t, t.TempDir())
	must(t, b.Pending(ctx, attempt("r1", coord.Open)))
	at := standing(t, b, "r1").At
	for name, a := range map[string]coord.Attempt{
		"a pending is there":   {ID: "a-r1", Device: self, At: at},
		"a later position":     {ID: "x", Device: self, At: coord.Position{Next: at.Next + 1, Head: at.Head}},
		"another chain":        {ID: "x", Device: self, At: coord.Position{Next: at.Next, Head: "op-" + strings.Repeat("0", 64)}},
		"empty, but with head": {ID: "x", Device: self, At: coord.Position{Head: at.Head}},
		"another device":       {ID: "x", Device: "host-2", At: at},
	} {
		if ok, err := b.Void(ctx, agent, "r1", a); ok || err != nil {
			t.Errorf("%s: Void = %v, %v", name, ok, err)
		}
	}
	if n := standing(t, b, "r1").At.Next; n != 1 {
		t.Errorf("%d ops: something was written", n)
	}
	must(t, b.Outcome(ctx, attempt("r1", coord.Failed)))
	if ok, _ := b.Void(ctx, agent, "r1", coord.Attempt{ID: "a-r1", Device: self, At: at}); ok {
		t.Error("a failed attempt was voided")
	}
}

func TestPendingAndVoidOfOneAttemptNeverBothStand(t *testing.T) {
	dir := t.TempDir()
	books := []*book.Book{open(t, dir), open(t, dir)}
	for i := range 40 {
		run := fmt.Sprintf("r%d", i)
		at := standing(t, books[0], run).At
		var wg sync.WaitGroup
		var pending error
		var voided bool
		wg.Go(func() { pending = books[0].Pending(ctx, attempt(run, coord.Open)) })
		wg.Go(func() { // the same book on even rounds: then both may share a group
			ok, err := books[i%2].Void(ctx, agent, run, coord.Attempt{ID: "a-" + run, Device: self, At: at})
			if err != nil {
				t.Error(err)
			}
			voided = ok
		})
		wg.Wait()
		if started := pending == nil; started == voided {
			t.Fatalf("run %s: started %v, voided %v (%v)", run, started, voided, pending)
		}
		if n := len(standing(t, books[1], run).Records); n != 1 {
			t.Fatalf("run %s has %d records", run, n)
		}
	}
}

func TestAnAttemptIsPendingOnce(t *testing.T) {
	b := open(t, t.TempDir())
	must(t, b.Pending(ctx, attempt("r1", coord.Open)))
	if err := b.Pending(ctx, attempt("r1", coord.Open)); !errors.Is(err, book.ErrRepeated) {
		t.Errorf("second Pending: %v", err)
	}
}

func TestAGrantIsAFloorForEver(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	for _, e := range []coord.Epoch{5, 9, 7} {
		must(t, b.Granted(ctx, agent, e))
	}
	if s := standing(t, open(t, dir), "r1"); s.Floor != 9 {
		t.Errorf("floor %d, want 9", s.Floor)
	}
	o := attempt("r1", coord.Open)
	o.Attempt.Epoch = 12
	must(t, b.Pending(ctx, o))
	if s := standing(t, b, "r1"); s.Floor != 12 {
		t.Errorf("floor %d, want 12", s.Floor)
	}
	if err := b.Granted(ctx, "../x", 1); !errors.Is(err, coord.ErrInvalid) {
		t.Errorf("hostile agent: %v", err)
	}
}

// A grant that is found there may be that of a process which could not sync it.
func TestAGrantThatIsFoundThereIsDurableBeforeItIsAnswered(t *testing.T) {
	d, dir := faultfs.New(), t.TempDir()
	start := func(d *faultfs.Disk) *book.Book {
		b, err := book.Open(ctx, book.Config{Dir: dir, Device: self, Now: wall, FS: d.Process()})
		must(t, err)
		return b
	}
	renamed := false
	d.Arm(func(c faultfs.Call) faultfs.Fault {
		renamed = renamed || c.Op == "rename"
		if renamed && c.Op == "syncdir" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	if err := start(d).Granted(ctx, agent, 9); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a sync fails, and Granted says %v", err)
	}
	d.Arm(nil)
	must(t, start(d).Granted(ctx, agent, 9))
	if s := standing(t, start(d.After(faultfs.Nothing)), "r1"); s.Floor != 9 {
		t.Errorf("after a loss of power the floor is %d, want 9", s.Floor)
	}
}

func TestALostHintOrIndexChangesNoAnswerButThatTheLedgerIsToldAgain(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	for i := range 300 {
		run := fmt.Sprintf("r%d", i)
		must(t, b.Pending(ctx, attempt(run, coord.Open)))
		must(t, b.Outcome(ctx, attempt(run, coord.Committed)))
		must(t, b.Settled(ctx, "a-"+run))
	}
	must(t, b.Pending(ctx, attempt("last", coord.Open)))
	want := standing(t, b, "r7")
	if len(want.Unsettled) != 0 || want.Witnesses[0].Run != "r299" || want.Witnesses[1].Run != "r298" {
		t.Fatalf("standing %+v", want)
	}
	index := filepath.Join(dir, self, "index.bolt")
	if _, err := os.Stat(index); err != nil {
		must(t, standingErr(open(t, dir)))
	}
	damage := map[string]func(){
		"missing":   func() { _ = os.Remove(index) },
		"empty":     func() { must(t, os.WriteFile(index, nil, 0o600)) },
		"garbage":   func() { must(t, os.WriteFile(index, []byte(strings.Repeat("garbage ", 9000)), 0o600)) },
		"scribbled": func() { scribble(t, index) },
		"truncated": func() { must(t, os.Truncate(index, 8192)) },
	}
	for name, harm := range damage {
		harm()
		got := standing(t, open(t, dir), "r7")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("index %s:\n%+v, want\n%+v", name, got, want)
		}
	}
	must(t, os.Remove(filepath.Join(dir, self, "settled.json")))
	_ = os.Remove(index)
	if got := standing(t, open(t, dir), "r7"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("without hint, the last op's watermark:\n%+v, want\n%+v", got, want)
	}
	must(t, b.Outcome(ctx, attempt("last", coord.Committed)))
	must(t, b.Settled(ctx, "a-last"))
	must(t, os.Remove(filepath.Join(dir, self, "settled.json")))
	if got := standing(t, open(t, dir), "r7"); len(got.Unsettled) != 1 || got.Unsettled[0].Run != "last" {
		t.Errorf("without hint: %+v", got.Unsettled)
	}
}

func standingErr(b *book.Book) error {
	_, err := b.Standing(ctx, agent, "r")
	return err
}

// scribble overwrites the middle of every page.
func scribble(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	for i := 16; i+64 < len(data); i += 4096 {
		copy(data[i:], strings.Repeat("\xa5", 64))
	}
	must(t, os.WriteFile(name, data, 0o600))
}

func TestPeersRecordsVetoButNeverLookLikeOurs(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	payload := []byte(`{"agent_id":"invoices","attempt":"a-r1","epoch":21,"id":"r1","status":"committed"}`)
	op, err := oplog.New("host-2", 0, "", oplog.HLC{WallMS: wall().UnixMilli(), Device: "host-2"}, oplog.Personal, oplog.Intents, payload)
	must(t, err)
	must(t, b.Journal().Update(ctx, func(tx *journal.Tx) error { return tx.AppendPeers(op) }))
	s := standing(t, b, "r1")
	if s.Floor != 21 || len(s.Records) != 1 || s.Records[0].Author != "host-2" || s.Records[0].State != coord.Committed {
		t.Fatalf("standing %+v", s)
	}
	must(t, b.Pending(ctx, attempt("r1", coord.Open))) // the judge decides; the book only tells
	f, err := b.Frontier(ctx)
	must(t, err)
	if f["host-2"].ID != op.ID || f[self].Seq != 0 {
		t.Errorf("frontier %+v", f)
	}
}

func TestAJournalThatLostWhatTheIndexSawIsRefused(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	name := filepath.Join(book.JournalDir(dir, self), "own-0000000000000000.jsonl")
	must(t, b.Pending(ctx, attempt("first", coord.Open)))
	early, err := os.ReadFile(name)
	must(t, err)
	for i := range 200 {
		must(t, b.Pending(ctx, attempt(fmt.Sprint("r", i), coord.Open)))
	}
	must(t, standingErr(open(t, dir))) // writes the index
	must(t, os.WriteFile(name, early, 0o600))
	if err := standingErr(open(t, dir)); !errors.Is(err, journal.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if err := open(t, dir).Pending(ctx, attempt("x", coord.Open)); !errors.Is(err, journal.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}
