package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/fence/guard"
)

// call is a request of a run, and its answer.
func call(t *testing.T, h http.Handler, epoch, key, body string, edit ...func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pay?cents=1", strings.NewReader(body))
	r.Header.Set(guard.HeaderAgent, "invoices")
	r.Header.Set(guard.HeaderEpoch, epoch)
	r.Header.Set(guard.HeaderKey, key)
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// refused holds that the answer is a problem of this status and kind.
func refused(t *testing.T, res *http.Response, status int, kind, executed string) {
	t.Helper()
	var p struct {
		Type, Title, Executed string
		Status                int
	}
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
		t.Errorf("status %d: %v", res.StatusCode, err)
		return
	}
	if res.StatusCode != status || p.Status != status || p.Type != "urn:syncnode:guard:"+kind || p.Executed != executed || p.Title == "" ||
		res.Header.Get("Content-Type") != "application/problem+json" || res.Header.Get(guard.HeaderExecuted) != executed {
		t.Errorf("got status %d, %+v, header %v; want %d, %s, executed %s", res.StatusCode, p, res.Header, status, kind, executed)
	}
}

func text(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprint(res.StatusCode, " ", string(b))
}

// counting answers with the number of its executions.
type counting struct{ n int }

func (c *counting) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.n++
	w.Header().Set("X-Receipt", fmt.Sprint(c.n))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "paid %d", c.n)
}

func TestAnOlderEpochIsNotLetThrough(t *testing.T) {
	did := new(counting)
	h := guard.New(guard.Config{}).Handler(did)
	call(t, h, "2", "r1", "x")
	refused(t, call(t, h, "1", "r2", "x"), http.StatusPreconditionFailed, "stale-epoch", "no")
	if did.n != 1 {
		t.Errorf("executed %d times", did.n)
	}
	if got := text(t, call(t, h, "2", "r2", "x")); got != "201 paid 2" { // what was refused left its key free
		t.Error(got)
	}
}

func TestACallThatIsNotUnderstoodIsNotExecuted(t *testing.T) {
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	did := new(counting)
	h := guard.New(guard.Config{MaxBody: 10}).Handler(did)
	for _, edit := range []func(*http.Request){
		func(r *http.Request) { r.Header.Del(guard.HeaderAgent) },
		func(r *http.Request) { r.Header.Del(guard.HeaderEpoch) },
		func(r *http.Request) { r.Header.Del(guard.HeaderKey) },
		func(r *http.Request) { r.Header.Add(guard.HeaderEpoch, "9") },
		set(guard.HeaderAgent, "a b"), set(guard.HeaderEpoch, "0"), set(guard.HeaderEpoch, "-1"), set(guard.HeaderEpoch, "+1"),
		set(guard.HeaderEpoch, "01"), set(guard.HeaderEpoch, "1e3"), set(guard.HeaderEpoch, "9007199254740992"),
		set(guard.HeaderKey, `"`), set(guard.HeaderKey, `""`), set(guard.HeaderKey, "a b"), set(guard.HeaderKey, "ä"),
		set(guard.HeaderKey, strings.Repeat("x", 256)),
		func(r *http.Request) { r.Body = io.NopCloser(io.MultiReader(strings.NewReader("x"), broken{})) },
	} {
		refused(t, call(t, h, "1", "r1", "x", edit), http.StatusBadRequest, "bad-call", "no")
	}
	refused(t, call(t, h, "1", "r1", "longer than ten"), http.StatusRequestEntityTooLarge, "too-long", "no")
	if did.n != 0 {
		t.Errorf("executed %d times", did.n)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestAKeyThatWasExecutedGetsTheSameAnswerAndNoSecondEffect(t *testing.T) {
	did := new(counting)
	h := guard.New(guard.Config{}).Handler(did)
	call(t, h, "2", "r1", "x")
	call(t, h, "5", "r9", "x")
	for _, epoch := range []string{"1", "2", "6"} { // the one who asks late learns what became of it
		res := call(t, h, epoch, `"r1"`, "x")
		if res.Header.Get(guard.HeaderReplayed) != "true" || res.Header.Get("X-Receipt") != "1" || text(t, res) != "201 paid 1" {
			t.Errorf("at epoch %s: %v %v", epoch, res.StatusCode, res.Header)
		}
	}
	if did.n != 2 {
		t.Errorf("executed %d times", did.n)
	}
}

func TestAKeyIsForOneRequestOfOneAgent(t *testing.T) {
	did := new(counting)
	h := guard.New(guard.Config{}).Handler(did)
	call(t, h, "1", "r1", "x")
	for _, edit := range []func(*http.Request){
		func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("y")) },
		func(r *http.Request) { r.Method = http.MethodPut },
		func(r *http.Request) { r.URL.RawQuery = "cents=2" },
	} {
		refused(t, call(t, h, "1", "r1", "x", edit), http.StatusUnprocessableEntity, "key-reused", "no")
	}
	other := call(t, h, "1", "r1", "x", func(r *http.Request) { r.Header.Set(guard.HeaderAgent, "other") })
	if got := text(t, other); got != "201 paid 2" {
		t.Error(got)
	}
}

