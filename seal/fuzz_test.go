package seal_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/syncnode/syncnode/seal"
)

// What a stranger makes never opens, never panics; what opens was sealed by us, byte for byte.
func FuzzOpen(f *testing.F) {
	s := sealer(f, openKeys(f, keyFile(f, 1, 2)), all)
	s.SetRandom(&counting{0x80}) // fuzzing has several processes
	ours := mustSeal(f, s, place(), text)
	f.Add(ours)
	f.Add(ours[:len(ours)-1])
	f.Add([]byte(`{"ct":"","key":"k1-","nonce":"","sealed":1}`))
	f.Add([]byte(`{"ct":"","sealed":2}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := s.Open(place(), payload)
		if err == nil && (!bytes.Equal(payload, ours) || !bytes.Equal(got, text)) {
			t.Fatalf("opened %q as %q", payload, got)
		}
		clear, err := s.Read(place(), payload)
		if err == nil && !bytes.Equal(clear, text) {
			t.Fatalf("read %q as %q", payload, clear)
		}
	})
}

// What is sealed opens as it was, in its place and in no other.
func FuzzSeal(f *testing.F) {
	s := sealer(f, openKeys(f, keyFile(f, 1, 1)), all)
	f.Add(text, "host-1", uint64(7), "personal", "skill", int64(5), uint32(0))
	f.Fuzz(func(t *testing.T, plain []byte, device string, seq uint64, scope, surface string, wall int64, counter uint32) {
		h := seal.Header{Device: device, Seq: seq, Wall: wall, Counter: counter, Stamper: device, Scope: scope, Surface: surface}
		if seq > 0 {
			h.Prev = "op-1"
		}
		e, err := s.Seal(h, plain)
		if err != nil {
			return
		}
		if got, err := s.Open(h, e); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%q, %v", got, err)
		}
		h.Counter++
		if got, err := s.Open(h, e); err == nil {
			t.Fatalf("opened in another place: %q", got)
		}
	})
}

// A key file has one meaning: what is read can be written and read again.
func FuzzKeyFile(f *testing.F) {
	content, err := os.ReadFile(keyFile(f, 1, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte("syncnode-seal-keys 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, again, err := seal.ParseFile(text)
		if err != nil {
			return
		}
		m, twice, err := seal.ParseFile(again)
		if err != nil || n != m || !bytes.Equal(again, twice) {
			t.Fatalf("%d keys, then %d, %v", n, m, err)
		}
	})
}

// A blob of a stranger gives no byte.
func FuzzOpenBlob(f *testing.F) {
	s := sealer(f, openKeys(f, keyFile(f, 1, 1)), all)
	s.SetRandom(&counting{0x80}) // fuzzing has several processes
	plain := []byte("some state")
	ours := sealBlob(f, s, label, plain)
	f.Add(ours)
	f.Add(ours[:len(ours)-3])
	f.Add(ours[:blobHead])
	f.Fuzz(func(t *testing.T, sealed []byte) {
		got, err := openBlob(s, label, bytes.NewReader(sealed))
		if err == nil && (!bytes.Equal(sealed, ours) || !bytes.Equal(got, plain)) || err != nil && len(got) > 0 {
			t.Fatalf("gave %q, %v", got, err)
		}
	})
}
