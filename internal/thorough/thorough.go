// Package thorough says how much of a long test is run: all of it where the project's own checks run, which set
// SYNCNODE_CI (.ci/run) or SYNCNODE_FULL (make race, race-all, cluster and full), and a part of it for a reader who runs
// `go test ./...`. It also says whether the race detector is there. Tests and their harness alone import it.
package thorough

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// Asked reports whether long tests are to run in whole.
func Asked() bool { return os.Getenv("SYNCNODE_CI") != "" || os.Getenv("SYNCNODE_FULL") != "" }

// Of is all where long tests are to run in whole, and part elsewhere.
func Of[T any](all, part T) T {
	if Asked() {
		return all
	}
	return part
}

// Only skips a test that a reader's run leaves to the project's own checks: one of many processes, or another case of what a test that
// stays shows.
func Only(t testing.TB) {
	t.Helper()
	if !Asked() {
		t.Skip("left out of a reader's five minutes: it runs where SYNCNODE_CI or SYNCNODE_FULL is set, as in `make cluster`")
	}
}

// Raced reports whether this program was built with the race detector, under which everything takes several times the processor time and
// memory (https://go.dev/doc/articles/race_detector).
func Raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
