// Package relaytest is the conformance suite of the relay contract, and a relay that fails on purpose.
//
// # Guarantees
//
// Each sentence of package relay has a test here, and every implementation runs them all with Run. A relay that
// passes gives the same answers as the reference in relay/memory. The suite runs a second time through Faulty:
// each call may fail before or after its effect, or happen twice, and repeating it settles it.
//
// # Failure
//
// A failing test names the sentence that does not hold.
//
// # Concurrency
//
// Each test makes stores of its own, and tests may run beside each other.
package relaytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

// Options say how the relay under test differs and may differ.
type Options struct {
	// New makes an empty store that holds at most maxBytes of op lines (0: the default), and returns how a
	// handle to it is opened. Each call of open may give another handle to the same store.
	New func(t *testing.T, maxBytes int64) (open func() relay.Relay)
	// Slack is by how many bytes the store may exceed maxBytes or refuse below it.
	Slack int64
	// NoLook: the relay is no relay.Looker.
	NoLook bool
	// NoHint: the relay is no relay.Hinter.
	NoHint bool
	// NewAt is New for a relay that is a relay.Collector: its clock is now, and it evicts and waits as by default. Without it
	// the relay must not be one.
	NewAt func(t *testing.T, maxBytes int64, now func() time.Time) (open func() relay.Relay)
	// Slow: each call costs much, so that random runs are few.
	Slow bool
	// Damage changes the body of the newest checkpoint in the store of r; nil if a test cannot.
	Damage func(t *testing.T, r relay.Relay)
}

type sentence = struct {
	name string
	test func(*testing.T)
}

// Run checks every sentence of the contract.
func Run(t *testing.T, o Options) {
	t.Helper()
	s := suite{o}
	sentences := []sentence{
		{"hello says what the relay is and holds", s.hello},
		{"push adds what continues the chain and finds duplicates", s.push},
		{"push refuses every bad op by its type and adds nothing of it", s.refusals},
		{"push adds what stands before a refused op", s.prefix},
		{"push never replaces an op", s.forks},
		{"push keeps its limits", s.limits},
		{"pull gives each chain in order from what is held", s.pull},
		{"pull pages by bytes and goes on where the page ended", s.pages},
		{"pull takes the chains in turn", s.fair},
		{"pull leaves out what is not wanted and gives the own chain", s.skip},
		{"ack only grows and enrols nobody", s.ack},
		{"register enrols with a role and may change it", s.register},
		{"stable is what every replica acked", s.stable},
		{"a full relay refuses a push and serves everything else", s.full},
		{"hostile names and frontiers are refused", s.hostile},
		{"a call whose context ended says that it was not sent", s.canceled},
		{"a push that raced another leaves one chain", s.race},
		{"devices push side by side", s.parallel},
		{"a second handle sees the same store", s.handles},
		{"hint returns when a head may have moved", s.hint},
		{"a look says what hello says and leaves no trace", s.look},
		{"every call may be repeated after any failure", s.faults},
	}
	if s.NewAt != nil {
		sentences = append(append(sentences, s.collectors()...), s.seeding()...)
	} else if r, ok := s.open(t).(relay.Collector); ok {
		t.Errorf("%T is a relay.Collector, and nothing here tests that", r)
	}
	for _, c := range sentences {
		t.Run(c.name, c.test)
	}
}

type suite struct{ Options }

func (s suite) open(t *testing.T) relay.Relay { return s.New(t, 0)() }

// An Author writes the chain of one device.
type Author struct {
	Device string
	Ops    []oplog.Op // all it wrote
	clock  *oplog.Clock
	wall   int64
}

// NewAuthor returns an author with an empty chain.
func NewAuthor(device string) *Author {
	return &Author{Device: device, clock: oplog.NewClock(device), wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli()}
}

