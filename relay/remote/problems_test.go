package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/wire"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/relay/remote"
)

// A failing relay gives err to every call.
type failing struct {
	*memory.Relay
	err    error
	pushed relay.Pushed
}

func (f *failing) Push(context.Context, string, []oplog.Op) (relay.Pushed, error) {
	return f.pushed, f.err
}

func (f *failing) Roster(context.Context) ([]relay.Member, error) { return nil, f.err }

func TestEveryAnswerCrossesTheWireWithItsTypeAndFacts(t *testing.T) {
	a := relaytest.NewAuthor("a")
	ops := a.Write(t, 3, 60)
	pos := oplog.Pos{Seq: 1, ID: ops[1].ID}
	other := a.Clone(1).Write(t, 1, 60)[0].ID
	for _, c := range []struct {
		err      error
		is       []error
		executed string
	}{
		{&relay.GapError{Device: "a", Expected: 1, Found: 2}, []error{relay.ErrGap}, "no"},
		{&relay.ForkError{Device: "a", Seq: 1, Existing: other, Got: ops[1].ID}, []error{relay.ErrFork}, "no"},
		{&relay.ForkError{Device: "a", Seq: 0, Existing: other, Got: ops[1].Prev}, []error{relay.ErrFork}, "no"},
		{&relay.ForeignError{Device: "a", OpDevice: "b"}, []error{relay.ErrForeign}, "no"},
		{&relay.BadOpError{Device: "a", Seq: 1, Err: &oplog.ClockError{Device: "a", Seq: 1, Before: ops[1].HLC, Got: ops[0].HLC}}, []error{relay.ErrBadOp, oplog.ErrChain}, "no"},
		{&relay.SizeError{What: "ops", Size: 3, Max: 2}, []error{relay.ErrSize}, "no"},
		{&relay.FullError{Used: 3, Need: 2, Max: 4}, []error{relay.ErrFull}, "no"},
		{&relay.FrontierTruncatedError{Device: "a", Held: 1, Floor: oplog.Frontier{"a": pos}}, []error{relay.ErrFrontierTruncated}, "no"},
		{&relay.ClosedError{Device: "a", Last: pos}, []error{relay.ErrClosed}, "no"},
		{&relay.BehindError{Held: "x", Offered: "y"}, []error{relay.ErrBehind}, "no"},
		{&relay.ContradictionError{Device: "a", Got: pos, Why: "it is another op"}, []error{relay.ErrContradiction}, "no"},
		{&relay.NotStableError{Device: "a", Reason: relay.Reason{Cause: relay.Unacked, Replica: "b"}}, []error{relay.ErrNotStable}, "no"},
		{fmt.Errorf("%w: a head", relay.ErrCorrupt), []error{relay.ErrCorrupt}, "no"},
		{&relay.InvalidError{Err: errors.New("why")}, []error{relay.ErrInvalid}, "no"},
		{fmt.Errorf("%w: etcd is away", relay.ErrNotSent), []error{relay.ErrNotSent}, "no"},
		{fmt.Errorf("%w: etcd is away", relay.ErrIndeterminate), []error{relay.ErrIndeterminate}, "maybe"},
		{fmt.Errorf("%w: %w: no space", relay.ErrFull, relay.ErrIndeterminate), []error{relay.ErrFull, relay.ErrIndeterminate}, "maybe"},
		{errors.New("the disk is on fire"), []error{relay.ErrIndeterminate}, "maybe"},
	} {
		served := &failing{memory.New(memory.Config{}), fmt.Errorf("push: %w", c.err), relay.Pushed{Accepted: 1, Duplicate: 1}}
		r := dial(t, remote.Config{URL: serve(t, served)})
		got, err := r.Push(t.Context(), "a", ops)
		_, plain := r.Roster(t.Context())
		if got != served.pushed {
			t.Errorf("%v: pushed %+v", c.err, got)
		}
		for _, sentinel := range []error{
			relay.ErrNotSent, relay.ErrIndeterminate, relay.ErrInvalid, relay.ErrGap, relay.ErrFork, relay.ErrForeign, relay.ErrBadOp, relay.ErrSize, relay.ErrFull,
			relay.ErrFrontierTruncated, relay.ErrClosed, relay.ErrBehind, relay.ErrContradiction, relay.ErrNotStable, relay.ErrCorrupt, oplog.ErrChain,
		} {
			want := errors.Is(errors.Join(c.is...), sentinel)
			if errors.Is(err, sentinel) != want || errors.Is(plain, sentinel) != want {
				t.Errorf("%v: push gives %v and roster %v; matching %v should be %v", c.err, err, plain, sentinel, want)
			}
		}
		if !strings.Contains(err.Error(), c.err.Error()) {
			t.Errorf("%v becomes %v", c.err, err)
		}
		if reflect.TypeOf(c.err).Kind() != reflect.Pointer || !strings.HasPrefix(reflect.TypeOf(c.err).String(), "*relay.") || errors.Is(c.err, relay.ErrInvalid) {
			continue
		}
		typed := reflect.New(reflect.TypeOf(c.err))
		if !errors.As(err, typed.Interface()) || !reflect.DeepEqual(typed.Elem().Interface(), c.err) {
			t.Errorf("%#v comes back as %#v", c.err, typed.Elem().Interface())
		}
	}
}

