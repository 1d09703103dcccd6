package relaytest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

func (s suite) pull(t *testing.T) {
	r, a, b := s.open(t), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 5, 60))
	mustPush(t, r, b.Write(t, 3, 60))
	page, err := r.Pull(t.Context(), "c", relay.Want{Held: frontier(a.Ops[1])})
	if err != nil || page.More || len(page.Ops) != 6 {
		t.Fatalf("pull above a/1: %d ops, more %v, %v; expected 6", len(page.Ops), page.More, err)
	}
	next := map[string]uint64{"a": 2, "b": 0}
	for _, op := range page.Ops {
		if op.Seq != next[op.Device] {
			t.Errorf("%s/%d is out of order, expected seq %d", op.Device, op.Seq, next[op.Device])
		}
		next[op.Device]++
	}
	for name, held := range map[string]oplog.Frontier{
		"everything": frontier(a.Ops[4], b.Ops[2]),
		"more":       {"a": {Seq: 99, ID: a.Ops[0].ID}, "b": {Seq: 2, ID: b.Ops[2].ID}, "z": {Seq: 1, ID: a.Ops[0].ID}},
	} {
		if page, err := r.Pull(t.Context(), "c", relay.Want{Held: held}); err != nil || page.More || len(page.Ops) != 0 {
			t.Errorf("pull when %s is held: %+v, %v", name, page, err)
		}
	}
}

func (s suite) pages(t *testing.T) {
	r, a, b := s.open(t), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 40, 3000))
	mustPush(t, r, b.Write(t, 7, 20_000))
	const most = 16 << 10
	pages := pullAll(t, r, "c", relay.Want{MaxBytes: most})
	total := 0
	for _, p := range pages {
		size := 0
		for _, op := range p.Ops {
			size += len(op.AppendLine(nil)) + 1
		}
		if size > most && len(p.Ops) > 1 {
			t.Errorf("a page of %d ops has %d bytes, at most %d were wanted", len(p.Ops), size, most)
		}
		total += len(p.Ops)
	}
	if total != 47 || len(pages) < 17 {
		t.Errorf("%d ops in %d pages, expected 47 in at least 17", total, len(pages))
	}
	big := NewAuthor("big")
	for range 5 {
		mustPush(t, r, big.Write(t, 1, oplog.MaxPayload-100))
	}
	held := frontier(a.Ops[39], b.Ops[6])
	for _, p := range pullAll(t, r, "c", relay.Want{Held: held, MaxBytes: 100 << 20}) {
		size := 0
		for _, op := range p.Ops {
			size += len(op.AppendLine(nil)) + 1
		}
		if size > relay.MaxBytes {
			t.Errorf("a page has %d bytes, the limit is %d", size, relay.MaxBytes)
		}
	}
	many := NewAuthor("many")
	mustPush(t, r, many.Write(t, relay.MaxOps+5, 40))
	held["big"] = big.Head()
	for _, p := range pullAll(t, r, "c", relay.Want{Held: held}) {
		if len(p.Ops) > relay.MaxOps {
			t.Errorf("a page has %d ops, the limit is %d", len(p.Ops), relay.MaxOps)
		}
	}
}

func (s suite) fair(t *testing.T) {
	r, chatty := s.open(t), NewAuthor("a-chatty")
	mustPush(t, r, chatty.Write(t, 200, 2000))
	for _, device := range []string{"b", "c", "d"} {
		mustPush(t, r, NewAuthor(device).Write(t, 2, 1500))
	}
	page, err := r.Pull(t.Context(), "z", relay.Want{MaxBytes: 20 << 10})
	if err != nil || !page.More {
		t.Fatalf("first page: more %v, %v", page.More, err)
	}
	got := map[string]int{}
	for _, op := range page.Ops {
		got[op.Device]++
	}
	if got["b"] != 2 || got["c"] != 2 || got["d"] != 2 || got["a-chatty"] < 3 {
		t.Errorf("the first page has %v; expected each quiet chain whole and the rest filled", got)
	}
}

