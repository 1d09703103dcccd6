package wire_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/wire"
)

var (
	errHeld    = errors.New("held")
	errFull    = errors.New("full")
	errUnsent  = errors.New("not sent")
	errUnknown = errors.New("unknown")
	errInvalid = errors.New("invalid")
)

var table = wire.Refusals{
	{Name: "held", Err: errHeld, Status: 409, Title: "Held"},
	{Name: "full", Err: errFull, Status: 507, Title: "Full"},
	{Name: "not-sent", Err: errUnsent, Status: 503, Title: "Nothing happened"},
	{Name: "unknown", Err: errUnknown, Status: 503, Title: "Outcome unknown"},
}

func TestARefusalIsNamedByTheMostTellingAnswerAndBearsTheOthers(t *testing.T) {
	for _, c := range []struct {
		err  error
		want wire.Problem
		is   []error
	}{
		{errHeld, wire.Problem{Type: "urn:syncnode:problem:x-held", Title: "Held", Status: 409, Executed: wire.No}, []error{errHeld}},
		{errors.Join(errUnsent, errFull), wire.Problem{Type: "urn:syncnode:problem:x-full", Title: "Full", Status: 507, Executed: wire.No, Is: []string{"not-sent"}}, []error{errFull, errUnsent}},
		{errors.Join(errUnknown, errFull), wire.Problem{Type: "urn:syncnode:problem:x-full", Title: "Full", Status: 507, Executed: wire.Maybe, Is: []string{"unknown"}}, []error{errFull, errUnknown}},
		{errUnknown, wire.Problem{Type: "urn:syncnode:problem:x-unknown", Title: "Outcome unknown", Status: 503, Executed: wire.Maybe}, []error{errUnknown}},
		{errors.New("the disk is on fire"), wire.Problem{Type: "urn:syncnode:problem:x-unknown", Title: "Outcome unknown", Status: 503, Executed: wire.Maybe}, []error{errUnknown}},
	} {
		c.want.Detail = "why"
		p := table.Problem("x-", fmt.Errorf("call: %w", c.err), "why")
		if !reflect.DeepEqual(*p, c.want) {
			t.Errorf("%v: %+v, want %+v", c.err, *p, c.want)
		}
		is, err := table.Errors(append([]string{strings.TrimPrefix(p.Name(), "x-")}, p.Is...)...)
		if err != nil || !slices.Equal(is, c.is) {
			t.Errorf("%v comes back as %v, %v", c.err, is, err)
		}
	}
}

func TestANameThatIsNotInTheTableIsNoAnswer(t *testing.T) {
	for _, names := range [][]string{{""}, {"other"}, {"held", "other"}} {
		if is, err := table.Errors(names...); err == nil || is != nil {
			t.Errorf("%q: %v, %v", names, is, err)
		}
	}
}

func TestWhatEveryServerRefusesIsReadInTheWordsOfTheContractThatCalled(t *testing.T) {
	var answer string
	ask := func(c *wire.Client) *wire.Problem {
		t.Helper()
		p, ok := errors.AsType[*wire.Problem](c.Do(t.Context(), wire.Question{Verb: "echo", Ask: 1, Answer: &answer}))
		if !ok {
			t.Fatal("no problem")
		}
		return p
	}
	refuse := map[string]func(*wire.Call) (wire.Answer, error){"echo": func(c *wire.Call) (wire.Answer, error) {
		if c.Header.Get("Authorization") == "" {
			return wire.Answer{}, wire.Denied(errors.New("who are you"))
		}
		return wire.Answer{}, table.Problem("x-", errHeld, "by another")
	}}
	token := func() (string, error) { return "secret", nil }
	for _, c := range []struct {
		name  string
		serve http.Handler
		token func() (string, error)
		is    []error
		text  string
	}{
		{"no token", &wire.Handler{Format: 3, MaxAsk: 1000, Verbs: refuse}, nil, []error{wire.ErrDenied, errUnsent}, "who are you"},
		{"not what is asked for", echo(nil), token, []error{errInvalid}, "the question cannot be read, nothing was done"},
		{"another format", &wire.Handler{Format: 4, MaxAsk: 1000, Verbs: refuse}, token, []error{errUnsent},
			"the server speaks the formats [4] and this release speaks 3, nothing happened and nothing was run: upgrade the older of the two"},
		{"an answer of the contract", &wire.Handler{Format: 3, MaxAsk: 1000, Verbs: refuse}, token, nil, "by another"},
	} {
		srv := httptest.NewServer(c.serve)
		cl := client(t, wire.ClientConfig{Place: srv.URL, Token: c.token})
		text, err := cl.Refused("echo", ask(cl), errUnsent, errInvalid)
		for _, sentinel := range []error{wire.ErrDenied, errUnsent, errInvalid} {
			if want := slices.Contains(c.is, sentinel); errors.Is(err, sentinel) != want {
				t.Errorf("%s: %v; matching %v should be %v", c.name, err, sentinel, want)
			}
		}
		if err == nil {
			err = errors.New(text)
		}
		if said := err.Error(); !strings.HasPrefix(said, "echo at "+srv.URL+": ") || !strings.Contains(said, c.text) {
			t.Errorf("%s: %q", c.name, said)
		}
		if e, ok := errors.AsType[*wire.FormatError](err); ok != (c.name == "another format") || ok && (e.Spoken != 3 || !slices.Equal(e.Offered, []int{4})) {
			t.Errorf("%s: %+v", c.name, e)
		}
		srv.Close()
	}
}
