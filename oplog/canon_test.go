package oplog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/oplog"
)

func TestCanonicalSpellings(t *testing.T) {
	for in, want := range map[string]string{
		` { "b" : 1 , "a" : [ true , null ] } `: `{"a":[true,null],"b":1}`,
		`"\u00e4\/\u0041\u000a\u001F\b"`:        "\"ä/A\\n\\u001f\\b\"",
		"\"\u2028<>&\x7f\"":                     "\"\u2028<>&\x7f\"",
		`"\ud83d\ude00"`:                        `"😀"`,
		`"\u0020"`:                              `" "`,
		`"\u001F"`:                              `"\u001f"`,
		`"\u000A"`:                              `"\n"`,
		`"\/"`:                                  `"/"`,
		`1.0`:                                   `1`,
		`-0`:                                    `0`,
		`1e3`:                                   `1000`,
		`0.1`:                                   `0.1`,
		`1E-7`:                                  `1e-7`,
		`9007199254740991`:                      `9007199254740991`,
		`-9007199254740991`:                     `-9007199254740991`,
		// U+10000 sorts before U+E000: by UTF-16 units, not by bytes.
		"{\"\ue000\":1,\"\U00010000\":2}": "{\"\U00010000\":2,\"\ue000\":1}",
		`{"a\n":1,"a":2}`:                 `{"a":2,"a\n":1}`,
		"{\"é\":1,\"e\u0301\":2}":         "{\"e\u0301\":2,\"é\":1}", // never normalised
		`{}`:                              `{}`,
		`[]`:                              `[]`,
	} {
		got, err := oplog.Canonical([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("Canonical(%s) = %s, %v, want %s", in, got, err, want)
		}
		if err := oplog.CheckCanonical([]byte(want)); err != nil {
			t.Errorf("CheckCanonical(%s) = %v", want, err)
		}
		if in != want && oplog.CheckCanonical([]byte(in)) == nil {
			t.Errorf("CheckCanonical(%s) = nil", in)
		}
	}
}

func TestCanonicalRefusals(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	cases := []struct {
		in   string
		kind error
	}{
		{`{"a":1,"a":2}`, oplog.ErrDuplicateKey},
		{`{"a":1,"\u0061":2}`, oplog.ErrDuplicateKey},
		{`{"x":[{"a":1,"b":2,"a":3}]}`, oplog.ErrDuplicateKey},
		{"\"\xff\"", oplog.ErrUTF8},
		{"{\"\xc0\x80\":1}", oplog.ErrUTF8},
		{"\"\xed\xa0\x80\"", oplog.ErrUTF8}, // a surrogate in UTF-8
		{`"\ud800"`, oplog.ErrSurrogate},
		{`"\ud800x"`, oplog.ErrSurrogate},
		{`"\udc00"`, oplog.ErrSurrogate},
		{`"\ud800\u0041"`, oplog.ErrSurrogate},
		{`"\ud800\ud800"`, oplog.ErrSurrogate},
		{`9007199254740992`, oplog.ErrNumber},
		{`-9007199254740992`, oplog.ErrNumber},
		{`18446744073709551615`, oplog.ErrNumber},
		{`1e20`, oplog.ErrNumber},
		{`1e999`, oplog.ErrNumber},
		{`{"epoch":1e16}`, oplog.ErrNumber},
		{deep(33), oplog.ErrDepth},
		{strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat("}", 33), oplog.ErrDepth},
		{strings.Repeat("[", 100_000), oplog.ErrDepth},
		{``, oplog.ErrSyntax},
		{` `, oplog.ErrSyntax},
		{"\ufeff1", oplog.ErrSyntax},
		{`01`, oplog.ErrSyntax},
		{`1.`, oplog.ErrSyntax},
		{`.5`, oplog.ErrSyntax},
		{`+1`, oplog.ErrSyntax},
		{`-`, oplog.ErrSyntax},
		{`1e`, oplog.ErrSyntax},
		{`NaN`, oplog.ErrSyntax},
		{`tru`, oplog.ErrSyntax},
		{`truex`, oplog.ErrSyntax},
		{`{"a":1,}`, oplog.ErrSyntax},
		{`[1,]`, oplog.ErrSyntax},
		{`{"a" 1}`, oplog.ErrSyntax},
		{`{a:1}`, oplog.ErrSyntax},
		{`"a`, oplog.ErrSyntax},
		{`"\`, oplog.ErrSyntax},
		{`"\x"`, oplog.ErrSyntax},
		{`"\u12"`, oplog.ErrSyntax},
		{"\"a\nb\"", oplog.ErrSyntax},
		{`1 2`, oplog.ErrSyntax},
		{"1\x00", oplog.ErrSyntax},
	}
	for _, c := range cases {
		got, err := oplog.Canonical([]byte(c.in))
		var typed *oplog.CanonError
		if !errors.As(err, &typed) || !errors.Is(err, c.kind) || !errors.Is(err, oplog.ErrCanon) || got != nil {
			t.Errorf("Canonical(%.60q) = %.40q, %v, want %v", c.in, got, err, c.kind)
		}
		if oplog.CheckCanonical([]byte(c.in)) == nil {
			t.Errorf("CheckCanonical(%.60q) = nil", c.in)
		}
	}
	if _, err := oplog.Canonical([]byte(deep(32))); err != nil {
		t.Errorf("32 levels: %v", err)
	}
	for _, flat := range []string{strings.Repeat("[],", 40) + "1", strings.Repeat("{},", 40) + "1"} {
		if _, err := oplog.Canonical([]byte("[ " + flat + "]")); err != nil {
			t.Errorf("40 containers beside each other: %v", err)
		}
		if err := oplog.CheckCanonical([]byte("[" + flat + "]")); err != nil {
			t.Errorf("40 containers beside each other: %v", err)
		}
	}
}

func TestCanonicalTakesGoValues(t *testing.T) {
	got, err := oplog.Canonical(map[string]any{"b": "<\ufffd>", "a": json.Number("7")})
	if err != nil || string(got) != "{\"a\":7,\"b\":\"<\ufffd>\"}" {
		t.Errorf("got %s, %v", got, err)
	}
	for name, v := range map[string]any{
		"bad UTF-8 in a value": "a\xffb",
		"bad UTF-8 in a key":   map[string]int{"\xff": 1},
		"after a backslash":    `\` + "\xff",
		"a channel":            make(chan int),
		"not a number":         math.NaN(),
		"a big integer":        uint64(math.MaxUint64),
	} {
		if got, err := oplog.Canonical(v); !errors.Is(err, oplog.ErrCanon) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if got, err := oplog.Canonical(`\ufffd`); err != nil || string(got) != `"\\ufffd"` {
		t.Errorf("a text that looks like the escape: %s, %v", got, err)
	}
}

func TestSizeIsJudgedBeforeReading(t *testing.T) {
	big := bytes.Repeat([]byte("["), oplog.MaxPayload+1)
	var size *oplog.SizeError
	if _, err := oplog.Canonical(big); !errors.As(err, &size) || !errors.Is(err, oplog.ErrCanon) {
		t.Errorf("got %v", err)
	}
	// 1e-6 is 4 bytes and becomes 8: within the limit before, beyond it after.
	grows := []byte("[" + strings.Repeat("1e-6,", oplog.MaxPayload/5-1) + "1]")
	if _, err := oplog.Canonical(grows); !errors.As(err, &size) {
		t.Errorf("got %v", err)
	}
}

func TestCheckingAPayloadAllocatesNothing(t *testing.T) {
	p := []byte(`{"agent_id":"mail","attempt":"0123456789abcdef","epoch":42,"id":"r1-abc","status":"pending"}`)
	if n := testing.AllocsPerRun(100, func() {
		if err := oplog.CheckCanonical(p); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
