package seal_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/syncnode/syncnode/seal"
)

var label = seal.Label{Kind: "checkpoint", Scope: seal.Every, Name: "cp-1"}

func sealBlob(t testing.TB, s *seal.Sealer, l seal.Label, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := s.SealBlob(&out, l)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func openBlob(s *seal.Sealer, l seal.Label, sealed io.Reader) ([]byte, error) {
	r, err := s.OpenBlob(sealed, l)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// numbered is n bytes that repeat nowhere at the distance of a chunk.
func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

const (
	blobHead = 7 + 1 + 16 + 15
	chunk    = seal.ChunkBytes + 16
)

func TestABlobOfAnyLengthOpensWhole(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	for _, n := range []int{0, 1, seal.ChunkBytes - 1, seal.ChunkBytes, seal.ChunkBytes + 1, 2 * seal.ChunkBytes, 2*seal.ChunkBytes + 7} {
		plain := numbered(n)
		sealed := sealBlob(t, s, label, plain)
		chunks := max(1, (n+seal.ChunkBytes-1)/seal.ChunkBytes)
		if want := blobHead + n + 16*chunks; len(sealed) != want {
			t.Errorf("%d bytes became %d, want %d", n, len(sealed), want)
		}
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(sealed), "half": iotest.HalfReader(bytes.NewReader(sealed)), "data and end": iotest.DataErrReader(bytes.NewReader(sealed))} {
			if got, err := openBlob(s, label, r); err != nil || !bytes.Equal(got, plain) {
				t.Errorf("%d bytes, %s: got %d, %v", n, name, len(got), err)
			}
		}
	}
	r, err := s.OpenBlob(bytes.NewReader(sealBlob(t, s, label, numbered(100_000))), label)
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(r, numbered(100_000)); err != nil {
		t.Error(err)
	}
}

func TestABlobIsTheSameHoweverItIsWritten(t *testing.T) {
	k := openKeys(t, keyFile(t, 1, 1))
	plain := numbered(2*seal.ChunkBytes + 5)
	fixed := func() *seal.Sealer {
		s := sealer(t, k, all)
		s.SetRandom(&counting{})
		return s
	}
	want := sealBlob(t, fixed(), label, plain)
	for _, step := range []int{1000, seal.ChunkBytes, seal.ChunkBytes + 1} {
		var out bytes.Buffer
		w, err := fixed().SealBlob(&out, label)
		if err != nil {
			t.Fatal(err)
		}
		for rest := plain; len(rest) > 0; {
			n := min(step, len(rest))
			if got, err := w.Write(rest[:n]); got != n || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("step %d: other bytes, %v", step, err)
		}
	}
}

func TestACutBlobNeverEnds(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	plain := numbered(2*seal.ChunkBytes + 5)
	sealed := sealBlob(t, s, label, plain)
	cuts := []int{0, 1, 7, 8, 9, blobHead - 1, blobHead, blobHead + 1, blobHead + 15, blobHead + 16, blobHead + chunk - 1, blobHead + chunk,
		blobHead + chunk + 1, blobHead + 2*chunk, blobHead + 2*chunk + 1, len(sealed) - 1}
	for _, at := range cuts {
		got, err := openBlob(s, label, bytes.NewReader(sealed[:at]))
		want := seal.ErrTampered
		if at < 8 {
			want = seal.ErrNotSealed
		}
		if _, typed := errors.AsType[*seal.BlobError](err); !typed || !errors.Is(err, want) || !bytes.HasPrefix(plain, got) {
			t.Errorf("cut at %d: got %d bytes, %v", at, len(got), err)
		}
	}
}

func TestChunksOpenOnlyInTheirOrderAndTheirBlob(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	plain := numbered(3 * seal.ChunkBytes)
	a, b := sealBlob(t, s, label, plain), sealBlob(t, s, label, plain)
	head, one, two, three := a[:blobHead], a[blobHead:][:chunk], a[blobHead+chunk:][:chunk], a[blobHead+2*chunk:]
	for name, parts := range map[string][][]byte{
		"swapped":            {head, two, one, three},
		"one left out":       {head, one, three},
		"first left out":     {head, two, three},
		"one twice":          {head, one, one, two, three},
		"end twice":          {head, one, two, three, three},
		"bytes after":        {head, one, two, three, {0}},
		"another blob after": {a, b},
		"of another blob":    {head, one, b[blobHead+chunk:]},
		"other header":       {b[:blobHead], a[blobHead:]},
		"empty end added":    {head, one, two, three, make([]byte, 16)},
	} {
		got, err := openBlob(s, label, bytes.NewReader(bytes.Join(parts, nil)))
		if !errors.Is(err, seal.ErrTampered) || !bytes.HasPrefix(plain, got) {
			t.Errorf("%s: got %d bytes, %v", name, len(got), err)
		}
	}
}

func TestNoChangedByteOfABlobOpens(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	sealed := sealBlob(t, s, label, []byte("some state"))
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		got, err := openBlob(s, label, bytes.NewReader(bad))
		if _, typed := errors.AsType[*seal.BlobError](err); !typed || len(got) > 0 {
			t.Errorf("byte %d: got %q, %v", i, got, err)
		}
	}
}

