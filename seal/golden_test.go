package seal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncnode/syncnode/seal"
)

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s changed:\ngot\n%.2000s\nwant\n%.2000s", name, got, want)
	}
}

// frozen is a Sealer of two keys, 0x01… and 0x21…, whose nonces count from 0x80.
func frozen(t *testing.T) (path string, s *seal.Sealer) {
	t.Helper()
	path = keyFile(t, 1, 2)
	s = sealer(t, openKeys(t, path), all)
	s.SetRandom(&counting{0x80})
	return path, s
}

func TestTheKeyFileIsFrozen(t *testing.T) {
	path, _ := frozen(t)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "seal.keys", got)
}

func TestEnvelopesAreFrozen(t *testing.T) {
	_, s := frozen(t)
	first := seal.Header{Device: "host-1", Wall: 1764379800000, Stamper: "host-1", Scope: "personal", Surface: "skill"}
	var out bytes.Buffer
	for _, h := range []seal.Header{first, place()} {
		out.Write(mustSeal(t, s, h, text))
		out.WriteByte('\n')
	}
	golden(t, "envelopes.jsonl", out.Bytes())
	kept, err := os.ReadFile("testdata/envelopes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(kept), "\n"), "\n")
	for i, h := range []seal.Header{first, place()} {
		if got, err := s.Open(h, []byte(lines[i])); err != nil || !bytes.Equal(got, text) {
			t.Errorf("line %d: %q, %v", i+1, got, err)
		}
	}
}

func TestBlobsAreFrozen(t *testing.T) {
	_, s := frozen(t)
	plain := bytes.Repeat([]byte("state "), seal.ChunkBytes/6+1)
	golden(t, "small.blob", sealBlob(t, s, label, plain[:60]))
	golden(t, "chunks.blob", sealBlob(t, s, label, plain))
	for name, want := range map[string][]byte{"small.blob": plain[:60], "chunks.blob": plain} {
		kept, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := openBlob(s, label, bytes.NewReader(kept)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestTheTimeOfAKeyIsInUTC(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seal.keys")
	info, err := seal.Generate(path, day.Add(700*time.Millisecond).In(time.FixedZone("x", 7200)))
	if err != nil || !info.Created.Equal(day) {
		t.Errorf("%v, %v", info.Created, err)
	}
	if got, _ := os.ReadFile(path); !bytes.Contains(got, []byte(" 2026-11-29T01:30:00Z ")) {
		t.Errorf("%s", got)
	}
}
