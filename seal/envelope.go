package seal

import (
	"bytes"
	"encoding/base64"

	"golang.org/x/crypto/chacha20poly1305"
)

const envelopeVersion = 1

// The envelope is an object in RFC 8785 form; only what stands between these differs.
const (
	envelopeCT    = `{"ct":"`
	envelopeKey   = `","key":"`
	envelopeNonce = `","nonce":"`
	envelopeMark  = `","sealed":`
	envelopeEnd   = envelopeMark + `1}`

	nonceText    = 32 // base64 of 24 bytes
	envelopeRest = len(envelopeCT) + len(envelopeKey) + keyIDLen + len(envelopeNonce) + nonceText + len(envelopeEnd)
)

// b64 is base64 in the alphabet for URLs, without padding.
var b64 = base64.RawURLEncoding.Strict()

type envelope struct {
	key       string
	nonce, ct []byte
}

func (e envelope) encode() []byte {
	b := make([]byte, 0, envelopeRest+b64.EncodedLen(len(e.ct)))
	b = b64.AppendEncode(append(b, envelopeCT...), e.ct)
	b = append(append(b, envelopeKey...), e.key...)
	b = b64.AppendEncode(append(b, envelopeNonce...), e.nonce)
	return append(b, envelopeEnd...)
}

// LooksSealed reports whether a payload has the shape of an envelope of any version: an object in RFC 8785 form whose
// first member is a text "ct" and whose last is an integer "sealed". Such a payload is never read as clear text.
func LooksSealed(payload []byte) bool {
	return bytes.HasPrefix(payload, []byte(envelopeCT)) && markAt(payload) >= len(envelopeCT)
}

// markAt finds the last member of an envelope, or gives -1.
func markAt(payload []byte) int {
	body, ok := bytes.CutSuffix(payload, []byte("}"))
	if !ok {
		return -1
	}
	digits := len(body)
	for digits > 0 && '0' <= body[digits-1] && body[digits-1] <= '9' {
		digits--
	}
	if digits == len(body) || !bytes.HasSuffix(body[:digits], []byte(envelopeMark)) {
		return -1
	}
	return digits - len(envelopeMark)
}

// parseEnvelope accepts exactly what encode gives. Its error is ErrNotSealed, ErrVersion or ErrTampered.
func parseEnvelope(payload []byte) (envelope, error) {
	switch {
	case !LooksSealed(payload):
		return envelope{}, ErrNotSealed
	case !bytes.HasSuffix(payload, []byte(envelopeEnd)):
		return envelope{}, ErrVersion
	case len(payload) > maxPayload || len(payload) < envelopeRest:
		return envelope{}, ErrTampered
	}
	tail := len(payload) - (envelopeRest - len(envelopeCT))
	ct, rest := payload[len(envelopeCT):tail], payload[tail:]
	rest = rest[len(envelopeKey):]
	e := envelope{key: string(rest[:keyIDLen])}
	nonce := rest[keyIDLen+len(envelopeNonce):][:nonceText]
	var err error
	if e.nonce, err = b64.DecodeString(string(nonce)); err != nil {
		return envelope{}, ErrTampered
	}
	if e.ct, err = b64.DecodeString(string(ct)); err != nil {
		return envelope{}, ErrTampered
	}
	// A key id that is none could be printed; another spelling would be another envelope with the same content.
	if !validKeyID(e.key) || len(e.nonce) != chacha20poly1305.NonceSizeX || !bytes.Equal(e.encode(), payload) {
		return envelope{}, ErrTampered
	}
	return e, nil
}
