package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// An input is what --input names.
type input struct {
	digest string   // of no input it is empty
	spool  *os.File // what the child shall read instead of standard input, for "-"; nil otherwise
}

// awaitInput is readInput that ends with ctx. What waits for a pipe or a terminal cannot be called back: it is left behind, and nobody
// uses what it reads.
func awaitInput(ctx context.Context, name string, stdin io.Reader) (input, error) {
	type answer struct {
		in  input
		err error
	}
	read := make(chan answer, 1)
	go func() {
		in, err := readInput(name, stdin)
		read <- answer{in, err}
	}()
	select {
	case a := <-read:
		return a.in, a.err
	case <-ctx.Done():
		return input{}, context.Cause(ctx)
	}
}

// readInput digests an input. Standard input is spooled.
func readInput(name string, stdin io.Reader) (in input, err error) {
	switch name {
	case "":
		return in, nil
	case "-":
		if in.spool, err = os.CreateTemp("", "syncnode-input-"); err != nil {
			return in, fmt.Errorf("spool standard input: %w", err)
		}
		os.Remove(in.spool.Name())
		if in.digest, err = digestOf(io.TeeReader(stdin, in.spool)); err == nil {
			_, err = in.spool.Seek(0, io.SeekStart)
		}
		if err != nil {
			in.spool.Close()
			return input{}, fmt.Errorf("spool standard input: %w", err)
		}
		return in, nil
	default:
		f, err := os.Open(name)
		if err != nil {
			return in, fmt.Errorf("read input: %w", err)
		}
		defer f.Close()
		if in.digest, err = digestOf(f); err != nil {
			return in, fmt.Errorf("read input %s: %w", name, err)
		}
		return in, nil
	}
}

func digestOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
