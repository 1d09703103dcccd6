package seal

import (
	"io"
	"time"
)

// The tests choose what is random, so that golden files can hold every byte.

func (s *Sealer) SetRandom(r io.Reader) { s.random = r }

func GenerateFrom(path string, now time.Time, random io.Reader) (KeyInfo, error) {
	return generate(path, now, random)
}

func RotateFrom(path string, now time.Time, random io.Reader) (KeyInfo, error) {
	return rotate(path, now, random)
}

func ParseFile(text []byte) (n int, again []byte, err error) {
	keys, err := parseFile(text)
	if err != nil {
		return 0, nil, err
	}
	again = []byte(fileHeader + "1\n")
	for _, k := range keys {
		again = append(again, k.line()...)
	}
	return len(keys), again, nil
}

// AnySecret is the secret of the newest key.
func (k *Keys) AnySecret() Secret { key, _ := k.newest(); return key.secret }

const ChunkBytes = chunkBytes

// Derived is how many derived keys are kept.
func (s *Sealer) Derived() int { return len(s.aeads) }

// KeyID is the id of the key that seals.
func (s *Sealer) KeyID() string { key, _ := s.keys.newest(); return key.id }
