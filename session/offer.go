package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/syncnode/syncnode/checkpoint"
	"github.com/syncnode/syncnode/oplog"
	"github.com/syncnode/syncnode/relay"
	"github.com/syncnode/syncnode/seal"
)

// label is what the checkpoint at a relay is sealed as. It covers several scopes, and nobody knows its hash before it is open.
var label = seal.Label{Kind: "checkpoint", Scope: seal.Every}

// An offer is a relay's checkpoint as it can be read. A relay names a checkpoint by the bytes that it keeps, which are others
// each time one is sealed; what is compared is the hash of what is inside.
type offer struct {
	relay.Checkpoint
	hash   checkpoint.Hash // of body
	body   []byte
	sealed bool
	bare   bool // it is clear where it has to be sealed: anybody who can write to the relay can have made it
}

// provedBy is nil if the offer may be taken: a bare one only with proof.
func (o *offer) provedBy(proved bool) error {
	if o.bare && !proved {
		return fmt.Errorf("checkpoint of %s: %w", o.Author, &seal.BlobError{Label: label, Err: seal.ErrClear})
	}
	return nil
}

// open reads a relay's checkpoint.
func (s *Session) open(c relay.Checkpoint) (offer, error) {
	o := offer{Checkpoint: c, hash: checkpoint.Hash(c.Hash), body: c.Body}
	if o.sealed = seal.LooksSealedBlob(c.Body); !o.sealed {
		policy := s.cfg.Seal.Policy()
		o.bare = len(policy.Scopes) > 0 && !policy.AcceptClear
		return o, nil
	}
	r, err := s.cfg.Seal.OpenBlob(bytes.NewReader(c.Body), label)
	if err == nil {
		o.body, err = io.ReadAll(r)
	}
	if err != nil {
		return offer{}, fmt.Errorf("checkpoint of %s: %w", c.Author, err)
	}
	sum := sha256.Sum256(o.body)
	o.hash = checkpoint.Hash(hex.EncodeToString(sum[:]))
	s.noteInside(c.Hash, o.hash)
	return o, nil
}

// noteInside remembers which checkpoint a sealed one is, so that nobody fetches it again to find that it is known.
func (s *Session) noteInside(name string, hash checkpoint.Hash) {
	const most = 16 // relays; more only cost a look
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inside) >= most {
		clear(s.inside)
	}
	s.inside[name] = hash
}

// isBaseLocked reports whether a relay's checkpoint of that name is known to be the one that the journal begins at.
func (s *Session) isBaseLocked(name string) bool {
	if s.base.Hash == "" {
		return false
	}
	return name == string(s.base.Hash) || s.inside[name] == s.base.Hash
}

// offered is a checkpoint as relays keep it, sealed if it has to be: what is on the own disk is clear, and what leaves it is not.
func (s *Session) offered(c *checkpoint.Checkpoint, sealed bool) (relay.Checkpoint, error) {
	body, err := c.Body()
	if err != nil {
		return relay.Checkpoint{}, err
	}
	hash := string(c.Hash)
	if sealed || len(s.cfg.Seal.Policy().Scopes) > 0 {
		if body, err = s.sealBody(body); err != nil {
			return relay.Checkpoint{}, fmt.Errorf("checkpoint %s was not given to the relay: %w", c.Hash, err)
		}
		sum := sha256.Sum256(body)
		hash = hex.EncodeToString(sum[:])
		s.noteInside(hash, c.Hash)
	}
	return relay.Checkpoint{Hash: hash, Author: s.cfg.Device, Frontier: c.Frontier(), Closed: c.Closed.Frontier(), Body: body}, nil
}

func (s *Session) sealBody(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := s.cfg.Seal.SealBlob(&out, label)
	if errors.Is(err, seal.ErrNoKey) {
		s.reloadKeys()
		w, err = s.cfg.Seal.SealBlob(&out, label)
	}
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// contents is the session's content for an extension, and what notes that anything was sealed.
func (s *Session) contents(sealed *bool) checkpoint.Content {
	return func(op oplog.Op) ([]byte, error) {
		*sealed = *sealed || isSealed(op)
		return s.content(op)
	}
}
