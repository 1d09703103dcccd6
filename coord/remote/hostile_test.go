package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/coord/remote"
	"github.com/syncnode/syncnode/internal/wire"
)

const (
	answerType  = "application/vnd.syncnode+jsonl"
	problemType = "application/problem+json"
)

// told changes the answers to calls other than open.
func told(h http.Handler, change func(verb, id string, rec *httptest.ResponseRecorder) (status int, kind, body string)) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		verb := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if verb == "open" {
			return rec.Result(), nil
		}
		var q struct{ ID string }
		line, _, _ := bytes.Cut(body, []byte("\n"))
		_ = json.Unmarshal(line, &q)
		status, kind, text := change(verb, q.ID, rec)
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(text))}, nil
	})}
}

func TestAnAnswerThatCannotBeIsNoPermission(t *testing.T) {
	ctx := t.Context()
	b := question(coord.Lease{Agent: agent, Device: "d", Epoch: 3, Handle: "h"}, 1)
	good := `{"agent":"a","device":"d","epoch":3,"ttl_ns":300000000000,"handle":"h","liveness":"l","before_ns":0}`
	attempt := fmt.Sprintf(`{"id":%q,"request":%q,"device":"d","epoch":3,"state":"open","begun":"2026-01-02T03:04:05Z"}`, b.Attempt, b.Request)
	acquire := func(c *remote.Coordinator) error { _, err := c.Acquire(ctx, request("d")); return err }
	renew := func(c *remote.Coordinator) error { _, err := c.Renew(ctx, agent, "d", 3, coord.MaxTTL); return err }
	begin := func(c *remote.Coordinator) error { _, err := c.Begin(ctx, b); return err }
	start := func(c *remote.Coordinator) error { _, _, err := c.Start(ctx, request("d"), b); return err }
	finish := func(c *remote.Coordinator) error { return c.Finish(ctx, outcome(b, coord.Committed)) }
	look := func(c *remote.Coordinator) error {
		_, err := c.Look(ctx, coord.Question{Agent: agent, Run: run(1), Witnesses: []coord.RunRef{{Agent: agent, Run: run(2)}}})
		return err
	}
	complete := func(c *remote.Coordinator) error {
		finished, released := c.Complete(ctx, outcome(b, coord.Committed), b.Lease)
		if (finished == nil) != (released == nil) {
			t.Errorf("half an answer: %v, %v", finished, released)
		}
		return finished
	}
	with := func(old, new string) string { return `{"lease":` + strings.Replace(good, old, new, 1) + `}` }
	view := func(agent, run, state, attempts string) string {
		return fmt.Sprintf(`{"view":{"entry":{"agent":%q,"run":%q,"attempts":%s},"found":true,"state":%q,"alive":null,"holder":{"agent":"","epoch":0,"ttl_ns":0},"held":false,"paused":null,"recovery":null,"witness":{%q:true}}}`, agent, run, attempts, state, run2())
	}
	if err := acquire(lying(t, `{"v":1,"id":"ID","answer":`+with("", "")+"}\n")); err != nil { // that very text is an answer when all of it fits
		t.Errorf("a grant: %v", err)
	}
	if err := begin(lying(t, `{"v":1,"id":"ID","answer":{"attempt":`+attempt+"}}\n")); err != nil {
		t.Errorf("a begin: %v", err)
	}
	if err := look(lying(t, `{"v":1,"id":"ID","answer":`+view(agent, run(1), "free", "null")+"}\n")); err != nil {
		t.Errorf("a look: %v", err)
	}
	for name, c := range map[string]struct {
		do   func(*remote.Coordinator) error
		want error
		text string
	}{
		"the grant of another agent":        {acquire, coord.ErrIndeterminate, with(`"a"`, `"b"`)},
		"the grant of another device":       {acquire, coord.ErrIndeterminate, with(`"d"`, `"e"`)},
		"a grant without an epoch":          {acquire, coord.ErrIndeterminate, with(`:3`, `:0`)},
		"a grant beyond all epochs":         {acquire, coord.ErrIndeterminate, with(`:3,`, `:9007199254740992,`)},
		"a grant without a handle":          {acquire, coord.ErrIndeterminate, with(`"h"`, `""`)},
		"a grant that lives for a year":     {acquire, coord.ErrIndeterminate, with(`300000000000`, `31536000000000000`)},
		"a grant without trust":             {acquire, coord.ErrIndeterminate, with(`,"before_ns":0`, ``)},
		"a grant trusted from the future":   {acquire, coord.ErrIndeterminate, with(`"before_ns":0`, `"before_ns":-1`)},
		"a grant with more":                 {acquire, coord.ErrIndeterminate, with(`{`, `{"and":1,`)},
		"a renewal to another epoch":        {renew, coord.ErrIndeterminate, with(`:3,`, `:4,`)},
		"no grant":                          {start, coord.ErrIndeterminate, `{}`},
		"a start without its attempt":       {start, coord.ErrIndeterminate, `{"lease":` + good + `}`},
		"a start at another epoch":          {start, coord.ErrIndeterminate, `{"lease":` + strings.Replace(good, ":3,", ":4,", 1) + `,"attempt":` + attempt + `}`},
		"an attempt of another":             {begin, coord.ErrIndeterminate, `{"attempt":` + strings.Replace(attempt, b.Attempt, coord.NewNonce(), 1) + `}`},
		"an attempt of another request":     {begin, coord.ErrIndeterminate, `{"attempt":` + strings.Replace(attempt, b.Request, coord.NewNonce(), 1) + `}`},
		"an attempt of another device":      {begin, coord.ErrIndeterminate, `{"attempt":` + strings.Replace(attempt, `"d"`, `"e"`, 1) + `}`},
		"an attempt that is not open":       {begin, coord.ErrIndeterminate, `{"attempt":` + strings.Replace(attempt, `"open"`, `"committed"`, 1) + `}`},
		"an attempt that was given up":      {begin, coord.ErrIndeterminate, `{"attempt":` + strings.Replace(attempt, `{`, `{"abandoned":true,`, 1) + `}`},
		"an attempt at another epoch":       {begin, coord.ErrIndeterminate, `{"attempt":` + strings.Replace(attempt, `:3`, `:4`, 1) + `}`},
		"yes in another word":               {begin, coord.ErrIndeterminate, `{"ok":true}`},
		"yes to a finish in another word":   {finish, coord.ErrIndeterminate, `{"ok":true}`},
		"half a verdict":                    {complete, coord.ErrIndeterminate, `{"finished":null,"released":{"name":"odd","detail":"x","facts":{}}}`},
		"a view of another run":             {look, coord.ErrNotSent, view(agent, run(2), "free", "null")},
		"a view of another agent":           {look, coord.ErrNotSent, view("b", run(1), "free", "null")},
		"a view without the witness":        {look, coord.ErrNotSent, strings.Replace(view(agent, run(1), "free", "null"), run2(), run(1), 1)},
		"a state that the attempts are not": {look, coord.ErrNotSent, view(agent, run(1), "free", "["+attempt+"]")},
		"a state of no run":                 {look, coord.ErrNotSent, view(agent, run(1), "done", "null")},
	} {
		err := c.do(lying(t, `{"v":1,"id":"ID","answer":`+c.text+"}\n"))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, expected %v", name, err, c.want)
		}
	}
	for name, text := range map[string]string{
		"committed, about another run": `{"type":"urn:syncnode:problem:coord-committed","title":"x","status":409,"v":1,"id":"ID","facts":{"verdict":{"run":"` + run(2) + `","attempt":{"id":"","request":"","device":"","epoch":0,"state":"","begun":"2026-01-02T03:04:05Z"}}}}`,
		"committed, and no word which": `{"type":"urn:syncnode:problem:coord-committed","title":"x","status":409,"v":1,"id":"ID","facts":{}}`,
		"committed, to another call":   `{"type":"urn:syncnode:problem:coord-committed","title":"x","status":409,"v":1,"id":"00000000000000000000000000000000","facts":{}}`,
		"held by nobody":               `{"type":"urn:syncnode:problem:coord-held","title":"x","status":409,"v":1,"id":"ID","facts":{}}`,
		"an odd verdict":               `{"type":"urn:syncnode:problem:coord-odd","title":"x","status":409,"v":1,"id":"ID","facts":{}}`,
		"of another product":           `{"type":"about:blank","title":"x","status":409}`,
	} {
		err := begin(lyingAs(t, http.StatusConflict, problemType, text))
		if !errors.Is(err, coord.ErrIndeterminate) || errors.Is(err, coord.ErrCommitted) || errors.Is(err, coord.ErrHeld) {
			t.Errorf("%s: %v, expected ErrIndeterminate", name, err)
		}
	}
}

