package oplog_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/syncnode/syncnode/internal/ident"
	"github.com/syncnode/syncnode/oplog"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s changed:\ngot\n%s\nwant\n%s", name, got, want)
	}
}

func must(t testing.TB, op oplog.Op, err error) oplog.Op {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func stamp(wall int64, device string) oplog.HLC { return oplog.HLC{WallMS: wall, Device: device} }

// chainOf is a chain of n ops of device with stamps from..from+n-1.
func chainOf(t testing.TB, device string, n int, from int64) []oplog.Op {
	t.Helper()
	var ops []oplog.Op
	var prev oplog.OpID
	for i := range n {
		op, err := oplog.New(device, uint64(i), prev, stamp(from+int64(i), device), oplog.Personal,
			oplog.Knowledge, fmt.Appendf(nil, `{"id":"k%d"}`, i))
		ops = append(ops, must(t, op, err))
		prev = op.ID
	}
	return ops
}

func TestOpIDsAndLinesAreFrozen(t *testing.T) {
	var lines []string
	var prev oplog.OpID
	for i, c := range []struct {
		scope   oplog.Scope
		surface oplog.Surface
		payload string
	}{
		{oplog.Personal, oplog.Knowledge, `{"id":"sky","text":"blue"}`},
		{oplog.Shared("acme"), oplog.Registry("model"), ` { "z" : [1, 2.50, -0, 1e3], "a":"\u00e4\n\u2028</x>" } `},
		{oplog.Personal, oplog.Routing, `null`},
		{oplog.Personal, oplog.Intents, `{"id":"r1-x","agent_id":"mail","epoch":9007199254740991,"status":"pending","attempt":"a1"}`},
	} {
		op, err := oplog.New("laptop", uint64(i), prev, oplog.HLC{WallMS: 1_700_000_000_000, Counter: uint32(i), Device: "laptop"},
			c.scope, c.surface, []byte(c.payload))
		prev = must(t, op, err).ID
		lines = append(lines, string(op.AppendLine(nil)))
	}
	golden(t, "lines.golden", strings.Join(lines, "\n")+"\n")
	for _, line := range lines {
		op, err := oplog.ParseLine([]byte(line))
		if err := must(t, op, err).Check(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestIDCoversEveryField(t *testing.T) {
	base := chainOf(t, "dev", 2, 10)[1]
	changes := map[string]func(*oplog.Op){
		"device":      func(op *oplog.Op) { op.Device = "dew" },
		"seq":         func(op *oplog.Op) { op.Seq++ },
		"prev":        func(op *oplog.Op) { op.Prev = base.ID },
		"wall":        func(op *oplog.Op) { op.HLC.WallMS++ },
		"counter":     func(op *oplog.Op) { op.HLC.Counter++ },
		"hlc device":  func(op *oplog.Op) { op.HLC.Device = "dew" },
		"scope":       func(op *oplog.Op) { op.Scope = oplog.Shared("x") },
		"surface":     func(op *oplog.Op) { op.Surface = oplog.Skill },
		"key":         func(op *oplog.Op) { op.Key = "k" },
		"payload":     func(op *oplog.Op) { op.Payload = []byte(`{"id":"k2"}`) },
		"field shift": func(op *oplog.Op) { op.Device, op.HLC.Device = "de", "vdev" },
	}
	for name, change := range changes {
		op := base
		change(&op)
		if op.ComputeID() == base.ID {
			t.Errorf("%s: the id did not change", name)
		}
		if err := op.Check(); err == nil {
			t.Errorf("%s: Check accepted the changed op", name)
		}
	}
	if base.ComputeID() != base.ID || !base.ID.Valid() {
		t.Error("the unchanged op does not verify")
	}
}

func TestNewRefusesIllegalFields(t *testing.T) {
	ok := chainOf(t, "dev", 1, 1)[0]
	cases := []struct {
		field  string
		change func(*oplog.Op)
	}{
		{"device_id", func(op *oplog.Op) { op.Device = "a\x1fb" }},
		{"scope", func(op *oplog.Op) { op.Scope = "org:x" }},
		{"scope", func(op *oplog.Op) { op.Scope = oplog.Shared("") }},
		{"surface", func(op *oplog.Op) { op.Surface = "note" }},
		{"surface", func(op *oplog.Op) { op.Surface = oplog.Registry("a b") }},
		{"seq", func(op *oplog.Op) { op.Seq, op.Prev = 1<<53, ok.ID }},
		{"prev", func(op *oplog.Op) { op.Prev = ok.ID }},
		{"prev", func(op *oplog.Op) { op.Seq = 1 }},
		{"prev", func(op *oplog.Op) { op.Seq, op.Prev = 1, oplog.OpID(strings.ToUpper(string(ok.ID))) }},
		{"hlc.wall_ms", func(op *oplog.Op) { op.HLC.WallMS = -1 }},
		{"hlc.wall_ms", func(op *oplog.Op) { op.HLC.WallMS = 1 << 53 }},
		{"hlc.device_id", func(op *oplog.Op) { op.HLC.Device = "" }},
	}
	for _, c := range cases {
		op := ok
		c.change(&op)
		got, err := oplog.New(op.Device, op.Seq, op.Prev, op.HLC, op.Scope, op.Surface, op.Payload)
		var field *oplog.FieldError
		if !errors.As(err, &field) || field.Field != c.field || !errors.Is(err, oplog.ErrCanon) || got.ID != "" {
			t.Errorf("%s: New = %v, %v", c.field, got, err)
		}
	}
	if _, err := oplog.New("bad id", 0, "", ok.HLC, ok.Scope, ok.Surface, ok.Payload); !errors.Is(err, ident.ErrInvalid) {
		t.Errorf("a bad id does not match ident.ErrInvalid: %v", err)
	}
	if _, err := oplog.New("dev", 0, "", stamp(1, "other"), ok.Scope, ok.Surface, ok.Payload); !errors.Is(err, oplog.ErrChain) {
		t.Errorf("a foreign stamp: %v", err)
	}
}

func TestLineIsReadOnlyInItsOneSpelling(t *testing.T) {
	line := string(chainOf(t, "dev", 2, 10)[1].AppendLine(nil))
	if _, err := oplog.ParseLine([]byte(line)); err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) string {
		if !strings.Contains(line, old) {
			t.Fatalf("%q is not in the line", old)
		}
		return strings.Replace(line, old, new, 1)
	}
	bad := map[string]string{
		"empty":            "",
		"newline":          line + "\n",
		"leading blank":    " " + line,
		"inner blank":      swap(`"seq":1`, `"seq": 1`),
		"payload blank":    swap(`{"id":"k1"}`, `{"id": "k1"}`),
		"leading zero":     swap(`"seq":1`, `"seq":01`),
		"seq as text":      swap(`"seq":1`, `"seq":"1"`),
		"float seq":        swap(`"seq":1`, `"seq":1.0`),
		"seq beyond":       swap(`"seq":1`, `"seq":9007199254740992`),
		"negative wall":    swap(`"wall_ms":11`, `"wall_ms":-11`),
		"counter beyond":   swap(`"counter":0`, `"counter":4294967296`),
		"unknown field":    swap(`"seq":1`, `"x":1,"seq":1`),
		"other order":      swap(`{"op_id":`, `{"device_id":"dev","op_id":`),
		"upper hex":        swap(`"op_id":"op-`, `"op_id":"op-A`),
		"escaped device":   swap(`"device_id":"dev","seq"`, `"device_id":"d\u0065v","seq"`),
		"escaped payload":  swap(`"k1"`, `"\u006b1"`),
		"null prev":        swap(`"prev":"`, `"prev":null,"x":"`),
		"reserved key":     swap(`{"id":"k1"}`, `{"id":"k1"},"key":"k"`),
		"reserved sig":     swap(`{"id":"k1"}`, `{"id":"k1"},"sig":"s"`),
		"empty key":        swap(`{"id":"k1"}`, `{"id":"k1"},"key":""`),
		"second payload":   swap(`{"id":"k1"}`, `{"id":"k1"},"payload":1`),
		"two ops":          line + line,
		"no payload":       swap(`{"id":"k1"}`, ``),
		"duplicate member": swap(`{"id":"k1"}`, `{"id":"k1","id":"k1"}`),
		"cut":              line[:len(line)-1],
	}
	for name, b := range bad {
		if op, err := oplog.ParseLine([]byte(b)); !errors.Is(err, oplog.ErrCanon) || op.Payload != nil {
			t.Errorf("%s: %v, want an error that matches ErrCanon", name, err)
		}
	}
	for i := range line {
		if _, err := oplog.ParseLine([]byte(line[:i])); !errors.Is(err, oplog.ErrCanon) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

func TestEveryFlippedByteOfALineIsRefused(t *testing.T) {
	line := chainOf(t, "dev", 2, 10)[1].AppendLine(nil)
	for i := range line {
		for bit := range 8 {
			b := bytes.Clone(line)
			b[i] ^= 1 << bit
			op, err := oplog.ParseLine(b)
			if err == nil {
				err = op.Check()
			}
			if err == nil {
				t.Fatalf("bit %d of byte %d: %s was accepted", bit, i, b)
			}
		}
	}
}

func TestLineSharesNoMemoryWithItsBuffer(t *testing.T) {
	line := chainOf(t, "dev", 1, 1)[0].AppendLine(nil)
	op, err := oplog.ParseLine(line)
	must(t, op, err)
	clear(line)
	if err := op.Check(); err != nil {
		t.Error(err)
	}
}

func TestLargestOpFitsALine(t *testing.T) {
	id := strings.Repeat("d", 128)
	payload := []byte(`"` + strings.Repeat("x", oplog.MaxPayload-2) + `"`)
	prev := chainOf(t, "dev", 1, 1)[0].ID
	op, err := oplog.New(id, oplog.MaxInt, prev, oplog.HLC{WallMS: oplog.MaxInt, Counter: 1<<32 - 1, Device: id},
		oplog.Shared(id), oplog.Registry(id), payload)
	line := must(t, op, err).AppendLine(nil)
	if len(line) > oplog.MaxLine {
		t.Fatalf("line of %d bytes, MaxLine is %d", len(line), oplog.MaxLine)
	}
	if _, err := oplog.ParseLine(line); err != nil {
		t.Error(err)
	}
	var size *oplog.SizeError
	payload = append(payload[:len(payload)-1], `x"`...)
	if _, err := oplog.New("d", 0, "", stamp(1, "d"), oplog.Personal, oplog.Run, payload); !errors.As(err, &size) {
		t.Errorf("a payload of one byte more: %v", err)
	}
	if _, err := oplog.ParseLine(make([]byte, oplog.MaxLine+1)); !errors.As(err, &size) || size.What != "line" {
		t.Errorf("a long line: %v", err)
	}
}
