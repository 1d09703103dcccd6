package oplog_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/syncnode/syncnode/oplog"
)

func TestIntentNamesAreFrozen(t *testing.T) {
	code, at := 3, uint64(12)
	in := oplog.Intent{RunID: "r1-a", Agent: "mail", Epoch: 7, Status: oplog.StatusFailed, Attempt: "n1",
		Occurrence: "key:größe", ExitCode: &code, Signal: "KILL", Cause: "timeout", Settled: &at, By: "ann", Reason: "a \"b\" \x01"}
	p, err := in.Payload()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "intent.golden", string(p)+"\n")
	if got := oplog.ReadIntent(p); !reflect.DeepEqual(got, in) {
		t.Errorf("got %+v, want %+v", got, in)
	}
	p, err = oplog.Intent{RunID: "r", Agent: "a", Status: oplog.StatusPending}.Payload()
	if err != nil || string(p) != `{"agent_id":"a","epoch":0,"id":"r","status":"pending"}` {
		t.Errorf("%s, %v", p, err)
	}
}

func TestReadIntentIsTotal(t *testing.T) {
	for payload, want := range map[string]oplog.Intent{
		``:                               {},
		`null`:                           {},
		`[]`:                             {},
		`"committed"`:                    {},
		`{`:                              {},
		`{"status":"committed"`:          {},
		`{"status":"committed","a":01}`:  {},
		`{"status":"Committed"}`:         {},
		`{"status":true}`:                {},
		`{"status":"committed"}`:         {Status: "committed"},
		`{"agent_id":7,"epoch":"9"}`:     {},
		`{"epoch":-1}`:                   {},
		`{"epoch":1.5}`:                  {},
		`{"epoch":9007199254740992}`:     {},
		`{"epoch":9007199254740991}`:     {Epoch: oplog.MaxInt},
		`{"agent_id":null,"id":["x"]}`:   {},
		`{"exit_code":1.5,"settled":-1}`: {},
		`{"agent_id":"a\nb","id":"\\"}`:  {Agent: "a\nb", RunID: `\`},
		` { "id" : "r", "epoch":1.0 } `:  {RunID: "r", Epoch: 1}, // legal, not canonical
		`{"id":"x","id":"y"}`:            {},
		`{"id":{"id":"inner"},"z":1}`:    {},
	} {
		if want.Status == "" {
			want.Status = oplog.StatusPending
		}
		if got := oplog.ReadIntent([]byte(payload)); !reflect.DeepEqual(got, want) {
			t.Errorf("ReadIntent(%s) = %+v, want %+v", payload, got, want)
		}
	}
}

func TestIntentPayloadRefusesWhatNoReaderCouldUse(t *testing.T) {
	ok := oplog.Intent{RunID: "r", Agent: "a", Epoch: 1, Status: oplog.StatusPending}
	for name, change := range map[string]func(*oplog.Intent){
		"run":     func(in *oplog.Intent) { in.RunID = "" },
		"agent":   func(in *oplog.Intent) { in.Agent = "a/b" },
		"status":  func(in *oplog.Intent) { in.Status = "void" },
		"epoch":   func(in *oplog.Intent) { in.Epoch = 1 << 53 },
		"attempt": func(in *oplog.Intent) { in.Attempt = "\xff" },
	} {
		in := ok
		change(&in)
		if p, err := in.Payload(); !errors.Is(err, oplog.ErrCanon) {
			t.Errorf("%s: %s, %v", name, p, err)
		}
	}
}

func TestStableKey(t *testing.T) {
	const nullHash = "sha256:74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"
	for payload, want := range map[string]string{
		`{"id":"milo"}`:                `id:milo`,
		`{"a":{"id":"x"},"id":"a\"b"}`: `id:a"b`,
		`{"id":""}`:                    `id:`,
		`null`:                         nullHash,
	} {
		if got := oplog.StableKey([]byte(payload)); got != want {
			t.Errorf("StableKey(%s) = %s, want %s", payload, got, want)
		}
	}
	for _, p := range []string{`{"id":5}`, `{"id":null}`, `["id","x"]`, `{}`} {
		if got := oplog.StableKey([]byte(p)); len(got) != len(nullHash) || got[:7] != "sha256:" {
			t.Errorf("StableKey(%s) = %s", p, got)
		}
	}
	if oplog.StableKey([]byte(`{"a":1}`)) == oplog.StableKey([]byte(`{"a":2}`)) {
		t.Error("two payloads share a key")
	}
}

func TestTiersAndScopes(t *testing.T) {
	for surface, want := range map[oplog.Surface]oplog.Tier{
		oplog.Knowledge: oplog.TierSet, oplog.Skill: oplog.TierSet, oplog.Trajectory: oplog.TierSet, oplog.Run: oplog.TierSet,
		oplog.Routing: oplog.TierEvents, oplog.Conversation: oplog.TierEvents,
		oplog.DeclAgent: oplog.TierRegister, oplog.Registry("model"): oplog.TierRegister, oplog.Intents: oplog.TierIntents,
	} {
		if got, err := surface.Tier(); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", surface, got, err, want)
		}
	}
	for _, s := range []oplog.Surface{"", "Intent", "registry", "registry:", "registry:a b", "knowledge "} {
		if _, err := s.Tier(); !errors.Is(err, oplog.ErrSurface) {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []oplog.Scope{oplog.Personal, oplog.Shared("acme")} {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []oplog.Scope{"", "shared", "shared:", "shared:a/b", "org:x"} {
		if !errors.Is(s.Check(), oplog.ErrScope) {
			t.Errorf("%q was accepted", s)
		}
	}
}
