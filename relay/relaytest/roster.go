package relaytest

import (
	"errors"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
)

func member(t *testing.T, r relay.Relay, device string) relay.Member {
	t.Helper()
	roster, err := r.Roster(t.Context())
	if err != nil {
		t.Fatalf("roster: %v", err)
	}
	for i, m := range roster {
		if i > 0 && roster[i-1].Device >= m.Device {
			t.Errorf("the roster is not in order: %s before %s", roster[i-1].Device, m.Device)
		}
	}
	for _, m := range roster {
		if m.Device == device {
			return m
		}
	}
	t.Fatalf("%s is not in the roster", device)
	return relay.Member{}
}

func (s suite) ack(t *testing.T) {
	r, a, b := s.open(t), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 5, 60))
	mustPush(t, r, b.Write(t, 5, 60))
	for _, c := range []struct{ acked, want oplog.Frontier }{
		{frontier(a.Ops[2]), frontier(a.Ops[2])},
		{frontier(a.Ops[1], b.Ops[0]), frontier(a.Ops[2], b.Ops[0])},
		{frontier(b.Ops[4]), frontier(a.Ops[2], b.Ops[4])},
		{nil, frontier(a.Ops[2], b.Ops[4])},
		{frontier(a.Ops[4], b.Ops[3]), frontier(a.Ops[4], b.Ops[4])},
	} {
		if err := r.Ack(t.Context(), "c", c.acked); err != nil {
			t.Fatalf("ack: %v", err)
		}
		if got := member(t, r, "c").Acked; !got.Equal(c.want) {
			t.Errorf("after an ack of %v the row says %v, expected %v", c.acked, got, c.want)
		}
		if info, err := r.Hello(t.Context(), "c"); err != nil || !info.Acked.Equal(c.want) {
			t.Errorf("hello says %v (%v), expected %v", info.Acked, err, c.want)
		}
	}
	if m := member(t, r, "c"); m.Role != relay.Seen {
		t.Errorf("an ack enrolled the device as %s", m.Role)
	}
}

func (s suite) register(t *testing.T) {
	r := s.open(t)
	for _, role := range []relay.Role{relay.Replica, relay.Replica, relay.Writer, relay.Replica} {
		if err := r.Register(t.Context(), "a", role); err != nil {
			t.Fatalf("register as %s: %v", role, err)
		}
		info, err := r.Hello(t.Context(), "a")
		if m := member(t, r, "a"); err != nil || m.Role != role || info.Role != role || m.Added.IsZero() {
			t.Errorf("registered as %s: row %+v, hello %s, %v", role, m, info.Role, err)
		}
	}
	for _, role := range []relay.Role{"", relay.Seen, "boss"} {
		if err := r.Register(t.Context(), "b", role); !errors.Is(err, relay.ErrInvalid) {
			t.Errorf("register as %q: %v, expected ErrInvalid", role, err)
		}
	}
	if _, err := r.Hello(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if m := member(t, r, "c"); m.Role != relay.Seen {
		t.Errorf("mere contact gives the role %q", m.Role)
	}
}

func (s suite) stable(t *testing.T) {
	r, a, b := s.open(t), NewAuthor("a"), NewAuthor("b")
	mustPush(t, r, a.Write(t, 5, 60))
	mustPush(t, r, b.Write(t, 5, 60))
	step := func(what string, err error, want oplog.Frontier) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		roster, err := r.Roster(t.Context())
		if got := relay.Stable(roster); err != nil || !got.Equal(want) {
			t.Errorf("%s: stable is %v (%v), expected %v", what, got, err, want)
		}
	}
	ctx := t.Context()
	step("an ack of a device that is only seen", r.Ack(ctx, "c", frontier(a.Ops[4])), nil)
	step("a replica that acked nothing", r.Register(ctx, "a", relay.Replica), nil)
	step("one replica's ack", r.Ack(ctx, "a", frontier(a.Ops[4], b.Ops[2])), frontier(a.Ops[4], b.Ops[2]))
	step("a second replica that acked nothing", r.Register(ctx, "b", relay.Replica), nil)
	step("the least of two", r.Ack(ctx, "b", frontier(a.Ops[1], b.Ops[4])), frontier(a.Ops[1], b.Ops[2]))
	step("a writer does not count", r.Register(ctx, "w", relay.Writer), frontier(a.Ops[1], b.Ops[2]))
	step("a replica that becomes a writer", r.Register(ctx, "b", relay.Writer), frontier(a.Ops[4], b.Ops[2]))
}

func (s suite) look(t *testing.T) {
	r, a := s.open(t), NewAuthor("a")
	looker, ok := r.(relay.Looker)
	if ok == s.NoLook {
		t.Fatalf("%T is a relay.Looker: %v", r, ok)
	}
	if !ok {
		return
	}
	look := func() relay.Info {
		t.Helper()
		info, err := looker.Look(t.Context())
		if err != nil {
			t.Fatalf("look: %v", err)
		}
		return info
	}
	if info := look(); len(info.Heads) != 0 || info.Checkpoint != "" {
		t.Errorf("a new relay looks like %+v", info)
	}
	if roster, err := r.Roster(t.Context()); err != nil || len(roster) != 0 {
		t.Errorf("a look left the rows %v, %v", roster, err)
	}
	mustPush(t, r, a.Write(t, 3, 60))
	hello, err := r.Hello(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if info := look(); info.Instance != hello.Instance || info.Generation != hello.Generation || !info.Heads.Equal(hello.Heads) || info.Known || info.Role != "" {
		t.Errorf("a look gives %+v, hello %+v", info, hello)
	}
	if roster, err := r.Roster(t.Context()); err != nil || len(roster) != 1 {
		t.Errorf("rows %v, %v; want that of a alone", roster, err)
	}
}

func (s suite) handles(t *testing.T) {
	open := s.New(t, 0)
	first, second, a := open(), open(), NewAuthor("a")
	mustPush(t, first, a.Write(t, 3, 60))
	wantHead(t, second, a, 3)
	mustPush(t, second, a.Write(t, 2, 60))
	mustPush(t, first, a.Write(t, 2, 60))
	wantHead(t, second, a, 7)
	if err := first.Ack(t.Context(), "b", frontier(a.Ops[1])); err != nil {
		t.Fatal(err)
	}
	if err := second.Ack(t.Context(), "b", frontier(a.Ops[3])); err != nil {
		t.Fatal(err)
	}
	if err := first.Ack(t.Context(), "b", frontier(a.Ops[2])); err != nil {
		t.Fatal(err)
	}
	if got := member(t, second, "b").Acked; !got.Equal(frontier(a.Ops[3])) {
		t.Errorf("acks through two handles give %v", got)
	}
	x, err := first.Hello(t.Context(), "a")
	y, err2 := second.Hello(t.Context(), "a")
	if err != nil || err2 != nil || x.Instance != y.Instance {
		t.Errorf("two handles say %s and %s (%v, %v)", x.Instance, y.Instance, err, err2)
	}
}
