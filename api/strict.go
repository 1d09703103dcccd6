package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDepth is how deep a body may be nested.
const maxDepth = 16

// checkJSON refuses what readers of JSON take in different ways: repeated names, trailing data, great depth.
func checkJSON(body []byte) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := checkValue(dec, 0); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}

func checkValue(dec *json.Decoder, depth int) error {
	t, err := dec.Token()
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	names := map[string]bool{}
	for dec.More() {
		if open == '{' {
			t, err := dec.Token()
			if err != nil {
				return fmt.Errorf("not JSON: %w", err)
			}
			name, _ := t.(string)
			if names[name] {
				return fmt.Errorf("%.64q is given twice", name)
			}
			names[name] = true
		}
		if err := checkValue(dec, depth+1); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // the closing one
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}

// encode is for values of our own, which always have a JSON form.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}
