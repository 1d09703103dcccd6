// Package thorough says how much of a long test is run: all of it where the project's own checks run, which set
// SYNCNODE_CI or SYNCNODE_FULL, and a part of it for a reader who runs `go test ./...`. Tests alone import it.
package thorough

import "os"

// Asked reports whether long tests are to run in whole.
func Asked() bool { return os.Getenv("SYNCNODE_CI") != "" || os.Getenv("SYNCNODE_FULL") != "" }

// Of is all where long tests are to run in whole, and part elsewhere.
func Of[T any](all, part T) T {
	if Asked() {
		return all
	}
	return part
}