func run2() string { return run(2) }

func lying(t *testing.T, text string) *remote.Coordinator {
	return lyingAs(t, http.StatusOK, answerType, text)
}

// lyingAs is a process whose every answer is this text, with the id of the call in the place of ID.
func lyingAs(t *testing.T, status int, kind, text string) *remote.Coordinator {
	t.Helper()
	return dial(t, remote.Config{URL: "http://127.0.0.1:1", Client: told(newBackend().handler(), func(_, id string, _ *httptest.ResponseRecorder) (int, string, string) {
		return status, kind, strings.Replace(text, `"id":"ID"`, `"id":"`+id+`"`, 1)
	})})
}

// An answer that is cut anywhere, and then looks as if it were whole, is none.
func TestHalfAnAnswerIsNone(t *testing.T) {
	cut, whole := -1, 0
	c := dial(t, remote.Config{URL: "http://127.0.0.1:1", Client: told(newBackend().handler(), func(_, _ string, rec *httptest.ResponseRecorder) (int, string, string) {
		text := rec.Body.String()
		whole = len(text)
		if cut >= 0 {
			text = text[:min(cut, len(text))]
		}
		return rec.Code, rec.Header().Get("Content-Type"), text
	})})
	for _, d := range deeds(t) {
		want := coord.ErrIndeterminate
		if d.reads {
			want = coord.ErrNotSent
		}
		cut = 20
		if err := d.do(c); !errors.Is(err, want) {
			t.Errorf("%s cut at byte 20: %v, expected %v", d.name, err, want)
		}
		for at := 0; at < whole-1; at += 1 + whole/60 { // a problem without its newline is whole
			cut = at
			if err := d.do(c); !errors.Is(err, want) {
				t.Errorf("%s cut at byte %d of %d: %v, expected %v", d.name, at, whole, err, want)
			}
		}
		cut = -1
		if err := d.do(c); err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
	}
}

