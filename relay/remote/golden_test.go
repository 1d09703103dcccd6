package remote_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/remote"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var drawn = regexp.MustCompile(`"[0-9a-f]{32}"`)

func TestTheBytesOfEveryCallAreThoseOfTheFormat(t *testing.T) {
	var text bytes.Buffer
	record := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			fmt.Fprintf(&text, "%s %s %s\n%s\n%d %s\n%s\n\n", r.Method, r.URL.Path, r.Header.Get("Content-Type"), body, rec.Code, rec.Header().Get("Content-Type"), rec.Body)
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes())
		})
	}
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := dial(t, remote.Config{URL: serve(t, memory.New(memory.Config{Now: func() time.Time { return day }}), record)})
	for _, d := range deeds(t) {
		if err := d.do(t.Context(), r); err != nil {
			t.Fatalf("%s: %v", d.verb, err)
		}
	}
	if _, err := r.Pull(t.Context(), "a", relay.Want{}); err == nil { // collected below
		t.Error("the pull of what was collected was answered")
	}
	got := drawn.ReplaceAll(text.Bytes(), []byte(`"<32 hex digits>"`))
	name := filepath.Join("testdata", "calls.golden")
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the calls are now\n%s\nexpected\n%s", got, want)
	}
}
