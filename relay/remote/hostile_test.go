package remote_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/relay/memory"
	"github.com/syncnode/syncnode/relay/relaytest"
	"github.com/syncnode/syncnode/relay/remote"
)

func sealed(c relay.Checkpoint) relay.Checkpoint {
	sum := sha256.Sum256(c.Body)
	c.Hash = hex.EncodeToString(sum[:])
	return c
}

// told answers every request with this body after "ID" in it is replaced by the call's own id.
func told(status int, kind, body string) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		var q struct{ ID string }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}},
			Body: io.NopCloser(strings.NewReader(strings.ReplaceAll(body, "ID", q.ID)))}, nil
	})}
}

const (
	answerType  = "application/vnd.syncnode+jsonl"
	problemType = "application/problem+json"
)

func TestAnAnswerThatCannotBeIsIndeterminateWhateverItSays(t *testing.T) {
	a := relaytest.NewAuthor("a")
	ops := a.Write(t, 2, 60)
	line := string(ops[0].AppendLine(nil))
	fork := func(existing, got oplog.OpID) string {
		return fmt.Sprintf(`{"type":"urn:syncnode:problem:relay-fork","title":"x","status":409,"v":1,"id":"ID","facts":{"fork":{"device":"a","seq":1,"existing":%q,"got":%q}}}`, existing, got)
	}
	other := a.Clone(1).Write(t, 1, 60)[0]
	hello := func(r *remote.Relay) error { _, err := r.Hello(t.Context(), "a"); return err }
	push := func(r *remote.Relay) error { _, err := r.Push(t.Context(), "a", ops); return err }
	pull := func(r *remote.Relay) error { _, err := r.Pull(t.Context(), "a", relay.Want{}); return err }
	roster := func(r *remote.Relay) error { _, err := r.Roster(t.Context()); return err }
	get := func(r *remote.Relay) error { _, _, err := r.Checkpoint(t.Context()); return err }
	ack := func(r *remote.Relay) error { return r.Ack(t.Context(), "a", nil) }
	collect := func(r *remote.Relay) error { _, err := r.Collect(t.Context()); return err }
	for name, c := range map[string]struct {
		do     func(*remote.Relay) error
		status int
		kind   string
		body   string
	}{
		"no JSON":                         {ack, 200, answerType, "hello\n"},
		"nothing":                         {ack, 200, answerType, ""},
		"no newline":                      {ack, 200, answerType, `{"v":1,"id":"ID","answer":{}}`},
		"another media type":              {ack, 200, "application/json", `{"v":1,"id":"ID","answer":{}}` + "\n"},
		"another status":                  {ack, 201, answerType, `{"v":1,"id":"ID","answer":{}}` + "\n"},
		"another call's":                  {ack, 200, answerType, `{"v":1,"id":"00000000000000000000000000000000","answer":{}}` + "\n"},
		"no id":                           {ack, 200, answerType, `{"v":1,"answer":{}}` + "\n"},
		"another format":                  {ack, 200, answerType, `{"v":2,"id":"ID","answer":{}}` + "\n"},
		"no answer":                       {ack, 200, answerType, `{"v":1,"id":"ID"}` + "\n"},
		"a question":                      {push, 200, answerType, `{"v":1,"id":"ID","ask":{}}` + "\n"},
		"an unknown field":                {ack, 200, answerType, `{"v":1,"id":"ID","answer":{"and":1}}` + "\n"},
		"an unknown field of the line":    {ack, 200, answerType, `{"v":1,"id":"ID","answer":{},"and":1}` + "\n"},
		"more than the answer":            {ack, 200, answerType, `{"v":1,"id":"ID","answer":{}}` + "\n\n"},
		"a line without an end":           {ack, 200, answerType, `{"v":1,"id":"ID","answer":{}` + strings.Repeat(" ", 9<<20)},
		"more pushed than there were":     {push, 200, answerType, `{"v":1,"id":"ID","answer":{"accepted":2,"duplicate":1}}` + "\n"},
		"less than nothing pushed":        {push, 200, answerType, `{"v":1,"id":"ID","answer":{"accepted":-1,"duplicate":1}}` + "\n"},
		"hello without an instance":       {hello, 200, answerType, `{"v":1,"id":"ID","answer":{"role":"seen"}}` + "\n"},
		"hello with no role":              {hello, 200, answerType, `{"v":1,"id":"ID","answer":{"instance":"0123456789abcdef0123456789abcdef","role":"boss"}}` + "\n"},
		"hello with a bad frontier":       {hello, 200, answerType, `{"v":1,"id":"ID","answer":{"instance":"0123456789abcdef0123456789abcdef","role":"seen","heads":{"../a":{"seq":1,"op_id":"x"}}}}` + "\n"},
		"fewer ops than it says":          {pull, 200, answerType, `{"v":1,"id":"ID","answer":{"ops":2}}` + "\n" + line + "\n"},
		"more ops than it says":           {pull, 200, answerType, `{"v":1,"id":"ID","answer":{"ops":1}}` + "\n" + line + "\n" + line + "\n"},
		"more ops than may be":            {pull, 200, answerType, `{"v":1,"id":"ID","answer":{"ops":1001}}` + "\n" + strings.Repeat(line+"\n", 1001)},
		"fewer than no ops":               {pull, 200, answerType, `{"v":1,"id":"ID","answer":{"ops":-1}}` + "\n"},
		"an op in another spelling":       {pull, 200, answerType, `{"v":1,"id":"ID","answer":{"ops":1}}` + "\n" + " " + line + "\n"},
		"half an op":                      {pull, 200, answerType, `{"v":1,"id":"ID","answer":{"ops":1}}` + "\n" + line[:len(line)/2]},
		"a broken chain of no device":     {pull, 200, answerType, `{"v":1,"id":"ID","answer":{"ops":0,"broken":{"../a":"x"}}}` + "\n"},
		"a roster out of order":           {roster, 200, answerType, `{"v":1,"id":"ID","answer":{"members":2}}` + "\n" + `{"device":"b","role":"seen"}` + "\n" + `{"device":"a","role":"seen"}` + "\n"},
		"a roster of no devices":          {roster, 200, answerType, `{"v":1,"id":"ID","answer":{"members":1}}` + "\n" + `{"device":"","role":"seen"}` + "\n"},
		"a checkpoint of another hash":    {get, 200, answerType, `{"v":1,"id":"ID","answer":{"checkpoint":{"hash":"` + strings.Repeat("0", 64) + `","author":"a","frontier":{"a":{"seq":0,"op_id":"` + string(ops[0].ID) + `"}},"size":1}}}` + "\nx"},
		"a checkpoint without an end":     {get, 200, answerType, `{"v":1,"id":"ID","answer":{"checkpoint":{"hash":"","author":"a","size":16777217}}}` + "\nx"},
		"a collection of less than none":  {collect, 200, answerType, `{"v":1,"id":"ID","answer":{"dropped":{"a":-1}}}` + "\n"},
		"a fork off what was not pushed":  {push, 409, problemType, fork(other.ID, other.ID[:66]+"0")},
		"a fork of one op":                {push, 409, problemType, fork(ops[1].ID, ops[1].ID)},
		"a fork of no op":                 {push, 409, problemType, fork("x", ops[1].ID)},
		"a fork without its facts":        {push, 409, problemType, `{"type":"urn:syncnode:problem:relay-fork","title":"x","status":409,"v":1,"id":"ID","facts":{}}`},
		"a fork beside another answer":    {push, 409, problemType, `{"type":"urn:syncnode:problem:relay-gap","title":"x","status":409,"v":1,"id":"ID","is":["fork"],"facts":{"gap":{"device":"a","expected":1,"found":2}}}`},
		"another chain is closed":         {push, 409, problemType, `{"type":"urn:syncnode:problem:relay-closed","title":"x","status":409,"v":1,"id":"ID","facts":{"closed":{"device":"b","last":{"seq":1,"op_id":"` + string(ops[1].ID) + `"}}}}`},
		"another call's fork":             {push, 409, problemType, strings.Replace(fork(other.ID, ops[1].ID), "ID", strings.Repeat("0", 32), 1)},
		"a fork from nobody":              {push, 409, problemType, strings.Replace(fork(other.ID, ops[1].ID), `"id":"ID",`, "", 1)},
		"a fork in another format":        {push, 409, problemType, strings.Replace(fork(other.ID, ops[1].ID), `"v":1`, `"v":2`, 1)},
		"an unknown problem":              {push, 409, problemType, `{"type":"urn:syncnode:problem:relay-odd","title":"x","status":409,"v":1,"id":"ID","facts":{}}`},
		"another product's problem":       {push, 409, problemType, `{"type":"about:blank","title":"x","status":409}`},
		"a problem that is none":          {push, 409, problemType, `[]`},
		"a problem without an end":        {push, 409, problemType, `{"type":"` + strings.Repeat("x", 2<<20)},
		"a problem with an unknown fact":  {push, 409, problemType, `{"type":"urn:syncnode:problem:relay-gap","title":"x","status":409,"v":1,"id":"ID","facts":{"or":1}}`},
		"another product says not found":  {push, 404, "text/plain", "404 page not found"},
		"it says that nothing was done":   {push, 500, problemType, `{"type":"about:blank","title":"x","status":500,"executed":"no"}`},
		"a redirect":                      {push, 307, answerType, ""},
		"a problem that says more pushed": {push, 507, problemType, `{"type":"urn:syncnode:problem:relay-full","title":"x","status":507,"v":1,"id":"ID","facts":{"pushed":{"accepted":3,"duplicate":0},"full":{}}}`},
	} {
		r := dial(t, remote.Config{URL: "http://127.0.0.1:1", Client: told(c.status, c.kind, c.body)})
		err := c.do(r)
		if !errors.Is(err, relay.ErrIndeterminate) {
			t.Errorf("%s: %v, expected ErrIndeterminate", name, err)
		}
		for _, no := range []error{relay.ErrNotSent, relay.ErrFork, relay.ErrClosed, relay.ErrGap, relay.ErrFull} {
			if errors.Is(err, no) {
				t.Errorf("%s: %v matches %v", name, err, no)
			}
		}
		if err != nil && len(err.Error()) > 4000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
	r := dial(t, remote.Config{URL: "http://127.0.0.1:1", Client: told(409, problemType, fork(other.ID, ops[1].ID))})
	if err := push(r); !errors.Is(err, relay.ErrFork) { // that very text is a fork when all of it fits
		t.Errorf("a fork: %v", err)
	}
}

// An answer that is cut anywhere, and then looks as if it were whole, is none.
func TestHalfAnAnswerIsNone(t *testing.T) {
	cut := -1
	whole := 0
	halve := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			body := rec.Body.Bytes()
			whole = len(body)
			if cut >= 0 {
				body = body[:min(cut, len(body))]
			}
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			w.WriteHeader(rec.Code)
			_, _ = w.Write(body)
		})
	}
	r := dial(t, remote.Config{URL: serve(t, memory.New(memory.Config{}), halve)})
	for _, d := range deeds(t) {
		cut = -1
		if err := d.do(t.Context(), r); err != nil {
			t.Fatalf("%s: %v", d.verb, err)
		}
		for at, end := 0, whole; at < end; at += 1 + end/70 {
			cut = at
			if err := d.do(t.Context(), r); !errors.Is(err, relay.ErrIndeterminate) {
				t.Errorf("%s cut at byte %d of %d: %v, expected ErrIndeterminate", d.verb, at, end, err)
			}
		}
	}
}

