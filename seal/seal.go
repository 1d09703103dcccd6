// Package seal keeps the content of ops and checkpoints from whoever stores them.
//
// A payload is sealed for one place: the whole header of its op, stamp included, is bound to it. The sealed payload, an
// envelope, is itself canonical JSON and stands where the payload stood, so ids, links, relays, verification and
// collection work without a key. docs/formats/seal.md has the bytes.
//
// # Guarantees
//
// Without a key of the file nobody reads a sealed payload or blob, and nobody makes or changes one unnoticed: an envelope
// opens only with the key that sealed it, under the header it was made for, whole. A blob gives no byte of a chunk that
// is not authentic, its chunks only in their order, and io.EOF only at its authentic end. Where the [Policy] wants
// sealing and there is no key, nothing is written. The surface of intents is never sealed: the record of attempts has to
// be readable without a key. It holds ids, digests, epochs, states, times and exit codes, and the texts that docs/formats/seal.md lists:
// the occurrence, who resolved a run and why, and a result of at most 1 KiB.
//
// Not promised. A relay sees which devices write when, how much, in which scope and on which surface, and with which
// key; it may withhold, delay and roll back. There is no forward secrecy: a stolen key opens all that was ever
// sealed with it, and rotation protects only what is written later. Every member has the same keys, so any member can
// write in the name of another, and a member that was removed reads what was sealed before. Keys in memory are not
// wiped.
//
// # Failure
//
// [ErrNoKey] and [ErrVersion] are temporary: park the op, and try again after [Keys.Reload] or with a newer release.
// [ErrTampered] and [ErrClear] are permanent: quarantine the chain from there. [ErrNotSealed] says that there is nothing
// to open. [Temporary] tells them apart. A refusal to seal ([ErrNoKey], [ErrTooLarge], [ErrLooksSealed]) left
// nothing behind. Whatever the input, nothing panics and no error shows a key or a plaintext.
//
// # Concurrency
//
// A Sealer and Keys may be used by several goroutines at once, also while the keys are reloaded. A Draft, and each
// writer or reader of a blob, belong to one goroutine. Changes of a key file are serialised by a lock file beside it.
package seal

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/crypto/chacha20poly1305"
)

// MaxPlaintext is the greatest length in bytes of what can be sealed as a payload, so that the envelope is one.
const MaxPlaintext = (maxPayload-envelopeRest)*3/4 - chacha20poly1305.Overhead

// maxPayload is the limit of the op format.
const maxPayload = 256 << 10

// A Config describes a Sealer.
type Config struct {
	Keys   *Keys  // nil: there are none
	Policy Policy // the zero value seals nothing
}

// A Sealer seals and opens with the keys of one file. Make it with New; there is nothing to close.
type Sealer struct {
	keys   *Keys
	policy Policy
	random io.Reader

	mu    sync.Mutex
	aeads map[derivation]func() cipher.AEAD // behind functions for the reason in Secret
}

// New returns a Sealer. It fails if the policy is not legal.
func New(cfg Config) (*Sealer, error) {
	if err := cfg.Policy.Check(); err != nil {
		return nil, err
	}
	return &Sealer{keys: cfg.Keys, policy: cfg.Policy.clone(), random: rand.Reader, aeads: map[derivation]func() cipher.AEAD{}}, nil
}

// Reload reads the key file again and reports whether its keys are others now. See [Keys.Reload].
func (s *Sealer) Reload() (changed bool, err error) {
	if s.keys == nil {
		return false, nil
	}
	return s.keys.Reload()
}

// Sealing reports whether there is a key to seal with.
func (s *Sealer) Sealing() bool {
	_, ok := s.keys.newest()
	return ok
}

// Has reports whether the key of that id is there.
func (s *Sealer) Has(key string) bool {
	_, ok := s.keys.find(key)
	return ok
}

// Policy is what has to be sealed.
func (s *Sealer) Policy() Policy { return s.policy.clone() }

// Seal returns the envelope of plaintext for the place that h names, made with the newest key. Each call gives another
// one. It fails with ErrNoKey, ErrTooLarge or ErrHeader, whatever the policy says.
func (s *Sealer) Seal(h Header, plaintext []byte) ([]byte, error) {
	key, ok := s.keys.newest()
	if !ok {
		return nil, fmt.Errorf("seal for scope %.140q: %w", h.Scope, ErrNoKey)
	}
	return s.seal(key, h, plaintext)
}

func (s *Sealer) seal(key sealKey, h Header, plaintext []byte) ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	if len(plaintext) > MaxPlaintext {
		return nil, fmt.Errorf("%w: %d bytes, at most %d can be sealed", ErrTooLarge, len(plaintext), MaxPlaintext)
	}
	aead, err := s.aead(key, forOps, h.Scope)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	if _, err := io.ReadFull(s.random, nonce); err != nil {
		return nil, fmt.Errorf("seal: no random nonce: %w", err)
	}
	ct := aead.Seal(nil, nonce, plaintext, h.bind(key.id))
	return envelope{key: key.id, nonce: nonce, ct: ct}.encode(), nil
}

