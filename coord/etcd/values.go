package etcd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/syncnode/syncnode/coord"
)

// valueVersion is the version of every value that this release writes, and the only one it reads.
const valueVersion = 1

// ErrFormat means that a key holds what this release cannot have written: a newer one did, it is damaged, or something else writes
// there. The error says which, and names both formats. Nothing is done on top of it, and trying again cannot help.
var ErrFormat = errors.New("coord/etcd: unreadable value")

// The values, one type per kind of key. Each begins with its version.
type (
	metaValue struct {
		V          int    `json:"v"`
		Format     int    `json:"format"`
		Generation string `json:"generation"`
	}
	epochValue struct {
		V     int         `json:"v"`
		Epoch coord.Epoch `json:"epoch"`
		Jump  coord.Epoch `json:"jump,omitempty"` // by how much a floor moved the last grant
		Nonce string      `json:"nonce"`          // of the grant that wrote it
	}
	holderValue struct {
		V        int           `json:"v"`
		Epoch    coord.Epoch   `json:"epoch"`
		Device   string        `json:"device"`
		Liveness string        `json:"liveness,omitempty"` // empty: can be stolen at once
		Nonce    string        `json:"nonce"`
		TTL      int64         `json:"ttl_ms"`
		Since    time.Time     `json:"since"`
		Jump     coord.Epoch   `json:"jump,omitempty"`
		Note     string        `json:"note,omitempty"`
		By       string        `json:"by,omitempty"`
		Reason   string        `json:"reason,omitempty"`
		Process  coord.Process `json:"process,omitzero"`
	}
	liveValue struct {
		V       int           `json:"v"`
		Process coord.Process `json:"process,omitzero"`
	}
	runValue struct {
		V          int             `json:"v"`
		Occurrence string          `json:"occurrence,omitempty"`
		Input      string          `json:"input,omitempty"`
		Attempts   []coord.Attempt `json:"attempts"`
	}
	bucketValue struct {
		V     int      `json:"v"`
		Runs  []string `json:"runs,omitempty"`  // sorted ids of committed runs
		Split bool     `json:"split,omitempty"` // the ids are in the buckets whose names are one longer
	}
	gateValue struct {
		V int `json:"v"`
		coord.Gate
	}
	offerValue struct {
		V int `json:"v"`
		coord.Offer
	}
)

func (v metaValue) version() int   { return v.V }
func (v epochValue) version() int  { return v.V }
func (v holderValue) version() int { return v.V }
func (v liveValue) version() int   { return v.V }
func (v runValue) version() int    { return v.V }
func (v bucketValue) version() int { return v.V }
func (v gateValue) version() int   { return v.V }
func (v offerValue) version() int  { return v.V }

func (v metaValue) check() error {
	if v.Format != valueVersion {
		return strange(v.Format)
	}
	if !hexNonce(v.Generation) {
		return fmt.Errorf("generation %.40q", v.Generation)
	}
	return nil
}

func (v epochValue) check() error {
	if v.Epoch > coord.MaxEpoch {
		return fmt.Errorf("epoch %d", v.Epoch)
	}
	return nil
}

func (v holderValue) check() error {
	switch {
	case v.Epoch == 0 || v.Epoch > coord.MaxEpoch:
		return fmt.Errorf("epoch %d", v.Epoch)
	case v.Device == "" || v.Nonce == "":
		return errors.New("no device or nonce")
	case v.TTL < 0 || v.TTL > int64(24*time.Hour/time.Millisecond):
		return fmt.Errorf("ttl %d ms", v.TTL)
	}
	return nil
}

func (v liveValue) check() error { return nil }

func (v runValue) check() error {
	for _, a := range v.Attempts {
		switch a.State {
		case coord.Open, coord.Void, coord.Failed, coord.Committed:
		default:
			return fmt.Errorf("attempt in state %.20q", a.State)
		}
		if a.ID == "" || a.Epoch > coord.MaxEpoch {
			return errors.New("attempt without id, or epoch out of range")
		}
	}
	return nil
}

func (v bucketValue) check() error {
	if v.Split && len(v.Runs) > 0 {
		return errors.New("bucket is split and holds runs")
	}
	return nil
}

func (v gateValue) check() error { return nil }

func (v offerValue) check() error { return v.Offer.Check() }

// A value is what a key holds.
type value interface {
	version() int
	check() error
}

// encode spells a value. Values are built from checked parts, so that failing is a mistake of ours.
func encode(v value) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("coord/etcd: encode %T: %v", v, err))
	}
	return string(raw)
}

// decode reads a value strictly: another version, an unknown field, a wrong type, trailing bytes or a
// number out of range match ErrFormat.
func decode[V value](key string, raw []byte) (V, error) {
	var v V
	if newer := newerThan(raw); newer > valueVersion {
		return v, fmt.Errorf("%w: key %s was written by a newer release, in format %d, and this release reads %d: upgrade this one", ErrFormat, key, newer, valueVersion)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(&v)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("bytes after the value")
		}
	} else {
		err = fmt.Errorf("it is not in format %d, which this release reads: %w: it is damaged, or something else wrote it", valueVersion, err)
	}
	switch {
	case err != nil:
	case v.version() != valueVersion:
		err = strange(v.version())
	default:
		err = v.check()
	}
	if err != nil {
		var none V
		return none, fmt.Errorf("%w: key %s: %w", ErrFormat, key, err)
	}
	return v, nil
}

// strange is what is wrong with a value of a lower format than any release has written.
func strange(format int) error {
	return fmt.Errorf("it is in format %d, which no release has written, and this release reads %d: it is damaged, or something else wrote it", format, valueVersion)
}

// newerThan is the greatest version that a value names, whatever else is in it; 0 if it cannot be told.
func newerThan(raw []byte) int {
	var names struct {
		V      int `json:"v"`
		Format int `json:"format"` // of meta: the version of the whole layout
	}
	if json.Unmarshal(raw, &names) != nil {
		return 0
	}
	return max(names.V, names.Format)
}

func hexNonce(s string) bool {
	if len(s) != 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
