package seal

import (
	"encoding/binary"
	"fmt"
)

// A Header is the place of an op: every field of it but id, key, signature and payload. A seal is bound to all of them.
type Header struct {
	Device  string
	Seq     uint64
	Prev    string // op id; empty exactly at seq 0
	Wall    int64  // the stamp: unix milliseconds
	Counter uint32
	Stamper string // the device that made the stamp
	Scope   string
	Surface string
}

func (h Header) check() error {
	switch {
	case h.Device == "" || h.Stamper == "" || h.Scope == "" || h.Surface == "":
		return fmt.Errorf("%w: a field is empty", ErrHeader)
	case h.Wall < 0:
		return fmt.Errorf("%w: the stamp is negative", ErrHeader)
	case (h.Seq == 0) != (h.Prev == ""):
		return fmt.Errorf("%w: prev and seq %d contradict each other", ErrHeader, h.Seq)
	case h.Surface == Intents:
		return fmt.Errorf("%w: intents are never sealed", ErrHeader)
	}
	return nil
}

// bind is the associated data of an envelope: the header, the key id and the version, in one unambiguous spelling.
func (h Header) bind(key string) []byte {
	b := make([]byte, 0, 512)
	b = lp(b, "syncnode/seal/op")
	b = binary.BigEndian.AppendUint64(b, envelopeVersion)
	b = lp(b, h.Device)
	b = binary.BigEndian.AppendUint64(b, h.Seq)
	b = lp(b, h.Prev)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Wall))
	b = binary.BigEndian.AppendUint64(b, uint64(h.Counter))
	b = lp(b, h.Stamper)
	b = lp(b, h.Scope)
	b = lp(b, h.Surface)
	return lp(b, key)
}

// lp appends a text after its length.
func lp(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(s)))
	return append(dst, s...)
}
