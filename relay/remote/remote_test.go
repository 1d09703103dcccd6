package remote_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/relay/remote"
)

// anyone lets everybody do everything.
func anyone(*http.Request, remote.Call) error { return nil }

// serve serves r on loopback until the test ends, behind what wrap puts before it.
func serve(t testing.TB, r relay.Relay, wrap ...func(http.Handler) http.Handler) string {
	t.Helper()
	h := remote.NewHandler(remote.HandlerConfig{Relay: r, Allow: anyone})
	for _, w := range wrap {
		h = w(h)
	}
	return serveHandler(t, h)
}

func serveHandler(t testing.TB, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(remote.Prefix, h)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func dial(t testing.TB, cfg remote.Config) *remote.Relay {
	t.Helper()
	r, err := remote.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestConformance(t *testing.T) {
	var behind sync.Map // of a client, the relay that is served to it
	newAt := func(t *testing.T, maxBytes int64, now func() time.Time) func() relay.Relay {
		store := memory.New(memory.Config{MaxBytes: maxBytes, Now: now})
		url := serve(t, store)
		return func() relay.Relay {
			r := dial(t, remote.Config{URL: url})
			behind.Store(r, store)
			return r
		}
	}
	relaytest.Run(t, relaytest.Options{
		New:   func(t *testing.T, maxBytes int64) func() relay.Relay { return newAt(t, maxBytes, time.Now) },
		NewAt: newAt,
		Slow:  true,
		Damage: func(_ *testing.T, r relay.Relay) {
			store, _ := behind.Load(r)
			store.(*memory.Relay).DamageCheckpoint()
		},
	})
}
