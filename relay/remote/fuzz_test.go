package remote_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/relay/remote"
)

// answersOf are good answers of every call, and the status they came with.
func answersOf(f *testing.F) (bodies [][]byte) {
	h := remote.NewHandler(remote.HandlerConfig{Relay: memory.New(memory.Config{}), Allow: anyone})
	r, err := remote.New(remote.Config{URL: "http://127.0.0.1:1", Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		bodies = append(bodies, bytes.Clone(rec.Body.Bytes()))
		return rec.Result(), nil
	})}})
	if err != nil {
		f.Fatal(err)
	}
	a := relaytest.NewAuthor("a")
	ops := a.Write(f, 3, 40)
	_, _ = r.Push(f.Context(), "a", ops)
	_, _ = r.Push(f.Context(), "a", a.Clone(1).Write(f, 2, 40))
	_, _ = r.Hello(f.Context(), "a")
	_, _ = r.Pull(f.Context(), "a", relay.Want{})
	_, _ = r.Roster(f.Context())
	_, _ = r.Collect(f.Context())
	return bodies
}

// FuzzAnswer gives every call any answer: nothing panics, and what is taken for an answer is possible.
func FuzzAnswer(f *testing.F) {
	for _, body := range answersOf(f) {
		f.Add(body, true)
		f.Add(body, false)
	}
	ops := relaytest.NewAuthor("a").Write(f, 3, 40)
	f.Fuzz(func(t *testing.T, body []byte, ok bool) {
		r, err := remote.New(remote.Config{URL: "http://127.0.0.1:1", Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			var q struct{ ID string }
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				return nil, err
			}
			var any struct{ ID string }
			line, _, _ := bytes.Cut(body, []byte("\n"))
			text := body
			if json.Unmarshal(line, &any) == nil && any.ID != "" { // let it be the answer to this call
				text = bytes.ReplaceAll(body, []byte(any.ID), []byte(q.ID))
			}
			kind, status := answerType, http.StatusOK
			if !ok {
				kind, status = problemType, http.StatusConflict
			}
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(text))}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		if info, err := r.Hello(ctx, "a"); err == nil && (len(info.Instance) != 32 || relay.CheckFrontier(info.Heads) != nil) {
			t.Fatalf("%+v", info)
		}
		if got, err := r.Push(ctx, "a", ops); got.Accepted < 0 || got.Duplicate < 0 || got.Accepted+got.Duplicate > 3 || !ok && err == nil {
			t.Fatalf("%+v, %v", got, err)
		} else if fork, is := errors.AsType[*relay.ForkError](err); is && (fork.Device != "a" || fork.Existing == fork.Got) {
			t.Fatalf("%+v", fork)
		}
		if page, err := r.Pull(ctx, "a", relay.Want{}); err != nil && len(page.Ops) > 0 || len(page.Ops) > relay.MaxOps {
			t.Fatalf("%d ops, %v", len(page.Ops), err)
		}
		if roster, err := r.Roster(ctx); err == nil {
			relay.Stable(roster)
		}
		if c, ok, err := r.Checkpoint(ctx); err == nil && ok && !c.Whole() {
			t.Fatalf("%+v", c)
		}
		_, _ = r.Collect(ctx)
		_ = r.Ack(ctx, "a", nil)
	})
}

// FuzzQuestion sends any question to every call: nothing panics, and what is refused as unreadable has done nothing.
func FuzzQuestion(f *testing.F) {
	a := relaytest.NewAuthor("a")
	line := string(a.Write(f, 1, 40)[0].AppendLine(nil)) + "\n"
	const begin = `{"v":1,"id":"0123456789abcdef0123456789abcdef","ask":`
	f.Add(uint8(0), []byte(begin+`{"device":"a"}}`+"\n"))
	f.Add(uint8(1), []byte(begin+`{"device":"a","ops":1}}`+"\n"+line))
	f.Add(uint8(2), []byte(begin+`{"device":"a","held":{},"skip":["b"],"max_bytes":0}}`+"\n"))
	f.Add(uint8(6), []byte(begin+`{"known":{},"wait_ms":0}}`+"\n"))
	f.Add(uint8(7), []byte(begin+`{"device":"a","checkpoint":{"hash":"","author":"a","frontier":{},"closed":{},"size":2}}}`+"\nab"))
	f.Add(uint8(8), []byte(begin+`{"device":"a","checkpoint":{"hash":"","author":"a","frontier":{},"closed":{},"size":2},"heads":{"a":{"seq":0,"op_id":"","hlc":{}}}}}`+"\nab"))
	verbs := remote.Verbs()
	f.Fuzz(func(t *testing.T, verb uint8, body []byte) {
		name := verbs[int(verb)%len(verbs)]
		if name == "hint" && bytes.Contains(body, []byte("wait_ms")) {
			body = bytes.ReplaceAll(body, []byte("wait_ms"), []byte("wait_m_")) // it would wait
		}
		store := memory.New(memory.Config{})
		h := remote.NewHandler(remote.HandlerConfig{Relay: store, Allow: anyone})
		req := httptest.NewRequest(http.MethodPost, remote.Prefix+name, bytes.NewReader(body))
		req.Header.Set("Content-Type", answerType)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		if rec.Code == http.StatusBadRequest {
			if roster, _ := store.Roster(t.Context()); len(roster) != 0 {
				t.Fatalf("refused, and the relay has %+v", roster)
			}
		}
		if rec.Code != http.StatusOK && rec.Header().Get("Content-Type") != problemType {
			t.Fatalf("status %d with %s", rec.Code, rec.Header().Get("Content-Type"))
		}
	})
}