// Open returns what was sealed for the place that h names. The result shares no memory with payload. Its errors are
// [*OpenError], matching ErrNotSealed, ErrVersion, ErrNoKey or ErrTampered. What it gives was made by a member; it
// still has to be checked like any payload.
func (s *Sealer) Open(h Header, payload []byte) ([]byte, error) {
	if h.Surface == Intents {
		return nil, &OpenError{Header: h, Err: ErrNotSealed}
	}
	e, err := parseEnvelope(payload)
	if err != nil {
		return nil, &OpenError{Header: h, Err: err}
	}
	key, ok := s.keys.find(e.key)
	if !ok {
		return nil, &OpenError{Header: h, Key: e.key, Err: ErrNoKey}
	}
	aead, err := s.aead(key, forOps, h.Scope)
	if err != nil {
		return nil, err
	}
	plaintext, err := aead.Open(nil, e.nonce, e.ct, h.bind(key.id))
	if err != nil {
		return nil, &OpenError{Header: h, Key: e.key, Err: ErrTampered}
	}
	return plaintext, nil
}

// Read returns the content of a payload, sealed or not, as the policy allows: the one question of whoever applies ops.
//
//   - On the surface of intents the payload itself is the content, whatever it looks like.
//   - An envelope is opened, also where the policy does not ask for sealing; errors are those of Open.
//   - Any other payload is its own content, unless the policy seals this place: then ErrClear. A relay could
//     otherwise write in the name of a device by leaving the seal away.
//
// The result may be payload itself.
func (s *Sealer) Read(h Header, payload []byte) ([]byte, error) {
	switch {
	case h.Surface == Intents:
		return payload, nil
	case LooksSealed(payload):
		return s.Open(h, payload)
	case s.policy.Seals(h.Scope, h.Surface) && !s.policy.AcceptClear:
		return nil, &OpenError{Header: h, Err: ErrClear}
	}
	return payload, nil
}

// A Draft is a payload before its op has a place in a chain. Only when sequence number, link and stamp are given is the
// header known that the seal is bound to.
type Draft struct {
	s              *Sealer
	scope, surface string
	plaintext      []byte
	key            sealKey
	sealed         bool
}

// Draft decides, before anything is written, whether plaintext has to be sealed and with which key. It fails with ErrNoKey,
// ErrTooLarge, or, for what stays clear, with ErrLooksSealed. The plaintext is not copied.
func (s *Sealer) Draft(scope, surface string, plaintext []byte) (*Draft, error) {
	d := &Draft{s: s, scope: scope, surface: surface, plaintext: plaintext}
	if !s.policy.Seals(scope, surface) {
		if surface != Intents && LooksSealed(plaintext) {
			return nil, fmt.Errorf("draft for surface %.140q: %w", surface, ErrLooksSealed)
		}
		return d, nil
	}
	if len(plaintext) > MaxPlaintext {
		return nil, fmt.Errorf("%w: %d bytes, at most %d can be sealed", ErrTooLarge, len(plaintext), MaxPlaintext)
	}
	if d.key, d.sealed = s.keys.newest(); !d.sealed {
		return nil, fmt.Errorf("scope %.140q is sealed, and nothing was written: %w", scope, ErrNoKey)
	}
	return d, nil
}

// Sealed reports whether Payload gives an envelope.
func (d *Draft) Sealed() bool { return d.sealed }

// Payload returns the payload for the op at h: the plaintext itself if it stays clear, else an envelope, another one at each
// call. h must name the scope and surface of the draft.
func (d *Draft) Payload(h Header) ([]byte, error) {
	switch {
	case h.Scope != d.scope || h.Surface != d.surface:
		return nil, fmt.Errorf("%w: drafted for scope %.140q, surface %.140q", ErrHeader, d.scope, d.surface)
	case !d.sealed:
		return d.plaintext, nil
	}
	return d.s.seal(d.key, h, d.plaintext)
}

// What a derived key is for. The texts are part of the format.
const (
	forOps   = "op"
	forBlobs = "blob"
)

// A derivation names a derived key. Key ids are digests of keys, so one is never served for another.
type derivation struct{ purpose, scope, key string }

// maxDerived bounds the derived keys that are kept, since scopes come from others.
const maxDerived = 256

// aead returns the cipher of a key for a purpose in a scope.
func (s *Sealer) aead(key sealKey, purpose, scope string) (cipher.AEAD, error) {
	d := derivation{purpose: purpose, scope: scope, key: key.id}
	s.mu.Lock()
	kept, ok := s.aeads[d]
	s.mu.Unlock()
	if ok {
		return kept(), nil
	}
	derived, err := hkdf.Key(sha256.New, key.secret.bytes(), nil, string(d.info()), chacha20poly1305.KeySize)
	if err != nil {
		return nil, fmt.Errorf("seal: derive a key: %w", err)
	}
	a, err := chacha20poly1305.NewX(derived)
	if err != nil {
		return nil, fmt.Errorf("seal: no cipher: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.aeads) >= maxDerived {
		clear(s.aeads)
	}
	d.scope = strings.Clone(d.scope) // it may be a piece of a long line
	s.aeads[d] = func() cipher.AEAD { return a }
	return a, nil
}

func (d derivation) info() []byte {
	b := lp(nil, "syncnode/seal/v1")
	b = lp(b, d.purpose)
	b = lp(b, d.scope)
	return lp(b, d.key)
}