// A stub gives err to every call that it answers.
type stub struct {
	coord.Coordinator
	err error
}

func (s *stub) Begin(context.Context, coord.Begin) (coord.Attempt, error) {
	return coord.Attempt{}, s.err
}
func (s *stub) Acquire(context.Context, coord.Request) (coord.Lease, error) {
	return coord.Lease{}, s.err
}
func (s *stub) Complete(context.Context, coord.Outcome, coord.Lease) (finished, released error) {
	return s.err, s.err
}

func TestEveryVerdictCrossesTheWireWithItsTypeAndFacts(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	held := coord.Lease{Agent: agent, Device: "e", Epoch: 4, TTL: 15 * time.Second, Handle: "h", Liveness: "l", Since: since, Note: "n", Process: coord.Process{Host: "x", PID: 3}}
	b := question(coord.Lease{Agent: agent, Device: "d", Epoch: 3, Handle: "h"}, 1)
	a := coord.Attempt{ID: coord.NewNonce(), Request: coord.NewNonce(), Device: "e", Epoch: 4, State: coord.Committed, Begun: since, At: coord.Position{Next: 1, Head: "x"}}
	gate := coord.Gate{By: "ana", Reason: "x", At: since}
	sentinels := []error{
		coord.ErrNotSent, coord.ErrIndeterminate, coord.ErrHeld, coord.ErrLost, coord.ErrUnverifiable, coord.ErrFloor, coord.ErrInvalid, coord.ErrFull, coord.ErrGeneration,
		coord.ErrInput, coord.ErrCommitted, coord.ErrInDoubt, coord.ErrClosed, coord.ErrNotHeld, coord.ErrStale, coord.ErrRecovery, coord.ErrPaused, coord.ErrInProgress,
		coord.ErrFailed, coord.ErrMoved, coord.ErrNotFound,
	}
	errs := []error{
		&coord.HeldError{Holder: held}, &coord.LostError{Agent: agent, Claimed: 3, Current: 4, Holder: "e"}, &coord.FloorError{Agent: agent, Floor: 1 << 40, Stored: 3},
		&coord.InputError{Run: b.Run, Recorded: "x", Given: "y"},
		&coord.HolderError{Kind: coord.ErrNotHeld, Agent: agent, Claimed: 3, Holder: held}, &coord.HolderError{Kind: coord.ErrStale, Agent: agent, Claimed: 3},
		&coord.GateError{Kind: coord.ErrPaused, Agent: agent, Gate: gate}, &coord.GateError{Kind: coord.ErrRecovery, Gate: gate},
		&coord.MovedError{View: coord.View{Entry: coord.Entry{Agent: agent, Run: b.Run, Attempts: []coord.Attempt{a}}, Found: true, State: coord.RunCommitted, Holder: held, Held: true}},
		fmt.Errorf("%w: no answer from etcd", coord.ErrNotSent), fmt.Errorf("%w: no answer from etcd", coord.ErrIndeterminate), fmt.Errorf("%w: x", coord.ErrFull),
		fmt.Errorf("%w: x", coord.ErrUnverifiable), fmt.Errorf("%w: x", coord.ErrGeneration), coord.ErrNotFound,
		fmt.Errorf("%w: %w", coord.ErrFull, coord.ErrIndeterminate), errors.New("the disk is on fire"),
	}
	for _, kind := range []error{coord.ErrCommitted, coord.ErrInDoubt, coord.ErrClosed, coord.ErrInProgress, coord.ErrFailed} {
		errs = append(errs, &coord.VerdictError{Kind: kind, Run: b.Run, Attempt: a, Disputed: true})
	}
	for _, want := range errs {
		h := remote.NewHandler(remote.HandlerConfig{Allow: anyone, Open: func(context.Context, coord.Process, func(string) bool) (coord.Coordinator, error) {
			return &stub{newBackend().store.Process(coord.Process{}), fmt.Errorf("asked: %w", want)}, nil
		}})
		c, _ := behind(t, h, 1)
		_, begun := c.Begin(t.Context(), b)
		_, acquired := c.Acquire(t.Context(), request("d"))
		finished, released := c.Complete(t.Context(), outcome(b, coord.Committed), b.Lease)
		for what, err := range map[string]error{"begin": begun, "acquire": acquired, "finished": finished, "released": released} {
			for _, sentinel := range sentinels {
				is := errors.Is(want, sentinel) || sentinel == coord.ErrIndeterminate && want.Error() == "the disk is on fire"
				if errors.Is(err, sentinel) != is {
					t.Errorf("%s: %v becomes %v; matching %v should be %v", what, want, err, sentinel, is)
				}
			}
			if err == nil || !strings.Contains(err.Error(), want.Error()) {
				t.Errorf("%s: %v becomes %v", what, want, err)
			}
			if !strings.HasPrefix(reflect.TypeOf(want).String(), "*coord.") {
				continue
			}
			typed := reflect.New(reflect.TypeOf(want))
			if !errors.As(err, typed.Interface()) || !reflect.DeepEqual(typed.Elem().Interface(), want) {
				t.Errorf("%s: %+v comes back as %+v", what, want, typed.Elem().Interface())
			}
		}
	}
}

