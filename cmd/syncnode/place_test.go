package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/relay/memory"
	relayremote "github.com/syncnode/syncnode/relay/remote"
)

func TestTheRelayOfANodeIsReachedOverTLSWithTheTokenOfTheFile(t *testing.T) {
	token := ""
	srv := httptest.NewTLSServer(relayremote.NewHandler(relayremote.HandlerConfig{Relay: memory.New(memory.Config{}), Allow: func(r *http.Request, _ relayremote.Call) error {
		token = r.Header.Get("Authorization")
		return nil
	}}))
	defer srv.Close()
	dir := t.TempDir()
	ca, file := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	must(t, os.WriteFile(file, []byte("one\n"), 0o600))
	p := placeFlags{relay: srv.URL, cacert: ca, token: file}
	must(t, p.check())
	r, err := p.open(t.Context(), nil, "default")
	must(t, err)
	for _, want := range []string{"one", "two"} { // a new token needs no restart
		must(t, os.WriteFile(file, []byte(want+"\n"), 0o600))
		if _, err := r.Hello(t.Context(), "a"); err != nil || token != "Bearer "+want {
			t.Errorf("%v with %q, want token %s", err, token, want)
		}
	}
	p.cacert = ""
	r, err = p.open(t.Context(), nil, "default")
	must(t, err)
	if _, err := r.Hello(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without its authority: %v", err)
	}
	p.cacert = file
	if _, err := p.open(t.Context(), nil, "default"); err == nil || !strings.Contains(err.Error(), "has no certificate") {
		t.Errorf("no certificate in the file: %v", err)
	}
}
