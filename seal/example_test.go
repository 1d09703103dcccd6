package seal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/syncnode/syncnode/seal"
)

// A writer drafts first, and seals when the op has its place; a reader opens once, and folds the content.
func Example() {
	dir, err := os.MkdirTemp("", "seal-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "seal.keys")
	if _, err := seal.Generate(path, time.Now()); err != nil {
		panic(err)
	}
	keys, err := seal.Open(path)
	if err != nil {
		panic(err)
	}
	policy := seal.Policy{Scopes: []string{"personal"}}
	member, err := seal.New(seal.Config{Keys: keys, Policy: policy})
	if err != nil {
		panic(err)
	}

	draft, err := member.Draft("personal", "knowledge", []byte(`{"id":"door","code":1234}`))
	if err != nil {
		panic(err)
	}
	place := seal.Header{Device: "host-1", Wall: 1764379800000, Stamper: "host-1", Scope: "personal", Surface: "knowledge"}
	payload, err := draft.Payload(place)
	if err != nil {
		panic(err)
	}

	content, err := member.Read(place, payload)
	fmt.Printf("%s %v\n", content, err)

	stranger, err := seal.New(seal.Config{Policy: policy})
	if err != nil {
		panic(err)
	}
	_, err = stranger.Read(place, payload)
	fmt.Println("without the key:", errors.Is(err, seal.ErrNoKey), "park:", seal.Temporary(err))

	place.Seq, place.Prev = 1, "op-0"
	_, err = member.Read(place, payload)
	fmt.Println("elsewhere:", errors.Is(err, seal.ErrTampered), "park:", seal.Temporary(err))

	// Output:
	// {"id":"door","code":1234} <nil>
	// without the key: true park: true
	// elsewhere: true park: false
}