func TestWhoMayIsAskedBeforeAnythingIsDone(t *testing.T) {
	asked := map[string]remote.Call{}
	var no error
	b := newBackend()
	h := remote.NewHandler(remote.HandlerConfig{Open: b.open, Now: b.now.Now, Allow: func(_ *http.Request, c remote.Call) error {
		asked[c.Verb] = c
		return no
	}})
	c, _ := behind(t, h, 1)
	for _, d := range deeds(t) {
		before := len(asked)
		no = errors.New("not this one")
		if err := d.do(c); !errors.Is(err, remote.ErrDenied) || !errors.Is(err, coord.ErrNotSent) || !strings.Contains(err.Error(), "not this one") {
			t.Errorf("%s: %v, expected ErrDenied", d.name, err)
		}
		if len(asked) == before {
			t.Errorf("%s: nobody was asked", d.name)
		}
		no = nil
		if d.name == "close" { // it does not come back
			break
		}
		if err := d.do(c); err != nil {
			t.Errorf("%s, allowed: %v", d.name, err)
		}
	}
	if len(asked) != len(remote.Verbs()) {
		t.Errorf("%d calls were asked about, there are %d", len(asked), len(remote.Verbs()))
	}
	for _, v := range remote.Verbs() {
		got := asked[v.Name]
		none := map[string]bool{"open": true, "close": true, "list": true, "leases": true, "recovery": true, "set-recovery": true, "lift-recovery": true}[v.Name]
		if (got.Agent == "") != none {
			t.Errorf("%s: asked about %+v", v.Name, got)
		}
	}
	nobody := &http.Client{Transport: direct(remote.NewHandler(remote.HandlerConfig{Open: b.open}))}
	if _, err := remote.Open(t.Context(), remote.Config{URL: "http://127.0.0.1:1", Client: nobody}); !errors.Is(err, remote.ErrDenied) {
		t.Errorf("without a rule: %v", err)
	}
}

