package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// ErrChunk means that a chunk is not the one that the manifest names. Fetch it again.
var ErrChunk = errors.New("checkpoint: chunk does not match its manifest")

// A Manifest says of which chunks a body consists, for a store whose values are bounded. It is small: about 70 bytes a chunk.
type Manifest struct {
	Hash   Hash   `json:"hash"`   // of the body
	Size   int64  `json:"size"`   // of the body, in bytes
	Chunks []Hash `json:"chunks"` // the SHA-256 of each, in order
}

// A ChunkError says which chunk is wrong, from 0. It matches ErrChunk.
type ChunkError struct {
	Index     int
	Want, Got Hash
}

func (e *ChunkError) Error() string {
	return fmt.Sprintf("checkpoint: chunk %d is %.12s, the manifest says %.12s", e.Index, e.Got, e.Want)
}
func (e *ChunkError) Is(target error) bool { return target == ErrChunk }

func hashOf(b []byte) Hash { sum := sha256.Sum256(b); return Hash(hex.EncodeToString(sum[:])) }

// Split cuts what r yields into chunks of size bytes, the last of which may be shorter, and gives each to put before it reads on. A body
// of any length is held one chunk at a time; put may keep the bytes. It fails with an error of r or put.
func Split(r io.Reader, size int, put func(index int, chunk []byte) error) (Manifest, error) {
	if size <= 0 {
		return Manifest{}, fmt.Errorf("split checkpoint: chunks of %d bytes", size)
	}
	var m Manifest
	whole := sha256.New()
	for {
		chunk := make([]byte, size)
		n, err := io.ReadFull(r, chunk)
		if n > 0 {
			chunk = chunk[:n]
			whole.Write(chunk)
			if err := put(len(m.Chunks), chunk); err != nil {
				return Manifest{}, fmt.Errorf("split checkpoint: chunk %d: %w", len(m.Chunks), err)
			}
			m.Chunks = append(m.Chunks, hashOf(chunk))
			m.Size += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			m.Hash = sumOf(whole)
			return m, nil
		case err != nil:
			return Manifest{}, fmt.Errorf("split checkpoint: %w", err)
		}
	}
}

// Join is the body of a manifest, read chunk by chunk through get. Each chunk is checked before a byte of it is shown (ErrChunk), and the
// end comes only if all of them together give size and hash (ErrHash). It can be given to Decode as it is.
func Join(m Manifest, get func(index int) ([]byte, error)) io.Reader {
	return &joiner{m: m, get: get, whole: sha256.New()}
}

type joiner struct {
	m     Manifest
	get   func(int) ([]byte, error)
	next  int
	chunk []byte
	size  int64
	whole interface {
		io.Writer
		Sum([]byte) []byte
	}
	err error
}

func (j *joiner) Read(p []byte) (int, error) {
	for len(j.chunk) == 0 && j.err == nil {
		j.err = j.advance()
	}
	if len(j.chunk) == 0 {
		return 0, j.err
	}
	n := copy(p, j.chunk)
	j.chunk = j.chunk[n:]
	return n, nil
}

// advance fetches the next chunk, or says how it ends.
func (j *joiner) advance() error {
	if j.next == len(j.m.Chunks) {
		if got := sumOf(j.whole); got != j.m.Hash || j.size != j.m.Size {
			return &MismatchError{Kind: ErrHash, Want: string(j.m.Hash), Got: string(got)}
		}
		return io.EOF
	}
	chunk, err := j.get(j.next)
	if err != nil {
		return fmt.Errorf("join checkpoint: chunk %d: %w", j.next, err)
	}
	if got := hashOf(chunk); got != j.m.Chunks[j.next] {
		return &ChunkError{Index: j.next, Want: j.m.Chunks[j.next], Got: got}
	}
	j.next++
	j.size += int64(len(chunk))
	_, _ = j.whole.Write(chunk)
	j.chunk = chunk
	return nil
}
