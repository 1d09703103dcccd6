package api_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord/memory"
)

var figures = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures") })

func TestMetricsAreForWhoMayObserveAllAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toks, _ := tokens(t, "name=prometheus roles=observe agents=* sha256="+digest("all"), "name=ci roles=observe agents=a sha256="+digest("some"),
			"name=runner roles=execute agents=* sha256="+digest("run"))
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Tokens: toks, Metrics: figures})
		if got := w.want(w.do("GET", "/metrics", nil), 200, ""); string(got.raw) != "figures" {
			t.Errorf("the owner got %q", got.raw)
		}
		for token, status := range map[string]int{"all": 200, "some": 403, "run": 403, "none": 401} {
			w.want(w.do("GET", "/metrics", nil, bearer(token)), status, map[int]string{403: "forbidden", 401: "unauthenticated"}[status])
		}
	})
}

func TestMetricsAreThereBeforeThereIsANode(t *testing.T) {
	w := &world{t: t, server: api.New(api.Config{Metrics: figures})}
	w.want(w.do("GET", "/metrics", nil), 200, "")
	if !slices.Contains(w.server.Patterns(), "GET /metrics") {
		t.Errorf("the route is not told: %q", w.server.Patterns())
	}
	none := &world{t: t, server: api.New(api.Config{})}
	none.want(none.do("GET", "/metrics", nil), 404, "not-found")
}

func TestEachAnswerIsToldByItsRouteAndNeverByItsPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]int{}
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Answered: func(pattern string, status int, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			told[pattern] = status
			if stream := pattern == "GET /v1/events"; (took == 0) != stream {
				t.Errorf("%s took %s", pattern, took)
			}
		}})
		w.want(w.do("GET", "/v1/agents/secret", nil), 200, "")
		w.want(w.do("GET", "/secret", nil), 404, "not-found")
		w.want(w.do("POST", "/v1/runs", "{"), 400, "invalid-request")
		_, leave, done := w.watch("/v1/events", "")
		synctest.Wait()
		leave()
		<-done
		want := map[string]int{"GET /v1/agents/{id}": 200, "": 404, "POST /v1/runs": 400, "GET /v1/events": 200}
		if !maps.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