// What a client sends that is no question is refused, and nothing of it is done.
func TestAQuestionThatCannotBeReadDoesNothing(t *testing.T) {
	store := memory.New(memory.Config{})
	url := serve(t, store)
	a := relaytest.NewAuthor("a")
	line := string(a.Write(t, 1, 60)[0].AppendLine(nil)) + "\n"
	id := strings.Repeat("0", 32)
	for name, c := range map[string]struct {
		method, verb, kind, body string
		status                   int
	}{
		"get":               {"GET", "push", answerType, "", 405},
		"no such call":      {"POST", "pushh", answerType, "", 404},
		"a form":            {"POST", "push", "application/x-www-form-urlencoded", `{"v":1}` + "\n", 415},
		"nothing":           {"POST", "push", answerType, "", 400},
		"no id":             {"POST", "push", answerType, `{"v":1,"ask":{"device":"a","ops":1}}` + "\n" + line, 400},
		"no format":         {"POST", "push", answerType, `{"id":"` + id + `","ask":{"device":"a","ops":1}}` + "\n" + line, 400},
		"a newer format":    {"POST", "push", answerType, `{"v":2,"id":"` + id + `","ask":{"device":"a","ops":1}}` + "\n" + line, 400},
		"an unknown field":  {"POST", "push", answerType, `{"v":1,"id":"` + id + `","ask":{"device":"a","ops":1,"force":true}}` + "\n" + line, 400},
		"no device":         {"POST", "push", answerType, `{"v":1,"id":"` + id + `","ask":{"ops":1}}` + "\n" + line, 400},
		"fewer ops":         {"POST", "push", answerType, `{"v":1,"id":"` + id + `","ask":{"device":"a","ops":2}}` + "\n" + line, 400},
		"more ops":          {"POST", "push", answerType, `{"v":1,"id":"` + id + `","ask":{"device":"a","ops":0}}` + "\n" + line, 400},
		"too many ops":      {"POST", "push", answerType, `{"v":1,"id":"` + id + `","ask":{"device":"a","ops":1001}}` + "\n", 400},
		"a changed op":      {"POST", "push", answerType, `{"v":1,"id":"` + id + `","ask":{"device":"a","ops":1}}` + "\n" + strings.Replace(line, `"id":"a-0"`, `"id":"b-0"`, 1), 422},
		"an op respelled":   {"POST", "push", answerType, `{"v":1,"id":"` + id + `","ask":{"device":"a","ops":1}}` + "\n" + strings.Replace(line, `:`, `: `, 1), 400},
		"a long line":       {"POST", "push", answerType, strings.Repeat(" ", 8<<20+2), 413},
		"too large a point": {"POST", "put-checkpoint", answerType, `{"v":1,"id":"` + id + `","ask":{"device":"a","checkpoint":{"hash":"","author":"a","size":16777217}}}` + "\n", 400},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url+remote.Prefix+c.verb, bytes.NewReader([]byte(c.body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.kind)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var problem struct {
			Type, Executed string
			Status         int
		}
		err = json.NewDecoder(resp.Body).Decode(&problem)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || problem.Status != c.status || problem.Executed != "no" || !strings.HasPrefix(problem.Type, "urn:syncnode:problem:") {
			t.Errorf("%s: status %d, %+v, %v; expected a problem with status %d that nothing was executed", name, resp.StatusCode, problem, err, c.status)
		}
	}
	if info, err := store.Hello(t.Context(), "z"); err != nil || len(info.Heads) != 0 {
		t.Errorf("the relay has %+v, %v", info, err)
	}
}
