package ident_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/internal/ident"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestCheckAcceptsTheWholeAlphabetAndNothingElse(t *testing.T) {
	for _, ok := range []string{"a", "Z", "0", "a.b_c-d", strings.Repeat("x", 128), "9..--__"} {
		if err := ident.Check("agent", ok); err != nil {
			t.Errorf("Check(%q) = %v, want nil", ok, err)
		}
	}
	bad := []string{"", ".", "..", "-a", "_a", "a/b", "a b", "a\x00", "a\n", "ä", "aä", "a\xff", "a:b", "a\"b",
		strings.Repeat("x", 129), "a\u2028"}
	for _, s := range bad {
		err := ident.Check("agent", s)
		var typed *ident.Error
		if !errors.Is(err, ident.ErrInvalid) || !errors.As(err, &typed) || typed.Kind != "agent" {
			t.Errorf("Check(%q) = %v, want an *Error of kind agent", s, err)
		}
	}
	for c := range 256 {
		s := "a" + string([]byte{byte(c)})
		want := strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", rune(c)) && c < 128
		if got := ident.Check("x", s) == nil; got != want {
			t.Errorf("byte %#x: accepted %v, want %v", c, got, want)
		}
	}
}

func TestCheckMessageIsBounded(t *testing.T) {
	err := ident.Check("device", strings.Repeat("\x1b", 1<<20))
	if err == nil || len(err.Error()) > 500 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("message of %d bytes", len(err.Error()))
	}
}

func TestKeyOccurrenceRefusesWhatAPersonCannotRead(t *testing.T) {
	for _, bad := range []string{"", "a\nb", "\x00", "\x7f", "a\u0085", "\xff", strings.Repeat("é", 128)} {
		if got, err := ident.KeyOccurrence(bad); !errors.Is(err, ident.ErrInvalid) || got != "" {
			t.Errorf("KeyOccurrence(%q) = %q, %v", bad, got, err)
		}
	}
	for _, ok := range []string{"x", "2026-11-29", "key:key:", "größe 7", strings.Repeat("x", 255)} {
		occ, err := ident.KeyOccurrence(ok)
		if err != nil || occ != "key:"+ok || ident.CheckOccurrence(occ) != nil || ident.OccurrenceText(occ) != ok {
			t.Errorf("KeyOccurrence(%q) = %q, %v", ok, occ, err)
		}
	}
}

func TestAtOccurrenceIsTheInstantWhateverTheZone(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	if got := ident.AtOccurrence(at.In(time.FixedZone("x", 7200))); got != "at:2026-03-29T01:30:00Z" {
		t.Errorf("got %q", got)
	}
	half := ident.AtOccurrence(at.Add(500 * time.Millisecond))
	if half != "at:2026-03-29T01:30:00.5Z" || ident.CheckOccurrence(half) != nil {
		t.Errorf("got %q", half)
	}
	for _, bad := range []string{"at:2026-03-29T03:30:00+02:00", "at:2026-03-29T01:30:00.50Z", "at:now", "at:", "x", ""} {
		if ident.CheckOccurrence(bad) == nil {
			t.Errorf("CheckOccurrence(%q) = nil", bad)
		}
	}
}

func TestRunIDIsFrozen(t *testing.T) {
	var b strings.Builder
	for _, c := range [][3]string{
		{"default", "hello", "key:first-run"},
		{"default", "hello", "at:2026-03-29T01:30:00Z"},
		{"default", "hellok", "ey:first-run"},
		{"d", "hello", "key:größe"},
	} {
		fmt.Fprintf(&b, "%s %s %s %s\n", c[0], c[1], c[2], ident.RunID(c[0], c[1], c[2]))
	}
	const path = "testdata/runid.golden"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("run ids changed:\ngot\n%swant\n%s", b.String(), want)
	}
}

func TestRunIDTellsFieldsApart(t *testing.T) {
	seen := map[string]string{}
	for _, c := range [][3]string{{"a", "b", "c"}, {"ab", "", "c"}, {"", "ab", "c"}, {"a", "bc", ""}, {"abc", "", ""}} {
		id := ident.RunID(c[0], c[1], c[2])
		if err := ident.CheckRunID(id); err != nil || len(id) > 64 || ident.Check("run", id) != nil {
			t.Errorf("RunID(%q) = %q: %v", c, id, err)
		}
		if other, dup := seen[id]; dup {
			t.Errorf("%q and %q share %s", c, other, id)
		}
		seen[id] = fmt.Sprint(c)
	}
	for _, bad := range []string{"", "r1-", "r1-" + strings.Repeat("A", 52), "r2-" + strings.Repeat("a", 52), "r1-" + strings.Repeat("a", 53)} {
		if ident.CheckRunID(bad) == nil {
			t.Errorf("CheckRunID(%q) = nil", bad)
		}
	}
}