// Write adds n ops with payloads of about size bytes and returns them.
func (a *Author) Write(t testing.TB, n, size int) []oplog.Op {
	t.Helper()
	from := len(a.Ops)
	for range n {
		a.Append(t, fmt.Appendf(nil, `{"id":"%s-%d","pad":"%0*d"}`, a.Device, len(a.Ops), max(size-30, 1), 0))
	}
	return a.Ops[from:]
}

// Append adds one op with this payload.
func (a *Author) Append(t testing.TB, payload []byte) oplog.Op {
	t.Helper()
	var prev oplog.OpID
	if n := len(a.Ops); n > 0 {
		prev = a.Ops[n-1].ID
	}
	a.wall++
	op, err := oplog.New(a.Device, uint64(len(a.Ops)), prev, a.clock.Tick(a.wall), oplog.Personal, oplog.Knowledge, payload)
	if err != nil {
		t.Fatalf("write an op: %v", err)
	}
	a.Ops = append(a.Ops, op)
	return op
}

// Clone returns an author that has written the first n ops and goes its own way from there, as a device does
// that was restored from a backup.
func (a *Author) Clone(n int) *Author {
	b := NewAuthor(a.Device)
	b.Ops = append(b.Ops, a.Ops[:n]...)
	b.wall = a.wall + 1000
	for _, op := range b.Ops {
		b.clock.Observe(op.HLC)
	}
	return b
}

// Head is the author's own frontier entry.
func (a *Author) Head() oplog.Pos {
	last := a.Ops[len(a.Ops)-1]
	return oplog.Pos{Seq: last.Seq, ID: last.ID}
}

func mustPush(t *testing.T, r relay.Relay, ops []oplog.Op) {
	t.Helper()
	for len(ops) > 0 {
		n, size := 0, 0
		for n < len(ops) && n < relay.MaxOps && size+relay.LineLen(ops[n]) <= relay.MaxBytes {
			size += relay.LineLen(ops[n])
			n++
		}
		if _, err := r.Push(t.Context(), ops[0].Device, ops[:n]); err != nil {
			t.Fatalf("push: %v", err)
		}
		ops = ops[n:]
	}
}

// pullAll pulls until there is no more and checks that each chain continues what is held.
func pullAll(t *testing.T, r relay.Relay, device string, want relay.Want) []relay.Page {
	t.Helper()
	want.Held = want.Held.Clone()
	var pages []relay.Page
	for range 10_000 {
		page, err := r.Pull(t.Context(), device, want)
		if err != nil {
			t.Fatalf("pull: %v", err)
		}
		for _, op := range page.Ops {
			if next := want.Held.Next(op.Device); op.Seq != next {
				t.Fatalf("page has %s/%d, expected seq %d", op.Device, op.Seq, next)
			}
			want.Held[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
		}
		pages = append(pages, page)
		if !page.More {
			return pages
		}
		if len(page.Ops) == 0 {
			t.Fatal("an empty page says that there is more")
		}
	}
	t.Fatal("pull does not end")
	return nil
}

func wantHead(t *testing.T, r relay.Relay, a *Author, n int) {
	t.Helper()
	info, err := r.Hello(t.Context(), a.Device)
	if err != nil {
		t.Fatalf("hello: %v", err)
	}
	if n == 0 {
		if info.Known {
			t.Fatalf("the relay holds the chain up to seq %d, expected nothing", info.Head.Seq)
		}
		return
	}
	op := a.Ops[n-1]
	if want := (oplog.Head{Seq: op.Seq, ID: op.ID, HLC: op.HLC}); !info.Known || info.Head != want {
		t.Fatalf("head is %+v (known %v), expected %+v", info.Head, info.Known, want)
	}
	if got := info.Heads[a.Device]; got != (oplog.Pos{Seq: op.Seq, ID: op.ID}) {
		t.Fatalf("heads say %+v of %s, expected seq %d", got, a.Device, op.Seq)
	}
}

func frontier(ops ...oplog.Op) oplog.Frontier {
	f := oplog.Frontier{}
	for _, op := range ops {
		f[op.Device] = oplog.Pos{Seq: op.Seq, ID: op.ID}
	}
	return f
}
