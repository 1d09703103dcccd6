// Package checkpoint keeps folded state at a frontier, so that the ops below it need not be kept.
//
// # Guarantees
//
// A checkpoint is a function of the ops that it covers and of the chains that are closed in it: whoever makes it, in
// whatever order the ops came, and in however many steps it was extended, its bytes and therefore its hash are the same.
// So two devices that hold the same history can compare a checkpoint by its hash alone. It carries every stamp that
// later ops are judged by, and the head of every chain, so that folding and verifying go on from it as if nothing had
// been dropped.
//
// Its name is the SHA-256 of its bytes. What Load and Decode return gave that hash, and its state gave the digest it
// claims. Parent, author and time travel beside it and are not hashed.
//
// What Save returned without an error is on stable storage. A crash in the middle of it leaves the file whole or absent,
// and perhaps a temporary file, which the next Save or Prune of that checkpoint replaces or removes. Nothing but Prune removes a checkpoint, and
// Prune removes nothing unless one that it was told to keep was loaded and found good.
//
// Not promised: that whoever made a checkpoint folded honestly. While the covered ops are still held, [Refold] proves it.
//
// # Failure
//
// [ErrUnreadable], [ErrDigest], [ErrHash] and [ErrName] say that a file is damaged, and how; it is never removed for
// that. Fall back to an older one, whose later ops are still held, or fetch it again. fold.ErrVersion: it is of another version.
// Errors of the file system come as they are. [ErrAnchor]: ops do not continue the checkpoint.
//
// # Concurrency
//
// Extend and Refold use up the base that they are given; nothing else here changes a Checkpoint. Its State belongs to one goroutine at a time, and reading counts.
package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/syncnode/syncnode/fold"
	"github.com/syncnode/syncnode/oplog"
)

// Version is the version of the format. The version of the fold inside is fold.Version.
const Version = 1

// A Hash is the name of a checkpoint: 64 lower-case hex digits.
type Hash string

// Valid reports whether h has the form of a hash.
func (h Hash) Valid() bool { return len(h) == 64 && strings.Trim(string(h), "0123456789abcdef") == "" }

// A Header is what a checkpoint says about itself before its records.
type Header struct {
	Hash   Hash
	Digest fold.Digest // of the state
	Scopes []oplog.Scope
	Heads  oplog.Heads // the last op of each chain that may go on
	Closed oplog.Heads // of each chain that may not: retired writers
}

// Frontier is what the checkpoint covers, without the closed chains.
func (h *Header) Frontier() oplog.Frontier { return h.Heads.Frontier() }

// Covers reports whether the op of device at seq is inside the checkpoint.
func (h *Header) Covers(device string, seq uint64) bool {
	head, ok := h.head(device)
	return ok && seq <= head.Seq
}

// head is the last covered op of a chain, open or closed.
func (h *Header) head(device string) (oplog.Head, bool) {
	if head, ok := h.Heads[device]; ok {
		return head, true
	}
	head, ok := h.Closed[device]
	return head, ok
}

// All is the frontier with the closed chains: what is covered at all.
func (h *Header) All() oplog.Frontier {
	f := h.Heads.Frontier()
	for device, head := range h.Closed {
		f[device] = head.Pos()
	}
	return f
}

// Dominates reports whether h covers everything that g covers, and has closed what g has closed. A checkpoint may only
// take the place of one that it dominates.
func (h *Header) Dominates(g *Header) bool {
	for device := range g.Closed {
		if _, ok := h.Closed[device]; !ok {
			return false
		}
	}
	return h.All().Dominates(g.All())
}

// MayReplace is nil if h dominates held, and a [*BehindError] if not: then what held covers beyond h would be lost, and h is refused.
func (h *Header) MayReplace(held *Header) error {
	if !h.Dominates(held) {
		return &BehindError{Held: held.Hash, Offered: h.Hash}
	}
	return nil
}

// A Checkpoint is a header and the state that it describes.
type Checkpoint struct {
	Header
	// State must not be changed as long as the checkpoint is used. Who wants to go on folding takes it and lets the
	// checkpoint go, or uses Extend.
	State *fold.State
}

// Meta travels beside a checkpoint and is not hashed: two authors of one checkpoint give it one name.
type Meta struct {
	Parent Hash   `json:"parent,omitempty"`  // the base that it was extended from; empty if it was made from genesis
	Author string `json:"author,omitempty"`  // device that made it
	WallMS int64  `json:"wall_ms,omitempty"` // when, in unix milliseconds by the author's clock
	// Sealed: the state holds what came sealed. Whoever gives the checkpoint away seals it.
	Sealed bool `json:"sealed,omitempty"`
}

