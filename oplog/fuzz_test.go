package oplog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/syncnode/syncnode/oplog"
)

// What is read as a line is written as the same bytes, and what was written is read.
func FuzzParseLine(f *testing.F) {
	for _, op := range chainOf(f, "dev", 3, 1) {
		f.Add(op.AppendLine(nil))
	}
	f.Add([]byte(`{"op_id":"op-","device_id":"d","seq":0,"hlc":{"wall_ms":0,"counter":0,"device_id":"d"},"scope":"personal","surface":"run","payload":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		op, err := oplog.ParseLine(line)
		if err != nil {
			if !errors.Is(err, oplog.ErrCanon) {
				t.Fatalf("error without a kind: %v", err)
			}
			return
		}
		if again := op.AppendLine(nil); !bytes.Equal(again, line) {
			t.Fatalf("read\n%s\nwritten\n%s", line, again)
		}
		if !json.Valid(line) {
			t.Fatalf("not JSON: %s", line)
		}
		var std oplog.Op
		if err := json.Unmarshal(line, &std); err != nil || std.Device != op.Device || std.Seq != op.Seq ||
			std.HLC != op.HLC || !bytes.Equal(std.Payload, op.Payload) {
			t.Fatalf("encoding/json reads another op: %+v, %v", std, err)
		}
		_ = op.Check()
	})
}

// Canonical agrees with jcs on everything but our refusals, and CheckCanonical accepts exactly its fixed points.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.50,"\u00e4"]}`, `{"a":1,"a":2}`, `"\ud800"`, `1e20`, `-0`, `[[[[]]]]`, `{"\ue000":1,"𐀀":2}`, `{"a\n":1,"a ":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := oplog.Canonical(text)
		strict := oplog.CheckCanonical(text)
		want, jerr := jcs.Transform(text)
		if err != nil {
			if !errors.Is(err, oplog.ErrCanon) || strict == nil {
				t.Fatalf("%q: %v, strict %v", text, err, strict)
			}
			if jerr == nil && !ownRefusal(err) {
				t.Fatalf("%q: jcs gives %s, we %v", text, want, err)
			}
			return
		}
		if jerr != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q: jcs gives %s, %v, we %s", text, want, jerr, got)
		}
		if (strict == nil) != bytes.Equal(text, got) {
			t.Fatalf("%q: strict says %v, canonical is %q", text, strict, got)
		}
		if err := oplog.CheckCanonical(got); err != nil {
			t.Fatalf("%q is refused: %v", got, err)
		}
		if !json.Valid(text) || !utf8.Valid(text) {
			t.Fatalf("%q was accepted", text)
		}
	})
}

// ownRefusal reports a limit that RFC 8785 does not have.
func ownRefusal(err error) bool {
	var size *oplog.SizeError
	return errors.Is(err, oplog.ErrNumber) || errors.Is(err, oplog.ErrDepth) || errors.As(err, &size)
}

func FuzzReadIntent(f *testing.F) {
	f.Add([]byte(`{"id":"r","agent_id":"a","epoch":1,"status":"committed","exit_code":1,"settled":2}`))
	f.Add([]byte(`{"id":5,"epoch":-1,"status":"\u0000"}`))
	f.Add([]byte(strings.Repeat(`{"id":`, 40)))
	f.Fuzz(func(t *testing.T, payload []byte) {
		in := oplog.ReadIntent(payload)
		if !in.Terminal() && in.Status != oplog.StatusPending || in.Epoch > oplog.MaxInt {
			t.Fatalf("%q: %+v", payload, in)
		}
		if oplog.StableKey(payload) == "" {
			t.Fatal("no key")
		}
		var std struct {
			Status string `json:"status"`
		}
		if oplog.CheckCanonical(payload) == nil && json.Unmarshal(payload, &std) == nil && payload[0] == '{' {
			if in.Committed() != exactMember(payload, "status", "committed") {
				t.Fatalf("%s: %+v", payload, in)
			}
		}
	})
}

// exactMember reads with encoding/json, which by itself folds the case of names.
func exactMember(payload []byte, name, want string) bool {
	var m map[string]any
	return json.Unmarshal(payload, &m) == nil && m[name] == want
}
