package seal

import (
	"bufio"
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	blobMagic   = "snsealb" // then one byte, the version
	blobVersion = 1
	blobRandom  = 15 // bytes of a nonce that are random; then the number of the chunk, then whether it is the last
	blobHeader  = len(blobMagic) + 1 + 16 + blobRandom
	chunkBytes  = 64 << 10
	sealedChunk = chunkBytes + chacha20poly1305.Overhead
)

// A Label says what a blob is. Its seal is bound to it: a blob opens only under the label it was made with.
type Label struct {
	Kind  string // "checkpoint"
	Scope string // whose keys; what covers several scopes names Every
	Name  string // which one
}

func (l Label) bind(key string) []byte {
	b := lp(nil, "syncnode/seal/blob")
	b = binary.BigEndian.AppendUint64(b, blobVersion)
	b = lp(b, l.Kind)
	b = lp(b, l.Scope)
	b = lp(b, l.Name)
	return lp(b, key)
}

// LooksSealedBlob reports whether bytes begin as a sealed blob of any version does.
func LooksSealedBlob(b []byte) bool { return bytes.HasPrefix(b, []byte(blobMagic)) }

// SealBlob returns a writer that seals what it is given, of any length, with the newest key, and writes it to w in chunks
// of 64 KiB. Only after Close returned nil is the blob whole; Close leaves w open. It fails with ErrNoKey or ErrHeader.
func (s *Sealer) SealBlob(w io.Writer, label Label) (io.WriteCloser, error) {
	if label.Kind == "" || label.Scope == "" {
		return nil, fmt.Errorf("%w: a blob needs kind and scope", ErrHeader)
	}
	key, ok := s.keys.newest()
	if !ok {
		return nil, fmt.Errorf("seal %.140q %.140q: %w", label.Kind, label.Name, ErrNoKey)
	}
	aead, err := s.aead(key, forBlobs, label.Scope)
	if err != nil {
		return nil, err
	}
	id, err := hex.DecodeString(key.id[len(keyIDPrefix):])
	if err != nil {
		return nil, fmt.Errorf("seal: key id: %w", err)
	}
	b := &blobWriter{w: w, chunks: chunks{aead: aead, bound: label.bind(key.id)}, buf: make([]byte, 0, chunkBytes)}
	if _, err := io.ReadFull(s.random, b.nonce[:blobRandom]); err != nil {
		return nil, fmt.Errorf("seal: no random nonce: %w", err)
	}
	head := append([]byte(blobMagic), blobVersion)
	head = append(append(head, id...), b.nonce[:blobRandom]...)
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	return b, nil
}

// chunks counts the chunks of one blob and gives each its nonce.
type chunks struct {
	aead  cipher.AEAD
	bound []byte
	nonce [chacha20poly1305.NonceSizeX]byte
	n     uint64
}

// next is the nonce of the next chunk.
func (c *chunks) next(last bool) []byte {
	binary.BigEndian.PutUint64(c.nonce[blobRandom:], c.n)
	c.nonce[len(c.nonce)-1] = 0
	if last {
		c.nonce[len(c.nonce)-1] = 1
	}
	c.n++
	return c.nonce[:]
}

var errBlobClosed = errors.New("seal: blob is closed")

type blobWriter struct {
	chunks
	w      io.Writer
	buf    []byte // the next chunk; a full one waits until it is known whether it is the last
	sealed []byte
	err    error
}

func (b *blobWriter) Write(p []byte) (int, error) {
	done := 0
	for b.err == nil && done < len(p) {
		if len(b.buf) == chunkBytes {
			b.flush(false)
			continue
		}
		n := min(chunkBytes-len(b.buf), len(p)-done)
		b.buf = append(b.buf, p[done:done+n]...)
		done += n
	}
	return done, b.err
}

func (b *blobWriter) Close() error {
	if b.err != nil {
		return b.err
	}
	b.flush(true)
	err := b.err
	if err == nil {
		b.err = errBlobClosed
	}
	return err
}

func (b *blobWriter) flush(last bool) {
	b.sealed = b.aead.Seal(b.sealed[:0], b.next(last), b.buf, b.bound)
	b.buf = b.buf[:0]
	_, b.err = b.w.Write(b.sealed)
}

// OpenBlob returns a reader of the blob that SealBlob wrote under the label. Its errors, and those of the reader, are
// [*BlobError], matching ErrNotSealed, ErrVersion, ErrNoKey or ErrTampered, or that of r. Bytes are given chunk by chunk,
// each authentic; but only io.EOF says that all came: do not act on a part. It reads r to its end, in memory of one chunk.
func (s *Sealer) OpenBlob(r io.Reader, label Label) (io.Reader, error) {
	b := &blobReader{r: bufio.NewReaderSize(r, sealedChunk+1), label: label}
	var head [blobHeader]byte
	n, err := io.ReadFull(b.r, head[:])
	if err != nil && !ended(err) {
		return nil, err
	}
	id, random, why := parseBlobHeader(head[:n])
	b.key = id
	if why != nil {
		return nil, b.fail(why)
	}
	key, ok := s.keys.find(id)
	if !ok {
		return nil, b.fail(ErrNoKey)
	}
	if b.aead, err = s.aead(key, forBlobs, label.Scope); err != nil {
		return nil, err
	}
	b.bound = label.bind(id)
	copy(b.nonce[:], random)
	return b, nil
}

// parseBlobHeader gives the key id and the random part of the nonces.
func parseBlobHeader(head []byte) (key string, random []byte, err error) {
	const version = len(blobMagic)
	switch {
	case len(head) <= version || string(head[:version]) != blobMagic:
		return "", nil, ErrNotSealed
	case head[version] != blobVersion:
		return "", nil, ErrVersion
	case len(head) < blobHeader:
		return "", nil, ErrTampered
	}
	return keyIDPrefix + hex.EncodeToString(head[version+1:][:16]), head[blobHeader-blobRandom:], nil
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

type blobReader struct {
	chunks
	r      *bufio.Reader
	label  Label
	key    string
	sealed []byte
	plain  []byte // authentic and not given yet
	store  []byte // behind plain
	err    error
}

func (b *blobReader) fail(why error) error {
	return &BlobError{Label: b.label, Key: b.key, Chunk: b.n, Err: why}
}

func (b *blobReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(b.plain) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.err = b.fill()
	}
	n := copy(p, b.plain)
	b.plain = b.plain[n:]
	return n, nil
}

// fill opens the next chunk. It returns io.EOF with the last one, which is the last by its nonce and by the end of r.
func (b *blobReader) fill() error {
	if b.sealed == nil {
		b.sealed = make([]byte, sealedChunk)
	}
	n, err := io.ReadFull(b.r, b.sealed)
	if err != nil && !ended(err) {
		return err
	}
	last := err != nil
	if !last {
		if _, err := b.r.Peek(1); ended(err) {
			last = true
		} else if err != nil {
			return err
		}
	}
	number := b.n
	plain, err := b.aead.Open(b.store[:0], b.next(last), b.sealed[:n], b.bound)
	if err != nil || last && len(plain) == 0 && number > 0 {
		b.n = number
		return b.fail(ErrTampered)
	}
	b.store, b.plain = plain, plain
	if last {
		return io.EOF
	}
	return nil
}
