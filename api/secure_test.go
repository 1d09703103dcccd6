package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/bubble"
)

func pretty(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

// paths are one request for every route that is not open.
func paths(s *api.Server) map[string]api.Role {
	all := map[string]api.Role{}
	for pattern, role := range s.Routes() {
		if role != api.Open {
			all[strings.ReplaceAll(pattern, "{id}", runID("1"))] = role
		}
	}
	return all
}

func TestEveryRouteHasARole(t *testing.T) {
	s := api.New(api.Config{})
	routes := s.Routes()
	if len(routes) < 20 {
		t.Fatalf("%d routes: the list was lost", len(routes))
	}
	for pattern, role := range routes {
		if !slices.Contains([]api.Role{api.Open, api.Observe, api.Execute, api.Operate}, role) {
			t.Errorf("%s has the role %q", pattern, role)
		}
		method, path, _ := strings.Cut(pattern, " ")
		if role == api.Observe && method != "GET" || role != api.Observe && role != api.Open && method == "GET" {
			t.Errorf("%s for %s: who may observe may GET, and changes nothing", pattern, role)
		}
		if role == api.Open && !slices.Contains([]string{"/livez", "/readyz", "/openapi.json", "/problems/{type}"}, path) {
			t.Errorf("%s is open to everybody", pattern)
		}
	}
	for _, op := range s.Operations() {
		if _, ok := routes[op]; !ok {
			t.Errorf("%s is in the document and has no role: it is not served", op)
		}
	}
}

func TestARouteWithoutARoleIsNeitherTakenNorServed(t *testing.T) {
	inWorld(t, func(w *world) {
		ran := func(http.ResponseWriter, *http.Request) { t.Error("it was run") }
		for name, take := range map[string]func(){
			"a handler":                  func() { w.server.Bare("GET /bare", ran) },
			"a mount without a role":     func() { api.New(api.Config{Mounts: []api.Mount{{Pattern: "GET /bare"}}}) },
			"a mount of no role of ours": func() { api.New(api.Config{Mounts: []api.Mount{{Pattern: "GET /bare", Role: "root"}}}) },
		} {
			func() {
				defer func() {
					if said := fmt.Sprint(recover()); said != "api: GET /bare has no role" {
						t.Errorf("%s is taken: %s", name, said)
					}
				}()
				take()
			}()
		}
		w.server.Behind("GET /bare", ran)
		w.server.Behind("POST /v1/leases", ran)
		w.want(w.do("GET", "/bare", nil), 404, "not-found")
		w.want(w.do("POST", "/bare", nil), 404, "not-found")
		for path, allow := range map[string]string{"/v1/leases": "GET, HEAD", "/v1/runs": "GET, HEAD, POST", "/v1/config/reload": "POST"} {
			for _, method := range []string{"PUT", "POST", "OPTIONS"} {
				if strings.Contains(allow, method) {
					continue
				}
				if a := w.want(w.do(method, path, nil), 405, "method-not-allowed"); a.header.Get("Allow") != allow {
					t.Errorf("%s allows %q, want %q", path, a.header.Get("Allow"), allow)
				}
			}
		}
	})
}

// tokens writes a token file, and gives back how to send a token.
func tokens(t *testing.T, lines ...string) (*api.Tokens, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, lines...)
	toks, err := api.OpenTokens(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return toks, path
}

func write(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) {
		r.Host = "192.0.2.1:7433"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
}

func TestARoleIsNeededForEveryRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		for _, r := range []api.Role{api.Observe, api.Execute, api.Operate} {
			lines = append(lines, fmt.Sprintf("name=%s roles=%s agents=* sha256=%s", r, r, digest("token-of-"+string(r))))
		}
		toks, _ := tokens(t, lines...)
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Tokens: toks})
		w.caller = func(*http.Request) {}
		for pattern, role := range paths(w.server) {
			method, path, _ := strings.Cut(pattern, " ")
			body := map[string]any{"GET": nil, "POST": obj{}}[method]
			w.want(w.do(method, path, body, bearer("")), 401, "unauthenticated")
			w.want(w.do(method, path, body, bearer("no-such-token")), 401, "unauthenticated")
			for _, has := range []api.Role{api.Observe, api.Execute, api.Operate} {
				if has == role && path == "/v1/events" {
					continue // it does not end
				}
				a := w.do(method, path, body, bearer("token-of-"+string(has)))
				if (a.status == 403) != (has != role) {
					t.Errorf("%s, which is for %s, asked by %s: %s", pattern, role, has, a.raw)
				}
			}
		}
		w.want(w.do("GET", "/no-such-route", nil, bearer("")), 401, "unauthenticated")
		w.want(w.do("GET", "/livez", nil, bearer("")), 200, "")
		if l, _ := w.c.Leases(t.Context()); len(l) != 0 {
			t.Errorf("refused requests took leases: %+v", l)
		}
	})
}

func TestATokenIsBoundToItsAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toks, _ := tokens(t, "# comment", "", "name=ci roles=observe,execute,operate agents=a,bill.* devices=d1 sha256="+digest("the-token"))
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Tokens: toks})
		w.want(w.do("POST", "/v1/runs", obj{"agent": "other", "occurrence": "1"}), 201, "") // over the socket
		path, attempt := w.fenced("1")
		w.caller = bearer("the-token")
		for agent, status := range map[string]int{"bill.eu": 201, "a": 409, "ab": 403, "bill": 403, "other": 403} {
			problem := map[int]string{409: "run-in-progress", 403: "forbidden"}[status]
			w.want(w.do("POST", "/v1/runs", obj{"agent": agent, "occurrence": "1"}), status, problem)
		}
		for _, path := range []string{"/v1/leases", "/v1/agents"} {
			for _, item := range w.want(w.do("GET", path, nil), 200, "").body["items"].([]any) {
				if a := item.(obj)["agent"]; a != "a" && a != "bill.eu" {
					t.Errorf("%s shows %v", path, a)
				}
			}
		}
		w.want(w.do("POST", "/v1/agents/other/pause", obj{"reason": "x"}), 403, "forbidden")
		w.want(w.do("GET", "/v1/agents/other", nil), 403, "forbidden")
		w.want(w.do("POST", "/v1/config/reload", nil), 403, "forbidden")
		w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 200, "")
		if r := w.want(w.do("POST", "/v1/agents/a/pause", obj{"reason": "x", "by": "ada"}), 200, ""); r.text("by") != "ada (ci)" {
			t.Errorf("paused by %q", r.text("by"))
		}
	})
}

// A cursor has the names of an agent and a run in it.
func TestAListTellsACallerNothingOfTheAgentsOfOthersAlsoNotInItsCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toks, _ := tokens(t, "name=ci roles=observe agents=b,d sha256="+digest("the-token"))
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Tokens: toks})
		for _, run := range []string{"a 1", "a 2", "b 1", "b 2", "c 1", "c 2", "d 1", "e 1", "e 2"} {
			agent, occurrence, _ := strings.Cut(run, " ")
			c := w.want(w.do("POST", "/v1/runs", obj{"agent": agent, "occurrence": occurrence}), 201, "")
			path := c.header.Get("Location")
			f := w.want(w.do("POST", path+"/fence", obj{"claim": c.text("claim"), "request": "request-1"}), 200, "")
			w.want(w.do("POST", path+"/commit", obj{"attempt": f.text("attempt")}), 200, "")
		}
		w.caller = bearer("the-token")
		for _, query := range []string{"?limit=1", "?limit=2", "?limit=3", "?", "?agent=a&limit=1", "?agent=b&limit=1"} {
			var seen []string
			cursor, pages := "", 0
			for pages = 0; pages == 0 || cursor != ""; pages++ {
				a := w.want(w.do("GET", "/v1/runs"+query+"&cursor="+url.QueryEscape(cursor), nil), 200, "")
				for _, item := range a.body["items"].([]any) {
					seen = append(seen, item.(obj)["agent"].(string))
				}
				cursor = a.text("next")
				if agent, _, _ := strings.Cut(cursor, "/"); agent != "" && agent != "b" && agent != "d" || pages > 9 {
					t.Fatalf("%s: page %d goes on at %q", query, pages, cursor)
				}
			}
			want := map[string]string{"?agent=a&limit=1": "", "?agent=b&limit=1": "bb"}
			if w, ok := want[query]; strings.Join(seen, "") != w && ok || !ok && strings.Join(seen, "") != "bbd" {
				t.Errorf("%s shows runs of %v", query, seen)
			}
		}
	})
}

func TestTokensAreReplacedWithoutAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := func(token string) string { return "name=ci roles=observe agents=* sha256=" + digest(token) }
		toks, path := tokens(t, line("old"))
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Tokens: toks})
		try := func(token string, want int) {
			t.Helper()
			bubble.Pass(2e9)
			w.caller = bearer(token)
			w.want(w.do("GET", "/v1/node", nil), want, "unauthenticated")
		}
		try("old", 200)
		try("new", 401)
		write(t, path, line("old"), line("new"))
		try("old", 200)
		try("new", 200)
		write(t, path, "name=ci roles=everything")
		try("old", 200) // a file that makes no sense changes nothing
		write(t, path, line("new"))
		try("old", 401)
		try("new", 200)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		try("new", 200)
	})
}

func TestATokenFileThatIsWrongIsRefused(t *testing.T) {
	good := "name=ci roles=observe agents=* sha256=" + digest("x")
	for line, says := range map[string]string{
		"": "no line",
		"roles=observe agents=* sha256=" + digest("x"):     "required",
		strings.Replace(good, "observe", "admin", 1):       "observe, execute or operate",
		strings.Replace(good, "agents=*", "agents=a/b", 1): "pattern",
		good + " cert=x":   "either",
		good + " name=two": "twice",
		strings.Replace(good, "sha256="+digest("x"), "token=secret-secret-secret", 1): "SHA-256",
		strings.Replace(good, digest("x"), "abc", 1):                                  "64 hex digits",
		good + " secret-secret-secret":                                                "a word",
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		write(t, path, line)
		_, err := api.OpenTokens(path, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret-secret") {
			t.Errorf("%q: %v, want %q", line, err, says)
		}
	}
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, good)
	os.Chmod(path, 0o640)
	if _, err := api.OpenTokens(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
}

