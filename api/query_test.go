package api_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord/memory"
)

func TestAQueryParameterThatNoOperationKnowsIsRefusedByName(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, op := range w.server.Operations() {
			method, path, _ := strings.Cut(op, " ")
			path = strings.ReplaceAll(path, "{id}", runID("1"))
			body := map[string]any{"GET": nil, "POST": obj{}}[method]
			for query, named := range map[string]string{"stat=failed": "stat", "no%20such": "no such", "limit=1&Limit=2": "Limit", "a=%zz": "", "a;b": ""} {
				a := w.want(w.do(method, path+"?"+query, body), 400, "invalid-request")
				w.wantExecuted(a, map[bool]string{false: "no", true: "maybe"}[tellsAnEnd(path)])
				if named == "" {
					continue
				}
				if wrong := string(a.raw); !strings.Contains(wrong, `"query.`+named+`"`) || !strings.Contains(wrong, "this operation ") {
					t.Errorf("%s?%s does not say what is wrong: %s", op, query, wrong)
				}
			}
			if t.Failed() {
				t.Fatal(op)
			}
		}
		no := w.want(w.do("GET", "/v1/runs?stat=failed", nil), 400, "invalid-request").text("detail")
		if want := `there is no parameter "stat"; this operation knows agent, cursor, device, limit, since, state`; no != want {
			t.Errorf("it says %s, want %s", no, want)
		}
		w.want(w.do("GET", "/v1/runs?state=failed&agent=a&device=a&limit=1&cursor=", nil), 200, "")
		w.want(w.do("GET", "/v1/nodes?agent=a", nil), 400, "invalid-request") // nodes are of devices
	})
}

func TestWhoMayNotAskIsNotToldWhichParametersThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toks, _ := tokens(t, "name=o roles=execute agents=* sha256="+digest("t"))
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Tokens: toks})
		w.caller = func(*http.Request) {}
		w.want(w.do("GET", "/v1/runs?stat=failed", nil, bearer("")), 401, "unauthenticated")
		w.want(w.do("GET", "/v1/runs?stat=failed", nil, bearer("t")), 403, "forbidden")
	})
}
