package api_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncnode/syncnode/api"
	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/memory"
	"github.com/syncnode/syncnode/internal/bubble"
	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/node/hold"
)

func TestAClaimAFenceAndACommitAreARun(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.want(w.do("POST", "/v1/runs", obj{"agent": "a", "occurrence": "1"}), 201, "")
		if c.header.Get("Location") != "/v1/runs/"+runID("1") || c.text("run_id") != runID("1") || c.text("device") != "a" || c.body["epoch"] != 1.0 ||
			c.text("occurrence") != "key:1" || c.text("agent") != "a" || c.text("claim") == "" {
			t.Errorf("claimed %s, at %s", c.raw, c.header.Get("Location"))
		}
		path := c.header.Get("Location")
		w.want(w.do("GET", path, nil), 404, "not-found") // a claim is recorded nowhere
		f := w.want(w.do("POST", path+"/fence", obj{"claim": c.text("claim"), "request": "request-1"}), 200, "")
		deadline, err := time.Parse(time.RFC3339Nano, f.text("deadline"))
		if err != nil || !deadline.After(time.Now()) || f.text("attempt") == "" || f.body["epoch"] != 1.0 || f.body["stop"] != false {
			t.Errorf("fence: %s, %v", f.raw, err)
		}
		again := w.want(w.do("POST", path+"/fence", obj{"claim": c.text("claim"), "request": "request-1"}), 200, "")
		if again.text("attempt") != f.text("attempt") {
			t.Errorf("a repeat begins anew: %s, first %s", again.raw, f.raw)
		}
		no := w.want(w.do("POST", path+"/fence", obj{"claim": c.text("claim"), "request": "request-2"}), 412, "already-fenced")
		w.wantExecuted(no, "maybe")
		w.want(w.do("POST", path+"/heartbeat", obj{"attempt": f.text("attempt")}), 200, "")
		w.want(w.do("POST", path+"/check", obj{"attempt": f.text("attempt")}), 200, "")
		w.want(w.do("POST", path+"/check", obj{"attempt": c.text("claim")}), 412, "claim-unknown")
		if run := w.want(w.do("GET", path, nil), 200, ""); run.text("state") != "running" {
			t.Errorf("while it runs: %s", run.raw)
		}
		for range 2 {
			e := w.want(w.do("POST", path+"/commit", obj{"attempt": f.text("attempt"), "result": "42 sent"}), 200, "")
			if e.text("state") != "committed" || e.body["settled"] != true {
				t.Errorf("committed: %s", e.raw)
			}
		}
		for range 2 {
			done := w.want(w.claim("1"), 200, "")
			if done.header.Get("Syncnode-Replayed") != "true" || done.text("result") != "42 sent" || done.text("attempt") != f.text("attempt") || done.text("state") != "committed" {
				t.Errorf("replayed: %s, %v", done.raw, done.header)
			}
		}
		w.want(w.do("POST", path+"/fence", obj{"claim": c.text("claim"), "request": "request-1"}), 412, "claim-unknown")
		no = w.want(w.do("POST", path+"/fail", obj{"attempt": f.text("attempt")}), 409, "attempt-closed")
		w.wantExecuted(no, "yes")
	})
}

func TestTheIdempotencyKeyIsAnotherSpellingOfTheOccurrence(t *testing.T) {
	inWorld(t, func(w *world) {
		key := func(k string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set("Idempotency-Key", k) }
		}
		a := w.want(w.do("POST", "/v1/runs", obj{"agent": "a"}, key(`"1"`)), 201, "")
		if a.text("run_id") != runID("1") {
			t.Errorf("claimed %s", a.raw)
		}
		w.want(w.do("POST", "/v1/runs", obj{"agent": "a", "occurrence": "1"}, key("2")), 400, "invalid-request")
		w.want(w.do("POST", "/v1/runs", obj{"agent": "b"}, key("2")), 201, "")
		at := w.want(w.do("POST", "/v1/runs", obj{"agent": "c", "at": "2026-11-29T03:00:00+01:00"}), 201, "")
		if at.text("occurrence") != "at:2026-11-29T02:00:00Z" {
			t.Errorf("claimed %s", at.raw)
		}
	})
}

func TestARequestThatMakesNoSenseChangesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		deep := strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20)
		for body, problem := range map[string]string{
			`{}`: "invalid-request", `{"agent":"a"}`: "invalid-request", `{"agent":"a","occurrence":""}`: "invalid-request",
			`{"agent":"a/b","occurrence":"1"}`: "invalid-request", `{"agent":"..","occurrence":"1"}`: "invalid-request",
			`{"agent":"a","occurrence":"1","at":"2026-01-01T00:00:00Z"}`: "invalid-request",
			`{"agent":"a","occurrence":"1","unknown":1}`:                 "invalid-request",
			`{"agent":"a","occurrence":"1","AGENT":"b"}`:                 "invalid-request",
			`{"agent":"a","agent":"b","occurrence":"1"}`:                 "invalid-request",
			`{"agent":"a","occurrence":"1"} {}`:                          "invalid-request",
			`{"agent":"a","occurrence":"1","input_digest":"ABC"}`:        "invalid-request",
			`{"agent":"a","occurrence":1}`:                               "invalid-request",
			`{"agent":"a","occurrence":"1","if_failed":"maybe"}`:         "invalid-request",
			`[]`: "invalid-request", `null`: "invalid-request", `{`: "invalid-request", "\x00": "invalid-request", deep: "invalid-request",
			`{"agent":"a","occurrence":"` + strings.Repeat("x", 256) + `"}`:                 "invalid-request",
			`{"agent":"a","occurrence":"1\u0000"}`:                                          "invalid-request",
			`{"agent":"a","occurrence":"1","request":"` + strings.Repeat("x", 2<<20) + `"}`: "too-large",
		} {
			status := map[string]int{"invalid-request": 400, "too-large": 413}[problem]
			a := w.want(w.do("POST", "/v1/runs", body), status, problem)
			w.wantExecuted(a, "no")
			if t.Failed() {
				t.Fatalf("with %.80s", body)
			}
		}
		w.want(w.do("POST", "/v1/runs", `{"agent":"a","occurrence":"1"}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), 415, "media-type")
		w.want(w.do("POST", "/v1/runs", nil), 400, "invalid-request")
		w.want(w.do("POST", "/v1/runs/x/fence", obj{"claim": "x", "request": "request-1"}), 412, "claim-unknown")
		w.want(w.do("GET", "/v1/runs/x", nil), 400, "invalid-request")
		w.want(w.do("PUT", "/v1/runs", obj{}), 405, "method-not-allowed")
		w.want(w.do("GET", "/v2", nil), 404, "not-found")
		w.want(w.do("GET", "/v1/runs?limit=100000", nil), 400, "invalid-request")
		w.want(w.do("GET", "/v1/runs?cursor=x", nil), 400, "invalid-request")
		if l, _ := w.c.Leases(t.Context()); len(l) != 0 {
			t.Errorf("leases were taken: %+v", l)
		}
	})
}

func TestAPathThatIsWrittenOtherwiseIsNoRouteAndNeverARedirect(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, path := range []string{
			"//v1/runs", "/v1//runs", "///v1/runs", "/v1/runs/", "/v1/runs//", "/v1/../v1/runs", "/v1/x/../runs", "/./v1/runs", "/v1/./runs", "/v1/runs/.",
			"/v1/runs/../runs", "/v1/agents/../runs", "/v1/x", "/v1/../x", "/v1/", "/v1", "/", "//livez", "/livez/", "/v1/%2e%2e/v1/runs", "/v1%2Fruns",
			"/v1/agents//pause", "/v1/agents/a//pause", "/v1/agents/b/../a/pause", "/v1/agents/a/pause/",
		} {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
				a := w.do(method, path, obj{"agent": "a", "occurrence": "1", "reason": "x"})
				if a.header.Get("Location") != "" {
					w.t.Errorf("%s %s leads to %s", method, path, a.header.Get("Location"))
				}
				w.wantExecuted(w.want(a, 404, "not-found"), "no")
			}
		}
		if left := w.want(w.do("GET", "/v1/leases", nil), 200, "").body["items"].([]any); len(left) != 0 {
			w.t.Errorf("something was claimed: %v", left)
		}
		if a := w.want(w.do("GET", "/v1/agents/a", nil), 200, ""); a.body["paused"] != false {
			w.t.Errorf("the agent is paused: %s", a.raw)
		}
		w.want(w.do("DELETE", "/v1/runs", nil), 405, "method-not-allowed")
	})
}

func TestWhoComesSecondIsToldByWhomTheAgentIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		a, b := newWorld(t, s, "a", api.Config{}), newWorld(t, s, "b", api.Config{})
		a.want(a.claim("1"), 201, "")
		for w, problem := range map[*world]string{a: "run-in-progress", b: "agent-held"} {
			no := w.want(w.claim("1"), 409, problem)
			holder, _ := no.body["holder"].(obj)
			if holder["device"] != "a" || no.header.Get("Retry-After") == "" || no.text("run_id") != runID("1") {
				t.Errorf("refused by %s, %v", no.raw, no.header)
			}
		}
		no := a.want(a.claim("2"), 409, "agent-held")
		a.wantExecuted(no, "no")
		if holder, _ := no.body["holder"].(obj); holder["run_id"] != runID("1") {
			t.Errorf("refused by %s", no.raw)
		}
	})
}

func TestARunThatIsRunningElsewhereIsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		a, b := newWorld(t, s, "a", api.Config{}), newWorld(t, s, "b", api.Config{})
		a.fenced("1")
		no := b.want(b.claim("1"), 409, "run-in-progress")
		b.wantExecuted(no, "maybe")
		if holder, _ := no.body["holder"].(obj); holder["device"] != "a" || no.header.Get("Retry-After") == "" {
			t.Errorf("refused by %s", no.raw)
		}
	})
}

func TestAClientThatGoesAwayBeforeTheFenceLeavesNothingAndAfterItADoubt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want(w.claim("1"), 201, "")
		bubble.Pass(coord.DefaultTTL + hold.Linger)
		path, attempt := w.fenced("1")
		bubble.Pass(coord.DefaultTTL + hold.Linger)
		no := w.want(w.claim("1"), 409, "run-in-doubt")
		w.wantExecuted(no, "maybe")
		if no.text("attempt") != attempt {
			t.Errorf("in doubt: %s", no.raw)
		}
		gone := w.want(w.do("POST", path+"/heartbeat", obj{"attempt": attempt}), 412, "claim-unknown")
		w.wantExecuted(gone, "maybe")
		w.want(w.claim("2"), 201, "")

		w.want(w.do("POST", path+"/resolve", obj{"as": "failed"}), 400, "invalid-request")
		r := w.want(w.do("POST", path+"/resolve", obj{"as": "failed", "reason": "looked", "by": "ada"}), 200, "")
		if r.text("state") != "free" {
			t.Errorf("resolved: %s", r.raw)
		}
		w.want(w.do("POST", path+"/resolve", obj{"as": "committed", "reason": "looked"}), 409, "moved")
	})
}

func TestAFailedRunIsNotBegunAgainUnlessItIsPermitted(t *testing.T) {
	inWorld(t, func(w *world) {
		path, attempt := w.fenced("1")
		for range 2 {
			e := w.want(w.do("POST", path+"/fail", obj{"attempt": attempt, "exit_code": 3}), 200, "")
			if e.text("state") != "failed" || e.text("cause") != "exit" {
				t.Errorf("failed: %s", e.raw)
			}
		}
		no := w.want(w.claim("1"), 409, "run-failed")
		w.wantExecuted(no, "yes")
		w.want(w.do("POST", path+"/retry", obj{"reason": "fixed"}), 200, "")
		w.fenced("1")
		w.want(w.do("POST", path+"/retry", obj{"reason": "fixed"}), 409, "moved")
	})
}

func TestAnotherResultIsRefusedAndTheFirstStands(t *testing.T) {
	inWorld(t, func(w *world) {
		path, attempt := w.fenced("1")
		for range 2 {
			w.want(w.do("POST", path+"/commit", obj{"attempt": attempt, "result": "41"}), 200, "")
			no := w.want(w.do("POST", path+"/commit", obj{"attempt": attempt, "result": "42"}), 409, "attempt-closed")
			w.wantExecuted(no, "yes")
			if no.text("state") != "committed" || no.text("attempt") != attempt {
				t.Errorf("refused: %s", no.raw)
			}
		}
		if r := w.want(w.claim("1"), 200, ""); r.text("result") != "41" {
			t.Errorf("recorded: %s", r.raw)
		}
	})
}

func TestAListOfRunsNamesWhatCannotBeRead(t *testing.T) {
	inWorld(t, func(w *world) {
		path, attempt := w.fenced("1")
		w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 200, "")
		w.c.unreadable = []coord.UnreadableRun{{Agent: "a", Run: ident.RunID("test", "a", "key:2"), Reason: "coord: it is damaged"}}
		a := w.want(w.do("GET", "/v1/runs?state=committed", nil), 200, "")
		unread, _ := a.body["unreadable"].([]any)
		if items, _ := a.body["items"].([]any); len(items) != 1 || len(unread) != 1 || unread[0].(map[string]any)["reason"] != "it is damaged" {
			t.Errorf("runs: %s", a.raw)
		}
	})
}

func TestAnotherInputIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		path, attempt := w.fenced("1")
		w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 200, "")
		no := w.want(w.do("POST", "/v1/runs", obj{"agent": "a", "occurrence": "1", "input_digest": strings.Repeat("0", 64)}), 422, "input-mismatch")
		w.wantExecuted(no, "no")
	})
}

func TestAPausedAgentAndTheRecoveryGateAreTold(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.want(w.claim("1"), 201, "")
		p := w.want(w.do("POST", "/v1/agents/a/pause", obj{"reason": "deploy", "by": "ada"}), 200, "")
		if p.body["paused"] != true || p.text("by") != "ada" {
			t.Errorf("paused: %s", p.raw)
		}
		no := w.want(w.do("POST", c.header.Get("Location")+"/fence", obj{"claim": c.text("claim"), "request": "request-1"}), 412, "agent-paused")
		w.wantExecuted(no, "no")
		w.want(w.claim("1"), 409, "agent-paused")
		if r := w.want(w.do("POST", "/v1/agents/a/resume", nil), 200, ""); r.body["paused"] != false {
			t.Errorf("resumed: %s", r.raw)
		}
		w.want(w.claim("1"), 201, "")
		if err := w.c.SetRecovery(t.Context(), coord.Gate{By: "t", Reason: "restored", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		w.want(w.claim("2"), 409, "recovery")
		w.want(w.do("POST", "/v1/agents/a/trigger", obj{}), 409, "not-configured")
	})
}

func TestWithoutALedgerNothingIsRunAndAnEndIsToldAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		path, attempt := w.fenced("1")
		w.c.cut.Store(true)
		no := w.want(w.claim("2"), 503, "unavailable")
		w.wantExecuted(no, "no")
		late := w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 503, "not-recorded")
		w.wantExecuted(late, "yes")
		w.c.cut.Store(false)
		w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 200, "")
	})
}

func TestAHeartbeatIsToldToStop(t *testing.T) {
	inWorld(t, func(w *world) {
		path, attempt := w.fenced("1")
		w.c.cut.Store(true)
		for {
			h := w.want(w.do("POST", path+"/heartbeat", obj{"attempt": attempt}), 200, "")
			if h.body["stop"] == true {
				if h.text("cause") != "lost" || h.body["stop_after_ms"] != 0.0 || h.body["valid_ms"].(float64) > 5000 {
					t.Errorf("told to stop: %s", h.raw)
				}
				break
			}
			bubble.Pass(h2d(h.body["heartbeat_ms"]))
		}
		w.c.cut.Store(false)
		e := w.want(w.do("POST", path+"/fail", obj{"attempt": attempt, "signal": 15}), 200, "")
		if e.text("cause") != "lost" {
			t.Errorf("ended: %s", e.raw)
		}
	})
}

func h2d(ms any) time.Duration { return time.Duration(ms.(float64)) * time.Millisecond }

func TestBeforeThereIsANodeTheAnswerIsNotNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, server: api.New(api.Config{})}
		w.want(w.do("GET", "/livez", nil), 200, "")
		if r := w.want(w.do("GET", "/readyz", nil), 200, ""); r.text("node") != "starting" {
			t.Errorf("ready: %s", r.raw)
		}
		w.want(w.do("GET", "/readyz?backend=1", nil), 503, "unavailable")
		for pattern, role := range w.server.Routes() {
			if role == api.Open {
				continue
			}
			method, path, _ := strings.Cut(pattern, " ")
			path = strings.ReplaceAll(path, "{id}", runID("1"))
			if tellsAnEnd(path) {
				late := w.want(w.do(method, path, obj{}), 503, "not-recorded")
				w.wantExecuted(late, "yes")
				continue
			}
			no := w.want(w.do(method, path, map[string]any{"GET": nil, "POST": obj{}}[method]), 503, "unavailable")
			w.wantExecuted(no, "no")
		}
	})
}

// tellsAnEnd reports whether what is sent to the path says that something happened.
func tellsAnEnd(path string) bool {
	return strings.HasSuffix(path, "/commit") || strings.HasSuffix(path, "/fail")
}

func TestAnEndThatIsRefusedIsNotSaidToBeUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toks, _ := tokens(t, "name=ci roles=observe,execute agents=a sha256="+digest("the-token"), "name=other roles=execute agents=b sha256="+digest("others"),
			"name=looks roles=observe agents=* sha256="+digest("looks"))
		w := newWorld(t, memory.New(memory.Config{}), "a", api.Config{Tokens: toks})
		path, attempt := w.fenced("1")
		full := func(do func()) func() { return func() { defer w.server.Fill()(); do() } }
		gone := func(do func()) func() {
			return func() { w.server.Attach(w.node)(); do(); w.server.Attach(w.node) }
		}
		cut := func(do func()) func() { return func() { w.c.cut.Store(true); defer w.c.cut.Store(false); do() } }
		plain := func(do func()) func() { return do }
		for _, x := range []struct {
			name    string
			status  int
			problem string
			token   string
			path    string // "": that of the run
			body    string // before what is told
			in      func(do func()) func()
			read    bool // the body was read: it is known what it tells
		}{
			{"no token", 401, "unauthenticated", "", "", "", plain, false},
			{"no role", 403, "forbidden", "looks", "", "", plain, false},
			{"another host", 403, "wrong-host", "host", "", "", plain, false},
			{"no place", 429, "too-many-requests", "the-token", "", "", full, false},
			{"a field twice", 400, "invalid-request", "the-token", "", `"attempt":"x",`, plain, false},
			{"a field that is not known", 400, "invalid-request", "the-token", "", `"other":"x",`, plain, true},
			{"no node", 503, "not-recorded", "the-token", "", "", gone, true},
			{"another's agent", 403, "forbidden", "others", "", "", plain, true},
			{"no such run", 404, "not-found", "the-token", "/v1/runs/" + runID("2"), `"agent":"a",`, plain, true},
			{"no ledger", 503, "not-recorded", "the-token", "/v1/runs/" + runID("2"), `"agent":"a",`, cut, true},
		} {
			for tells, executed := range map[string]string{"/commit": "yes", "/fail": "yes", `/fail "ran":"yes",`: "yes", `/fail "ran":"maybe",`: "maybe", `/fail "ran":"no",`: "no"} {
				verb, ran, _ := strings.Cut(tells, " ")
				if !x.read {
					executed = "maybe"
				}
				w.caller = bearer(x.token)
				if x.token == "host" {
					w.caller = func(r *http.Request) { r.Host = "evil.example" }
				}
				to := path
				if x.path != "" {
					to = x.path
				}
				x.in(func() {
					a := w.want(w.do("POST", to+verb, "{"+x.body+ran+`"attempt":"`+attempt+`"}`), x.status, x.problem)
					w.wantExecuted(a, executed)
					if !strings.Contains(a.text("detail"), "the end was not taken: ") || !strings.HasSuffix(a.text("detail"), "tell it again") {
						t.Errorf("it does not say what did not happen: %s", a.raw)
					}
				})()
				if t.Failed() {
					t.Fatalf("%s, told by %s", x.name, tells)
				}
			}
		}
		w.caller = bearer("the-token")
		w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 200, "")
	})
}

func TestAnEndThatMayHaveBeenRecordedIsWhatItTells(t *testing.T) {
	for ran, executed := range map[string]string{"no": "no", "yes": "yes"} {
		inWorld(t, func(w *world) {
			path, attempt := w.fenced("1")
			w.c.cut.Store(true)
			for range 2 {
				late := w.want(w.do("POST", path+"/fail", obj{"attempt": attempt, "ran": ran}), 503, "not-recorded")
				w.wantExecuted(late, executed)
			}
		})
	}
}

func TestReadyWithBackendAsksTheLedger(t *testing.T) {
	inWorld(t, func(w *world) {
		if r := w.want(w.do("GET", "/readyz?backend=1", nil), 200, ""); r.text("backend") != "ok" || r.text("node") != "serving" {
			t.Errorf("ready: %s", r.raw)
		}
		w.c.Coordinator.(*memory.Coordinator).Crash()
		w.want(w.do("GET", "/readyz?backend=1", nil), 503, "unavailable")
		w.want(w.do("GET", "/readyz", nil), 200, "")
	})
}

func TestTheLedgerIsAskedOnceForAllWhoAskWhetherItAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		var asked atomic.Int32
		answer := make(chan error)
		w.node.Probe = func(ctx context.Context) error {
			asked.Add(1)
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for n, x := range []struct {
			err    error
			status int
		}{{nil, 200}, {coord.ErrNotSent, 503}} {
			var all sync.WaitGroup
			first, leave := context.WithCancel(w.t.Context())
			ask := func(ctx context.Context) {
				all.Go(func() {
					a := w.do("GET", "/readyz?backend=1", nil, func(r *http.Request) { *r = *api.OverSocket(r.WithContext(ctx)) })
					if ctx != first && a.status != x.status {
						t.Errorf("status %d, want %d", a.status, x.status)
					}
				})
			}
			ask(first)
			synctest.Wait()
			for range 100 {
				ask(w.t.Context())
			}
			synctest.Wait()
			leave() // who asked first does not wait for the answer
			synctest.Wait()
			if got := asked.Load(); got != int32(n+1) {
				t.Errorf("asked %d times, want %d", got, n+1)
			}
			answer <- x.err
			all.Wait()
		}
		detach := w.server.Attach(w.node)
		var last sync.WaitGroup
		last.Go(func() { w.want(w.do("GET", "/readyz?backend=1", nil), 503, "unavailable") })
		synctest.Wait()
		detach() // a node that goes waits for no answer
		last.Wait()
	})
}

func TestListsAreCutIntoPages(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, agent := range []string{"x", "y", "z"} {
			w.want(w.do("POST", "/v1/runs", obj{"agent": agent, "occurrence": "1"}), 201, "")
		}
		for _, occ := range []string{"1", "2", "3"} {
			path, attempt := w.fenced(occ)
			w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 200, "")
		}
		for path, want := range map[string]int{"/v1/runs?": 3, "/v1/runs?state=committed&agent=a&": 3, "/v1/runs?state=in-doubt&": 0,
			"/v1/agents?": 4, "/v1/leases?": 4, "/v1/leases?device=b&": 0, "/v1/agents?agent=x&": 1, "/v1/nodes?": 0} {
			seen, cursor := 0, ""
			for {
				p := w.want(w.do("GET", path+"limit=1&cursor="+cursor, nil), 200, "")
				seen += len(p.body["items"].([]any))
				if cursor = p.text("next"); cursor == "" {
					break
				}
			}
			if seen != want {
				t.Errorf("%s shows %d, want %d", path, seen, want)
			}
		}
		if a := w.want(w.do("GET", "/v1/agents/x", nil), 200, ""); a.body["paused"] != false || a.body["holder"] == nil {
			t.Errorf("agent: %s", a.raw)
		}
		if n := w.want(w.do("GET", "/v1/node", nil), 200, ""); n.text("device") != "a" || n.text("namespace") != "test" {
			t.Errorf("node: %s", n.raw)
		}
	})
}

func TestRunsSinceAnInstantAreListedOverAllPages(t *testing.T) {
	inWorld(t, func(w *world) {
		var at []time.Time
		for i := range 8 {
			at = append(at, time.Now().UTC())
			path, attempt := w.fenced(fmt.Sprint(i))
			w.want(w.do("POST", path+"/commit", obj{"attempt": attempt}), 200, "")
			bubble.Pass(time.Hour)
		}
		for from, limit := range map[int]int{0: 3, 3: 1, 5: 2, 7: 100} {
			seen, cursor := map[string]bool{}, ""
			for {
				p := w.want(w.do("GET", fmt.Sprintf("/v1/runs?since=%s&limit=%d&cursor=%s", at[from].Format(time.RFC3339), limit, cursor), nil), 200, "")
				for _, r := range p.body["items"].([]any) {
					seen[r.(map[string]any)["occurrence"].(string)] = true
				}
				if cursor = p.text("next"); cursor == "" {
					break
				}
			}
			if len(seen) != 8-from || from > 0 && seen["key:"+fmt.Sprint(from-1)] {
				t.Errorf("since run %d: %v", from, seen)
			}
		}
		w.want(w.do("GET", "/v1/runs?since=yesterday", nil), 400, "invalid-request")
	})
}

func TestTheAPIIsWhatItWas(t *testing.T) {
	golden := "testdata/openapi.json"
	got := pretty(t, api.New(api.Config{Version: "1"}).Document())
	if os.Getenv("SYNCNODE_UPDATE") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the API changed: look whether clients can live with it, then SYNCNODE_UPDATE=1 go test ./api")
	}
}
