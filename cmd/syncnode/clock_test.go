package main

import (
	"os"
	"time"

	"github.com/syncnode/syncnode/node/work"
	"github.com/syncnode/syncnode/schedule/due"
)

// In the processes of tests, and in no program that is built, the wall clock of schedules can be put elsewhere.
func init() {
	ahead, err := time.ParseDuration(os.Getenv("SYNCNODE_TEST_AHEAD"))
	if err != nil {
		return
	}
	readClock = func() due.Reading {
		r := work.Clock()
		r.Wall = r.Wall.Add(ahead).Round(0)
		return r
	}
}
