package effect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxSecret bounds the file of a secret, in bytes.
const maxSecret = 16 << 10

// readSecret reads a file with one line, without the end of the line. Its errors have the path and nothing of the content.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	var bad error
	switch {
	case len(text) == 0:
		bad = errors.New("it is empty")
	case len(text) > maxSecret:
		bad = fmt.Errorf("it has more than %d bytes", maxSecret)
	case bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		bad = errors.New("it has more than one line, or control characters")
	}
	if bad != nil {
		return nil, fmt.Errorf("%s: %w", path, bad)
	}
	return text, nil
}
