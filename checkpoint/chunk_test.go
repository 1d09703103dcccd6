package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/syncnode/syncnode/checkpoint"
)

func sha(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }

func split(t interface {
	Helper()
	Fatal(...any)
}, b []byte, size int) (checkpoint.Manifest, [][]byte) {
	t.Helper()
	var chunks [][]byte
	m, err := checkpoint.Split(bytes.NewReader(b), size, func(i int, chunk []byte) error {
		if i != len(chunks) || len(chunk) > size || len(chunk) == 0 {
			t.Fatal("chunk", i, "of", len(chunk))
		}
		chunks = append(chunks, chunk)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m, chunks
}

func from(chunks [][]byte) func(int) ([]byte, error) {
	return func(i int) ([]byte, error) { return chunks[i], nil }
}

func TestWhatIsSplitIsJoinedAgainWhateverTheSize(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(r, "body")
		m, chunks := split(r, b, rapid.IntRange(1, 310).Draw(r, "size"))
		if m.Size != int64(len(b)) || m.Hash != checkpoint.Hash(sha(b)) {
			r.Fatalf("manifest %+v", m)
		}
		back, err := io.ReadAll(iotest.OneByteReader(checkpoint.Join(m, from(chunks))))
		if err != nil || !bytes.Equal(back, b) {
			r.Fatalf("joined %q: %v", back, err)
		}
	})
}

func TestACheckpointIsDecodedFromItsChunks(t *testing.T) {
	c := sampled(t)
	m, chunks := split(t, body(t, c), 100)
	back, err := checkpoint.Decode(checkpoint.Join(m, from(chunks)), m.Hash)
	if err != nil || back.Hash != c.Hash || m.Hash != c.Hash {
		t.Fatal(err)
	}
}

func TestAWrongChunkIsNoticedBeforeItIsShown(t *testing.T) {
	c := sampled(t)
	m, chunks := split(t, body(t, c), 1000)
	for i := range chunks {
		bad := append([][]byte(nil), chunks...)
		bad[i] = chunks[(i+1)%len(chunks)]
		shown, err := io.ReadAll(checkpoint.Join(m, from(bad)))
		if e, ok := errors.AsType[*checkpoint.ChunkError](err); !ok || e.Index != i || len(shown) != i*1000 {
			t.Errorf("chunk %d: %d bytes shown, %v", i, len(shown), err)
		}
		if _, err := checkpoint.Decode(checkpoint.Join(m, from(bad)), m.Hash); !errors.Is(err, checkpoint.ErrChunk) {
			t.Errorf("chunk %d: decoded with %v", i, err)
		}
	}
	lost := errors.New("not there")
	if _, err := io.ReadAll(checkpoint.Join(m, func(int) ([]byte, error) { return nil, lost })); !errors.Is(err, lost) {
		t.Error(err)
	}
	short := m
	short.Chunks = m.Chunks[:1]
	if _, err := io.ReadAll(checkpoint.Join(short, from(chunks))); !errors.Is(err, checkpoint.ErrHash) {
		t.Errorf("a manifest without its end: %v", err)
	}
	if _, err := checkpoint.Split(iotest.ErrReader(lost), 5, nil); !errors.Is(err, lost) {
		t.Error(err)
	}
	if _, err := checkpoint.Split(bytes.NewReader(nil), 0, nil); err == nil {
		t.Error("chunks of no bytes")
	}
	if _, err := checkpoint.Split(bytes.NewReader([]byte("x")), 1, func(int, []byte) error { return lost }); !errors.Is(err, lost) {
		t.Error(err)
	}
}

// What is decoded is what would be written; nothing has two spellings.
func FuzzDecode(f *testing.F) {
	f.Add(body(f, sampled(f)))
	f.Add(body(f, checkpoint.Of(folded(nil))))
	f.Add(body(f, checkpoint.Of(folded(sample(f).ops))))
	f.Fuzz(func(t *testing.T, text []byte) {
		want := checkpoint.Hash(sha(text))
		if h, err := checkpoint.DecodeHeader(bytes.NewReader(text), want); err == nil {
			h.All()
		}
		c, err := checkpoint.Decode(bytes.NewReader(text), want)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrUnreadable) && !errors.Is(err, checkpoint.ErrDigest) {
				t.Fatal(err)
			}
			return
		}
		if again := body(t, c); !bytes.Equal(again, text) || checkpoint.Of(c.State).Hash != want {
			t.Fatalf("decoded\n%s\nwritten\n%s", text, again)
		}
	})
}