func TestTheOwnerOfTheSocketMayEverythingAndOthersNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want(w.do("POST", "/v1/agents/a/resume", nil), 200, "")
		w.caller = func(r *http.Request) { *r = *api.OverSocketAs(r, os.Geteuid()+1) }
		w.want(w.do("GET", "/v1/node", nil), 401, "unauthenticated")
	})
}

func TestOnLoopbackWithoutTokensNobodyDecides(t *testing.T) {
	inWorld(t, func(w *world) {
		w.caller = func(r *http.Request) { r.Host = "localhost:7433"; *r = *api.OverLoopback(r) }
		w.want(w.claim("1"), 201, "")
		w.want(w.do("GET", "/v1/runs", nil), 200, "")
		w.want(w.do("POST", "/v1/agents/a/resume", nil), 403, "forbidden")
	})
}

func TestABrowserCannotBeMadeToSpeakForItsUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Hosts: []string{"node.example"}})
		loopback := func(host string, header ...string) func(*http.Request) {
			return func(r *http.Request) {
				r.Host = host
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				*r = *api.OverLoopback(r)
			}
		}
		for _, host := range []string{"localhost", "localhost:7433", "127.0.0.1:7433", "[::1]:7433", "127.0.0.2", "node.example:1", "NODE.example"} {
			w.want(w.do("GET", "/v1/node", nil, loopback(host)), 200, "")
			w.want(w.do("GET", "/v1/node", nil, loopback(host, "Origin", "http://"+host)), 200, "")
		}
		for _, host := range []string{"", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7433", "192.0.2.1", "127.0.0.1@evil.example", "0.0.0.0"} {
			w.want(w.do("GET", "/v1/node", nil, loopback(host)), 403, "wrong-host")
			w.want(w.do("GET", "/livez", nil, loopback(host)), 403, "wrong-host")
		}
		for _, origin := range []string{"http://evil.example", "null", "https://localhost", "http://localhost:1"} {
			w.want(w.do("POST", "/v1/runs", obj{"agent": "a", "occurrence": "1"}, loopback("localhost", "Origin", origin)), 403, "wrong-host")
		}
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
			w.want(w.do("POST", "/v1/runs", obj{"agent": "a", "occurrence": "1"}, loopback("localhost"), func(r *http.Request) { r.Header.Set("Content-Type", kind) }), 415, "media-type")
		}
		a := w.do("GET", "/v1/node", nil)
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("other sites may read: %s", name)
			}
		}
		if l, _ := w.c.Leases(t.Context()); len(l) != 0 {
			t.Errorf("leases were taken: %+v", l)
		}
	})
}

func TestOffLoopbackItRefusesToStartUnprotected(t *testing.T) {
	for addr, loopback := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, "[::1]:7": true, "127.0.0.1.example:0": false,
		"0.0.0.0:0": false, "[::]:0": false, ":0": false, "192.0.2.1:0": false} {
		a, err := api.ParseAddress(addr)
		if err != nil || a.Loopback() != loopback {
			t.Errorf("%s: loopback %v, %v", addr, a.Loopback(), err)
		}
		if loopback {
			continue
		}
		if _, err = api.Listen(a, api.Security{}); err == nil || !strings.Contains(err.Error(), api.ErrExposed.Error()) {
			t.Errorf("%s was opened without protection: %v", addr, err)
		}
	}
	for _, bad := range []string{"", "7433", "unix:", "unix:" + strings.Repeat("x", 200), "http://localhost:1"} {
		if a, err := api.ParseAddress(bad); err == nil {
			t.Errorf("%q is taken for %v", bad, a)
		}
	}
}

func TestTooManyRequestsAreRefusedAndHealthIsNot(t *testing.T) {
	inWorld(t, func(w *world) {
		undo := w.server.Fill()
		no := w.want(w.claim("1"), 429, "too-many-requests")
		w.wantExecuted(no, "no")
		w.want(w.do("GET", "/livez", nil), 200, "")
		undo()
		w.want(w.claim("1"), 201, "")
	})
}

func TestEveryProblemIsExplained(t *testing.T) {
	w := &world{t: t, server: api.New(api.Config{})}
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range api.Kinds() {
		if a := w.do("GET", "/problems/"+name, nil); a.status != 200 || !strings.Contains(string(a.raw), "executed: ") {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/operations.md does not tell of %s", name)
		}
	}
	w.want(w.do("GET", "/problems/nothing", nil), 404, "not-found")
}
