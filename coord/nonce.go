package coord

import (
	"crypto/rand"
	"encoding/hex"
)

// NewNonce draws 128 random bits: 32 lower-case hex digits.
func NewNonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
