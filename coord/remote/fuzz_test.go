package remote_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/remote"
)

// FuzzAnswer gives every call any answer: nothing panics, and no permission is one for anything else than was asked for.
func FuzzAnswer(f *testing.F) {
	for _, ok := range []bool{true, false} {
		for _, text := range []string{
			`{"v":1,"id":"ID","answer":{"lease":{"agent":"a","device":"d","epoch":3,"ttl_ns":15000000000,"handle":"h","liveness":"l","before_ns":0}}}` + "\n",
			`{"v":1,"id":"ID","answer":{"lease":{"agent":"a","epoch":3,"ttl_ns":0},"held":false}}` + "\n",
			`{"v":1,"id":"ID","answer":{"attempt":{"id":"0123456789abcdef0123456789abcdef","request":"0123456789abcdef0123456789abcdef","device":"d","epoch":3,"state":"open","begun":"2026-01-02T03:04:05Z"}}}` + "\n",
			`{"v":1,"id":"ID","answer":{"view":{"entry":{"agent":"a","run":"r","attempts":null},"found":false,"state":"free","alive":null,"holder":{"agent":"","epoch":0,"ttl_ns":0},"held":false,"paused":null,"recovery":null,"witness":null}}}` + "\n",
			`{"v":1,"id":"ID","answer":{"finished":null,"released":{"name":"not-sent","detail":"x","facts":{}}}}` + "\n",
			`{"v":1,"id":"ID","answer":{"lines":1,"next":"a/r"}}` + "\n" + `{"agent":"a","device":"d","epoch":3,"ttl_ns":15000000000}` + "\n",
			`{"type":"urn:syncnode:problem:coord-held","title":"x","status":409,"v":1,"id":"ID","facts":{"held":{"agent":"a","device":"d","epoch":3,"ttl_ns":15000000000}}}`,
			`{"type":"urn:syncnode:problem:coord-moved","title":"x","status":409,"v":1,"id":"ID","is":["not-found"],"facts":{"settled":true,"moved":{"entry":{"agent":"a","run":"r","attempts":[]},"state":"free"}}}`,
			`{"type":"urn:syncnode:problem:no-such-session","title":"x","status":410,"v":1,"id":"ID"}`,
		} {
			f.Add([]byte(text), ok)
		}
	}
	h := newBackend().handler()
	f.Fuzz(func(t *testing.T, text []byte, ok bool) {
		calls := 0
		c := dial(t, remote.Config{URL: "http://127.0.0.1:1", Client: told(h, func(_, id string, _ *httptest.ResponseRecorder) (int, string, string) {
			calls++
			body := string(bytes.Replace(text, []byte(`"id":"ID"`), []byte(`"id":"`+id+`"`), 1))
			if !ok {
				return http.StatusConflict, problemType, body
			}
			return http.StatusOK, answerType, body
		})})
		defer c.Close(context.Background())
		ctx := t.Context()
		b := coord.Begin{Lease: coord.Lease{Agent: agent, Device: "d", Epoch: 3, Handle: "h"}, Run: "r", Attempt: "0123456789abcdef0123456789abcdef", Request: "0123456789abcdef0123456789abcdef"}
		if l, err := c.Acquire(ctx, request("d")); err == nil && (l.Agent != agent || l.Device != "d" || l.Epoch == 0 || l.Handle == "" || l.Sent.IsZero() || l.TTL > coord.MaxTTL) {
			t.Fatalf("acquired %+v", l)
		} else if err != nil && l != (coord.Lease{}) {
			t.Fatalf("%+v with %v", l, err)
		}
		if l, err := c.Renew(ctx, agent, "d", 3, coord.MaxTTL); err == nil && l.Epoch != 3 {
			t.Fatalf("renewed %+v", l)
		}
		if a, err := c.Begin(ctx, b); err == nil && (a.ID != b.Attempt || a.Request != b.Request || a.State != coord.Open || a.Epoch != 3) {
			t.Fatalf("begun %+v", a)
		}
		if l, a, err := c.Start(ctx, request("d"), b); err == nil && (a.ID != b.Attempt || a.Epoch != l.Epoch) {
			t.Fatalf("started %+v under %+v", a, l)
		}
		if v, err := c.Look(ctx, coord.Question{Agent: agent, Run: "r"}); err == nil && (v.Entry.Agent != agent || v.Entry.Run != "r") {
			t.Fatalf("saw %+v", v)
		}
		_, _, _ = c.Current(ctx, agent)
		_, _ = c.Leases(ctx)
		_, _ = c.List(ctx, coord.Filter{})
		_, _, _ = c.Recovery(ctx)
		_, _ = c.Complete(ctx, outcome(b, coord.Committed), b.Lease)
		if calls > 40 {
			t.Fatalf("%d calls", calls)
		}
	})
}

// FuzzQuestion sends any question to every call: nothing panics, and every refusal is a problem.
func FuzzQuestion(f *testing.F) {
	const session = "0123456789abcdef0123456789abcdef"
	verbs := remote.Verbs()
	add := func(verb, ask string) {
		for i, v := range verbs {
			if v.Name == verb {
				f.Add(uint8(i), []byte(`{"v":1,"id":"`+session+`","ask":`+ask+"}\n"))
			}
		}
	}
	add("open", `{"session":"`+session+`","process":{"pid":1}}`)
	add("acquire", `{"session":"`+session+`","n":1,"from":1,"request":{"agent":"a","device":"d","ttl_ns":15000000000,"floor":0,"note":""}}`)
	add("give-up", `{"session":"`+session+`","n":2,"from":1,"agent":"a","device":"d"}`)
	add("renew", `{"session":"`+session+`","agent":"a","device":"d","epoch":1,"ttl_ns":0,"dead":"x"}`)
	add("look", `{"session":"`+session+`","agent":"a","run":"r","witnesses":[{"agent":"a","run":"r"}]}`)
	add("begin", `{"session":"`+session+`","begin":{"lease":{"agent":"a","device":"d","epoch":1,"ttl_ns":0,"handle":"h"},"run":"r","occurrence":"key:1","input":"","attempt":"`+session+`","request":"`+session+`","at":{"next":0},"retry_failed":false,"retry":""}}`)
	add("list", `{"session":"`+session+`","filter":{"agent":"","device":"","states":["free"],"limit":1,"after":"a/r"}}`)
	f.Fuzz(func(t *testing.T, verb uint8, body []byte) {
		h := newBackend().handler()
		ask := func(name string, body []byte) *httptest.ResponseRecorder {
			req := httptest.NewRequest(http.MethodPost, remote.Prefix+name, bytes.NewReader(body))
			req.Header.Set("Content-Type", answerType)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			return rec
		}
		ask("open", []byte(`{"v":1,"id":"`+session+`","ask":{"session":"`+session+`","process":{}}}`+"\n"))
		for range 2 { // once more, as it may arrive
			rec := ask(verbs[int(verb)%len(verbs)].Name, body)
			if rec.Code != http.StatusOK && rec.Header().Get("Content-Type") != problemType {
				t.Fatalf("status %d with %s", rec.Code, rec.Header().Get("Content-Type"))
			}
		}
	})
}