func (s suite) skip(t *testing.T) {
	r := s.open(t)
	mustPush(t, r, NewAuthor("a").Write(t, 2, 60))
	mustPush(t, r, NewAuthor("b").Write(t, 3, 60))
	page, err := r.Pull(t.Context(), "a", relay.Want{})
	if err != nil || len(page.Ops) != 5 {
		t.Errorf("a pull of %d ops, %v; expected 5 with the own chain", len(page.Ops), err)
	}
	page, err = r.Pull(t.Context(), "a", relay.Want{Skip: []string{"b", "nobody"}})
	if err != nil || len(page.Ops) != 2 || page.More {
		t.Errorf("a pull without b: %d ops, more %v, %v; expected 2", len(page.Ops), page.More, err)
	}
}

func (s suite) hostile(t *testing.T) {
	r, a := s.open(t), NewAuthor("a")
	ops := a.Write(t, 1, 60)
	for _, name := range []string{"", "a/b", "../a", "a b", ".a", "a\x00", "é", strings.Repeat("a", 129)} {
		_, hello := r.Hello(t.Context(), name)
		_, push := r.Push(t.Context(), name, ops)
		_, pull := r.Pull(t.Context(), name, relay.Want{})
		for call, err := range map[string]error{
			"hello": hello, "push": push, "pull": pull,
			"ack":      r.Ack(t.Context(), name, frontier(ops[0])),
			"register": r.Register(t.Context(), name, relay.Replica),
		} {
			if !errors.Is(err, relay.ErrInvalid) {
				t.Errorf("%s as %q: %v, expected ErrInvalid", call, name, err)
			}
		}
	}
	for name, f := range map[string]oplog.Frontier{
		"device": {"../a": {Seq: 1, ID: ops[0].ID}},
		"no id":  {"a": {Seq: 1}},
		"seq":    {"a": {Seq: 1 << 60, ID: ops[0].ID}},
	} {
		if err := r.Ack(t.Context(), "a", f); !errors.Is(err, relay.ErrInvalid) {
			t.Errorf("ack with a bad frontier (%s): %v", name, err)
		}
		if _, err := r.Pull(t.Context(), "a", relay.Want{Held: f}); !errors.Is(err, relay.ErrInvalid) {
			t.Errorf("pull with a bad frontier (%s): %v", name, err)
		}
	}
	if roster, err := r.Roster(t.Context()); err != nil || len(roster) != 0 {
		t.Errorf("refused calls left %v, %v", roster, err)
	}
}

func (s suite) canceled(t *testing.T) {
	r, a := s.open(t), NewAuthor("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, hello := r.Hello(ctx, "a")
	_, push := r.Push(ctx, "a", a.Write(t, 1, 60))
	_, pull := r.Pull(ctx, "a", relay.Want{})
	_, roster := r.Roster(ctx)
	for call, err := range map[string]error{
		"hello": hello, "push": push, "pull": pull, "roster": roster,
		"ack":      r.Ack(ctx, "a", frontier(a.Ops[0])),
		"register": r.Register(ctx, "a", relay.Writer),
	} {
		if !errors.Is(err, relay.ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, expected ErrNotSent and the cause", call, err)
		}
	}
	wantHead(t, r, a, 0)
}

func (s suite) hint(t *testing.T) {
	if s.NoHint {
		t.Skip("this relay gives no hints")
	}
	open := s.New(t, 0)
	r, a := open(), NewAuthor("a")
	hinter, ok := r.(relay.Hinter)
	if !ok {
		t.Fatalf("%T is no relay.Hinter", r)
	}
	mustPush(t, r, a.Write(t, 1, 60))
	if err := hinter.Hint(t.Context(), nil); err != nil {
		t.Errorf("a head that has moved already: %v", err)
	}
	done := make(chan error, 1)
	known := frontier(a.Ops[0])
	go func() { done <- hinter.Hint(t.Context(), known) }()
	mustPush(t, open(), a.Write(t, 1, 60))
	if err := <-done; err != nil {
		t.Errorf("a head that moved: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { done <- hinter.Hint(ctx, frontier(a.Ops[1])) }()
	why := errors.New("stopped")
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("a hint whose context ended gives %v, expected its cause", err)
	}
}