func TestACoordinatorOfAnotherFormatIsRefusedWithASentence(t *testing.T) {
	h := &wire.Handler{Format: 2, MaxAsk: 1 << 20, Verbs: map[string]func(*wire.Call) (wire.Answer, error){
		"open": func(*wire.Call) (wire.Answer, error) {
			t.Error("it was done")
			return wire.Answer{Body: struct{}{}}, nil
		},
	}}
	_, err := remote.Open(t.Context(), remote.Config{URL: "http://127.0.0.1:1", Client: &http.Client{Transport: direct(h)}})
	e, ok := errors.AsType[*remote.FormatError](err)
	if !ok || e.Spoken != 1 || len(e.Offered) != 1 || e.Offered[0] != 2 || !errors.Is(err, coord.ErrNotSent) || !strings.Contains(err.Error(), "nothing was run: upgrade the older") {
		t.Errorf("got %v", err)
	}
}

func TestMoreProcessesThanMayGetNoSession(t *testing.T) {
	b := newBackend()
	h := remote.NewHandler(remote.HandlerConfig{Open: b.open, Allow: anyone, MaxSessions: 1})
	c, _ := behind(t, h, 1)
	cfg := remote.Config{URL: "http://127.0.0.1:1", Client: &http.Client{Transport: direct(h)}}
	if _, err := remote.Open(t.Context(), cfg); !errors.Is(err, coord.ErrNotSent) {
		t.Errorf("got %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Open(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

var drawn = regexp.MustCompile(`[0-9a-f]{32}`)

func TestTheBytesOfEveryCallAreThoseOfTheFormat(t *testing.T) {
	var text bytes.Buffer
	h := newBackend().handler()
	record := roundTrip(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		fmt.Fprintf(&text, "%s %s %s\n%s\n%d %s\n%s\n\n", r.Method, r.URL.Path, r.Header.Get("Content-Type"), body, rec.Code, rec.Header().Get("Content-Type"), rec.Body)
		return rec.Result(), nil
	})
	c := dial(t, remote.Config{URL: "http://127.0.0.1:1", Client: &http.Client{Transport: record}, Process: coord.Process{Host: "h", PID: 7}})
	all := deeds(t)
	for _, d := range all {
		if err := d.do(c); err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		if d.name == "acquire" {
			if err := all[0].do(c); !errors.Is(err, coord.ErrHeld) {
				t.Fatal(err)
			}
		}
	}
	got := drawn.ReplaceAll(text.Bytes(), []byte(`<32 hex digits>`))
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