// Of is the checkpoint of a state, at the state's own frontier. The state is the checkpoint's from now on.
func Of(s *fold.State) *Checkpoint {
	c := &Checkpoint{State: s}
	h := sha256.New()
	if _, err := c.writeBody(h, s.Digest()); err != nil {
		panic(fmt.Sprintf("checkpoint: hashing failed: %v", err)) // a hash takes everything
	}
	c.Header = Header{Hash: sumOf(h), Digest: s.Digest(), Scopes: s.Scopes(), Heads: s.Heads(), Closed: s.Closed()}
	return c
}

func sumOf(h interface{ Sum([]byte) []byte }) Hash { return Hash(hex.EncodeToString(h.Sum(nil))) }

// WriteTo writes the body: the bytes that the hash is of, and that a relay keeps. It fails with ErrHash if the state was
// changed after the checkpoint was made; what was written is worthless then.
func (c *Checkpoint) WriteTo(w io.Writer) (int64, error) {
	h := sha256.New()
	n, err := c.writeBody(io.MultiWriter(w, h), c.Digest)
	if got := sumOf(h); err == nil && got != c.Hash {
		err = fmt.Errorf("write checkpoint: %w", &MismatchError{Kind: ErrHash, Want: string(c.Hash), Got: string(got)})
	}
	return n, err
}

// Body is what WriteTo writes.
func (c *Checkpoint) Body() ([]byte, error) {
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return b.Bytes(), err
}

func (c *Checkpoint) writeBody(w io.Writer, digest fold.Digest) (int64, error) {
	n, err := io.WriteString(w, firstLine(digest))
	if err != nil {
		return int64(n), err
	}
	m, err := c.State.WriteTo(w)
	return int64(n) + m, err
}

const (
	beginning = `{"checkpoint":1,"state_digest":"`
	ending    = "\"}\n"
	digestLen = 64
)

func firstLine(digest fold.Digest) string { return beginning + string(digest) + ending }

// Decode reads a body, of which want is the name, and checks everything: that it can be read, that it gives its hash, and that its
// state gives its digest. r has to end with the body.
func Decode(r io.Reader, want Hash) (*Checkpoint, error) {
	h := sha256.New()
	in := bufio.NewReaderSize(io.TeeReader(r, h), 1<<16)
	digest, err := readFirst(in)
	if err != nil {
		return nil, err
	}
	s, err := fold.Load(in)
	if err != nil {
		return nil, unreadable(err)
	}
	if got := sumOf(h); got != want {
		return nil, &MismatchError{Kind: ErrHash, Want: string(want), Got: string(got)}
	}
	if got := s.Digest(); got != digest {
		return nil, &MismatchError{Kind: ErrDigest, Want: string(digest), Got: string(got)}
	}
	return &Checkpoint{State: s, Header: Header{Hash: want, Digest: digest, Scopes: s.Scopes(), Heads: s.Heads(), Closed: s.Closed()}}, nil
}

// DecodeHeader reads the header of a body and checks nothing else: Hash is what the caller says.
func DecodeHeader(r io.Reader, hash Hash) (Header, error) {
	in := bufio.NewReader(r)
	digest, err := readFirst(in)
	if err != nil {
		return Header{}, err
	}
	scopes, heads, closed, err := fold.LoadHeads(in)
	if err != nil {
		return Header{}, unreadable(err)
	}
	return Header{Hash: hash, Digest: digest, Scopes: scopes, Heads: heads, Closed: closed}, nil
}

func readFirst(r io.Reader) (fold.Digest, error) {
	line := make([]byte, len(beginning)+digestLen+len(ending))
	switch _, err := io.ReadFull(r, line); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "", fmt.Errorf("%w: no first line", ErrUnreadable)
	case err != nil:
		return "", fmt.Errorf("read checkpoint: %w", err)
	}
	digest := fold.Digest(line[len(beginning) : len(beginning)+digestLen])
	if v := versionOf(line); v > Version {
		return "", fmt.Errorf("%w: it has format version %d, this release knows %d: a newer release made it, upgrade this one", ErrUnreadable, v, Version)
	}
	if string(line) != firstLine(digest) || !Hash(digest).Valid() {
		return "", fmt.Errorf("%w: not a first line of version %d", ErrUnreadable, Version)
	}
	return digest, nil
}

// versionOf is the version that a first line names; 0 if it names none.
func versionOf(line []byte) (v int) {
	if _, err := fmt.Sscanf(string(line), `{"checkpoint":%d,`, &v); err != nil {
		return 0
	}
	return v
}

// unreadable makes what is wrong with a text ErrUnreadable, and leaves errors of reading it alone.
func unreadable(err error) error {
	if errors.Is(err, fold.ErrState) || errors.Is(err, fold.ErrVersion) {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return fmt.Errorf("read checkpoint: %w", err)
}