func TestABlobOpensUnderNoOtherLabel(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	sealed := sealBlob(t, s, label, []byte("some state"))
	for _, other := range []seal.Label{{"segment", seal.Every, "cp-1"}, {"checkpoint", "personal", "cp-1"}, {"checkpoint", seal.Every, "cp-2"}, {"checkpoint", "*c", "p-1"}, {}} {
		if got, err := openBlob(s, other, bytes.NewReader(sealed)); !errors.Is(err, seal.ErrTampered) || len(got) > 0 {
			t.Errorf("%+v: %q, %v", other, got, err)
		}
	}
	for _, bad := range []seal.Label{{Kind: "checkpoint"}, {Scope: "personal"}} {
		if _, err := s.SealBlob(io.Discard, bad); !errors.Is(err, seal.ErrHeader) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestABlobWhoseKeyOrVersionIsUnknownIsParked(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	sealed := sealBlob(t, s, label, []byte("some state"))
	_, err := sealer(t, nil, all).OpenBlob(bytes.NewReader(sealed), label)
	if blob, typed := errors.AsType[*seal.BlobError](err); !typed || !errors.Is(err, seal.ErrNoKey) || blob.Key != s.KeyID() {
		t.Error(err)
	}
	sealed[7]++
	if _, err := s.OpenBlob(bytes.NewReader(sealed), label); !errors.Is(err, seal.ErrVersion) {
		t.Error(err)
	}
}

var errDisk = errors.New("disk")

// failing gives what it has and then fails.
func failing(b []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(b), iotest.ErrReader(errDisk))
}

func TestAReadErrorIsNotTakenForABrokenSeal(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	sealed := sealBlob(t, s, label, numbered(2*seal.ChunkBytes))
	for _, at := range []int{0, 5, blobHead, blobHead + 100, blobHead + chunk, len(sealed)} {
		if _, err := openBlob(s, label, failing(sealed[:at])); !errors.Is(err, errDisk) || errors.Is(err, seal.ErrTampered) {
			t.Errorf("at %d: %v", at, err)
		}
	}
}

// full takes n bytes and then fails.
type full struct{ n int }

func (f *full) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

func TestAWriteErrorStays(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	if _, err := s.SealBlob(&full{blobHead - 1}, label); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	w, err := s.SealBlob(&full{blobHead + chunk}, label)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(numbered(3 * seal.ChunkBytes)); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if err := w.Close(); !errors.Is(err, errDisk) {
		t.Errorf("a blob that lacks a chunk was closed: %v", err)
	}
}

func TestAClosedBlobTakesNothing(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	var out bytes.Buffer
	w, err := s.SealBlob(&out, label)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := out.Len()
	if _, err := w.Write([]byte("x")); err == nil || w.Close() == nil || out.Len() != n {
		t.Errorf("%d bytes, then %d: %v", n, out.Len(), err)
	}
}

func TestABlobIsToldByItsBeginning(t *testing.T) {
	s := sealer(t, openKeys(t, keyFile(t, 1, 1)), all)
	sealed := sealBlob(t, s, seal.Label{Kind: "checkpoint", Scope: seal.Every}, []byte(`{"checkpoint":1}`))
	newer := bytes.Clone(sealed)
	newer[7]++
	for text, want := range map[string]bool{string(sealed): true, string(newer): true, `{"checkpoint":1}`: false, "": false, "snseal": false} {
		if got := seal.LooksSealedBlob([]byte(text)); got != want {
			t.Errorf("%.20q: %v", text, got)
		}
	}
}
