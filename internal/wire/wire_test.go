package wire_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/syncnode/syncnode/internal/wire"
)

// echo answers with what it was asked.
func echo(seen func(*wire.Call)) *wire.Handler {
	return &wire.Handler{Format: 3, MaxAsk: 1000, MaxTail: 1000, Verbs: map[string]func(*wire.Call) (wire.Answer, error){
		"echo": func(c *wire.Call) (wire.Answer, error) {
			var ask string
			if err := c.Ask(&ask); err != nil {
				return wire.Answer{}, err
			}
			if seen != nil {
				seen(c)
			}
			return wire.Answer{Body: ask}, nil
		},
	}}
}

func client(t *testing.T, cfg wire.ClientConfig) *wire.Client {
	t.Helper()
	cfg.Prefix, cfg.Format, cfg.MaxAnswer, cfg.MaxTail = "/v1/", 3, 1000, 1000
	c, err := wire.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func ask(t *testing.T, c *wire.Client) error {
	t.Helper()
	const text = "a <b> & \u2028 ü"
	var answer string
	err := c.Do(t.Context(), wire.Question{Verb: "echo", Ask: text, Answer: &answer})
	if err == nil && answer != text {
		t.Errorf("answered %q", answer)
	}
	return err
}

func TestACallWorksOverASocketAndOverTLSWithEitherProtocol(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: echo(nil)}}
	srv.Start()
	defer srv.Close()
	if err := ask(t, client(t, wire.ClientConfig{Place: "unix:" + path})); err != nil {
		t.Errorf("socket: %v", err)
	}
	for _, h2 := range []bool{false, true} {
		var calls atomic.Int32
		srv := httptest.NewUnstartedServer(echo(func(c *wire.Call) {
			calls.Add(1)
			if got := c.Header.Get("Authorization"); got != "Bearer secret" || (c.ProtoMajor == 2) != h2 {
				t.Errorf("%s with %q", c.Proto, got)
			}
		}))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		defer srv.Close()
		pool := x509.NewCertPool()
		pool.AddCert(srv.Certificate())
		token := func() (string, error) { return "secret", nil }
		if err := ask(t, client(t, wire.ClientConfig{Place: srv.URL, TLS: &tls.Config{RootCAs: pool}, Token: token})); err != nil {
			t.Errorf("h2 %v: %v", h2, err)
		}
		if err := ask(t, client(t, wire.ClientConfig{Place: srv.URL, Token: token})); !errors.Is(err, wire.ErrUnsent) || calls.Load() != 1 {
			t.Errorf("h2 %v, a certificate of nobody: %v, %d calls", h2, err, calls.Load())
		}
	}
}

// A connection that ends with the question on its way proves nothing, with either protocol, on a fresh one and on one that was used.
func TestOnceAConnectionWasHadNothingProvesThatNothingWasSent(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		var calls atomic.Int32
		h := echo(func(*wire.Call) {
			if calls.Add(1)%2 == 0 {
				panic(http.ErrAbortHandler)
			}
		})
		srv := httptest.NewUnstartedServer(h)
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		defer srv.Close()
		pool := x509.NewCertPool()
		pool.AddCert(srv.Certificate())
		c := client(t, wire.ClientConfig{Place: srv.URL, TLS: &tls.Config{RootCAs: pool}})
		for i := range 6 {
			err := ask(t, c)
			if i%2 == 0 && err != nil || i%2 == 1 && (!errors.Is(err, wire.ErrUnknown) || errors.Is(err, wire.ErrUnsent)) {
				t.Errorf("h2 %v, call %d: %v", h2, i, err)
			}
		}
		if calls.Load() != 6 {
			t.Errorf("h2 %v: %d calls arrived of 6: one was sent again by itself", h2, calls.Load())
		}
		srv.Close()
		c.Close() // else the question may go to a connection that is not known to have ended
		if err := ask(t, c); !errors.Is(err, wire.ErrUnsent) {
			t.Errorf("h2 %v, nobody listens: %v", h2, err)
		}
	}
}

type odd struct{}

func (odd) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("odd") }

func TestATransportThatTellsNothingProvesNothing(t *testing.T) {
	c := client(t, wire.ClientConfig{Place: "http://127.0.0.1:1", Client: &http.Client{Transport: odd{}}})
	if err := ask(t, c); !errors.Is(err, wire.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

// What stands before a server may refuse in a problem of its own; only its word that nothing was executed counts.
func TestARefusalBeforeTheServerIsBelievedOnlyWhereItMayComeFromThere(t *testing.T) {
	for _, c := range []struct {
		status   int
		executed wire.Executed
		want     error
		denied   bool
	}{
		{401, wire.No, wire.ErrUnsent, true}, {403, wire.No, wire.ErrUnsent, true}, {429, wire.No, wire.ErrUnsent, false}, {503, wire.No, wire.ErrUnsent, false},
		{503, wire.Maybe, wire.ErrUnknown, false}, {503, "", wire.ErrUnknown, false}, {401, "", wire.ErrUnknown, false},
		{500, wire.No, wire.ErrUnknown, false}, {200, wire.No, wire.ErrUnknown, false}, {502, wire.No, wire.ErrUnknown, false},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			wire.WriteProblem(w, wire.NewProblem(c.status, "x", "x", "why", c.executed), 3, "")
		}))
		err := ask(t, client(t, wire.ClientConfig{Place: srv.URL}))
		if !errors.Is(err, c.want) || errors.Is(err, wire.ErrDenied) != c.denied || !strings.Contains(err.Error(), "why") {
			t.Errorf("%d, executed %q: %v", c.status, c.executed, err)
		}
		srv.Close()
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	defer other.Close()
	srv := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	for _, given := range []*http.Client{nil, {}} {
		err := ask(t, client(t, wire.ClientConfig{Place: srv.URL, Client: given, Token: func() (string, error) { return "secret", nil }}))
		if !errors.Is(err, wire.ErrUnknown) {
			t.Errorf("got %v", err)
		}
	}
}