func TestWhoMayActForADeviceIsAskedBeforeAnythingIsDone(t *testing.T) {
	store := memory.New(memory.Config{})
	var asked []remote.Call
	onlyA := func(r *http.Request, c remote.Call) error {
		asked = append(asked, c)
		if r.Header.Get("Authorization") != "Bearer a's" {
			return errors.New("who are you")
		}
		if c.Device != "a" && c.Device != "" {
			return fmt.Errorf("this token is for a, not for %s", c.Device)
		}
		return nil
	}
	for name, c := range map[string]struct {
		allow func(*http.Request, remote.Call) error
		token string
		may   bool
	}{"its token": {onlyA, "a's", true}, "another token": {onlyA, "b's", false}, "no rule at all": {nil, "a's", false}} {
		url := serveHandler(t, remote.NewHandler(remote.HandlerConfig{Relay: store, Allow: c.allow}))
		r := dial(t, remote.Config{URL: url, Token: func() (string, error) { return c.token, nil }})
		for _, d := range deeds(t) {
			err := d.do(t.Context(), r)
			may := c.may && d.verb != "pull" // which is for b
			if denied := errors.Is(err, remote.ErrDenied) && errors.Is(err, relay.ErrNotSent); denied == may || may && err != nil {
				t.Errorf("%s, %s: %v", name, d.verb, err)
			}
		}
		if info, err := store.Hello(t.Context(), "z"); err != nil || len(info.Heads) > 0 != c.may {
			t.Errorf("%s: the relay has %v, %v", name, info.Heads, err)
		}
		store = memory.New(memory.Config{})
	}
	verbs := map[string]bool{}
	for _, c := range asked {
		verbs[c.Verb] = true
	}
	if len(verbs) != len(remote.Verbs()) {
		t.Errorf("asked about %v, there are %v", verbs, remote.Verbs())
	}
}

func TestARelayOfAnotherFormatIsRefusedWithASentence(t *testing.T) {
	url := serveHandler(t, &wire.Handler{Format: 2, MaxAsk: 1 << 20, MaxTail: 1 << 20, Verbs: map[string]func(*wire.Call) (wire.Answer, error){
		"hello": func(*wire.Call) (wire.Answer, error) {
			t.Error("it was done")
			return wire.Answer{Body: struct{}{}}, nil
		},
	}})
	_, err := dial(t, remote.Config{URL: url}).Hello(t.Context(), "a")
	e, ok := errors.AsType[*remote.FormatError](err)
	if !ok || e.Spoken != 1 || len(e.Offered) != 1 || e.Offered[0] != 2 || !errors.Is(err, relay.ErrNotSent) || !strings.Contains(err.Error(), "upgrade the older") {
		t.Errorf("got %v", err)
	}
}

// plainRelay is a relay that does no more than it must.
type plainRelay struct{ relay.Relay }

func TestARelayThatDoesNoMoreThanItMustSaysSo(t *testing.T) {
	r := dial(t, remote.Config{URL: serve(t, plainRelay{memory.New(memory.Config{})})})
	if _, err := r.Collect(t.Context()); !errors.Is(err, relay.ErrInvalid) {
		t.Errorf("collect: %v", err)
	}
	if _, ok, err := r.Checkpoint(t.Context()); ok || !errors.Is(err, relay.ErrInvalid) {
		t.Errorf("checkpoint: %v", err)
	}
	if _, err := r.Look(t.Context()); !errors.Is(err, relay.ErrInvalid) {
		t.Errorf("look: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	done := make(chan error)
	go func() { done <- r.Hint(ctx, nil) }()
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("hint: %v", err)
	}
}

func TestPlacesAreCheckedAndSecretsAreNotShown(t *testing.T) {
	token := func() (string, error) { return "secret", nil }
	for url, want := range map[string]string{
		"": "want http://", "ftp://a": "want http://", "http://": "want http://", "unix:": "without a path", "http://a?x=1": "a query",
		"https://me:secret@a": "a user", "http://[::1": "not a URL", "http://other.example": "in the clear",
	} {
		_, err := remote.New(remote.Config{URL: url, Token: token})
		if !errors.Is(err, relay.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, expected %q", url, err, want)
		}
	}
	for _, url := range []string{"http://127.0.0.1:1", "http://localhost:1/behind/a/proxy", "http://[::1]:1", "https://other.example", "unix:/run/x.sock"} {
		if _, err := remote.New(remote.Config{URL: url, Token: token}); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
}
