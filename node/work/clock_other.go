//go:build !linux

package work

import (
	"time"

	"github.com/syncnode/syncnode/schedule/due"
)

var start = time.Now()

// Clock reads the wall clock and the monotonic clock, which may stand still in suspend: then what came due meanwhile is seen
// within due.MaxWait after it.
func Clock() due.Reading {
	now := time.Now()
	return due.Reading{Wall: now, Boot: now.Sub(start)}
}
