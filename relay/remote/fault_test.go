package remote_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/relay/remote"
)

// A network does to the next request what its name says; between times it does nothing.
type network struct {
	next func(r *http.Request) (*http.Response, error)
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	next := n.next
	n.next = nil
	if next == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return next(r)
}

var errCut = errors.New("the network was cut")

func droppedBefore(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errCut}
}

func droppedOnTheWay(*http.Request) (*http.Response, error) { return nil, errCut }

func droppedAfter(r *http.Request) (*http.Response, error) {
	if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return nil, errCut
}

func cutInTheAnswer(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, 40), resp.Body}
	}
	return resp, err
}

func twice(r *http.Request) (*http.Response, error) {
	again := r.Clone(r.Context())
	again.Body, _ = r.GetBody()
	resp, err := http.DefaultTransport.RoundTrip(again)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return http.DefaultTransport.RoundTrip(r)
}

// deeds are all calls, in an order in which each can be made, against a relay that is as the ones before left it.
func deeds(t *testing.T) []deed {
	a := relaytest.NewAuthor("a")
	ops := a.Write(t, 4, 60)
	at := oplog.Frontier{"a": a.Head()}
	heads := oplog.Heads{"a": {Seq: ops[3].Seq, ID: ops[3].ID, HLC: ops[3].HLC}}
	c := sealed(relay.Checkpoint{Author: "a", Frontier: at, Body: []byte("state")})
	return []deed{
		{"hello", func(ctx context.Context, r *remote.Relay) error { _, err := r.Hello(ctx, "a"); return err }},
		{"look", func(ctx context.Context, r *remote.Relay) error { _, err := r.Look(ctx); return err }},
		{"push", func(ctx context.Context, r *remote.Relay) error {
			got, err := r.Push(ctx, "a", ops)
			if err == nil && got.Accepted+got.Duplicate != 4 {
				t.Errorf("pushed %+v", got)
			}
			return err
		}},
		{"pull", func(ctx context.Context, r *remote.Relay) error {
			got, err := r.Pull(ctx, "b", relay.Want{})
			if err == nil && len(got.Ops) != 4 || err != nil && len(got.Ops) > 0 {
				t.Errorf("pulled %d ops, %v", len(got.Ops), err)
			}
			return err
		}},
		{"register", func(ctx context.Context, r *remote.Relay) error { return r.Register(ctx, "a", relay.Replica) }},
		{"ack", func(ctx context.Context, r *remote.Relay) error { return r.Ack(ctx, "a", at) }},
		{"roster", func(ctx context.Context, r *remote.Relay) error {
			got, err := r.Roster(ctx)
			if err == nil && len(got) != 1 {
				t.Errorf("roster %+v", got)
			}
			return err
		}},
		{"hint", func(ctx context.Context, r *remote.Relay) error { return r.Hint(ctx, nil) }},
		{"put-checkpoint", func(ctx context.Context, r *remote.Relay) error { return r.PutCheckpoint(ctx, "a", c) }},
		{"checkpoint", func(ctx context.Context, r *remote.Relay) error {
			got, ok, err := r.Checkpoint(ctx)
			if ok != (err == nil) || ok && got.Hash != c.Hash {
				t.Errorf("checkpoint %+v, %v, %v", got, ok, err)
			}
			return err
		}},
		{"seed", func(ctx context.Context, r *remote.Relay) error { return r.Seed(ctx, "a", c, heads) }},
		{"collect", func(ctx context.Context, r *remote.Relay) error { _, err := r.Collect(ctx); return err }},
	}
}

type deed struct {
	verb string
	do   func(context.Context, *remote.Relay) error
}

func TestACallThatTheNetworkFailedSaysWhetherItHappenedAndIsSettledByRepeating(t *testing.T) {
	for name, fault := range map[string]struct {
		do   func(*http.Request) (*http.Response, error)
		want error
	}{
		"dropped before it left":       {droppedBefore, relay.ErrNotSent},
		"dropped on its way":           {droppedOnTheWay, relay.ErrIndeterminate},
		"its answer dropped":           {droppedAfter, relay.ErrIndeterminate},
		"its answer cut":               {cutInTheAnswer, relay.ErrIndeterminate},
		"arrives twice":                {twice, nil},
		"a proxy has no such upstream": {status(http.StatusBadGateway), relay.ErrIndeterminate},
		"a proxy's page":               {page, relay.ErrIndeterminate},
	} {
		t.Run(name, func(t *testing.T) {
			n := &network{}
			r := dial(t, remote.Config{URL: serve(t, memory.New(memory.Config{})), Client: &http.Client{Transport: n}})
			for _, d := range deeds(t) {
				n.next = fault.do
				err := d.do(t.Context(), r)
				if !errors.Is(err, fault.want) || errors.Is(err, relay.ErrNotSent) && fault.want != relay.ErrNotSent {
					t.Errorf("%s: %v, expected %v", d.verb, err, fault.want)
				}
				if err := d.do(t.Context(), r); err != nil {
					t.Errorf("%s, repeated: %v", d.verb, err)
				}
			}
		})
	}
}

func status(code int) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody}, nil
	}
}

func page(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<html>log in</html>"))}, nil
}

func TestNothingWasSentWhereNoConnectionWasHad(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for name, cfg := range map[string]remote.Config{
		"nobody listens":          {URL: "http://" + gone.Addr().String()},
		"no socket":               {URL: "unix:" + filepath.Join(t.TempDir(), "no.sock")},
		"no such host":            {URL: "http://syncnode.invalid"},
		"the token cannot be had": {URL: "http://" + gone.Addr().String(), Token: func() (string, error) { return "", errCut }},
	} {
		for _, d := range deeds(t) {
			if err := d.do(t.Context(), dial(t, cfg)); !errors.Is(err, relay.ErrNotSent) || errors.Is(err, relay.ErrIndeterminate) {
				t.Errorf("%s, %s: %v, expected ErrNotSent", name, d.verb, err)
			}
		}
	}
}

// A server that takes the question and says nothing: the call ends with its context, and nobody knows.
func TestACallThatIsNotAnsweredInTimeIsIndeterminate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		r := dial(t, remote.Config{URL: "http://127.0.0.1:1", Client: silent})
		for _, d := range deeds(t) {
			if d.verb == "hint" {
				continue // its end is no failure
			}
			why := errors.New("enough")
			ctx, cancel := context.WithTimeoutCause(t.Context(), relay.Grace, why)
			if err := d.do(ctx, r); !errors.Is(err, relay.ErrIndeterminate) || errors.Is(err, relay.ErrNotSent) || !errors.Is(err, why) {
				t.Errorf("%s: %v, expected ErrIndeterminate and the cause", d.verb, err)
			}
			cancel()
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
