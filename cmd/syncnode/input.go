package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// readInput digests what --input names. For "-" the standard input is spooled, and what the child shall read
// instead is returned; it is nil otherwise. No input is the empty digest.
func readInput(name string, stdin io.Reader) (digest string, spool *os.File, err error) {
	switch name {
	case "":
		return "", nil, nil
	case "-":
		if spool, err = os.CreateTemp("", "syncnode-input-"); err != nil {
			return "", nil, fmt.Errorf("spool standard input: %w", err)
		}
		os.Remove(spool.Name())
		if digest, err = digestOf(io.TeeReader(stdin, spool)); err == nil {
			_, err = spool.Seek(0, io.SeekStart)
		}
		if err != nil {
			spool.Close()
			return "", nil, fmt.Errorf("spool standard input: %w", err)
		}
		return digest, spool, nil
	default:
		f, err := os.Open(name)
		if err != nil {
			return "", nil, fmt.Errorf("read input: %w", err)
		}
		defer f.Close()
		if digest, err = digestOf(f); err != nil {
			return "", nil, fmt.Errorf("read input %s: %w", name, err)
		}
		return digest, nil, nil
	}
}

func digestOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