func TestACallBesideOneWithItsKeyIsNotExecuted(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	h := guard.New(guard.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- true
		<-end
		_, _ = io.WriteString(w, "paid")
	}))
	first := make(chan *http.Response)
	go func() { first <- call(t, h, "1", "r1", "x") }()
	<-begun
	refused(t, call(t, h, "1", "r1", "x"), http.StatusConflict, "in-progress", "maybe")
	refused(t, call(t, h, "2", "r1", "x"), http.StatusConflict, "in-progress", "maybe") // a later attempt of the run
	close(end)
	if got := text(t, <-first); got != "200 paid" {
		t.Error(got)
	}
	if got := text(t, call(t, h, "2", "r1", "x")); got != "200 paid" {
		t.Error(got)
	}
}

func TestAnAnswerIsKeptUnlessTheHandlerKnowsBetter(t *testing.T) {
	n := 0
	h := guard.New(guard.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch n++; n {
		case 1:
			w.Header().Set(guard.HeaderExecuted, "no")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			guard.Refuse(w, &guard.StaleError{Agent: "invoices", Epoch: 1}) // its own transaction said so
		case 3:
			w.Header().Set(guard.HeaderExecuted, "maybe") // the next call settles it
		case 4:
			w.WriteHeader(http.StatusInternalServerError) // proves nothing
		}
	}))
	if res := call(t, h, "1", "r1", "x"); res.StatusCode != http.StatusServiceUnavailable {
		t.Error(res.StatusCode)
	}
	refused(t, call(t, h, "1", "r1", "x"), http.StatusPreconditionFailed, "stale-epoch", "no")
	call(t, h, "1", "r1", "x")
	for range 2 {
		if res := call(t, h, "1", "r1", "x"); res.StatusCode != http.StatusInternalServerError {
			t.Error(res.StatusCode)
		}
	}
	if n != 4 {
		t.Errorf("executed %d times", n)
	}
}

func TestAnInformationalAnswerIsNotTheAnswer(t *testing.T) {
	h := guard.New(guard.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
	}))
	call(t, h, "1", "r1", "x")
	if res := call(t, h, "1", "r1", "x"); res.StatusCode != http.StatusCreated {
		t.Error(res.StatusCode)
	}
}

func TestAHandlerThatPanicsLeavesADoubtAndNoSecondEffect(t *testing.T) {
	n := 0
	h := guard.New(guard.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	}))
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("the panic did not go on")
			}
		}()
		call(t, h, "1", "r1", "x")
	}()
	refused(t, call(t, h, "1", "r1", "x"), http.StatusInternalServerError, "in-doubt", "maybe")
	if n != 1 {
		t.Errorf("executed %d times", n)
	}
}

func TestAnAnswerTooLongToBeKeptIsStillKnownAsExecuted(t *testing.T) {
	n := 0
	h := guard.New(guard.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		for range 3 {
			_, _ = io.WriteString(w, strings.Repeat("x", guard.MaxAnswer/2))
		}
	}))
	if got := text(t, call(t, h, "1", "r1", "x")); len(got) != len("200 ")+guard.MaxAnswer/2*3 {
		t.Errorf("%d bytes", len(got))
	}
	refused(t, call(t, h, "1", "r1", "x"), http.StatusConflict, "answer-forgotten", "yes")
	if n != 1 {
		t.Errorf("executed %d times", n)
	}
}

func TestWhatIsKeptIsBoundedAndTheOldestGoesFirst(t *testing.T) {
	did := new(counting)
	h := guard.New(guard.Config{Keep: 3000}).Handler(did) // five of about 530 bytes
	for i := range 100 {
		call(t, h, "1", fmt.Sprint("r", i), "x")
	}
	for i := 99; i > 95; i-- {
		if res := call(t, h, "1", fmt.Sprint("r", i), "x"); res.Header.Get(guard.HeaderReplayed) == "" {
			t.Errorf("key %d was forgotten", i)
		}
	}
	if res := call(t, h, "1", "r90", "x"); res.Header.Get(guard.HeaderReplayed) != "" {
		t.Error("key 90 is still there after 9 others")
	}
}

type storeFunc func(agent string, epoch int64) error

func (f storeFunc) Admit(_ context.Context, agent string, epoch int64) error { return f(agent, epoch) }

func TestAStoreThatCannotSayAdmitsNothing(t *testing.T) {
	down, did := errors.New("secret of the database"), new(counting)
	h := guard.New(guard.Config{Store: storeFunc(func(string, int64) error { return down })}).Handler(did)
	res := call(t, h, "1", "r1", "x")
	if got := text(t, res); strings.Contains(got, "secret") {
		t.Error(got)
	}
	refused(t, call(t, h, "1", "r1", "x"), http.StatusServiceUnavailable, "store-unavailable", "no")
	down = nil
	if got := text(t, call(t, h, "1", "r1", "x")); got != "201 paid 1" {
		t.Error(got)
	}
}

func TestTheHandlerGetsTheRequestAndTheCall(t *testing.T) {
	h := guard.New(guard.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := guard.CallOf(r.Context())
		body, err := io.ReadAll(r.Body)
		if want := (guard.Call{Agent: "invoices", Epoch: 7, Key: "r1"}); c != want || !ok || string(body) != "x" || err != nil {
			t.Errorf("%+v %v, body %q %v", c, ok, body, err)
		}
	}))
	if got := text(t, call(t, h, "7", "r1", "x")); got != "200 " {
		t.Error(got)
	}
	if _, ok := guard.CallOf(t.Context()); ok {
		t.Error("a call out of nothing")
	}
}
